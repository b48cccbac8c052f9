"""LI-11: a status that does not stay is written ever more seldom, and the refusal says why."""

import pytest

from rollout_operator.kube.scales.publications import Publications
from rollout_operator.model.errors import Throttled
from rollout_operator.model.scaling import Reference
from tests.virtual_time import VirtualClock, in_virtual_time

ONE = Reference("x.example.org", "Thing", "one")


@in_virtual_time
async def test_li11_what_is_written_in_vain_is_refused_and_says_what_is_the_matter() -> None:
    publications = Publications(VirtualClock())
    for _ in range(3):
        publications.check(ONE, 3)
        publications.note(ONE, 3)
    with pytest.raises(Throttled, match=r"status.replicas of Thing.x.example.org one was set to 3"):
        publications.check(ONE, 3)
    publications.check(ONE, 4)
    publications.forget(ONE)
    publications.check(ONE, 3)
