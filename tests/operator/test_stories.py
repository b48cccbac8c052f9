"""The whole operator on a simulated cluster, and its Events: texts of commands beside this file."""

from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.operator.event_stage import EventStage
from tests.operator.stage import OperatorStage
from tests.stories import Story, check_stories, read_stories
from tests.virtual_time import in_virtual_time

HERE: Final = Path(__file__).parent
EVENTS: Final = HERE / "events.txt"
TEXTS: Final = {*HERE.glob("*.txt")} - {EVENTS, HERE / "flags.txt"}


test_events = in_virtual_time(check_stories(__file__, events=EventStage))


@pytest.mark.thorough
@pytest.mark.parametrize("story", read_stories(*TEXTS))
@in_virtual_time
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    about = story.path.stem
    stage = OperatorStage(
        lines, has_webhooks=about == "scaling", is_quick=about in ("scaling", "marks")
    )
    story.check(await stage.play(story.commands), golden)
