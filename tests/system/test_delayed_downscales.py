"""Delayed downscales against pods that answer HTTP, on the real API server."""

from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.system.delayed import delay, list_hasty, say
from tests.system.guarded import Guarded, guard, prepared_zone
from tests.system.mirrored import Template, grant_mirroring, mirror
from tests.system.scaled import assert_judged, follow, steps, stored_at, wait_counts, wait_wanted
from tests.system.waits import wait_reason
from tests.world.api import PODS
from tests.world.webpods import Hang
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


async def test_seed077_an_upscale_meanwhile_cancels(world: World) -> None:
    """SEED-077, DELAY-05, LI-11: DELETE on those pods, and the next wait starts anew."""
    template = Template(world=world)
    guarded = await _guard(world, template)
    await template.scale(3)
    await _wait_called(guarded, *GOING)

    await template.scale(6)
    await wait_counts(world, {NAME: 6})

    for name in GOING:
        assert say(guarded.pods, name) == ["DELETE", "POST", "DELETE"], guarded.pods.describe()
    assert not guarded.pods.delayed_since, "no pod is prepared any more"
    await template.scale(5)
    await wait_counts(world, {NAME: 5})
    await world.judge.settle()
    assert steps(world, NAME) == [(NAME, 5, 6), (NAME, 6, 5)]
    await _assert_judged(guarded)


async def test_seed076_a_pod_that_is_replaced_starts_its_delay_again(world: World) -> None:
    """SEED-076, SEED-073, DELAY-08: its time is not that of the pod which had its name before."""
    template = Template(world=world)
    guarded = await _guard(world, template)
    await template.scale(3)
    await _wait_called(guarded, *GOING)
    before = await world.get(PODS, f"{NAME}-4")

    await world.delete(PODS, f"{NAME}-4")
    old = before["metadata"]["uid"]
    await world.wait_pod(
        f"{NAME}-4",
        "replaced",
        lambda pod: bool(pod["metadata"]["uid"] != old),
    )
    await wait_counts(world, {NAME: 3})

    await world.judge.settle()
    assert steps(world, NAME) == [(NAME, 5, 3)]
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


async def test_w06_pods_that_hang_hold_up_no_other(world: World) -> None:
    """W-06, DELAY-07, 14: not the pods of another group, and not the rollout of their own."""
    pods = await world.serve_pods()
    names = ("hanging", "quick")
    templates = [Template(world=world, name=name) for name in names]
    for template in templates:
        await template.create(3)
    await grant_mirroring(world)
    zones = [delay(pods, mirror(ZoneSpec(name=name, group=name), name), "1s") for name in names]
    guarded = await guard(world, *zones, pods=pods)
    for template in templates:
        await template.wait_status(3)
    pods.behave("hanging-2", Hang(), method="POST")

    for template in templates:
        await template.scale(2)
    await pods.wait_until("hanging-2 called", lambda: "POST" in say(pods, "hanging-2"))
    await world.set_image(["hanging"], "v2")
    await wait_counts(world, {"quick": 2})
    await world.wait_adopted(["hanging"])

    assert [await template.read_status() for template in templates] == [3, 2]
    await world.judge.settle()
    assert steps(world, *names) == [("quick", 3, 2)]
    await assert_judged(guarded)


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
    of_leading = [each for each in world.judge.changes if each.name.startswith("a")]
    assert list(list_hasty(of_leading, pods.calls, timedelta(seconds=3))) == []
