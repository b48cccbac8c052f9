"""Run a command as a container does, without an engine: own root, read-only, a limit of memory.

For root on Linux only. /proc is the one thing that is mounted, as every engine does it.
"""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

_GROUPS: Final = Path("/sys/fs/cgroup")
# $0 is the root, $1 the user, $2 the folder of the limit, if any; the rest is the command. Engines
# set HOME to / for a user without a name; what reads kubeconfigs wants one.
_ENTER: Final = """
root=$0 user=$1 group=$2; shift 2
[ -z "$group" ] || echo $$ > "$group/cgroup.procs"
mount --bind "$root" "$root"
mount -o remount,bind,ro,nosuid "$root"
mount -t proc -o ro proc "$root/proc"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ POD_NAME="$POD_NAME" POD_IP="$POD_IP" \
    chroot --userspec="$user" "$root" "$@"
"""


class MemoryLimit(msgspec.Struct, frozen=True):
    """A group of processes that is ended where it takes more memory, caches included."""

    folder: Path
    has_names_of_v1: bool

    def read_peak(self) -> int:
        """Return the most that the group has had, in bytes."""
        name = "memory.max_usage_in_bytes" if self.has_names_of_v1 else "memory.peak"
        return int((self.folder / name).read_text())

    def count_kills(self) -> int:
        """Return how often a process was ended for want of memory."""
        name = "memory.oom_control" if self.has_names_of_v1 else "memory.events"
        counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(counts["oom_kill"])


@contextmanager
def limit_memory(size: int) -> Iterator[MemoryLimit | None]:
    """Yield a group with a limit, or None where this machine forbids it."""
    is_v1 = _has_v1("memory")
    name = "memory.limit_in_bytes" if is_v1 else "memory.max"
    with _limit("memory", name, f"{size}") as folder:
        yield MemoryLimit(folder, is_v1) if folder else None


def limit_processor(share: float) -> AbstractContextManager[Path | None]:
    """Yield the folder of a group that has this share of one core, or None as above.

    In each tenth of a second, as kubelets set it.
    """
    quota = round(share * 100_000)
    if _has_v1("cpu"):
        return _limit("cpu", "cpu.cfs_quota_us", f"{quota}")
    return _limit("cpu", "cpu.max", f"{quota} 100000")


def _has_v1(controller: str) -> bool:
    return (_GROUPS / controller).is_dir()


@contextmanager
def _limit(controller: str, name: str, value: str) -> Iterator[Path | None]:
    above = _GROUPS / controller if _has_v1(controller) else _GROUPS
    folder = above / f"test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
        (folder / name).write_text(value)
    except OSError:
        if folder.is_dir():
            folder.rmdir()
        yield None
        return
    try:
        yield folder
    finally:
        folder.rmdir()


def contained(root: Path, user: str, limit: MemoryLimit | None, *command: str) -> tuple[str, ...]:
    """Return the words that run a command so, as `user`, which is `uid:gid`."""
    group = str(limit.folder) if limit else ""
    return ("unshare", "--mount", "sh", "-euc", _ENTER, str(root), user, group, *command)


def can_contain() -> bool:
    """Return whether this machine lets this user mount."""
    if os.geteuid() != 0:
        return False
    words = ["unshare", "--mount", "mount", "--bind", "/usr", "/usr"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
