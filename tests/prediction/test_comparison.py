"""How near a forecast came, and what is read from one."""

import pytest
from rollout_lab.simulate.changes import parse_change

from tests.prediction.comparison import Cause, Going, Match, compare, describe
from tests.prediction.forecasts import read_goings
from tests.prediction.plans import KINDS, make_plan


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
