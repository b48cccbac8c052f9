"""Groups by label and by policy in several namespaces of a real control plane.

Every second group is under a MultiAZRollout without a pause; of its zones only nodes tell. Most
groups are idle, the others are moved by the benchmark.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.zones import ZoneSpec

from benchmarks.rollout import PODS
from benchmarks.timeline import Json
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import TOPOLOGY_KEYS
from tests.world.api import STATEFULSETS, Api, Resource
from tests.world.budgets import install_kinds
from tests.world.kubelet import Behaviour
from tests.world.plane import ControlPlane
from tests.world.sets import create_zones
from tests.world.world import World, beside, granting, permit_following

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
NODES: Final = Resource("v1", "nodes", is_namespaced=False)
APP: Final = "app"
IDLE: Final = "idle"
AT_ONCE: Final = Behaviour(ready_after=timedelta(0), terminates_after=timedelta(0))
# 5,000 pods take about a minute.
LIMIT: Final = timedelta(minutes=5)
POLL: Final = timedelta(milliseconds=200)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large a setting is, over all its namespaces."""

    namespaces: int = 1
    idle_groups: int = 0
    idle_pods: int = 50
    """Of a zone of a group."""
    moving_groups: int = 6
    """In turn by label and by policy: three namespaces have one of both."""
    moving_pods: int = 4
    idle_s: float = 20.0

    @property
    def pods(self) -> int:
        """Return how many pods there are."""
        return 3 * (self.idle_groups * self.idle_pods + self.moving_groups * self.moving_pods)


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A group of three zones in one of the namespaces."""

    world: World
    name: str
    has_policy: bool
    pods: int

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing of it changes."""
        return self.name.startswith(IDLE)

    @property
    def zones(self) -> tuple[ZoneSpec, ...]:
        """Return its StatefulSets."""
        return tuple(
            ZoneSpec(
                name=f"{self.name}-{letter}",
                group=None if self.has_policy else self.name,
                replicas=self.pods,
                labels={APP: self.name},
                node=f"node-{letter}",
            )
            for letter in "abc"
        )

    @property
    def names(self) -> list[str]:
        """Return the names of its StatefulSets."""
        return [zone.name for zone in self.zones]


@asynccontextmanager
async def open_worlds(plane: ControlPlane, size: Size) -> AsyncIterator[Sequence[World]]:
    """Yield namespaces, all of which the operator of the first one may look after."""
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(World(plane, plane.folder, _choose))
        await install_kinds(home.api)
        await home.grant("multi-az-rollouts")
        await stack.enter_async_context(granting(home, permit_following("", "nodes")))
        await _create_nodes(home.api)
        others = [await stack.enter_async_context(beside(home)) for _ in range(1, size.namespaces)]
        worlds = [home, *others]
        for world in worlds:
            world.judge.elsewhere = {one.namespace for one in worlds} - {world.namespace}
        yield worlds


async def create_groups(worlds: Sequence[World], size: Size) -> Sequence[Placed]:
    """Create all groups, wait until their pods are ready, and create their policies."""
    idle = [(IDLE, size.idle_pods)] * size.idle_groups
    moving = [("moving", size.moving_pods)] * size.moving_groups
    groups = [
        Placed(
            world=worlds[number // 2 % len(worlds)],
            name=f"{kind}-{number}",
            has_policy=number % 2 == 1,
            pods=pods,
        )
        for number, (kind, pods) in enumerate([*moving, *idle])
    ]
    for one in groups:
        await create_zones(one.world.api, one.world.namespace, one.zones)
    await asyncio.gather(*(_wait_ready(world) for world in worlds))
    for one in groups:
        if one.has_policy:
            await one.world.post(POLICIES, _make_policy(one.name))
    return groups


async def wait_decided(worlds: Sequence[World]) -> None:
    """Wait until the status of each policy says that nothing is to be done."""
    async with asyncio.timeout(LIMIT.total_seconds()):
        for world in worlds:
            while not all(map(_is_decided, await world.api.items(POLICIES, world.namespace))):  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(POLL.total_seconds())


async def _wait_ready(world: World) -> None:
    async with asyncio.timeout(LIMIT.total_seconds()):
        while not all(map(_is_ready, await world.api.items(STATEFULSETS, world.namespace))):  # noqa: ASYNC110 (an answer, no event)
            await asyncio.sleep(POLL.total_seconds())


async def _create_nodes(api: Api) -> None:
    for letter in "abc":
        labels = {TOPOLOGY_KEYS[0]: f"zone-{letter}"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{letter}", "labels": labels},
        }
        await api.create(NODES, "", body)


def _make_policy(name: str) -> Json:
    return {
        "apiVersion": POLICIES.api_version,
        "kind": MULTI_AZ_ROLLOUTS.kind,
        "metadata": {"name": name},
        "spec": {
            "statefulSetSelector": {"matchLabels": {APP: name}},
            "rollingUpdate": {"intervalSeconds": 0},
        },
    }


def _choose(pod: Json) -> Behaviour:
    return AT_ONCE if pod["metadata"]["name"].startswith(IDLE) else PODS


def _is_ready(sts: Json) -> bool:
    return bool(sts.get("status", {}).get("readyReplicas", 0) == sts["spec"]["replicas"])


def _is_decided(policy: Json) -> bool:
    conditions = policy.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
