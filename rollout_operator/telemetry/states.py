"""What makes /ready and /livez fail.

Each part of the process says what it lacks or what is broken, and whether that is worth a restart:
not ready means no traffic, not alive means a restart.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Final, NoReturn

import msgspec

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock
from rollout_operator.model.description import OperatorDescription, PartReport
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

_PartCheck = Callable[[], str | None]
"""Returns what is missing or broken in a few words, None where all is well."""

# Four beats a second cost nothing, and a stall is measured to a quarter of a second.
BEAT: Final = timedelta(seconds=0.25)
# What the loop did is judged over this span.
WINDOW: Final = timedelta(seconds=30)
# A stall this long makes a probe with a time-out of some seconds fail by itself.
STALL: Final = timedelta(seconds=5)
# One long stall is over when we can report it (a frozen node, a starved container), and a restart
# would cost more. The second one within WINDOW shows that it will go on.
_STALLS: Final = 2


class _Part(msgspec.Struct, frozen=True):
    name: str
    is_ready: _PartCheck
    is_alive: _PartCheck
    describe: _PartCheck
    find_partial_lack: _PartCheck


def _fine() -> str | None:
    return None


class Health:
    """Readiness and liveness of the whole process, or of one of its namespaces."""

    def __init__(self, clock: Clock, *, is_whole: bool = True) -> None:
        """Only for the whole process a loss of liveness means a restart, and is logged as one."""
        self._clock = clock
        self._is_whole = is_whole
        self._parts: list[_Part] = []
        self._is_stopping = False
        self._was_ready = False
        self._was_faulty = False
        self._turned = clock.elapsed()

    def part(
        self,
        name: str,
        *,
        is_ready: _PartCheck = _fine,
        is_alive: _PartCheck = _fine,
        describe: _PartCheck = _fine,
        find_partial_lack: _PartCheck = _fine,
    ) -> None:
        """Include a part; `describe` says what people want to know of it.

        `find_partial_lack` says what it lacks without making the process unready.
        """
        self._parts.append(_Part(name, is_ready, is_alive, describe, find_partial_lack))

    def stopping(self) -> None:
        self._is_stopping = True

    def list_missing(self) -> tuple[str, ...]:
        """Return what is missing to be ready, one line per part; empty means ready.

        Logs when the process becomes ready or unready.
        """
        missing = self._list_missing()
        self._record(missing)
        return missing

    def list_partial_lacks(self) -> tuple[str, ...]:
        return _collect((part.name, part.find_partial_lack) for part in self._parts)

    def list_descriptions(self) -> tuple[str, ...]:
        return tuple(report.line for report in self._list_reports())

    def describe(self, *, is_acting: bool) -> OperatorDescription:
        """Return what a person wants to know of the process, or of one of its namespaces."""
        missing, reports = self.list_missing(), tuple(self._list_reports())
        return OperatorDescription(
            version=__version__,
            is_ready=not missing,
            is_acting=is_acting,
            missing=missing,
            parts=tuple(report.line for report in reports),
            reports=reports,
        )

    def list_faults(self) -> tuple[str, ...]:
        """Return what is broken beyond repair from inside, one line per part; empty means alive.

        While stopping, tasks end on purpose, and a restart is under way already: no faults.
        """
        if self._is_stopping:
            return ()
        faults = _collect((part.name, part.is_alive) for part in self._parts)
        # The kubelet's event has only the status code: the cause of the restart must be here.
        if faults and not self._was_faulty and self._is_whole:
            log.error("Liveness lost", why="; ".join(faults))
        self._was_faulty = bool(faults)
        return faults

    def _list_missing(self) -> tuple[str, ...]:
        if self._is_stopping:
            return ("operator: stopping",)
        # The admin server answers before any other part exists.
        if not self._parts:
            return ("operator: starting",)
        return _collect((part.name, part.is_ready) for part in self._parts)

    def _list_reports(self) -> Iterator[PartReport]:
        for part in self._parts:
            text = part.describe()
            if text is not None:
                yield PartReport(name=part.name, text=text)

    def _record(self, missing: tuple[str, ...]) -> None:
        is_ready = not missing
        if is_ready is self._was_ready:
            return
        now = self._clock.elapsed()
        after = now - self._turned
        self._was_ready, self._turned = is_ready, now
        if is_ready:
            log.info("Readiness gained", after=after)
        else:
            log.warn("Readiness lost", after=after, why="; ".join(missing))


def _collect(questions: Iterable[tuple[str, _PartCheck]]) -> tuple[str, ...]:
    answers = ((name, check()) for name, check in questions)
    return tuple(f"{name}: {answer}" for name, answer in answers if answer is not None)


class Heartbeat:
    """Measures how late the event loop lets a sleeping task run."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._lag = metrics.loop_lag_seconds
        self._last: timedelta | None = None
        self._lags: deque[tuple[timedelta, timedelta]] = deque()

    async def run(self) -> NoReturn:
        self._last = self._clock.elapsed()
        while True:
            await self._clock.sleep(BEAT)
            self._beat()

    def find_stall(self) -> str | None:
        """Return what is wrong with the loop, None where it runs or has not begun to beat."""
        if self._last is None:
            return None
        overdue = self._clock.elapsed() - self._last - BEAT
        if overdue > WINDOW:
            return f"no beat for {overdue.total_seconds():.1f}s"
        stalls = [lag for lag in (*self._recent(), overdue) if lag > STALL]
        if len(stalls) < _STALLS:
            return None
        spans = ", ".join(f"{lag.total_seconds():.1f}s" for lag in stalls)
        return f"the event loop stood still {len(stalls)} times in {WINDOW.seconds}s: {spans}"

    def _beat(self) -> None:
        assert self._last is not None, "only run() beats"
        now = self._clock.elapsed()
        self._lags.append((now, now - self._last - BEAT))
        self._last = now
        self._lag.set(max(max(self._recent()).total_seconds(), 0))

    def _recent(self) -> list[timedelta]:
        horizon = self._clock.elapsed() - WINDOW
        while self._lags and self._lags[0][0] <= horizon:
            self._lags.popleft()
        return [lag for _, lag in self._lags]
