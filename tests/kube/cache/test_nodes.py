"""Following nodes for the zones they name: when wanted, where permitted, and no more labels."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import NODES, Page
from rollout_operator.kube.informer import Informer
from rollout_operator.kube.kinds import CHECK_INTERVAL
from rollout_operator.kube.nodes import KEY_LASTS, MOST_KEYS, FollowedNodes
from rollout_operator.model.decode.objects import decode_node
from rollout_operator.model.names import TOPOLOGY_KEYS, ApiError, DecodeError, Denied, Unreachable
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.scripted_watch import SILENCE, ScriptedApi, Step, as_raw, modified, page
from tests.virtual_time import in_virtual_time

ZONE, OLDER = TOPOLOGY_KEYS
RACK = "example.com/rack"
LABELS = {ZONE: "a", OLDER: "b", RACK: "r1", "kubernetes.io/hostname": "n1"}
FORBIDDEN = Denied("list nodes: forbidden", status=403)
PROBE = [page(1)]


def node(name: str, version: int = 1, labels: Mapping[str, str] | None = LABELS) -> msgspec.Raw:
    head = {"name": name, "uid": f"uid-{name}", "resourceVersion": f"{version}", "labels": labels}
    return as_raw({"kind": "Node", "metadata": head, "spec": {}, "status": {"images": []}})


class Rig:
    """Nodes on a script of lists and watches."""

    def __init__(self, *script: Page | ApiError, watches: Sequence[Sequence[Step]] = ()) -> None:
        self.api = ScriptedApi([script], watches)
        self.clock = LoopClock()
        self.nodes = FollowedNodes(
            self.api,
            lambda of: Informer(self.api, of, Metrics(), self.clock, lambda: 0.5),
            self.clock,
        )
        self.changes = 0
        self.nodes.on_change(self._count)

    def _count(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FollowedNodes]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.nodes.run(), name="nodes")
            yield self.nodes
            task.cancel()


def assert_unknown(nodes: FollowedNodes, key: str, why: str) -> None:
    with pytest.raises(Unreachable, match=why):
        nodes.find_labels(key, "prod")


@in_virtual_time
async def test_nodes_that_are_not_requested_cost_no_request() -> None:
    rig = Rig(*PROBE, page(2, node("n1")))
    async with rig.running():
        await asyncio.sleep(3600)
    assert rig.api.lists == []


@in_virtual_time
async def test_maz_16_the_labels_that_are_requested_are_kept() -> None:
    """MAZ-16: by the default key also the older; no others."""
    rig = Rig(*PROBE, page(2, node("n1"), node("n2", labels=None)), watches=[SILENCE])
    async with rig.running() as nodes:
        assert_unknown(nodes, ZONE, "no answer yet")
        await asyncio.sleep(1)
        assert nodes.find_labels(ZONE, "prod") == {"n1": {ZONE: "a", OLDER: "b"}, "n2": {}}
    assert rig.changes == 1


@in_virtual_time
async def test_a_key_that_is_requested_later_is_listed_first() -> None:
    """MT-08: a node without the label in an older view is no node without it."""
    rig = Rig(*PROBE, page(2, node("n1")), page(2, node("n1")), watches=[SILENCE, SILENCE])
    async with rig.running() as nodes:
        assert_unknown(nodes, ZONE, "no answer yet")
        await asyncio.sleep(1)
        assert_unknown(nodes, RACK, f"not listed yet with label {RACK}")
        assert_unknown(nodes, RACK, f"not listed yet with label {RACK}")
        await asyncio.sleep(1)
        assert nodes.find_labels(RACK, "prod") == {"n1": {ZONE: "a", OLDER: "b", RACK: "r1"}}


@in_virtual_time
async def test_sec_13_a_namespace_has_few_keys_at_a_time_and_takes_none_from_others() -> None:
    """A tenant who may write policies names keys, and each new one has all nodes listed anew."""
    lists = [page(2, node("n1")) for _ in range(40)]
    rig = Rig(*PROBE, *lists, watches=[SILENCE] * 40)
    own = [f"example.com/{number}" for number in range(MOST_KEYS)]
    async with rig.running() as nodes:
        assert_unknown(nodes, ZONE, "no answer yet")
        await asyncio.sleep(1)
        for key in own:
            assert_unknown(nodes, key, "not listed yet")
        await asyncio.sleep(20)
        assert all(nodes.find_labels(key, "prod") is not None for key in own)
        listed = len(rig.api.lists)
        for number in range(1000):
            assert_unknown(nodes, f"tenant/{number}", "other labels")
        await asyncio.sleep(60)
        assert len(rig.api.lists) == listed
        with pytest.raises(Unreachable, match="not listed yet"):
            nodes.find_labels(RACK, "other")
        await asyncio.sleep(KEY_LASTS.total_seconds())
        assert nodes.find_labels(own[0], "prod") is not None
        await asyncio.sleep(1)
        assert_unknown(nodes, "tenant/1", "not listed yet")


@in_virtual_time
async def test_a_list_of_nodes_is_reported_once() -> None:
    """Each wakes all policies of all namespaces."""
    rig = Rig(*PROBE, page(2, *(node(f"n{number}") for number in range(50))), watches=[SILENCE])
    async with rig.running() as nodes:
        assert_unknown(nodes, ZONE, "no answer yet")
        await asyncio.sleep(1)
    assert rig.changes == 1


@in_virtual_time
async def test_mt_13_nodes_that_may_not_be_read_are_none() -> None:
    """MT-13, MAZ-20: no crash; a right that is given later counts without a restart."""
    rig = Rig(FORBIDDEN, *PROBE, page(2, node("n1")), watches=[SILENCE])
    async with rig.running() as nodes:
        assert_unknown(nodes, ZONE, "no answer yet")
        await asyncio.sleep(0.5)
        assert nodes.find_labels(ZONE, "prod") is None
        await asyncio.sleep(CHECK_INTERVAL.total_seconds())
        assert nodes.find_labels(ZONE, "prod") == {"n1": {ZONE: "a", OLDER: "b"}}


@in_virtual_time
async def test_a_heartbeat_of_a_node_is_no_change() -> None:
    beat, moved = node("n1", 3), node("n1", 4, {ZONE: "b"})
    watch: list[Step] = [modified(beat), modified(moved), *SILENCE]
    rig = Rig(*PROBE, page(2, node("n1")), watches=[watch])
    async with rig.running() as nodes:
        assert_unknown(nodes, ZONE, "no answer yet")
        await asyncio.sleep(1)
        assert nodes.find_labels(ZONE, "prod") == {"n1": {ZONE: "b"}}
    assert rig.changes == 2


def test_a_node_that_cannot_be_read_is_named() -> None:
    with pytest.raises(DecodeError, match=r"Node n1: metadata\.labels"):
        decode_node(as_raw({"metadata": {"name": "n1", "labels": 7}}), frozenset())


def test_nodes_belong_to_the_cluster() -> None:
    assert NODES.path("", "n1") == "/api/v1/nodes/n1"
