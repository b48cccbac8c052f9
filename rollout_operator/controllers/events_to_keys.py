"""Which changes wake which group.

Informers tell only changes that decide; here each is mapped to the group that it concerns, and to
that group alone: a pod to the group of the StatefulSet that controls it, a StatefulSet to the group
it is in and the one it left.
"""

from collections.abc import Callable
from typing import Protocol

from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable


class OwnerLookup(Protocol):
    """The cached StatefulSets by UID."""

    def get_by_uid(self, uid: Uid) -> StatefulSet | Unreadable | None: ...


class Waker:
    """Turns changes of objects into keys."""

    def __init__(self, owners: OwnerLookup, add: Callable[[GroupName], None]) -> None:
        self._owners = owners
        self._add = add

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """A StatefulSet came, changed or went."""
        for group in dict.fromkeys(one.group for one in (old, new) if one is not None):
            if group is not None:
                self._add(group)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """A pod came, changed or went. Without a known owner it concerns nobody yet."""
        for owner in dict.fromkeys(one.owner_uid for one in (old, new) if one is not None):
            found = None if owner is None else self._owners.get_by_uid(owner)
            if found is not None and found.group is not None:
                self._add(found.group)
