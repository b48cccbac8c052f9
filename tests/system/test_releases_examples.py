"""What kuberik's documentation shows, on the real control plane with the reference registry."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.oci.registries import NAME
from tests.system.releasing import (
    CHECKS,
    DIGEST,
    GATES,
    ON,
    ROLLOUTS,
    annotate,
    announce,
    create,
    create_pull_secret,
    create_targets,
    now,
    patch_status,
    prepare,
    read_annotations,
    set_health,
    show_condition,
    wait_history,
    wait_release_condition,
)
from tests.system.test_releases_gates import SCHEDULES
from tests.system.waits import wait_true
from tests.world.api import Json, Resource
from tests.world.budgets import FOLDER, install_kinds
from tests.world.flux import (
    IMAGE_POLICIES,
    IMAGES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    install_flux,
    render_applied,
    render_fetched,
)
from tests.world.images import push_image
from tests.world.plane import ControlPlane
from tests.world.registry import PASSWORD, serving
from tests.world.world import World

pytestmark = pytest.mark.controlplane

OBJECTS: Final = Path(__file__).parent / "kuberik.yaml"
KINDS: Final = {
    "ImageRepository": Resource(f"{IMAGES}/v1beta2", "imagerepositories"),
    "ImagePolicy": Resource(f"{IMAGES}/v1beta2", "imagepolicies"),
    "Rollout": ROLLOUTS,
    "HealthCheck": CHECKS,
    "OCIRepository": OCI_REPOSITORIES,
    "Kustomization": KUSTOMIZATIONS,
}
DAY: Final = timedelta(days=1)
MIDNIGHT_LIMIT: Final = timedelta(minutes=5)


async def test_the_examples_of_kuberik_work_as_they_are(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """REL-13, REL-14, REL-31, REL-61, RELB-02, RELB-13, RELB-41: from release to rollback."""
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


@pytest.mark.slow
async def test_a_window_over_midnight_ends_on_the_real_clock(world: World, tmp_path: Path) -> None:
    """REL-93, REL-100, RELB-31: what lies after midnight belongs to the day before."""
    with serving(tmp_path) as host:
        for tag in ("1.0.0", "1.1.0"):
            push_image(host, tag, version=f"v{tag}")
        await prepare(world, image=f"{host}/{NAME}")
        await world.grant("releases-registries")
        await create_pull_secret(world, host)
        await create_targets(world)
        await announce(world, "1.0.0")
        await create(world, ROLLOUTS, "Rollout", "app", {"releasesImagePolicy": {"name": "app"}})
        operator = await world.operator(ON)
        await wait_history(world, "1.0.0 Succeeded")

        end = await _create_night(world)
        await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking")
        await announce(world, "1.1.0")

        async def is_deployed() -> bool:
            found = await world.get(ROLLOUTS, "app")
            return len(found["status"]["history"]) > 1

        await wait_true("1.1.0 after the night", is_deployed, MIDNIGHT_LIMIT)
        status = await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
        assert datetime.fromisoformat(status["history"][0]["timestamp"]) >= end
        assert (await world.get(SCHEDULES, "nights"))["status"].get("active") is None
        assert await operator.terminate() == 0


async def _create_night(world: World) -> datetime:
    """Create a schedule in whose time zone it is past midnight, and return when its night ends."""
    start = datetime.now(UTC)
    hours = start.hour if start.hour <= 12 else start.hour - 24
    local = start - timedelta(hours=hours)
    end = local.replace(second=0, microsecond=0) + timedelta(minutes=2)
    night: Json = {
        "name": "night",
        "timeRange": {"start": "22:00", "end": f"{end:%H:%M}"},
        "daysOfWeek": [f"{local - DAY:%A}"],
    }
    # The sign is the other way round in these names.
    spec = {"rolloutSelector": {}, "rules": [night], "timezone": f"Etc/GMT{hours:+d}"}
    await create(world, SCHEDULES, "RolloutSchedule", "nights", spec)
    return end + timedelta(hours=hours)
