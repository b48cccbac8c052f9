"""What `doctor` reads, and what `status` does from outside: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.operator.diagnosis.examine_stage import ExamineStage
from tests.operator.diagnosis.inspect_stage import InspectStage
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

HERE = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(HERE / "examine.txt", HERE / "inspect.txt"))
@in_virtual_time
async def test_story(story: Story, golden: Golden) -> None:
    stage = ExamineStage() if story.path.stem == "examine" else InspectStage()
    story.check(await stage.play(story.commands), golden)
