"""Upgrades under load: one operator after the other, while the API server calls all the time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.budgeted import create_budgets
from tests.system.guarded import prepared_zone
from tests.system.hooked import TLS_FLAGS
from tests.world.api import PODS, Answer, Json
from tests.world.budgets import TRY_AGAIN, ZONE_BUDGETS, DryRun, evict, grouped_zones, zone_budget
from tests.world.clients import Route, Workload
from tests.world.drains import CREATED, UNANSWERED, Drain, list_victims
from tests.world.hooks import (
    NO_DOWNSCALE,
    POD_EVICTION,
    PREPARE_DOWNSCALE,
    ZPDB_VALIDATION,
    Registration,
)
from tests.world.kubelet import Behaviour, Kind, always
from tests.world.operatorproc import OperatorProcess
from tests.world.service import Service
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

RATE: Final = 10
"""Of each kind, a second. Measured with 50, too: docs/install.md."""
UPGRADES: Final = 2
DRAIN_LIMIT: Final = timedelta(seconds=120)
ALL_HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, POD_EVICTION, ZPDB_VALIDATION)
HELD: Final = "held"
"""A group with a pod that never gets ready: no pod of its other zones may go."""
DRAINED: Final = "drained"
# As shipped: the other tests do not wait.
FLAGS: Final = (*TLS_FLAGS, "-server-tls.shutdown-delay=5s")
KEPT: Final = ZoneSpec(
    name="kept", group=None, replicas=2, labels={"grafana.com/no-downscale": "true"}
)


@dataclass(slots=True)
class Load:
    """Sends one review again and again; each answer must be the same refusal."""

    send_request: Callable[[], Awaitable[Answer]]
    words: str
    """Of the refusal, while an operator leads."""
    may_wait: bool = False
    """Whether only the replica that leads decides it: there is a moment without any."""
    outcomes: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Call at `RATE`, without waiting for answers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._request())
                await asyncio.sleep(1 / RATE)

    async def _request(self) -> None:
        answer = await self.send_request()
        self.outcomes[self._judge(answer)] += 1

    def _judge(self, answer: Answer) -> str:
        if answer.status >= 400 and self.words in answer.message:
            return "right"
        if self.may_wait and answer.status == TRY_AGAIN and UNANSWERED not in answer.message:
            return "limited" if "rate limiter" in answer.message else "wait"
        return f"wrong: {answer.status} {answer.message}"


async def test_dep94_upgrades_under_load_fail_no_call(world: World) -> None:
    """DEP-91, DEP-92, DEP-94: reviews of each kind and a drain go on over upgrades.

    No call fails, no verdict is wrong, and what is to be tried again is so for moments.
    """
    pods = await world.serve_pods()
    budgets = [zone_budget(group, {"rollout-group": group}) for group in (HELD, DRAINED)]
    await create_budgets(world, budgets)
    await world.grant_webhooks()
    held = [prepared_zone(pods, zone, wait="1h") for zone in grouped_zones(HELD)]
    await world.create(*held, *grouped_zones(DRAINED), KEPT)
    async with Service() as service:
        operator = await world.operator(*FLAGS)
        service.add(operator)
        hooks = await world.register(Registration(port=service.port, hooks=ALL_HOOKS))
        await hooks.wait_injected()
        await hooks.wait_called(f"{HELD}-zone-a")
        await hold_back(world)
        async with under_load(world) as loads:
            drain = Drain(world.api, world.namespace)
            victims = await list_victims(world.api, world.namespace, [f"{DRAINED}-zone-a"])
            draining = asyncio.create_task(drain.run(victims, DRAIN_LIMIT))
            for _ in range(UPGRADES):
                operator = await upgrade(world, service, operator)
            await draining
    for load in loads:
        wrong = {text: n for text, n in load.outcomes.items() if text.startswith("wrong")}
        assert not wrong, wrong
        assert load.outcomes["right"] > 0, load.outcomes
        assert load.outcomes["wait"] <= UPGRADES * RATE * 4, load.outcomes
    assert not [answer for _, answer in drain.answers if UNANSWERED in answer.message]
    assert service.refused == 0
    await world.judge.assert_clean()


async def upgrade(world: World, service: Service, old: OperatorProcess) -> OperatorProcess:
    """Replace an operator as the Deployment does: the next is ready before it ends."""
    new = await world.operator(*FLAGS)
    service.add(new)
    assert await service.end(old) == 0
    return new


async def hold_back(world: World) -> None:
    """Replace a pod of a zone by one that never gets ready."""
    name = f"{HELD}-zone-a-0"
    before = (await world.get(PODS, name))["metadata"]["uid"]

    def is_stuck(pod: Json) -> bool:
        is_new = pod["metadata"]["uid"] != before
        return bool(is_new and pod["status"].get("phase") == "Running")

    with world.kubelet.choosing(always(Behaviour(kind=Kind.NEVER_READY))):
        answer = await evict(world.api, world.namespace, name)
        assert answer.status in CREATED, answer
        await world.wait_pod(name, "running, and not ready", is_stuck)


@asynccontextmanager
async def under_load(world: World) -> AsyncIterator[list[Load]]:
    """Send all kinds of reviews meanwhile."""
    kept = Workload(api=world.api, namespace=world.namespace, name=KEPT.name)
    scaled = Workload(api=world.api, namespace=world.namespace, name=f"{HELD}-zone-b")
    empty = zone_budget("empty", {})
    loads = [
        Load(lambda: kept.scale(1, Route.MERGE, is_dry_run=True), "no-downscale"),
        Load(
            lambda: world.api.exchange(
                "POST", ZONE_BUDGETS.path(world.namespace), body=empty, query={"dryRun": "All"}
            ),
            "selector is empty",
        ),
        Load(
            lambda: evict(world.api, world.namespace, f"{HELD}-zone-b-0", dry_run=DryRun.QUERY),
            f"{HELD}-zone-a",
            may_wait=True,
        ),
        Load(lambda: scaled.scale(2, Route.MERGE), f"{HELD}-zone-a", may_wait=True),
    ]
    tasks = [asyncio.create_task(load.run()) for load in loads]
    try:
        yield loads
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
