"""Release rollouts on the real control plane, with kinds of Flux and a stand-in for Flux itself.

What kuberik's documentation shows, with the reference registry; what admission, the definitions of
kinds and the roles of several namespaces do to a release. All else is told in
`tests/planning/releases` and `tests/controllers/releases`."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import yaml
from msgspec.structs import replace

from tests.oci.registries import NAME
from tests.system.releasing import (
    CHECKS,
    DIGEST,
    GATES,
    ON,
    ROLLOUTS,
    SELECTED,
    annotate,
    announce,
    create,
    create_older_policy,
    create_pull_secret,
    create_targets,
    now,
    patch_status,
    prepare,
    read_annotations,
    refusing,
    run_flux,
    set_health,
    show_condition,
    wait_history,
    wait_release_condition,
    wait_tags,
)
from tests.system.waits import wait_true
from tests.world.api import ROLES, Json, Resource
from tests.world.budgets import FOLDER, install_kinds
from tests.world.flux import (
    IMAGE_POLICIES,
    IMAGES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    install_flux,
    remove_flux,
    render_applied,
    render_fetched,
)
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.registry import PASSWORD, push_image, serving
from tests.world.world import World, beside, bind, granting, permit_following

pytestmark = pytest.mark.controlplane

POLICY: Final = {"releasesImagePolicy": {"name": "app"}}
NO_REGISTRY: Final = "-releases.metadata=none"
OBJECTS: Final = Path(__file__).parent / "kuberik.yaml"
KINDS: Final = {
    "ImageRepository": Resource(f"{IMAGES}/v1beta2", "imagerepositories"),
    "ImagePolicy": Resource(f"{IMAGES}/v1beta2", "imagepolicies"),
    "Rollout": ROLLOUTS,
    "HealthCheck": CHECKS,
    "OCIRepository": OCI_REPOSITORIES,
    "Kustomization": KUSTOMIZATIONS,
}


async def test_the_examples_of_kuberik_work_as_they_are(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """REL-13, REL-14, REL-31, REL-47, REL-61, RELB-02, RELB-13, RELB-41: release to rollback."""
    with serving(tmp_path) as host:
        for tag in ("1.0.0", "1.1.0"):
            push_image(host, tag, version=f"v{tag}")
        async with World(plane, tmp_path, namespace="flux-system") as world:
            await _apply_examples(world, host)
            operator = await world.operator(ON)
            await _release_first(world)
            await _pass_a_gate(world)
            await _fail_and_roll_back(world)
            assert await operator.terminate() == 0
            assert PASSWORD not in operator.child.log.read_text()
            await world.assert_permitted()


async def _apply_examples(world: World, host: str) -> None:
    await install_kinds(world.api, FOLDER / "releases")
    await install_flux(world.api)
    for component in ("releases", "releases-registries"):
        await world.grant(component)
    await create_pull_secret(world, host)
    text = OBJECTS.read_text().replace("REGISTRY/team/app", f"{host}/{NAME}")
    for body in yaml.safe_load_all(text):
        await world.api.create(KINDS[body["kind"]], world.namespace, body)


async def _release_first(world: World) -> None:
    """First release: it bakes for ten minutes, which a person shortens."""
    await _announce(world, "1.0.0")
    status = await wait_history(world, "1.0.0 Deploying", "shop")
    assert status["history"][0]["version"]["version"] == "v1.0.0"
    await _wait_written(world, "1.0.0")
    await set_health(world, "shop", "Healthy")
    await _run_flux(world, "1.0.0")
    status = await wait_history(world, "1.0.0 InProgress", "shop")
    assert "the bake has started, 10m0s until" in status["history"][0]["bakeStatusMessage"]
    await world.patch(ROLLOUTS, "shop", {"spec": {"bakeTime": "1s"}})
    await wait_history(world, "1.0.0 Succeeded", "shop")


async def _pass_a_gate(world: World) -> None:
    """A gated release, let through by name and with a very long message."""
    gate = {"rolloutRef": {"name": "shop"}, "passing": False}
    await create(world, GATES, "RolloutGate", "approval", gate)
    await _announce(world, "1.1.0")
    await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking", "shop")
    await wait_history(world, "1.0.0 Succeeded", "shop")
    await annotate(world, "shop", bypass_gates="1.1.0", deploy_message="x" * 5000)
    status = await wait_history(world, "1.1.0 Deploying, 1.0.0 Succeeded", "shop")
    assert status["history"][0]["message"].startswith("xxx")
    await _wait_written(world, "1.1.0")
    requested: object = {}

    async def is_taken() -> bool:
        nonlocal requested
        requested = await read_annotations(world, "shop")
        return not requested

    await wait_true(lambda: f"no annotations, but {requested}", is_taken)


async def _fail_and_roll_back(world: World) -> None:
    await set_health(world, "shop", "Unhealthy", lastErrorTime=now(), message="5xx")
    status = await wait_history(world, "1.1.0 Failed, 1.0.0 Succeeded", "shop")
    assert show_condition(status, "Ready") == "False BakeTimeFailed"
    await world.patch(ROLLOUTS, "shop", {"spec": {"wantedVersion": "1.0.0"}})
    await wait_history(world, "1.0.0 Deploying, 1.1.0 Failed, 1.0.0 Succeeded", "shop")
    await _wait_written(world, "1.0.0", of_till="1.1.0")
    await set_health(world, "shop", "Healthy")
    await _run_flux(world, "1.0.0")
    await wait_history(world, "1.0.0 Succeeded, 1.1.0 Failed, 1.0.0 Succeeded", "shop")


async def _announce(world: World, tag: str) -> None:
    latest = {"name": "registry/app", "tag": tag}
    await patch_status(world, IMAGE_POLICIES, "shop-policy", {"latestRef": latest})


async def _run_flux(world: World, tag: str) -> None:
    for resource, name, render in (
        (OCI_REPOSITORIES, "shop-source", render_fetched),
        (KUSTOMIZATIONS, "shop", render_applied),
    ):
        generation = (await world.get(resource, name))["metadata"]["generation"]
        status = render(f"{tag}@{DIGEST}", generation, f"{now()[:19]}Z")
        await patch_status(world, resource, name, status)


async def _wait_written(world: World, tag: str, of_till: str = "") -> None:
    """Wait until a tag stands where it belongs, and nothing else has changed there."""
    wanted: tuple[Json, Json] = (
        {"reference": {"tag": "latest"}, "ref": {"tag": tag}},
        {"SHOP_TAG": tag, "till_version": of_till or tag},
    )
    found: tuple[Json, Json] = ({}, {})

    async def holds() -> bool:
        nonlocal found
        source = await world.get(OCI_REPOSITORIES, "shop-source")
        applied = await world.get(KUSTOMIZATIONS, "shop")
        found = source["spec"], applied["spec"]["postBuild"]["substitute"]
        return found == wanted

    await wait_true(lambda: f"{wanted}, but {found}", holds)


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


RULES = (
    permit_following("apps", "statefulsets"),
    permit_following("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets"),
    permit_following("rollout.grafana.com", "multiazrollouts"),
    permit_following("kuberik.com", "rollouts"),
)


async def test_a_rollout_makes_its_namespace_one_to_serve(world: World) -> None:
    """MAZ-65: where all namespaces are watched."""
    world.may_be_forbidden = True  # in the operator's own namespace nothing is granted for releases
    async with beside(world) as other, granting(world, *RULES):
        other.may_be_forbidden = True
        await prepare(other)
        await bind(other, world)
        await create_targets(other)
        await announce(other, "1.0.0")
        await create(other, ROLLOUTS, "Rollout", "app", {"releasesImagePolicy": {"name": "app"}})
        flags = world.launch(ON, "-releases.metadata=none")
        variables = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": world.namespace}
        launch = replace(flags, namespace="", env=variables)
        async with OperatorProcess(launch) as operator:
            await operator.wait_ready()
            await wait_history(other, "1.0.0 Succeeded")
            await wait_tags(other, "1.0.0")
            assert await operator.terminate() == 0


@pytest.mark.parametrize("mode", ["one", "list", "all"])
async def test_health_of_another_namespace_counts_where_it_is_selected(
    world: World, mode: str
) -> None:
    """RELB-36, REL-104: under the shipped roles, whichever namespaces the operator looks after."""
    world.may_be_forbidden = True  # of the namespaces beside it
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(beside(world, is_granted=False))
        await prepare(world)
        for component in ("releases-cluster", "releases-inventory"):
            await world.grant(component)
        watched = world.namespace
        if mode == "list":
            other = await stack.enter_async_context(beside(world))
            await prepare(other)
            await bind(other, world)
            watched = f"{world.namespace},{other.namespace}"
        if mode == "all":
            watched = ""
            await stack.enter_async_context(granting(world, *RULES))
        source: Json = {"interval": "1m", "path": "./", "prune": True}
        source["sourceRef"] = {"kind": "GitRepository", "name": "x"}
        await create(far, KUSTOMIZATIONS, "Kustomization", "app", source)
        role: Json = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
        await far.api.create(ROLES, far.namespace, {**role, "metadata": {"name": "r"}, "rules": []})
        applied = [
            f"{far.namespace}_r_rbac.authorization.k8s.io_Role",
            f"_{far.namespace}__Namespace",
        ]
        ready = {"type": "Ready", "status": "True", "reason": "Ok", "message": "applied"}
        stamp = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        inventory = {"entries": [{"id": one, "v": "v1"} for one in applied]}
        status: Json = {"observedGeneration": 1, "inventory": inventory}
        status["conditions"] = [{**ready, **stamp}]
        await patch_status(far, KUSTOMIZATIONS, "app", status)
        annotations = {"healthcheck.kuberik.com/kustomization": "app"}
        for name, of in (("app", "kustomization"), ("others", "of-others")):
            metadata: Json = {"labels": {"app": "app"}, "annotations": annotations}
            await create(far, CHECKS, "HealthCheck", name, {"class": of}, **metadata)
            old: Json = {"status": "Healthy", "lastChangeTime": "2026-01-01T00:00:00Z"}
            await patch_status(far, CHECKS, name, old)
        await announce(world, "1.0.0")
        spaces = {"matchLabels": {"kubernetes.io/metadata.name": far.namespace}}
        policy = {"releasesImagePolicy": {"name": "app"}, "bakeTime": "1s"}
        selected = {**SELECTED, "namespaceSelector": spaces}
        spec = {**policy, "healthCheckSelector": selected}
        await create(world, ROLLOUTS, "Rollout", "app", spec)
        variables = {"WATCH_NAMESPACE": watched, "POD_NAMESPACE": world.namespace}
        flags = world.launch(ON, "-releases.metadata=none")
        async with OperatorProcess(replace(flags, namespace="", env=variables)) as operator:
            await operator.wait_ready()

            async def is_reset() -> bool:
                found = (await far.get(CHECKS, "others"))["status"]
                return str(found.get("message", "")).startswith("reset for")

            await wait_true("a reset", is_reset)
            now: Json = {"status": "Healthy", "message": "fine"}
            now["lastChangeTime"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            await patch_status(far, CHECKS, "others", now)
            await wait_history(world, "1.0.0 Succeeded")
            found = (await far.get(CHECKS, "app"))["status"]
            assert (found["status"], found["message"]) == ("Healthy", "applied")
            assert await operator.terminate() == 0
