"""The rule of an Executor: how it reads StatefulSets, its plan, and the locks it holds.

The rule of rollout groups goes by label. Another engine that replaces pods brings its own, and
shares the live read, preconditions, budgets and memory of deletes with it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rollout_operator.controllers.observe import Observer
from rollout_operator.guards.locks import group_lock
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Plan
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.planning.rollout.zones import choose_limit


class RolloutRule(Protocol):
    """The rule for StatefulSets that move together, as a `Group` under some name."""

    def observe(self, name: GroupName) -> Group:
        """Return the StatefulSets of a group as the caches show them."""
        ...

    async def observe_live(self, cached: Group) -> Group:
        """Return them as the store has them now. Raises what `Reader.fetch_page` raises."""
        ...

    async def record(self, live: Group) -> None:
        """Record the plan by a live read, before any of it is done. Raises what writes raise."""
        ...

    def plan(self, group: Group) -> Plan:
        """Return the plan for a group now."""
        ...

    def choose_limit(self, name: GroupName, sts: StatefulSet) -> int:
        """Return how many pods of a StatefulSet may be unavailable."""
        ...

    def list_locks(self, group: Group) -> Sequence[str]:
        """Return the keys of all locks to hold from before the live read to the last delete."""
        ...

    def name_set(self, name: GroupName, sts: StatefulSet) -> Mapping[str, object]:
        """Return the log keys of a StatefulSet of a group: whose it is, and its zone."""
        ...


class LabelRule:
    """The rule of rollout groups by label. Implements `RolloutRule`."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def observe(self, name: GroupName) -> Group:
        """Return the group as the caches show it."""
        return self._observer.observe(name)

    async def observe_live(self, cached: Group) -> Group:
        """Return the group as the store has it now."""
        return await self._observer.observe_live(cached)

    async def record(self, live: Group) -> None:
        """Record nothing: the plan follows from the members alone."""

    def plan(self, group: Group) -> Plan:
        """Return the plan for the group's members."""
        return plan_group(group)

    def choose_limit(self, name: GroupName, sts: StatefulSet) -> int:
        """Return the limit of the StatefulSet's own annotation."""
        return choose_limit(sts)[0]

    def list_locks(self, group: Group) -> Sequence[str]:
        """Return the lock of the group."""
        return (group_lock(group.name),)

    def name_set(self, name: GroupName, sts: StatefulSet) -> Mapping[str, object]:
        """Return group and zone, which is the StatefulSet."""
        return {"group": name, "zone": sts.name}
