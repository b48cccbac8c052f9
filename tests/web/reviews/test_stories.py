"""Reviews, their answers and their way to the replica that leads: texts beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.web.reviews.peer_stage import PeerStage


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("peers.txt")))
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    story.check(await PeerStage(lines).play(story.commands), golden)
