"""Nodes of the sandbox: where pods go, and what a cordon changes (S8, drains of nodes)."""

from collections import Counter

from rollout_lab.model.fields import children, text
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.nodes.nodes import node, node_of
from rollout_lab.schemas.kinds import NODES
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from tests.lab.cluster_world import World, world
from tests.virtual_time import in_virtual_time

HERE = {"zone": "a"}
WEB = ZoneSpec(name="web", replicas=4, pod_labels={"app": "web"}, node_selector=HERE)


def add_nodes(rig: World, *names: str, zone: str = "a") -> None:
    for name in names:
        body = node(name, {"zone": zone})
        answer = rig.api.call_now(ApiRequest(verb="create", resource=NODES, body=body))
        assert answer.is_ok, answer.message


def cordon(rig: World, name: str, *, is_on: bool = True) -> None:
    body: JsonObject = {"spec": {"unschedulable": is_on}}
    request = ApiRequest(
        verb="patch", resource=NODES, name=name, body=body, content_type=MERGE_PATCH
    )
    assert rig.api.call_now(request).is_ok


def places(rig: World) -> Counter[str]:
    return Counter(node_of(one) for one in rig.pods())


@in_virtual_time
async def test_pods_spread_over_the_nodes_of_their_zone() -> None:
    with world() as rig:
        add_nodes(rig, "a-1", "a-2")
        add_nodes(rig, "b-1", zone="b")
        await rig.bring_up(WEB)

        assert places(rig) == {"a-1": 2, "a-2": 2}
        labels = {text(one, "metadata", "labels", "app") for one in rig.pods()}
        assert labels == {"web"}


@in_virtual_time
async def test_a_cordoned_node_gets_no_pod_and_keeps_what_it_has() -> None:
    with world() as rig:
        add_nodes(rig, "a-1", "a-2")
        await rig.bring_up(WEB)
        cordon(rig, "a-1")
        leaving = next(one for one in rig.pods() if node_of(one) == "a-1")
        name = text(leaving, "metadata", "name")
        rig.delete_pod(name)
        await rig.until(lambda: name not in rig.pod_names())
        await rig.until_ready("web")

        assert places(rig) == {"a-1": 1, "a-2": 3}


@in_virtual_time
async def test_a_pod_without_a_node_waits_for_one() -> None:
    with world() as rig:
        add_nodes(rig, "a-1")
        cordon(rig, "a-1")
        rig.create(ZoneSpec(name="web", replicas=1, node_selector=HERE))
        await rig.until(lambda: any(waits(one) for one in rig.pods()))
        assert places(rig) == {"": 1}

        cordon(rig, "a-1", is_on=False)
        await rig.until_ready("web")
        assert places(rig) == {"a-1": 1}


def waits(pod: JsonObject) -> bool:
    return any(
        one.get("reason") == "Unschedulable" for one in children(pod, "status", "conditions")
    )
