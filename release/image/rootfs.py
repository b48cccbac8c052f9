"""The file system of the image: what is kept of the base's packages, and the operator on top.

Packages are unpacked and none of their scripts runs. What those would have made, and the operator
needs, is made here: one file of certificate authorities, byte code, and the files that name users.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from release.image.debian import BaseError, Package

# As Debian's folders are called.
TRIPLETS: Final[Mapping[str, str]] = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
LOADERS: Final[Mapping[str, str]] = {
    "amd64": "lib64/ld-linux-x86-64.so.2",
    "arm64": "lib/ld-linux-aarch64.so.1",
}
# The oldest C library that wheels may ask for; trixie has 2.41.
_WHEELS: Final[Mapping[str, str]] = {
    "amd64": "x86_64-manylinux_2_28",
    "arm64": "aarch64-manylinux_2_28",
}
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_PYTHON: Final = "usr/lib/python3.13"
# What the operator has no use for. Licences (usr/share/doc/*/copyright) stay.
_LEFT_OUT: Final = (
    *("home", "media", "mnt", "opt", "root", "run", "srv", "tmp", "var"),
    *("boot", "usr/games", "usr/include", "usr/local", "usr/sbin", "usr/src", "usr/libexec"),
    *(f"etc/{name}" for name in ("cron.d", "profile.d", "skel", "update-motd.d", "opt")),
    *(f"etc/{name}" for name in ("ca-certificates", "ca-certificates.conf", "python3.13")),
    *(f"usr/share/{name}" for name in ("base-files", "bug", "debconf", "dict", "info", "lintian")),
    *(
        f"usr/share/{name}"
        for name in ("locale", "man", "misc", "python3", "binfmts", "gcc", "gdb")
    ),
    *(f"usr/lib/{name}" for name in ("games", "mime", "valgrind", "locale", "bfd-plugins")),
    "usr/lib/binfmt.d",
    *(f"usr/lib/{triplet}/{name}" for triplet in TRIPLETS.values() for name in ("gconv", "audit")),
    # A release of a library may import any other module of the standard library one day.
    *(f"{_PYTHON}/{name}" for name in ("test", "pydoc_data", "ensurepip", "sitecustomize.py")),
    *(f"{_PYTHON}/{name}" for name in ("curses", "dbm", "sqlite3")),
)
# Modules of the standard library whose own libraries the base does not have.
_UNLINKED: Final = ("_curses", "_curses_panel", "_dbm", "_sqlite3", "readline")
_AUTHORITIES: Final = "etc/ssl/certs/ca-certificates.crt"
# The operator runs by number; the names are there for whoever looks at files.
_USERS: Final = {"root": 0, "nonroot": 65532}
_WRITTEN: Final[Mapping[str, str]] = {
    "etc/passwd": "".join(f"{u}:x:{n}:{n}::/:/sbin/nologin\n" for u, n in _USERS.items()),
    "etc/group": "".join(f"{user}:x:{number}:\n" for user, number in _USERS.items()),
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def unpack_base(root: Path, files: Mapping[Package, Path]) -> None:
    """Put the base into the empty folder `root`. Raises BaseError."""
    for package, path in sorted(files.items()):
        _run("dpkg-deb", "--extract", path, root)
        control = _run("dpkg-deb", "--field", path)
        # Where scanners of images look, since there is no package manager to ask.
        status = root / "status" / package.name
        status.parent.mkdir(exist_ok=True)
        status.write_text(control)
    _join_authorities(root)
    for name in _LEFT_OUT:
        _remove(root / name)
    for path in root.glob("usr/share/doc/*/*"):
        if path.name != "copyright":
            _remove(path)
    for path in root.glob(f"{_PYTHON}/lib-dynload/*.so"):
        if path.name.partition(".")[0] in _UNLINKED:
            path.unlink()
    for path in root.glob("usr/bin/*"):
        if path.name != "python3.13":
            path.unlink()
    for name, text in _WRITTEN.items():
        (root / name).write_text(text)
    (root / "var" / "lib" / "dpkg").mkdir(parents=True)
    (root / "status").rename(root / "var" / "lib" / "dpkg" / "status.d")
    close(root)


def compile_base(root: Path, python: Path) -> None:
    """Compile the standard library with an interpreter of its version."""
    words = ("-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash")
    _run(python, *words, "-s", root, "-p", "/", root / _PYTHON)


def add_operator(root: Path, source: Path, architecture: str, python: Path) -> None:
    """Run the step that the Dockerfile runs, with wheels for an architecture. Raises BaseError."""
    install = (
        f"{sys.executable} -m uv pip install --quiet --python-version 3.13"
        f" --python-platform {_WHEELS[architecture]} --link-mode copy"
    )
    _run(source / "image" / "assemble", root, env={"INSTALL": install, "PYTHON": str(python)})


def write_interpreter(root: Path, at: Path) -> Path:
    """Write a command that runs the base's interpreter on this machine, outside of the base."""
    architecture = architecture_here()
    libraries = root / "usr" / "lib" / TRIPLETS[architecture]
    loader = f"{root}/{LOADERS[architecture]} --library-path {libraries}"
    at.write_text(
        "#!/bin/sh\n"
        # Byte code that an import writes would name the folders of this build.
        f"export PYTHONHOME={root}/usr PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1\n"
        f'exec {loader} {root}/usr/bin/python3.13 "$@"\n'
    )
    at.chmod(0o755)
    return at


def architecture_here() -> str:
    """Return what Debian calls this machine. Raises BaseError."""
    found = _MACHINES.get(platform.machine())
    if found is None or sys.platform != "linux":
        raise BaseError(f"byte code is made on Linux of {', '.join(_MACHINES)}")
    return found


def close(root: Path) -> None:
    """Let everybody read, let nobody write: the owner is root, who runs nothing."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            is_run = path.is_dir() or path.stat().st_mode & 0o111
            path.chmod(0o755 if is_run else 0o644)


def _join_authorities(root: Path) -> None:
    """Write what update-ca-certificates would, and lead openssl's own path to it."""
    each = sorted((root / "usr" / "share" / "ca-certificates").rglob("*.crt"))
    bundle = root / _AUTHORITIES
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(path.read_text().rstrip() + "\n" for path in each))
    shutil.rmtree(root / "usr" / "share" / "ca-certificates")
    default = root / "usr" / "lib" / "ssl" / "cert.pem"
    default.parent.mkdir(parents=True, exist_ok=True)
    default.symlink_to(f"/{_AUTHORITIES}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run(*words: str | Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        words, env={**os.environ, **(env or {})}, capture_output=True, check=False, text=True
    )
    if done.returncode:
        raise BaseError(f"{Path(words[0]).name} failed:\n{done.stderr}")
    return done.stdout
