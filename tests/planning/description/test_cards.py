"""What people read of a description: `cards.txt` beside this file."""

from datetime import timedelta
from pathlib import Path

import pytest

from rollout_operator.planning.text import render_age
from tests.goldens import Golden
from tests.planning.description.card_stage import CardStage
from tests.stories import Story, read_stories


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("cards.txt")))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await CardStage().play(story.commands), golden)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (42, "42s"), (192, "3m12s"), (7500, "2h5m"), (356400, "4d3h")],
)
def test_spans_are_short(seconds: int, text: str) -> None:
    assert render_age(timedelta(seconds=seconds)) == text
