"""Prepare-downscale: what pods are sent where is part of the downscale.

D-24, SI-10, SI-12, SI-16, LI-05. Another port, path or Service is another downscale: pods are
called anew, and they are told that they stay wherever they had been prepared.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import (
    DOWNSCALE_RECORD,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from rollout_operator.model.outcome import Code
from rollout_operator.pods.client import PodError
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import RETELL, World, come_to_rest, part, three_zones
from tests.web.fake_pods import confirm, slow

pytestmark = pytest.mark.thorough

WRONG, RIGHT = "ready", "ingester/prepare"
PODS = ["zone-a-3", "zone-a-4"]


def _wrong() -> World:
    world = three_zones(a={PREPARE_PATH: WRONG})
    world.sync()
    return world


def _refuse_at(path: str) -> Callable[[str, Endpoint], object]:
    async def answer(method: str, endpoint: Endpoint) -> None:
        await confirm(method, endpoint)
        if (method, endpoint.path) == ("POST", path):
            raise PodError(f"{method} {endpoint.pod}: HTTP status 500")

    return answer


def _list_called(world: World, path: str) -> list[str]:
    """Return the pods that were un-prepared at a path."""
    calls = world.calls.confirmed
    return sorted({one.pod for one in calls if (one.method, one.path) == ("DELETE", path)})


@asynccontextmanager
async def a_minute_later(world: World, *, crashes: bool) -> AsyncIterator[None]:
    """Let the controller of this process, or of the next, work for a minute; then rest."""
    world.sync()
    if crashes:
        world.restart()
    async with world.controlling():
        await world.watch()
        await world.pass_time(60)
        yield
        await come_to_rest(world)


@in_virtual_time
async def test_d24_si10_another_path_is_another_downscale() -> None:
    """A wrong path answers 200, the write is a conflict, the path is corrected: called anew."""
    world = _wrong()
    async with world.controlling():
        assert (await world.send_request("zone-a", 3)).is_allowed
        world.annotate("zone-a", PREPARE_PATH, RIGHT)
        await world.watch()
        world.calls.answer = _refuse_at(RIGHT)  # type: ignore[assignment]  # one of its kind

        verdict = await world.send_request("zone-a", 3)

        assert verdict.reason.code is Code.POD_NOT_PREPARED
        world.calls.answer = confirm
        await world.pass_time(60)
        assert _list_called(world, WRONG) == PODS, "where they had been prepared"
        assert _list_called(world, RIGHT) == PODS
        await come_to_rest(world)


@pytest.mark.parametrize(
    ("key", "value"), [(PREPARE_PORT, "8081"), (PREPARE_PATH, RIGHT)], ids=["port", "path"]
)
@in_virtual_time
async def test_d24_si10_pods_are_called_anew_where_the_target_has_changed(
    key: str, value: str
) -> None:
    """SI-12: and no pod is un-prepared meanwhile, at either place."""
    world = _wrong()
    async with world.controlling():
        assert (await world.send_request("zone-a", 3)).is_allowed
        world.annotate("zone-a", key, value)
        await world.watch()
        assert (await world.send_request("zone-a", 3)).is_allowed
        assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"] * 2
        await world.pass_time(35)
        assert world.calls.names("DELETE") == []
        world.commit("zone-a", 3)
        for name in PODS:
            world.remove_pod(name)
        await world.watch()
        await world.pass_time(200)
        assert world.calls.names("DELETE") == []
        await come_to_rest(world)


@pytest.mark.parametrize("crashes", [False, True], ids=["lives on", "crashes"])
@pytest.mark.parametrize(
    ("key", "value", "repeats", "called"),
    [
        pytest.param(PREPARE_PATH, RIGHT, True, {WRONG, RIGHT}, id="granted on both paths"),
        pytest.param(PREPARE_PATH, RIGHT, False, {WRONG}, id="another path"),
        pytest.param(PREPARE_PATH, None, False, {WRONG}, id="no path"),
        pytest.param(PREPARE_PORT, None, False, {WRONG}, id="no port"),
        # The process that called the pods un-prepares them; a record alone moves nothing then.
        pytest.param(PREPARE_DOWNSCALE, None, False, {WRONG}, id="no label"),
    ],
)
@in_virtual_time
async def test_li05_the_undo_goes_where_the_calls_had_gone(
    key: str, value: str | None, repeats: bool, called: set[str], *, crashes: bool
) -> None:
    """LI-05, D-24: granted, and never written, whatever became of label and annotations."""
    world = _wrong()
    assert (await world.send_request("zone-a", 3)).is_allowed
    (world.label if key == PREPARE_DOWNSCALE else world.annotate)("zone-a", key, value)
    if repeats:
        world.sync()
        assert (await world.send_request("zone-a", 3)).is_allowed
    if crashes and key == PREPARE_DOWNSCALE:
        called = set()
    async with a_minute_later(world, crashes=crashes):
        assert world.calls.paths("DELETE") == called
        assert [_list_called(world, path) for path in called] == [PODS] * len(called)


@in_virtual_time
async def test_d24_a_review_of_the_same_meanwhile_is_decided_by_the_target_of_now() -> None:
    """SI-10: pods are being called at the old path; a review after the change does not join in."""
    world = _wrong()
    world.calls.answer = slow(4)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(world.send_request("zone-a", 3))
        await world.clock.sleep(timedelta(seconds=2))
        world.annotate("zone-a", PREPARE_PATH, RIGHT)
        second = await world.send_request("zone-a", 3)
        assert (second.reason.code, second.code) == (Code.OTHER_DOWNSCALE_UNDERWAY, 429)
    assert first.result().is_allowed
    world.calls.answer = confirm
    assert (await world.send_request("zone-a", 3)).is_allowed
    assert world.calls.paths("POST") == {WRONG, RIGHT}


@in_virtual_time
async def test_a_record_of_an_earlier_release_says_no_target() -> None:
    """LI-05, FP-40: then pods are un-prepared where the set says; the records of both go away."""
    world = three_zones()
    assert (await world.send_request("zone-a", 3)).is_allowed
    _strip_targets(world)
    async with a_minute_later(world, crashes=True):
        assert _list_called(world, RIGHT) == PODS


@in_virtual_time
async def test_requested_again_after_an_upgrade_pods_are_called_again() -> None:
    """SI-10, FP-40: a record without target may be of any target."""
    world = three_zones()
    assert (await world.send_request("zone-a", 3)).is_allowed
    _strip_targets(world)
    world.sync()
    world.restart()
    async with world.controlling():
        await world.watch()
        await world.pass_time(1)
        assert (await world.send_request("zone-a", 3)).code == 429, (
            "the other process may have un-prepared them"
        )
        await world.pass_time(RETELL.total_seconds())
        assert (await world.send_request("zone-a", 3)).is_allowed
        assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"] * 2


def _strip_targets(world: World) -> None:
    """Make all records those of a release that did not record where pods are called."""
    for name in world.recorded():
        one = world.client.objects["pods", name]
        annotations = part(part(one, "metadata"), "annotations")
        story = msgspec.json.decode(str(annotations[DOWNSCALE_RECORD]))
        assert story.pop("target")["path"] == RIGHT
        annotations[DOWNSCALE_RECORD] = msgspec.json.encode(story).decode()
        world.client.put("pods", one)
