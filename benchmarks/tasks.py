"""What a child process is asked to measure."""

from enum import StrEnum, unique

import msgspec

from benchmarks.processes import Target


@unique
class Loop(StrEnum):
    """Event loops that the operator runs on: uvloop, and asyncio's own where that is missing."""

    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement inside of a child."""

    target: Target | None = None
    loop: Loop = Loop.UVLOOP
    count: int = 0
    """Of events or of repetitions."""
    seconds: float = 0.0
    """How long to look at the idle process first."""

    @property
    def server(self) -> Target:
        """Return the server to measure against. Raises ValueError where the task has none."""
        if self.target is None:
            raise ValueError("task: target: not set")
        return self.target
