"""Downscales from the review to the last pod: texts of commands beside this file."""

from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time
from tests.web.downscales.label_stage import LabelStage
from tests.web.downscales.stage import DownscaleStage

pytestmark = pytest.mark.thorough


HERE: Final = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(*{*HERE.glob("*.txt")} - {HERE / "times.txt"}))
@in_virtual_time
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    stage = LabelStage if story.path.stem == "labels" else DownscaleStage
    story.check(await stage(lines).play(story.commands), golden)
