"""A simulated cluster that is read from outside, with or without an operator in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
from rollout_lab.model.history import Called
from rollout_lab.model.request import ApiRequest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.network.faults import NoFaults
from rollout_lab.network.link import Link
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import SERVICES, STATEFULSETS, JsonObject, Page, Resource
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.kube.scales import SCALE
from rollout_operator.model.names import ApiError, NotFound
from rollout_operator.operator.inspect import Inspection, Inspector
from tests.virtual_time import VirtualClock

PERSON = "person"


class ObservedCluster(msgspec.Struct, frozen=True):
    """A person with a kubeconfig, beside a simulated cluster."""

    sandbox: Sandbox
    client: SimulatedClient

    async def inspect(self) -> Inspection:
        """Inspect as `status` does, without an operator to call."""
        return await self.inspector().inspect()

    def inspector(self) -> Inspector:
        namespace = self.sandbox.namespace
        clock = self.sandbox.clock()
        return Inspector(self.client, namespace, clock, service="", lease="rollout-operator")

    async def create(self, resource: Resource, body: JsonObject) -> None:
        namespace = self.sandbox.namespace
        await self.sandbox.call(
            ApiRequest(verb="create", resource=resource, namespace=namespace, body=body)
        )

    def collect_verbs(self) -> set[str]:
        """Return what was sent to the API server by this person."""
        calls = self.sandbox.history.list_all(Called)
        return {one.request.verb for one in calls if one.actor == PERSON}


def observe_sandbox(sandbox: Sandbox) -> ObservedCluster:
    link = Link(PERSON, faults=NoFaults(), rng=sandbox.rng(PERSON))
    client = SimulatedClient(sandbox.api, link, name="observing", limits=RateLimiter(0, 0))
    return ObservedCluster(sandbox, client)


@asynccontextmanager
async def observed_cluster(*zones: ZoneSpec) -> AsyncIterator[ObservedCluster]:
    """Run a simulated cluster with these zones, which have had time to become ready."""
    async with Sandbox() as sandbox:
        cluster = observe_sandbox(sandbox)
        for zone in zones:
            await cluster.create(STATEFULSETS, statefulset(zone, sandbox.namespace))
        await VirtualClock().sleep(timedelta(minutes=1))
        yield cluster


class Partial:
    """The client of an onlooker, where some reads fail or are answered by a test."""

    def __init__(self, world: ObservedCluster, **answers: bytes | ApiError) -> None:
        self._world = world
        self.answers = answers
        self.asked: list[str] = []
        self.services: list[JsonObject] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.client, name)

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *rest: object, **how: object
    ) -> bytes:
        if SCALE in rest:
            return await self._world.client.fetch(resource, namespace, name, SCALE)
        self.asked += [name] if resource is SERVICES else []
        answer = self.answers.get(resource.plural, NotFound(f"no {name}"))
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def fetch_page(self, resource: Resource, namespace: str, **query: Any) -> Page:
        answer = self.answers.get(resource.plural)
        if isinstance(answer, ApiError):
            raise answer
        if resource is SERVICES:
            items = [msgspec.Raw(msgspec.json.encode(made)) for made in self.services]
            return Page(items=items, resource_version="1")
        return await self._world.client.fetch_page(resource, namespace, **query)
