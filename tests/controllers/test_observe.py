"""Pictures of a set, and of a group, as the store has them now."""

import copy

import pytest

from rollout_operator.model.errors import DecodeError, NotFound
from rollout_operator.model.objects import Unreadable
from tests.controllers.bench import GROUP, bench
from tests.controllers.fake_client import Json, pod_json, set_json
from tests.web.downscale_world import part

EXPRESSIONS: Json = {"matchExpressions": [{"key": "name", "operator": "In", "values": ["a"]}]}


def _selected(name: str, selector: Json) -> Json:
    one = set_json(name)
    part(one, "spec")["selector"] = selector
    return one


def _pods(*zones: str) -> list[Json]:
    return [pod_json(zone, ordinal) for zone in zones for ordinal in range(3)]


async def test_a_set_alone() -> None:
    """PREP-09: one read, one list by its selector; pods of others are left out by owner."""
    stranger = pod_json("a", 9, owner="uid-x")
    made = bench([set_json("a"), set_json("b")], [*_pods("a", "b"), stranger])
    group = await made.observer.observe_alone("a")
    assert made.client.calls == ["get statefulsets/a", "list pods name=a,rollout-group=ingester"]
    (zone,) = group.zones
    assert zone.sts.name == "a"
    assert [pod.name for pod in zone.pods] == ["a-0", "a-1", "a-2"]
    assert group.name == GROUP


async def test_a_set_alone_without_labels_in_its_selector() -> None:
    """SI-10: its pods are found, or a downscale would pass without a call to them."""
    made = bench([_selected("a", EXPRESSIONS)], _pods("a", "b"))
    (zone,) = (await made.observer.observe_alone("a")).zones
    assert [pod.name for pod in zone.pods] == ["a-0", "a-1", "a-2"]


async def test_a_set_alone_with_a_pod_that_cannot_be_read() -> None:
    """SI-13: it is known to be there."""
    broken = pod_json("a", 1)
    part(broken, "status")["phase"] = 5
    made = bench([set_json("a")], [])
    for one in [pod_json("a", 0), broken]:
        made.client.put("pods", one)
    (zone,) = (await made.observer.observe_alone("a")).zones
    assert [pod.name for pod in zone.pods] == ["a-0"]
    assert [pod.name for pod in zone.unreadable_pods] == ["a-1"]
    assert isinstance(zone.unreadable_pods[0], Unreadable)


async def test_a_set_alone_that_cannot_be_read() -> None:
    made = bench([set_json("a")], [])
    with pytest.raises(NotFound):
        await made.observer.observe_alone("b")
    broken = copy.deepcopy(set_json("a"))
    part(broken, "spec")["replicas"] = "x"
    made.client.put("statefulsets", broken)
    with pytest.raises(DecodeError):
        await made.observer.observe_alone("a")


async def test_a_pod_that_several_selectors_match_counts_once() -> None:
    """D-12: counted twice it would hide one that is missing."""
    sets = [_selected("a", {"matchLabels": {"name": "a"}}), _selected("b", EXPRESSIONS)]
    made = bench(sets, _pods("a", "b"))
    live = await made.observer.observe_live(made.observer.observe(GROUP))
    assert {zone.sts.name: [pod.name for pod in zone.pods] for zone in live.zones} == {
        "a": ["a-0", "a-1", "a-2"],
        "b": ["b-0", "b-1", "b-2"],
    }
