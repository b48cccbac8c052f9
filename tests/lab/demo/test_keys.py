"""What keys request: a pace, a step, help, and things to be done in turn."""

import pytest
from rollout_lab.demo.stage import SHORT, Controls, split_keys

ACTS = {"k": "kill a pod"}


@pytest.mark.parametrize(
    ("keys", "paces"),
    [
        pytest.param("  ", [0, 1], id="space stops time and lets it go on"),
        pytest.param("+=-", [2, 4, 2], id="faster and slower"),
        pytest.param("++++++", [2, 4, 8, 16, 16, 16], id="not for ever faster"),
        pytest.param("----", [0.5, 0.25, 0.125, 0.125], id="nor slower"),
        pytest.param("+ +", [2, 0, 0], id="what stands stays so"),
        pytest.param(" k", [0, 1], id="whatever is requested lets it go on"),
        pytest.param("x", [1], id="others do nothing"),
    ],
)
def test_the_pace(keys: str, paces: list[float]) -> None:
    seen: list[float] = []
    controls = Controls(seen.append, ACTS)
    for key in keys:
        controls.press(key)

    assert seen == paces


def test_a_step_ends_when_something_has_changed() -> None:
    controls = Controls(lambda pace: None, ACTS)
    controls.press("\x1b[C")
    paces = []
    for seen in ("a", "a", "b"):
        controls.end_step(seen)
        paces.append(controls.pace)

    assert paces == [1, 1, 0]
    controls.press(" ")
    controls.end_step("c")
    assert controls.pace == 1, "a step is over once"


def test_what_is_requested_waits_in_line() -> None:
    controls = Controls(lambda pace: None, ACTS)
    for key in ("k", "n", "\x03"):
        controls.press(key)

    assert controls.has_command
    assert list(controls.take()) == ["k", "n", "q"]
    assert not controls.has_command


def test_help_names_what_one_can_do_until_one_does_it() -> None:
    controls = Controls(lambda pace: None, ACTS)
    assert controls.list_keys() == SHORT
    controls.press("?")
    assert "k   kill a pod" in controls.list_keys()
    controls.press("k")
    assert controls.list_keys() == SHORT


def test_an_arrow_is_one_key() -> None:
    assert list(split_keys("a\x1b[C q")) == ["a", "\x1b[C", " ", "q"]
