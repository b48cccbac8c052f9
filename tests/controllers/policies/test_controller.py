"""A MultiAZRollout in a simulated cluster: order, pauses, what holds it, and who else acts."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from rollout_lab.world import Sandbox

from rollout_operator.controllers.policy_zones import BURST
from rollout_operator.kube.api import STATEFULSETS
from tests.controllers.policies.world import PolicyWorld
from tests.virtual_time import in_virtual_time

SHORT: dict[str, Any] = {"rollingUpdate": {"intervalSeconds": 10}}
ALL = [f"db-{letter}-{ordinal}" for letter in "abc" for ordinal in (2, 1, 0)]


@in_virtual_time
async def test_mt20_nine_batches_zone_by_zone_with_a_pause_between() -> None:
    """The page's sample: three zones of three pods; the condition `Ready` says when it is done."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones()
        await world.create_policy(**SHORT)
        await world.start()
        await world.sleep(30)
        assert (await world.conditions())["Ready"] == "True UpToDate"
        await world.roll_out()
        await world.sleep(30)
        assert (await world.conditions())["Ready"] == "False RollingOut"
        await world.sleep(300)
        status = (await world.get())["status"]
        assert (await world.conditions())["Ready"] == "True UpToDate"
        zones = [await world.get(f"db-{letter}", STATEFULSETS) for letter in "abc"]
    assert world.pods() == ALL
    assert all(
        later.at - one.at >= timedelta(seconds=10) for one, later in pairwise(world.deleted())
    )
    assert (status["phase"], status["lastBatch"]["number"]) == ("Idle", 9)
    # MAZ-49
    assert all(one["status"]["currentRevision"] == one["status"]["updateRevision"] for one in zones)


@in_virtual_time
async def test_mt30_no_restart_shortens_or_repeats_a_pause() -> None:
    """A process that crashes at any moment has recorded what it did (MAZ-43)."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 30})
        process = await world.start()
        await world.roll_out(letters="ab")
        for _ in range(26):
            await world.sleep(7)
            process.crash()
            process.start()
            await process.wait_ready()
        assert (await world.conditions())["Ready"] == "True UpToDate"
        status = (await world.get())["status"]
    assert world.pods() == ["db-a-1", "db-a-0", "db-b-1", "db-b-0"]
    assert status["lastBatch"]["number"] == 4
    gaps = [later.at - one.at for one, later in pairwise(world.deleted())]
    assert min(gaps) >= timedelta(seconds=30)


@in_virtual_time
async def test_a_zone_that_is_scaled_up_in_mid_rollout_keeps_its_place(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """MAZ-46: whatever process comes to see it. The log names zone and StatefulSet."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones(replicas=2)
        await world.create_policy(**SHORT)
        process = await world.start()
        await world.sleep(5)
        await world.roll_out()
        await world.sleep(3)
        await world.patch_set("db-c", {"spec": {"replicas": 3}})
        await world.sleep(30)
        process.crash()
        process.start()
        await process.wait_ready()
        await world.sleep(300)
        assert (await world.conditions())["Ready"] == "True UpToDate"
    assert world.pods() == ["db-a-1", "db-a-0", "db-b-1", "db-b-0", "db-c-1", "db-c-0"]
    lines = "".join(capfd.readouterr())
    for word in ("Terminating pod", "Recording revision"):
        assert f'"{word}" policy=default/db zone=us-west-2a statefulset=db-a ' in lines


@in_virtual_time
async def test_mt31_another_interval_takes_effect_at_once() -> None:
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("a", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 3600})
        await world.start()
        await world.roll_out(letters="a")
        await world.sleep(120)
        assert world.pods() == ["db-a-1"]
        await world.patch_policy({"spec": {"rollingUpdate": {"intervalSeconds": 5}}})
        await world.sleep(5)
        assert world.pods() == ["db-a-1", "db-a-0"]


@in_virtual_time
async def test_li_09_policies_among_many_others_wait_for_their_turn(lines: list[str]) -> None:
    """Until it is decided who owns what, it is as if they were not there yet."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.start()
        for number in range(2 * BURST):
            await world.create_policy(f"db-{number}")
            await world.sleep(0.1)
        await world.sleep(5)
        assert (await world.conditions(f"db-{number}"))["Accepted"] == "True Accepted"
    assert not [line for line in lines if "level=error" in line]


@in_virtual_time
async def test_mt62_the_older_of_two_policies_works() -> None:
    """MAZ-03: the younger is refused until the older is gone. Nothing starts anew."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=1)
        await world.create_policy("old", **SHORT)
        await world.sleep(2)
        await world.create_policy("young", **SHORT)
        await world.start()
        await world.sleep(10)
        assert (await world.conditions("old"))["Accepted"] == "True Accepted"
        assert (await world.conditions("young"))["Accepted"] == "False Conflict"
        await world.delete_policy("old")
        await world.sleep(10)
        assert (await world.conditions("young"))["Accepted"] == "True Accepted"
        await world.roll_out(letters="ab")
        await world.sleep(120)
        assert (await world.conditions("young"))["Ready"] == "True UpToDate"


@in_virtual_time
async def test_mt63_a_policy_drives_a_whole_group_and_its_label_does_not() -> None:
    """MAZ-25: the group says who does. Without the policy the label goes on at once (MT-72)."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", group="db", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 600})
        process = await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(60)
        assert world.pods() == ["db-a-1"]
        (entry,) = process.entries()
        (wait,) = entry.plan.waits
        assert (wait.code, wait.text) == (
            "driven_by_policy",
            "MultiAZRollout default/db replaces the pods",
        )
        await world.delete_policy()
        await world.sleep(120)
    assert sorted(world.pods()) == ["db-a-0", "db-a-1", "db-b-0", "db-b-1"]


@in_virtual_time
async def test_mt64_a_policy_over_half_a_group_is_refused() -> None:
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", group="db", replicas=1)
        await world.patch_set("db-b", {"metadata": {"labels": {"app": "other"}}})
        await world.create_policy(rollingUpdate={"intervalSeconds": 600})
        await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(60)
        assert (await world.conditions())["Accepted"] == "False RolloutGroupSplit"
        assert (await world.get())["status"]["phase"] == "Invalid"
    assert world.pods() == ["db-a-0", "db-b-0"]


@in_virtual_time
async def test_mt65_rolling_update_is_refused_and_switched_on_request() -> None:
    """MAZ-27."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("a", strategy="RollingUpdate")
        await world.create_policy(**SHORT)
        await world.start()
        await world.sleep(10)
        assert (await world.conditions())["Ready"] == "False UpdateStrategyNotOnDelete"
        await world.patch_policy({"spec": {"manageUpdateStrategy": True}})
        await world.sleep(10)
        sts = await world.get("db-a", STATEFULSETS)
        assert sts["spec"]["updateStrategy"] == {"type": "OnDelete"}
        assert (await world.conditions())["Ready"] == "True UpToDate"


@in_virtual_time
async def test_a_status_edited_by_hand_is_put_right() -> None:
    """The last batch as another client wrote it shortens no pause that pods still prove."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("a", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 120})
        await world.start()
        await world.roll_out(letters="a")
        await world.sleep(60)
        assert world.pods() == ["db-a-1"]
        await world.patch_policy(
            {"status": {"phase": "Idle", "lastBatch": None, "totalPods": 77}}, part="status"
        )
        await world.sleep(20)
        assert world.pods() == ["db-a-1"]
        status = (await world.get())["status"]
        assert (status["phase"], status["totalPods"]) == ("Waiting", 2)


@in_virtual_time
async def test_mt05_nodes_say_the_zones_of_sets_that_say_nothing() -> None:
    """Only the nodes of their pods are read, and pods that move change nothing (MT-14)."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        for letter, zone in (("a", "z2"), ("b", "z1")):
            await world.create_node(f"node-{letter}", zone)
            await world.create_zones(
                letter, replicas=1, node=f"node-{letter}", labels={"app": "db"}
            )
        await world.create_policy(**SHORT)
        await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(120)
        zones = (await world.get())["status"]["zones"]
    assert [(one["name"], one["statefulSets"][0]["source"]) for one in zones] == [
        ("z1", "Nodes"),
        ("z2", "Nodes"),
    ]
    assert world.pods() == ["db-b-0", "db-a-0"]
