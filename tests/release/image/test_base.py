"""The base of the image: which packages, and what is kept of them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from release.image.debian import (
    ARCHITECTURES,
    LOCK,
    PACKAGES,
    BaseError,
    Package,
    find_mirror,
    read_base,
    render_base,
)
from release.image.rootfs import unpack_base
from tests.code_rules import ROOT

LOCKED = read_base(ROOT / LOCK)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_package_is_locked_for_every_platform(architecture: str) -> None:
    """DEP-22, SEC-28."""
    names = [one.name for one in LOCKED if one.architecture in (architecture, "all")]

    assert sorted(names) == sorted(PACKAGES)


def test_the_lock_is_as_it_is_written() -> None:
    assert render_base(LOCKED) == (ROOT / LOCK).read_text()
    (one,) = (each for each in LOCKED if (each.name, each.architecture) == ("libstdc++6", "amd64"))
    assert one.purl.startswith("pkg:deb/debian/libstdc%2B%2B6@")


@pytest.mark.parametrize(
    "line",
    [
        "URIs: http://mirror.example.org/debian\nSuites: bookworm\n",
        "deb http://mirror.example.org/debian bookworm main\n",
        "deb [signed-by=/x.gpg] http://mirror.example.org/debian/ trixie main\n",
    ],
)
def test_the_mirror_is_that_of_the_machine(tmp_path: Path, line: str) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb https://other.example.org/apt stable main\n")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(line)

    assert find_mirror(tmp_path) == "http://mirror.example.org/debian"


def test_a_machine_that_is_no_debian_is_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(BaseError, match="names no mirror of Debian"):
        find_mirror(tmp_path)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="packages are built with dpkg-deb")
def test_what_is_kept_of_a_package(tmp_path: Path) -> None:
    """SEC-28, DEP-22: no other programs, no scripts; licences, and what scanners look for."""
    tree = tmp_path / "package"
    for name in (
        "DEBIAN/control",
        "usr/bin/python3.13",
        "usr/bin/other",
        "usr/lib/python3.13/os.py",
        "usr/lib/python3.13/test/x.py",
        "usr/lib/python3.13/lib-dynload/_sqlite3.cpython-313-x86_64-linux-gnu.so",
        "usr/share/ca-certificates/b.crt",
        "usr/share/ca-certificates/a.crt",
        "usr/share/doc/it/copyright",
        "usr/share/doc/it/changelog.gz",
        "var/lib/it/state",
    ):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name}\n")
    (tree / "etc").mkdir()
    control = "Package: it\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@example.org>\n"
    (tree / "DEBIAN" / "control").write_text(f"{control}Description: one\n")
    deb = tmp_path / "it.deb"
    subprocess.run(["dpkg-deb", "--build", tree, deb], check=True, capture_output=True)
    root = tmp_path / "root"
    root.mkdir()
    package = Package(name="it", version="1", architecture="amd64", sha256="0" * 64)

    unpack_base(root, {package: deb})

    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}
    assert files == {
        *(f"etc/{name}" for name in ("passwd", "group", "nsswitch.conf")),
        *("etc/ssl/certs/ca-certificates.crt", "usr/bin/python3.13", "usr/lib/python3.13/os.py"),
        *("usr/share/doc/it/copyright", "var/lib/dpkg/status.d/it"),
        "usr/lib/ssl/cert.pem",
    }
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text() == "a.crt\nb.crt\n"
    assert "Package: it" in (root / "var/lib/dpkg/status.d/it").read_text()
    writable = [path for path in root.rglob("*") if path.lstat().st_mode & 0o022]
    assert [path for path in writable if not path.is_symlink()] == []
