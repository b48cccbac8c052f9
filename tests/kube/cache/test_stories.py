"""What caches make of the answers of an API server: stories on virtual time."""

from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.kube.cache.kinds_stage import FollowedStage, NodesStage, OptionalStage
from tests.kube.cache.stage import InformerStage, ScriptStage
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

HERE: Final = Path(__file__).parent
STAGES: Final[dict[str, type[ScriptStage]]] = {
    "informer": InformerStage,
    "doubt": InformerStage,
    "streamed": InformerStage,
    "optional": OptionalStage,
    "followed": FollowedStage,
    "nodes": NodesStage,
}


@pytest.mark.parametrize("story", read_stories(*(HERE / f"{name}.txt" for name in STAGES)))
@in_virtual_time
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    stage = STAGES[story.path.stem](lines)
    story.check(await stage.play(story.commands), golden)
