"""What a plan of the caches and one of a live read agree on: only that is done."""

from collections.abc import Mapping

from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import EqualPods, Plan, ReplacePods


def find_zone(plan: Plan, uid: Uid) -> ReplacePods | None:
    """Return what a plan deletes of one zone."""
    for action in plan.actions:
        if isinstance(action, ReplacePods) and action.zone.uid == uid:
            return action
    return None


def cut_to(cached: ReplacePods, live: ReplacePods) -> ReplacePods | None:
    """Return what both would delete, with the versions of the live one; None for nothing."""
    rooms = {one.pod.uid: share.room for share in cached.shares for one in share.pods}
    shares = tuple(share for each in live.shares if (share := _cut(each, rooms)).pods)
    return ReplacePods(zone=live.zone, shares=shares) if shares else None


def _cut(share: EqualPods, rooms: Mapping[Uid, int]) -> EqualPods:
    """Return the pods that have room in both looks, bounded by the narrower one."""
    pods = tuple(one for one in share.pods if one.pod.uid in rooms)
    most = max((rooms[one.pod.uid] for one in pods), default=0)
    return EqualPods(pods=pods, room=min(share.room, most))
