"""Finds the namespaces of a whole cluster that the operator has to watch.

Decides what makes a namespace one of those: a StatefulSet of a rollout group, a budget, a policy
or, where releases are switched on, a Rollout. The first three are followed here for all namespaces,
each of which has a share in them: `kube.cache.cluster`. Where StatefulSets of the cluster may not
be listed, nothing is found, and the operator watches its own namespace.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, STATEFULSETS, ZONE_BUDGETS, Resource
from rollout_operator.kube.cache.cluster import ClusterKind, ClusterKinds
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.optional import OptionalInformer
from rollout_operator.kube.cache.store import Cached, Store
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.release_kinds import ROLLOUTS
from rollout_operator.model.decode.budget import decode_budget
from rollout_operator.model.decode.objects import decode_statefulset, place_decoder
from rollout_operator.model.decode.status import decode_watched_policy
from rollout_operator.model.objects import AnyWatched, StatefulSet, Unreadable
from rollout_operator.operator.process import Process
from rollout_operator.telemetry.logs import log

# A kind that is not listed by then has no share for the namespaces that begin now.
LISTED_WITHIN: Final = timedelta(seconds=5)


class _Located(Protocol):
    @property
    def namespace(self) -> str: ...


class Discovery:
    """Follows the objects of all namespaces by which a namespace has to be watched."""

    def __init__(self, process: Process, found: Callable[[str], None]) -> None:
        """`found` is called with a namespace for each of its objects, any number of times."""
        self._process = process
        self._found = found
        self._client = process.open("following the cluster", Priority.LIST)
        self._kinds = kinds = ClusterKinds(
            sets=self._follow(STATEFULSETS, decode_statefulset),
            budgets=self._follow(ZONE_BUDGETS, decode_budget),
            policies=self._follow(MULTI_AZ_ROLLOUTS, decode_watched_policy),
        )
        kinds.sets.informer.on_change(self._on_set)
        kinds.budgets.informer.on_change(self._on_object)
        kinds.policies.informer.on_change(self._on_object)
        self._rollouts = self._follow_rollouts() if process.settings.drives_releases else None
        self._early: dict[str, None] = {}
        """Namespaces that were found before all kinds were listed."""
        self._answered = asyncio.Event()

    @property
    def is_forbidden(self) -> bool:
        """Return whether the objects of the cluster may not be listed."""
        return self._kinds.sets.follow.is_forbidden

    async def wait_answered(self) -> None:
        """Wait until the namespaces with rollout groups are found, or may not be."""
        await self._answered.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        kinds, clock = self._kinds, self._process.clock
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kinds.sets.follow.run(clock), name="StatefulSets of the cluster")
            await self._wait_permitted()
            # An account that may not list StatefulSets need not try the others: a warning is
            # enough.
            for kind in (kinds.budgets, kinds.policies):
                tasks.create_task(kind.follow.run(clock), name="budgets and policies")
            if self._rollouts is not None:
                tasks.create_task(self._rollouts.run(clock), name="Rollouts of the cluster")
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTED_WITHIN.total_seconds()):
                    await kinds.budgets.follow.wait_answered()
                    await kinds.policies.follow.wait_answered()
            self._process.cluster = kinds
            for namespace in self._early:
                self._found(namespace)
            self._answered.set()

    async def _wait_permitted(self) -> None:
        """Wait until the StatefulSets of the cluster are known."""
        sets = self._kinds.sets
        await sets.follow.wait_answered()
        if self.is_forbidden:
            log.info("Looking after its own namespace alone", namespace=self._process.namespace)
            self._answered.set()
        await sets.informer.wait_synced()

    def _follow(
        self, resource: Resource, decode: Callable[[bytes | msgspec.Raw], Cached]
    ) -> ClusterKind[Cached]:
        of_all = replace(resource, is_namespaced=False)
        return ClusterKind(
            lambda store: self._make_informer(of_all, decode, store), self._client, of_all
        )

    def _follow_rollouts(self) -> OptionalInformer[AnyWatched]:
        of_all = replace(ROLLOUTS, is_namespaced=False)
        store: Store[AnyWatched] = Store()
        informer = self._make_informer(of_all, place_decoder(ROLLOUTS.kind), store)
        informer.on_change(self._on_object)
        return OptionalInformer(informer, self._client, of_all, "")

    def _make_informer(
        self,
        resource: Resource,
        decode: Callable[[bytes | msgspec.Raw], Cached],
        store: Store[Cached],
    ) -> Informer[Cached]:
        process = self._process
        of = Collection(
            resource=resource, namespace="", decode=decode, store=store, slots=process.pages
        )
        return Informer(self._client, of, process.metrics, process.clock, process.rng)

    def _on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        if new is not None and new.group is not None:
            self._on_object(old, new)

    def _on_object(self, old: _Located | None, new: _Located | None) -> None:
        if new is None or not new.namespace:
            return
        if self._process.cluster is None:
            self._early[new.namespace] = None
        else:
            self._found(new.namespace)
