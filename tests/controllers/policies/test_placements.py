"""What is read to find zones, and for how long that is remembered."""

from typing import Any

import msgspec

from rollout_operator.controllers.policies.placements import Placements
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.nodes import FollowedNodes
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.lab.zones import ZoneSpec, statefulset
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.telemetry.metrics import Metrics
from tests.builders import group, sts_uid, zone
from tests.planning.policies.policies import policy
from tests.virtual_time import VirtualClock, in_virtual_time


class TemplateReads:
    """Stands in for the API server: one StatefulSet, whose template names its zone."""

    def __init__(self) -> None:
        self.reads = 0

    async def fetch(self, *named: object, **how: object) -> bytes:
        """Return it, and count."""
        self.reads += 1
        body: Any = statefulset(ZoneSpec(name="zone-a", node_selector={TOPOLOGY_KEYS[0]: "2a"}))
        body["metadata"] |= {"uid": sts_uid("a"), "resourceVersion": "1", "generation": 1}
        return msgspec.json.encode(body)

    async def fetch_page(self, *named: object, **how: object) -> Any:
        """Nothing of this asks for pods or nodes."""
        raise AssertionError(named)


@in_virtual_time
async def test_maz14_a_template_is_read_once_until_its_set_is_gone() -> None:
    reader: Any = TemplateReads()
    clock = VirtualClock()
    nodes = FollowedNodes(reader, lambda of: Informer(reader, of, Metrics(), clock, lambda: 0.5))
    placements = Placements(reader, "test", PodStore(), nodes)
    wanted = policy()
    known = WatchedPolicy(resource_version="1", policy=wanted)

    async def resolve() -> str:
        found = await placements.resolve(known, wanted, group(zone("a")))
        return found.sets[0].zone

    assert [await resolve(), await resolve()] == ["2a", "2a"]
    assert reader.reads == 1
    placements.forget_set("zone-a")
    assert await resolve() == "2a"
    assert reader.reads == 2
