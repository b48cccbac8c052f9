"""Decide for a whole label group: the one way into planning, and the order of concerns.

First what stops the group, then the walk over its zones: a zone per StatefulSet, by name, without a
pause, each with the limit of its own annotation.
"""

from collections.abc import Iterable

from rollout_operator.model.group import Group
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Plan
from rollout_operator.planning.rollout.pods import count_outdated
from rollout_operator.planning.rollout.readiness import Readiness, count_pods, measure_readiness
from rollout_operator.planning.rollout.walk import RolloutZone, explain_up_to_date, walk_zones
from rollout_operator.planning.rollout.zones import (
    choose_limit,
    find_group_blocker,
    list_podless,
    list_times,
    list_warnings,
    measure_departed,
    order_zones,
)


def plan_group(group: Group) -> Plan:
    """Return all that one snapshot of a group leads to.

    The same group gives an equal plan, in whatever order its zones and pods come. A plan without an
    action has at least one wait.
    """
    zones = order_zones(group.zones)
    warnings = list_warnings(zones)
    readinesses = tuple(measure_readiness(zone, group.deletions, group.now) for zone in zones)
    progress = tuple(map(count_pods, readinesses))
    blocker = find_group_blocker(group)
    ways = [
        RolloutZone(name=readiness.sts.name, readinesses=(readiness,)) for readiness in readinesses
    ]
    if group.driver and _is_rolled_out(readinesses):
        return Plan(group=group.name, waits=(explain_up_to_date(ways),), progress=progress)
    if blocker is not None:
        return Plan(
            group=group.name,
            waits=blocker.reasons,
            problems=warnings,
            failed=blocker.is_failure,
            requeue_after=blocker.requeue_after,
            progress=progress,
        )
    departed = measure_departed(group)
    walk = walk_zones(ways, _read_limit, departed)
    times = list_times((*readinesses, *departed))
    return Plan(
        group=group.name,
        actions=tuple(walk.actions),
        waits=tuple(walk.waits),
        problems=(*warnings, *list_podless(readinesses)),
        requeue_after=min(times, default=None),
        progress=progress,
    )


def _is_rolled_out(readinesses: Iterable[Readiness]) -> bool:
    """Return whether a group that another engine rolls out has nothing left to do."""
    return all(
        readiness.is_whole
        and not count_outdated(readiness)
        and readiness.sts.current_revision == readiness.sts.update_revision
        for readiness in readinesses
    )


def _read_limit(sts: StatefulSet) -> int:
    return choose_limit(sts)[0]
