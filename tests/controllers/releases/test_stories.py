"""What the controller of Rollouts does on an API server: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.controllers.releases.stage import ControllerStage
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
def test_story(story: Story, golden: Golden) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await ControllerStage().play(story.commands))

    run()
    story.check(found, golden)
