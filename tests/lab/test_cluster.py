"""The cluster as a whole: rollouts, their cost, a cache that lags."""

from datetime import timedelta

import pytest
from rollout_lab.model.fields import text
from rollout_lab.model.history import Commit
from rollout_lab.virtual_loop.pace import StepTimes
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.kube.api import PODS
from tests.lab.cluster_world import World, world
from tests.telemetry.test_families import counted_calls
from tests.virtual_time import in_virtual_time

ZONES = three_zones()
# Calls of functions, twice as many as it takes: they are the same ones on every machine.
CALLS_LIMIT = 260_000
BEHIND = StepTimes(controller_cache=(timedelta(milliseconds=1), timedelta(seconds=2)))


async def roll_out(rig: World) -> None:
    """Replace all pods by hand, zone after zone."""
    for zone in ZONES:
        rig.set_image(zone.name, "v2")
    for zone in ZONES:
        await rig.until_revised(zone.name, rig.status(zone.name)["currentRevision"])
        for ordinal in range(3):
            rig.delete_pod(f"{zone.name}-{ordinal}")
        await rig.until_rolled(zone.name)


async def begin(rig: World) -> None:
    for zone in ZONES:
        rig.create(zone)
    await rig.until_ready(*(zone.name for zone in ZONES))


def test_a_rollout_of_three_zones_is_cheap() -> None:
    spent = 0

    @in_virtual_time
    async def scenario() -> None:
        nonlocal spent
        with world() as rig:
            await begin(rig)
            with counted_calls() as calls:
                await roll_out(rig)
            spent = calls[0]
            assert len(rig.commits("pods")) > 90

    scenario()
    assert spent < CALLS_LIMIT


@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_a_lagging_cache_only_delays(seed: int) -> None:
    """FP-01, FP-02 in the controller itself: what it does twice is refused and comes right."""
    with world(seed=seed, pace=BEHIND) as rig:
        await begin(rig)
        await roll_out(rig)
        rig.patch(ZONES[0].name, {"replicas": 1})
        await rig.until(lambda: len(rig.pods(f"{ZONES[0].name}-")) == 1)
        await rig.until_ready(ZONES[0].name)


@in_virtual_time
async def test_a_controller_that_lags_sees_all_later_until_it_does_not() -> None:
    """FP-02: spec and status are apart for as long as it lags, and no longer."""
    with world() as rig:
        await begin(rig)
        name = ZONES[0].name
        rig.cluster.lag_controller(timedelta(seconds=30))
        rig.patch(name, {"replicas": 1})

        await wait(rig, timedelta(seconds=29))
        assert rig.status(name)["observedGeneration"] == 1
        assert len(rig.pods(f"{name}-")) == 3
        await wait(rig, timedelta(seconds=2))
        assert rig.status(name)["observedGeneration"] == 2

        rig.patch(name, {"replicas": 2})
        rig.cluster.lag_controller(timedelta(0))
        await wait(rig, timedelta(seconds=1))
        assert rig.status(name)["observedGeneration"] == 3


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_each_status_write_of_a_lagging_controller_survives_a_busy_co_writer(
    seed: int,
) -> None:
    """FP-11: conflicts of the status are tried again over what is newest."""
    with world(seed=seed, pace=BEHIND) as rig:
        rig.create(ZoneSpec(name="web"))
        annotate_at_each_status(rig, most=10)
        await rig.until_ready("web")
        assert text(rig.sts("web"), "metadata", "annotations", "busy") == "10"
        refused = [
            one
            for one in rig.called("statefulset-controller")
            if one.reason == "Conflict" and one.request.subresource == "status"
        ]
        assert refused, "there was no conflict to get over"


def annotate_at_each_status(rig: World, most: int) -> None:
    """Write to a set's metadata after each of its pods' changes."""
    written = 0

    def write(commit: Commit) -> None:
        nonlocal written
        if commit.resource == PODS and written < most:
            written += 1
            rig.call("patch", "web", {"metadata": {"annotations": {"busy": str(written)}}})

    rig.api.on_commit(write)


async def wait(rig: World, span: timedelta) -> None:
    with pytest.raises(TimeoutError):
        await rig.until(lambda: False, span)
