"""Rollouts from the plan to the last pod: texts of commands beside this file."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout_operator.controllers.rollout import MOST_SIGNS, OtherOperators
from rollout_operator.guards.grants import COMMIT_LIMIT, OwnDeletes
from rollout_operator.kube.store import PodStore, StatefulSetStore
from tests.builders import pod, sts
from tests.controllers.rollout.stage import GROUP, RolloutStage
from tests.fakes_clock import FakeClock
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await RolloutStage(lines).play(story.commands))

    run()
    story.check(found, golden)


def test_the_memory_of_other_operators_is_bounded() -> None:
    sets, clock, old = StatefulSetStore(), FakeClock(), pod("a", 0)
    sets.replace_all([sts("a")])
    others = OtherOperators(sets, OwnDeletes(PodStore(), clock), clock, lambda group: None)
    others.begin()
    clock.jump(COMMIT_LIMIT)
    for _ in range(MOST_SIGNS + 1):
        others.on_pod(old, replace(old, is_terminating=True, is_ready=False))

    assert len(others._signs[GROUP]) == MOST_SIGNS
