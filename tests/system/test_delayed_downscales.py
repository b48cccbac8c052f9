"""Delayed downscales against pods that answer HTTP, on the real API server."""

from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.delayed import delay, list_hasty, say
from tests.system.guarded import Guarded, guard, prepared_zone
from tests.system.mirrored import Template, grant_mirroring, mirror
from tests.system.scaled import assert_judged, follow, steps, stored_at, wait_counts, wait_wanted
from tests.system.waits import wait_reason
from tests.world.world import World

pytestmark = pytest.mark.controlplane

NAME: Final = "live"
SPAN: Final = timedelta(seconds=4)
# A pod's whole seconds, the API server's, and the patch itself.
LATE: Final = timedelta(seconds=3)
STAYING: Final = [f"{NAME}-{ordinal}" for ordinal in (0, 1, 2)]
GOING: Final = [f"{NAME}-{ordinal}" for ordinal in (3, 4)]


async def _guard(
    world: World, template: Template, *, is_prepared: bool = False, replicas: int = 5
) -> Guarded:
    """Start a zone that mirrors, whose pods have a say of four seconds."""
    pods = await world.serve_pods()
    await template.create(replicas)
    await grant_mirroring(world)
    zone = delay(pods, mirror(ZoneSpec(name=NAME, group=NAME, replicas=replicas)), "4s")
    if is_prepared:
        zone = prepared_zone(pods, zone)
    guarded = await guard(world, zone, pods=pods)
    await template.wait_status(replicas)
    return guarded


async def _wait_called(guarded: Guarded, *names: str) -> None:
    """Wait until each of these pods is prepared, by its own word."""

    def are_called() -> bool:
        pods = guarded.pods
        return all(say(pods, name)[-1:] == ["POST"] for name in names)

    await guarded.pods.wait_until(f"{names} called", are_called)


async def _assert_judged(guarded: Guarded) -> None:
    await assert_judged(guarded)
    assert list(list_hasty(guarded.world.judge.changes, guarded.pods.calls, SPAN)) == []


@pytest.mark.parametrize("is_prepared", [False, True], ids=["alone", "with-prepare-downscale"])
async def test_seed073_pods_go_when_they_have_been_prepared_for_so_long(
    world: World, is_prepared: bool
) -> None:
    """SEED-073 to 077, 080, DELAY-04, 06, 08: POST, wait, and the patch; DELETE to those that stay.

    SEED-080: at the patch the webhook prepares the same pods, after their delay is over.
    """
    template = Template(world=world)
    guarded = await _guard(world, template, is_prepared=is_prepared)
    pods = guarded.pods

    await template.scale(3)
    await _wait_called(guarded, *GOING)
    await wait_reason(guarded.operator, NAME, "delayed_by_pods")
    await wait_counts(world, {NAME: 3})
    await template.wait_status(3)

    await world.judge.settle()
    assert steps(world, NAME) == [(NAME, 5, 3)], "both have waited for the same time"
    first = next(call for call in pods.calls if call.method == "POST")
    waited = timedelta(seconds=stored_at(world, NAME, 3) - first.at)
    assert waited < SPAN + LATE
    for name in STAYING:
        assert set(say(pods, name)) == {"DELETE"}
    for name in GOING:
        # Un-prepared at the start; called, and called again before it goes.
        assert say(pods, name) == ["DELETE", "POST", "POST"], pods.describe()
        prepares = [call for call in pods.calls_to(name) if not call.is_delayed]
        assert [call.method for call in prepares] == (["POST"] if is_prepared else [])
        assert all(call.at > pods.calls_to(name)[2].at for call in prepares), "SEED-080"
    assert [each.code for each in await template.publications()] == [200] * 2
    await _assert_judged(guarded)


async def test_seed078_kill_9_in_the_wait(world: World) -> None:
    """SEED-078, FP-06, LI-11: a restart neither shortens the delay nor starts it again."""
    template = Template(world=world)
    guarded = await _guard(world, template)
    await template.scale(3)
    await _wait_called(guarded, *GOING)

    guarded.operator.kill()
    guarded.operator.start()
    await wait_wanted(world, {NAME: 3})

    await world.judge.settle()
    first = next(call for call in guarded.pods.calls if call.method == "POST")
    waited = timedelta(seconds=stored_at(world, NAME, 3) - first.at)
    assert waited < SPAN + LATE, guarded.pods.describe()
    for name in GOING:
        assert "DELETE" not in say(guarded.pods, name)[1:], guarded.pods.describe()
    await _assert_judged(guarded)


@pytest.mark.slow
async def test_seed080_all_of_it_together(world: World) -> None:
    """SEED-080, W-40, D-22: mirrored with a delay, prepared, and followed with time between."""
    pods = await world.serve_pods()
    template = Template(world=world)
    await template.create(4)
    await grant_mirroring(world)
    leading, following = (ZoneSpec(name=name, group="live", replicas=4) for name in ("a", "b"))
    zones = [delay(pods, mirror(leading), "3s"), follow(following, "a")]
    guarded = await guard(
        world, *(prepared_zone(pods, zone, wait="3s") for zone in zones), pods=pods
    )
    await template.wait_status(4)

    await template.scale(2)
    await wait_counts(world, {"a": 2, "b": 2})
    await template.wait_status(2)

    await world.judge.settle()
    assert steps(world, "a", "b") == [("a", 4, 2), ("b", 4, 2)]
    assert [each.code for each in await template.publications()] == [200] * 2
    await assert_judged(guarded)
    of_leading = [each for each in world.judge.changes if each.commit.name.startswith("a")]
    assert list(list_hasty(of_leading, pods.calls, timedelta(seconds=3))) == []
