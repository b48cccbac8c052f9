"""One zone and its pods as every outlet shows them.

What is up and down is settled in `planning.rollout.readiness`; here it is only put in words and
counted. The work goes with the pods that exist or are shown, never with `spec.replicas`.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from rollout_operator.model.description import PodDescription, PodState, ZoneDescription
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.planning.rollout.pods import count_outdated
from rollout_operator.planning.rollout.readiness import (
    Down,
    DownCause,
    Readiness,
    count_pods,
    find_why,
    render_why,
)
from rollout_operator.planning.rollout.zones import choose_limit, is_paused
from rollout_operator.planning.wording import cut

# A page of three such zones is half a megabyte, and a person reads no longer list.
MOST_PODS: Final = 200
# Of all zones together. A StatefulSet may want any number of pods that never come, under a name of
# 253 characters: nine hundred of them with 200 pods each took more memory than the process has.
MOST_PODS_IN_ALL: Final = 20_000
# A readiness probe that fails for ever looks like a probe that has not passed yet: what is down for
# longer than it takes to replay a log of writes, or fell after that, is not starting.
START_LIMIT: Final = timedelta(minutes=15)

_NO_POD: Final = "no pod"


def share_pods(zones: int) -> int:
    """Return how many pods of each zone are shown where there are so many zones."""
    return max(1, min(MOST_PODS, MOST_PODS_IN_ALL // max(zones, 1)))


def describe_zone(
    zone: Zone, readiness: Readiness, group: Group, *, is_busy: bool, most_pods: int = MOST_PODS
) -> ZoneDescription:
    """Return one zone with `most_pods` pods at most; `is_busy` says whether it is its turn."""
    sts = zone.sts
    held = zone.by_ordinal(sts.ordinals)
    progress = count_pods(readiness)
    return ZoneDescription(
        name=sts.name,
        desired=progress.desired,
        ready=progress.ready,
        updated=progress.updated,
        outdated=progress.outdated,
        max_unavailable=choose_limit(sts)[0],
        is_paused=is_paused(sts),
        current_revision=sts.current_revision,
        update_revision=sts.update_revision,
        is_busy=is_busy,
        pods=tuple(_describe_pods(readiness, held, group, readiness.sts.ordinals[:most_pods])),
    )


def find_turn(readinesses: Sequence[Readiness]) -> Readiness | None:
    """Return the zone whose turn it is; None where nothing is due, or two zones are short.

    `readinesses` are in the order of zones. It is the order of `plan_group`: a zone that is short
    goes before all others, and no other zone is touched meanwhile.
    """
    due = [readiness for readiness in readinesses if _is_due(readiness)]
    short = [readiness for readiness in readinesses if not readiness.is_whole]
    if not due or len(short) > 1:
        return None
    if short:
        return None if is_paused(short[0].sts) else short[0]
    return next((readiness for readiness in due if count_outdated(readiness)), due[0])


def is_starting(pod: Pod, now: datetime) -> bool:
    """Return whether a pod that is not ready is likely to need nothing but time."""
    return pod.is_starting and (pod.created is None or now - pod.created < START_LIMIT)


def _is_due(readiness: Readiness) -> bool:
    sts = readiness.sts
    return not is_paused(sts) and (
        count_outdated(readiness) > 0 or sts.current_revision != sts.update_revision
    )


def _is_updated(pod: Pod, sts: StatefulSet) -> bool:
    return bool(sts.update_revision) and pod.revision == sts.update_revision


def _describe_pods(
    readiness: Readiness,
    held: Mapping[int, Pod | Unreadable],
    group: Group,
    ordinals: Sequence[int],
) -> Iterator[PodDescription]:
    for ordinal in ordinals:
        pod = held.get(ordinal)
        if isinstance(pod, Pod):
            yield _describe_pod(readiness, ordinal, pod, group)
            continue
        yield PodDescription(
            name=f"{readiness.sts.name}-{ordinal}",
            ordinal=ordinal,
            state=PodState.MISSING if pod is None else PodState.UNREADABLE,
            why=_NO_POD if pod is None else cut(pod.error),
        )


def _describe_pod(readiness: Readiness, ordinal: int, pod: Pod, group: Group) -> PodDescription:
    sts = readiness.sts
    patience = timedelta(seconds=sts.min_ready_seconds)
    why = find_why(pod, patience, group.deletions, group.now)
    down = None if why is None else Down(pod=pod, why=why, gaps_below=0)
    return PodDescription(
        name=pod.name,
        ordinal=ordinal,
        state=PodState.READY if down is None else _choose_state(down, group.now),
        revision=pod.revision or "",
        is_updated=_is_updated(pod, sts),
        why="" if down is None else cut(render_why(readiness, down)),
        since=pod.ready_since if pod.is_ready and pod.ready_since is not None else pod.created,
    )


def _choose_state(down: Down, now: datetime) -> PodState:
    match down.why:
        case DownCause.UNREADY:
            return PodState.STARTING if is_starting(down.pod, now) else PodState.NOT_READY
        case DownCause.SETTLING:
            return PodState.STARTING
        case _:
            return PodState.GOING
