"""Requests to the arbiter, its records of grants, and its answers.

Among them its refusals where a pod may not go for other reasons than its budget.
"""

import math
from datetime import timedelta
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, DisruptionSource, Record
from rollout_operator.model.errors import ApiError, Conflict, DeadlinePassed, NotFound
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.planning.budgets.rule import Refusal
from rollout_operator.planning.downscales.request import RETRY
from rollout_operator.planning.wording import count, verb
from rollout_operator.telemetry.logs import log

# Without records it is unknown what an earlier process has just granted, which an API server that
# waits for an answer as long as by default may still act upon: so long nothing is granted.
QUARANTINE: Final = timedelta(seconds=12)
# Lets a client repeat its request at once, where nothing but the moment was wrong.
MOMENT: Final = timedelta(seconds=1)


class DisruptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that an eviction or a rollout wants to go."""

    pod: Pod
    engine: DisruptionSource
    limit: int = 0
    """`rollout-max-unavailable` of the zone; for the rollout only."""
    lasts: timedelta = timedelta(0)
    """For how long from now the requester may act on the answer: an API server waits so long."""
    dry_run: bool = False


class GrantedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The answer that the pod may go."""

    pod: Pod
    """Its newest version, which a delete must name."""
    budget: str = ""
    """The budget by which it may go; empty where none covers it."""


Answer = GrantedPod | Refusal


class GrantState(Enum):
    """How far a grant has come."""

    REQUESTED = auto()
    """Being recorded and confirmed: it may come to nothing within moments."""
    GRANTED = auto()
    """An answer said that the pod may go."""
    DOUBTFUL = auto()
    """Given up, but a record of it may have been written: the controller must read the pod."""


class Grant(msgspec.Struct, kw_only=True):
    """One pod that may go, or soon may."""

    pod: Pod
    """The pod as it was decided on; once recorded, as it was seen last."""
    engine: DisruptionSource
    budget: str
    begun: timedelta
    """On the clock's `elapsed`: from before the record was sent."""
    lasts: timedelta = timedelta(0)
    """How long after that the requester may act on the answer."""
    record: str = ""
    """The annotation as sent; empty where none was."""
    state: GrantState = GrantState.REQUESTED
    was_granted: bool = False
    """Whether the answer was that the pod may go: a doubt that follows does not change it."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A pod whose record stands: it may go if a live read that begins after it shows no reason."""

    request: DisruptionRequest
    budget: Budget
    """The budget that the decision went by."""
    grant: Grant
    record: Record | None
    """None where the role forbids writing a record."""


def refuse(code: Code, text: str, *, severity: Severity = Severity.INFO) -> Refusal:
    """Return a refusal after which a client may soon try again."""
    reason = Reason(code=code, text=text, severity=severity)
    return Refusal(reason=reason, status=RETRY, requeue_after=MOMENT)


def refuse_late(pod: Pod) -> Refusal:
    """Refuse a pod as no time was left for an answer."""
    text = f"no answer of the API server about {pod.name} in time"
    return _refuse_for(DeadlinePassed(text), text)


def refuse_unrecorded(pod: Pod, error: ApiError | None) -> Refusal:
    """Refuse a pod as no record could be written; without an error, the pod has changed."""
    if error is None or isinstance(error, Conflict | NotFound):
        text = f"{pod.name} changed at this very moment; try again"
        return _refuse_for(error or Conflict(text), text)
    log.debug("Disruption not recorded", pod=pod.name, err=error)
    return _refuse_for(error, f"that {pod.name} may go could not be recorded: {error}")


def _refuse_for(error: ApiError, text: str) -> Refusal:
    return replace(refuse(Code.GRANT_NOT_RECORDED, text), error=error)


def refuse_contested(pod: Pod, budget: Budget) -> Refusal:
    """Refuse a pod as another grant has to be settled first."""
    text = f"another disruption under budget {budget.name} is decided on; {pod.name} waits"
    return refuse(Code.GRANT_CONTESTED, text)


def refuse_in_quarantine() -> Refusal:
    """Refuse all pods as it is not known what an earlier process has granted."""
    text = (
        f"the operator has just started and may not keep records on pods: nothing is allowed to go"
        f" in its first {QUARANTINE.total_seconds():g} s"
    )
    return refuse(Code.START_QUARANTINE, text)


def refuse_standing(pod: Pod, *, is_granted: bool) -> Refusal:
    """Refuse a pod that was granted before, or may have been, as that may still be used."""
    text = f"{pod.name} was allowed to go a moment ago"
    if not is_granted:
        text = (
            f"{pod.name} may have been allowed to go a moment ago: there is a record, and it is not"
            " known what became of it"
        )
    return refuse(Code.GRANT_CONTESTED, text)


def refuse_unused(pod: Pod, times: int, wait: timedelta) -> Refusal:
    """Refuse a pod as its evictions came to nothing lately."""
    text = (
        f"{pod.name} was allowed to go {count(times, 'time')} and stayed, as where a"
        " PodDisruptionBudget or another webhook refuses it; it may be allowed again in"
        f" {math.ceil(wait.total_seconds())} s"
    )
    return replace(refuse(Code.GRANT_UNUSED, text), requeue_after=wait)


def refuse_as_evictions_wait(first: Pod, many: int, budget: Budget, again: timedelta) -> Refusal:
    """Refuse a rollout's pod as evictions have waited for the next place."""
    text = (
        f"the next place under budget {budget.name} is for the eviction of {first.name}, which was"
        f" refused and is awaited; {count(many, 'eviction')} {verb(many, 'waits', 'wait')}"
    )
    return replace(refuse(Code.EVICTION_FIRST, text), requeue_after=again)


def refuse_as_rollout_waits(pod: Pod, budget: Budget) -> Refusal:
    """Refuse an eviction as the rollout has held still, and is next."""
    text = (
        f"the next place under budget {budget.name} is for the rollout, which has held still for"
        f" evictions; {pod.name} waits"
    )
    return replace(refuse(Code.ROLLOUT_FIRST, text), requeue_after=None)
