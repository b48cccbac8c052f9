"""What counts in the input: what rollout groups and policies of one namespace have, with its pods.

Decides which StatefulSets, pods and fields of them go into the simulated world: only what is looked
at there. Which other objects go along is decided in `objects`, who owns what in `policies`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from rollout_lab.admission.registrations import REGISTRATIONS
from rollout_lab.model.fields import child, controller_of, name_of, namespace_of, text, uid_of
from rollout_lab.nodes.pods import node_of
from rollout_lab.schemas.kinds import NODES, REPLICA_TEMPLATES, learn_scaled_kind
from rollout_lab.simulate.changes import Names
from rollout_lab.simulate.objects import (
    Surveyed,
    check_replicas,
    complete,
    explain_left_out,
    find_newest,
    is_filled_in,
    is_template_seen,
    is_under_way,
    keep,
    make_pods,
    pick,
    read_images,
    trim_head,
    trim_pod_spec,
    type_of,
)
from rollout_lab.simulate.policies import (
    PLACING,
    FoundPolicy,
    PlacedMember,
    explain_refusals,
    read_policies,
    select_sets,
)
from rollout_operator.cli.dumps import HINT, BadDump
from rollout_operator.gates.plan import find_name
from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    PODS,
    ROLLOUT_HEALTH_CHECKS,
    STATEFULSETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import (
    DISRUPTION_RECORD,
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    LEADING_ZONE,
    MIRROR_NAME,
    DecodeError,
)
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.planning.scaling import list_references
from rollout_operator.planning.wording import count, join_names, verb

_Decoded = TypeVar("_Decoded", StatefulSet, Pod)

_SET: Final = (
    *("replicas", "selector", "updateStrategy", "ordinals", "serviceName", "podManagementPolicy"),
    *("minReadySeconds", "revisionHistoryLimit"),
)
_POD: Final = ("nodeName", "terminationGracePeriodSeconds", "hostname", "subdomain")
# Of a value that cannot be used.
_SHOWN: Final = 200
_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_SETS: Final = f"{STATEFULSETS.group}/{STATEFULSETS.kind}"
_PODS: Final = f"{PODS.group}/{PODS.kind}"
_POLICIES: Final = f"{MULTI_AZ_ROLLOUTS.group}/{MULTI_AZ_ROLLOUTS.kind}"
_NODES: Final = f"{NODES.group}/{NODES.kind}"


class FoundSet(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of a rollout group."""

    obj: JsonObject
    """As it goes into the simulated world."""
    decoded: StatefulSet
    """As the operator sees it."""
    group: str | None
    """None where only a policy selects it."""
    is_seen: bool
    """Whether its controller has seen its template."""
    images: Mapping[str, Mapping[str, str]] = {}
    """By revision and container, where a pod of the revision has all else of the template."""

    @property
    def places(self) -> tuple[str, ...]:
        """Return the names of the pods that it wants."""
        first = self.decoded.first_ordinal
        ordinals = range(first, first + self.decoded.replicas)
        return tuple(f"{self.decoded.name}-{ordinal}" for ordinal in ordinals)

    @property
    def is_coupled(self) -> bool:
        """Return whether its count comes from somewhere else."""
        annotations = self.decoded.annotations
        return LEADING_ZONE in annotations or bool(annotations.get(MIRROR_NAME))


class FoundPod(msgspec.Struct, frozen=True, kw_only=True):
    obj: JsonObject
    decoded: Pod
    zone: str


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    sets: tuple[FoundSet, ...]
    pods: tuple[FoundPod, ...]
    policies: tuple[FoundPolicy, ...] = ()
    obeys: bool = False
    """Whether the operator obeys them."""
    others: tuple[JsonObject, ...] = ()
    """What decides besides, as it goes into the simulated world."""
    known: frozenset[str] = frozenset()
    """The kinds that the input tells of: of those there is no object but what is here."""
    left_out: tuple[str, ...] = ()
    """What was not looked at, a line each."""
    newest: datetime | None = None
    """The latest time that any object tells: the input was read then or later."""

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return the StatefulSets of each rollout group."""
        return self._gather({sts.decoded.name: sts.group for sts in self.sets})

    @property
    def units(self) -> dict[str, tuple[str, ...]]:
        """Return the StatefulSets of each policy that drives them, and of each group besides."""
        return self._gather(self.unit_of)

    @property
    def unit_of(self) -> dict[str, str]:
        """Return what each StatefulSet rolls out with: a group, or a policy by its title."""
        driven = {
            zone: policy.title for policy in self.policies if self.obeys for zone in policy.owned
        }
        selected = {zone: policy.title for policy in self.policies for zone in policy.selected}
        names = {sts.decoded.name: sts.group for sts in self.sets}
        return {
            name: driven[name] if name in driven else selected[name] if group is None else group
            for name, group in names.items()
        }

    def _gather(self, homes: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
        """Return the members of each, by name."""
        names = sorted({home for home in homes.values() if home is not None})
        return {
            name: tuple(member for member, home in homes.items() if home == name) for name in names
        }

    @property
    def templates(self) -> tuple[JsonObject, ...]:
        return self.others_of(REPLICA_TEMPLATES)

    def others_of(self, *resources: Resource) -> tuple[JsonObject, ...]:
        """Return what decides besides, of some kinds."""
        types = [type_of(resource) for resource in resources]
        return tuple(
            other
            for other in self.others
            if {key: other[key] for key in ("apiVersion", "kind")} in types
        )

    def list_untold_hooks(self) -> list[JsonObject]:
        """Return the operator's webhook configurations of which the input says nothing."""
        bodies = [build(self.namespace) for build in REGISTRATIONS.values()]
        return [body for body in bodies if _kind_of(body) not in self.known]

    def pods_of(self, zone: str) -> tuple[FoundPod, ...]:
        return tuple(pod for pod in self.pods if pod.zone == zone)

    def names(self) -> Names:
        """Return what a change may speak of."""
        places = (place for sts in self.sets for place in sts.places)
        return Names(
            groups=self.groups,
            policies={policy.name: policy.selected for policy in self.policies},
            gates={
                gate: tuple(sts.decoded.name for sts in self.sets if find_name(sts.decoded) == gate)
                for gate in map(name_of, self.others_of(ROLLOUT_HEALTH_CHECKS))
            },
            pods=frozenset({*(pod.decoded.name for pod in self.pods), *places}),
            templates=tuple(name_of(template) for template in self.templates),
            coupled=tuple(sts.decoded.name for sts in self.sets if sts.is_coupled),
            nodes={
                node: frozenset(pod.zone for pod in self.pods if node_of(pod.obj) == node)
                for node in sorted({node_of(pod.obj) for pod in self.pods} - {""})
            },
        )


def choose_objects(
    objects: Iterable[JsonObject],
    namespace: str,
    known: Iterable[str] = (),
    unread: Iterable[str] = (),
    obeys: bool = True,
) -> Dump:
    """Return what counts. Raises BadDump; `namespace` may be empty where there is but one.

    `known` are kinds of which the input has all there is, also where it is none; `unread` says of
    what it has not. `obeys` tells whether the operator obeys policies, where there is one.
    """
    kinds: dict[str, list[JsonObject]] = {}
    for obj in objects:
        kinds.setdefault(_name_kind(obj), []).append(obj)
    if not kinds.get(_SETS):
        found = f" among {_join_kinds(kinds)}" if kinds else ""
        raise BadDump(f"there is no StatefulSet of {STATEFULSETS.group}/v1{found}: {HINT}")
    for sts in kinds[_SETS]:
        if not name_of(sts):
            shown = msgspec.json.encode(child(sts, "metadata").get("name")).decode()[:_SHOWN]
            raise BadDump(f"a {STATEFULSETS.kind}: metadata.name: {shown} is not the name of one")
        _check_group(sts)
    policies = kinds.get(_POLICIES, [])
    driven = _choose_sets(kinds[_SETS], policies)
    chosen = _choose_namespace(driven, namespace)
    here = [sts for sts in driven if namespace_of(sts) == chosen]
    policies = [policy for policy in policies if namespace_of(policy) == chosen]
    uids = {uid_of(sts) for sts in here}
    pods = [kind for kind in kinds.get(_PODS, ()) if text(controller_of(kind), "uid") in uids]
    placing = PLACING if policies else ()
    sets = tuple(_read_set(sts, pods, placing) for sts in here)
    check_replicas(sts.obj for sts in sets)
    sets, made = _settle(sets)
    owners = {str(sts.decoded.uid): sts.decoded.name for sts in sets}
    read = tuple(_read_pod(pod, owners[text(controller_of(pod), "uid")]) for pod in (*pods, *made))
    _check(sets, read)
    surveyed = Surveyed(
        namespace=chosen,
        mirrored=frozenset(list_references(sts.decoded for sts in sets)),
    )
    rest = [item for kind, every in kinds.items() if kind not in (_SETS, _PODS) for item in every]
    kept = [other for item in rest if (other := _read_other(item, surveyed)) is not None]
    check_replicas(kept)
    numbers = Counter(_kind_of(item) for every in kinds.values() for item in every)
    numbers.subtract(_kind_of(sts) for sts in (*here, *pods, *kept))
    nodes = [obj for obj in kept if _name_kind(obj) == _NODES]
    return Dump(
        namespace=chosen,
        policies=read_policies(policies, [_place(sts, read) for sts in sets], nodes),
        obeys=obeys and bool(policies),
        sets=tuple(sorted(sets, key=lambda sts: sts.decoded.name)),
        pods=tuple(sorted(read, key=lambda pod: _natural(pod.decoded.name))),
        others=tuple(sorted(kept, key=lambda obj: (_kind_of(obj), name_of(obj)))),
        known=frozenset((*known, *(_kind_of(item) for item in rest))),
        left_out=(*unread, *_explain(numbers)),
        newest=find_newest([*here, *pods, *policies]),
    )


def _settle(sets: Sequence[FoundSet]) -> tuple[tuple[FoundSet, ...], list[JsonObject]]:
    """Return the sets with those of manifests whole, and the pods that these have then."""
    whole: list[FoundSet] = []
    pods: list[JsonObject] = []
    for sts in sets:
        if is_filled_in(sts.obj):
            obj, made = make_pods(sts.obj)
            sts = replace(sts, obj=obj, decoded=_decode(obj, decode_statefulset), is_seen=True)
            pods += made
        whole.append(sts)
    return tuple(whole), pods


def _choose_sets(
    sets: Sequence[JsonObject], policies: Sequence[JsonObject]
) -> Sequence[JsonObject]:
    """Return what has the label of a group, or is selected by a policy."""
    selected = {uid_of(sts) for sts in select_sets(policies, sets)}
    found = [sts for sts in sets if _group_of(sts) is not None or uid_of(sts) in selected]
    if found:
        return found
    named = join_names([name_of(sts) for sts in sets])
    message = f"{named}: no label {GROUP_LABEL}, so that the operator would do nothing"
    if policies:
        why = "; ".join((f"no {MULTI_AZ_ROLLOUTS.kind} selects it", *explain_refusals(policies)))
        raise BadDump(f"{named}: no label {GROUP_LABEL}, and {why}")
    raise BadDump(f"{message}; `rollout-operator adopt` prints what is missing")


def _place(sts: FoundSet, pods: Iterable[FoundPod]) -> PlacedMember:
    name = sts.decoded.name
    nodes = {node_of(pod.obj) for pod in pods if pod.zone == name} - {""}
    return PlacedMember(decoded=sts.decoded, obj=sts.obj, nodes=tuple(sorted(nodes)))


def _check(sets: Sequence[FoundSet], pods: Sequence[FoundPod]) -> None:
    """Raise BadDump where something is there twice, or the pods were forgotten."""
    for kind, names in (
        ("StatefulSet", [sts.decoded.name for sts in sets]),
        ("pod", [pod.decoded.name for pod in pods]),
    ):
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise BadDump(f"the input holds {kind} {join_names(twice)} twice")
    counted = sum(sts.decoded.status_replicas for sts in sets)
    if counted and not pods:
        zones = join_names([sts.decoded.name for sts in sets])
        raise BadDump(
            f"the status of {zones} counts {count(counted, 'pod')}, and the input has none: {HINT}"
        )


def _choose_namespace(sets: Iterable[JsonObject], namespace: str) -> str:
    there = sorted({namespace_of(sts) for sts in sets})
    if namespace and namespace not in there:
        raise BadDump(f"-namespace={namespace}: no rollout group there, but in {join_names(there)}")
    if not namespace and len(there) > 1:
        raise BadDump(
            f"there are rollout groups in {join_names(there)}: choose one with -namespace"
        )
    return namespace or there[0]


def _check_group(sts: JsonObject) -> None:
    """Raise BadDump where the label is no text: the zone would be left out, as if it had none."""
    labels = child(sts, "metadata", "labels")
    for key in (GROUP_LABEL, GROUP_LABEL_LONG):
        value = labels.get(key)
        if value is not None and not isinstance(value, str):
            shown = msgspec.json.encode(value).decode()[:_SHOWN]
            where = f"{STATEFULSETS.kind} {name_of(sts)}: metadata.labels[{key}]"
            raise BadDump(f"{where}: {shown} is no text: write it in quotes")


def _group_of(sts: JsonObject) -> str | None:
    labels = child(sts, "metadata", "labels")
    for key in (GROUP_LABEL, GROUP_LABEL_LONG):
        if isinstance(labels.get(key), str):
            return str(labels[key])
    return None


def _read_set(sts: JsonObject, pods: Sequence[JsonObject], placing: Sequence[str]) -> FoundSet:
    head = trim_head(sts)
    if finalizers := child(sts, "metadata").get("finalizers"):
        head["finalizers"] = finalizers
    spec = pick(child(sts, "spec"), _SET)
    replicas = spec.get("replicas")
    if replicas is not None and not isinstance(replicas, int):
        shown = msgspec.json.encode(replicas).decode()
        raise BadDump(f"StatefulSet {name_of(sts)}: spec.replicas: {shown} is not a whole number")
    for field, value in (
        ("spec", sts.get("spec")),
        ("spec.template", child(sts, "spec").get("template")),
        ("spec.template.spec", child(sts, "spec", "template").get("spec")),
    ):
        if not isinstance(value, dict):
            shown = msgspec.json.encode(value).decode()[:_SHOWN]
            wrong = " is missing" if value is None else f": {shown} is not a mapping"
            raise BadDump(f"{STATEFULSETS.kind} {name_of(sts)}: {field}{wrong}")
    template = child(sts, "spec", "template")
    labels = child(template, "metadata", "labels")
    spec["template"] = {"metadata": {"labels": labels}, "spec": trim_pod_spec(template, placing)}
    obj = {**type_of(STATEFULSETS), "metadata": head, "spec": spec, "status": child(sts, "status")}
    _decode(obj, decode_statefulset)
    complete(obj, STATEFULSETS)
    own = [pod for pod in pods if text(controller_of(pod), "uid") == uid_of(sts)]
    return FoundSet(
        obj=obj,
        decoded=_decode(obj, decode_statefulset),
        group=_group_of(sts),
        is_seen=is_template_seen(sts, own),
        images=read_images(sts, own),
    )


def _read_pod(pod: JsonObject, zone: str) -> FoundPod:
    head = trim_head(pod)
    head["ownerReferences"] = [pick(controller_of(pod), _OWNER)]
    spec = {**trim_pod_spec(pod), **pick(child(pod, "spec"), _POD)}
    obj = {**type_of(PODS), "metadata": head, "spec": spec, "status": child(pod, "status")}
    complete(obj, PODS)
    decoded = _decode(obj, decode_pod)
    if is_under_way(decoded):
        del child(obj, "metadata", "annotations")[DISRUPTION_RECORD]
        decoded = _decode(obj, decode_pod)
    return FoundPod(obj=obj, decoded=decoded, zone=zone)


def _read_other(obj: JsonObject, surveyed: Surveyed) -> JsonObject | None:
    chosen = keep(obj, surveyed)
    if chosen is None:
        return None
    resource, parts = chosen
    learn_scaled_kind(resource)
    kept = {**type_of(resource), "metadata": trim_head(obj, resource.is_namespaced), **parts}
    complete(kept, resource)
    return kept


def _decode(obj: JsonObject, decode: Callable[[bytes], _Decoded]) -> _Decoded:
    try:
        return decode(msgspec.json.encode(obj))
    except DecodeError as error:
        raise BadDump(str(error)) from None


def _natural(name: str) -> tuple[str, int]:
    zone, _, ordinal = name.rpartition("-")
    return zone, int(ordinal) if ordinal.isascii() and ordinal.isdigit() else 0


def _name_kind(obj: JsonObject) -> str:
    version = str(obj.get("apiVersion") or "")
    return f"{version.rpartition('/')[0]}/{obj.get('kind')}"


def _join_kinds(kinds: Mapping[str, Sequence[JsonObject]]) -> str:
    counted = {kind.rpartition("/")[2]: len(found) for kind, found in kinds.items()}
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counted.items()))


def _explain(numbers: Mapping[str, int]) -> Iterator[str]:
    """Yield how many were left out, by kind; of the objects themselves nothing is told."""
    for kind, number in sorted(numbers.items()):
        if number > 0:
            be = verb(number, "is", "are")
            yield f"{count(number, kind)} {be} left out: {explain_left_out(kind)}"


def _kind_of(obj: JsonObject) -> str:
    return str(obj.get("kind"))
