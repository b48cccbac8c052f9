"""What goes on in a namespace meanwhile: rollouts, drains and downscales, until it is to rest.

Two groups of three zones. One is rolled out and drained under a budget, the other is rolled out
and scaled down and up again, its pods being prepared.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tests.system.waits import wait_true
from tests.system.zones import create_budgets, has_record, prepared_zone
from tests.world.api import PODS, ApiError
from tests.world.budgets import grouped_zones, zone_budget
from tests.world.clients import UNANSWERED, Drain, Route, Workload, list_victims
from tests.world.kubelet import Behaviour, always
from tests.world.webpods import Respond, WebPods
from tests.world.world import World

DRAINED: Final = "drained"
SCALED: Final = "scaled"
REPLICAS: Final = 4
LIFE: Final = Behaviour(
    ready_after=timedelta(milliseconds=600), terminates_after=timedelta(milliseconds=300)
)
PREPARING: Final = Respond(after=timedelta(milliseconds=300))
BETWEEN_ZONES: Final = "3s"
# Several takeovers of 20 s, one after the other, on a machine on which much else runs.
LIMIT: Final = timedelta(minutes=5)
LONGEST_PAUSE: Final = 3.0
REQUEST_EVERY: Final = timedelta(milliseconds=500)


@dataclass(slots=True)
class Work:
    world: World
    pods: WebPods
    make_rng: Callable[[str], random.Random]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Once it is set each part ends with what it has begun."""
    done: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    """Answers after which a drain would give up."""

    async def run(self) -> None:
        """Work until `over` is set, and return when all has come to its end."""
        async with asyncio.TaskGroup() as tasks:
            for group in (DRAINED, SCALED):
                tasks.create_task(self._roll_out(list_zones(group)), name=f"rollouts-{group}")
            tasks.create_task(self._drain(), name="drains")
            tasks.create_task(self._scale(), name="downscales")
        for group in (DRAINED, SCALED):
            await self.world.wait_adopted(list_zones(group), LIMIT)

    async def assert_clean(self) -> None:
        """Raise AssertionError for what the judge found, and for what was left behind."""
        await wait_true("all records gone", self._is_tidy, LIMIT)
        judge = self.world.judge
        found = await judge.downscale_violations(self.pods.calls)
        lines = [f"{each.invariant}: {each.text}" for each in found]
        assert not found, "\n".join([*lines, self.pods.describe()])
        await judge.assert_clean()
        assert self.unexpected == []

    async def _is_tidy(self) -> bool:
        """LI-05, LI-07: no living pod is marked, or prepared."""
        pods = await self.world.api.items(PODS, self.world.namespace)
        return not any(
            has_record(pod) or pod["metadata"]["uid"] in self.pods.prepared for pod in pods
        )

    async def _roll_out(self, zones: Sequence[str]) -> None:
        rng = self.make_rng(f"rollouts of {zones[0]}")
        number = 1
        while not self.over.is_set():
            number += 1
            for zone in zones:
                await self._set_image(zone, f"v{number}")
            await self.world.wait_adopted(zones, LIMIT)
            self.done["rollouts"] += 1
            await self._pause(rng)

    async def _set_image(self, zone: str, image: str) -> None:
        """Change a template; as long as no operator answers the API server refuses it."""
        async with asyncio.timeout(LIMIT.total_seconds()):
            while True:
                try:
                    await self.world.set_image([zone], image)
                    return
                except ApiError as error:
                    if UNANSWERED not in str(error):
                        raise
                await asyncio.sleep(REQUEST_EVERY.total_seconds())

    async def _drain(self) -> None:
        api, namespace = self.world.api, self.world.namespace
        rng = self.make_rng("drains")
        while not self.over.is_set():
            drain = Drain(api, namespace)
            zone = rng.choice(list_zones(DRAINED))
            await drain.run(await list_victims(api, namespace, [zone]), LIMIT)
            self.unexpected += drain.unexpected()
            self.done["drains"] += 1
            await self._pause(rng)

    async def _scale(self) -> None:
        rng = self.make_rng("downscales")
        while not self.over.is_set():
            zone = rng.choice(list_zones(SCALED))
            await self._request(zone, REPLICAS - rng.randint(1, 2))
            self.done["downscales"] += 1
            await self._pause(rng)
            await self._request(zone, REPLICAS)

    async def _request(self, zone: str, replicas: int) -> None:
        """Request so many replicas until it is granted, as an autoscaler does."""
        workload = Workload(api=self.world.api, namespace=self.world.namespace, name=zone)
        async with asyncio.timeout(LIMIT.total_seconds()):
            while (await workload.scale(replicas, Route.SCALE_MERGE)).status != 200:  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(REQUEST_EVERY.total_seconds())

    async def _pause(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.uniform(0, LONGEST_PAUSE))


async def prepare(world: World, make_rng: Callable[[str], random.Random]) -> Work:
    """Create both groups, whose pods take some time for all that they do."""
    world.kubelet.choose = always(LIFE)
    pods = await world.serve_pods()
    pods.behave("", PREPARING)
    await world.grant("webhooks")
    await create_budgets(world, [zone_budget(DRAINED, {"rollout-group": DRAINED})])
    scaled = [
        prepared_zone(pods, zone, wait=BETWEEN_ZONES)
        for zone in grouped_zones(SCALED, replicas=REPLICAS, max_unavailable=2)
    ]
    await world.create(*grouped_zones(DRAINED, replicas=REPLICAS), *scaled)
    return Work(world, pods, make_rng)


def list_zones(group: str) -> list[str]:
    return [zone.name for zone in grouped_zones(group)]
