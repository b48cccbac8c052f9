"""What is remembered of pods that go, and written on them: texts of commands beside this file."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout_operator.guards.grants import MOST_PODS, UnusedGrants, is_recorded
from rollout_operator.kube.store import PodStore
from rollout_operator.model.names import Uid
from tests.builders import NOW, pod
from tests.fakes_clock import FakeClock
from tests.goldens import Golden
from tests.guards.budgets.memory_stage import MemoryStage
from tests.stories import Story, read_stories


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("memory.txt")))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await MemoryStage().play(story.commands), golden)


def test_li07_a_record_too_deep_to_read_counts() -> None:
    assert is_recorded(replace(pod("a", 0), disruption="[" * 9999), NOW)


def test_d68_the_memory_of_unused_grants_is_bounded() -> None:
    """The pods are real, and there may be very many of them."""
    cache = PodStore()
    unused = UnusedGrants(cache, FakeClock())
    base = pod("a", 0)
    pods = [replace(base, name=f"p-{at}", uid=Uid(f"u-{at}")) for at in range(MOST_PODS + 5)]
    cache.replace_all(pods)
    for one in pods:
        unused.record(one)
    assert len(unused) == MOST_PODS
    assert unused.count(pods[0].uid) == 0
    assert unused.count(pods[-1].uid) == 1
