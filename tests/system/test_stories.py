"""Stories on the real control plane: rights that are taken away, and the life of processes.

What each decision is, and all that no right, signal or restart has a part in, is told on the lab.
"""

import pytest

from tests.stories import check_stories
from tests.system.doctor_stage import DoctorStage
from tests.system.manifest_stage import ManifestStage
from tests.system.policy_stage import PolicyStage
from tests.system.release_stage import ReleaseStage
from tests.system.review_stage import ReviewStage
from tests.system.spaces_stage import SpacesStage
from tests.system.stage import PlaneStage

pytestmark = pytest.mark.controlplane

REVIEWS = ["budgets", "certificates", "downscales", "events", "judge", "permissions", "scaling"]

test_story = check_stories(
    __file__,
    **dict.fromkeys(REVIEWS, ReviewStage),
    doctor=DoctorStage,
    namespaces=SpacesStage,
    processes=PlaneStage,
    releases=ReleaseStage,
    policies=PolicyStage,
    webhooks=ManifestStage,
)
