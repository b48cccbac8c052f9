"""How near a forecast came, and what is read from one."""

from datetime import timedelta

import pytest
from rollout_lab.simulate.changes import parse_change

from tests.prediction.comparison import Cause, Going, Match, compare, describe, read_goings
from tests.prediction.hands import render_rest
from tests.prediction.plans import KINDS, make_plan
from tests.prediction.runs import in_time, list_crashes
from tests.world.api import Json


def _go(text: str, cause: Cause = Cause.DELETED, at: float = 0) -> list[Going]:
    return [Going(pod, cause, at + place) for place, pod in enumerate(text.split())]


def _together(text: str, cause: Cause = Cause.DELETED) -> list[Going]:
    return [Going(pod, cause, 4 + place / 100) for place, pod in enumerate(text.split())]


@pytest.mark.parametrize(
    ("foreseen", "happened", "match"),
    [
        pytest.param(_go("a-0 a-1"), _go("a-0 a-1", at=9), Match.SAME, id="times do not count"),
        pytest.param(_go("a-0 a-1"), _go("a-1 a-0"), Match.ORDER, id="another order"),
        pytest.param(_together("a-0 a-1"), _together("a-1 a-0"), Match.TIE, id="by one decision"),
        pytest.param(_together("a-0 a-1"), _go("a-1 a-0"), Match.ORDER, id="apart in reality"),
        pytest.param(_go("a-0 a-1"), _together("a-1 a-0"), Match.ORDER, id="foreseen apart"),
        pytest.param(_together("a-0 b-0"), _together("b-0 a-0"), Match.ORDER, id="of two zones"),
        pytest.param(
            _together("a-0", Cause.EVICTED) + _together("a-1"),
            _together("a-1") + _together("a-0", Cause.EVICTED),
            Match.ORDER,
            id="for two causes",
        ),
        pytest.param(
            _together("a-0 a-1 a-2 a-0"),
            _together("a-1 a-2 a-0 a-0"),
            Match.TIE,
            id="three together, one of them twice",
        ),
        pytest.param(_go("a-0"), _go("a-0", Cause.EVICTED), Match.CAUSE, id="another cause"),
        pytest.param(_go(""), _go("a-0"), Match.FEWER, id="not foreseen"),
        pytest.param(_go("a-0"), _go(""), Match.MORE, id="did not go"),
        pytest.param(_go("a-0"), _go("b-0"), Match.OTHER, id="another pod"),
    ],
)
def test_each_difference_has_its_class(
    foreseen: list[Going], happened: list[Going], match: Match
) -> None:
    assert compare(foreseen, happened) is match


def test_what_differs_is_shown_from_the_first_difference_on() -> None:
    lines = describe(_go("a-0 a-1"), _go("a-0 b-1 b-2"))

    assert len(lines) == 2
    assert "a-1" in lines[0]
    assert "b-1" in lines[0]
    assert lines[1].split()[1] == "-"


def test_each_pod_that_goes_is_read_once_with_its_cause() -> None:
    steps = [
        {"at": 1, "what": "", "text": "deletes a-0: it is outdated"},
        {"at": 1.1, "what": "a-0", "text": "going down"},
        {"at": 2, "what": "b-0", "text": "eviction refused: 429: later"},
        {"at": 3, "what": "b-0", "text": "eviction allowed by the webhook"},
        {"at": 3.1, "what": "b-0", "text": "going down"},
        {"at": 3.2, "what": "a-0", "text": "created at revision 2"},
        {"at": 3.3, "what": "b-0", "text": "eviction allowed by the webhook"},
        {"at": 3.4, "what": "b-0", "text": "created at revision 2"},
        {"at": 3.5, "what": "a-0", "text": "going down"},
        {"at": 4, "what": "c-2", "text": "going down"},
    ]

    assert [going.key for going in read_goings({"steps": steps})] == [
        ("a-0", Cause.DELETED),
        ("b-0", Cause.EVICTED),
        ("a-0", Cause.SCALED),
        ("c-2", Cause.SCALED),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_comes_from_its_seed_in_words_that_simulate_takes(kind: str) -> None:
    plan = make_plan(7, kind)

    assert plan == make_plan(7, kind)
    assert [parse_change(request.change).text for request in plan.requests] == [
        request.change for request in plan.requests
    ]
    assert list(plan.requests) == sorted(plan.requests, key=lambda request: request.at)


def _pod(name: str, node: str, *, is_ready: bool = True) -> Json:
    ready = {"type": "Ready", "status": str(is_ready)}
    container = {"name": "app", "ready": is_ready, "state": {"running": {}}}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [container]},
    }


WAITS = [_pod("a-0", "n0"), _pod("a-1", "n1")]
STARTS = [_pod("a-0", "spare", is_ready=False), _pod("a-1", "n1")]


@pytest.mark.parametrize(
    ("nodes", "refused", "pods", "printed"),
    [
        pytest.param(["n0", "n1"], ["a-0"], WAITS, ["drain n0 n1 at 0.00s"], id="it waits"),
        pytest.param(["n0", "n1"], ["a-0"], STARTS, ["drain spare n1 at 3.00s"], id="by name"),
        pytest.param(["n0", "n1"], [], STARTS, ["drain n1 at 3.00s"], id="it was let go"),
        pytest.param(["n1"], ["a-1"], WAITS[:1], [], id="nothing is left"),
    ],
)
def test_the_rest_of_a_drain_is_another_one(
    nodes: list[str], refused: list[str], pods: list[Json], printed: list[str]
) -> None:
    assert list(render_rest(nodes, {"a-0": 3.0}, refused, pods)) == printed


def _crashed(name: str, image: str, *, state: str = "running", **head: str) -> Json:
    return {
        "metadata": {"name": name, **head},
        "spec": {"containers": [{"image": image}]},
        "status": {"containerStatuses": [{"state": {state: {}}}]},
    }


def test_pods_of_a_bad_image_crash_that_have_not_yet() -> None:
    pods = [
        _crashed("a-0", "bad"),
        _crashed("a-1", "bad", state="waiting"),
        _crashed("a-2", "v1", deletionTimestamp="2026-01-02T03:04:05Z"),
        _crashed("a-4", "v1"),
    ]
    names = [f"a-{ordinal}" for ordinal in range(5)]

    assert list(list_crashes(names, pods, "bad", timedelta(seconds=2))) == [
        "pod a-0 fails at 0s",
        "pod a-2 fails at 2.50s",
        "pod a-3 fails at 0.50s",
    ]


def test_changes_are_reported_in_the_order_of_their_times() -> None:
    assert in_time(["image v3 at 2s", "cordon n at 0s", "drain n at 0.50s"]) == (
        "cordon n at 0s",
        "drain n at 0.50s",
        "image v3 at 2s",
    )
