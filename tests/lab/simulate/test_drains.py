"""Drains of a copy: how often a refused eviction is requested again, and how often it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

from rollout_lab.drains import Draining
from rollout_lab.model.history import Called, History, Said
from rollout_lab.model.request import ApiRequest, create, patch
from rollout_lab.nodes.pods import LONE_NODE
from rollout_lab.schemas.kinds import BUDGETS
from rollout_lab.simulate.world import drop_repeats
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.aio.tasks import Children
from rollout_operator.kube.api import STATEFULSETS, JsonObject
from tests.virtual_time import in_virtual_time

_BUDGET: JsonObject = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}


@asynccontextmanager
async def _guarded() -> AsyncIterator[Sandbox]:
    """Give a world with two pods on a node, below a native budget that allows nothing."""
    async with Sandbox() as sandbox:
        here = sandbox.namespace
        zone = ZoneSpec(name="zone-a", replicas=2)
        await sandbox.call(create(STATEFULSETS, statefulset(zone), here))
        await asyncio.sleep(10)
        spec = {"selector": {"matchLabels": {"name": "zone-a"}}, "maxUnavailable": 0}
        budget: JsonObject = {"metadata": {"name": "all"}, "spec": spec}
        await sandbox.call(create(BUDGETS, {**_BUDGET, **budget}, here))
        status = {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 2}
        await sandbox.call(patch(BUDGETS, "all", {"status": status}, here, subresource="status"))
        yield sandbox


def _drain(sandbox: Sandbox) -> Draining:
    return Draining(sandbox=sandbox, what="drain it", nodes=(LONE_NODE,), actor="you")


def _requested(sandbox: Sandbox, pod: str) -> list[float]:
    times = [
        one.at.total_seconds()
        for one in sandbox.history.list_all(Called)
        if (one.request.name, one.request.subresource) == (pod, "eviction")
    ]
    return [round(later - sooner, 1) for sooner, later in pairwise(times)]


@in_virtual_time
async def test_a_refused_eviction_is_requested_again_every_five_seconds() -> None:
    async with _guarded() as sandbox, asyncio.TaskGroup() as tasks:
        drain = _drain(sandbox)
        tasks.create_task(drain.run())
        await asyncio.sleep(28)

        assert _requested(sandbox, "zone-a-0") == _requested(sandbox, "zone-a-1") == [5.0] * 5
        rest = list(drain.describe_rest())
        assert [one.partition(": ")[0] for one in rest] == [
            "drain it goes on, without zone-a-0",
            "drain it goes on, without zone-a-1",
        ]

        gone = ApiRequest(verb="delete", resource=BUDGETS, name="all", namespace="default")
        await sandbox.call(gone)
        await asyncio.sleep(10)
        assert list(drain.describe_rest()) == []
        assert [one.text for one in sandbox.history.list_all(Said)] == ["node-1 is drained"]


@in_virtual_time
async def test_what_is_refused_for_hours_is_requested_less_often() -> None:
    """Half a day is no reason for 8,640 requests."""
    async with _guarded() as sandbox, Children() as tasks:
        task = tasks.create_task(_drain(sandbox).run())
        await asyncio.sleep(12 * 3600)
        task.cancel()

        pauses = _requested(sandbox, "zone-a-0")
        assert pauses[:700] == [5.0] * 700
        assert max(pauses) < 61
        assert len(pauses) < 3000


@in_virtual_time
async def test_refusals_in_the_same_words_are_reported_once() -> None:
    async with _guarded() as sandbox, Children() as tasks:
        task = tasks.create_task(_drain(sandbox).run())
        await asyncio.sleep(60)
        task.cancel()

        kept = History(records=list(drop_repeats(sandbox.history.records)))
        evictions = [one for one in kept.list_all(Called) if one.request.subresource]
        assert [one.request.name for one in evictions if one.status == 429] == [
            "zone-a-0",
            "zone-a-1",
        ]
        others = [one for one in sandbox.history.records if not isinstance(one, Called)]
        assert [one for one in kept.records if not isinstance(one, Called)] == others
