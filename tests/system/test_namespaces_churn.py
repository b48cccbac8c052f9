"""Two namespaces of one operator at work while much else changes in both (MAZ-60, MAZ-65)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Final

import msgspec
import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.waits import read_metric, wait_true
from tests.system.watching import (
    CLUSTER_RULES,
    POLICIES,
    collect_watches,
    launch,
    list_requests,
    list_strays,
    make_policy,
)
from tests.world.api import PODS
from tests.world.budgets import install_kinds
from tests.world.kubelet import Behaviour, Kind, by_image
from tests.world.operatorproc import OperatorProcess
from tests.world.several import beside, granting
from tests.world.world import World

pytestmark = pytest.mark.controlplane

DELETED: Final = "rollout_operator_pods_deleted_total"
DELETED_BY_POLICY: Final = "rollout_operator_multiaz_pods_deleted_total"
BROKEN: Final = "broken"
# Of each of three writers in each namespace: thirty changes a second, where the machine has time.
PAUSE: Final = timedelta(milliseconds=200)
BYSTANDERS: Final = ZoneSpec(name="bystander", group=None, replicas=2)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One operator that looks after two namespaces."""

    operator: OperatorProcess
    home: World
    other: World

    @property
    def worlds(self) -> tuple[World, World]:
        """Return both."""
        return self.home, self.other

    @property
    def names(self) -> set[str]:
        """Return the names of both."""
        return {world.namespace for world in self.worlds}


@pytest.mark.parametrize(
    "watches_all",
    [
        pytest.param(False, id="a list", marks=pytest.mark.prove),
        pytest.param(True, id="all namespaces"),
    ],
)
async def test_maz60_two_namespaces_go_on_beside_each_other_and_much_else(
    world: World, watches_all: bool
) -> None:
    """A group here, a policy there; a group of one name in both, which is stuck in one of them."""
    await install_kinds(world.api)
    await world.grant("multi-az-rollouts")
    world.kubelet.choose = by_image({BROKEN: Behaviour(kind=Kind.NEVER_READY)})
    begun = world.plane.audit_size()
    async with beside(world) as other:
        rules = CLUSTER_RULES if watches_all else ()
        watched = "" if watches_all else f"{world.namespace},{other.namespace}"
        async with granting(world, *rules), launch(world, watched) as operator:
            pair = Pair(operator=operator, home=world, other=other)
            await _play(pair)
            assert await operator.terminate() == 0
        for each in pair.worlds:
            each.judge.elsewhere = pair.names - {each.namespace}
            await each.judge.assert_clean()
        requested = await list_requests(world, begun)
        if watches_all:
            own = {
                kind
                for kind, namespace in collect_watches(requested)
                if namespace == other.namespace
            }
            assert own == {PODS.plural}, "in the other kinds it has a share"
        else:
            assert list_strays(requested, pair.names) == []


async def _play(pair: Pair) -> None:
    home, other = pair.worlds
    stuck = await home.create(*_zones("store", group="store", replicas=1))
    ingesters = await home.create(*_zones("ingester", group="ingester"))
    stores = await other.create(*_zones("store", group="store", replicas=1))
    driven = await other.create(*_zones("db"))
    await other.post(POLICIES, make_policy("db"))
    for world in pair.worlds:
        await world.create(BYSTANDERS)
    await pair.operator.wait_ready()
    await wait_true("both followed", lambda: _are_followed(pair))
    async with _churning(home) as here, _churning(other) as there:
        await home.set_image(stuck, BROKEN)
        await wait_true("stuck", lambda: _has_deleted(pair, home, 1))
        edits = here.changes, there.changes
        await asyncio.gather(
            home.roll(ingesters, "v2"), other.roll(stores, "v2"), other.roll(driven, "v2")
        )
        assert here.changes > edits[0]
        assert there.changes > edits[1]
        await _assert_counted(pair)
        await home.roll(stuck, "v3")


def _zones(name: str, group: str | None = None, replicas: int = 2) -> Sequence[ZoneSpec]:
    return [
        ZoneSpec(name=f"{name}-zone-{letter}", group=group, replicas=replicas, labels={"app": name})
        for letter in "abc"
    ]


async def _are_followed(pair: Pair) -> bool:
    lines = [line for line in pair.operator.log_lines() if "Looking after namespace" in line]
    return all(any(f"namespace={name}" in line for line in lines) for name in pair.names)


async def _has_deleted(pair: Pair, world: World, pods: int) -> bool:
    labels = {"namespace": world.namespace, "rollout_group": "store", "outcome": "accepted"}
    return await read_metric(pair.operator, DELETED, **labels) == pods


async def _assert_counted(pair: Pair) -> None:
    """Series name the namespace: what is stuck in one of them has moved in the other."""
    operator, here, there = pair.operator, pair.home.namespace, pair.other.namespace
    assert await _has_deleted(pair, pair.home, 1)
    assert await _has_deleted(pair, pair.other, 3)
    ingesters = {"rollout_group": "ingester", "outcome": "accepted"}
    assert await read_metric(operator, DELETED, namespace=here, **ingesters) == 6
    assert await read_metric(operator, DELETED, namespace=there, **ingesters) is None
    for letter in "abc":
        zone = {"name": "db", "zone": f"zone-{letter}"}
        assert await read_metric(operator, DELETED_BY_POLICY, namespace=there, **zone) == 2
    assert await read_metric(operator, DELETED_BY_POLICY, namespace=here) is None
    await wait_true("all in the cache", lambda: _has_cached(pair, "Pod", 3 + 6 + 2))
    await wait_true("all in the cache", lambda: _has_cached(pair, "StatefulSet", 3 + 3 + 1))


async def _has_cached(pair: Pair, kind: str, objects: int) -> bool:
    labels = {"namespace": pair.other.namespace, "kind": kind}
    name = "rollout_operator_cached_objects"
    return await read_metric(pair.operator, name, **labels) == objects


class Churn:
    """Edits of objects that are no group's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.changes = 0

    async def run(self) -> None:
        """Edit a set and its pods in turn until cancelled."""
        name = BYSTANDERS.name
        for number in count():
            await self._world.annotate(name, edit=f"{number}")
            for ordinal in range(BYSTANDERS.replicas or 0):
                edited = {"metadata": {"annotations": {"edit": f"{number}"}}}
                await self._world.patch(PODS, f"{name}-{ordinal}", edited)
            self.changes += 3
            await asyncio.sleep(PAUSE.total_seconds())


@asynccontextmanager
async def _churning(world: World) -> AsyncIterator[Churn]:
    churn = Churn(world)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(churn.run(), name=f"churn of {world.namespace}")
        yield churn
        task.cancel()
