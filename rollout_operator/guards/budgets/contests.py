"""Which of two processes goes on that let pods go at the same moment."""

from dataclasses import replace

from rollout_operator.guards.budgets.in_flight import read_record
from rollout_operator.model.budget import Record
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.objects import Pod
from rollout_operator.planning.budgets.rule import Scene, assess_disruption


def wins(record: Record | None, live: Scene) -> bool:
    """Tell whether the pod may go once all weaker records of other processes are withdrawn.

    The earlier one wins; a tie is broken by names, the same for both.
    """
    if record is None:
        return False
    weaker = {pod.uid for zone in live.zones for pod in zone.pods if _is_weaker(_read(pod), record)}
    if not weaker:
        return False
    going = {uid: how for uid, how in live.deletions.items() if uid not in weaker}
    return assess_disruption(replace(live, deletions=going)) is None


def _is_weaker(other: Record | None, record: Record) -> bool:
    if other is None or other.by == record.by:
        return False
    return (other.at, other.by, other.uid) > (record.at, record.by, record.uid)


def _read(pod: Pod) -> Record | None:
    try:
        return read_record(pod)
    except InvalidInput:
        return None
