"""Release rollouts on the real control plane, with kinds of Flux and a stand-in for Flux itself."""

from pathlib import Path

import pytest

from tests.oci.registries import NAME
from tests.system.releasing import (
    GATES,
    ON,
    ROLLOUTS,
    SELECTED,
    annotate,
    announce,
    create,
    create_check,
    create_older_policy,
    create_pull_secret,
    create_targets,
    now,
    prepare,
    read_annotations,
    read_status,
    read_tags,
    refusing,
    run_flux,
    set_health,
    show_condition,
    show_history,
    wait_history,
    wait_message,
    wait_release_condition,
    wait_tags,
)
from tests.system.waits import wait_true
from tests.world.budgets import FOLDER, install_kinds
from tests.world.faults import Cut, Truncate, stored
from tests.world.flux import IMAGE_POLICIES, OCI_REPOSITORIES, install_flux, remove_flux
from tests.world.images import push_image
from tests.world.registry import PASSWORD, serving
from tests.world.world import World

pytestmark = pytest.mark.controlplane

POLICY = {"releasesImagePolicy": {"name": "app"}}
NO_REGISTRY = "-releases.metadata=none"
# Else the Lease of a process that was killed is waited for.
ALONE = "-leader-election.enabled=false"


async def test_a_first_release_and_a_gated_one(world: World) -> None:
    """REL-89: what is announced, and a gate that opens, are acted on at once."""
    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    await create(world, ROLLOUTS, "Rollout", "app", POLICY)
    operator = await world.operator(ON, NO_REGISTRY)

    status = await wait_history(world, "1.0.0 Succeeded")
    await wait_tags(world, "1.0.0")
    assert show_condition(status, "GatesPassing").startswith("True")

    gate = {"rolloutRef": {"name": "app"}, "passing": False}
    await create(world, GATES, "RolloutGate", "closed", gate)
    await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking")
    await announce(world, "1.1.0")
    status = await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking")
    await world.api.patch(GATES, world.namespace, "closed", {"spec": {"passing": True}})
    await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
    await wait_tags(world, "1.1.0")
    assert show_condition(await read_status(world), "Ready") == "True RolloutSucceeded"
    assert await operator.terminate() == 0
    await world.assert_permitted()


async def test_what_the_policy_extracts_decides_which_version_is_newer(world: World) -> None:
    """RELB-03: a hash that looks like a number, and a policy that goes back, or changes."""
    await prepare(world)
    await create_targets(world)
    tags = {"filterTags": {"pattern": "^(?P<v>[0-9.]+)-[0-9a-f]{7}$", "extract": "$v"}}
    await world.patch(IMAGE_POLICIES, "app", {"spec": tags})
    await announce(world, "1.2.3-abc1234")
    await create(world, ROLLOUTS, "Rollout", "app", POLICY)
    operator = await world.operator(ON, NO_REGISTRY)
    await wait_history(world, "1.2.3-abc1234 Succeeded")

    await announce(world, "1.2.4-0123456")
    last = "1.2.4-0123456 Succeeded, 1.2.3-abc1234 Succeeded"
    await wait_history(world, last)
    await announce(world, "1.2.2-fffffff")
    await wait_release_condition(world, "GatesPassing", "True NoReleaseCandidates")
    assert show_history(await read_status(world)) == last
    await world.patch(IMAGE_POLICIES, "app", {"spec": {"filterTags": {"pattern": "^1.2.3"}}})
    await announce(world, "1.2.3-abc1234")
    status = await wait_release_condition(world, "UpgradePathUnknown", "True UpgradePathUnknown")
    assert show_history(status) == last
    assert await operator.terminate() == 0
    await world.assert_permitted()


async def test_a_version_that_admission_refuses_is_not_deployed(world: World) -> None:
    """REL-62: no object is written, nothing is on record, and a newer version goes before it."""
    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    spec = {**POLICY, "bakeTime": "0s", "deployTimeout": "1s"}
    await create(world, ROLLOUTS, "Rollout", "app", spec)
    async with refusing(world.api, world.namespace, "1.1.0"):
        operator = await world.operator(ON, NO_REGISTRY)
        await wait_tags(world, "1.0.0")
        await run_flux(world)
        await wait_history(world, "1.0.0 Succeeded")
        await announce(world, "1.1.0")
        status = await wait_release_condition(world, "Ready", "False RolloutFailed")
        (ready,) = [one for one in status["conditions"] if one["type"] == "Ready"]
        assert "1.1.0 is not deployed: " in ready["message"]
        assert "1.1.0 is broken" in ready["message"]
        assert [one["tag"] for one in status["releaseCandidates"]] == ["1.1.0"]
        assert show_condition(status, "TargetConflict") == ""
        await wait_tags(world, "1.0.0")
        await announce(world, "1.2.0")
        await wait_tags(world, "1.2.0")
        await run_flux(world)
        await wait_history(world, "1.2.0 Succeeded, 1.0.0 Succeeded")
        assert await operator.terminate() == 0
    await world.assert_permitted()


async def test_a_release_bakes_fails_is_retried_and_rolled_back(
    world: World, tmp_path: Path
) -> None:
    """REL-74, REL-73, REL-81, REL-47, RELB-16: as the examples of kuberik have it."""
    with serving(tmp_path) as host:
        for tag in ("1.0.0", "1.1.0"):
            push_image(host, tag, version=f"v{tag}", revision="main@1", title="App")
        await prepare(world, image=f"{host}/{NAME}")
        await world.grant("releases-registries")
        await create_pull_secret(world, host)
        await create_targets(world)
        await create_check(world)
        await announce(world, "1.0.0")
        spec = {**POLICY, "bakeTime": "1s", "healthCheckSelector": SELECTED}
        await create(world, ROLLOUTS, "Rollout", "app", spec)
        operator = await world.operator(ON)

        await _bake(world, "1.0.0", "")
        status = await wait_history(world, "1.0.0 Succeeded")
        version = status["history"][0]["version"]
        assert (version["version"], version["revision"]) == ("v1.0.0", "main@1")
        assert version["digest"].startswith("sha256:")
        assert status["title"] == "App"

        await announce(world, "1.1.0")
        await wait_tags(world, "1.1.0")
        await run_flux(world)
        await set_health(world, "app", "Unhealthy", lastErrorTime=now(), message="5xx")
        status = await wait_history(world, "1.1.0 Failed, 1.0.0 Succeeded")
        assert show_condition(status, "Ready") == "False BakeTimeFailed"
        assert status["history"][0]["failedHealthChecks"][0]["message"] == "5xx"

        await annotate(world, "app", retry="now")
        await wait_history(world, "1.1.0 Deploying, 1.0.0 Succeeded")
        await wait_true("a request to Flux", lambda: _is_flux_requested(world))
        await run_flux(world)
        await set_health(world, "app", "Healthy")
        await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
        assert "rollout.kuberik.com/retry" not in await read_annotations(world)

        pinned = {"spec": {"wantedVersion": "1.0.0"}}
        await world.api.patch(ROLLOUTS, world.namespace, "app", pinned)
        await _bake(world, "1.0.0", "1.1.0 Succeeded, 1.0.0 Succeeded")
        await wait_history(world, "1.0.0 Succeeded, 1.1.0 Succeeded, 1.0.0 Succeeded")
        assert await operator.terminate() == 0
        assert PASSWORD not in operator.child.log.read_text()
    await world.assert_permitted()


async def _is_flux_requested(world: World) -> bool:
    """Return whether Flux is to reconcile its source; that is written after the record."""
    source = await world.get(OCI_REPOSITORIES, "app")
    return "reconcile.fluxcd.io/requestedAt" in source["metadata"]["annotations"]


async def _bake(world: World, tag: str, before: str) -> None:
    """Wait for a deployment, and have it become healthy: first without Flux, then with it."""
    history = ", ".join(filter(None, (f"{tag} Deploying", before)))
    await wait_history(world, history)
    await wait_tags(world, tag)
    await set_health(world, "app", "Healthy")
    await wait_message(world, "waiting for Flux")
    await run_flux(world)


async def test_a_deployment_outlives_its_process(world: World) -> None:
    """RELB-15, RELB-10, RELB-12: recorded first; then written once, whatever happens between.

    The process dies between record and effect, and answers of the next one's writes are lost.
    """
    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    targets = ("ocirepositories", "kustomizations")
    never = [world.proxy.add(stored("patch", one), Cut()) for one in targets]
    first = await world.operator(ON, NO_REGISTRY, ALONE, is_through_proxy=True)
    requested = {
        "rollout.kuberik.com/force-deploy": "1.0.0",
        "rollout.kuberik.com/deploy-user": "amy",
    }
    await create(world, ROLLOUTS, "Rollout", "app", POLICY, annotations=requested)
    await wait_release_condition(world, "Ready", "False RolloutFailed")
    assert await read_tags(world) == ("none", "none")
    first.kill()

    for rule in never:
        world.proxy.remove(rule)
    for resource in ("rollouts/status", "rollouts", *targets):
        world.proxy.add(stored("patch", resource), Truncate(after=0), times=1)
    second = await world.operator(ON, NO_REGISTRY, ALONE, is_through_proxy=True)
    await wait_tags(world, "1.0.0")
    status = await wait_release_condition(world, "Ready", "True RolloutSucceeded")
    assert [one["id"] for one in status["history"]] == [1]
    assert status["history"][0]["triggeredBy"] == {"kind": "User", "name": "amy"}
    assert await read_annotations(world) == {}

    by_hand = {"spec": {"ref": {"tag": "0.9.0"}}}
    await world.api.patch(OCI_REPOSITORIES, world.namespace, "app", by_hand)
    await wait_tags(world, "1.0.0")
    await announce(world, "1.1.0")
    await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
    await wait_tags(world, "1.1.0")
    assert await second.terminate() == 0


@pytest.mark.slow
async def test_kinds_of_flux_come_go_and_come_back_older(world: World) -> None:
    """RELB-27, REL-121: a Rollout says that Flux is missing; it is picked up as it comes."""
    await install_kinds(world.api, FOLDER / "releases")
    await remove_flux(world.api)
    await world.grant("releases")
    operator = await world.operator(ON, NO_REGISTRY)
    await create(world, ROLLOUTS, "Rollout", "app", POLICY)
    await wait_release_condition(world, "Ready", "False FluxNotInstalled")

    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    await wait_history(world, "1.0.0 Succeeded")
    await wait_tags(world, "1.0.0")

    await remove_flux(world.api)
    await wait_release_condition(world, "Ready", "False FluxNotInstalled")
    await install_flux(world.api, without="v1")
    await create_older_policy(world, "registry/app:1.1.0")
    await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
    assert await operator.terminate() == 0
    await remove_flux(world.api)
