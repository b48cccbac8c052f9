"""Pods that go without our doing: which of them a rollout replaces, and what ours would have done.

Another operator is noticed by them, and in shadow mode they are compared with what ours decides.
"""

import msgspec.structs
from msgspec.structs import replace

from rollout_operator.model.group import Group, Zone
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import ReplacePods
from rollout_operator.planning.rollout.plan import plan_group


def is_replaced(sts: StatefulSet, old: Pod, new: Pod) -> bool:
    """Return whether a pod of a set has just been deleted because it was outdated, for all we see.

    That is a pod at an outdated revision that turns terminating, other than by an eviction, a
    preemption or the end of its node, and not because it is wanted no more.
    """
    has_gone = new.is_terminating and not old.is_terminating and not new.is_disrupted
    ordinal = sts.ordinal_of(old.name)
    is_outdated = old.revision != sts.update_revision
    return has_gone and is_outdated and ordinal is not None and is_wanted(sts, ordinal)


def is_wanted(sts: StatefulSet, ordinal: int) -> bool:
    """Return whether there is to be a pod of this ordinal."""
    return not sts.is_terminating and ordinal in sts.ordinals


def would_replace(group: Group, pod: Pod) -> bool:
    """Return whether a rollout might delete a pod now, were it still there as it was.

    `pod` is the pod as it was before; another pod may have its name in `group` by now. The status
    of its StatefulSet is not read: it may count the pod as gone already.
    """
    zones = tuple(
        _with_pod(zone, pod) if zone.sts.uid == pod.owner_uid else zone for zone in group.zones
    )
    deletions = {uid: how for uid, how in group.deletions.items() if uid != pod.uid}
    plan = plan_group(replace(group, zones=zones, deletions=deletions))
    return any(
        entry.pod.uid == pod.uid
        for action in plan.actions
        if isinstance(action, ReplacePods)
        for entry in action.listed
    )


def _with_pod(zone: Zone, pod: Pod) -> Zone:
    others = tuple(other for other in zone.pods if other.name != pod.name)
    unreadable = tuple(other for other in zone.unreadable_pods if other.name != pod.name)
    whole = msgspec.structs.replace(
        zone.sts, ready_replicas=zone.sts.replicas, available_replicas=zone.sts.replicas
    )
    return replace(zone, sts=whole, pods=(*others, pod), unreadable_pods=unreadable)
