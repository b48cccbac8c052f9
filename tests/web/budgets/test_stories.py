"""Evictions, rollouts, controllers and reviews of budgets: texts of commands beside this file."""

from tests.stories import check_stories
from tests.virtual_time import in_virtual_time
from tests.web.budgets.stage import BudgetStage
from tests.web.budgets.status_stage import StatusStage
from tests.web.budgets.validation_stage import ValidationStage

OTHERS = ["accounts", "controller", "faults", "grants", "reviews", "rules", "shares", "turns"]

test_story = in_virtual_time(
    check_stories(
        __file__,
        **dict.fromkeys(OTHERS, BudgetStage),
        status=StatusStage,
        validation=ValidationStage,
    )
)
