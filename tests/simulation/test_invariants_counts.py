"""The judge of what must come to pass of counts: histories that miss a bound, or just keep it."""

from typing import Final

import pytest

from tests.judge.promises import Promises
from tests.simulation.chronicle import Chronicle, s
from tests.simulation.chronicle_scaling import DELAYED, FOLLOWS, Story, ask, judge, template, write

# Faults end at 10 s, and the run more than an hour after that.
HEALED: Final = Promises(healed_at=s(10), ended_at=s(5000))


def told_of_less(told: Chronicle) -> None:
    template(told, 20, 3, status=2)


def asked_and_left(told: Chronicle) -> None:
    template(told, 12, 2)
    ask(told, 15, "zone-a-2")
    template(told, 20, 3)


def asked_and_told(told: Chronicle) -> None:
    asked_and_left(told)
    ask(told, 30, "zone-a-2", method="DELETE")


def asked_and_told_late(told: Chronicle) -> None:
    asked_and_left(told)
    ask(told, 600, "zone-a-2", method="DELETE")


def told_now_and_then(told: Chronicle) -> None:
    """SEED-079: who was told is told again."""
    asked_and_told(told)
    ask(told, 630, "zone-a-2", method="DELETE")


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(lambda told: None, [], id="all counts are right"),
        pytest.param(asked_and_told_late, ["LI-05"], id="and told so ten minutes later"),
        pytest.param(told_now_and_then, [], id="and told so again"),
        pytest.param(lambda told: template(told, 20, 2), ["LI-01"], id="not mirrored"),
        pytest.param(told_of_less, ["LI-01"], id="the status tells of fewer"),
        pytest.param(asked_and_left, ["LI-05"], id="asked, wanted again, not told so"),
        pytest.param(asked_and_told, [], id="and told so"),
    ],
)
def test_counts_come_to_rest(story: Story, broken: list[str]) -> None:
    """LI-01, LI-05, SEED-069: what is wanted comes to be, and the status tells of it."""
    rolled = {"zone-a": DELAYED}

    def whole(told: Chronicle) -> None:
        for letter in "abc":
            told.zone(0, f"zone-{letter}", current_revision="old")
        story(told)

    assert judge(whole, rolled, HEALED) == broken


def test_counts_have_their_time() -> None:
    """LI-01: a zone that follows may wait for the others, and no longer."""

    def story(at: float) -> Story:
        def play(told: Chronicle) -> None:
            for letter in "abc":
                told.zone(0, f"zone-{letter}", current_revision="old")
            told.zone(12, "zone-a", replicas=4)
            for letter in "abc":
                told.pod(13, f"zone-{letter}-3")
            write(told, at, "zone-b", 4)
            write(told, at + 1, "zone-c", 4)

        return play

    assert judge(story(60), FOLLOWS, HEALED) == []
    assert "LI-01" in judge(story(1500), FOLLOWS, HEALED)
