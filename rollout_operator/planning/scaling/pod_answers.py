"""How far down a zone may go by the answers of its pods: DELAY-06 to 09, SEED-073 to 078.

Each pod remembers by itself since when it is prepared; known here is only its last answer. Of all
pods that are to go at all, a pod without a usable answer holds back the others, too: it is not
known what it keeps. Whether the group lets the zone go is decided in `permission`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.group import Zone
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import PodAnswer, ScalingSnapshot
from rollout_operator.model.units import format_duration
from rollout_operator.planning.downscales.endpoint import plan_endpoint
from rollout_operator.planning.downscales.spacing import format_left, format_moment
from rollout_operator.planning.rollout.newcomers import count_used
from rollout_operator.planning.rollout.zones import is_behind, is_paused
from rollout_operator.planning.scaling.delays import (
    CALL_AGAIN,
    DelayedPod,
    compute_late,
    explain_absence,
    list_delayed,
)
from rollout_operator.planning.scaling.desired import Delay
from rollout_operator.planning.wording import join_names, verb

# A downscale rests only on answers that are not older.
FRESH: Final = timedelta(seconds=5)


class WantedDownscale(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that is wanted of a zone."""

    zone: Zone
    replicas_from: int
    replicas_to: int
    change: str
    """How the reasons begin, such as `zone-b mirrors Deployment.apps demo: 5 → 3`."""
    is_forced: bool = False
    """Whether a person forces it: pods that do not run are not waited for."""

    @property
    def ordinals(self) -> range:
        """Return the ordinals that are to go."""
        first = self.zone.sts.first_ordinal
        return range(first + self.replicas_to, first + self.replicas_from)

    @property
    def used(self) -> range:
        """Return those of them that hold something, or may."""
        ordinals = self.ordinals
        last = self.zone.sts.first_ordinal + count_used(self.zone)
        return range(ordinals.start, max(ordinals.start, min(ordinals.stop, last)))


class PodAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """How far down the answers of pods allow a zone to go."""

    replicas: int
    """The count that they allow."""
    wait: Reason | None = None
    """Why none may go; None where some may."""
    post: tuple[Endpoint, ...] = ()
    """Pods that are to be called, whatever else becomes of the zone."""
    confirm: tuple[Endpoint, ...] = ()
    """Pods that must be called once more before any goes, those of `post` included."""
    has_new: bool = False
    """Whether some of `post` were not called before."""
    requeue_after: timedelta | None = None


class _Findings(msgspec.Struct):
    """What was found so far, from the highest ordinal on."""

    problems: list[str] = []
    """Each names the pod that gave no time."""
    silent: list[str] = []
    """Names of pods that were not called before."""
    unanswered: list[str] = []
    """Names of pods that may still act on a call that they stay."""
    early: list[tuple[int, Reason]] = []
    """Ordinals of pods that are prepared, but not for long enough."""
    post: list[Endpoint] = []
    stale: list[DelayedPod] = []
    times: list[timedelta] = []
    """When something else falls due."""


def evaluate_answers(
    downscale: WantedDownscale, delay: Delay, scaling: ScalingSnapshot
) -> PodAnswers:
    """Return how far down a zone may go now, and which pods to call for that.

    Newcomers have nothing to say: they go like ordinals without a pod (D-67).
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
    # SI-10: what it says now may be reverted by a call that it has not answered.
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
    """Return whether an answer is too old for anything, or was given before its pod was due."""
    if abs(now - answer.called_at) >= _next_repeat(answer):
        return True
    return answer.since is not None and answer.called_at - answer.since < span <= now - answer.since


def _next_repeat(answer: PodAnswer) -> timedelta:
    return CALL_AGAIN if answer.lasts is None else answer.lasts


def _confirm(findings: _Findings, delay: Delay, scaling: ScalingSnapshot) -> tuple[Endpoint, ...]:
    """Return which pods to call once more; where a pod cannot be, it is a problem."""
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
    """Return why nothing at all is known of how far the zone may go."""
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
    """Return which of the ordinals are not held by a pod, and may be so only for the moment.

    Those above all others hold nothing once the set itself says that there is no pod of them: a
    quota may keep them from being created for ever. An empty ordinal below a pod is always about to
    be filled.
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
    """Return why a pod that is not there may just be on its way back, empty where it is not."""
    sts = zone.sts
    if is_behind(sts):
        return f"the status of {sts.name} does not show its newest spec yet"
    if sts.current_revision != sts.update_revision and not is_paused(sts):
        return f"{sts.name} is being rolled out"
    there = len(zone.own_pods) + len(zone.own_unreadable)
    if sts.status_replicas > there:
        return f"the status of {sts.name} counts {sts.status_replicas} pods, {there} are seen"
    return ""
