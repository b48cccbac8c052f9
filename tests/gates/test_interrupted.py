"""Health checks that are cancelled at each await: only what is recorded has happened."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.gates.controller import GroupSource, HealthCheckController
from rollout_operator.gates.model import (
    Answer,
    HealthCheck,
    Number,
    read_watched,
    watch_health_check,
)
from rollout_operator.kube.api import ROLLOUT_HEALTH_CHECKS
from rollout_operator.model.names import HEALTH_CHECK, GroupName
from tests.controllers.fake_client import FakeClient, Json, pod_json, set_json
from tests.controllers.fed_context import FedContext, FedInformer
from tests.gates.trees import health_check_tree
from tests.virtual_time import VirtualClock, in_virtual_time

NAME: Final = "ingester-health"
PLURAL: Final = ROLLOUT_HEALTH_CHECKS.plural
RANGE: Final = timedelta(minutes=5, seconds=1)
# After a conflict it is tried again after a second.
SOON: Final = timedelta(seconds=20)
TURNS: Final = 40


class LateClient(FakeClient):
    """Answers a patch a turn after it is carried out."""

    async def patch(self, *call: Any, **how: Any) -> bytes:
        body = await super().patch(*call, **how)
        await self.pause(f"answer {call[2]}")
        return body


class FailingChecks:
    """Has an answer a turn later, by which the check fails."""

    async def ask(self, check: HealthCheck, query: str, at: datetime) -> Answer:
        await asyncio.sleep(0)
        return Number(0)

    async def probe(self, check: HealthCheck, url: str) -> Answer:
        raise AssertionError


class Fed(FedContext):
    """Knows the health check as it was fed last."""

    checks: FedInformer[Any]

    def make_informer(self, client: Any, collection: Any) -> FedInformer[Any]:
        informer = super().make_informer(client, collection)
        if collection.resource == ROLLOUT_HEALTH_CHECKS:
            self.checks = informer
        return informer


class Evaluation:
    """A zone that is updated, or about to be, one that waits for it, and a process."""

    def __init__(self) -> None:
        sets = [set_json(f"zone-{letter}", replicas=1) for letter in "ab"]
        for one in sets:
            one["metadata"]["annotations"] = {HEALTH_CHECK: NAME}
        self.client = LateClient(sets, [pod_json(f"zone-{letter}", 0) for letter in "ab"])
        self.client.put(PLURAL, _render_check())
        self.client.pause = lambda call: asyncio.sleep(0)
        self.see()
        self.start()

    def start(self) -> None:
        """Begin another process, with what the caches show."""
        self.context = Fed(self.client, VirtualClock())
        observer = self.context.make_observer(self.context.following)
        source = GroupSource(
            observe=lambda check: iter([observer.observe(GroupName("ingester"))]),
            wake=lambda check: None,
        )
        self.controller = HealthCheckController(self.context, FailingChecks(), source)
        self.context.sync(self.client)
        self.context.checks.feed([watch_health_check(self.seen)])

    def see(self) -> None:
        """Let the cache of the next process show the newest version."""
        self.seen = msgspec.json.encode(self.client.objects[PLURAL, NAME])

    async def update(self) -> None:
        """Replace the pod of the first zone, and wait until the check is due."""
        await self.work(SOON)
        self.client.put("pods", pod_json("zone-a", 0, revision="new"))
        self.see()
        self.start()
        await asyncio.sleep(RANGE.total_seconds())

    async def conflict(self) -> None:
        """Evaluate once in vain, as another client has changed the object."""
        self.client.objects[PLURAL, NAME]["metadata"]["resourceVersion"] = "99"
        assert not await self.work(timedelta(0), TURNS)
        await asyncio.sleep(SOON.total_seconds())

    async def work(self, span: timedelta, turns: int = 0) -> bool:
        """Work for so long and so many turns of the loop; return whether that was cut off."""
        async with TaskStack() as tasks:
            self.controller.start(tasks)
            await asyncio.sleep(span.total_seconds())
            for _ in range(turns):
                await asyncio.sleep(0)
            was_busy = self.controller.busy > 0
        assert self.controller.busy == 0
        return was_busy

    def read(self) -> tuple[Sequence[str], Sequence[int]]:
        """Return the zones that are recorded, and how often each check has failed."""
        watched = watch_health_check(msgspec.json.encode(self.client.objects[PLURAL, NAME]))
        check = read_watched(watched)
        assert isinstance(check, HealthCheck)
        entry = check.status.find("ingester")
        return [one.name for one in entry.stateful_sets], [one.failures for one in entry.checks]


@pytest.mark.parametrize("sees", [True, False], ids=["the next one sees all", "its list is old"])
@pytest.mark.parametrize("stage", ["outdated", "due", "in doubt"])
@in_virtual_time
async def test_what_is_cut_off_is_recorded_once(stage: str, sees: bool) -> None:
    """SI-28, FP-36: no failure is counted twice, and the next process forgets none."""
    cut_off = 0
    for turns in range(TURNS):
        evaluation = Evaluation()
        if stage != "outdated":
            await evaluation.update()
        if stage == "in doubt":
            await evaluation.conflict()
        cut_off += await evaluation.work(timedelta(0), turns)
        if sees:
            evaluation.see()
        evaluation.start()
        await evaluation.work(SOON)

        failures = [] if stage == "outdated" else [1]
        assert evaluation.read() == (["zone-a", "zone-b"], failures), turns
    assert 0 < cut_off < TURNS - 2


def _render_check() -> Json:
    tree = health_check_tree(NAME)
    return {**tree, "metadata": {**tree["metadata"], "namespace": "test"}}
