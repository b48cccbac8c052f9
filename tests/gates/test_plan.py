"""When a health check lets the next zone begin, told in the texts beside this file."""

from datetime import timedelta
from pathlib import Path

import pytest

from rollout_operator.gates.model import RANGE, TARGET_MATCHERS
from rollout_operator.gates.plan import fill_query
from tests.builders import pod
from tests.gates.plan_stage import PlanStage
from tests.goldens import Golden
from tests.stories import Story, read_stories


@pytest.mark.parametrize("story", read_stories(Path(__file__).parent / "plan.txt"))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await PlanStage().play(story.commands), golden)


def test_a_query_is_not_filled_with_more_names_than_it_may_have() -> None:
    once, often = (f"a{{{TARGET_MATCHERS}}}[{RANGE}]" * count for count in (1, 100))
    pods = [pod("a", ordinal) for ordinal in range(1000)]

    assert "zone-a-999" in fill_query(once, pods, timedelta(minutes=5))
    assert fill_query(often, pods, timedelta(minutes=5)) == ""
