"""Nodes of the sandbox: where pods go, and what a cordon changes (S8, drains of nodes)."""

from collections import Counter

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import children, text
from rollout_operator.lab.model.request import MERGE_PATCH, ApiRequest
from rollout_operator.lab.nodes.behaviour import Behaviour, StartKind, always
from rollout_operator.lab.nodes.nodes import LONE_NODE, find_node, is_cordoned, node, node_of
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
async def test_without_nodes_all_pods_are_on_one() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web"))

        assert places(scene) == {LONE_NODE: 3}


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


@in_virtual_time
async def test_who_never_gets_a_node_gets_none_from_an_uncordon() -> None:
    with world(choose=always(Behaviour(kind=StartKind.PENDING))) as scene:
        add_nodes(scene, "a-1")
        scene.create(ZoneSpec(name="web", replicas=1))
        await scene.until(lambda: any(waits(one) for one in scene.pods()))
        cordon(scene, "a-1")
        cordon(scene, "a-1", is_on=False)
        scene.create(ZoneSpec(name="other", replicas=1))
        await scene.until(lambda: sum(map(waits, scene.pods())) == 2)

        assert places(scene) == {"": 2}


def waits(pod: JsonObject) -> bool:
    return any(
        one.get("reason") == "Unschedulable" for one in children(pod, "status", "conditions")
    )


@in_virtual_time
async def test_a_node_is_chosen_by_load_then_by_name() -> None:
    with world(starts=False) as scene:
        add_nodes(scene, "a-2", "a-1")
        pod: JsonObject = {"metadata": {"name": "x"}, "spec": {"nodeSelector": HERE}}

        assert find_node(scene.api, pod) == "a-1"
        cordon(scene, "a-1")
        assert find_node(scene.api, pod) == "a-2"
        cordon(scene, "a-2")
        assert find_node(scene.api, pod) is None
        assert all(map(is_cordoned, scene.api.list(NODES, "")))
