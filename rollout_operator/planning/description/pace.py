"""When a rollout began, and when it ends at the pace so far, by the ages of its pods.

A pod at the update revision that is younger than every outdated pod of its group was put there by
this rollout: what was outdated before is older, and a StatefulSet with `OnDelete` recreates no pod
at an outdated revision. After a rollback the outdated pods are the young pods, and pods that never
changed do not count. Two things cannot be known by ages. Once no pod is outdated, nothing separates
the pods of this rollout from others. And the pods of a zone whose template did not change count as
replaced where they are younger than all outdated pods of the other zones.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.group import Group, Zone
from rollout_operator.model.objects import Pod
from rollout_operator.planning.rollout.zones import is_paused

# A reader of "a month" learns that nothing is known.
MOST_LEFT: Final = timedelta(days=30)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the pods of a rollout are replaced; `began` is None where nothing shows it."""

    began: datetime | None = None
    expected_end: datetime | None = None


def measure_pace(group: Group) -> Pace:
    """Return when a rollout began and when it will end, as far as the pods show it."""
    outdated, updated = _list_ages(group)
    if not outdated:
        return Pace()
    border = max(outdated)
    replaced = [(born, pod) for born, pod in updated if born > border]
    if not replaced:
        return Pace()
    began = min(born for born, _ in replaced)
    done = sum(pod.is_ready for _, pod in replaced)
    return Pace(began=began, expected_end=_expect_end(group, began, done))


def _list_ages(group: Group) -> tuple[Sequence[datetime], Sequence[tuple[datetime, Pod]]]:
    """Return when outdated pods were created, and the updated pods, each with its time."""
    outdated: list[datetime] = []
    updated: list[tuple[datetime, Pod]] = []
    for zone in group.zones:
        for _, pod in zone.list_pods(zone.sts.ordinals):
            if pod.created is None or not zone.sts.update_revision:
                continue
            if pod.revision == zone.sts.update_revision:
                updated.append((pod.created, pod))
            else:
                outdated.append(pod.created)
    return outdated, updated


def _expect_end(group: Group, began: datetime, done: int) -> datetime | None:
    """Return the end where each further pod takes as long as one of the `done` did."""
    took = (group.now - began).total_seconds()
    left = sum(_count_left(zone) for zone in group.zones)
    if not done or took <= 0 or any(is_paused(zone.sts) for zone in group.zones):
        return None
    seconds = took / done * left
    return group.now + timedelta(seconds=seconds) if seconds <= MOST_LEFT.total_seconds() else None


def _count_left(zone: Zone) -> int:
    """Return how many desired pods are not ready at the update revision."""
    sts = zone.sts
    done = sum(
        isinstance(pod, Pod) and pod.is_ready and pod.revision == sts.update_revision
        for pod in zone.by_ordinal(sts.ordinals).values()
    )
    return max(sts.replicas - done, 0)
