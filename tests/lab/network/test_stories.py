"""What goes wrong on the way to the API server: a text of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.lab.network.stage import NetworkStage
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
def test_story(story: Story, golden: Golden) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await NetworkStage().play(story.commands))

    run()
    story.check(found, golden)
