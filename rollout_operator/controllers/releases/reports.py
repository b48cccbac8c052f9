"""Events about Rollouts, each where it says something new, with their log lines and counters.

What is worth one is decided in `planning.releases`.
"""

from collections.abc import Callable, Iterable
from typing import Final

from rollout_operator.model.event import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.flux import FluxWrite, FluxWriteCode
from rollout_operator.model.releases.plan import ReleaseEvent
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.planning.wording import camel_case
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.releases import ReleaseCounters

BAD_ANNOTATION = "InvalidAnnotation"
DRIFT_CORRECTED: Final = "DriftCorrected"
_VALUES: Final = frozenset(
    {FluxWriteCode.VALUE_SET, FluxWriteCode.VALUE_MOVED, FluxWriteCode.VALUE_TAKEN}
)
_OVER_OTHERS: Final = frozenset({FluxWriteCode.VALUE_TAKEN, FluxWriteCode.CHOICE_CLEARED})


class ReleaseReports:
    """Reports what happens to the Rollouts of one namespace."""

    def __init__(self, record: Callable[[EventRecord], None], counters: ReleaseCounters) -> None:
        """`record` has an Event written soon."""
        self._record = record
        self._counters = counters
        self._problems: dict[str, frozenset[str]] = {}

    def on_plan(self, watched: WatchedObject, events: Iterable[ReleaseEvent]) -> None:
        """Report a plan that was recorded in the status."""
        for event in events:
            self._report(watched, event)

    def on_status(self, name: str, before: ReleaseStatus, after: ReleaseStatus) -> None:
        """Count what is new in a status that replaces the known one."""
        self._counters.record(name, before, after)

    def on_write(self, watched: WatchedObject, write: FluxWrite, *, is_drift: bool) -> None:
        """Report a write that put drift right, or went over what another writer had chosen."""
        if is_drift and write.code in _VALUES:
            event = ReleaseEvent(reason=DRIFT_CORRECTED, note=write.text, is_routine=True)
            self._report(watched, event)
        elif write.code in _OVER_OTHERS:
            event = ReleaseEvent(reason=camel_case(write.code), note=write.text, is_routine=True)
            self._record_event(watched, event)

    def on_problems(self, watched: WatchedObject, problems: Iterable[str]) -> None:
        """Report annotations of Flux's objects that cannot be obeyed, each once."""
        before, now = self._problems.get(watched.name, frozenset()), frozenset(problems)
        for text in sorted(now - before):
            event = ReleaseEvent(reason=BAD_ANNOTATION, note=text, severity=Severity.WARN)
            self._report(watched, event)
        self._problems[watched.name] = now

    def forget(self, name: str) -> None:
        """Forget a Rollout that is gone."""
        self._problems.pop(name, None)
        self._counters.forget(name)

    def _report(self, watched: WatchedObject, event: ReleaseEvent) -> None:
        emit = log.at(event.severity)
        emit("Rollout reports", rollout=watched.name, reason=event.reason, why=event.note)
        self._record_event(watched, event)

    def _record_event(self, watched: WatchedObject, event: ReleaseEvent) -> None:
        about = Regarding(EventKind.RELEASE, watched.namespace, watched.name, watched.uid)
        self._record(event.record(about, EventAction.RELEASE))
