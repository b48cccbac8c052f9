"""What any object is at: current, in progress or failed, by the rules of kstatus.

Objects are read as they are on the wire, since any kind may be judged. A field of another type
than it should have is absent. Kinds of Kubernetes have rules of their own, in `RULES`; of all
others conditions decide, and without conditions they are current. As kstatus has it, but for
StatefulSets with OnDelete: to kstatus these are always current, so that a rollout zone by zone
would look finished at once (RELB-36). Here their pods are counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.releases.health import ObjectStatus, StatusVerdict
from rollout_operator.model.units import parse_rfc3339

# So long a pod may find no node, as in kstatus.
_SCHEDULING: Final = timedelta(seconds=15)

_CURRENT: Final = StatusVerdict(ObjectStatus.CURRENT)


class ObjectCondition(msgspec.Struct, frozen=True, kw_only=True):
    """One of the conditions of an object."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None


class ApiObject:
    """An object as it is on the wire."""

    def __init__(self, tree: Mapping[str, object]) -> None:
        self._tree = tree

    @property
    def kind(self) -> str:
        """Return its kind."""
        return self.get_text("kind")

    @property
    def group(self) -> str:
        """Return the group of its API, empty for that of Kubernetes itself."""
        group, slash, _ = self.get_text("apiVersion").partition("/")
        return group if slash else ""

    def get(self, *path: str) -> object:
        """Return a value, None where there is none."""
        value: object = self._tree
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def get_text(self, *path: str) -> str:
        """Return a text, empty where there is none."""
        value = self.get(*path)
        return value if isinstance(value, str) else ""

    def find_int(self, *path: str) -> int | None:
        """Return an integer."""
        value = self.get(*path)
        return value if type(value) is int else None

    def count(self, name: str) -> int:
        """Return a number of its status, 0 where there is none."""
        return self.find_int("status", name) or 0

    def find_time(self, *path: str) -> datetime | None:
        """Return a timestamp."""
        return _parse_time(self.get(*path))

    def list_maps(self, *path: str) -> Sequence[Mapping[str, object]]:
        """Return the objects of a list."""
        value = self.get(*path)
        items = value if isinstance(value, list | tuple) else ()
        return [item for item in items if isinstance(item, Mapping)]

    @cached_property
    def conditions(self) -> Sequence[ObjectCondition]:
        """Return its conditions, as its status orders them."""
        return [
            _read_condition(ApiObject(condition))
            for condition in self.list_maps("status", "conditions")
        ]

    def find_condition(self, kind: str) -> ObjectCondition | None:
        """Return a condition by its type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def has_condition(self, kind: str, status: str = "True") -> bool:
        """Return whether a condition is there with a status."""
        condition = self.find_condition(kind)
        return condition is not None and condition.status == status


def _read_condition(read: ApiObject) -> ObjectCondition:
    return ObjectCondition(
        type=read.get_text("type"),
        status=read.get_text("status"),
        reason=read.get_text("reason"),
        message=read.get_text("message"),
        since=read.find_time("lastTransitionTime"),
    )


def _parse_time(value: object) -> datetime | None:
    try:
        return parse_rfc3339(value) if isinstance(value, str) else None
    except InvalidInput:
        return None


Rule = Callable[[ApiObject, datetime], StatusVerdict]


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
    if read.get("status", "currentRevision") != read.get("status", "updateRevision"):
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
JUDGED: Final = frozenset(kind for kind, rule in RULES.items() if rule is not _be_current)
"""Those of Kubernetes that may fail, or not be there yet."""


def assess_status(tree: Mapping[str, object], now: datetime) -> StatusVerdict:
    """Return what an object is at (REL-114)."""
    read = ApiObject(tree)
    rule = RULES.get((read.group, read.kind))
    status = _assess_metadata(read) or _assess_conditions(read)
    if status is not None:
        return status
    return _assess_ready(read) if rule is None else rule(read, now)


def _assess_metadata(read: ApiObject) -> StatusVerdict | None:
    if read.get("metadata", "deletionTimestamp") is not None:
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


def get_failure_time(tree: Mapping[str, object]) -> datetime | None:
    """Return when the newest failure of an object was seen (REL-111).

    That is when it stalled; where it does not say so, when any of its conditions changed last.
    """
    conditions = ApiObject(tree).conditions
    stalled = [
        condition
        for condition in conditions
        if (condition.type, condition.status) == ("Stalled", "True")
    ]
    times = [condition.since for condition in stalled or conditions if condition.since is not None]
    return max(times, default=None)
