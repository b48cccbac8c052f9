"""What guards remember, and for whom: texts of commands beside this file."""

from tests.guards.catalog_stage import CatalogStage
from tests.guards.ledger_stage import LedgerStage
from tests.guards.memory_stage import MemoryStage
from tests.guards.small_stages import IntentStage, LockStage, RecordStage
from tests.guards.watched_stage import DepartedStage, NewcomerStage
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

test_story = in_virtual_time(
    check_stories(
        __file__,
        catalog=CatalogStage,
        departed=DepartedStage,
        intents=IntentStage,
        ledger=LedgerStage,
        locks=LockStage,
        memory=MemoryStage,
        newcomers=NewcomerStage,
        records=RecordStage,
    )
)
