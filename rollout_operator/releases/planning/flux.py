"""Objects of Flux and one release: where its tag belongs, what is written, what Flux has yet to do.

Before a bake may start, each OCIRepository with the tag must have fetched it, and each
Kustomization that has the tag in a variable, or applies what one of these fetched, must have
applied it: otherwise a HealthCheck could be healthy by the version before.

Each Rollout has a field manager of its own and applies nothing but its own fields, so that two
Rollouts on one Kustomization keep theirs apart. A field without its annotation is let go, and its
value stays: otherwise Flux would apply another version than the wanted one.

`assess_status` judges any object by the rules of kstatus: kinds of Kubernetes by `RULES`, all
others by their conditions. Other than in kstatus, the pods of a StatefulSet with OnDelete are
counted: a rollout zone by zone would look finished at once (RELB-36).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import msgspec

from rollout_operator.model.names import ON_DELETE, InvalidInput
from rollout_operator.model.objects import WatchedHead
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.wording import join_names
from rollout_operator.releases.model.plan import (
    FIELDS,
    KUSTOMIZATION,
    OCI_REPOSITORY,
    TAG,
    ApplyTag,
    FluxObject,
    FluxProgress,
    FluxReference,
    FluxTarget,
    FluxWrite,
    FluxWriteCode,
    FluxWrites,
    ObjectStatus,
    PatchMethod,
    ReleasePlan,
    StatusVerdict,
)
from rollout_operator.releases.model.releases import ReleaseRollout

_MANAGER: Final = "rollout-controller"
RELEASED: Final = f"{_MANAGER}-released"
"""Holds values that a Rollout let go of. No Rollout has this name: theirs have a slash."""
# The API server refuses a longer name of a field manager.
_LONGEST_MANAGER: Final = 128
_HASH: Final = 10
# What goes before the tag in `spec.ref`.
_SHADOWS: Final = ("digest", "semver")

# What a plan requires; all other writes only tidy up.
_TAGS: Final = frozenset(
    {
        *(FluxWriteCode.VALUE_SET, FluxWriteCode.VALUE_MOVED, FluxWriteCode.VALUE_TAKEN),
        FluxWriteCode.CHOICE_CLEARED,
    }
)

# A revision is `tag@digest`; of earlier versions of Flux `tag/digest`.
_AFTER_TAG: Final = ("@", "/")

Waits = Mapping[tuple[str, str], str]
"""By kind and name of an object of Flux, what it has yet to do."""
# So long a pod may find no node, as in kstatus.
_SCHEDULING: Final = timedelta(seconds=15)

_CURRENT: Final = StatusVerdict(ObjectStatus.CURRENT)


def name_manager(rollout: str) -> str:
    """Return the field manager of a Rollout; a long name is cut and gets a hash."""
    name = f"{_MANAGER}/{rollout}"
    if len(name) <= _LONGEST_MANAGER:
        return name
    digest = hashlib.sha256(rollout.encode()).hexdigest()[:_HASH]
    return f"{name[: _LONGEST_MANAGER - _HASH - 1]}-{digest}"


def plan_flux_writes(rollout: str, tag: str, objects: Iterable[FluxObject]) -> FluxWrites:
    """Return what it takes until all that is annotated for a Rollout has the tag.

    The objects are those of its namespace. Nothing is written to an object that is being deleted.
    """
    flux = tuple(objects)
    return FluxWrites(
        writes=tuple(write for each in flux for write in _plan_object(rollout, tag, each)),
        problems=tuple(
            problem.text for each in flux for problem in each.problems if problem.rollout == rollout
        ),
    )


def _plan_object(rollout: str, tag: str, flux: FluxObject) -> Iterator[FluxWrite]:
    if flux.head.is_terminating:
        return
    manager = name_manager(rollout)
    claimed = sorted(name for name, owner in flux.rollouts.items() if owner == rollout)
    dropped = sorted(
        name
        for name, managers in flux.writers.items()
        if manager in managers and name not in claimed and name in flux.values
    )
    wanted = dict.fromkeys(claimed, tag)
    if any(flux.writers[name] == (manager,) for name in dropped):
        yield _keep(flux, dropped)
    if any(flux.values.get(name) != tag for name in claimed):
        code, text = _explain_change(flux, wanted, manager)
        yield _apply(flux, manager, wanted, code, text)
    elif dropped:
        text = f"{_show(flux, dropped)} of Rollout {rollout} no more: no annotation says so"
        yield _apply(flux, manager, wanted, FluxWriteCode.VALUE_RELEASED, text)
    shadows = _list_shadows(flux)
    if shadows and TAG in claimed:
        yield _clear(flux, shadows, manager)


def _keep(flux: FluxObject, names: Iterable[str]) -> FluxWrite:
    """Return a write by which `RELEASED` holds these values, beside those it has."""
    held = (name for name, managers in flux.writers.items() if RELEASED in managers)
    kept = {name: flux.values[name] for name in sorted({*names, *held}) if name in flux.values}
    text = f"{_show(flux, names)} stays: the Rollout lets go of it"
    return _apply(flux, RELEASED, kept, FluxWriteCode.VALUE_KEPT, text)


def _list_shadows(flux: FluxObject) -> Sequence[str]:
    is_repository = flux.kind == OCI_REPOSITORY
    return [name for name in _SHADOWS if is_repository and name in flux.values]


def _clear(flux: FluxObject, names: Sequence[str], manager: str) -> FluxWrite:
    # A patch by merge: what is applied can give values, and take away only its own.
    return FluxWrite(
        kind=flux.kind,
        head=flux.head,
        manager=manager,
        method=PatchMethod.MERGE,
        body={
            "metadata": {"uid": flux.head.uid},
            **_nest(FIELDS[flux.kind], dict.fromkeys(names)),
        },
        is_forced=False,
        code=FluxWriteCode.CHOICE_CLEARED,
        text=f"{_show(flux, names)} cleared: it would go before the tag",
    )


def _apply(
    flux: FluxObject, manager: str, values: Mapping[str, str], code: FluxWriteCode, text: str
) -> FluxWrite:
    head = flux.head
    metadata = {"name": head.name, "namespace": head.namespace, "uid": head.uid}
    spec = _nest(FIELDS[flux.kind], values) if values else {}
    return FluxWrite(
        kind=flux.kind,
        head=head,
        manager=manager,
        method=PatchMethod.APPLY,
        body={
            "apiVersion": flux.api_version,
            "kind": flux.kind,
            "metadata": metadata,
            **spec,
        },
        # A value that is only kept and has changed meanwhile is planned again.
        is_forced=code is not FluxWriteCode.VALUE_KEPT,
        code=code,
        text=text,
    )


def _explain_change(
    flux: FluxObject, wanted: Mapping[str, str], manager: str
) -> tuple[FluxWriteCode, str]:
    changed = [name for name, tag in wanted.items() if flux.values.get(name) != tag]
    others = sorted(
        {
            writer
            for name in changed
            for writer in flux.writers.get(name, ())
            if name in flux.values and writer not in {"", manager, RELEASED, _MANAGER}
        }
    )
    moves = [f"{name} {flux.values.get(name) or 'empty'} -> {wanted[name]}" for name in changed]
    text = f"{flux.kind} {flux.head.key}: {'.'.join(FIELDS[flux.kind])}: {join_names(moves)}"
    if others:
        return FluxWriteCode.VALUE_TAKEN, f"{text}; written by {join_names(others)}"
    is_new = all(name not in flux.values for name in changed)
    return (FluxWriteCode.VALUE_SET if is_new else FluxWriteCode.VALUE_MOVED), text


def _show(flux: FluxObject, names: Iterable[str]) -> str:
    values = [f"{name} {flux.values[name]}" for name in names]
    return f"{flux.kind} {flux.head.key}: {'.'.join(FIELDS[flux.kind])}: {join_names(values)}"


def _nest(path: Sequence[str], value: Mapping[str, object]) -> Mapping[str, object]:
    for step in reversed(path):
        value = {step: value}
    return value


def list_targets(
    rollout: str, tag: str | None, objects: Iterable[FluxObject]
) -> tuple[FluxTarget, ...]:
    """Return the places of a Rollout whose current release has this tag; None: it has none yet.

    OCIRepositories come first, and each kind by name, as `objects` are ordered.
    """
    flux = tuple(objects)
    waits = {} if tag is None else map_flux_waits(rollout, tag, flux)
    targets = [target for each in flux for target in _list_fields(rollout, each, waits)]
    listed = {(target.kind, target.name) for target in targets}
    targets += [
        FluxTarget(kind=kind, name=name, tag=tag, waiting_for=text)
        for (kind, name), text in waits.items()
        if (kind, name) not in listed
    ]
    return tuple(targets)


def map_flux_waits(rollout: str, tag: str, objects: Iterable[FluxObject]) -> Waits:
    """Return what a bake of a Rollout has to wait for; nothing once all of it runs (RELB-16)."""
    flux = tuple(objects)
    fetched: Mapping[FluxReference | None, str] = {
        each.reference: each.progress.revision
        for each in flux
        if each.kind == OCI_REPOSITORY and rollout in each.rollouts.values()
    }
    waits = {
        (each.kind, each.head.name): _explain(each, tag, fetched)
        for each in flux
        if rollout in each.rollouts.values() or each.source in fetched
    }
    return {place: text for place, text in waits.items() if text}


def plan_due_writes(
    rollout: ReleaseRollout, plan: ReleasePlan, objects: Iterable[FluxObject]
) -> FluxWrites:
    """Return the writes that carry a plan out: those of the tags that it applies, and what is tidy.

    None before the first deployment, and none of a Rollout that is suspended.
    """
    current, name = plan.status.current, rollout.head.name
    writes = plan_flux_writes(name, "" if current is None else current.version.tag, objects)
    if current is None or rollout.spec.is_suspended:
        return msgspec.structs.replace(writes, writes=())
    applied = {
        (action.target.kind, action.target.name)
        for action in plan.actions
        if isinstance(action, ApplyTag)
    }
    due = (
        write
        for write in writes.writes
        if write.code not in _TAGS or (write.kind, write.head.name) in applied
    )
    return msgspec.structs.replace(writes, writes=tuple(due))


def _list_fields(rollout: str, flux: FluxObject, waits: Waits) -> Iterator[FluxTarget]:
    claims = sorted(field for field, owner in flux.rollouts.items() if owner == rollout)
    shadows = [f"{name} {flux.values[name]}" for name in _list_shadows(flux)]
    for field in () if flux.head.is_terminating else claims:
        yield FluxTarget(
            kind=flux.kind,
            name=flux.head.name,
            variable=field if flux.kind == KUSTOMIZATION else "",
            tag=join_names(shadows) if shadows else flux.values.get(field),
            waiting_for=waits.get((flux.kind, flux.head.name), ""),
        )


def _explain(flux: FluxObject, tag: str, fetched: Mapping[FluxReference | None, str]) -> str:
    """Return what one object has yet to do; `fetched` are the revisions of what carries the tag."""
    problem = _explain_unsettled(flux.head, flux.progress)
    if not problem and flux.kind == OCI_REPOSITORY:
        problem = _explain_old(flux.progress.revision, tag)
    elif not problem and flux.source in fetched:
        problem = _explain_unapplied(flux.progress.revision, fetched[flux.source])
    return f"{problem}; it is suspended" if problem and flux.progress.is_suspended else problem


def _explain_unsettled(head: WatchedHead, progress: FluxProgress) -> str:
    if progress.observed_generation != head.generation != progress.failed_generation:
        only = f", only {progress.observed_generation}" if progress.observed_generation else ""
        return f"generation {head.generation} is not observed yet{only}"
    if not progress.is_ready:
        return f"it is not ready: {progress.message}" if progress.message else "it is not ready"
    return ""


def _explain_old(revision: str, tag: str) -> str:
    if revision == tag or revision.startswith(tuple(f"{tag}{end}" for end in _AFTER_TAG)):
        return ""
    return f"it has fetched {revision or 'nothing'}, not {tag}"


def _explain_unapplied(revision: str, wanted: str) -> str:
    return "" if revision == wanted else f"it has applied {revision or 'nothing'}, not {wanted}"


class _ObjectCondition(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str
    message: str
    since: datetime | None


class ApiObject:
    def __init__(self, tree: Mapping[str, object]) -> None:
        self._tree = tree

    @property
    def kind(self) -> str:
        return self.get_text("kind")

    @property
    def group(self) -> str:
        group, slash, _ = self.get_text("apiVersion").partition("/")
        return group if slash else ""

    def get(self, *path: str) -> object:
        value: object = self._tree
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def get_text(self, *path: str) -> str:
        value = self.get(*path)
        return value if isinstance(value, str) else ""

    def find_int(self, *path: str) -> int | None:
        value = self.get(*path)
        return value if type(value) is int else None

    def count(self, name: str) -> int:
        return self.find_int("status", name) or 0

    def find_time(self, *path: str) -> datetime | None:
        return _parse_time(self.get(*path))

    def list_maps(self, *path: str) -> Sequence[Mapping[str, object]]:
        value = self.get(*path)
        items = value if isinstance(value, list | tuple) else ()
        return [item for item in items if isinstance(item, Mapping)]

    @cached_property
    def conditions(self) -> Sequence[_ObjectCondition]:
        return [
            _read_condition(ApiObject(condition))
            for condition in self.list_maps("status", "conditions")
        ]

    def find_condition(self, kind: str) -> _ObjectCondition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def has_condition(self, kind: str, status: str = "True") -> bool:
        condition = self.find_condition(kind)
        return condition is not None and condition.status == status


def _read_condition(read: ApiObject) -> _ObjectCondition:
    return _ObjectCondition(
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


_Rule = Callable[[ApiObject, datetime], StatusVerdict]


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


RULES: Final[Mapping[tuple[str, str], _Rule]] = {
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
