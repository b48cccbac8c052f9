"""Stories on the real control plane: rights that are taken away, and the life of processes.

What each decision is, and all that no right, signal or restart has a part in, is told on the lab.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.system.doctor_stage import DoctorStage
from tests.system.manifest_stage import ManifestStage
from tests.system.policy_stage import PolicyStage
from tests.system.release_stage import ReleaseStage
from tests.system.review_stage import ReviewStage
from tests.system.spaces_stage import SpacesStage
from tests.system.stage import PlaneStage
from tests.world.world import World

pytestmark = pytest.mark.controlplane

HERE: Final = Path(__file__).parent
STAGES: Final = {
    "budgets": ReviewStage,
    "certificates": ReviewStage,
    "doctor": DoctorStage,
    "events": ReviewStage,
    "judge": ReviewStage,
    "namespaces": SpacesStage,
    "permissions": ReviewStage,
    "processes": PlaneStage,
    "downscales": ReviewStage,
    "releases": ReleaseStage,
    "scaling": ReviewStage,
    "policies": PolicyStage,
    "webhooks": ManifestStage,
}


@pytest.mark.parametrize("story", read_stories(*(HERE / f"{name}.txt" for name in STAGES)))
async def test_story(story: Story, golden: Golden, world: World) -> None:
    stage = STAGES[story.path.stem](world)
    try:
        story.check(await stage.play(story.commands), golden)
    finally:
        await stage.close()
