"""A simulated cluster with the operator at work, at a moment that is worth a picture.

Three groups: one has a version whose pods crash, one rolls out, one is done. Clients, watches and
decisions are the operator's own, in real time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from msgspec.structs import replace
from rollout_lab.model.request import STRATEGIC_PATCH, ApiRequest
from rollout_lab.nodes.behaviour import Behaviour, StartKind, by_image
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import statefulset, three_zones

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import STATEFULSETS, ZONE_BUDGETS, JsonObject, Resource
from rollout_operator.model.description import Description
from rollout_operator.telemetry import logs

NAMESPACE: Final = "databases"
LIMIT_S: Final = 120.0
_QUICK: Final = timedelta(milliseconds=50)
_PODS: Final = {"ingester": 3, "store-gateway": 8, "compactor": 2}
_BEHAVIOURS: Final = by_image(
    {
        "v1": Behaviour(starts_after=_QUICK, ready_after=_QUICK, terminates_after=_QUICK),
        "v2": Behaviour(ready_after=timedelta(seconds=2)),
        "bad": Behaviour(kind=StartKind.CRASH_LOOP, ready_after=timedelta(seconds=1)),
    }
)


@asynccontextmanager
async def busy_operator() -> AsyncIterator[SimulatedProcess]:
    """Yield the operator at that moment; it goes on meanwhile."""
    logs.configure(level="error")
    sandbox = Sandbox(choose=_BEHAVIOURS, namespace=NAMESPACE, epoch=LoopClock().now())
    async with asyncio.timeout(LIMIT_S), sandbox:
        process = sandbox.process("rollout-operator-6c9f7d5b84-x2lqp", elects=True)
        await _set_up(sandbox, process)
        await _roll(sandbox, "store-gateway", "v2")
        await _roll(sandbox, "ingester", "bad")
        await _wait(process, _is_worth_a_picture)
        try:
            yield process
        finally:
            await process.stop()


async def _set_up(sandbox: Sandbox, process: SimulatedProcess) -> None:
    for group, pods in _PODS.items():
        limit = 2 if group == "store-gateway" else 1
        for zone in three_zones(group, replicas=pods, max_unavailable=limit):
            zone = replace(zone, pod_labels={"rollout-group": group})
            await sandbox.call(_create(STATEFULSETS, statefulset(zone, NAMESPACE)))
    selector = {"matchLabels": {"rollout-group": "store-gateway"}}
    budget: JsonObject = {
        "apiVersion": f"{ZONE_BUDGETS.group}/{ZONE_BUDGETS.version}",
        "kind": ZONE_BUDGETS.kind,
        "metadata": {"name": "store-gateway"},
        "spec": {"selector": selector, "maxUnavailable": 2},
    }
    await sandbox.call(_create(ZONE_BUDGETS, budget))
    process.start()
    await process.wait_ready()
    await _wait(process, lambda now: all(group.ready == group.desired for group in now.groups))


async def _roll(sandbox: Sandbox, group: str, version: str) -> None:
    for zone in three_zones(group):
        containers = [{"name": "app", "image": version}]
        body: JsonObject = {"spec": {"template": {"spec": {"containers": containers}}}}
        request = ApiRequest(
            verb="patch",
            resource=STATEFULSETS,
            namespace=NAMESPACE,
            name=zone.name,
            body=body,
            content_type=STRATEGIC_PATCH,
        )
        await sandbox.call(request)


async def _wait(process: SimulatedProcess, holds: Callable[[Description], bool]) -> None:
    while True:
        if process.acts and holds(await process.describe()):
            return
        await asyncio.sleep(0.1)


def _is_worth_a_picture(now: Description) -> bool:
    """Return whether one group is stuck and the second zone of another is on its way."""
    groups = {group.name: group for group in now.groups}
    stuck = any("CrashLoop" in pod.why for zone in groups["ingester"].zones for pod in zone.pods)
    return stuck and groups["store-gateway"].zones[1].updated >= 4


def _create(resource: Resource, obj: JsonObject) -> ApiRequest:
    return ApiRequest(verb="create", resource=resource, namespace=NAMESPACE, body=obj)
