"""Archives whose bytes follow from their contents: order, owner, time and mode are decided here."""

import gzip
import io
import stat
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

# The best that gzip has; the bytes are those of the zlib that runs.
_LEVEL: Final = 9


def pack(files: Mapping[str, tuple[bytes, int]], epoch: int) -> bytes:
    """Return a tar of files, each a name with content and mode, in the order of the names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, (content, mode) in sorted(files.items()):
            entry = _entry(name, mode, epoch)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def pack_tree(root: Path, paths: Iterable[Path], epoch: int) -> bytes:
    """Return a tar of what is below `root`, as it belongs to root: folders, files and links."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(paths, key=lambda one: one.relative_to(root).as_posix()):
            _add(tar, path, path.relative_to(root).as_posix(), epoch)
    return buffer.getvalue()


def compress(content: bytes) -> bytes:
    """Return gzip without name and time."""
    return gzip.compress(content, _LEVEL, mtime=0)


def _add(tar: tarfile.TarFile, path: Path, name: str, epoch: int) -> None:
    status = path.lstat()
    entry = _entry(name, stat.S_IMODE(status.st_mode), epoch)
    if stat.S_ISLNK(status.st_mode):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        tar.addfile(entry)
    elif stat.S_ISDIR(status.st_mode):
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    else:
        entry.size = status.st_size
        with path.open("rb") as content:
            tar.addfile(entry, content)


def _entry(name: str, mode: int, epoch: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, epoch
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
