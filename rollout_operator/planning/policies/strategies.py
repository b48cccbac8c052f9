"""Which StatefulSets of a policy may be switched to OnDelete (MAZ-27).

Under any other strategy Kubernetes replaces pods by itself. It is switched off only where that has
come to its end, so that no zone is left between two revisions by the switch.
"""

from collections.abc import Sequence

from rollout_operator.model.group import Group
from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.planning.rollout.pods import count_outdated
from rollout_operator.planning.rollout.readiness import measure_readiness
from rollout_operator.planning.rollout.zones import is_behind, order_zones


def list_switchable(group: Group) -> Sequence[StatefulSet]:
    """Return the StatefulSets that are to be switched now, by name."""
    readinesses = [
        measure_readiness(zone, group.deletions, group.now)
        for zone in order_zones(group.zones)
        if zone.sts.strategy != ON_DELETE
    ]
    return [
        readiness.sts
        for readiness in readinesses
        if readiness.is_whole
        and not count_outdated(readiness)
        and readiness.sts.update_revision
        and not is_behind(readiness.sts)
        and not readiness.sts.is_terminating
    ]
