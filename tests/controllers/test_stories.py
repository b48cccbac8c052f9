"""What controllers do: texts of commands beside this file and in its folders.

The stage of each folder has its commands: live reads and workers here, rollouts from the plan to
the last pod, look-ups in registries; policies and releases in a simulated cluster, one Rollout call
by call, and replicas from annotations to writes and calls.
"""

from collections.abc import Callable
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
from tests.stories import Stage, check_stories
from tests.virtual_time import in_virtual_time

ROLLOUTS: Final = ["budgets", "executor", "others", "reconcile"]
POLICIES: Final = ["edits", "rollouts", "safety", "zones"]
SCALINGS: Final = ["delays", "marks", "writes", "zones"]
RELEASES: Final = ["checks", "holds", "schedules"]


def check(folder: str, **stages: Callable[..., Stage]) -> Callable[..., None]:
    return in_virtual_time(check_stories(__file__, folder, **stages))


test_work = check(".", reads=ReadStage, work=WorkStage)
test_rollout = check("rollout", **dict.fromkeys(ROLLOUTS, RolloutStage))
test_release = check("releases", passes=PassStage, problems=PassStage)
test_look_up = check("releases/sources", look_ups=LookUpStage)

# In a simulated cluster.
test_policy = pytest.mark.thorough(check("policies", **dict.fromkeys(POLICIES, PolicyStage)))
test_scaling = pytest.mark.thorough(
    check("scaling", calls=CallerStage, **dict.fromkeys(SCALINGS, ScalingStage))
)
test_releases = pytest.mark.thorough(
    check("releases/sandbox", **dict.fromkeys(RELEASES, SandboxStage))
)
