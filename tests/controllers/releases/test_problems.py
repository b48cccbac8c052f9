"""What a Rollout says while something keeps it from being deployed, and what of one that goes."""

from collections import deque
from datetime import timedelta
from typing import Any, Final

import pytest

from rollout_operator.controllers.releases import RESYNC
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import KUSTOMIZATIONS
from rollout_operator.model.budget import EventKind, Regarding
from rollout_operator.model.names import NotFound, Refused, Uid
from rollout_operator.model.outcome import Severity
from tests.controllers.releases.bench import ReleaseBench
from tests.virtual_time import VirtualClock, in_virtual_time

BAKING: Final = {"bakeTime": "10m"}


@in_virtual_time
async def test_a_tag_that_is_not_written_is_said_and_written_later() -> None:
    """REL-62, RELB-15: the record stays, also over the end of the process."""
    bench = ReleaseBench()
    bench.api.errors["apply ocirepositories"] = deque([Refused("webhook says no")] * 3)
    await bench.step()
    bench.show()
    await bench.step()
    assert bench.condition() == "False RolloutFailed: webhook says no"
    bench.restart()
    bench.show()
    await bench.step()
    await bench.rest()
    assert (bench.history(), bench.tag) == ("1.0.0", "1.0.0")
    assert bench.condition().startswith("True RolloutSucceeded")
    assert bench.reasons().count("DeploymentSucceeded") == 1


@in_virtual_time
async def test_a_write_that_was_made_up_for_is_no_problem_any_more() -> None:
    """REL-62: the condition says so without another process, and all is at rest."""
    bench = ReleaseBench()
    bench.api.errors["apply ocirepositories"] = deque([Refused("webhook says no")])
    await bench.step()
    for _ in range(3):
        await VirtualClock().sleep(timedelta(seconds=10))
        bench.show()
        result = await bench.step()
    assert bench.condition().startswith("True RolloutSucceeded")
    assert result.again == RESYNC


@in_virtual_time
async def test_a_rollout_that_cannot_be_obeyed_says_why() -> None:
    """By its condition and an Event of its own, and nothing is deployed."""
    bench = ReleaseBench(bakeTime="soon")
    await bench.rest()
    assert bench.condition() == (
        'False InvalidSpec: Rollout prod/app: spec.bakeTime: "soon" is no duration such as 1h30m'
    )
    assert (bench.history(), bench.tag) == ("", "none")
    (event,) = bench.events
    assert event.regarding == Regarding(EventKind.RELEASE, "prod", "app", Uid("uid-app"))
    assert event.severity is Severity.WARN


@pytest.mark.parametrize(
    "spec",
    [
        {"wantedVersion": ""},
        {"bakeTime": "soon"},
        {"healthCheckSelector": {"selector": {}, "matchLabels": {}}},
        {"versionHistoryLimit": 0},
    ],
)
@in_virtual_time
async def test_what_is_announced_while_a_rollout_cannot_be_obeyed_is_known_after_that(
    spec: dict[str, Any],
) -> None:
    """REL-35, REL-46: each version can be requested by name later."""
    bench = ReleaseBench()
    await bench.rest()
    good = bench.api.objects["rollouts", "app"]["spec"]
    bench.api.objects["rollouts", "app"]["spec"] = {**good, **spec}
    for tag in ("1.1.0", "1.2.0"):
        bench.announce(tag)
        assert await bench.rest() == ["patch rollouts/status/app"]
    assert (bench.history(), bench.tag) == ("1.0.0", "1.0.0")
    assert bench.condition().startswith("False InvalidSpec")
    rollout = bench.api.objects["rollouts", "app"]
    rollout["spec"] = {**good, "suspend": False}
    rollout["metadata"]["annotations"] = {"rollout.kuberik.com/force-deploy": "1.1.0"}
    bench.show()
    await bench.step()
    assert bench.history() == "1.1.0 1.0.0"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("gates", "GateListFailed"),
        ("checks", "HealthCheckListFailed"),
        ("policies", "RolloutFailed"),
        ("oci_repositories", "RolloutFailed"),
    ],
)
@in_virtual_time
async def test_a_kind_that_may_not_be_read_holds_and_is_reported(kind: str, reason: str) -> None:
    """REL-49, REL-71: a closed gate may be among what is not seen."""
    bench = ReleaseBench()
    hidden = bench.kind(kind)
    hidden.may_be_read = False
    await bench.rest()
    assert bench.condition().startswith(f"False {reason}: ")
    assert bench.history() == ""
    hidden.may_be_read = True
    await bench.rest()
    assert bench.history() == "1.0.0"


@in_virtual_time
async def test_without_flux_a_rollout_says_so() -> None:
    """RELB-27."""
    bench = ReleaseBench()
    bench.kind("policies").is_there = False
    await bench.rest()
    assert bench.condition().startswith("False FluxNotInstalled: ")
    assert bench.reasons() == ["FluxNotInstalled"]


@in_virtual_time
async def test_where_flux_has_nothing_to_write_to_no_version_counts_as_deployed() -> None:
    """RELB-27: its kinds were removed, and come back."""
    bench = ReleaseBench()
    await bench.rest()
    kinds = (bench.kind("oci_repositories"), bench.kind("kustomizations"))
    for kind in kinds:
        kind.is_there = False
    bench.announce("1.1.0")
    await bench.rest()
    assert bench.condition().startswith("False FluxNotInstalled: ")
    assert bench.history() == "1.0.0"
    for kind in kinds:
        kind.is_there = True
    await bench.rest()
    assert (bench.history(), bench.tag) == ("1.1.0 1.0.0", "1.1.0")


@in_virtual_time
async def test_where_the_kind_of_its_objects_is_gone_no_version_counts_as_deployed() -> None:
    """RELB-27, REL-62: with objects of the other kind it goes on."""
    bench = ReleaseBench()
    await bench.rest()
    del bench.api.objects["ocirepositories", "app"]
    bench.kind("oci_repositories").is_there = False
    bench.announce("1.1.0")
    await bench.rest()
    assert bench.condition() == (
        "False FluxNotInstalled: the cluster has no kind OCIRepository, and no object of another"
        " kind is annotated for it"
    )
    assert bench.history() == "1.0.0"
    annotations = {"rollout.kuberik.com/substitute.version.from": "app"}
    source = {"sourceRef": {"kind": "GitRepository", "name": "app"}}
    bench.api.add(KUSTOMIZATIONS[0], "app", source, metadata={"annotations": annotations})
    bench.api.errors["apply kustomizations"] = deque([Refused("not here")])
    bench.show()
    await bench.step()
    assert bench.history() == "1.1.0 1.0.0"


@in_virtual_time
async def test_a_version_that_no_object_gets_is_said_to_be_nowhere() -> None:
    """Else it looks deployed to readers of the Rollout."""
    bench = ReleaseBench()
    del bench.api.objects["ocirepositories", "app"]
    await bench.rest()
    text = "no object of Flux is annotated for it"
    assert bench.condition().startswith("True RolloutSucceeded: ")
    assert bench.condition().endswith(text)
    (event,) = [event for event in bench.events if event.reason == "DeploymentSucceeded"]
    assert event.note.endswith(text)
    assert event.severity is Severity.WARN


@in_virtual_time
async def test_health_that_may_not_be_read_elsewhere_is_said() -> None:
    """REL-71: nothing bakes by what is not seen."""
    bench = ReleaseBench(healthCheckSelector={"selector": {}, "namespaceSelector": {}})
    bench.namespaces.may_be_read = False
    await bench.rest()
    assert bench.condition() == (
        "False HealthCheckListFailed: HealthChecks of other namespaces: Namespace: forbidden"
    )
    assert bench.history() == ""


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
