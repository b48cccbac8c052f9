"""The MultiAZRollouts of the input: which are in service, what they own, and the zones of that.

Pure, and decided by the rules of the operator. A policy that was written by hand becomes one as the
API server would have it, in place of the policy of its name.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.model.fields import child, name_of, namespace_of, number, timestamp
from rollout_lab.model.request import ApiRequest, patch
from rollout_lab.simulate.copies import ObjectsCopy
from rollout_operator.cli.dumps import HINT, BadDump, is_of
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, STATEFULSETS, JsonObject
from rollout_operator.model.budget import PlacedSet
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.custom import SPEC_FIELDS, UPDATE_FIELDS, decode_watched_policy
from rollout_operator.model.description import Phase, PolicyDescription
from rollout_operator.model.names import DecodeError, InvalidInput
from rollout_operator.model.objects import LabelSelector, StatefulSet
from rollout_operator.model.policy import (
    Policy,
    PolicyPhase,
    PolicyScope,
    RefusedPolicy,
    ResolvedZone,
    WatchedPolicy,
)
from rollout_operator.model.units import parse_go_int, parse_rfc3339, quote
from rollout_operator.planning.conditions import READY, STALLED
from rollout_operator.planning.describe_policies import is_held
from rollout_operator.planning.policy_zones import (
    NodeLabels,
    choose_key,
    map_frozen,
    resolve_zones,
    share_sets,
)
from rollout_operator.planning.wording import join_names

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_SELECTOR: Final = "statefulSetSelector"
# Of a template: what says in which zone its pods run.
PLACING: Final = ("nodeSelector", "affinity")


class PolicyEdit(msgspec.Struct, frozen=True):
    """A field of the spec of a policy is set, as by `kubectl edit`."""

    policy: str
    field: str
    value: object


class FoundPolicy(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    policy: Policy | None
    """None where it is refused."""
    selected: tuple[str, ...]
    """The StatefulSets that its selector takes, whoever owns them; as far as it can be read."""
    zones: tuple[ResolvedZone, ...] = ()
    """Of what it owns, in the order of their updates; none where they cannot be known."""
    refusals: tuple[str, ...] = ()
    """Why it is not in service, as its status says."""

    @property
    def owned(self) -> tuple[str, ...]:
        """Return the StatefulSets that nothing but it replaces pods of."""
        return () if self.policy is None else self.selected

    @property
    def title(self) -> str:
        """Return what stands for it beside the names of rollout groups."""
        return f"policy {self.name}"


class PlacedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet of the input, and where its pods run."""

    decoded: StatefulSet
    obj: JsonObject
    nodes: tuple[str, ...]


def edit_policy(policy: str, field: str, value: str) -> PolicyEdit:
    """Return the change of a field, which may be named without what it stands in.

    Raises InvalidInput where a spec has no such field.
    """
    name = field.rpartition(".")[2]
    if name not in _FIELDS:
        known = join_names(_FIELDS, shown=len(_FIELDS))
        raise InvalidInput(f"no field {quote(field)} of a policy; there are {known}")
    return PolicyEdit(policy, name, _READERS.get(name, _read_value)(value.strip()))


def _read_number(text: str) -> object:
    """Return a number, and as it stands what is none: whether that will do the operator says."""
    try:
        return parse_go_int(text)
    except InvalidInput:
        return text


def _read_list(text: str) -> object:
    return [] if text == "[]" else re.split(r"[\s,]+", text)


def _read_value(text: str) -> object:
    return {"true": True, "false": False}.get(text, _read_number(text))


_FIELDS: Final = (*UPDATE_FIELDS, *SPEC_FIELDS)
# Texts, whatever they look like, and lists; all else is a number or a switch.
_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "podOrder": str,
    "azTopologyKey": str,
    "azOrder": _read_list,
}


def render_edit(edit: PolicyEdit) -> ApiRequest:
    fields: JsonObject = {edit.field: edit.value}
    spec: JsonObject = {"rollingUpdate": fields} if edit.field in UPDATE_FIELDS else fields
    return patch(MULTI_AZ_ROLLOUTS, edit.policy, {"spec": spec})


def is_policy(obj: JsonObject) -> bool:
    """Return whether an object is a MultiAZRollout, of whatever version."""
    return is_of(obj, MULTI_AZ_ROLLOUTS)


def put_policies(
    copy: ObjectsCopy, given: Iterable[JsonObject], namespace: str
) -> Sequence[JsonObject]:
    """Return all objects, with the policies that were given in place of those of their names.

    What no API server has written is made up: a policy without UID is a new policy. Policies that
    name none are in `namespace`; empty: where all StatefulSets are. Raises BadDump.
    """
    there = [obj for obj in copy.objects if is_policy(obj)]
    if not there and not given:
        return copy.objects
    _check_sets(copy.objects)
    default = namespace or _choose_namespace(copy.objects)
    found = _index(there, default)
    merged = {key: _merge(found.get(key), item) for key, item in _index(given, default).items()}
    others = [obj for obj in copy.objects if not is_policy(obj)]
    every = (found | merged).items()
    return [*others, *(_make_whole(item, key, copy.read_at) for key, item in every)]


def _check_sets(objects: Iterable[JsonObject]) -> None:
    """Raise BadDump for a manifest: without a namespace its StatefulSets are selected by none."""
    for sts in objects:
        if sts.get("kind") == STATEFULSETS.kind and not namespace_of(sts):
            why = "metadata.namespace is missing, so that no API server has it"
            raise BadDump(f"{STATEFULSETS.kind} {name_of(sts)}: {why}: {HINT}")


def _choose_namespace(objects: Iterable[JsonObject]) -> str:
    found = {namespace_of(obj) for obj in objects if obj.get("kind") == STATEFULSETS.kind}
    return found.pop() if len(found) == 1 else ""


def _index(policies: Iterable[JsonObject], namespace: str) -> dict[tuple[str, str], JsonObject]:
    """Return policies by namespace and name. Raises BadDump where a policy is there twice."""
    objects: dict[tuple[str, str], JsonObject] = {}
    for policy in policies:
        key = (namespace_of(policy) or namespace, name_of(policy))
        if not key[0]:
            where = "metadata.namespace is missing; choose one with -namespace"
            raise BadDump(f"{MULTI_AZ_ROLLOUTS.kind} {key[1]}: {where}")
        if key in objects:
            raise BadDump(f"the input holds {MULTI_AZ_ROLLOUTS.kind} {key[1]} twice")
        objects[key] = policy
    return objects


def _merge(before: JsonObject | None, after: JsonObject) -> JsonObject:
    """Return an object with another spec, as `kubectl apply` leaves it."""
    if before is None:
        return after
    head = child(before, "metadata")
    generation = number(head, "generation") + (before.get("spec") != after.get("spec"))
    return {**before, "spec": after.get("spec"), "metadata": {**head, "generation": generation}}


def _make_whole(obj: JsonObject, key: tuple[str, str], now: datetime) -> JsonObject:
    namespace, name = key
    made: JsonObject = {
        "uid": f"new-{name}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": timestamp(now),
    }
    return {**obj, "metadata": {**made, **child(obj, "metadata"), "namespace": namespace}}


def select_sets(policies: Iterable[JsonObject], sets: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the StatefulSets that a policy of their namespace selects."""
    selectors = [(namespace_of(policy), _find_selector(policy)) for policy in policies]
    return [
        sts
        for sts in sets
        if any(
            selector is not None and namespace == namespace_of(sts) and selector.takes(labels)
            for namespace, selector in selectors
            for labels in [_labels_of(sts)]
        )
    ]


def _labels_of(sts: JsonObject) -> Mapping[str, str]:
    labels = child(sts, "metadata", "labels")
    return {key: str(value) for key, value in labels.items()}


def find_policy(obj: JsonObject) -> Policy | None:
    """Return what a policy wants, None where it is refused. Raises BadDump."""
    found = _decode(obj).policy
    return found if isinstance(found, Policy) else None


def _find_selector(policy: JsonObject) -> LabelSelector | None:
    """Return a selector that can be read, whatever else is wrong with a policy."""
    spec: JsonObject = {_SELECTOR: child(policy, "spec").get(_SELECTOR)}
    found = find_policy({**policy, "spec": spec})
    return None if found is None else found.selector


def read_policies(
    policies: Sequence[JsonObject], members: Sequence[PlacedMember], nodes: Iterable[JsonObject]
) -> tuple[FoundPolicy, ...]:
    """Return the policies by name, as the operator would find them. Raises BadDump."""
    watched = {name_of(policy): _decode(policy) for policy in policies}
    selectors = {name_of(policy): _find_selector(policy) for policy in policies}
    owned = share_sets(
        (policy.policy for policy in watched.values()), [member.decoded for member in members]
    )
    scopes = {scope.policy.head.name: scope for scope in owned.scopes}
    refused = {refusal.head.name: refusal for refusal in owned.refused}
    labels = {name_of(node): _labels_of(node) for node in nodes}
    return tuple(
        FoundPolicy(
            name=name,
            policy=scopes[name].policy if name in scopes else None,
            selected=tuple(_list_selected(selectors[name], members)),
            zones=_resolve(scopes[name], watched[name], members, labels) if name in scopes else (),
            refusals=_list_refusals(refused.get(name)),
        )
        for name in sorted(watched)
    )


def _list_selected(
    selector: LabelSelector | None, members: Iterable[PlacedMember]
) -> Iterator[str]:
    for member in members:
        if selector is not None and selector.may_take(member.decoded.labels):
            yield member.decoded.name


def explain_refusals(policies: Iterable[JsonObject]) -> Iterator[str]:
    """Yield why policies are refused that are wrong in themselves."""
    for policy in policies:
        found = _decode(policy).policy
        yield from _list_refusals(found if isinstance(found, RefusedPolicy) else None)


def _list_refusals(refused: RefusedPolicy | None) -> tuple[str, ...]:
    if refused is None:
        return ()
    return tuple(f"{refusal.text} [{refusal.code}]" for refusal in refused.refusals)


def _resolve(
    scope: PolicyScope,
    watched: WatchedPolicy,
    members: Iterable[PlacedMember],
    nodes: NodeLabels,
) -> tuple[ResolvedZone, ...]:
    names = {sts.name for sts in scope.sets}
    placed = [_place(member) for member in members if member.decoded.name in names]
    key = choose_key(scope.policy, watched.status)
    policy = replace(scope.policy, topology_key=key)
    return resolve_zones(policy, placed, nodes, map_frozen(watched.status, key)).zones


def choose_policy_phase(described: PolicyDescription) -> Phase:
    """Return what a policy is doing, in the word that a rollout group would have."""
    true = {condition.type for condition in described.conditions if condition.is_true}
    if READY in true:
        return Phase.ROLLED_OUT
    if STALLED in true or is_held(described):
        return Phase.HELD
    is_moving = described.phase == PolicyPhase.PROGRESSING
    return Phase.ROLLING_OUT if is_moving else Phase.WAITING


def read_next_batch(watched: WatchedPolicy) -> datetime:
    """Return when the pause of a policy is over, long ago where there is none."""
    try:
        return parse_rfc3339(str(watched.status.next_batch_time))
    except InvalidInput:
        return _LONG_AGO


def _place(placed_member: PlacedMember) -> PlacedSet:
    adoptable = decode_adoptable(msgspec.json.encode(placed_member.obj))
    return PlacedSet(
        name=placed_member.decoded.name,
        labels=placed_member.decoded.labels,
        pod_labels=adoptable.pod_labels,
        node_selector=adoptable.node_selector,
        node_terms=adoptable.node_terms,
        pod_nodes=placed_member.nodes,
    )


def _decode(policy: JsonObject) -> WatchedPolicy:
    try:
        return decode_watched_policy(msgspec.json.encode(policy))
    except DecodeError as error:
        raise BadDump(str(error)) from None
