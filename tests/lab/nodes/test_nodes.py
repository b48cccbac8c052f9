"""Nodes of the sandbox: where pods go, and what a cordon changes (S8, drains of nodes)."""

from collections import Counter

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import children, text
from rollout_operator.lab.model.request import MERGE_PATCH, ApiRequest
from rollout_operator.lab.nodes.nodes import node, node_of
from rollout_operator.lab.schemas.kinds import NODES
from rollout_operator.lab.zones import ZoneSpec
from tests.lab.cluster_world import World, world
from tests.virtual_time import in_virtual_time

HERE = {"zone": "a"}
WEB = ZoneSpec(name="web", replicas=4, pod_labels={"app": "web"}, node_selector=HERE)


def add_nodes(scene: World, *names: str, zone: str = "a") -> None:
    for name in names:
        body = node(name, {"zone": zone})
        answer = scene.api.call_now(ApiRequest(verb="create", resource=NODES, body=body))
        assert answer.is_ok, answer.message


def cordon(scene: World, name: str, *, is_on: bool = True) -> None:
    body: JsonObject = {"spec": {"unschedulable": is_on}}
    request = ApiRequest(
        verb="patch", resource=NODES, name=name, body=body, content_type=MERGE_PATCH
    )
    assert scene.api.call_now(request).is_ok


def places(scene: World) -> Counter[str]:
    return Counter(node_of(one) for one in scene.pods())


@in_virtual_time
async def test_pods_spread_over_the_nodes_of_their_zone() -> None:
    with world() as scene:
        add_nodes(scene, "a-1", "a-2")
        add_nodes(scene, "b-1", zone="b")
        await scene.bring_up(WEB)

        assert places(scene) == {"a-1": 2, "a-2": 2}
        labels = {text(one, "metadata", "labels", "app") for one in scene.pods()}
        assert labels == {"web"}


@in_virtual_time
async def test_a_cordoned_node_gets_no_pod_and_keeps_what_it_has() -> None:
    with world() as scene:
        add_nodes(scene, "a-1", "a-2")
        await scene.bring_up(WEB)
        cordon(scene, "a-1")
        leaving = next(one for one in scene.pods() if node_of(one) == "a-1")
        name = text(leaving, "metadata", "name")
        scene.delete_pod(name)
        await scene.until(lambda: name not in scene.pod_names())
        await scene.until_ready("web")

        assert places(scene) == {"a-1": 1, "a-2": 3}


@in_virtual_time
async def test_a_pod_without_a_node_waits_for_one() -> None:
    with world() as scene:
        add_nodes(scene, "a-1")
        cordon(scene, "a-1")
        scene.create(ZoneSpec(name="web", replicas=1, node_selector=HERE))
        await scene.until(lambda: any(waits(one) for one in scene.pods()))
        assert places(scene) == {"": 1}

        cordon(scene, "a-1", is_on=False)
        await scene.until_ready("web")
        assert places(scene) == {"a-1": 1}


def waits(pod: JsonObject) -> bool:
    return any(
        one.get("reason") == "Unschedulable" for one in children(pod, "status", "conditions")
    )
