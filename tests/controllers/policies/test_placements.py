"""What is read to find zones, in how many requests, and for how long that is remembered."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from rollout_operator.controllers.policies.placements import Placements
from rollout_operator.kube.api import PODS, STATEFULSETS, Page, Resource
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.nodes import FollowedNodes
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.lab.zones import ZoneSpec, statefulset
from rollout_operator.model.errors import DecodeError, Unreachable
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.telemetry.metrics import Metrics
from tests.builders import group, pod, sts_uid, zone
from tests.kube.scripted_watch import as_raw
from tests.planning.policies.policies import policy
from tests.virtual_time import VirtualClock, in_virtual_time

Body = dict[str, Any]


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
        return Page(items=[as_raw(body) for body in items], resource_version="1")


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
