"""Which ordinals of a zone hold nothing, because none of their pods was ever ready (D-67, D-26).

An upscale adds ordinals; until a pod of one becomes ready there is no data in it, and it holds
nobody up: neither a downscale nor a rollout. What must not be taken for such a pod is the successor
of one that was ready, deleted or evicted a moment ago. That nothing came before a pod is known from
what this process saw of its ordinal, or by a mark that the pod itself carries, which ends with it;
that it was not ready itself, from its own status. A mark is a word of the process before: whoever
may annotate pods can write one, so that none counts that appears while this process is watching.
"""

from collections.abc import Iterator

from rollout_operator.model.group import Zone
from rollout_operator.model.objects import Pod


def count_used(zone: Zone) -> int:
    """Return how many replicas hold something, or may: all ordinals above never held anything.

    Whatever is in doubt is used. Work goes with the pods that exist, not with `spec.replicas`.
    """
    sts = zone.sts
    if any(one.owner_uid in (sts.uid, None) for one in zone.unreadable_pods):
        return sts.replicas
    if _has_lost(zone):
        return sts.replicas
    pods = list(_list_places(zone))
    used = min(_count_seen(zone), _count_marked(zone, pods))
    used = max([used, *(place + 1 for place, pod in pods if not is_newcomer(zone, pod))])
    # A second witness: a pod that the cache does not show as ready.
    return sts.replicas if used >= sts.replicas or sts.ready_replicas > used else used


def is_newcomer(zone: Zone, pod: Pod) -> bool:
    """Tell whether neither this pod nor any before it at its ordinal was ever ready."""
    if pod.is_ready or pod.was_ready or zone.newcomers is None:
        return False
    if pod.uid in zone.newcomers.pods:
        return True
    is_marked = pod.is_newcomer and pod.uid in zone.newcomers.marked
    # A pod that has run has an address; a phase alone may go back to Pending.
    is_proven = pod.never_ready or (pod.phase == "Pending" and not pod.ip)
    return is_marked and is_proven and not pod.is_terminating


def _has_lost(zone: Zone) -> bool:
    """Tell whether a newcomer is gone whose end was not seen yet: it may have been ready."""
    if zone.newcomers is None or not zone.newcomers.pods:
        return False
    return not zone.newcomers.pods <= {pod.uid for pod in zone.pods}


def _list_places(zone: Zone) -> Iterator[tuple[int, Pod]]:
    """Yield the pods of the desired ordinals, counted from the first ordinal."""
    sts = zone.sts
    for pod in zone.pods:
        if pod.owner_uid == sts.uid:
            ordinal = sts.find_ordinal(pod.name, sts.ordinals)
            if ordinal is not None:
                yield ordinal - sts.first_ordinal, pod


def _count_seen(zone: Zone) -> int:
    return zone.sts.replicas if zone.newcomers is None else zone.newcomers.used


def _count_marked(zone: Zone, pods: list[tuple[int, Pod]]) -> int:
    """Return how many replicas lie below the marked pods at the top of a zone.

    A pod of an ordered set is created only once all below it are ready: what is absent above a
    newcomer never was there. In a parallel one it may just have been deleted.
    """
    used = zone.sts.replicas
    for place, pod in sorted(pods, key=lambda one: one[0], reverse=True):
        if not is_newcomer(zone, pod) or (place < used - 1 and not zone.sts.is_ordered):
            break
        used = place
    return used
