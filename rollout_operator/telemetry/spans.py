"""Spans: which work took how long, inside which other work, with the reasons it came to.

`traces` records them if the environment asks for it. Until then each call here returns the same
object, which does nothing: a review has no time to spare.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from enum import Enum, auto, unique
from types import TracebackType
from typing import Final, Self, TypeVar

from rollout_operator.model.outcome import Reason

Attribute = str | int | bool

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


_NOTHING: Final[Mapping[str, str]] = {}


@unique
class SpanRole(Enum):
    """Which part a span has in a request."""

    INTERNAL = auto()
    SERVER = auto()
    CLIENT = auto()


class Span:
    """Work underway: it begins and ends with a `with` block, and fails by its exception.

    This one keeps nothing; that of a tracing library is derived from it.
    """

    __slots__ = ()

    @property
    def is_recorded(self) -> bool:
        """Return whether anything is kept: nothing need be put together where it is not."""
        return False

    @property
    def log_keys(self) -> Mapping[str, str]:
        """Return the keys by which a log line is found from the trace, if tracing is on."""
        return _NOTHING

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        pass

    def record_reasons(self, reasons: Iterable[Reason]) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


NO_SPAN: Final = Span()


class Spans:
    """The source of spans, which makes none; that of a tracing library is derived from it too."""

    def begin(self, name: str, role: SpanRole = SpanRole.INTERNAL) -> Span:
        """Return a span inside of the current one, or the first of a new trace."""
        return NO_SPAN

    def begin_within(self, name: str, role: SpanRole = SpanRole.CLIENT) -> Span:
        """Return a span inside of the current one; where none is recorded, neither is this."""
        return NO_SPAN

    def get_current(self) -> Span:
        """Return the span of the work at hand, to be added to; it is not to be entered."""
        return NO_SPAN

    def make_headers(self) -> Mapping[str, str]:
        """Return the headers by which another process continues the trace, if there is one."""
        return _NOTHING


class Tracing:
    """The spans of this process, as `log` is its log: `with tracing.spans.begin("review")`."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans = Spans()

    @property
    def is_on(self) -> bool:
        return type(self.spans) is not Spans

    def bind(self, spans: Spans | None) -> None:
        """Take spans from `spans` from now on; None turns tracing off."""
        self.spans = Spans() if spans is None else spans


tracing: Final = Tracing()


def get_trace_keys() -> Mapping[str, str]:
    span = tracing.spans.get_current()
    return span.log_keys if span.is_recorded else _NOTHING


def trace_keys(name: str, reconcile: Callable[[K], Awaitable[R]]) -> Callable[[K], Awaitable[R]]:
    """Return `reconcile` with a span of this name around each key."""

    async def reconcile_traced(key: K) -> R:
        with tracing.spans.begin(name) as span:
            if span.is_recorded:
                span.set_attributes({"key": "/".join(key) if isinstance(key, tuple) else str(key)})
            return await reconcile(key)

    return reconcile_traced
