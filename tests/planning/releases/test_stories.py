"""What becomes of one Rollout, pass by pass: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.planning.releases.stage import ReleaseStage
from tests.stories import Story, read_stories


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await ReleaseStage().play(story.commands), golden)
