"""How long pods take, learnt from pods that tell, and how each pod of the input goes on.

Pure. A pod that is starting becomes ready when those before it did, counted from its own begin. One
that is in trouble, or late, stays as it is: it is unknown what would help it.
"""

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_lab.model.fields import (
    child,
    children,
    controller_of,
    is_terminating,
    number,
    text,
    uid_of,
)
from rollout_lab.nodes.behaviour import Behaviour, Choose, StartKind
from rollout_lab.simulate.dump import Dump, FoundPod
from rollout_lab.simulate.flags import READY_AFTER, SimulateSettings
from rollout_lab.simulate.objects import is_filled_in
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import parse_rfc3339, quote

# Of the template, and with it of each of its pods: which change it comes from, and whether they
# crash.
CHANGE_MARK: Final = "rollout-operator/simulated-change"
CRASHES: Final = "crashes-"
# So many times as old as others were when they became ready, a pod does not become so any more.
PATIENCE: Final = 3
# Stamps have whole seconds: less than this does not show.
LEAST: Final = timedelta(seconds=1)
# What a stamp tells of has happened so much later, on average, and so much is left of what is due.
LATER: Final = LEAST / 2
# No simulation lasts so long.
FOR_EVER: Final = timedelta(days=3650)
# Of the time until a pod is ready, before its containers run.
_UNTIL_RUNNING: Final = 4


class ReadyTime(msgspec.Struct, frozen=True):
    """How long the pods of a rollout group take until they are ready."""

    span: timedelta
    pods: int
    """How many have told it; 0 where it was given, or no pod tells."""


def learn_ready_times(dump: Dump, settings: SimulateSettings) -> dict[str, ReadyTime]:
    """Return the time of each rollout group or policy, as given or else the median of its pods."""
    if settings.ready_after:
        return {group: ReadyTime(settings.ready_after, 0) for group in dump.units}
    return {
        group: _median(pod for zone in zones for pod in dump.pods_of(zone))
        for group, zones in dump.units.items()
    }


def _median(pods: Iterable[FoundPod]) -> ReadyTime:
    spans = [span.total_seconds() for pod in pods if (span := _measure(pod)) is not None]
    if not spans:
        return ReadyTime(READY_AFTER, 0)
    # Of whole seconds, those beside the median tell its fraction.
    median = statistics.median(spans)
    beside = [span for span in spans if abs(span - median) <= LEAST.total_seconds()]
    span = timedelta(seconds=statistics.fmean(beside or [median]))
    return ReadyTime(max(span, LEAST), len(spans))


def _measure(pod: FoundPod) -> timedelta | None:
    """Return how long a pod took from its start until ready, None where it does not tell.

    A pod whose containers were restarted became ready for the last time after another story.
    """
    begun, since = _find_begin(pod), pod.decoded.ready_since
    if is_filled_in(pod.obj):
        return None
    if not pod.decoded.is_ready or _has_restarted(pod) or begun is None or since is None:
        return None
    return max(since - begun, timedelta(0))


def _has_restarted(pod: FoundPod) -> bool:
    statuses = children(pod.obj, "status", "containerStatuses")
    return any(number(status, "restartCount") for status in statuses)


def _find_begin(pod: FoundPod) -> datetime | None:
    """Return when a pod began: on its node, or else at all."""
    try:
        return parse_rfc3339(text(pod.obj, "status", "startTime"))
    except InvalidInput:
        return pod.decoded.created


class PodTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long the pods of a simulation take."""

    ready: Mapping[str, ReadyTime]
    """By rollout group."""
    terminates_after: timedelta
    left: Mapping[str, timedelta]
    """By UID, what is left of it to a pod of the input that is starting or terminating."""
    stuck: tuple[FoundPod, ...]
    """Pods of the input that stay as they are until they are replaced."""

    @property
    def slowest(self) -> timedelta:
        """Return the longest time from the end of a pod until its successor is ready."""
        return max(stats.span for stats in self.ready.values()) + self.terminates_after

    def list_left(self, dump: Dump) -> Iterator[tuple[FoundPod, timedelta]]:
        """Yield the pods that are starting or terminating, each with what is left of it."""
        for pod in dump.pods:
            if (left := self.left.get(str(pod.decoded.uid))) is not None:
                yield pod, left


def choose_times(dump: Dump, settings: SimulateSettings, now: datetime) -> PodTimes:
    """Return how long pods take that were read at `now`. Raises InvalidInput for -stuck."""
    names = {pod.decoded.name for pod in dump.pods if not pod.decoded.is_ready}
    for name in settings.stuck:
        if name not in names:
            raise InvalidInput(f"-stuck={name}: no pod {quote(name)} that is not ready")
    ready = learn_ready_times(dump, settings)
    groups = dump.unit_of
    left: dict[str, timedelta] = {}
    stuck: list[FoundPod] = []
    for pod in dump.pods:
        usual = (
            settings.terminates_after
            if pod.decoded.is_terminating
            else ready[groups[pod.zone]].span
        )
        age = _measure_age(pod, now)
        if pod.decoded.name in settings.stuck or not _goes_on(pod, age, usual):
            stuck.append(pod)
        elif not pod.decoded.is_ready:
            left[str(pod.decoded.uid)] = max(usual - age, LATER)
    return PodTimes(
        ready=ready, terminates_after=settings.terminates_after, left=left, stuck=tuple(stuck)
    )


def _measure_age(pod: FoundPod, now: datetime) -> timedelta:
    """Return since when a pod is starting, or terminating where it is."""
    begun, grace = _find_begin(pod), timedelta(0)
    if pod.decoded.is_terminating:
        head = child(pod.obj, "metadata")
        grace = timedelta(seconds=number(head, "deletionGracePeriodSeconds"))
        begun = parse_rfc3339(text(head, "deletionTimestamp"))
    # Ages can be added to for ever, times cannot.
    return timedelta(0) if begun is None else max(now - begun + grace - LATER, timedelta(0))


def _goes_on(pod: FoundPod, age: timedelta, usual: timedelta) -> bool:
    """Return whether a pod is ready, on its way out, or on its way up like others before it."""
    if pod.decoded.is_ready or pod.decoded.is_terminating:
        return True
    has_failed = pod.decoded.was_ready or _has_restarted(pod)
    # Where others took a second, a busy node is reason enough for a few more.
    patience = max(PATIENCE * usual, READY_AFTER)
    return pod.decoded.is_starting and not has_failed and age < patience


def choose_behaviour(dump: Dump, times: PodTimes) -> Choose:
    """Return how each pod behaves: those of the input go on as they are, new pods become ready."""
    units = dump.unit_of
    groups = {str(sts.decoded.uid): units[sts.decoded.name] for sts in dump.sets}
    stuck = frozenset(str(pod.decoded.uid) for pod in times.stuck)

    def choose(pod: JsonObject) -> Behaviour:
        uid, usual = uid_of(pod), times.ready[groups[text(controller_of(pod), "uid")]].span
        span, ends = times.left.get(uid, usual), times.terminates_after
        if is_terminating(pod):
            span, ends = usual, FOR_EVER if uid in stuck else times.left.get(uid, ends)
        starts = span / _UNTIL_RUNNING
        # A pod of the input that runs has its start behind it.
        is_running = uid in times.left and text(pod, "status", "phase") == "Running"
        behaviour = Behaviour(
            starts_after=starts,
            ready_after=span if is_running else span - starts,
            terminates_after=ends,
        )
        return _differ(behaviour, pod, stuck)

    return choose


def _differ(usual: Behaviour, pod: JsonObject, stuck: Collection[str]) -> Behaviour:
    """Return the behaviour of a pod that may not be as usual."""
    if uid_of(pod) in stuck:
        return Behaviour(
            kind=StartKind.NEVER_READY if text(pod, "spec", "nodeName") else StartKind.PENDING,
            starts_after=FOR_EVER,
            ready_after=usual.ready_after,
            terminates_after=usual.terminates_after,
        )
    mark = child(pod, "metadata", "annotations").get(CHANGE_MARK)
    if isinstance(mark, str) and mark.startswith(CRASHES):
        return Behaviour(
            kind=StartKind.CRASH_LOOP,
            starts_after=usual.starts_after,
            # It crashes sooner than it would become ready, and a second crash tells nothing new.
            ready_after=usual.starts_after,
            terminates_after=usual.terminates_after,
            period=FOR_EVER,
        )
    return usual
