"""Send the writes of one reconcile, each unless it failed lately, and report their outcomes.

A patch of replicas says what it changes, and what must still hold for that.

Three things may go wrong with a write, and each has a memory of its own: it failed; the store
contradicted the cache, which is nothing to warn of; the live read that it rests on was too
old before it was sent, which is logged once it happens repeatedly (SI-09).
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.controllers.live_reads import EXPIRED_IN_A_ROW
from rollout_operator.controllers.retries import Attempt, Attempts, get_retry_after
from rollout_operator.controllers.scaling.intents import render_steps
from rollout_operator.controllers.worker import RESYNC
from rollout_operator.guards.downscales.reservations import PERSIST_LIMIT
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    DeadlinePassed,
    InvalidInput,
    NotFound,
    Refused,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.model.names import PREPARE_DOWNSCALE
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import ScaleZone
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.planning.downscales.spacing import format_left
from rollout_operator.telemetry.logs import log

# First wait after the store contradicted the cache, which shows it any moment.
RECHECK_WAIT: Final = timedelta(milliseconds=50)
# A write that holds back its group and does not succeed leaves it to others for most of this time,
# once it has failed for longer than it may hold it (D-25).
HELD_WAIT: Final = timedelta(minutes=2)
# Timers may be early by a little.
CATCH_UP: Final = timedelta(milliseconds=20)


class ReconcileOutcome(msgspec.Struct, kw_only=True):
    """The outcome of one reconcile of a group, beyond its last plan."""

    reasons: list[Reason] = []
    again: timedelta = RESYNC

    def clear(self) -> None:
        """Begin anew: a reason that still holds is found again."""
        self.reasons.clear()
        self.again = RESYNC

    def fail(self, reason: Reason, again: timedelta) -> None:
        """Record a failed attempt, and when it is repeated."""
        self.reasons.append(reason)
        self.again = min(self.again, again + CATCH_UP)


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write, and how its failure is reported."""

    attempt: Attempt
    what: str
    zone: str = ""
    send: Callable[[], Awaitable[None]]
    is_blocked: Callable[[], bool] = lambda: False
    """Whether nothing else of the group may begin though it has failed."""
    waited_for: Callable[[], timedelta | None] = lambda: None
    """For how much longer the group waits for it, perhaps zero. None where that is not known."""

    @property
    def clash(self) -> Attempt:
        """Return the name of its conflicts with the store."""
        return ("clash", *self.attempt)

    @property
    def late(self) -> Attempt:
        """Return the name of its live reads that were too old."""
        return ("late", *self.attempt)


class ScalingWrites:
    """Sends the writes of one process."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts

    async def send(self, write: Write, outcome: ReconcileOutcome) -> bool:
        """Send a write, unless that failed lately; return whether it was written (D-18)."""
        attempts = self._attempts
        if self._must_wait(write, outcome):
            return False
        try:
            await write.send()
        except Conflict as error:
            wait = attempts.record_failure(write.clash, str(error), at_least=RECHECK_WAIT)
            outcome.fail(_render_clash(write, str(error)), wait)
            return False
        except DeadlinePassed as error:
            wait = attempts.record_failure(write.late, str(error))
            outcome.fail(self._render_late(write, str(error)), wait)
            return False
        except (ApiError, InvalidInput) as error:
            wait = self._record_failure(write, error)
            _fail(write, str(error), wait, outcome)
            return False
        for attempt in (write.attempt, write.clash, write.late):
            attempts.record_success(attempt)
        return True

    def _must_wait(self, write: Write, outcome: ReconcileOutcome) -> bool:
        """Return whether a write failed lately; record why if so."""
        wait, failure = self._attempts.wait_before(write.attempt)
        if wait:
            _fail(write, failure, wait, outcome)
            return True
        wait, failure = self._attempts.wait_before(write.clash)
        if wait:
            outcome.fail(_render_clash(write, failure), wait)
            return True
        wait, failure = self._attempts.wait_before(write.late)
        if wait:
            outcome.fail(self._render_late(write, failure), wait)
        return bool(wait)

    def _record_failure(self, write: Write, error: ApiError | InvalidInput) -> timedelta:
        attempts, least = self._attempts, get_retry_after(error)
        if write.is_blocked() and attempts.failing_for(write.attempt) >= PERSIST_LIMIT:
            least = max(least, HELD_WAIT)
        wait = attempts.record_failure(write.attempt, str(error), at_least=least)
        log.debug(
            "Attempt failed", attempt=write.attempt[0], zone=write.zone, again_in=wait, err=error
        )
        return wait

    def _render_late(self, write: Write, why: str) -> Reason:
        is_failure = self._attempts.count(write.late) >= EXPIRED_IN_A_ROW
        text = f"{write.what}: a live read was too old before the write was sent: {why}"
        severity = Severity.WARN if is_failure else Severity.DEBUG
        return Reason(code=Code.LIVE_READ_EXPIRED, text=text, severity=severity, zone=write.zone)


def _render_clash(write: Write, failure: str) -> Reason:
    return Reason(
        code=Code.SNAPSHOT_CHANGED, text=failure, severity=Severity.DEBUG, zone=write.zone
    )


def _fail(write: Write, failure: str, wait: timedelta, outcome: ReconcileOutcome) -> None:
    """Record why a write failed, and for how much longer its group waits for it."""
    reason, left = render_failure(write.what, failure, write.zone), write.waited_for()
    if left is not None:
        text = f"{reason.text}; its group goes on nevertheless"
        reason = replace(reason, text=text)
    if left:
        reason = replace(reason, text=f"{text} in {format_left(left)}", stable_text=f"{text} later")
        wait = min(wait, left)
    outcome.fail(reason, wait)


def render_failure(what: str, failure: str, zone: str) -> Reason:
    """Return the reason for a write whose last attempt failed."""
    text = f"{what}: the last attempt failed and will be repeated: {failure}"
    return Reason(code=Code.SCALE_REFUSED, text=text, severity=Severity.WARN, zone=zone)


def render_patch(
    action: ScaleZone, mark: str | None, record: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return the steps that write replicas, and those that record their time.

    Another count that was written since, or another set of that name, is not overwritten. A version
    would fail with each change of the status, of which a zone that moves has many.
    """
    zone = action.zone
    return [
        {"op": "test", "path": "/metadata/uid", "value": zone.uid},
        *_render_spec(action),
        *([] if mark is None else render_steps(mark)),
        {"op": "test", "path": "/spec/replicas", "value": zone.replicas},
        {"op": "replace", "path": "/spec/replicas", "value": action.replicas},
        *record,
    ]


def name_outcome(error: ApiError) -> str:
    """Return the outcome of a patch, as metrics name it."""
    match error:
        case Conflict() | NotFound():
            return "conflict"
        case Refused() | TooManyRequests():
            return "refused"
        case UnknownOutcome():
            return "unknown"
    return "failed"


def _render_spec(action: ScaleZone) -> list[JsonObject]:
    """Return the tests that keep a downscale from a spec that it was not decided for.

    A downscale that comes late would find the same count again after an upscale, and take pods that
    were not called. Where a review reads each attempt they are called, and nothing is tested: a
    template that changes while pods prepare would fail it. Where pods go because they were not up,
    a status that counts one more as ready since fails it, too.
    """
    zone = action.zone
    if not action.is_downscale or is_labelled(zone.labels, PREPARE_DOWNSCALE):
        return []
    if action.is_exact:
        version = zone.resource_version
        return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    return [{"op": "test", "path": "/metadata/generation", "value": zone.generation}]
