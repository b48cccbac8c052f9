"""How long pods take, learnt from pods that tell, and how each pod of the input goes on.

Pure. A pod that is not ready stays as it is: nobody knows what would help it.
"""

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import (
    child,
    children,
    controller_of,
    number,
    text,
    uid_of,
)
from rollout_operator.lab.nodes.behaviour import Behaviour, Choose, StartKind
from rollout_operator.lab.simulate.dump import Dump, FoundPod
from rollout_operator.lab.simulate.flags import READY_AFTER, SimulateSettings
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import parse_rfc3339

# Of the template, and with it of each of its pods: which change it comes from, and whether they
# crash.
CHANGE_MARK: Final = "rollout-operator/simulated-change"
CRASHES: Final = "crashes-"
# Stamps have whole seconds: less than this, nobody can tell.
LEAST: Final = timedelta(seconds=1)
# No simulation lasts so long.
FOR_EVER: Final = timedelta(days=3650)
# Of the time until a pod is ready, before its containers run.
_UNTIL_RUNNING: Final = 4


@dataclass(frozen=True, slots=True)
class ReadyTime:
    """How long the pods of a rollout group take until they are ready."""

    span: timedelta
    pods: int
    """How many have told it; 0 where it was given, or nobody tells."""


def learn_ready_times(dump: Dump, settings: SimulateSettings) -> dict[str, ReadyTime]:
    """Return the time of each rollout group, as given or else the median of its pods."""
    if settings.ready_after:
        return {group: ReadyTime(settings.ready_after, 0) for group in dump.groups}
    return {
        group: _median(one for zone in zones for one in dump.pods_of(zone))
        for group, zones in dump.groups.items()
    }


def _median(pods: Iterable[FoundPod]) -> ReadyTime:
    spans = [span.total_seconds() for one in pods if (span := _measure(one)) is not None]
    if not spans:
        return ReadyTime(READY_AFTER, 0)
    return ReadyTime(max(timedelta(seconds=statistics.median(spans)), LEAST), len(spans))


def _measure(pod: FoundPod) -> timedelta | None:
    """Return how long a pod took from its start until ready, None where it does not tell.

    One whose containers were restarted became ready for the last time after another story.
    """
    statuses = children(pod.obj, "status", "containerStatuses")
    if not pod.view.is_ready or any(number(one, "restartCount") for one in statuses):
        return None
    try:
        begun = parse_rfc3339(text(pod.obj, "status", "startTime"))
    except InvalidInput:
        return None
    since = pod.view.ready_since
    return None if since is None else max(since - begun, timedelta(0))


def choose_behaviour(
    dump: Dump, ready: Mapping[str, ReadyTime], terminates_after: timedelta
) -> Choose:
    """Return how each pod behaves: those of the input go on as they are, new ones become ready."""
    groups = {str(one.view.uid): one.group for one in dump.sets}
    stuck = frozenset(str(one.view.uid) for one in list_stuck(dump))

    def choose(pod: JsonObject) -> Behaviour:
        span = ready[groups[text(controller_of(pod), "uid")]].span
        starts = span / _UNTIL_RUNNING
        usual = Behaviour(
            starts_after=starts, ready_after=span - starts, terminates_after=terminates_after
        )
        return _differ(usual, pod, stuck)

    return choose


def _differ(usual: Behaviour, pod: JsonObject, stuck: Collection[str]) -> Behaviour:
    """Return the behaviour of a pod which may be no usual one."""
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


def list_stuck(dump: Dump) -> tuple[FoundPod, ...]:
    """Return the pods that are not ready, and not on their way out either."""
    return tuple(one for one in dump.pods if not one.view.is_ready and not one.view.is_terminating)
