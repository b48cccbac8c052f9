"""What controllers do: texts of commands beside this file and in its folders.

The stage of each folder has its commands: live reads and workers here, rollouts from the plan to
the last pod, look-ups in registries; policies and releases in a simulated cluster, one Rollout call
by call, and replicas from annotations to writes and calls.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.controllers.policies.stage import PolicyStage
from tests.controllers.read_stage import ReadStage
from tests.controllers.releases.look_up_stage import LookUpStage
from tests.controllers.releases.sandbox_stage import SandboxStage
from tests.controllers.releases.stage import PassStage
from tests.controllers.rollout.stage import RolloutStage
from tests.controllers.scaling.caller_stage import CallerStage
from tests.controllers.scaling.stage import ScalingStage
from tests.controllers.work_stage import WorkStage
from tests.goldens import Golden
from tests.stories import Stage, Story, read_stories
from tests.virtual_time import in_virtual_time

HERE: Final = Path(__file__).parent
# By text, or by folder.
STAGES: Final[Mapping[str, Callable[[list[str]], Stage]]] = {
    "reads": lambda lines: ReadStage(),
    "work": WorkStage,
    "rollout": RolloutStage,
    "releases": lambda lines: PassStage(),
    "sources": LookUpStage,
    "policies": PolicyStage,
    "sandbox": lambda lines: SandboxStage(),
    "calls": CallerStage,
    "scaling": ScalingStage,
}


def _list_texts(*patterns: str) -> list[Path]:
    return [path for pattern in patterns for path in HERE.glob(pattern)]


@pytest.mark.parametrize(
    "story", read_stories(*_list_texts("*.txt", "r*/*.txt", "releases/sources/*.txt"))
)
@in_virtual_time
async def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    await _play(story, golden, lines)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "story", read_stories(*_list_texts("policies/*.txt", "scaling/*.txt", "releases/sandbox/*.txt"))
)
@in_virtual_time
async def test_story_of_a_cluster(story: Story, golden: Golden, lines: list[str]) -> None:
    await _play(story, golden, lines)


async def _play(story: Story, golden: Golden, lines: list[str]) -> None:
    make = STAGES.get(story.path.stem) or STAGES[story.path.parent.name]
    story.check(await make(lines).play(story.commands), golden)
