"""One status a pass, written before anything else; what this process wrote counts at once."""

import asyncio
from collections import deque
from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.controllers.release_sources import ReleaseLookUps
from rollout_operator.controllers.releases import RESYNC
from rollout_operator.controllers.worker import RECHECK, Workers
from rollout_operator.kube import api as kinds
from rollout_operator.model.names import Conflict, Denied, Refused, UnknownOutcome
from rollout_operator.model.releases import ImageReference, ReleaseMetadata
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.exchange import ReleaseNotFound
from tests.controllers.releases.bench import ReleaseBench
from tests.virtual_time import VirtualClock, in_virtual_time

TRY = "try ocirepositories/app"
STATUS = "patch rollouts/status/app"
TAG = "apply ocirepositories/app"


@in_virtual_time
async def test_a_deployment_is_recorded_before_it_is_written() -> None:
    """RELB-15, RELB-21: one status, then the tag."""
    bench = ReleaseBench()
    await bench.step()
    assert bench.api.calls == [TRY, STATUS, TAG]
    assert (bench.history(), bench.tag) == ("1.0.0", "1.0.0")


@in_virtual_time
async def test_a_rollout_at_rest_writes_nothing() -> None:
    """RELB-21, RELB-06: and reports nothing."""
    bench = ReleaseBench()
    await bench.rest()
    bench.events.clear()
    for _ in range(20):
        result = await bench.step()
        bench.show()
    assert await bench.rest() == []
    assert bench.events == []
    assert result.again == RESYNC


@in_virtual_time
async def test_own_writes_count_until_the_caches_show_them() -> None:
    """A cache that lags brings on neither a second deployment nor a second tag."""
    bench = ReleaseBench()
    await bench.step()
    for _ in range(3):
        await bench.step()
    assert bench.api.calls.count(TAG) == 1
    assert [one["id"] for one in bench.status["history"]] == [1]
    assert bench.condition().startswith("True RolloutSucceeded")


@in_virtual_time
async def test_a_status_of_another_writer_is_not_written_over() -> None:
    """Nothing is deployed by what is outdated; it is read back, and decided anew."""
    bench = ReleaseBench()
    bench.api.add(kinds.ROLLOUTS, "app", {**bench.api.objects["rollouts", "app"]["spec"]})
    result = await bench.step()
    assert (bench.history(), bench.tag) == ("", "none")
    assert result.again is not None
    assert result.again < timedelta(seconds=1)
    await VirtualClock().sleep(result.again)
    await bench.step()
    assert bench.api.calls[-4:] == ["get rollouts/app", TRY, STATUS, TAG]
    assert bench.history() == "1.0.0"


@in_virtual_time
async def test_a_status_whose_answer_is_lost_is_read_back() -> None:
    """REL-01, RELB-10: whether it was written or not, there is one deployment."""
    bench = ReleaseBench()
    bench.api.errors["patch rollouts/status"] = deque([UnknownOutcome("no answer")])
    result = await bench.step()
    assert bench.tag == "none"
    assert result.again is not None
    await VirtualClock().sleep(result.again)
    await bench.rest()
    assert [one["id"] for one in bench.status["history"]] == [1]
    assert bench.tag == "1.0.0"


@in_virtual_time
async def test_the_digest_of_the_policy_is_recorded() -> None:
    """As the policy has it, without a registry."""
    bench = ReleaseBench()
    policy = bench.api.objects["imagepolicies", "app"]
    policy["status"]["latestRef"]["digest"] = f"sha256:{0:064}"
    await bench.rest()
    assert bench.status["history"][0]["version"]["digest"] == f"sha256:{0:064}"


@in_virtual_time
async def test_a_tag_whose_answer_is_lost_is_read_back() -> None:
    bench = ReleaseBench()
    bench.api.errors["apply ocirepositories"] = deque([UnknownOutcome("no answer")])
    await bench.step()
    await bench.step()
    assert bench.api.calls.count(TAG) == 1
    assert bench.api.calls[3] == "get ocirepositories/app"


@in_virtual_time
async def test_intents_are_removed_where_they_are_still_the_same() -> None:
    """RELB-10: another value is another intent."""
    bench = ReleaseBench()
    await bench.rest()
    key = "rollout.kuberik.com/retry"
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = {key: "1", "other": "x"}
    await bench.rest()
    assert bench.api.objects["rollouts", "app"]["metadata"]["annotations"] == {"other": "x"}

    rollout = bench.api.objects["rollouts", "app"]
    rollout["metadata"]["annotations"] = {key: "2"}
    bench.show()
    rollout["metadata"].update(annotations={key: "3"}, resourceVersion="999")
    await bench.step()
    assert bench.api.objects["rollouts", "app"]["metadata"]["annotations"] == {key: "3"}


@pytest.mark.parametrize(
    "text",
    [
        *("ann", "J\u00fcrgen", "Ann \u00c5str\u00f6m <ann@example.com>", "R&D", "\x7f", ""),
        *("\U0001f680", "\u65e5\u672c", 'a\n"b"\\', "\u2028", "\u00fc" * 5000),
    ],
)
@in_virtual_time
async def test_what_people_write_is_consumed_once_whatever_it_says(text: str) -> None:
    """REL-70, RELB-10, RELB-34: so that the second time it counts as the first time."""
    bench = ReleaseBench()
    await bench.rest()
    bench.api.add(kinds.ROLLOUT_GATES, "g", {"rolloutRef": {"name": "app"}, "passing": False})
    prefix = "rollout.kuberik.com/"
    for tag in ("1.1.0", "1.2.0"):
        bench.announce(tag)
        await bench.rest()
        rollout = bench.api.objects["rollouts", "app"]
        rollout["metadata"]["annotations"] = {
            f"{prefix}force-deploy": tag,
            f"{prefix}deploy-user": text,
            f"{prefix}deploy-message": text,
        }
        await bench.rest()
        rollout = bench.api.objects["rollouts", "app"]
        assert rollout["metadata"]["annotations"] == {}
        entry = bench.status["history"][0]
        assert entry["version"]["tag"] == tag
        if text:
            by = {"kind": "User", "name": text[:4096]}
            assert (entry["triggeredBy"], entry["message"]) == (by, text[:4096])


@in_virtual_time
async def test_an_intent_whose_text_is_very_long_is_removed() -> None:
    """RELB-10: of which only the beginning is kept, and only where nothing has changed since."""
    bench = ReleaseBench()
    await bench.rest()
    requested = {
        f"rollout.kuberik.com/{one}": "x" * 5000 for one in ("deploy-message", "deploy-user")
    }
    requested["rollout.kuberik.com/force-deploy"] = "1.1.0"
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = requested
    bench.announce("1.1.0")
    await bench.rest()
    assert bench.history() == "1.1.0 1.0.0"
    assert bench.api.objects["rollouts", "app"]["metadata"]["annotations"] == {}

    key = "rollout.kuberik.com/retry"
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = {key: "x" * 5000}
    bench.show()
    bench.api.add(
        kinds.ROLLOUTS,
        "app",
        bench.api.objects["rollouts", "app"]["spec"],
        status=bench.status,
        metadata={"annotations": {key: "x" * 5001}},
    )
    await bench.step()
    assert key in bench.api.objects["rollouts", "app"]["metadata"]["annotations"]


@in_virtual_time
async def test_a_value_by_hand_is_put_right() -> None:
    """RELB-12: without another entry of history."""
    bench = ReleaseBench()
    await bench.rest()
    source = bench.api.objects["ocirepositories", "app"]
    source["spec"]["ref"]["tag"] = "0.9.0"
    source["metadata"]["resourceVersion"] = "900"
    source["metadata"]["managedFields"] = [
        {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:ref": {"f:tag": {}}}}}
    ]
    bench.api.errors["apply ocirepositories"] = deque([Refused("no")])
    bench.events.clear()
    bench.show()
    await bench.step()
    assert bench.reasons() == []  # it is not corrected yet
    await bench.rest()
    assert (bench.history(), bench.tag) == ("1.0.0", "1.0.0")
    # One Event of that, which says whose value went.
    refused, event = bench.events
    assert (refused.reason, refused.note) == ("RolloutFailed", "no")
    assert event.reason == "DriftCorrected"
    assert event.note == (
        "OCIRepository prod/app: spec.ref: tag 0.9.0 -> 1.0.0; written by kubectl"
    )


@pytest.mark.parametrize("what", ["deleted", "gone", "old view"])
@in_virtual_time
async def test_nothing_is_decided_by_what_is_not_known(what: str) -> None:
    bench = ReleaseBench()
    rollouts = bench.kind("rollouts")
    if what == "deleted":
        metadata = bench.api.objects["rollouts", "app"]["metadata"]
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        bench.show()
    elif what == "gone":
        bench.api.objects.clear()
        bench.show()
    else:
        rollouts.proved_ago = timedelta(minutes=5)
    result = await bench.step()
    assert bench.api.calls == []
    assert result.again == (RECHECK if what == "old view" else None)


@pytest.mark.parametrize(("interval", "again"), [("10s", 10), ("1h", 60)])
@in_virtual_time
async def test_a_rollout_is_reconciled_once_an_interval(interval: str, again: int) -> None:
    """RELB-01, REL-13: what its image policy in another namespace selects is known by that."""
    bench = ReleaseBench(releaseUpdateInterval=interval)
    await bench.rest()
    assert (await bench.step()).again == timedelta(seconds=again)


@in_virtual_time
async def test_an_annotation_that_cannot_be_obeyed_is_reported_once() -> None:
    """REL-61."""
    bench = ReleaseBench()
    bench.api.add(
        kinds.KUSTOMIZATIONS[0],
        "app",
        {"sourceRef": {"kind": "OCIRepository", "name": "app"}},
        metadata={"annotations": {"rollout.kuberik.com/substitute.a.b.from": "app"}},
    )
    await bench.rest()
    await bench.rest()
    assert bench.reasons().count("InvalidAnnotation") == 1


@in_virtual_time
async def test_a_deployment_is_tried_before_it_is_recorded() -> None:
    """REL-62: what one object refuses is written to none, and a newer version goes before it."""
    bench = ReleaseBench()
    add_another(bench)
    bench.api.errors["try ocirepositories"] = deque(
        [Refused("no"), Denied("no"), UnknownOutcome("no")]
    )
    for calls in ([ALSO, STATUS], [ALSO], [ALSO]):
        before = len(bench.api.calls)
        result = await bench.step()
        assert bench.api.calls[before:] == calls
        assert (bench.history(), list_tags(bench)) == ("", ["none", "none"])
        assert result.again is not None
        assert result.again < RESYNC
        bench.show()
    assert bench.condition() == "False RolloutFailed: 1.0.0 is not deployed: no"
    bench.announce("1.1.0")
    await bench.rest()
    assert (bench.history(), list_tags(bench)) == ("1.1.0", ["1.1.0", "1.1.0"])
    assert bench.condition().startswith("True RolloutSucceeded")


@in_virtual_time
async def test_what_changes_during_a_trial_counts() -> None:
    """REL-50: a gate that is closed meanwhile holds, and a version of that moment is tried anew."""
    bench = ReleaseBench()
    await bench.rest()
    for what, history in (("gate", "1.0.0"), ("policy", "1.2.0 1.0.0")):
        bench.announce("1.1.0")

        async def change(call: str, what: str = what) -> None:
            if call.startswith("try") and what == "policy":
                bench.announce("1.2.0")
            if call.startswith("try") and what == "gate":
                gate = {"rolloutRef": {"name": "app"}, "passing": False}
                bench.api.add(kinds.ROLLOUT_GATES, "g", gate)
                bench.show("rolloutgates")

        bench.api.pause = change
        await bench.step()
        await bench.step()
        assert bench.history() == history
        bench.api.objects.pop(("rolloutgates", "g"), None)
        bench.show()


@in_virtual_time
async def test_a_deployment_stops_at_an_object_that_cannot_be_written() -> None:
    """REL-62: no release is half in place, as far as that is known; a correction holds no other."""
    bench = ReleaseBench()
    add_another(bench)
    bench.api.errors["apply ocirepositories"] = deque([Conflict("no")])
    await bench.step()
    assert list_tags(bench) == ["none", "none"]
    await bench.rest()
    assert list_tags(bench) == ["1.0.0", "1.0.0"]
    for name in ("also", "app"):
        bench.api.objects["ocirepositories", name]["spec"]["ref"]["tag"] = "mine"
        bench.api.objects["ocirepositories", name]["metadata"]["resourceVersion"] = "900"
    bench.show()
    bench.api.errors["apply ocirepositories"] = deque([Conflict("no")])
    await bench.step()
    assert list_tags(bench) == ["mine", "1.0.0"]


ALSO = "try ocirepositories/also"


def add_another(bench: ReleaseBench) -> None:
    """Have a second OCIRepository for the Rollout, which is written first."""
    bench.api.add(
        kinds.OCI_REPOSITORIES[0],
        "also",
        {"ref": {"tag": "none"}},
        metadata={"annotations": {"rollout.kuberik.com/rollout": "app"}},
    )
    bench.show()


def list_tags(bench: ReleaseBench) -> list[str]:
    """Return the tags of both."""
    repositories = [bench.api.objects["ocirepositories", name] for name in ("also", "app")]
    return [one["spec"]["ref"]["tag"] for one in repositories]


SELECTS_NAMESPACES = {"selector": {}, "namespaceSelector": {"matchLabels": {"team": "platform"}}}


@in_virtual_time
async def test_health_of_selected_namespaces_counts() -> None:
    """REL-54, RT-55: and that of no other namespace."""
    bench = ReleaseBench(healthCheckSelector=SELECTS_NAMESPACES)
    bench.put_elsewhere("platform", "Unhealthy", team="platform")
    bench.put_elsewhere("others", "Unhealthy", team="others")
    await bench.rest()
    blocked = bench.condition("DeploymentBlocked")
    assert blocked == "True UnhealthyHealthChecks: unhealthy: platform/platform (unhealthy)"


@in_virtual_time
async def test_health_elsewhere_that_is_not_known_yet_is_waited_for() -> None:
    bench = ReleaseBench(healthCheckSelector=SELECTS_NAMESPACES)
    bench.wide_checks.proved_ago = timedelta(minutes=5)
    result = await bench.step()
    assert bench.api.calls == []
    assert result.again is not None


@in_virtual_time
async def test_a_pass_regards_the_objects_of_its_rollout_alone() -> None:
    """RELB-21: among a hundred Rollouts a pass costs as much as alone, and at rest nothing."""
    bench = ReleaseBench()
    for number in range(100):
        name = f"app-{number}"
        bench.api.add(kinds.ROLLOUTS, name, {"releasesImagePolicy": {"name": "app"}})
        bench.api.add(kinds.ROLLOUT_GATES, name, {"rolloutRef": {"name": name}})
        annotations = {"rollout.kuberik.com/rollout": name}
        bench.api.add(
            kinds.OCI_REPOSITORIES[0], name, {"ref": {}}, metadata={"annotations": annotations}
        )
        source = {"kind": "OCIRepository", "name": name}
        bench.api.add(kinds.KUSTOMIZATIONS[0], name, {"sourceRef": source})
    for _ in range(3):
        bench.show()
        for number in range(100):
            await bench.step(f"app-{number}")
    before = len(bench.api.calls)
    bench.show()
    for number in range(100):
        await bench.step(f"app-{number}")
    assert len(bench.api.calls) == before
    repository, kustomization = bench.flux.get_flux("app-7")
    assert (repository.head.name, kustomization.head.name) == ("app-7", "app-7")
    assert kustomization.rollouts == {}


@in_virtual_time
async def test_a_retry_does_not_depend_on_flux_being_hurried() -> None:
    """RELB-35: the annotation goes all the same."""
    bench = ReleaseBench(deployTimeout="1m", healthCheckSelector={"selector": {}})
    await bench.rest()
    key = "rollout.kuberik.com/retry"
    failed = {**bench.status["history"][0], "bakeStatus": "Failed"}
    bench.api.objects["rollouts", "app"]["status"]["history"] = [failed]
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = {key: "1"}
    bench.api.errors["patch ocirepositories"] = deque([Refused("no")])
    calls = await bench.rest()
    assert "patch ocirepositories/app" in calls
    assert bench.api.objects["rollouts", "app"]["metadata"]["annotations"] == {}
    assert bench.status["history"][0]["retries"] == 1


@in_virtual_time
async def test_what_another_writer_had_chosen_is_reported() -> None:
    """RELB-14, RELB-12: whose value went, and what would have gone before the tag."""
    bench = ReleaseBench()
    source = bench.api.objects["ocirepositories", "app"]
    source["spec"]["ref"]["digest"] = "sha256:0"
    ref: dict[str, Any] = {"f:tag": {}, "f:digest": {}}
    source["metadata"]["managedFields"] = [
        {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:ref": ref}}}
    ]
    await bench.rest()
    assert bench.api.objects["ocirepositories", "app"]["spec"]["ref"] == {"tag": "1.0.0"}
    notes = {one.reason: one.note for one in bench.events}
    assert notes["ValueTaken"].endswith("written by kubectl")
    assert notes["ChoiceCleared"] == (
        "OCIRepository prod/app: spec.ref: digest sha256:0 cleared: it would go before the tag"
    )


class Registries:
    """Has no image at all."""

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        raise ReleaseNotFound(f"{image}: there is none")


@pytest.mark.parametrize(("is_held", "history"), [(True, "1.0.0"), (False, "7.7.7 1.0.0")])
@in_virtual_time
async def test_a_pin_that_the_registry_does_not_have(is_held: bool, history: str) -> None:
    """RELB-23: is held where that is requested, and reported in any case."""
    bench = ReleaseBench()
    bench.api.add(kinds.IMAGE_REPOSITORIES[0], "app", {"image": "registry.example/app"})
    await bench.rest()
    look_ups = ReleaseLookUps(Registries(), bench.api, VirtualClock(), lambda name, wait: None)
    bench.use(look_ups, verifies_wanted=is_held)
    bench.api.objects["rollouts", "app"]["spec"]["wantedVersion"] = "7.7.7"
    async with asyncio.TaskGroup() as tasks:
        workers = Workers(look_ups.queue, look_ups.look_up, count=1, rng=lambda: 0.5)
        tasks.create_task(workers.run(), name="workers")
        await bench.rest()
        look_ups.queue.close()
    assert bench.history() == history
    assert bench.condition("WantedVersionFound").startswith("False NotFound: ")
