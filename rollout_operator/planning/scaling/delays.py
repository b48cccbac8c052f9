"""Delayed downscales: what a zone's annotations want, and which pods are un-prepared.

Only of zones that mirror (DELAY-01). What the pods that are to go must say is decided in
`pod_answers`, how they are called in `pods.client`.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.group import Zone
from rollout_operator.model.names import DOWNSCALE_DELAY, DOWNSCALE_DELAY_URL
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import PodCalls, ScalingSnapshot
from rollout_operator.model.units import parse_prometheus_duration
from rollout_operator.planning.downscales.endpoint import NoTarget, plan_delay_target, plan_endpoint
from rollout_operator.planning.scaling.desired import Delay, complain

# How often a pod is called again, or told again that it stays where it did not confirm: a pod that
# has restarted its preparation is found out so much later at most.
CALL_AGAIN: Final = timedelta(minutes=1)
# How often pods are un-prepared though nothing has changed (SEED-079): the process before
# this may have called them.
CANCEL_AGAIN: Final = timedelta(minutes=10)
# So often a pod is called soon again which never confirmed that it stays.
SOON_TRIES: Final = 5

# No pod is prepared for longer than there are years; sums of longer times would not fit.
_LONGEST: Final = timedelta(days=10_000 * 365)

_UNUSABLE: Final = "no downscale until that is mended"


class StayingPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that are to be un-prepared, by DELETE."""

    due: tuple[Endpoint, ...] = ()
    """Those that we have called."""
    routine: tuple[Endpoint, ...] = ()
    """Those that another process may have called."""
    requeue_after: timedelta | None = None


class DelayedPod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod of a zone, and what passed between us and it."""

    ordinal: int
    pod: Pod
    calls: PodCalls


def read_delay(sts: StatefulSet) -> Delay | Reason | None:
    """Return the delay of a mirroring zone, why it cannot be read, or None where there is none.

    DELAY-01 to 03: a delay needs both annotations, and one of no time is none.
    """
    text, url = _read_both(sts)
    if not text or not url:
        return None
    try:
        span = min(parse_prometheus_duration(text), _LONGEST)
    except InvalidInput as error:
        return complain(sts, Code.BAD_DELAY, DOWNSCALE_DELAY, f"{error}; {_UNUSABLE}")
    if not span:
        return None
    target = plan_delay_target(url, sts.service_name)
    if isinstance(target, NoTarget):
        why = f"StatefulSet {sts.name}: {target.problem}; {_UNUSABLE}"
        return Reason(Code.BAD_DELAY, why, Severity.WARN, sts.name)
    return Delay(span=span, target=target)


def find_half_delay(sts: StatefulSet) -> Reason | None:
    """Return a warning where one of two annotations is missing: then nothing is delayed."""
    text, url = _read_both(sts)
    if bool(text) == bool(url):
        return None
    there, missing = DOWNSCALE_DELAY, DOWNSCALE_DELAY_URL
    if url:
        there, missing = missing, there
    why = f"annotation {missing} is not set or empty: downscales are not delayed"
    return complain(sts, Code.BAD_DELAY, there, why)


def choose_staying(
    zone: Zone, replicas: int, delay: Delay, scaling: ScalingSnapshot
) -> StayingPods:
    """Return which of the lowest `replicas` pods is to be un-prepared (DELAY-05, 06, 10).

    What a downscale that may still persist takes away is left alone (SI-12).
    """
    underway = scaling.group.downscale
    if underway is not None and underway.zone == zone.sts.name:
        replicas = min(replicas, underway.replicas_to)
    due: list[Endpoint] = []
    routine: list[Endpoint] = []
    waits: list[timedelta] = []
    first = zone.sts.first_ordinal
    for delayed in list_delayed(zone, range(first, first + replicas), scaling):
        wait = _next_cancel(delayed.calls, scaling.group.now)
        if explain_absence(delayed.pod):
            continue
        if wait > timedelta(0):
            waits.append(wait)
            continue
        endpoint = plan_endpoint(delayed.pod, delay.target, scaling.cluster_domain)
        if not isinstance(endpoint, str):
            (routine if delayed.calls.answer is None else due).append(endpoint)
    requeue_after = min(waits, default=None)
    return StayingPods(due=tuple(due), routine=tuple(routine), requeue_after=requeue_after)


def list_delayed(zone: Zone, ordinals: range, scaling: ScalingSnapshot) -> list[DelayedPod]:
    """Return the pods of a zone in a range of ordinals, highest first."""
    return [
        DelayedPod(ordinal=ordinal, pod=pod, calls=scaling.pod_calls.get(pod.uid, PodCalls()))
        for ordinal, pod in reversed(zone.list_pods(ordinals))
    ]


def compute_late(calls: PodCalls, scaling: ScalingSnapshot) -> timedelta:
    """Return for how long a pod may still act on a call that it stays; zero or less: no longer."""
    if calls.unanswered_at is None:
        return timedelta(0)
    return scaling.late_calls - abs(scaling.group.now - calls.unanswered_at)


def explain_absence(pod: Pod) -> str:
    """Return why a pod cannot be called, empty where it can."""
    if pod.is_terminating:
        return "is terminating"
    return "" if pod.phase == "Running" else f"does not run (phase {pod.phase or 'none'})"


def _read_both(sts: StatefulSet) -> tuple[str, str]:
    annotations = sts.annotations
    return annotations.get(DOWNSCALE_DELAY, ""), annotations.get(DOWNSCALE_DELAY_URL, "")


def _next_cancel(calls: PodCalls, now: datetime) -> timedelta:
    """Return how long a pod need not be un-prepared; zero or less: now."""
    times = [time for time in (calls.cancelled_at, calls.tried_at) if time is not None]
    if not times:
        return timedelta(0)
    # A pod that this process never reached may have been called by the process before (LI-05). A
    # pod that does not know the call is not called every minute for ever (LI-11).
    is_unheard = calls.cancelled_at is None and 0 < calls.tries <= SOON_TRIES
    is_due = calls.answer is not None or is_unheard
    return (CALL_AGAIN if is_due else CANCEL_AGAIN) - abs(now - max(times))
