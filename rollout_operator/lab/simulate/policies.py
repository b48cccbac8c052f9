"""The MultiAZRollouts of the input: which are in service, what they own, and the zones of that.

Pure, and decided by the rules of the operator. A policy that was written by hand becomes one as the
API server would have it, in place of the one of its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, JsonObject
from rollout_operator.lab.model.fields import child, name_of, namespace_of, number, timestamp
from rollout_operator.lab.simulate.input import BadDump
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.status import decode_watched_policy
from rollout_operator.model.description import Phase
from rollout_operator.model.errors import DecodeError, InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.placement import PlacedSet
from rollout_operator.model.policy.policy import Policy, PolicyScope, RefusedPolicy
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.model.policy.zones import ResolvedZone
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.policies.conditions import READY, STALLED
from rollout_operator.planning.policies.ownership import share_sets
from rollout_operator.planning.policies.zones import (
    NodeLabels,
    choose_key,
    list_frozen,
    resolve_zones,
)
from rollout_operator.planning.wording import join_names

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_SELECTOR: Final = "statefulSetSelector"
# Of a template: what says in which zone its pods run.
PLACING: Final = ("nodeSelector", "affinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPolicy:
    """One policy of the input."""

    name: str
    policy: Policy | None
    """None where it is refused."""
    selected: tuple[str, ...]
    """The StatefulSets that its selector takes, whoever owns them; as far as it can be read."""
    zones: tuple[ResolvedZone, ...] = ()
    """Of what it owns, in the order of their updates; none where they cannot be told."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMember:
    """A StatefulSet of the input, and where its pods run."""

    decoded: StatefulSet
    obj: JsonObject
    nodes: tuple[str, ...]


def is_policy(obj: JsonObject) -> bool:
    """Tell whether an object is a MultiAZRollout, of whatever version."""
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    return (group, obj.get("kind")) == (MULTI_AZ_ROLLOUTS.group, MULTI_AZ_ROLLOUTS.kind)


def put_policies(
    objects: Iterable[JsonObject], given: Iterable[JsonObject], namespace: str, now: datetime
) -> list[JsonObject]:
    """Return all objects, with the policies that were given in place of those of their names.

    What no API server has written is made up: a policy without UID is a new one. Raises BadDump.
    """
    there = list(objects)
    found = {_key(one, namespace): one for one in there if is_policy(one)}
    changed = {_key(one, namespace): one for one in given}
    others = [one for one in there if not is_policy(one)]
    merged = {key: _merge(found.get(key), one) for key, one in changed.items()}
    if len(found) < sum(map(is_policy, there)):
        names = join_names(sorted({name_of(one) for one in there if is_policy(one)}))
        raise BadDump(f"of {MULTI_AZ_ROLLOUTS.kind} {names} one is in the input twice")
    return [*others, *(_make_whole(one, key, now) for key, one in (found | merged).items())]


def _key(obj: JsonObject, namespace: str) -> tuple[str, str]:
    return namespace_of(obj) or namespace, name_of(obj)


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
    selectors = [(namespace_of(one), _find_selector(one)) for one in policies]
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


def _find_selector(policy: JsonObject) -> LabelSelector | None:
    """Return a selector that can be read, whatever else is wrong with a policy."""
    spec = {_SELECTOR: child(policy, "spec").get(_SELECTOR)}
    found = _decode({**policy, "spec": spec}).policy
    return found.selector if isinstance(found, Policy) else None


def read_policies(
    policies: Sequence[JsonObject], members: Sequence[PlacedMember], nodes: Iterable[JsonObject]
) -> tuple[FoundPolicy, ...]:
    """Return the policies by name, as the operator would find them. Raises BadDump."""
    watched = {name_of(one): _decode(one) for one in policies}
    selectors = {name_of(one): _find_selector(one) for one in policies}
    owned = share_sets((one.policy for one in watched.values()), [one.decoded for one in members])
    scopes = {one.policy.head.name: one for one in owned.scopes}
    refused = {one.head.name: one for one in owned.refused}
    labels = {name_of(one): _labels_of(one) for one in nodes}
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
    for one in members:
        if selector is not None and selector.may_take(one.decoded.labels):
            yield one.decoded.name


def explain_refusals(policies: Iterable[JsonObject]) -> Iterator[str]:
    """Yield why policies are refused that are wrong in themselves."""
    for one in policies:
        found = _decode(one).policy
        yield from _list_refusals(found if isinstance(found, RefusedPolicy) else None)


def _list_refusals(refused: RefusedPolicy | None) -> tuple[str, ...]:
    if refused is None:
        return ()
    return tuple(f"{one.text} [{one.code}]" for one in refused.refusals)


def _resolve(
    scope: PolicyScope,
    watched: WatchedPolicy,
    members: Iterable[PlacedMember],
    nodes: NodeLabels,
) -> tuple[ResolvedZone, ...]:
    names = {one.name for one in scope.sets}
    placed = [_place(one) for one in members if one.decoded.name in names]
    key = choose_key(scope.policy, watched.status)
    policy = replace(scope.policy, topology_key=key)
    return resolve_zones(policy, placed, nodes, list_frozen(watched.status, key)).zones


def choose_policy_phase(watched: WatchedPolicy) -> Phase:
    """Return what a policy is doing, in the word that a rollout group would have."""
    ready, stalled = (watched.status.find_condition(kind) for kind in (READY, STALLED))
    if ready is not None and ready.status == "True":
        return Phase.ROLLED_OUT
    return Phase.HELD if stalled is not None and stalled.status == "True" else Phase.WAITING


def explain_policy(watched: WatchedPolicy) -> str:
    """Return why a policy does not go on, or that all is done."""
    ready = watched.status.find_condition(READY)
    return "nothing has been decided" if ready is None else f"{ready.message} [{ready.reason}]"


def list_policy_holds(policies: Iterable[WatchedPolicy]) -> Iterator[str]:
    """Yield what holds policies that are not done."""
    for one in policies:
        if choose_policy_phase(one) is not Phase.ROLLED_OUT:
            yield f"policy {one.name}: {explain_policy(one)}"


def read_next_batch(watched: WatchedPolicy) -> datetime:
    """Return when the pause of a policy is over, long ago where there is none."""
    try:
        return parse_rfc3339(str(watched.status.next_batch_time))
    except InvalidInput:
        return _LONG_AGO


def _place(one: PlacedMember) -> PlacedSet:
    found = decode_adoptable(msgspec.json.encode(one.obj))
    return PlacedSet(
        name=one.decoded.name,
        labels=one.decoded.labels,
        pod_labels=found.pod_labels,
        node_selector=found.node_selector,
        node_terms=found.node_terms,
        pod_nodes=one.nodes,
    )


def _decode(policy: JsonObject) -> WatchedPolicy:
    try:
        return decode_watched_policy(msgspec.json.encode(policy))
    except DecodeError as error:
        raise BadDump(str(error)) from None
