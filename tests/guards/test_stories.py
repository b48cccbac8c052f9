"""What guards remember, and for whom: texts of commands beside this file."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.guards.catalog_stage import CatalogStage
from tests.guards.ledger_stage import LedgerStage
from tests.guards.memory_stage import MemoryStage
from tests.guards.small_stages import IntentStage, LockStage, RecordStage
from tests.guards.watched_stage import DepartedStage, NewcomerStage
from tests.stories import Stage, Story, read_stories
from tests.virtual_time import in_virtual_time

STAGES: Final[dict[str, Callable[[], Stage]]] = {
    "departed": DepartedStage,
    "intents": IntentStage,
    "ledger": LedgerStage,
    "locks": LockStage,
    "newcomers": NewcomerStage,
    "records": RecordStage,
}
LOGGED: Final = {"catalog": CatalogStage, "memory": MemoryStage}


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
@in_virtual_time
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    name = story.path.stem
    stage = LOGGED[name](lines) if name in LOGGED else STAGES[name]()
    story.check(await stage.play(story.commands), golden)
