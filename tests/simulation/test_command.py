"""Mistakes in the command lines of the simulation and of `make prove` name what is wrong."""

from collections.abc import Callable, Sequence

import pytest

from tests import prove
from tests.simulation.__main__ import main

RUN = ("run", "--scenario", "s1", "--seed", "1")


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        (main, [*RUN, "--size", "2"], "--size: 2 is not zones x pods, as in 2x2"),
        (main, [*RUN, "--size", "0x2"], "--size: 0x2 is not zones x pods, as in 2x2"),
        (main, ["campaign", "--schedules", "-3"], "--schedules: -3 is no number of schedules"),
        (prove.main, ["kills", "nope"], "no part is called nope: there are schedules, repeats"),
    ],
)
def test_what_is_wrong_is_named(
    command: Callable[[Sequence[str]], int],
    words: list[str],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        command(words)
    assert why in capsys.readouterr().err


def test_a_plan_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("-1", "999999"):
        assert main(["plan", "--scenario", "s1-small", "--number", number]) == 1
        assert f"--number {number}: s1-small has " in capsys.readouterr().err
