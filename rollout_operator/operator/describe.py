"""The description of a namespace by this process, which every page, command and JSON renders.

The numbers are those of the caches. The process that decides reports its decisions; a process that
follows, or has not reconciled a group yet, shows what it would decide on its own caches.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET

from rollout_operator.model.description import Description, GroupDescription, PolicyDescription
from rollout_operator.model.group import Group
from rollout_operator.operator.budgets import Budgets
from rollout_operator.operator.context import Context
from rollout_operator.planning.description.groups import describe_group
from rollout_operator.planning.description.zones import share_pods
from rollout_operator.planning.rollout.plan import plan_group

if TYPE_CHECKING:
    from rollout_operator.operator.releases.composition import DescribedReleases

PolicySource = Callable[[], Iterable[PolicyDescription]]
Described = TypeVar("Described")


class Describer:
    """Describes the namespace of one process, anew at each call."""

    def __init__(
        self,
        context: Context,
        budgets: Budgets,
        policies: PolicySource | None = None,
        releases: "DescribedReleases | None" = None,
    ) -> None:
        """`policies` and `releases` describe themselves, where they are switched on."""
        self._context = context
        self._budgets = budgets
        self._policies = policies
        self._releases = releases
        self._observer = context.make_observer(context.following)

    async def describe(self) -> Description:
        """Return the namespace as it is now.

        Between two groups, and two budgets, other tasks run: a thousand of them take a second.
        """
        groups: list[GroupDescription] = []
        sets = self._context.sets
        most_pods = share_pods(sum(sts.group is not None for sts in sets.list_all()))
        for name in sorted(sets.list_groups()):
            group = self._observer.observe(name)
            if group.zones or group.unreadable:
                groups.append(self._describe_group(group, most_pods))
            await asyncio.sleep(0)
        described = Description(
            namespace=self._context.namespace,
            now=self._context.clock.now(),
            operator=self._context.health.describe(is_acting=self._context.is_leading),
            groups=tuple(groups),
            budgets=await _list_slowly(self._budgets.describe()),
            policies=UNSET if self._policies is None else await _list_slowly(self._policies()),
        )
        releases = self._releases
        if releases is None:
            return described
        return msgspec.structs.replace(
            described,
            releases=await _list_slowly(releases.describe_releases()),
            schedules=await _list_slowly(releases.describe_schedules()),
            health_checks=await _list_slowly(releases.describe_checks()),
        )

    def _describe_group(self, group: Group, most_pods: int) -> GroupDescription:
        state = self._context.group_states.find_newest(group.name)
        if state is None:
            now = self._context.clock.now()
            return describe_group(group, plan_group(group), now, most_pods=most_pods)
        return describe_group(
            group,
            state.plan,
            state.looked,
            state.since,
            is_underway=state.is_underway,
            most_pods=most_pods,
        )


async def _list_slowly(described: Iterable[Described]) -> tuple[Described, ...]:
    """Return the items, with a turn for other tasks after each."""
    descriptions: list[Described] = []
    for part in described:
        descriptions.append(part)
        await asyncio.sleep(0)
    return tuple(descriptions)
