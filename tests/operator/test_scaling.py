"""Replicas that move on a simulated cluster with the whole operator: texts of commands."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.operator.scaling_stage import OperatorStage
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("scaling.txt")))
def test_story(story: Story, golden: Golden) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await OperatorStage().play(story.commands))

    run()
    story.check(found, golden)
