"""The pods that a rollout may try next: what budgets grant of both plans, and reserved pods.

Budgets decide by the caches for all pods at once, and again whenever a pod has gone. Whether a pod
really may go, the executor requests from the arbiter for each by itself.

Pods to delete are reserved before the live read that decides on them. A pod under a budget needs a
record, a read of all pods after that, and the delete. With the record first, the read that precedes
every delete is the read that its budget needs: such a pod costs one request more than any other,
and only the delete has to fit into the life of the read.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.request import DisruptionRequest, Reservation
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.group import Deletion, Group
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import EqualPods, Plan, Replacement, ReplacePods
from rollout_operator.planning.budgets.rule import Refusal


def find_zone(plan: Plan, uid: Uid) -> ReplacePods | None:
    """Return the deletes of a plan in one zone."""
    for action in plan.actions:
        if isinstance(action, ReplacePods) and action.zone.uid == uid:
            return action
    return None


def cut_to(cached: ReplacePods, live: ReplacePods) -> ReplacePods | None:
    """Return the deletes that both have, with the versions of `live`; None for none."""
    rooms = {pod.pod.uid: share.room for share in cached.shares for pod in share.pods}
    shares = tuple(share for each in live.shares if (share := _cut(each, rooms)).pods)
    return ReplacePods(zone=live.zone, shares=shares) if shares else None


def _cut(share: EqualPods, rooms: Mapping[Uid, int]) -> EqualPods:
    """Return the pods that have room in both plans, bounded by the narrower plan."""
    pods = tuple(pod for pod in share.pods if pod.pod.uid in rooms)
    most = max((rooms[pod.pod.uid] for pod in pods), default=0)
    return EqualPods(pods=pods, room=min(share.room, most))


def build_request(replacement: Replacement, limit: int) -> DisruptionRequest:
    """Return the request to the arbiter for the delete of a pod of a zone with this limit."""
    return DisruptionRequest(pod=replacement.pod, engine=DisruptionSource.ROLLOUT, limit=limit)


class Candidates:
    """Pods of one zone, in the order in which they are to be tried."""

    def __init__(
        self,
        arbiter: Arbiter,
        limit: int,
        pods: Sequence[Replacement],
        held: list[Refusal],
        reserved: Sequence[Replacement] = (),
    ) -> None:
        """Try `reserved` in any case, then `pods`; why a pod is not tried is added to `held`."""
        self._arbiter = arbiter
        self._limit = limit
        self._reserved = deque(reserved)
        self._left = deque(pods)
        self._held = held
        self._answers: deque[Refusal | None] = deque()

    async def next(self) -> Replacement | None:
        """Return the next pod that is not held back, None where all are."""
        if self._reserved:
            return self._reserved.popleft()
        if self._left and not self._answers:
            requests = [build_request(candidate, self._limit) for candidate in self._left]
            self._answers.extend(await self._arbiter.assess_all(requests))
        while self._left:
            replacement, refusal = self._left.popleft(), self._answers.popleft()
            if refusal is None:
                return replacement
            self._held.append(refusal)
        return None

    def reassess(self) -> None:
        """Assess again: a pod has gone, and that may have been all that the budget has room for."""
        self._answers.clear()


class Reservations:
    """The reserved pods of one zone, from before a live read until the last delete."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter
        self._by_pod: dict[Uid, Reservation] = {}
        self.held: list[Refusal] = []
        """Why other pods were held when these were reserved."""

    def __len__(self) -> int:
        return len(self._by_pod)

    def add(self, reserved: Reservation) -> None:
        """Keep a reservation."""
        self._by_pod[reserved.request.pod.uid] = reserved

    def take(self, pod: Uid) -> Reservation | None:
        """Return the reservation of a pod, once."""
        return self._by_pod.pop(pod, None)

    def split(self, pods: Sequence[Replacement]) -> tuple[list[Replacement], list[Replacement]]:
        """Return the pods that are reserved, and the others."""
        reserved = [pod for pod in pods if pod.pod.uid in self._by_pod]
        return reserved, [pod for pod in pods if pod.pod.uid not in self._by_pod]

    def hide(self, group: Group) -> Group:
        """Return a group in which its own reservations do not count: their use is decided."""
        shown = {
            uid: how
            for uid, how in group.deletions.items()
            if uid not in self._by_pod or how is not Deletion.GRANTED
        }
        return group if len(shown) == len(group.deletions) else replace(group, deletions=shown)

    async def release(self) -> None:
        """Release the reservations that were not taken."""
        while self._by_pod:
            reserved = next(iter(self._by_pod.values()))
            await self._arbiter.release(reserved)
            self._by_pod.pop(reserved.request.pod.uid, None)

    def abandon(self) -> None:
        """Release in the background the reservations neither taken nor released."""
        left, self._by_pod = list(self._by_pod.values()), {}
        for reserved in left:
            self._arbiter.abandon(reserved)
