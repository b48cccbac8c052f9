"""Statuses of policies, their Events, and whole rollouts: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.planning.policies.stage import RolloutStage, StatusStage
from tests.stories import Story, read_stories

STAGES: dict[str, type[RolloutStage | StatusStage]] = {
    "rollouts": RolloutStage,
    "statuses": StatusStage,
}
TEXTS = [Path(__file__).with_name(f"{name}.txt") for name in STAGES]


@pytest.mark.parametrize("story", read_stories(*TEXTS))
def test_story(story: Story, golden: Golden) -> None:
    stage = STAGES[story.path.stem]()
    story.check([stage.act(line) for line in story.commands], golden)
