"""What becomes of schedules of releases and their gates: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.planning.releases.schedules.schedule_stage import ScheduleStage
from tests.stories import Story, read_stories


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await ScheduleStage().play(story.commands), golden)
