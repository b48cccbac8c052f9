"""What is read to find zones, in how many requests, and for how long that is remembered.

Zones stay as they are while a batch is open, or a rollout, whichever process reads them.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.nodes.behaviour import Behaviour, image_of
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.controllers.policy_zones import Placements
from rollout_operator.kube.api import NODES, PODS, STATEFULSETS, JsonObject, Page, Resource
from rollout_operator.kube.informer import Informer
from rollout_operator.kube.nodes import FollowedNodes
from rollout_operator.kube.store import PodStore
from rollout_operator.model.names import TOPOLOGY_KEYS, DecodeError, Unreachable
from rollout_operator.model.policy import WatchedPolicy
from rollout_operator.telemetry.metrics import Metrics
from tests.builders import group, pod, sts_uid, zone
from tests.controllers.policies.world import PolicyWorld
from tests.kube.cache.stage import raw
from tests.planning.policies.snapshots import policy
from tests.virtual_time import VirtualClock, in_virtual_time

Body = dict[str, Any]

RACK = "example.com/rack"


def template(letter: str, node_selector: Mapping[str, str]) -> Body:
    """Return a StatefulSet, whose template says no more of its zone."""
    body: Body = statefulset(ZoneSpec(name=f"zone-{letter}", node_selector=node_selector))
    body["metadata"] |= {"uid": sts_uid(letter), "resourceVersion": "1", "generation": 1}
    return body


class Reads:
    """Stands in for the API server, and keeps what was read."""

    def __init__(self, *sets: Body) -> None:
        self.sets = {body["metadata"]["name"]: body for body in sets}
        self.read: list[str] = []

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Return a StatefulSet."""
        self.read.append(name)
        return msgspec.json.encode(self.sets[name])

    async def fetch_page(
        self, resource: Resource, namespace: str, *, selector: str = "", **how: object
    ) -> Page:
        """Return all StatefulSets, or a pod of each on a node of its own."""
        assert resource in (STATEFULSETS, PODS), "nodes are not followed here"
        self.read.append(f"{resource.plural} {selector}")
        items = [*self.sets.values()]
        if resource is PODS:
            letters = [name[-1] for name in self.sets]
            items = [
                {"metadata": {"uid": f"uid-{one}-0"}, "spec": {"nodeName": f"node-{one}"}}
                for one in letters
            ]
        return Page(items=[raw(body) for body in items], resource_version="1")


class Rig:
    """Placements that read from there."""

    def __init__(self, *sets: Body) -> None:
        self.reads = Reads(*sets)
        reader: Any = self.reads
        clock = VirtualClock()
        nodes = FollowedNodes(
            reader, lambda of: Informer(reader, of, Metrics(), clock, lambda: 0.5), clock
        )
        pods = PodStore()
        for letter in "abc":
            pods.upsert(pod(letter, 0, ip="10.0.0.1"))
        self.placements = Placements(reader, "test", pods, nodes)

    async def resolve(self, letters: str, **fields: Any) -> list[str]:
        """Return the zones of these StatefulSets."""
        wanted = policy(**fields)
        known = WatchedPolicy(resource_version="1", policy=wanted)
        members = group(*(zone(letter) for letter in letters))
        found = await self.placements.resolve(known, wanted, members)
        return [one.zone for one in found.sets]


@in_virtual_time
async def test_maz14_a_template_is_read_once_until_its_set_is_gone() -> None:
    rig = Rig(template("a", {TOPOLOGY_KEYS[0]: "2a"}))

    assert [await rig.resolve("a"), await rig.resolve("a")] == [["2a"], ["2a"]]
    assert rig.reads.read == ["zone-a"]
    rig.placements.forget_set("zone-a")
    assert await rig.resolve("a") == ["2a"]
    assert rig.reads.read == ["zone-a", "zone-a"]


@in_virtual_time
async def test_another_key_is_found_in_a_template_that_was_read() -> None:
    """Nothing else of it was kept."""
    rig = Rig(template("a", {TOPOLOGY_KEYS[0]: "2a", "example.com/rack": "r1"}))

    assert await rig.resolve("a") == ["2a"]
    assert await rig.resolve("a", topology_key="example.com/rack") == ["r1"]
    assert rig.reads.read == ["zone-a", "zone-a"]


@in_virtual_time
async def test_what_is_read_of_several_sets_comes_in_one_list() -> None:
    """A process that starts reads it for each policy, within the rate limits."""
    rig = Rig(*(template(letter, {}) for letter in "abc"))

    for _ in range(2):
        with pytest.raises(Unreachable, match="nodes"):
            await rig.resolve("abc")
    pods = "pods name in (zone-a,zone-b,zone-c)"
    assert rig.reads.read == ["statefulsets app=db", pods]


@in_virtual_time
async def test_a_set_that_cannot_be_read_counts_where_it_is_requested() -> None:
    written = {TOPOLOGY_KEYS[0]: "2a"}
    broken = template("c", {}) | {"spec": 7}
    rig = Rig(template("a", written), template("b", written), broken)

    assert await rig.resolve("ab") == ["2a", "2a"]
    rig.placements.forget_set("zone-a")
    with pytest.raises(DecodeError, match="zone-c"):
        await rig.resolve("abc")


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
