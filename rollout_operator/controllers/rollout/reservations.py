"""Reserve what a rollout is to delete, before the live read that decides on it.

A pod under a budget needs a record, a read of all pods after that, and the delete. With the
record first, the read that precedes every delete is the one that its budget asks for: such a pod
costs one request more than any other, and only the delete has to fit into the life of the read.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from rollout_operator.guards.budgets.request import Reservation
from rollout_operator.model.group import Deletion, Group
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Replacement
from rollout_operator.planning.budgets.rule import Refusal


class Releaser(Protocol):
    """Who takes reservations back."""

    async def release(self, reserved: Reservation) -> None:
        """Nobody confirms a reservation any more; one that is settled is fine."""
        ...

    def abandon(self, reserved: Reservation) -> None:
        """Release a reservation in the background."""
        ...


class Reservations:
    """The reserved pods of one zone, from before a live read until the last delete."""

    def __init__(self, gate: Releaser) -> None:
        self._gate = gate
        self._by_pod: dict[Uid, Reservation] = {}
        self.held: list[Refusal] = []
        """What held other pods when these were reserved."""

    def __len__(self) -> int:
        return len(self._by_pod)

    def add(self, reserved: Reservation) -> None:
        """Keep a reservation."""
        self._by_pod[reserved.ask.pod.uid] = reserved

    def take(self, pod: Uid) -> Reservation | None:
        """Return the reservation of a pod, once."""
        return self._by_pod.pop(pod, None)

    def part(self, pods: Sequence[Replacement]) -> tuple[list[Replacement], list[Replacement]]:
        """Return those that are reserved, and the others."""
        reserved = [one for one in pods if one.pod.uid in self._by_pod]
        return reserved, [one for one in pods if one.pod.uid not in self._by_pod]

    def hide(self, group: Group) -> Group:
        """Return a group in which its own reservations do not count: who uses them is decided."""
        shown = {
            uid: how
            for uid, how in group.deletions.items()
            if uid not in self._by_pod or how is not Deletion.GRANTED
        }
        return group if len(shown) == len(group.deletions) else replace(group, deletions=shown)

    async def release(self) -> None:
        """Take back what was not taken."""
        while self._by_pod:
            reserved = next(iter(self._by_pod.values()))
            await self._gate.release(reserved)
            self._by_pod.pop(reserved.ask.pod.uid, None)

    def abandon(self) -> None:
        """Take back in the background what was neither taken nor released."""
        left, self._by_pod = list(self._by_pod.values()), {}
        for reserved in left:
            self._gate.abandon(reserved)
