"""Live reads, workers and repeated attempts: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.controllers.read_stage import ReadStage
from tests.controllers.work_stage import WorkStage
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    stage = ReadStage() if story.path.stem == "reads" else WorkStage(lines)
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await stage.play(story.commands))

    run()
    story.check(found, golden)
