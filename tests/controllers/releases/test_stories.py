"""What the controllers of releases do: texts of commands beside this file.

Those of one Rollout on an API server of a few dictionaries, and in `sandbox` those of a simulated
cluster with a process.
"""

from pathlib import Path

import pytest

from tests.controllers.releases.look_up_stage import LookUpStage
from tests.controllers.releases.sandbox_stage import Limits, SandboxStage
from tests.controllers.releases.stage import ControllerStage
from tests.controllers.releases.world import ReleaseSandbox
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

HERE = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(*HERE.glob("*.txt")))
def test_story(story: Story, golden: Golden) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await ControllerStage().play(story.commands))

    run()
    story.check(found, golden)


@pytest.mark.thorough
@pytest.mark.parametrize("story", read_stories(*HERE.glob("sandbox/*.txt")))
def test_story_of_a_cluster(story: Story, golden: Golden) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        limits = Limits()
        async with ReleaseSandbox.opened(namespace="prod", faults=limits) as world:
            found.extend(await SandboxStage(world, limits).play(story.commands))

    run()
    story.check(found, golden)


@pytest.mark.parametrize("story", read_stories(*HERE.glob("sources/*.txt")))
def test_story_of_look_ups(story: Story, golden: Golden, lines: list[str]) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await LookUpStage(lines).play_with_workers(story.commands))

    run()
    story.check(found, golden)
