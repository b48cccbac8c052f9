"""What `doctor` reads, and what `status` does from outside: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.operator.diagnosis.examine_stage import ExamineStage
from tests.stories import Story, read_stories

HERE = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(HERE / "examine.txt"))
async def test_what_doctor_reads(story: Story, golden: Golden) -> None:
    story.check(await ExamineStage().play(story.commands), golden)
