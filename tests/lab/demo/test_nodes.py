"""What people create and send in the story of the drained node."""

import msgspec

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.demo.flags import DemoSettings
from rollout_operator.lab.demo.log import is_retried
from rollout_operator.lab.demo.nodes import cordon, evict, name_node, set_up_nodes
from rollout_operator.lab.demo.objects import NAMESPACE, create_zone
from rollout_operator.lab.demo.scenarios import TALES
from rollout_operator.lab.demo.stage import choose_behaviour
from rollout_operator.lab.model.fields import child, children, name_of, text
from rollout_operator.lab.model.history import Called, Reviewed
from rollout_operator.lab.model.request import ApiRequest
from rollout_operator.model.decode.budget import parse_budget
from tests.judge.builder import s

ZONES = ("zone-a", "zone-b")


def body(request: ApiRequest) -> JsonObject:
    assert isinstance(request.body, dict)
    return request.body


def test_each_zone_has_its_nodes_and_all_share_a_budget() -> None:
    *nodes, budget, hooks = map(body, set_up_nodes(ZONES, 2))

    assert [name_of(one) for one in nodes] == ["node-a1", "node-a2", "node-b1", "node-b2"]
    found = parse_budget(msgspec.json.encode(budget))
    assert (found.max_unavailable, found.by_partition) == (2, False)
    (hook,) = children(hooks, "webhooks")
    assert text(hook, "clientConfig", "service", "path") == "/admission/pod-eviction"
    assert hook["failurePolicy"] == "Fail"


def test_the_budget_selects_pods_and_sets_and_the_pods_their_nodes() -> None:
    *nodes, budget, _ = map(body, set_up_nodes(ZONES, 1))
    selected = child(budget, "spec", "selector", "matchLabels")
    zone = body(create_zone(DemoSettings(), "zone-a", {}, has_nodes=True))
    template = child(zone, "spec", "template")

    for labels in (child(zone, "metadata", "labels"), child(template, "metadata", "labels")):
        assert labels.items() >= selected.items()
    assert selected
    wanted = child(template, "spec", "nodeSelector")
    fitting = [name_of(one) for one in nodes if child(one, "metadata", "labels") == wanted]
    assert fitting == [name_node("zone-a", 1), name_node("zone-a", 2)]


def test_a_zone_of_another_story_chooses_no_node() -> None:
    zone = body(create_zone(DemoSettings(), "zone-a", {}))

    assert "nodeSelector" not in child(zone, "spec", "template", "spec")
    assert choose_behaviour(TALES["drained-node"], DemoSettings())(zone) is not None


def test_what_kubectl_drain_sends() -> None:
    assert cordon("node-a1").body == {"spec": {"unschedulable": True}}
    request = evict("zone-a-0")

    assert (request.verb, request.namespace, request.subresource) == (
        "create",
        NAMESPACE,
        "eviction",
    )
    assert body(request)["kind"] == "Eviction"
    assert not request.is_dry_run


def test_only_refused_evictions_are_asked_for_again() -> None:
    def called(status: int, request: ApiRequest) -> Called:
        return Called(at=s(1), begun=s(1), number=1, actor="you", request=request, status=status)

    def reviewed(resource: str, *, allowed: bool) -> Reviewed:
        return Reviewed(
            at=s(1),
            begun=s(1),
            call=1,
            actor="operator-1",
            path="/x",
            namespace=NAMESPACE,
            name="zone-a-0",
            resource=resource,
            dry_run=False,
            allowed=allowed,
            status=0,
        )

    assert is_retried(called(429, evict("zone-a-0")))
    assert is_retried(reviewed("pods/eviction", allowed=False))
    assert not is_retried(called(201, evict("zone-a-0")))
    assert not is_retried(called(429, cordon("node-a1")))
    assert not is_retried(reviewed("pods/eviction", allowed=True))
    assert not is_retried(reviewed("statefulsets/scale", allowed=False))
