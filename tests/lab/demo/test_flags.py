"""The flags of `demo`: what they mean, which values are refused, and the help text."""

from datetime import timedelta

import pytest
from rollout_lab.demo.flags import FLAGS, STORIES, DemoSettings, read_settings, render_demo_usage
from rollout_lab.demo.scenarios import SCENARIOS

from rollout_operator.cli.main import main
from rollout_operator.config.grammar import BOOL, UsageError

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        pytest.param([], DemoSettings(), id="nothing: a plain rollout"),
        pytest.param(
            ["-zones=5", "--pods", "7", "-limit=2"],
            DemoSettings(zones=5, pods=7, limit=2),
            id="sizes",
        ),
        pytest.param(
            ["-ready-after=300ms", "-speed=2", "-seed=-1"],
            DemoSettings(ready_after=timedelta(milliseconds=300), speed=2.0, seed=-1),
            id="times",
        ),
        pytest.param(["-story=pod-dies"], DemoSettings(stories=("pod-dies",)), id="one story"),
        pytest.param(["-story=all"], DemoSettings(stories=STORIES), id="all stories"),
        pytest.param(["-color=never"], DemoSettings(color="never"), id="colour"),
        pytest.param(["-serve"], DemoSettings(is_served=True), id="pages"),
        pytest.param(
            ["-serve", "-server.port=0"], DemoSettings(is_served=True, port=0), id="any port"
        ),
        pytest.param(["-serve=false"], DemoSettings(), id="no pages"),
    ],
)
def test_flags_become_settings(words: list[str], settings: DemoSettings) -> None:
    assert read_settings(words) == settings


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-zones=0"], "-zones must be from 1 to 8: 0"),
        (["-zones=9"], "-zones must be from 1 to 8: 9"),
        (["-pods=22"], "-pods must be from 1 to 21: 22"),
        (["-zones=1", "-story=pod-dies"], "-story=pod-dies needs at least 2 zones: -zones=1"),
        (
            ["-zones=1", "-story=following-zones"],
            "-story=following-zones needs at least 2 zones: -zones=1",
        ),
        (
            ["-zones=1", "-story=drained-node"],
            "-story=drained-node needs at least 2 zones: -zones=1",
        ),
        (["-zones=1", "-story=all"], "-story=all needs at least 2 zones: -zones=1"),
        (["-limit=0"], "-limit must be from 1 to 21: 0"),
        (["-pods=x"], 'invalid value "x" for flag -pods: parse error: write a whole number'),
        (["-ready-after=0s"], "-ready-after must be positive and at most 1m0s: 0s"),
        (["-ready-after=2m"], "-ready-after must be positive and at most 1m0s: 2m0s"),
        (
            ["-ready-after=1"],
            'invalid value "1" for flag -ready-after: parse error:'
            ' time: missing unit in duration "1": write 1s or 1m',
        ),
        (["-speed=0"], "-speed must be from 0.1 to 10: 0"),
        (["-speed=nan"], "-speed must be from 0.1 to 10: nan"),
        (["-server.port=80000", "-serve"], "-server.port must be from 0 to 65535: 80000"),
        (["-server.port=80"], "-server.port=80 needs -serve"),
        (["-color=red"], '-color must be one of auto, always, never: "red"'),
        (["more"], "unexpected word: more"),
        (["-zone=3"], "flag provided but not defined: -zone; did you mean -zones?"),
    ],
)
def test_what_cannot_be_shown_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_settings(words)

    assert str(refused.value) == complaint


def test_an_unknown_story_is_answered_with_the_stories() -> None:
    with pytest.raises(UsageError) as refused:
        read_settings(["-story=fire"])

    assert str(refused.value) == f'-story must be one of {", ".join(STORIES)}, all: "fire"'


@pytest.mark.parametrize("word", ["-h", "-help", "--help"])
def test_help_goes_to_stdout(word: str, capsys: Captured) -> None:
    assert main(["demo", word]) == 0

    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (render_demo_usage(), "")


def test_the_usage_names_every_flag_and_fits() -> None:
    usage = render_demo_usage()

    for flag in FLAGS:
        word = "" if flag.kind is BOOL else f" {flag.kind.word}"
        assert f"\n  -{flag.name}{word}\n" in usage
    assert max(map(len, usage.splitlines())) <= 100
    assert "\n\n\n" not in usage


@pytest.mark.parametrize(
    ("name", "range_"),
    [
        ("zones", "from 1 to 8."),
        ("pods", "from 1 to 21."),
        ("limit", "from 1 to 21."),
        ("speed", "from 0.1 to 10."),
        ("ready-after", "at most 1m0s."),
    ],
)
def test_the_help_says_the_range_that_is_checked(name: str, range_: str) -> None:
    (flag,) = [flag for flag in FLAGS if flag.name == name]
    assert flag.help.endswith(range_)


def test_the_flag_knows_each_story() -> None:
    assert tuple(SCENARIOS) == STORIES
