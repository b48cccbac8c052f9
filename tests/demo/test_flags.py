"""What `make demo-cluster ARGS=...` takes."""

from datetime import timedelta

import pytest

from rollout_operator.config.grammar import HelpRequested, UsageError
from tests.demo.__main__ import main
from tests.demo.flags import FLAGS, STORIES, Settings, read_settings, render_usage
from tests.demo.stories import TALES


def test_each_flag_is_taken_as_all_commands_take_it() -> None:
    words = "-story bad-revision --pods=2 -limit=2 -ready-after 300ms -plain -keep"

    assert read_settings(words.split()) == Settings(
        story="bad-revision",
        pods=2,
        limit=2,
        ready_after=timedelta(milliseconds=300),
        is_plain=True,
        is_kept=True,
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-story fairy-tale", "-story must be one of rollout, "),
        ("-pods=0", "-pods must be from 1 to "),
        ("-ready-after=0s", "-ready-after must be positive"),
        ("-storey=rollout", "did you mean -story"),
        ("rollout", "unexpected word: rollout"),
    ],
)
def test_what_is_wrong_is_one_line(words: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        read_settings(words.split())


def test_help_names_every_flag_and_story(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HelpRequested):
        read_settings(["-help"])

    assert main(["-help"]) == 0
    assert capsys.readouterr().out == render_usage()
    assert all(f"-{flag.name}" in render_usage() for flag in FLAGS)
    assert set(STORIES) == set(TALES)
    assert all(story in render_usage() for story in STORIES)


def test_a_wrong_line_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-keeep"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
