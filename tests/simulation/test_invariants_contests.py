"""The judge of counts that something else puts back, LI-11: contests, short and long."""

from itertools import accumulate

import pytest

from rollout_operator.lab.model.history import Fault, Lived
from tests.simulation.chronicle import OPERATOR, Chronicle, s
from tests.simulation.chronicle_scaling import Story, judge, write


def contest(*gaps: float, replicas: int = 3) -> Story:
    """Return a story in which zone-b goes up as often, so many seconds apart, and is put back."""

    def tell(told: Chronicle) -> None:
        told.zone(10, "zone-b", replicas=1)
        for at in accumulate((20, *gaps)):
            write(told, at, "zone-b", replicas, looked=False)
            told.zone(at + 0.2, "zone-b", replicas=1)

    return tell


def followed(told: Chronicle) -> None:
    """The leading zone is scaled up and down, all the time."""
    for at in range(20, 60):
        told.zone(at, "zone-a", replicas=5 if at % 2 else 3)
        write(told, at + 0.5, "zone-b", 5 if at % 2 else 3)


def killed(told: Chronicle) -> None:
    """Whoever begins anew knows nothing of it."""
    contest(*[1] * 10)(told)
    for what in ("crashed", "started"):
        told.history.add(Lived(at=s(31), actor=OPERATOR, what=what))
    told.zone(31.5, "zone-b", replicas=1)
    for at in range(32, 42):
        write(told, at, "zone-b", 3, looked=False)
        told.zone(at + 0.2, "zone-b", replicas=1)


def unanswered(told: Chronicle) -> None:
    """The operator does not know that these were written."""
    for at in range(20, 60, 2):
        told.history.add(Fault(at=s(at), number=at, kind="lost", actor=OPERATOR, text="patch"))
    contest(*[2] * 19)(told)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(contest(*[0.2] * 11), [], id="twelve times within moments"),
        pytest.param(contest(*[0.2] * 12), ["LI-11"], id="thirteen times"),
        pytest.param(contest(1, 1, 10, 20, 40, 80, 160, 300, 300), [], id="ever more seldom"),
        pytest.param(contest(*[10] * 55), [], id="every ten seconds, not for long enough"),
        pytest.param(contest(*[10] * 70), ["LI-11"], id="every ten seconds for ten minutes"),
        pytest.param(contest(*[20] * 70), [], id="as seldom as a clock that runs twice as fast"),
        pytest.param(contest(1, 900, 1, 900, 1), [], id="what stayed was accepted"),
        pytest.param(followed, [], id="another count each time"),
        pytest.param(killed, [], id="by two processes, one after the other"),
        pytest.param(unanswered, [], id="answers lost"),
    ],
)
def test_li11_a_contest(story: Story, broken: list[str]) -> None:
    assert [one for one in judge(story) if one == "LI-11"] == broken
