"""Evictions, rollouts, controllers and reviews of budgets: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time
from tests.web.budgets.stage import BudgetStage
from tests.web.budgets.status_stage import StatusStage
from tests.web.budgets.validation_stage import ValidationStage

STAGES = {"status": StatusStage, "validation": ValidationStage}


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
@in_virtual_time
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    stage = STAGES.get(story.path.stem, BudgetStage)
    story.check(await stage(lines).play(story.commands), golden)
