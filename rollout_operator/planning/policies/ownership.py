"""Which policy replaces the pods of which StatefulSets: never two of them, nor half of a group.

The oldest policy that can be in service keeps what it selects; a policy that selects any of that is
out of service as a whole, because its zones would not be all that it names. A rollout group belongs
to a policy as a whole or not at all: where it does not, its label goes on deciding. What a policy
is refused for by itself is decided in `model.decode.policy`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from rollout_operator.model.labels import LEFT_OUT
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.policy.policy import (
    Policy,
    PolicyHead,
    PolicyOwnership,
    PolicyRefusal,
    PolicyRefusalCode,
    PolicyScope,
    RefusedPolicy,
)
from rollout_operator.model.units import quote
from rollout_operator.planning.wording import join_names

_Set = StatefulSet | Unreadable

_FIELD: Final = "spec.statefulSetSelector"
# A message of a condition is read by a person, who knows the rest by the selector.
_SHOWN: Final = 10
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


class _Present(msgspec.Struct, frozen=True, kw_only=True):
    """StatefulSets by what policies find them by: a tenant may create hundreds of both."""

    sets: Sequence[_Set]
    """By name."""
    by_label: Mapping[tuple[str, str], Sequence[_Set]]
    uncertain: Sequence[_Set]
    """Those of which labels are left out: each may have any."""
    by_group: Mapping[GroupName, Sequence[_Set]]

    def select(self, policy: Policy) -> Sequence[_Set]:
        """Return what a policy selects or may select, by name."""
        selected = [sts for sts in self._list_candidates(policy) if _may_select(policy, sts)]
        return sorted(selected, key=_name)

    def _list_candidates(self, policy: Policy) -> Sequence[_Set]:
        """Return all that have the rarest label of a selector: whatever else it wants."""
        labels = policy.selector.labels.items()
        if not labels:
            return self.sets
        rarest = min((self.by_label.get(label, ()) for label in labels), key=len)
        return (*rarest, *self.uncertain)


def share_sets(policies: Iterable[Policy | RefusedPolicy], sets: Iterable[_Set]) -> PolicyOwnership:
    """Return which policies are in service, and what each of them owns.

    Policies and StatefulSets that are being deleted are left out. A StatefulSet that cannot be read
    counts as far as its labels can.
    """
    present = _index_sets(sts for sts in sets if not _is_terminating(sts))
    owners: dict[Uid, PolicyHead] = {}
    scopes: list[PolicyScope] = []
    refused: list[RefusedPolicy] = []
    for policy in sorted(policies, key=lambda policy: _order_by_age(policy.head)):
        if policy.head.is_terminating:
            continue
        if isinstance(policy, RefusedPolicy):
            refused.append(policy)
            continue
        own = present.select(policy)
        if refusals := tuple(_list_refusals(policy, own, present, owners)):
            refused.append(RefusedPolicy(head=policy.head, refusals=refusals))
            continue
        owners.update((sts.uid, policy.head) for sts in own)
        scopes.append(PolicyScope(policy=policy, sets=tuple(own), groups=_collect_groups(own)))
    return PolicyOwnership(scopes=tuple(scopes), refused=tuple(refused))


def _index_sets(sets: Iterable[_Set]) -> _Present:
    ordered = sorted(sets, key=_name)
    by_label: dict[tuple[str, str], list[_Set]] = {}
    by_group: dict[GroupName, list[_Set]] = {}
    uncertain: list[_Set] = []
    for sts in ordered:
        if sts.group is not None:
            by_group.setdefault(sts.group, []).append(sts)
        if LEFT_OUT in sts.labels:
            uncertain.append(sts)
            continue
        for label in sts.labels.items():
            by_label.setdefault(label, []).append(sts)
    return _Present(sets=ordered, by_label=by_label, uncertain=uncertain, by_group=by_group)


def _name(sts: _Set) -> str:
    return sts.name


def _order_by_age(head: PolicyHead) -> tuple[datetime, str, str]:
    return head.created or _LATEST, head.name, head.namespace


def _is_terminating(sts: _Set) -> bool:
    return isinstance(sts, StatefulSet) and sts.is_terminating


def _may_select(policy: Policy, sts: _Set) -> bool:
    return sts.namespace == policy.head.namespace and policy.selector.may_take(sts.labels)


def _collect_groups(sets: Iterable[_Set]) -> frozenset[GroupName]:
    return frozenset(sts.group for sts in sets if sts.group is not None)


def _list_refusals(
    policy: Policy, own: Sequence[_Set], present: _Present, owners: Mapping[Uid, PolicyHead]
) -> Iterator[PolicyRefusal]:
    yield from _refuse_conflicts(policy, own, owners)
    yield from _refuse_splits(policy, own, present)
    unknown = [sts for sts in own if not policy.selector.is_certain(sts.labels)]
    if unknown:
        text = f"{_join(unknown)}: too many labels to know whether the policy selects it"
        yield _refuse(policy, PolicyRefusalCode.SELECTION_UNKNOWN, text)


def _refuse_conflicts(
    policy: Policy, own: Sequence[_Set], owners: Mapping[Uid, PolicyHead]
) -> Iterator[PolicyRefusal]:
    """Yield a refusal for each older policy that owns some of the StatefulSets (MAZ-24)."""
    taken: dict[str, list[_Set]] = {}
    for sts in own:
        if sts.uid in owners:
            taken.setdefault(owners[sts.uid].key, []).append(sts)
    for key, shared in taken.items():
        text = f"StatefulSets of the older MultiAZRollout {key} are selected: {_join(shared)}"
        yield _refuse(policy, PolicyRefusalCode.CONFLICT, text)


def _refuse_splits(
    policy: Policy, own: Sequence[_Set], present: _Present
) -> Iterator[PolicyRefusal]:
    """Yield a refusal for each rollout group of which some members are not selected (MAZ-25)."""
    selected = {sts.uid for sts in own}
    for group in sorted(_collect_groups(own)):
        members = [sts for sts in present.by_group[group] if sts.namespace == policy.head.namespace]
        others = [member for member in members if member.uid not in selected]
        if others:
            inside = [member for member in members if member.uid in selected]
            text = (
                f"of the rollout group {quote(group)}, {_join(inside)} would be selected, and"
                f" {_join(others)} would not; the group goes on by its label"
            )
            yield _refuse(policy, PolicyRefusalCode.ROLLOUT_GROUP_SPLIT, text)


def _join(sets: Sequence[_Set]) -> str:
    return join_names([sts.name for sts in sets], shown=_SHOWN)


def _refuse(policy: Policy, code: PolicyRefusalCode, problem: str) -> PolicyRefusal:
    text = f"MultiAZRollout {policy.head.key}: {_FIELD}: {problem}"
    return PolicyRefusal(code=code, field=_FIELD, text=text)
