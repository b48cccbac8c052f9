"""What people do to a policy in mid-rollout, and values that no schema has kept out.

The simulated API server judges no field of a policy, as one with an old definition does not.
"""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from rollout_lab.model.history import Commit, Said
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import JsonObject
from tests.controllers.policies.world import ON, PolicyWorld
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough

PAUSE = timedelta(seconds=120)
PAUSED_FOR: dict[str, Any] = {"rollingUpdate": {"intervalSeconds": 120}}
EMPTY: dict[str, Any] = {"statefulSetSelector": {}}
VALUES: list[Any] = [0, "0", "0%", "101%", -1, "-1", "abc", "1.5", 1.5, [], True]
BATCH: JsonObject = {
    "number": 1,
    "zone": "us-west-2a",
    "statefulSet": "db-a",
    "updateRevision": "db-a-1",
    "pods": [{"name": "db-a-1", "uid": "unknown"}],
    "startTime": "2026-01-02T03:04:05Z",
}


def batch(**fields: Any) -> JsonObject:
    return {"lastBatch": {**BATCH, **fields}}


def list_gaps(world: PolicyWorld) -> list[timedelta]:
    """Return what lies between two deletes."""
    return [later.at - one.at for one, later in pairwise(world.deleted())]


def list_said(world: PolicyWorld, text: str) -> list[str]:
    """Return the lines of the log with a text."""
    return [one.text for one in world.sandbox.history.list_all(Said) if text in one.text]


def list_numbers(world: PolicyWorld, name: str = "db") -> list[int]:
    """Return the numbers of batches as the operator recorded them, each once, in their order."""
    numbers: list[int] = []
    for commit in world.sandbox.history.list_all(Commit):
        after: Any = commit.after
        if after and commit.resource.kind == "MultiAZRollout" and commit.name == name:
            number = after.get("status", {}).get("lastBatch", {}).get("number")
            is_ours = commit.actor.startswith("operator")
            if is_ours and number is not None and numbers[-1:] != [number]:
                numbers.append(number)
    return numbers


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        *(
            pytest.param(
                {"rollingUpdate": {"maxUnavailable": value}}, "InvalidSpec", id=f"MT-27 {value!r}"
            )
            for value in VALUES
        ),
        pytest.param({"azOrder": ["a", "a"]}, "InvalidSpec", id="MT-24"),
        pytest.param({"namespace": "other"}, "NamespaceMismatch", id="MT-60"),
        pytest.param(EMPTY, "EmptySelector", id="MT-61"),
        pytest.param({"statefulSetSelector": "app=db"}, "InvalidSpec", id="a selector in words"),
        pytest.param({"rollingUpdate": "fast"}, "InvalidSpec", id="a strategy in a word"),
    ],
)
@in_virtual_time
async def test_a_policy_that_is_refused_touches_nothing(spec: Any, reason: str) -> None:
    """MAZ-23: it says why, goes on once it is mended, and stops again once it is spoilt."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=1)
        await world.create_policy(**spec)
        await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(60)
        status = (await world.get())["status"]
        assert status["phase"] == "Invalid"
        assert status["conditions"][0]["message"].startswith("MultiAZRollout default/db: spec.")
        conditions = await world.conditions()
        assert (conditions["Accepted"], conditions["Ready"]) == (f"False {reason}",) * 2
        assert world.pods() == []
        mended = {"statefulSetSelector": {"matchLabels": {"app": "db"}}, "azOrder": None}
        await world.patch_policy({"spec": {**mended, "namespace": None, "rollingUpdate": None}})
        await world.sleep(20)
        assert world.pods() == ["db-a-0"]
        await world.patch_policy({"spec": dict.fromkeys(spec)})
        await world.patch_policy({"spec": spec})
        await world.sleep(60)
        assert world.pods() == ["db-a-0"]


@in_virtual_time
async def test_a_selector_that_changes_in_mid_rollout() -> None:
    """MAZ-46: what is selected no longer stays as it is; once it is again, it goes on."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("abc", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 20})
        await world.start()
        await world.roll_out()
        await world.sleep(5)
        assert world.pods() == ["db-a-1"]
        only: JsonObject = {"key": "name", "operator": "In", "values": ["db-b"]}
        await world.patch_policy({"spec": {"statefulSetSelector": {"matchExpressions": [only]}}})
        await world.sleep(120)
        assert world.pods() == ["db-a-1", "db-b-1", "db-b-0"]
        assert (await world.conditions())["Ready"] == "True UpToDate"
        await world.patch_policy({"spec": {"statefulSetSelector": {"matchExpressions": None}}})
        await world.sleep(120)
        assert (await world.conditions())["Ready"] == "True UpToDate"
    assert world.pods() == ["db-a-1", "db-b-1", "db-b-0", "db-a-0", "db-c-1", "db-c-0"]
    assert list_numbers(world) == [1, 2, 3, 4, 5, 6]
    assert min(list_gaps(world)[1:]) >= timedelta(seconds=20)


@in_virtual_time
async def test_two_policies_that_come_to_overlap_in_mid_rollout() -> None:
    """MT-62, MAZ-24: the younger one is out of service, with its open batch, and then goes on."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        for letter, app in (("a", "db"), ("b", "db"), ("c", "other")):
            labels = {"app": app, "zone": letter}
            await world.create_zones(letter, replicas=2, labels=labels)
        await world.create_policy("old", rollingUpdate={"intervalSeconds": 20})
        await world.sleep(2)
        selector = {"matchLabels": {"app": "other"}}
        await world.create_policy("young", **PAUSED_FOR, statefulSetSelector=selector)
        await world.start()
        await world.roll_out(letters="c")
        await world.sleep(10)
        assert world.pods() == ["db-c-1"]
        terms: JsonObject = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
        await world.patch_policy(
            {"spec": {"statefulSetSelector": {"matchLabels": None, **terms}}}, "young"
        )
        await world.roll_out(letters="ab")
        await world.sleep(200)
        assert (await world.conditions("young"))["Accepted"] == "False Conflict"
        assert (await world.get("young"))["status"]["lastBatch"]["number"] == 1
        assert world.pods() == ["db-c-1", "db-a-1", "db-a-0", "db-b-1", "db-b-0"]
        await world.delete_policy("old")
        await world.sleep(30)
    assert world.pods()[5:] == ["db-c-0"]
    assert list_numbers(world, "young") == [1, 2]


@in_virtual_time
async def test_a_zone_that_vanishes_in_mid_rollout() -> None:
    """MAZ-28, SI-26: in mid-batch; the others go on ten minutes later, and it is unknown then."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("abc", replicas=2)
        await world.create_policy(
            rollingUpdate={"intervalSeconds": 20}, azOrder=["us-west-2a", "us-west-2b"]
        )
        await world.start()
        await world.roll_out()
        await world.sleep(3)
        assert world.pods() == ["db-a-1"]
        await world.delete_set("db-a")
        await world.sleep(595)
        assert world.pods() == ["db-a-1"]
        assert (await world.conditions())["Ready"] == "False ZoneLeftShort"
        await world.sleep(200)
        status = (await world.get())["status"]
        assert [zone["name"] for zone in status["zones"]] == ["us-west-2b", "us-west-2c"]
        assert status["unknownZones"] == ["us-west-2a"]
        assert (await world.conditions())["Ready"] == "True UpToDate"
    assert world.pods() == ["db-a-1", "db-b-1", "db-b-0", "db-c-1", "db-c-0"]
    assert list_numbers(world) == [1, 2, 3, 4, 5]


@in_virtual_time
async def test_a_policy_that_was_removed_and_put_back_makes_its_pause_again() -> None:
    """MAZ-43: as those of a kind do that was removed: the pause follows from what the pods show."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("a", replicas=3)
        await world.create_policy(**PAUSED_FOR)
        await world.start()
        await world.roll_out(letters="a")
        await world.sleep(30)
        for _ in range(3):
            await world.delete_policy()
            await world.sleep(20)
            await world.create_policy(**PAUSED_FOR)
            await world.sleep(20)
        await world.sleep(120)
    assert world.pods() == ["db-a-2", "db-a-1", "db-a-0"]
    assert min(list_gaps(world)) >= PAUSE


@pytest.mark.parametrize(
    ("status", "is_said"),
    [
        pytest.param({"lastBatch": None}, False, id="no batch"),
        pytest.param(None, False, id="no status"),
        pytest.param(batch(completionTime="1970-01-01T00:00:00Z"), False, id="complete long ago"),
        pytest.param(batch(completionTime="2999-01-01T00:00:00Z"), False, id="complete one day"),
        pytest.param(batch(startTime="2999-01-01T00:00:00Z"), False, id="open from one day on"),
        pytest.param(batch(number=2**53 - 2), False, id="a number that has room"),
        pytest.param(batch(number=2**53 - 1), False, id="the last number"),
        pytest.param(batch(number=10**30), True, id="a number beyond all"),
        pytest.param(batch(pods=[]), False, id="no pods"),
        pytest.param(batch(statefulSet="db-z", updateRevision=""), False, id="of another set"),
        pytest.param({"zones": "a", "conditions": 7, "phase": 1}, True, id="fields of other types"),
    ],
)
@in_virtual_time
async def test_a_status_edited_by_hand_shortens_no_pause(status: Any, is_said: bool) -> None:
    """MAZ-43, FP-14: it is put right, and what cannot be read is logged once.

    Edited in the pause, in which all pods are up, and again in the next.
    """
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        with sandbox.listening():
            await world.create_zones("ab", replicas=2)
            await world.create_policy(**PAUSED_FOR)
            await world.start()
            await world.roll_out(letters="ab")
            for _ in range(2):
                await world.sleep(60)
                await world.edit_status(status)
                await world.sleep(110)
            found = (await world.get())["status"]
            await world.sleep(1000)
        assert (found["phase"], found["totalPods"], found["readyPods"]) == ("Waiting", 4, 4)
        assert (await world.conditions())["Ready"] == "True UpToDate"
        last = (await world.get())["status"]["lastBatch"]["number"]
    assert world.pods() == ["db-a-1", "db-a-0", "db-b-1", "db-b-0"]
    assert min(list_gaps(world)) >= PAUSE
    assert len(list_said(world, "counts as lost")) == (2 if is_said else 0)
    assert last >= 1


@pytest.mark.parametrize("hours", [-1, 1])
@in_virtual_time
async def test_clocks_that_are_apart_shorten_no_pause(hours: int) -> None:
    """MAZ-43, FP-17: the clock of the API server counts, on whichever replica."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("a", replicas=4)
        await world.create_policy(rollingUpdate={"intervalSeconds": 30})
        first = await world.start()
        await world.roll_out(letters="a")
        second = world.sandbox.process("operator-2", args=(ON,))
        second.clock.jump(timedelta(hours=hours))
        for one, other in ((first, second), (second, first), (first, second)):
            await world.sleep(20)
            one.clock.jump(timedelta(hours=hours))
            await world.sleep(5)
            one.crash()
            other.start()
            await other.wait_ready()
        await world.sleep(120)
        assert (await world.conditions())["Ready"] == "True UpToDate"
    assert world.pods() == [f"db-a-{ordinal}" for ordinal in (3, 2, 1, 0)]
    assert all(timedelta(seconds=30) <= gap < timedelta(seconds=50) for gap in list_gaps(world))
