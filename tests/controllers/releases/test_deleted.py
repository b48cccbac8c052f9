"""A Rollout that goes in mid-bake or while it is written, and another one of its name."""

from collections import deque
from typing import Final

from rollout_operator.kube import release_kinds as kinds
from rollout_operator.model.errors import NotFound
from tests.controllers.releases.bench import ReleaseBench
from tests.virtual_time import in_virtual_time

BAKING: Final = {"bakeTime": "10m"}


@in_virtual_time
async def test_one_that_goes_in_mid_bake_leaves_its_objects_alone() -> None:
    """REL-85: nothing is written any more, neither over it nor into what it wrote."""
    bench = ReleaseBench(**BAKING)
    at_once = {"rollout.kuberik.com/wait-for-flux": "false"}
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = at_once
    await bench.rest()
    assert bench.status["history"][0]["bakeStatus"] == "InProgress"
    del bench.api.objects["rollouts", "app"]
    calls = len(bench.api.calls)
    bench.show()
    bench.api.objects["ocirepositories", "app"]["spec"]["ref"]["tag"] = "0.1.0"
    result = await bench.step()
    assert (result.again, bench.api.calls[calls:]) == (None, [])


@in_virtual_time
async def test_one_that_goes_before_the_caches_show_it() -> None:
    """REL-85: no tag is written without a record."""
    bench = ReleaseBench(**BAKING)
    del bench.api.objects["rollouts", "app"]
    bench.api.errors["patch rollouts/status"] = deque([NotFound("gone", status=404)])
    await bench.step()
    assert bench.tag == "none"


@in_virtual_time
async def test_another_one_of_its_name_begins_anew() -> None:
    """REL-83: nothing that is remembered of the first counts for it."""
    bench = ReleaseBench(**BAKING)
    await bench.rest()
    del bench.api.objects["rollouts", "app"]
    spec = {"releasesImagePolicy": {"name": "app"}}
    bench.api.add(kinds.ROLLOUTS, "app", spec, metadata={"uid": "another"})
    bench.announce("1.1.0")
    await bench.rest()
    assert (bench.history(), bench.tag) == ("1.1.0", "1.1.0")
    assert [one["id"] for one in bench.status["history"]] == [1]
    assert "DriftCorrected" not in bench.reasons()
