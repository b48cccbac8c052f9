"""What keeps a policy from replacing pods, by a process in a simulated cluster: MT-28 to MT-51."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from rollout_lab.model.fields import name_of
from rollout_lab.model.history import Called, Commit
from rollout_lab.network.faults import EVENT_OUTCOME, EventOutcome, NoFaults
from rollout_lab.nodes.behaviour import Behaviour, StartKind, image_of
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    PODS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
)
from rollout_operator.model.names import PAUSED
from tests.controllers.policies.world import PolicyWorld
from tests.simulation.drainers import zone_budget
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough

BAD = "bad"
SLOW = "slow"
UNEVEN = "uneven"
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
LONG: dict[str, Any] = {"rollingUpdate": {"intervalSeconds": 600}}
NO_PAUSE: dict[str, Any] = {"rollingUpdate": {"intervalSeconds": 0}}


def choose(pod: Any) -> Behaviour:
    """Let pods of one image crash, and others take their time, or one of them."""
    if image_of(pod) == BAD:
        return Behaviour(kind=StartKind.CRASH_LOOP)
    if image_of(pod) == SLOW:
        return Behaviour(terminates_after=MINUTE, ready_after=MINUTE)
    if image_of(pod) == UNEVEN and name_of(pod) == "db-a-1":
        return Behaviour(ready_after=MINUTE)
    return Behaviour(ready_after=SECOND)


@asynccontextmanager
async def playing(
    letters: str = "ab", policy: dict[str, Any] = LONG, image: str = "v1", **fields: Any
) -> AsyncIterator[PolicyWorld]:
    """Play a policy over zones, with a process that has seen all pods ready."""
    async with Sandbox(choose=choose) as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones(letters, **{"replicas": 2, "image": image, **fields})
        await world.sleep(60)
        await world.create_policy(**policy)
        await world.start()
        await world.sleep(5)
        yield world


async def expect(world: PolicyWorld, phase: str, ready: str) -> None:
    """Assert what phase and condition `Ready` say."""
    found = (await world.get())["status"]["phase"], (await world.conditions())["Ready"]
    assert found == (phase, f"False {ready}")


@in_virtual_time
async def test_mt28_a_failure_in_the_pause_begins_it_anew() -> None:
    """MAZ-40: a pod of another zone is down from 10 s to 20 s of a pause of 30 s."""
    async with playing(policy={"rollingUpdate": {"intervalSeconds": 30}}) as world:
        await world.roll_out(letters="a")
        await world.sleep(15)
        assert world.pods() == ["db-a-1"]
        world.sandbox.cluster.fail_pod("db-b-0")
        await world.sleep(10)
        await expect(world, "Waiting", "ZoneNotReady")
        world.sandbox.cluster.mend_pod("db-b-0")
        recovered = world.sandbox.elapsed()
        await world.sleep(40)
        (_, second) = world.deleted()
    assert timedelta(seconds=30) <= second.at - recovered < timedelta(seconds=32)


@in_virtual_time
async def test_mt29_without_a_pause_the_window_slides() -> None:
    """MAZ-42: two may be down. One comes back after a minute, the third goes long before."""
    update = {"intervalSeconds": 0, "maxUnavailable": 2}
    async with playing("a", {"rollingUpdate": update}, replicas=3) as world:
        await world.roll_out(UNEVEN, letters="a")
        await world.sleep(1)
        assert world.pods() == ["db-a-2", "db-a-1"]
        await world.sleep(20)
        assert world.pods() == ["db-a-2", "db-a-1", "db-a-0"]
        assert not world.is_ready("db-a-1")


@in_virtual_time
async def test_mt40_an_unready_pod_of_another_zone_holds_all() -> None:
    """MAZ-32."""
    async with playing() as world:
        world.sandbox.cluster.fail_pod("db-b-0")
        await world.roll_out(letters="a")
        await world.sleep(120)
        assert world.pods() == []
        await expect(world, "Waiting", "ZoneNotReady")


@in_virtual_time
async def test_mt41_unready_pods_in_two_zones_stop_everything() -> None:
    """MAZ-45; D-88: but the template that they wait for."""
    async with playing("abc") as world:
        for name in ("db-a-0", "db-b-0"):
            world.sandbox.cluster.fail_pod(name)
        await world.roll_out(letters="c")
        await world.sleep(120)
        assert world.pods() == []
        await expect(world, "Blocked", "MultipleZonesUnavailable")
        await world.roll_out(letters="ab")
        await world.sleep(2)
        assert world.pods() == ["db-a-0", "db-b-0"]
        await world.sleep(60)
        assert world.pods() == ["db-a-0", "db-b-0"]
        await expect(world, "Waiting", "RollingOut")


@in_virtual_time
async def test_mt42_the_zone_that_is_short_goes_first() -> None:
    """MAZ-45: whatever the order says."""
    async with playing("abc") as world:
        world.sandbox.cluster.fail_pod("db-b-0")
        await world.roll_out()
        await world.sleep(120)
    assert world.pods() == ["db-b-0"]


@in_virtual_time
async def test_mt43_a_zone_without_any_pod_holds_all() -> None:
    """MAZ-32: none of them is created again yet."""
    async with playing(policy={**NO_PAUSE, "paused": True}) as world:
        await world.roll_out(letters="ab")
        await world.sleep(5)
        assert (await world.get())["status"]["phase"] == "Paused"
        world.sandbox.cluster.lag_controller(timedelta(minutes=3))
        for ordinal in range(2):
            await world.delete_pod(f"db-a-{ordinal}")
        await world.patch_policy({"spec": {"paused": False}})
        await world.sleep(150)
        assert world.pods() == []
        world.sandbox.cluster.lag_controller(timedelta(0))
        await world.sleep(150)
    assert world.pods() == ["db-b-1", "db-b-0"]


@in_virtual_time
async def test_mt44_a_pod_on_its_way_out_counts_as_unavailable() -> None:
    """MAZ-32: it is ready until its very end."""
    async with playing(image=SLOW, policy=NO_PAUSE) as world:
        await world.delete_pod("db-b-0")
        await world.roll_out("v2", letters="a")
        await world.sleep(40)
        assert world.is_ready("db-b-0")
        assert world.pods() == []
        await expect(world, "Waiting", "ZoneNotReady")


@in_virtual_time
async def test_mt45_an_outdated_pod_that_crashes_is_replaced() -> None:
    """MAZ-38: it costs no budget and waits for no pause, and the healthy one does."""
    async with playing("a") as world:
        await world.roll_out(letters="a")
        await world.sleep(20)
        assert world.pods() == ["db-a-1"]
        world.sandbox.cluster.fail_pod("db-a-0")
        await world.sleep(20)
    assert world.pods() == ["db-a-1", "db-a-0"]


@in_virtual_time
async def test_mt46_mt47_an_updated_pod_that_crashes_waits_until_the_rollback(
    lines: list[str],
) -> None:
    """MAZ-44, MAZ-47: it has stalled, other zones stay; the rollback waits for no pause.

    One line of the log says so, and names the pod.
    """
    policy = {**LONG, "progressDeadlineSeconds": 30}
    async with playing(policy=policy) as world:
        await world.roll_out(BAD, letters="ab")
        await world.sleep(120)
        assert world.pods() == ["db-a-1"]
        conditions = await world.conditions()
        assert conditions["Progressing"] == "False ProgressDeadlineExceeded"
        assert conditions["Stalled"] == "True ProgressDeadlineExceeded"
        (stalled,) = [line for line in lines if "Policy has stalled" in line]
        assert "level=warn" in stalled
        assert "db-a-1" in stalled
        await world.roll_out("v1", letters="ab")
        await world.sleep(30)
        assert (await world.conditions())["Ready"] == "True UpToDate"
        assert world.pods() == ["db-a-1", "db-a-1"]


@in_virtual_time
async def test_mt48_pods_are_outdated_by_their_own_label() -> None:
    """MAZ-47: the template is reverted, so that both revisions of the StatefulSet are equal."""
    async with playing("a") as world:
        await world.roll_out(letters="a")
        await world.sleep(20)
        await world.roll_out("v1", letters="a")
        await world.sleep(1)
        found = (await world.get("db-a", STATEFULSETS))["status"]
        assert found["currentRevision"] == found["updateRevision"]
        assert world.pods() == ["db-a-1"]
        await world.sleep(650)
        assert world.pods() == ["db-a-1", "db-a-1"]
        assert (await world.conditions())["Ready"] == "True UpToDate"


class Blind(NoFaults):
    """Shows nothing of one zone, once it is requested."""

    def __init__(self) -> None:
        self.is_blind = False

    def on_event(self, actor: str, plural: str, type: str, name: str, number: int) -> EventOutcome:
        is_hidden = self.is_blind and name.startswith("db-b")
        return EventOutcome(drop=True) if is_hidden else EVENT_OUTCOME


@in_virtual_time
async def test_mt49_what_the_cache_shows_as_ready_is_read_live_before() -> None:
    """Step 10: caches that lack the news of zone b delete nothing in zone a."""
    blind = Blind()
    async with Sandbox(choose=choose, faults=blind) as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=2)
        await world.create_policy(**NO_PAUSE)
        await world.start()
        await world.sleep(5)
        blind.is_blind = True
        sandbox.cluster.fail_pod("db-b-0")
        await world.roll_out(letters="a")
        await world.sleep(25)
        reads = [one for one in sandbox.history.list_all(Called) if one.request.verb == "list"]
        assert len([one for one in reads if one.request.resource == PODS]) >= 2
        assert world.pods() == []
        blind.is_blind = False  # what the live reads contradict is listed again
        sandbox.cluster.mend_pod("db-b-0")
        await world.sleep(60)
    assert world.pods() == ["db-a-1", "db-a-0"]


@in_virtual_time
async def test_a_batch_is_recorded_once_between_its_live_read_and_its_deletes() -> None:
    """Steps 10 to 13: one read for both. A second one waits for the API server's own cache."""
    async with playing(policy=NO_PAUSE) as world:
        begun = world.sandbox.elapsed()
        await world.roll_out(letters="ab")
        await world.sleep(60)
        calls = [
            one.request.verb
            for one in world.sandbox.history.list_all(Called)
            if one.begun > begun
            and one.actor.startswith("operator")
            and one.request.resource in (PODS, MULTI_AZ_ROLLOUTS)
        ]
        assert world.pods() == ["db-a-1", "db-a-0", "db-b-1", "db-b-0"]
    deletes = [place for place, verb in enumerate(calls) if verb == "delete"]
    assert all(calls[place - 2 : place] == ["list", "patch"] for place in deletes)
    assert calls.count("list") == len(deletes)


@in_virtual_time
async def test_a_batch_that_a_budget_holds_is_recorded_and_goes_once_it_may() -> None:
    """Step 13: its record stays the same, and no other pod goes instead of one of it."""
    team = {"team": "storage"}
    own: dict[str, Any] = {"labels": {"app": "db", **team}, "pod_labels": team}
    async with playing(policy=NO_PAUSE, **own) as world:
        await world.create_zones("c", replicas=1, labels=team, pod_labels=team)
        await world.create(ZONE_BUDGETS, zone_budget("storage", team, maxUnavailable=1))
        world.sandbox.cluster.fail_pod("db-c-0")
        await world.sleep(5)
        await world.roll_out(letters="a")
        await world.sleep(60)
        held = (await world.get())["status"]["lastBatch"]
        assert world.pods() == []
        world.sandbox.cluster.mend_pod("db-c-0")
        await world.sleep(60)
        assert world.pods() == ["db-a-1", "db-a-0"]
        bodies: list[Any] = [
            one.request.body for one in world.sandbox.history.list_all(Called) if is_patch(one)
        ]
    batches = [batch for body in bodies if (batch := body["status"]["lastBatch"])]
    assert (held["number"], [pod["name"] for pod in held["pods"]]) == (1, ["db-a-1"])
    assert sorted({(one["number"], one["startTime"]) for one in batches}) == [
        (1, held["startTime"]),
        (2, batches[-1]["startTime"]),
    ]


@pytest.mark.parametrize("elects", [True, False])
@in_virtual_time
async def test_mt50_two_replicas_record_no_batch_twice(elects: bool) -> None:
    """One leads; without an election the status of the other is refused as a conflict."""
    async with Sandbox(choose=choose) as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 5})
        for number in (1, 2):
            await world.start(name=f"operator-{number}", elects=elects)
        await world.roll_out(letters="ab")
        await world.sleep(120)
        assert (await world.conditions())["Ready"] == "True UpToDate"
        ended = [
            (commit.at, commit.name)
            for commit in sandbox.history.list_all(Commit)
            if commit.resource == PODS and commit.actor.startswith("operator")
        ]
        acting = {one.actor for one in sandbox.history.list_all(Called) if is_patch(one)}
        assert (await world.get())["status"]["lastBatch"]["number"] == 4
    assert [name for _, name in ended] == ["db-a-1", "db-a-0", "db-b-1", "db-b-0"]
    assert all(then - at >= 5 * SECOND for (at, _), (then, _) in pairwise(ended))
    assert len(acting) == (1 if elects else 2)


def is_patch(one: Called) -> bool:
    """Return whether a process tried to record something of a policy."""
    request = one.request
    return (request.verb, request.resource.kind) == ("patch", "MultiAZRollout")


@in_virtual_time
async def test_mt51_a_zone_that_is_scaled_down_holds_the_others() -> None:
    """MAZ-35: for as long as its pods go, though none of them is wanted."""
    async with playing(image=SLOW, policy=NO_PAUSE, replicas=3) as world:
        await world.patch_set("db-b", {"spec": {"replicas": 1}})
        await world.roll_out("v2", letters="a")
        await world.sleep(40)
        assert world.pods() == []
        await expect(world, "Waiting", "RollingOut")
        await world.sleep(30)
        assert world.pods() == ["db-a-2"]


@in_virtual_time
async def test_maz26_a_paused_set_counts_as_done_and_holds_with_its_pods_that_are_down() -> None:
    paused: JsonObject = {"metadata": {"annotations": {PAUSED: "true"}}}
    async with playing(policy=NO_PAUSE) as world:
        await world.patch_set("db-a", paused)
        world.sandbox.cluster.fail_pod("db-a-0")
        await world.roll_out(letters="ab")
        await world.sleep(60)
        assert world.pods() == []
        world.sandbox.cluster.mend_pod("db-a-0")
        await world.sleep(60)
    assert world.pods() == ["db-b-1", "db-b-0"]
