"""When a health check lets the next zone begin, told in the texts beside this file."""

from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.gates.model import RANGE, TARGET_MATCHERS
from rollout_operator.gates.plan import CheckPlan, fill_query, plan_check
from tests.builders import pod
from tests.gates import plan_stage
from tests.gates.plan_stage import PlanStage
from tests.stories import check_stories

test_story = check_stories(__file__, plan=PlanStage)


def test_a_query_is_not_filled_with_more_names_than_it_may_have() -> None:
    once, often = (f"a{{{TARGET_MATCHERS}}}[{RANGE}]" * count for count in (1, 100))
    pods = [pod("a", ordinal) for ordinal in range(1000)]

    assert "zone-a-999" in fill_query(once, pods, timedelta(minutes=5))
    assert fill_query(often, pods, timedelta(minutes=5)) == ""


async def test_questions_that_would_take_too_much_memory_wait_for_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = PlanStage()
    await stage.do_roll("abc", "R2")
    asked: list[int] = []

    def note(*args: Any) -> CheckPlan:
        plan = plan_check(*args)
        asked.append(len(plan.questions))
        return plan

    monkeypatch.setattr(plan_stage, "plan_check", note)
    monkeypatch.setattr("rollout_operator.gates.plan._MOST_FILLED", 100)

    said = await stage.do_crowd("1", "3")

    assert asked == [0, 1, 1, 1, 1, 1, 0, 0]
    assert said.startswith("1 recorded and read back")
