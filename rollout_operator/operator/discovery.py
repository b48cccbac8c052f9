"""Finds the namespaces of a whole cluster in which there is something to look after.

Decides what makes a namespace one of those: a StatefulSet of a rollout group, a budget, a policy
or, where releases are asked for, a Rollout. Of these objects only the place is kept. Where
StatefulSets of the cluster may not be listed, nothing is found, and the operator looks after its
own namespace.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    STATEFULSETS,
    ZONE_BUDGETS,
    ApiClient,
    Resource,
)
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.optional import ASK_AGAIN, OptionalInformer
from rollout_operator.kube.cache.store import Store
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.release_kinds import ROLLOUTS
from rollout_operator.model.decode.objects import place_decoder
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG
from rollout_operator.model.objects import Placed, Unreadable
from rollout_operator.operator.process import Process
from rollout_operator.telemetry.logs import log

AnyPlaced = Placed | Unreadable


class Discovery:
    """Follows the objects of all namespaces that make a namespace one to look after."""

    def __init__(self, process: Process, found: Callable[[str], None]) -> None:
        """`found` is called with a namespace for each of its objects, any number of times."""
        self._process = process
        self._found = found
        client = process.open("following the cluster", Priority.LIST)
        self._sets = self._follow(client, STATEFULSETS, GROUP_LABEL)
        self._others = [
            self._follow(client, STATEFULSETS, GROUP_LABEL_LONG),
            *(self._follow(client, one) for one in (ZONE_BUDGETS, MULTI_AZ_ROLLOUTS)),
        ]
        if process.settings.drives_releases:
            self._others.append(self._follow(client, ROLLOUTS))

    @property
    def is_forbidden(self) -> bool:
        """Return whether the objects of the cluster may not be listed."""
        return self._sets.is_forbidden

    async def wait_answered(self) -> None:
        """Wait until all namespaces with rollout groups are found, or that none may be."""
        await self._sets.wait_answered()

    async def run(self) -> None:
        """Follow until cancelled."""
        clock = self._process.clock
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sets.run(clock), name="rollout groups of the cluster")
            await self._sets.wait_answered()
            if self.is_forbidden:
                log.info("Looking after its own namespace alone", namespace=self._process.namespace)
            # Whoever may not list the one is not asked for the others: a warning is enough.
            while self.is_forbidden:
                await clock.sleep(ASK_AGAIN)
            for kind in self._others:
                tasks.create_task(kind.run(clock), name="budgets and policies of the cluster")

    def _follow(
        self, client: ApiClient, resource: Resource, selector: str = ""
    ) -> OptionalInformer[AnyPlaced]:
        of_all = replace(resource, is_namespaced=False)
        store: Store[AnyPlaced] = Store()
        collection: Collection[AnyPlaced] = Collection(
            resource=of_all,
            namespace="",
            decode=place_decoder(resource.kind),
            store=store,
            selector=selector,
        )
        process = self._process
        informer: Informer[AnyPlaced] = Informer(
            client, collection, process.metrics, process.clock, process.rng
        )
        informer.on_change(self._on_change)
        return OptionalInformer(informer, client, of_all, "")

    def _on_change(self, old: AnyPlaced | None, new: AnyPlaced | None) -> None:
        if new is not None and new.namespace:
            self._found(new.namespace)
