"""The file system of the image without a container engine: for `chroot`, with this interpreter.

What the image adds is made by the script that the Dockerfile runs. Its base, an interpreter with
its libraries and nothing else, is copied from this machine: no shell, no /tmp. Or all of it is
taken from the archive of a release, which IMAGE_ARCHIVE names.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from release.image.rootfs import architecture_here
from tests.code_rules import ROOT

# No entry in any password file, and group 0: what OpenShift gives.
USER = "12345:0"
LAUNCHER = Path("/usr/bin/rollout-operator")
LIBRARY = Path("/usr/lib/rollout-operator")
# Parts of the standard library that no image has, or that take long to copy.
_LEFT_OUT = shutil.ignore_patterns(
    "test", "idlelib", "tkinter", "ensurepip", "site-packages", "config-*", "lib2to3", "turtledemo"
)


def copy_context(folder: Path) -> None:
    """Copy what the Dockerfile takes from the checkout: two builds of it see the same sources."""
    for name in ("image", "rollout_operator"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "requirements.lock", folder)


def assemble(context: Path, root: Path, install: str = "") -> None:
    """Run the build step of the image into `root`; `install`: what fetches in place of pip."""
    environ = os.environ | {"PYTHON": sys.executable, "INSTALL": install}
    subprocess.run([context / "image" / "assemble", root], env=environ, check=True)


def unpack_archive(archive: Path, root: Path) -> None:
    """Unpack the image for this machine out of an OCI archive, as an engine would."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            content = tar.extractfile(name)
            assert content is not None
            return content.read()

        def follow(descriptor: dict[str, Any]) -> Any:
            return json.loads(read(f"blobs/{descriptor['digest'].replace(':', '/')}"))

        entries = json.loads(read("index.json"))["manifests"]
        (index,) = (one for one in entries if one["mediaType"].endswith("index.v1+json"))
        here = architecture_here()
        (image,) = (
            one for one in follow(index)["manifests"] if one["platform"]["architecture"] == here
        )
        for layer in follow(image)["layers"]:
            blob = read(f"blobs/{layer['digest'].replace(':', '/')}")
            with tarfile.open(fileobj=io.BytesIO(blob)) as files:
                files.extractall(root, filter="tar")


def add_interpreter(root: Path) -> None:
    """Put this interpreter where the launcher looks for it."""
    real = Path(sys.executable).resolve()
    library = Path(os.__file__).parent
    _inside(root, real).parent.mkdir(parents=True)
    shutil.copy2(real, _inside(root, real))
    shutil.copytree(library, _inside(root, library), ignore=_LEFT_OUT)
    binaries = [real, *library.glob("lib-dynload/*.so"), *root.rglob(f".{LIBRARY}/**/*.so*")]
    for shared in sorted(set(_shared_libraries(binaries))):
        _inside(root, shared).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(shared, _inside(root, shared))
    _named_by_launcher(root).symlink_to(real)
    (root / "proc").mkdir()
    # The copy is as open to others as the image is, whatever the modes were here.
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", root], check=True)


def run(root: Path, *command: str | Path, user: str = USER) -> subprocess.CompletedProcess[str]:
    """Run a command in the tree as a user without name, home, environment or writable path."""
    chroot = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"
    return subprocess.run(
        [chroot, f"--userspec={user}", root, *command],
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def digests(root: Path) -> dict[str, str]:
    """Return a digest of mode and content of each file, and the target of each link."""
    return {str(path.relative_to(root)): _digest(path) for path in sorted(root.rglob("*"))}


def _digest(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    content = path.read_bytes() if path.is_file() else b""
    return f"{path.stat().st_mode:o} {hashlib.sha256(content).hexdigest()}"


def _inside(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _named_by_launcher(root: Path) -> Path:
    first, _, _ = _inside(root, LAUNCHER).read_text().partition("\n")
    return _inside(root, Path(first.removeprefix("#!").split()[0]))


def _shared_libraries(binaries: Iterable[Path]) -> Iterator[Path]:
    for binary in binaries:
        listed = subprocess.run(["ldd", binary], capture_output=True, check=False, text=True)
        for line in listed.stdout.splitlines():
            # `libm.so.6 => /lib/libm.so.6 (0x7f..)`, and the loader: `/lib64/ld-linux.so (0x7f..)`
            path = line.rpartition("=>")[2].partition("(")[0].strip()
            # A library that a wheel brings along is in the tree already.
            if path.startswith("/") and str(LIBRARY) not in path:
                yield Path(path)
