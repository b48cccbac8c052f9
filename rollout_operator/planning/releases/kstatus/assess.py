"""What any object is at: current, in progress or failed, by the rules of kstatus.

Objects are read as they are on the wire, since any kind may be judged. A field of another type
than it should have is absent. Kinds of Kubernetes have rules of their own, in `workloads`; of all
others conditions decide, and without conditions they are current.
"""

from collections.abc import Mapping
from datetime import datetime

from rollout_operator.model.releases.object_status import ObjectStatus, StatusVerdict
from rollout_operator.planning.releases.kstatus.fields import ApiObject
from rollout_operator.planning.releases.kstatus.workloads import RULES


def assess_status(tree: Mapping[str, object], now: datetime) -> StatusVerdict:
    """Return what an object is at (REL-114)."""
    read = ApiObject(tree)
    rule = RULES.get((read.group, read.kind))
    status = _assess_metadata(read) or _assess_conditions(read)
    if status is not None:
        return status
    return _assess_ready(read) if rule is None else rule(read, now)


def _assess_metadata(read: ApiObject) -> StatusVerdict | None:
    if read.find("metadata", "deletionTimestamp") is not None:
        return StatusVerdict(ObjectStatus.TERMINATING, "it is being deleted")
    generation = read.find_int("metadata", "generation")
    observed = read.find_int("status", "observedGeneration")
    if observed is not None and observed != generation:
        text = f"generation {generation} is not observed yet, only {observed}"
        return StatusVerdict(ObjectStatus.IN_PROGRESS, text)
    return None


def _assess_conditions(read: ApiObject) -> StatusVerdict | None:
    """Return what the conditions of kstatus say; the first that is true decides."""
    for condition in read.conditions:
        if condition.status == "True" and condition.type == "Reconciling":
            return StatusVerdict(ObjectStatus.IN_PROGRESS, condition.message)
        if condition.status == "True" and condition.type == "Stalled":
            return StatusVerdict(ObjectStatus.FAILED, condition.message)
    return None


def _assess_ready(read: ApiObject) -> StatusVerdict:
    ready = read.find_condition("Ready")
    if ready is None or ready.status == "True":
        return StatusVerdict(ObjectStatus.CURRENT, "" if ready is None else ready.message)
    return StatusVerdict(ObjectStatus.IN_PROGRESS, ready.message)
