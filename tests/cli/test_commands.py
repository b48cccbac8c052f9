"""`status`, `explain` and `wait`, as a person types them: texts beside this file."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout_operator.cli.wait import await_release
from rollout_operator.model.description import ReleasePhase
from tests.cli.command_stage import CommandStage
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time
from tests.web.status.descriptions import release

HERE = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(HERE / "wait.txt", HERE / "explain.txt"))
@in_virtual_time
async def test_story(story: Story, golden: Golden) -> None:
    await play(story, golden)


@pytest.mark.slow
@pytest.mark.parametrize("story", read_stories(HERE / "wait_long.txt"))
@in_virtual_time
async def test_long_story(story: Story, golden: Golden) -> None:
    await play(story, golden)


def test_what_is_requested_of_a_rollout_counts_before_it_has_had_an_effect() -> None:
    through = replace(release("app", ReleasePhase.DEPLOYED), next="", waits=())
    retried = replace(through, is_retry_requested=True)
    forced = replace(through, next="0.9.0")
    spare = replace(through, requests=("rollout.kuberik.com/unblock-failed: true",))
    reached = [await_release(one).is_reached for one in (through, retried, forced, spare)]
    assert reached == [True, False, False, True]


async def play(story: Story, golden: Golden) -> None:
    story.check(await CommandStage().play(story.commands), golden)
