"""Zones stay as they are while a batch is open, or a rollout, whichever process reads them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rollout_operator.kube.api import NODES, JsonObject
from rollout_operator.lab.model.request import MERGE_PATCH, ApiRequest
from rollout_operator.lab.nodes.behaviour import Behaviour, image_of
from rollout_operator.lab.world import Sandbox
from rollout_operator.model.names import TOPOLOGY_KEYS
from tests.controllers.policies.world import PolicyWorld
from tests.virtual_time import in_virtual_time

RACK = "example.com/rack"


def choose(pod: Any) -> Behaviour:
    """Let pods of the new template take a minute."""
    return Behaviour(ready_after=timedelta(seconds=60 if image_of(pod) == "v2" else 1))


async def map_zones(world: PolicyWorld) -> Mapping[str, str]:
    """Return the zones of StatefulSets, as the status has them."""
    zones = (await world.get())["status"]["zones"]
    return {one["name"]: zone["name"] for zone in zones for one in zone["statefulSets"]}


@in_virtual_time
async def test_maz20_another_key_counts_once_no_batch_is_open_over_restarts() -> None:
    """The key by which zones were found is in the status: a process that begins then knows it."""
    async with Sandbox(choose=choose) as sandbox:
        world = PolicyWorld(sandbox)
        for letter in "ab":
            labels = {"app": "db", TOPOLOGY_KEYS[0]: f"us-west-2{letter}", RACK: "r1"}
            await world.create_zones(letter, replicas=1, labels=labels)
        await world.create_policy(rollingUpdate={"intervalSeconds": 30})
        first = await world.start("-leader-election.enabled=true")
        await world.roll_out(letters="ab")
        await world.sleep(10)
        before = await map_zones(world)
        assert before == {"db-a": "us-west-2a", "db-b": "us-west-2b"}
        await world.patch_policy({"spec": {"rollingUpdate": {"azTopologyKey": RACK}}})
        await world.sleep(5)
        first.crash()
        await world.start("-leader-election.enabled=true", name="operator-2")
        await world.sleep(30)
        status = (await world.get())["status"]
        assert "completionTime" not in status["lastBatch"]
        assert (await map_zones(world), status["azTopologyKey"]) == (before, TOPOLOGY_KEYS[0])
        assert status["observedGeneration"] == 2
        await world.sleep(30)
        status = (await world.get())["status"]
        assert status["lastBatch"]["number"] == 1
        assert await map_zones(world) == {"db-a": "r1", "db-b": "r1"}
        assert status["azTopologyKey"] == RACK
        await world.sleep(120)
        assert (await world.conditions())["Ready"] == "True UpToDate"
    assert world.pods() == ["db-a-0", "db-b-0"]


@in_virtual_time
async def test_mt14_a_node_of_another_zone_changes_nothing_in_mid_rollout_over_restarts() -> None:
    """MAZ-20: nor does one that is gone; when the rollout is complete they are read again."""
    async with Sandbox(choose=choose) as sandbox:
        world = PolicyWorld(sandbox)
        for letter, zone in (("a", "z1"), ("b", "z2")):
            await world.create_node(f"node-{letter}", zone)
            await world.create_zones(
                letter, replicas=1, node=f"node-{letter}", labels={"app": "db"}
            )
        await world.create_policy(rollingUpdate={"intervalSeconds": 10})
        process = await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(10)
        moved: JsonObject = {"metadata": {"labels": {TOPOLOGY_KEYS[0]: "z2"}}}
        await sandbox.call(
            ApiRequest(
                verb="patch", resource=NODES, name="node-a", content_type=MERGE_PATCH, body=moved
            )
        )
        process.crash()
        process.start()
        await sandbox.call(ApiRequest(verb="delete", resource=NODES, name="node-b"))
        await world.sleep(70)
        assert (await world.get())["status"]["lastBatch"]["number"] == 2
        assert await map_zones(world) == {"db-a": "z1", "db-b": "z2"}
        await world.sleep(120)
        assert (await world.conditions())["Ready"] == "True UpToDate"
        assert await map_zones(world) == {"db-a": "z2", "db-b": "db-b"}
    assert world.pods() == ["db-a-0", "db-b-0"]
