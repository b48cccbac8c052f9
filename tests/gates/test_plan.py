"""When a health check lets the next zone begin, told in the texts beside this file."""

from pathlib import Path

import pytest

from tests.gates.plan_stage import PlanStage
from tests.goldens import Golden
from tests.stories import Story, read_stories


@pytest.mark.parametrize("story", read_stories(Path(__file__).parent / "plan.txt"))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await PlanStage().play(story.commands), golden)
