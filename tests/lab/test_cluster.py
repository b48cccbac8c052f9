"""The cluster as a whole: rollouts, their cost, one run for one seed, a cache that lags."""

from datetime import timedelta

import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.lab.model.fields import text
from rollout_operator.lab.model.history import Commit
from rollout_operator.lab.model.request import ApiRequest
from rollout_operator.lab.virtual_loop.pace import StepTimes
from rollout_operator.lab.zones import ZoneSpec, three_zones
from tests.lab.cluster_world import NAMESPACE, World, world
from tests.telemetry.test_families import counted_calls
from tests.virtual_time import in_virtual_time

ZONES = three_zones()
# Calls of functions, twice as many as it takes: they are the same ones on every machine.
CALLS_LIMIT = 260_000
BEHIND = StepTimes(controller_cache=(timedelta(milliseconds=1), timedelta(seconds=2)))


async def roll_out(scene: World) -> None:
    """Replace all pods by hand, zone after zone."""
    for zone in ZONES:
        scene.set_image(zone.name, "v2")
    for zone in ZONES:
        await scene.until_revised(zone.name, scene.status(zone.name)["currentRevision"])
        for ordinal in range(3):
            scene.delete_pod(f"{zone.name}-{ordinal}")
        await scene.until_rolled(zone.name)


async def begin(scene: World) -> None:
    for zone in ZONES:
        scene.create(zone)
    await scene.until_ready(*(zone.name for zone in ZONES))


def trace(seed: int, pace: StepTimes | None = None) -> list[str]:
    """Return a whole rollout as text."""
    lines: list[str] = []

    @in_virtual_time
    async def scenario() -> None:
        with world(seed=seed, pace=pace) as scene:
            await begin(scene)
            await roll_out(scene)
            lines.extend(
                f"{one.at} {one.actor} {one.resource.plural} {one.name} {one.after}"
                for one in scene.history.list_all(Commit)
            )

    scenario()
    return lines


def test_a_rollout_of_three_zones_is_cheap() -> None:
    spent = 0

    @in_virtual_time
    async def scenario() -> None:
        nonlocal spent
        with world() as scene:
            await begin(scene)
            with counted_calls() as calls:
                await roll_out(scene)
            spent = calls[0]
            assert len(scene.commits("pods")) > 90

    scenario()
    assert spent < CALLS_LIMIT


def test_one_seed_gives_one_run_and_another_seed_another() -> None:
    first = trace(7)
    assert trace(7) == first
    assert trace(8) != first


@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_a_lagging_cache_only_delays(seed: int) -> None:
    """FP-01, FP-02 in the controller itself: what it does twice is refused and comes right."""
    with world(seed=seed, pace=BEHIND) as scene:
        await begin(scene)
        await roll_out(scene)
        scene.patch(ZONES[0].name, {"replicas": 1})
        await scene.until(lambda: len(scene.pods(f"{ZONES[0].name}-")) == 1)
        await scene.until_ready(ZONES[0].name)


@in_virtual_time
async def test_a_controller_that_lags_sees_all_later_until_it_does_not() -> None:
    """FP-02: spec and status are apart for as long as it lags, and no longer."""
    with world() as scene:
        await begin(scene)
        name = ZONES[0].name
        scene.cluster.lag_controller(timedelta(seconds=30))
        scene.patch(name, {"replicas": 1})

        await wait(scene, timedelta(seconds=29))
        assert scene.status(name)["observedGeneration"] == 1
        assert len(scene.pods(f"{name}-")) == 3
        await wait(scene, timedelta(seconds=2))
        assert scene.status(name)["observedGeneration"] == 2

        scene.patch(name, {"replicas": 2})
        scene.cluster.lag_controller(timedelta(0))
        await wait(scene, timedelta(seconds=1))
        assert scene.status(name)["observedGeneration"] == 3


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_each_status_write_of_a_lagging_controller_survives_a_busy_co_writer(
    seed: int,
) -> None:
    """FP-11: conflicts of the status are tried again over what is newest."""
    with world(seed=seed, pace=BEHIND) as scene:
        scene.create(ZoneSpec(name="web"))
        annotate_at_each_status(scene, most=10)
        await scene.until_ready("web")
        assert text(scene.sts("web"), "metadata", "annotations", "busy") == "10"
        refused = [
            one
            for one in scene.called("statefulset-controller")
            if one.reason == "Conflict" and one.request.subresource == "status"
        ]
        assert refused, "there was no conflict to get over"


def annotate_at_each_status(scene: World, most: int) -> None:
    """Write to a set's metadata after each of its pods' changes."""
    written = 0

    def write(commit: Commit) -> None:
        nonlocal written
        if commit.resource == PODS and written < most:
            written += 1
            scene.call("patch", "web", {"metadata": {"annotations": {"busy": str(written)}}})

    scene.api.on_commit(write)


async def wait(scene: World, span: timedelta) -> None:
    with pytest.raises(TimeoutError):
        await scene.until(lambda: False, span)


@in_virtual_time
async def test_a_stopped_cluster_does_nothing_more() -> None:
    with world() as scene:
        scene.create(ZoneSpec(name="web"))
        scene.cluster.stop()
        scene.create(ZoneSpec(name="other"))
        await wait(scene, timedelta(hours=1))
        assert scene.pods() == []


@in_virtual_time
async def test_a_cluster_begins_with_what_is_there() -> None:
    """A world that was built before: sets get their pods, pods go on."""
    with world(starts=False) as scene:
        scene.create(ZoneSpec(name="web", replicas=1))
        scene.api.call_now(
            ApiRequest(
                verb="create",
                resource=PODS,
                namespace=NAMESPACE,
                body={
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "lonely", "namespace": NAMESPACE},
                    "spec": {"containers": [{"name": "app", "image": "v1"}]},
                },
            )
        )
        scene.cluster.start()
        await scene.until_ready("web")
        await scene.until(lambda: text(scene.pod("lonely"), "status", "phase") == "Running")
