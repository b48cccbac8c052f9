"""Kinds that are followed in the whole cluster, once for all its namespaces.

Decides which namespace has a share in a kind: any that requests it once the objects are known.
Until then, and where the kind may not be listed in the cluster, each namespace follows its own
objects.
"""

from collections.abc import Callable
from typing import Generic

import msgspec

from rollout_operator.kube.api import Reader, Resource
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.optional import OptionalInformer
from rollout_operator.kube.cache.shares import NamespaceShare, NamespaceStores
from rollout_operator.kube.cache.store import AnyBudget, Cached, Store
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.telemetry.metrics import Metrics


class ClusterKind(Generic[Cached]):
    """The objects of a kind in all namespaces, as far as they may be listed."""

    def __init__(
        self,
        make_informer: Callable[[Store[Cached]], Informer[Cached]],
        client: Reader,
        resource: Resource,
    ) -> None:
        """`make_informer` returns what fills a store with the objects of all namespaces."""
        self._stores: NamespaceStores[Cached] = NamespaceStores()
        self.informer: Informer[Cached] = make_informer(self._stores)
        self.follow: OptionalInformer[Cached] = OptionalInformer(
            self.informer, client, resource, ""
        )
        self._shares: dict[str, NamespaceShare[Cached]] = {}
        self.informer.on_change(self._report)

    def find_share(self, of: Collection[Cached], metrics: Metrics) -> NamespaceShare[Cached] | None:
        """Return the share of a namespace, None where it has to follow its objects by itself."""
        if self.follow.lack is not None:
            return None
        share = self._shares[of.namespace] = NamespaceShare(
            self.informer, self._stores, of, metrics
        )
        return share

    def _report(self, old: Cached | None, new: Cached | None) -> None:
        last = old if new is None else new
        share = None if last is None else self._shares.get(last.namespace)
        if share is not None:
            share.take(old, new)


class ClusterKinds(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds by which namespaces are discovered: they are followed in the whole cluster anyway."""

    sets: ClusterKind[StatefulSet | Unreadable]
    budgets: ClusterKind[AnyBudget]
    policies: ClusterKind[WatchedPolicy | Unreadable]
