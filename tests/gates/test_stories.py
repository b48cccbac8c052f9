"""Health checks between the zones of a whole operator, told in the texts beside this file."""

from pathlib import Path

import pytest

from tests.gates.stage import GateStage
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time


@pytest.mark.thorough
@pytest.mark.parametrize("story", read_stories(Path(__file__).parent / "rollouts.txt"))
@in_virtual_time
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    story.check(await GateStage(lines).play(story.commands), golden)
