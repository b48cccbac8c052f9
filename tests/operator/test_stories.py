"""The whole operator on a simulated cluster, and its Events: texts of commands beside this file."""

from typing import Final

import pytest

from tests.operator.event_stage import EventStage
from tests.operator.stage import OperatorStage
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

OTHERS: Final = ["beside", "departed", "failover", "limits", "pages", "tenants"]


def plain(lines: list[str]) -> OperatorStage:
    return OperatorStage(lines, has_webhooks=False, is_quick=False)


test_events = in_virtual_time(check_stories(__file__, events=EventStage))
test_story = pytest.mark.thorough(
    in_virtual_time(
        check_stories(
            __file__,
            **dict.fromkeys(OTHERS, plain),
            marks=lambda lines: OperatorStage(lines, has_webhooks=False),
            scaling=lambda lines: OperatorStage(lines),
        )
    )
)
