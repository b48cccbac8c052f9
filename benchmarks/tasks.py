"""What a child process is asked to measure."""

from enum import StrEnum, unique

import msgspec

from benchmarks.processes import Target


@unique
class Loop(StrEnum):
    """Event loops that the operator runs on: uvloop, and asyncio's own where that is missing."""

    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a TLS server, and how often."""

    port: int
    pid: int
    """Of the server, whose use of the processor is measured."""
    request: bytes
    expected: bytes = b""
    """What a right answer holds."""
    connections: int = 32
    warm_up_s: float = 0.3
    """Not measured: caches of both sides become warm, and memory gets its pages."""
    seconds: float = 1.0
    per_s: float = 500.0
    count: int = 0
    """Of connections, where each is a new one."""


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """Evictions that are asked of an API server, as fast as it answers."""

    port: int
    token: str
    namespace: str
    pods: tuple[str, ...]
    """Asked for in turn."""
    count: int
    connections: int = 64


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement inside of a child."""

    target: Target | None = None
    loop: Loop = Loop.UVLOOP
    count: int = 0
    """Of events, of repetitions or of bodies."""
    rounds: int = 1
    """How often all of them."""
    seconds: float = 0.0
    """How long to look at the idle process first."""
    load: Load | None = None
    storm: Storm | None = None
    shakes_hands: bool = False
    """Whether silent connections have made their handshake."""

    @property
    def server(self) -> Target:
        """Return the server to measure against. Raises ValueError where the task has none."""
        if self.target is None:
            raise ValueError("task: target: not set")
        return self.target

    @property
    def requesting(self) -> Load:
        """Return what to ask. Raises ValueError where the task has none."""
        if self.load is None:
            raise ValueError("task: load: not set")
        return self.load
