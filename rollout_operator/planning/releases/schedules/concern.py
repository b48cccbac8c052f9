"""Which schedules a change may concern."""

from collections.abc import Iterable, Iterator

from rollout_operator.model import names
from rollout_operator.model.releases.gate import ReleaseGate
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.model.releases.schedule_plan import GatedRollout


def list_by_gate(kind: str, gate: ReleaseGate) -> Iterator[str]:
    """Yield the schedules of a kind that keep a gate, or did, as it says itself (REL-101)."""
    owners = (owner.name for owner in gate.origin.owners if owner.kind == kind)
    labels = gate.origin.labels
    labelled = labels.get(names.SCHEDULE_NAME) if labels.get(names.SCHEDULE_KIND) == kind else None
    yield from dict.fromkeys([*owners, *([labelled] if labelled else [])])


def list_by_rollout(
    schedules: Iterable[ScheduleObject], rollouts: Iterable[GatedRollout]
) -> Iterator[str]:
    """Yield the schedules that select a Rollout by its labels, or cannot say what they select."""
    candidates = tuple(rollouts)
    for schedule in schedules:
        selector = schedule.rollouts
        if selector is None or any(selector.takes(rollout.labels) for rollout in candidates):
            yield schedule.head.name
