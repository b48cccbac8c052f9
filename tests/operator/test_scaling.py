"""Counts, rollouts and reviews of one operator on a simulated cluster: what no part shows alone."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace
from rollout_lab.admission.webhooks import HookCall, HookCaller
from rollout_lab.model.fields import name_of
from rollout_lab.model.history import PodCalled
from rollout_lab.nodes.behaviour import Behaviour, Choose, PodReply, Response
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE
from rollout_operator.model.outcome import Code
from tests.scaling_world import QUICK, ScalingWorld, follower, mirror, run_world
from tests.simulation.chaos import later_webhook
from tests.simulation.scenarios import name_unrolled
from tests.simulation.scenarios_people import Route
from tests.simulation.traces_downscales import QUOTA_PATH, Quota
from tests.virtual_time import elapsed, in_virtual_time

pytestmark = pytest.mark.thorough

CHAIN = (follower("a"), follower("b", "a"), follower("c", "b"))
WAIT = timedelta(minutes=5)
TRACKED = ("-use-zone-tracker=true",)


@pytest.mark.parametrize("args", [(), TRACKED], ids=["annotations", "tracker"])
@pytest.mark.parametrize("route", [Route.SCALE_MERGE, Route.MERGE, Route.PUT_FRESH])
def test_a_chain_goes_up_at_once_and_down_zone_by_zone(args: tuple[str, ...], route: Route) -> None:
    """SCALE-12, SEED-066, SI-11, FP-24: with both webhooks, and without one refusal of our own."""

    @in_virtual_time
    async def run() -> None:
        async with run_world(CHAIN, args=args) as world:
            if args:  # a new tracker lets all zones wait first
                assert not await world.people.attempt(
                    lambda: world.people.scale("zone-a", 2, route)
                )
                await asyncio.sleep(310)
            await world.people.scale("zone-a", 5, route)
            began = elapsed()
            assert await world.until(("b", 5), ("c", 5)) - began < timedelta(seconds=2)
            await asyncio.sleep(10)
            await world.people.scale("zone-a", 2, route)
            downs = [elapsed(), await world.until(("b", 2)), await world.until(("c", 2))]
            assert world.writes() == ["zone-b 5", "zone-c 5", "zone-b 2", "zone-c 2"]
            assert [review.message for review in world.refused()] == []
            await asyncio.sleep(60)
            (entry,) = world.process.entries()
            assert [reason.code for reason in entry.plan.waits] == [Code.UP_TO_DATE]
        gaps = [after - before for before, after in pairwise(downs)]
        assert all(WAIT <= gap <= WAIT + timedelta(seconds=5) for gap in gaps), gaps

    run()


@pytest.mark.parametrize("args", [(), TRACKED], ids=["annotations", "tracker"])
def test_seed066_zones_that_no_review_is_about_keep_the_time_too(args: tuple[str, ...]) -> None:
    """SEED-066, D-22, FP-06: whatever scales them down, and for the next process as well."""

    @in_virtual_time
    async def run() -> None:
        zones = [replace(zone, labels=_unguarded(zone.labels)) for zone in CHAIN]
        async with run_world(zones, args=args) as world:
            await world.people.scale("zone-a", 2, Route.SCALE_MERGE)
            downs = [elapsed()]
            for letter in "bc":
                await asyncio.sleep(2)
                world.process.crash()
                world.process.start()
                downs.append(await world.until((letter, 2)))
            assert world.writes() == ["zone-b 2", "zone-c 2"]
        gaps = [after - before for before, after in pairwise(downs)]
        assert all(WAIT <= gap <= WAIT + timedelta(seconds=10) for gap in gaps), gaps

    run()


@in_virtual_time
async def test_seed066_a_bare_leading_zone_is_waited_for_as_the_readme_says() -> None:
    """SEED-066, SCALE-09, SI-11: zone-a has no label and no time; its followers have both."""
    bare = replace(CHAIN[0], labels={}, annotations={})
    async with run_world((bare, *CHAIN[1:])) as world:
        await world.people.scale("zone-a", 2, Route.SCALE_MERGE)
        downs = [elapsed(), *[await world.until((letter, 2)) for letter in "bc"]]
    gaps = [after - before for before, after in pairwise(downs)]
    assert all(WAIT <= gap <= WAIT + timedelta(seconds=5) for gap in gaps), gaps


@in_virtual_time
async def test_fp24_five_minutes_of_waiting_cost_nothing() -> None:
    """FP-24, LI-11: no read of the API server, no review and no call while the time runs."""
    async with run_world(CHAIN) as world:
        await world.people.scale("zone-a", 2, Route.SCALE_MERGE)
        # A minute after its pods have gone a downscale is over, and its record goes.
        await asyncio.sleep(90)
        before, began = len(world.sandbox.history.list_all(PodCalled)), elapsed()
        await asyncio.sleep(190)
        requested = world.requests(began, "get", "list", "patch", "update", "create", "delete")
        # Beside what follows the collections: no live read, and no write.
        assert [one for one in requested if "labelSelector" in one.request.query] == []
        assert {one.request.verb for one in requested} <= {"list"}
        assert len(world.sandbox.history.list_all(PodCalled)) == before


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "not guarded"])
def test_a_zone_that_may_not_go_down_stops_neither_others_nor_rollouts(guarded: bool) -> None:
    """W-42, D-18, D-25: b is locked by a person; c follows a, and a new image gets everywhere."""

    @in_virtual_time
    async def run() -> None:
        lock = {NO_DOWNSCALE: "true"}
        zones = [follower("a", wait="1s"), follower("b", "a", wait="1s", **lock)]
        zones.append(follower("c", "a", wait="1s"))
        if not guarded:
            zones = [
                ZoneSpec(name=one.name, annotations=one.annotations, labels=_unguarded(one.labels))
                for one in zones
            ]
        async with run_world(zones) as world:
            await world.people.scale("zone-a", 2, Route.SCALE_MERGE)
            await world.until(("c", 2))
            assert world.count("b") == 3
            for letter in "abc":
                await world.people.set_image(f"zone-{letter}", "v2")
            await _until_rolled(world)
            await asyncio.sleep(400)
            before, began = len(world.sandbox.history.list_all(PodCalled)), elapsed()
            await asyncio.sleep(600)
            assert len(world.sandbox.history.list_all(PodCalled)) - before <= 4 * 600 / 30
            tried = world.requests(began, "patch")
            of_sets = [one for one in tried if one.request.resource.plural == "statefulsets"]
            # Without a review of ours an attempt is three: its mark, the count, the mark's removal.
            assert len(of_sets) <= (600 / 30 + 1) * (1 if guarded else 3)

    run()


@in_virtual_time
async def test_a_zone_that_another_client_holds_stops_neither_others_nor_rollouts() -> None:
    """W-42, D-25, FP-22: a webhook behind ours refuses b for ever, when its pods are prepared."""
    zones = [follower("a", wait="1s"), follower("b", "a", wait="1s"), follower("c", "a", wait="1s")]
    async with run_world(zones) as world:
        assert world.sandbox.api.hooks is not None
        world.sandbox.api.hooks = OnlyOthers(world.sandbox.api.hooks, "zone-b")
        await world.sandbox.call(
            later_webhook(world.sandbox.namespace, name="quota", path=QUOTA_PATH, policy="Fail")
        )
        await world.people.scale("zone-a", 2, Route.SCALE_MERGE)
        began = elapsed()
        assert await world.until(("c", 2)) - began < timedelta(minutes=2)
        for letter in "abc":
            await world.people.set_image(f"zone-{letter}", "v2")
        await _until_rolled(world)
        assert elapsed() - began < timedelta(minutes=6)
        assert world.count("b") == 3


@in_virtual_time
async def test_a_mirrored_count_moves_all_zones_and_its_status_says_when_they_are_there() -> None:
    """MIRR-01, MIRR-10, SEED-069: as an autoscaler writes it, and reads it."""
    async with run_world([mirror("a"), mirror("b")], templates={"demo": 3}) as world:
        assert world.show_status("demo") == 3
        began = elapsed()
        await world.set_template("demo", 5)
        assert await world.until(("a", 5), ("b", 5)) - began < timedelta(seconds=1)
        await asyncio.sleep(5)
        assert world.show_status("demo") == 5
        await world.set_template("demo", 2)
        await world.until(("a", 2), ("b", 2))
        await asyncio.sleep(5)
        assert world.show_status("demo") == 2
        assert world.writes() == ["zone-a 5", "zone-b 5", "zone-a 2", "zone-b 2"]


@in_virtual_time
async def test_pods_are_called_and_go_after_their_delay() -> None:
    """DELAY-06 to 08, SI-10: the pods that go were called two minutes before, no others."""
    async with run_world([mirror("a", delay="2m")], templates={"demo": 5}) as world:
        await world.until(("a", 5))
        await asyncio.sleep(60)
        began = elapsed()
        await world.set_template("demo", 3)
        taken = await world.until(("a", 3)) - began
        assert timedelta(minutes=2) <= taken <= timedelta(seconds=125)
        calls = [one for one in world.sandbox.history.list_all(PodCalled) if one.begun >= began]
        requested = {one.pod for one in calls if one.method == "POST"}
        assert requested == {"zone-a-3", "zone-a-4"}


class OnlyOthers(Quota):
    """A webhook that forbids to take replicas from one zone."""

    def __init__(self, inner: HookCaller, name: str) -> None:
        super().__init__(inner)
        self._name = name

    async def __call__(self, call: HookCall) -> bytes:
        request = json.loads(call.body)["request"]
        is_less = _count(request["object"]) < _count(request["oldObject"])
        self.is_used_up = is_less and request["name"] == self._name
        return await super().__call__(call)


def _count(one: dict[str, dict[str, int]]) -> int:
    return one["spec"]["replicas"]


HANGS = Response(reply=PodReply.HANGS)


@in_virtual_time
async def test_w06_pods_that_hang_delay_neither_another_group_nor_a_rollout() -> None:
    """DELAY-14, W-06, LI-09: all pods of one group hang; a rollout of another takes no longer."""
    spans = []
    for behaviour in (QUICK, _hanging()):
        zones = [mirror("a", delay="1h")]
        zones += [ZoneSpec(name=f"other-{letter}", group="other") for letter in "ab"]
        async with run_world(zones, templates={"demo": 5}, choose=_of_a(behaviour)) as world:
            await asyncio.sleep(20)
            await world.set_template("demo", 3)
            await asyncio.sleep(1)
            began = elapsed()
            for letter in "ab":
                await world.people.set_image(f"other-{letter}", "v2")
            await _until_rolled(world)
            spans.append(elapsed() - began)
    assert abs(spans[1] - spans[0]) < timedelta(milliseconds=500), spans


@pytest.mark.slow
@in_virtual_time
async def test_a_process_that_is_killed_while_it_writes_scales_no_zone_too_soon() -> None:
    """FP-06, FP-14, SI-18: killed at each moment of the downscale of b."""
    for pause in (0.0, 0.02, 0.1, 0.3, 0.5):
        async with run_world(CHAIN) as world:
            await world.people.scale("zone-a", 2, Route.SCALE_MERGE)
            first = elapsed()
            await asyncio.sleep(WAIT.total_seconds() + 1 + pause)
            world.process.crash()
            await asyncio.sleep(3)
            world.process.start()
            second = await world.until(("b", 2))
            third = await world.until(("c", 2))
            assert second - first >= WAIT
            assert WAIT <= third - second <= WAIT + timedelta(seconds=90)


@in_virtual_time
async def test_a_process_that_stops_waits_for_no_pod() -> None:
    """SI-22: SIGTERM while pods hang; it ends within seconds."""
    zones = [mirror("a", delay="1h")]
    async with run_world(zones, templates={"demo": 5}, choose=_of_a(_hanging())) as world:
        await asyncio.sleep(20)
        await world.set_template("demo", 3)
        await asyncio.sleep(1)
        began = elapsed()
        await world.process.stop()
        assert elapsed() - began < timedelta(seconds=2)


@in_virtual_time
async def test_ten_mirrored_groups_at_rest_send_next_to_nothing() -> None:
    """LI-11: at most six requests a minute, watches left out, and not one write."""
    zones, templates = [], {}
    for number in range(10):
        templates[f"t-{number}"] = 2
        zones += [
            mirror(f"{letter}{number}", f"t-{number}", group=f"group-{number}") for letter in "ab"
        ]
    async with run_world(zones, templates=templates) as world:
        await asyncio.sleep(600)
        began = elapsed()
        await asyncio.sleep(600)
        requested = world.requests(began, "get", "list", "patch", "update", "create", "delete")
        kinds = {(one.request.verb, one.request.resource.plural) for one in requested}
        assert len(requested) <= 60, kinds
        assert {one.request.verb for one in requested} <= {"get", "list"}, kinds


@in_virtual_time
async def test_groups_say_within_seconds_that_the_api_server_is_away() -> None:
    """LI-03, D-40: not the state from before until the next resync, which is minutes away."""
    async with run_world((follower("a"), follower("b", "a"))) as world:
        world.process.link.is_cut = True
        await asyncio.sleep(75)
        (entry,) = world.process.entries()
        assert Code.SNAPSHOT_STALE in {reason.code for reason in entry.plan.waits}
        lines = world.process.telemetry.health.list_descriptions()
        assert [line.partition(" watch: proved live ")[0] for line in lines] == [
            "statefulsets",
            "pods",
        ]
        assert all(" s ago: " in line for line in lines), lines
        world.process.link.is_cut = False
        await asyncio.sleep(30)
        (entry,) = world.process.entries()
        assert Code.SNAPSHOT_STALE not in {reason.code for reason in entry.plan.waits}


def _unguarded(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in labels.items() if key != PREPARE_DOWNSCALE}


async def _until_rolled(world: ScalingWorld) -> None:
    await world.wait_until(lambda: not name_unrolled(world.sandbox))


def _hanging() -> Behaviour:
    return replace(QUICK, prepare=HANGS, cancel=HANGS)


def _of_a(behaviour: Behaviour) -> Choose:
    return lambda pod: behaviour if name_of(pod).startswith("zone-a") else QUICK
