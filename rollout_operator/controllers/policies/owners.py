"""Which MultiAZRollout owns which StatefulSets of a namespace, and which groups are not a label's.

Decided in `planning.policies.ownership`, anew once a policy, or what it may select, has changed.
"""

from collections.abc import Callable, Iterator, Mapping

from rollout_operator.kube.cache.store import PolicyStore, StatefulSetStore
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.policy.policy import (
    Policy,
    PolicyOwnership,
    PolicyScope,
    RefusedPolicy,
)
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.planning.policies.ownership import share_sets

_AnyPolicy = WatchedPolicy | Unreadable
_AnySet = StatefulSet | Unreadable


class Owners:
    """What the policies of one namespace own, as the caches show them."""

    def __init__(self, policies: PolicyStore, sets: StatefulSetStore) -> None:
        self._policies = policies
        self._sets = sets
        self._ownership: PolicyOwnership | None = None
        self._by_name: dict[str, PolicyScope | RefusedPolicy] = {}
        self._drivers: Mapping[GroupName, str] = {}
        self._names: Mapping[Uid, str] = {}
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when another policy may own something from now on."""
        self._on_change.append(callback)

    def find(self, name: str) -> PolicyScope | RefusedPolicy | None:
        """Return what a policy owns, or why it is out of service; None where it is gone."""
        self._share()
        return self._by_name.get(name)

    def find_driver(self, group: GroupName) -> str | None:
        """Return the policy, by namespace and name, that replaces the pods of a group."""
        self._share()
        return self._drivers.get(group)

    def find_name(self, set_uid: Uid) -> str | None:
        """Return the name of the policy that owns a StatefulSet."""
        self._share()
        return self._names.get(set_uid)

    def list_scopes(self) -> Iterator[PolicyScope]:
        """Yield all policies that are in service, the oldest first."""
        yield from self._share().scopes

    def on_policy(self, old: _AnyPolicy | None, new: _AnyPolicy | None) -> None:
        """A policy came, changed or went; what its status says owns nothing."""
        if _get_policy(old) != _get_policy(new):
            self._begin_anew()

    def on_set(self, old: _AnySet | None, new: _AnySet | None) -> None:
        """A StatefulSet came, changed or went."""
        if old is None or new is None or _selected_by(old) != _selected_by(new):
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._ownership = None
        for callback in self._on_change:
            callback()

    def _share(self) -> PolicyOwnership:
        if self._ownership is not None:
            return self._ownership
        policies = [one for one in map(_get_policy, self._policies.list_all()) if one is not None]
        # Without a policy there is nothing to look for among thousands of StatefulSets.
        ownership = share_sets(policies, self._sets.list_all() if policies else ())
        self._ownership = ownership
        scopes, refused = ownership.scopes, ownership.refused
        self._by_name = {scope.policy.head.name: scope for scope in scopes}
        self._by_name.update((refusal.head.name, refusal) for refusal in refused)
        self._drivers = {group: scope.policy.head.key for scope in scopes for group in scope.groups}
        self._names = {sts.uid: scope.policy.head.name for scope in scopes for sts in scope.sets}
        return ownership


def _get_policy(any_policy: _AnyPolicy | None) -> Policy | RefusedPolicy | None:
    return any_policy.policy if isinstance(any_policy, WatchedPolicy) else None


def _selected_by(sts: _AnySet) -> tuple[object, ...]:
    is_terminating = isinstance(sts, StatefulSet) and sts.is_terminating
    return (type(sts), sts.uid, sts.labels, is_terminating)
