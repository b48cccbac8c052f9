"""The whole operator with `-use-zone-tracker` on a simulated cluster: T-07, T-08, ZONE-01 to 10."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, cast

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.admission.webhooks import HookCall
from rollout_lab.model.history import Called, Commit, PodCalled
from rollout_lab.model.request import ApiRefusal, ApiRequest
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import CONFIG_MAPS, JsonObject
from rollout_operator.model.scaling import format_entry
from tests.simulation.chaos import QUOTA_PATH, Quota, later_webhook
from tests.simulation.scenarios_book import get_scenario
from tests.simulation.scenarios_downscales import prepare_zone
from tests.simulation.scenarios_people import People, Route
from tests.simulation.schedule import run
from tests.virtual_time import in_virtual_time

FLAG: Final = "-use-zone-tracker"
NAME: Final = "rollout-operator-zone-tracker"
OLD: Final = format_entry("2020-01-01T00:00:00Z")
FOREIGN: Final = {"README": "kept", "store-zone-a": OLD}


class TrackedWorld(msgspec.Struct, frozen=True, kw_only=True):
    """Three zones whose pods are prepared, a minute between their downscales, and an operator."""

    sandbox: Sandbox
    people: People
    operator: SimulatedProcess

    @property
    def held(self) -> JsonObject | None:
        """Return the ConfigMap."""
        return self.sandbox.api.get(CONFIG_MAPS, self.sandbox.namespace, NAME)

    @property
    def data(self) -> Mapping[str, str]:
        """Return its entries."""
        assert self.held is not None
        return cast(Mapping[str, str], self.held.get("data", {}))

    async def put(self, data: Mapping[str, str]) -> None:
        """Let a person create the ConfigMap."""
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "labels": {"owner": "another-team"}},
            "data": dict(data),
        }
        await self.sandbox.call(
            ApiRequest(
                verb="create", resource=CONFIG_MAPS, namespace=self.sandbox.namespace, body=body
            )
        )

    async def scale(self, zone: str, replicas: int = 2) -> str:
        """Request fewer replicas; return the refusal, empty where there is none."""
        try:
            await self.people.scale(zone, replicas, Route.SCALE_MERGE)
        except ApiRefusal as refusal:
            return str(refusal)
        return ""

    def called(self, method: str) -> list[str]:
        """Return the pods that were called, in order."""
        calls = self.sandbox.history.list_all(PodCalled)
        return [call.pod for call in calls if call.method == method]


@asynccontextmanager
async def run_world() -> AsyncIterator[TrackedWorld]:
    async with Sandbox(namespace="prod") as sandbox:
        people = People(sandbox=sandbox, rng=random.Random(1))
        for letter in "abc":
            await people.create(prepare_zone(ZoneSpec(name=f"zone-{letter}")))
        await people.register_webhooks()
        await asyncio.sleep(60)
        operator = sandbox.process(webhooks=True, args=[FLAG])
        operator.start()
        await operator.wait_ready()
        yield TrackedWorld(sandbox=sandbox, people=people, operator=operator)


@in_virtual_time
async def test_a_fresh_map_lets_all_zones_wait_and_then_one_goes_at_a_time() -> None:
    """ZONE-03, ZONE-07, ZONE-09, D-23, T-07 #2 and #3: times are nowhere but in the ConfigMap."""
    async with run_world() as here:
        assert "zone-b was downscaled at 2026-01-02 03:05" in await here.scale("zone-a")
        assert set(here.data) == {"zone-a", "zone-b", "zone-c"}
        assert here.called("POST") == []
        await asyncio.sleep(65)
        before = here.data
        assert await here.scale("zone-a") == ""
        await asyncio.sleep(20)
        assert "zone-a was downscaled at" in await here.scale("zone-b")
        changed = {key for key in before if here.data[key] != before[key]}
        assert changed == {"zone-a"}
        await asyncio.sleep(60)
        assert await here.scale("zone-b") == ""
        for name in ("zone-a", "zone-b"):
            found = cast(JsonObject, here.people.find(name))
            assert "grafana.com/last-downscale" not in str(found["metadata"])


@in_virtual_time
async def test_what_others_keep_in_the_map_stays() -> None:
    """W-16, ZONE-09: their entries and labels; and the operator requests no list and no watch."""
    async with run_world() as here:
        await here.put(FOREIGN)
        assert await here.scale("zone-a") == ""
        await asyncio.sleep(60)
        assert {key: here.data[key] for key in FOREIGN} == FOREIGN
        assert set(here.data) == {*FOREIGN, "zone-a"}
        assert here.held is not None
        assert cast(JsonObject, here.held["metadata"])["labels"] == {"owner": "another-team"}
        calls = here.sandbox.history.list_all(Called)
        own = [call for call in calls if call.actor == here.operator.name]
        verbs = {call.request.verb for call in own if call.request.resource == CONFIG_MAPS}
        assert verbs == {"get", "patch"}


@pytest.mark.parametrize("data", [{}, {"zone-a": OLD}], ids=["none", "of long ago"])
def test_a_downscale_that_a_client_refuses_restores_the_former_entry(
    data: Mapping[str, str],
) -> None:
    """LI-05, FP-22: pods are told that they stay, and another zone may go."""

    @in_virtual_time
    async def play() -> None:
        async with run_world() as here:
            await here.put({**FOREIGN, **data})
            api = here.sandbox.api
            assert api.hooks is not None
            api.hooks = quota = Quota(api.hooks)
            await here.sandbox.call(
                later_webhook("prod", name="quota", path=QUOTA_PATH, policy="Fail")
            )
            assert "not today" in await here.scale("zone-a")
            assert here.data["zone-a"] != data.get("zone-a")
            await asyncio.sleep(50)
            assert here.data == {**FOREIGN, **data}
            assert here.called("DELETE") == ["zone-a-2"]
            quota.is_used_up = False
            assert await here.scale("zone-b") == ""

    play()


@in_virtual_time
async def test_fp06_a_crash_between_record_and_answer() -> None:
    """FP-06, SI-11, LI-05: the entry stands and holds the others back; the pod is un-prepared."""
    async with run_world() as here:
        await here.put(FOREIGN)

        def crash(commit: Commit) -> None:
            if commit.resource == CONFIG_MAPS and here.operator.starts == 1:
                here.operator.crash()

        here.sandbox.api.on_commit(crash)
        assert "failed calling webhook" in await here.scale("zone-a")
        assert "zone-a" in here.data
        assert here.called("POST") == ["zone-a-2"]
        here.operator.start()
        await here.operator.wait_ready()
        await asyncio.sleep(50)
        assert here.called("DELETE") == ["zone-a-2"]
        assert "zone-a was downscaled at" in await here.scale("zone-b")
        assert await here.scale("zone-a") == "", "its own time does not matter"


@in_virtual_time
async def test_w15_two_processes_that_do_not_know_of_one_another() -> None:
    """W-15, SI-11: two zones requested at once, one by each; exactly one goes."""
    async with run_world() as here:
        await here.put(FOREIGN)
        second = here.sandbox.process("operator-2", webhooks=True, args=[FLAG])
        second.start()
        await second.wait_ready()
        turns = [here.operator, second]

        async def send_request(call: HookCall) -> bytes:
            is_b = b'"zone-b"' in call.body
            return await turns[is_b].answer(call)

        here.sandbox.api.hooks = send_request
        answers = await asyncio.gather(here.scale("zone-a"), here.scale("zone-b"))
        assert sorted(bool(answer) for answer in answers) == [False, True]
        assert "was downscaled at" in max(answers)
        assert len(set(here.data) - set(FOREIGN)) == 1
        await asyncio.sleep(60)
        assert len(set(here.called("DELETE"))) == 1


@pytest.mark.thorough
def test_some_schedules_of_two_downscales_are_clean() -> None:
    """SI-10 to 16, LI-05: by the same judges as without the tracker."""
    scenario = get_scenario("s7")
    for seed in range(100, 108):
        outcome = run(replace(scenario, args=(*scenario.args, FLAG)), seed)
        assert outcome.verdict.is_clean, f"seed {seed}\n{outcome.verdict}"
        assert outcome.span > timedelta(0)
