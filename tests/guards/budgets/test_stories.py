"""Budgets in force, and what is remembered of pods that go: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.guards.budgets.catalog_stage import CatalogStage
from tests.guards.budgets.memory_stage import MemoryStage
from tests.stories import Story, read_stories


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    stage = CatalogStage(lines) if story.path.stem == "catalog" else MemoryStage()
    story.check(await stage.play(story.commands), golden)
