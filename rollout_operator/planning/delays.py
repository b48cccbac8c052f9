"""Delayed downscales of zones that mirror (DELAY-01): which pods may go, which are un-prepared.

Each pod remembers since when it is prepared; known here is only its last answer. A pod in the range
without a usable answer holds back the others too: it may hold data (DELAY-06..09, SEED-073..078).
`pods` makes the calls, `scaling` asks the group.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.names import DOWNSCALE_DELAY, DOWNSCALE_DELAY_URL, InvalidInput
from rollout_operator.model.objects import Endpoint, Pod, StatefulSet, Zone
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import PodAnswer, PodCalls, ScalingSnapshot
from rollout_operator.model.units import format_duration, parse_prometheus_duration
from rollout_operator.planning.downscales import format_left, format_moment
from rollout_operator.planning.readiness import count_used, is_behind, is_paused
from rollout_operator.planning.replicas import Delay, complain
from rollout_operator.planning.requests import NoTarget, plan_delay_target, plan_endpoint
from rollout_operator.planning.wording import join_names, verb

# How often a pod is called again, or told again that it stays if it did not confirm: a restarted
# preparation is noticed at most this much later.
CALL_AGAIN: Final = timedelta(minutes=1)
# How often pods are un-prepared as a routine (SEED-079): an earlier process may have called them.
CANCEL_AGAIN: Final = timedelta(minutes=10)
# How often a pod that never confirmed that it stays is called again soon.
SOON_TRIES: Final = 5
# Sums with longer times would exceed what a datetime holds.
_LONGEST: Final = timedelta(days=10_000 * 365)
_UNUSABLE: Final = "no downscale until that is mended"
# A downscale uses no older answers.
FRESH: Final = timedelta(seconds=5)


class StayingPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods to un-prepare, by DELETE."""

    due: tuple[Endpoint, ...] = ()
    """Pods that we have called."""
    routine: tuple[Endpoint, ...] = ()
    """Pods that another process may have called."""
    requeue_after: timedelta | None = None


class DelayedPod(msgspec.Struct, frozen=True, kw_only=True):
    ordinal: int
    pod: Pod
    calls: PodCalls


class WantedDownscale(msgspec.Struct, frozen=True, kw_only=True):
    zone: Zone
    replicas_from: int
    replicas_to: int
    change: str
    """Begins the reasons, such as `zone-b mirrors Deployment.apps demo: 5 → 3`."""
    is_forced: bool = False
    """Whether a person forces it: then pods that do not run are not waited for."""

    @property
    def ordinals(self) -> range:
        first = self.zone.sts.first_ordinal
        return range(first + self.replicas_to, first + self.replicas_from)

    @property
    def used(self) -> range:
        """Return the ordinals that hold data, or may."""
        ordinals = self.ordinals
        last = self.zone.sts.first_ordinal + count_used(self.zone)
        return range(ordinals.start, max(ordinals.start, min(ordinals.stop, last)))


class PodAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """How far down the answers of pods allow a zone to go."""

    replicas: int
    wait: Reason | None = None
    """Why no pod may go."""
    post: tuple[Endpoint, ...] = ()
    """Pods to call in any case."""
    confirm: tuple[Endpoint, ...] = ()
    """Pods that must confirm once more before any goes, including `post`."""
    has_new: bool = False
    """Whether some of `post` were not called before."""
    requeue_after: timedelta | None = None


class _Findings(msgspec.Struct):
    """Collected from the highest ordinal down."""

    problems: list[str] = []
    """Each names the pod that gave no time."""
    silent: list[str] = []
    """Names of pods not called before."""
    unanswered: list[str] = []
    """Names of pods that may still act on a call that they stay."""
    early: list[tuple[int, Reason]] = []
    """Ordinals of pods not prepared for long enough."""
    post: list[Endpoint] = []
    stale: list[DelayedPod] = []
    times: list[timedelta] = []
    """When something falls due."""


def evaluate_answers(
    downscale: WantedDownscale, delay: Delay, scaling: ScalingSnapshot
) -> PodAnswers:
    """Return how far down a zone may go now, and which pods to call for that.

    Newcomers are not asked: they go like ordinals without a pod (D-67).
    """
    findings = _Findings(
        problems=[] if downscale.is_forced else list(_list_empty_ordinals(downscale))
    )
    for delayed in list_delayed(downscale.zone, downscale.used, scaling):
        _evaluate_pod(delayed, downscale, delay, scaling, findings)
    first = downscale.zone.sts.first_ordinal
    stopped = max(
        (ordinal + 1 - first for ordinal, _ in findings.early), default=downscale.replicas_to
    )
    wait = _find_wait(downscale, findings)
    confirm: tuple[Endpoint, ...] = ()
    if wait is None and stopped == downscale.replicas_from:
        wait = findings.early[0][1]
    elif wait is None:
        confirm = _confirm(findings, delay, scaling)
        wait = _find_wait(downscale, findings)
    return PodAnswers(
        replicas=downscale.replicas_from if wait else stopped,
        wait=wait,
        post=tuple(findings.post),
        confirm=confirm,
        has_new=bool(findings.silent),
        requeue_after=min(findings.times, default=None),
    )


def choose_staying(
    zone: Zone, replicas: int, delay: Delay, scaling: ScalingSnapshot
) -> StayingPods:
    """Return which of the lowest `replicas` pods to un-prepare (DELAY-05, 06, 10).

    Pods that a pending downscale may still take are left alone (SI-12).
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


def read_delay(sts: StatefulSet) -> Delay | Reason | None:
    """Return the delay of a mirroring zone, or why it cannot be read (DELAY-01..03).

    It needs both annotations; a delay of zero is none.
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
    """Warn where one of the two annotations is missing: then nothing is delayed."""
    text, url = _read_both(sts)
    if bool(text) == bool(url):
        return None
    there, missing = DOWNSCALE_DELAY, DOWNSCALE_DELAY_URL
    if url:
        there, missing = missing, there
    why = f"annotation {missing} is not set or empty: downscales are not delayed"
    return complain(sts, Code.BAD_DELAY, there, why)


def list_delayed(zone: Zone, ordinals: range, scaling: ScalingSnapshot) -> list[DelayedPod]:
    """Return the pods in a range of ordinals, highest first."""
    return [
        DelayedPod(ordinal=ordinal, pod=pod, calls=scaling.pod_calls.get(pod.uid, PodCalls()))
        for ordinal, pod in reversed(zone.list_pods(ordinals))
    ]


def compute_late(calls: PodCalls, scaling: ScalingSnapshot) -> timedelta:
    """Return how long a pod may still act on an unanswered call that it stays; may be negative."""
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
    """Return how long until a pod is un-prepared again; zero or less is now."""
    times = [time for time in (calls.cancelled_at, calls.tried_at) if time is not None]
    if not times:
        return timedelta(0)
    # A pod never reached may have been called by an earlier process (LI-05). One that does not know
    # the call is not called every minute forever (LI-11).
    is_unheard = calls.cancelled_at is None and 0 < calls.tries <= SOON_TRIES
    is_due = calls.answer is not None or is_unheard
    return (CALL_AGAIN if is_due else CANCEL_AGAIN) - abs(now - max(times))


def _evaluate_pod(
    delayed: DelayedPod,
    downscale: WantedDownscale,
    delay: Delay,
    scaling: ScalingSnapshot,
    findings: _Findings,
) -> None:
    now, answer, name = scaling.group.now, delayed.calls.answer, delayed.pod.name
    absence = explain_absence(delayed.pod)
    if absence and downscale.is_forced:
        return
    if absence:
        findings.problems.append(f"{name} {absence}")
        return
    # SI-10: a call that it has not answered may revert what it says now.
    late = compute_late(delayed.calls, scaling)
    if late > timedelta(0):
        findings.times.append(late)
        findings.unanswered.append(name)
        return
    if answer is None or _must_repeat(answer, delay.span, now):
        endpoint = plan_endpoint(delayed.pod, delay.target, scaling.cluster_domain)
        if isinstance(endpoint, str):
            findings.problems.append(endpoint)
            return
        findings.post.append(endpoint)
    else:
        findings.times.append(_next_repeat(answer) - abs(now - answer.called_at))
    if answer is None:
        findings.silent.append(name)
        return
    if answer.since is None:
        findings.problems.append(answer.problem or f"{name} gave no time")
        return
    if abs(now - answer.called_at) > FRESH:
        findings.stale.append(delayed)
    left = delay.span - (now - answer.since)
    if left > timedelta(0):
        findings.times.append(left)
        findings.early.append(
            (delayed.ordinal, _render_early(delayed, answer.since, left, downscale, delay))
        )


def _must_repeat(answer: PodAnswer, span: timedelta, now: datetime) -> bool:
    """Return whether an answer is too old, or was given before the delay of its pod was over."""
    if abs(now - answer.called_at) >= _next_repeat(answer):
        return True
    return answer.since is not None and answer.called_at - answer.since < span <= now - answer.since


def _next_repeat(answer: PodAnswer) -> timedelta:
    return CALL_AGAIN if answer.lasts is None else answer.lasts


def _confirm(findings: _Findings, delay: Delay, scaling: ScalingSnapshot) -> tuple[Endpoint, ...]:
    """Return which pods to call once more; a pod that cannot be called is a problem."""
    uids = {endpoint.uid for endpoint in findings.post}
    calls = list(findings.post)
    for delayed in findings.stale:
        if delayed.pod.uid in uids:
            continue
        endpoint = plan_endpoint(delayed.pod, delay.target, scaling.cluster_domain)
        if isinstance(endpoint, str):
            findings.problems.append(endpoint)
        else:
            calls.append(endpoint)
    return tuple(calls)


def _find_wait(downscale: WantedDownscale, findings: _Findings) -> Reason | None:
    """Return why it is unknown how far the zone may go."""
    name = downscale.zone.sts.name
    if findings.problems:
        more = len(findings.problems) - 1
        tail = f", and {more} more {verb(more, 'pod', 'pods')} gave no time" if more else ""
        text = f"{downscale.change} waits: {findings.problems[0]}{tail}"
        return Reason(Code.POD_GAVE_NO_TIME, text, Severity.WARN, name)
    if findings.unanswered:
        names = join_names(findings.unanswered)
        stay = verb(len(findings.unanswered), "it stays", "they stay")
        text = f"{downscale.change} waits: {names} may still act on an earlier call that {stay}"
        return Reason(Code.DELAYED_BY_PODS, text, Severity.DEBUG, name)
    if findings.silent:
        names = join_names(findings.silent)
        are = verb(len(findings.silent), "is", "are")
        text = f"{downscale.change} waits: {names} {are} called to prepare"
        return Reason(Code.DELAYED_BY_PODS, text, Severity.DEBUG, name)
    return None


def _render_early(
    delayed: DelayedPod, since: datetime, left: timedelta, downscale: WantedDownscale, delay: Delay
) -> Reason:
    stable_text = (
        f"{downscale.change} waits: {delayed.pod.name} is prepared since {format_moment(since)},"
        f" {format_duration(delay.span)} are wanted"
    )
    text = f"{stable_text}, {format_left(left)} left"
    return Reason(Code.DELAYED_BY_PODS, text, zone=downscale.zone.sts.name, stable_text=stable_text)


def _list_empty_ordinals(downscale: WantedDownscale) -> Iterator[str]:
    """Yield used ordinals whose pod cannot be read, or may be absent only for a moment.

    The highest ones hold nothing once the status counts no pod for them: a quota may keep them
    absent forever. A gap below an existing pod is always about to be filled.
    """
    ordinals = downscale.used
    zone, sts = downscale.zone, downscale.zone.sts
    held = zone.by_ordinal(ordinals)
    lost = [pod for pod in zone.own_unreadable if sts.find_ordinal(pod.name, ordinals) is not None]
    yield from (f"{pod.name} cannot be read" for pod in sorted(lost, key=lambda pod: pod.name))
    top = max(held, default=ordinals.start - 1)
    if top - ordinals.start + 1 > len(held):
        gap = next(ordinal for ordinal in range(top, -1, -1) if ordinal not in held)
        yield f"{sts.name}-{gap} does not exist, and {sts.name}-{top} does"
    if top < ordinals.stop - 1:
        doubt = _explain_doubt(zone)
        if doubt:
            yield f"{sts.name}-{ordinals.stop - 1} does not exist, and may come back: {doubt}"


def _explain_doubt(zone: Zone) -> str:
    """Return why an absent pod may be on its way back, empty where it is not."""
    sts = zone.sts
    if is_behind(sts):
        return f"the status of {sts.name} does not show its newest spec yet"
    if sts.current_revision != sts.update_revision and not is_paused(sts):
        return f"{sts.name} is being rolled out"
    there = len(zone.own_pods) + len(zone.own_unreadable)
    if sts.status_replicas > there:
        return f"the status of {sts.name} counts {sts.status_replicas} pods, {there} are seen"
    return ""
