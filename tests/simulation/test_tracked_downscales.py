"""The whole operator with `-use-zone-tracker` on a simulated cluster: `tracked.txt`."""

import asyncio
import random
import re
from typing import Final, cast

import pytest
from msgspec.structs import replace
from rollout_lab.admission.webhooks import HookCall
from rollout_lab.model.history import Called, Commit, PodCalled
from rollout_lab.model.request import ApiRefusal
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import CONFIG_MAPS, STATEFULSETS, JsonObject
from rollout_operator.model.names import LAST_DOWNSCALE
from rollout_operator.model.scaling import format_entry
from tests.simulation.chaos import later_webhook
from tests.simulation.runs import run
from tests.simulation.scenarios import ZONE_TRACKER, People, Route
from tests.simulation.scenarios_book import TRACKED, get_scenario
from tests.simulation.scenarios_downscales import prepare_zone
from tests.simulation.traces import QUOTA_PATH, Quota
from tests.stories import Steps, check_stories
from tests.virtual_time import in_virtual_time

OLD: Final = format_entry("2020-01-01T00:00:00Z")


class TrackedStage(Steps):
    """Three zones whose pods are prepared, a minute between their downscales, and an operator.

    Beside each command: which entries of the map were written (+), and which pods called.
    """

    def __init__(self) -> None:
        self._data: JsonObject = {}
        self._calls = 0
        self._quota: Quota | None = None

    async def set_up(self) -> None:
        self._sandbox = await self.stack.enter_async_context(Sandbox(namespace="prod"))
        self._people = People(sandbox=self._sandbox, rng=random.Random(1))
        self._operator = self._sandbox.process(webhooks=True, args=TRACKED)
        for letter in "abc":
            await self._people.create(prepare_zone(ZoneSpec(name=f"zone-{letter}")))
        await self._people.register_webhooks()
        await asyncio.sleep(60)
        await self.do_start()

    async def do_start(self) -> None:
        self._operator.start()
        await self._operator.wait_ready()

    async def do_map(self, *entries: str) -> None:
        """Let a person create the map, with old entries, and labels of their own."""
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": ZONE_TRACKER, "labels": {"owner": "another-team"}},
            "data": dict.fromkeys(entries, OLD),
        }
        await self._people.post(CONFIG_MAPS, body)
        self._data = self._read("data")

    async def do_scale(self, zone: str) -> str:
        """Request a pod less; say what waits for what where it is refused."""
        try:
            await self._people.scale(f"zone-{zone}", 2, Route.SCALE_MERGE)
        except ApiRefusal as refusal:
            said = r"zone-\w was downscaled|not today|failed calling webhook"
            return f"refused: {re.findall(said, str(refusal))[-1]}"
        return "done"

    async def do_both(self) -> str:
        """Have a second process that does not know of the first; each is asked for one zone."""
        second = self._sandbox.process("operator-2", webhooks=True, args=TRACKED)
        second.start()
        await second.wait_ready()
        turns = [self._operator, second]

        async def send_request(call: HookCall) -> bytes:
            return await turns[b'"zone-b"' in call.body].answer(call)

        self._sandbox.api.hooks = send_request
        return ", ".join(await asyncio.gather(self.do_scale("a"), self.do_scale("b")))

    async def do_quota(self, word: str) -> None:
        """Have another webhook refuse what comes after ours, or no more."""
        if self._quota is None:
            assert self._sandbox.api.hooks is not None
            self._sandbox.api.hooks = self._quota = Quota(self._sandbox.api.hooks)
            namespace = self._sandbox.namespace
            hook = later_webhook(namespace, name="quota", path=QUOTA_PATH, policy="Fail")
            await self._sandbox.call(hook)
        self._quota.is_used_up = word == "full"

    async def do_crash(self) -> None:
        """Let the operator die once it has written to the map."""

        def crash(commit: Commit) -> None:
            if commit.resource == CONFIG_MAPS and self._operator.starts == 1:
                self._operator.crash()

        self._sandbox.api.on_commit(crash)

    async def do_rest(self) -> str:
        """Say what the map has, whose labels, how it was used, and what sets say of times."""
        calls = self._sandbox.history.list_all(Called)
        own = [one.request for one in calls if one.actor.startswith("operator")]
        verbs = sorted({one.verb for one in own if one.resource == CONFIG_MAPS})
        sets = self._sandbox.api.list(STATEFULSETS, self._sandbox.namespace)
        annotated = [one for one in sets if LAST_DOWNSCALE in str(one)]
        entries = [key if value != OLD else f"{key} of old" for key, value in self._data.items()]
        labels = cast(JsonObject, self._read("metadata").get("labels", {}))
        return f"{', '.join(entries)}; {labels}; {' '.join(verbs)}; {len(annotated)} sets say so"

    def look(self) -> list[str]:
        before, self._data = self._data, self._read("data")
        kept = {key for key in before if before[key] == self._data.get(key)}
        changed = [
            f"{'+' if key in self._data else '-'}{key}"
            for key in {**before, **self._data}
            if key not in kept
        ]
        calls = self._sandbox.history.list_all(PodCalled)
        called = [f"{call.method} {call.pod}" for call in calls[self._calls :]]
        self._calls = len(calls)
        return [" ".join(part) for part in (sorted(changed), called) if part]

    def _read(self, part: str) -> JsonObject:
        held = self._sandbox.api.get(CONFIG_MAPS, self._sandbox.namespace, ZONE_TRACKER) or {}
        return cast(JsonObject, held.get(part, {}))


test_story = in_virtual_time(check_stories(__file__, tracked=TrackedStage))


@pytest.mark.thorough
def test_some_schedules_of_two_downscales_are_clean() -> None:
    """SI-10 to 16, LI-05: by the same judges as without the tracker."""
    scenario = replace(get_scenario("s7"), args=TRACKED)
    for seed in range(100, 108):
        verdict = run(scenario, seed).verdict
        assert verdict.is_clean, f"seed {seed}\n{verdict}"
