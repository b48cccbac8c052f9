"""Replicas that move by themselves, from annotations to writes and calls: texts of commands."""

from pathlib import Path

import pytest

from tests.controllers.scaling.caller_stage import CallerStage
from tests.controllers.scaling.stage import ScalingStage
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    stage = CallerStage if story.path.stem == "calls" else ScalingStage
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await stage(lines).play(story.commands))

    run()
    story.check(found, golden)
