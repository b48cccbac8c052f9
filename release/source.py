"""The commit that a release is made from: which files, which version, which time.

Only files that belong to the repository count, so that nothing else in a checkout gets into a
release. An unpacked source distribution has no repository: all its files count, and its own times.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_EPOCH: Final = "SOURCE_DATE_EPOCH"
_VERSION: Final = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
# What building and testing leaves behind, where no repository says what is its own.
_LEFT_BEHIND: Final = {"dist", "build", "__pycache__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A tree of files, and what a release says about it."""

    root: Path
    files: tuple[str, ...]
    """Paths below `root`, in order."""
    version: str
    epoch: int
    """When the commit was made, in seconds: the date of all that is released."""
    revision: str
    """The commit; empty where it is unknown, with `-dirty` where files differ from it."""


def read_source(root: Path = ROOT) -> Source:
    """Return what is in a checkout, or in an unpacked source distribution."""
    text = (root / "rollout_operator" / "__init__.py").read_text()
    match = _VERSION.search(text)
    assert match is not None, "rollout_operator/__init__.py names the version"
    has_git = (root / ".git").exists()
    return Source(
        root=root,
        files=tuple(sorted(_list_tracked(root) if has_git else _list_all(root))),
        version=match[1],
        epoch=_find_epoch(root, has_git=has_git),
        revision=_find_revision(root) if has_git else "",
    )


def copy_source(source: Source, folder: Path) -> None:
    """Copy the files with the modes that git knows of: 755 for what can be run, else 644."""
    for name in source.files:
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.root / name, to)
        to.chmod(mode_of(source.root / name))
        os.utime(to, (source.epoch, source.epoch))


def mode_of(path: Path) -> int:
    """Return 755 or 644, whatever else the checkout allows."""
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def _list_tracked(root: Path) -> list[str]:
    names = _git(root, "ls-files", "-z").split("\0")
    return [name for name in names if name and (root / name).is_file()]


def _list_all(root: Path) -> list[str]:
    below = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [
        path.as_posix()
        for path in below
        if not {*path.parts} & _LEFT_BEHIND and not path.parts[0].startswith(".venv")
    ]


def _find_epoch(root: Path, *, has_git: bool) -> int:
    if given := os.environ.get(_EPOCH):
        return int(given)
    if has_git:
        return int(_git(root, "log", "-1", "--format=%ct"))
    return int((root / "pyproject.toml").stat().st_mtime)


def _find_revision(root: Path) -> str:
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return _git(root, "rev-parse", "HEAD").strip() + ("-dirty" if changed else "")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, check=True, text=True
    ).stdout
