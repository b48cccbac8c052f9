"""Wheels and source distributions, made by the build backend that each pyproject.toml names.

It runs on a copy of the repository's files, so that nothing else of a checkout gets in, and what it
makes of the source is packed again, since it writes owners and the times of the machine.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from release.archives import compress, pack
from release.source import Source, copy_source, mode_of

# As a front end would call it, but in this environment: nothing is fetched.
_BUILD: Final = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""


def build_distributions(source: Source, folder: Path, scratch: Path) -> list[Path]:
    """Write both of the operator and both of the lab into `folder` and return them, in that order.

    `scratch` is an empty folder.
    """
    tree = scratch / "tree"
    copy_source(source, tree)
    operator = _build(source, tree, folder, scratch / "operator")
    # After the operator's: its source distribution is the repository, with one licence.
    shutil.copy2(tree / "LICENSE", tree / "lab")
    return [*operator, *_build(source, tree / "lab", folder, scratch / "lab")]


def _build(source: Source, tree: Path, folder: Path, scratch: Path) -> list[Path]:
    scratch.mkdir()
    wheel = _call_backend(source, tree, "wheel", folder)
    sdist = _call_backend(source, tree, "sdist", scratch)
    return [wheel, _pack_again(sdist, source.epoch, folder)]


def _call_backend(source: Source, tree: Path, kind: str, folder: Path) -> Path:
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _BUILD, kind, str(folder.resolve())],
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the {kind} could not be built:\n{done.stderr}")
    return folder / done.stdout.splitlines()[-1]


def _pack_again(sdist: Path, epoch: int, folder: Path) -> Path:
    unpacked = sdist.parent / "unpacked"
    with tarfile.open(sdist) as tar:
        tar.extractall(unpacked, filter="data")
    files = {
        path.relative_to(unpacked).as_posix(): (path.read_bytes(), mode_of(path))
        for path in unpacked.rglob("*")
        if path.is_file()
    }
    packed = folder / sdist.name
    packed.write_bytes(compress(pack(files, epoch)))
    return packed
