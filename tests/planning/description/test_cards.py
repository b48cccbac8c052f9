"""What people read of a description: `cards.txt` beside this file."""

from datetime import timedelta

import pytest

from rollout_operator.planning.text import render_age
from tests.planning.description.card_stage import CardStage
from tests.stories import check_stories

test_story = check_stories(__file__, cards=CardStage)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (42, "42s"), (192, "3m12s"), (7500, "2h5m"), (356400, "4d3h")],
)
def test_spans_are_short(seconds: int, text: str) -> None:
    assert render_age(timedelta(seconds=seconds)) == text
