"""When objects of Kubernetes' own kinds are current, in progress or failed.

As kstatus has it, but for StatefulSets with OnDelete: to kstatus these are always current, so that
a rollout zone by zone would look finished at once (RELB-36). Here their pods are counted.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.releases.object_status import ObjectStatus, StatusVerdict
from rollout_operator.planning.releases.kstatus.fields import ApiObject

Rule = Callable[[ApiObject, datetime], StatusVerdict]

# So long a pod may find no node, as in kstatus.
_SCHEDULING: Final = timedelta(seconds=15)

_CURRENT: Final = StatusVerdict(ObjectStatus.CURRENT)


def _in_progress(text: str) -> StatusVerdict:
    return StatusVerdict(ObjectStatus.IN_PROGRESS, text)


def _failed(text: str) -> StatusVerdict:
    return StatusVerdict(ObjectStatus.FAILED, text)


def _replicas(read: ApiObject) -> int:
    wanted = read.find_int("spec", "replicas")
    return 1 if wanted is None else wanted


def _find_missing(read: ApiObject, names: Iterable[str], wanted: int) -> StatusVerdict | None:
    """Return the first number of the status that is too small."""
    for name in names:
        if read.count(name) < wanted:
            return _in_progress(f"{name}: {read.count(name)} of {wanted}")
    return None


def _find_surplus(read: ApiObject, wanted: int) -> StatusVerdict | None:
    surplus = read.count("replicas") - wanted
    return _in_progress(f"replicas: {surplus} too many") if surplus > 0 else None


def _assess_deployment(read: ApiObject, _: datetime) -> StatusVerdict:
    progressing = read.find_condition("Progressing")
    if progressing is not None and progressing.reason == "ProgressDeadlineExceeded":
        return _failed(progressing.message or "the progress deadline is exceeded")
    wanted = _replicas(read)
    status = (
        _find_missing(read, ("replicas", "updatedReplicas"), wanted)
        or _find_surplus(read, wanted)
        or _find_missing(read, ("availableReplicas",), read.count("updatedReplicas"))
        or _find_missing(read, ("readyReplicas",), wanted)
    )
    if status is not None:
        return status
    is_rolled_out = read.find_int("spec", "progressDeadlineSeconds") is None or (
        progressing is not None
        and progressing.status == "True"
        and progressing.reason == "NewReplicaSetAvailable"
    )
    if not is_rolled_out:
        return _in_progress("the new ReplicaSet is not available")
    return _CURRENT if read.has_condition("Available") else _in_progress("it is not available")


def _assess_stateful_set(read: ApiObject, _: datetime) -> StatusVerdict:
    wanted = _replicas(read)
    status = _find_missing(read, ("replicas", "readyReplicas"), wanted) or _find_surplus(
        read, wanted
    )
    if status is not None:
        return status
    partition = read.find_int("spec", "updateStrategy", "rollingUpdate", "partition")
    if read.get_text("spec", "updateStrategy", "type") == ON_DELETE:
        return _find_missing(read, ("updatedReplicas",), wanted) or _CURRENT
    if partition is not None:
        return _find_missing(read, ("updatedReplicas",), wanted - partition) or _CURRENT
    if read.find("status", "currentRevision") != read.find("status", "updateRevision"):
        return _in_progress("pods run another revision than they should")
    return _find_missing(read, ("currentReplicas",), wanted) or _CURRENT


def _assess_replica_set(read: ApiObject, _: datetime) -> StatusVerdict:
    if read.has_condition("ReplicaFailure"):
        return _in_progress("pods cannot be created or deleted")
    wanted = _replicas(read)
    numbers = ("fullyLabeledReplicas", "availableReplicas", "readyReplicas")
    return _find_missing(read, numbers, wanted) or _find_surplus(read, wanted) or _CURRENT


def _assess_daemon_set(read: ApiObject, _: datetime) -> StatusVerdict:
    for path in (("metadata", "generation"), ("status", "observedGeneration")):
        if read.find_int(*path) is None:
            return _in_progress(f"{path[1]} is missing")
    wanted = read.find_int("status", "desiredNumberScheduled")
    if wanted is None:
        return _in_progress("desiredNumberScheduled is missing")
    numbers = ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady")
    return _find_missing(read, numbers, wanted) or _CURRENT


def _assess_pod(read: ApiObject, now: datetime) -> StatusVerdict:
    match read.get_text("status", "phase"):
        case "Succeeded" | "Failed":
            return _CURRENT
        case "Running":
            return _assess_running(read)
        case "Pending":
            return _assess_pending(read, now)
        case "":
            return _in_progress("it has no phase yet")
        case phase:
            return StatusVerdict(ObjectStatus.UNKNOWN, f"its phase is {phase}")


def _assess_running(read: ApiObject) -> StatusVerdict:
    if read.has_condition("Ready"):
        return _CURRENT
    names = ("containerStatuses", "initContainerStatuses")
    containers = [ApiObject(each) for name in names for each in read.list_maps("status", name)]
    for container in containers:
        if container.get_text("state", "waiting", "reason") == "CrashLoopBackOff":
            return _failed(f"container {container.get_text('name')} is in CrashLoopBackOff")
    return _in_progress("it is not ready")


def _assess_pending(read: ApiObject, now: datetime) -> StatusVerdict:
    scheduled = read.find_condition("PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return _in_progress("it is pending")
    since = scheduled.since or read.find_time("metadata", "creationTimestamp")
    if since is not None and now - since < _SCHEDULING:
        return _in_progress("it has no node yet")
    return _failed(scheduled.message or "no node takes it")


def _assess_job(read: ApiObject, _: datetime) -> StatusVerdict:
    failed = read.find_condition("Failed")
    if failed is not None and failed.status == "True":
        return _failed(failed.message or "it failed")
    if read.has_condition("Complete") or read.has_condition("Suspended"):
        return _CURRENT
    return _CURRENT if read.get_text("status", "startTime") else _in_progress("it has not started")


def _assess_claim(read: ApiObject, _: datetime) -> StatusVerdict:
    phase = read.get_text("status", "phase")
    return _CURRENT if phase == "Bound" else _in_progress(f"it is not bound: {phase or 'no phase'}")


def _assess_service(read: ApiObject, _: datetime) -> StatusVerdict:
    is_balanced = read.get_text("spec", "type") == "LoadBalancer"
    if is_balanced and not read.get_text("spec", "clusterIP"):
        return _in_progress("it has no address yet")
    return _CURRENT


def _assess_definition(read: ApiObject, _: datetime) -> StatusVerdict:
    established = read.find_condition("Established")
    if read.has_condition("NamesAccepted", "False"):
        return _failed("its names are taken")
    if established is None:
        return _in_progress("it is not established yet")
    if established.status == "False" and established.reason != "Installing":
        return _failed(established.message or "it is not established")
    return _CURRENT if established.status == "True" else _in_progress("it is being installed")


def _be_current(_: ApiObject, __: datetime) -> StatusVerdict:
    return _CURRENT


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("apps", "Deployment"): _assess_deployment,
    ("apps", "StatefulSet"): _assess_stateful_set,
    ("apps", "ReplicaSet"): _assess_replica_set,
    ("apps", "DaemonSet"): _assess_daemon_set,
    ("", "Pod"): _assess_pod,
    ("batch", "Job"): _assess_job,
    ("", "PersistentVolumeClaim"): _assess_claim,
    ("", "Service"): _assess_service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _assess_definition,
    **dict.fromkeys(
        [
            ("", "Secret"),
            ("", "ConfigMap"),
            ("batch", "CronJob"),
            ("policy", "PodDisruptionBudget"),
        ],
        _be_current,
    ),
}
"""By group and kind: a `Service` of another group is another thing."""
