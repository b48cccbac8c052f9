"""Reviews, their answers and their way to the replica that leads: texts beside this file."""

from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time
from tests.web.reviews.answer_stage import AnswerStage, NamespaceStage
from tests.web.reviews.peer_stage import PeerStage

HERE: Final = Path(__file__).parent
STAGES: Final = {"answers": AnswerStage, "namespaces": NamespaceStage}


@pytest.mark.parametrize("story", read_stories(*(HERE / f"{name}.txt" for name in STAGES)))
@in_virtual_time
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await STAGES[story.path.stem]().play(story.commands), golden)


@pytest.mark.parametrize("story", read_stories(HERE / "peers.txt"))
async def test_story_over_tls(story: Story, golden: Golden, lines: list[str]) -> None:
    story.check(await PeerStage(lines).play(story.commands), golden)
