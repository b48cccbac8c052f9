"""Downscales that were granted and never happened: each pod that stays is un-prepared in time.

Never before the request can no longer persist (SI-12), and within a minute of what undid it
(LI-05). Each scenario waits for that; they run side by side, in worlds of their own.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import Guarded, guard, is_called, prepared_zone
from tests.system.later import Later, reviewed_later
from tests.system.waits import wait_line, wait_page
from tests.world.api import Answer
from tests.world.clients import Route
from tests.world.kubelet import slow_to_end
from tests.world.plane import ControlPlane
from tests.world.reviews import Deny, Silence
from tests.world.webpods import Hang, Respond, WebPods
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# The API server gives up on a write that long after it began.
MAY_PERSIST: Final = timedelta(seconds=34)
CALLED_WITHIN: Final = timedelta(seconds=60)
Story = Callable[[World], Awaitable[None]]


@pytest.mark.slow
async def test_li05_pods_that_stay_are_un_prepared(plane: ControlPlane, tmp_path: Path) -> None:
    """LI-05, SI-12, W-13, W-36, FP-06, FP-19, FP-22, FP-25, FP-26, FP-35: see the stories."""
    async with asyncio.TaskGroup() as stories:
        for story in (lose_requests, crash, end):
            folder = tmp_path / story.__name__
            folder.mkdir()
            stories.create_task(_live(plane, folder, story), name=folder.name)


async def _live(plane: ControlPlane, folder: Path, story: Story) -> None:
    async with World(plane, folder) as world:
        await story(world)
        await world.assert_permitted()


async def lose_requests(world: World) -> None:
    """FP-22, W-36: refused by others, without an answer, too old, reverted, its client gone.

    In `reverted` pod 0 is not ready, so that its controller touches no other pod: pod 3 outlives
    4 -> 3 -> 4. In `away` the pod is not there when it is first un-prepared.
    """
    names = ("denied", "silent", "stale", "stale-scale", "reverted", "away", "left")
    pods = await world.serve_pods()
    guarded = await guard(world, *_zones(pods, *names), pods=pods)
    await world.kubelet.make_unready("reverted-0")
    later: Later = {"deny": (Deny(), ["denied", "away"]), "silence": (Silence(), ["silent"])}
    async with reviewed_later(world, later), asyncio.TaskGroup() as lost:
        for name in ("denied", "away"):
            lost.create_task(_lose(guarded, name, Route.MERGE, 403))
        lost.create_task(_lose(guarded, "silent", Route.SCALE_MERGE, 500))
        lost.create_task(_lose(guarded, "stale", Route.PUT_STALE, 409))
        lost.create_task(_lose(guarded, "stale-scale", Route.SCALE_PUT_STALE, 409))
        lost.create_task(_revert(guarded, "reverted"))
        lost.create_task(_walk_away(guarded, "left"))
    await pods.refuse("away-3")
    await guarded.wait_called("left-3")
    called = [f"{name}-3" for name in names if name != "away"]
    await guarded.wait_called(*called, limit=CALLED_WITHIN)
    await wait_line(guarded.operator, "Pod cannot be told that it stays", "DELETE away-3")
    await pods.listen("away-3")
    await guarded.wait_called("away-3", limit=CALLED_WITHIN)
    await guarded.wait_unrecorded(*names)
    for name in names:
        assert await guarded.workload(name).replicas() == 4
        assert not pods.is_prepared(f"{name}-3")
        # Who hangs up in the middle has nothing that may still persist.
        _assert_held_back(guarded, f"{name}-3", is_open=name != "left")
    await guarded.assert_judged()


async def crash(world: World) -> None:
    """FP-06, FP-35, SEED-093: `kill -9` while a pod prepares, and right after an answer.

    What is left to do is known from the records on the pods, by the next process.
    """
    world.kubelet.choose = lambda _: slow_to_end(timedelta(seconds=5))
    pods = await world.serve_pods()
    pods.behave("killed-3", Respond(after=timedelta(seconds=3)), method="POST")
    guarded = await guard(world, *_zones(pods, "killed", "done"), pods=pods)
    async with asyncio.TaskGroup() as tasks:
        request = tasks.create_task(guarded.workload("killed").scale(1, Route.MERGE))
        await pods.wait_until("killed-3 called", lambda: len(pods.calls) == 3)
        done = await guarded.workload("done").scale(3, Route.SCALE_MERGE)
        guarded.operator.kill()
    assert done.status == 200
    assert request.result().status == 500, "the API server could not reach the webhook"
    guarded.operator.start()
    await guarded.operator.wait_ready()
    await guarded.wait_recorded("done")

    going = [f"killed-{ordinal}" for ordinal in (1, 2, 3)]
    await guarded.wait_called(*going, limit=CALLED_WITHIN)

    await guarded.wait_unrecorded("killed")
    assert await guarded.workload("killed").replicas() == 4
    for pod in going:
        _assert_held_back(guarded, pod)
    assert [call.method for call in pods.calls_to("done-3")] == ["POST"]
    await guarded.assert_judged()


async def end(world: World) -> None:
    """FP-35, LI-14: SIGTERM amid 54 prepares; none that persists is undone, each other is."""
    pods = await world.serve_pods()
    pods.behave("", Respond(after=timedelta(seconds=2)), method="POST")
    pods.behave("hung-2", Hang(), method="POST")
    small = _zones(pods, "hung", "late", "fresh")
    big = prepared_zone(pods, ZoneSpec(name="big", group="big", replicas=60, node="world-node"))
    guarded = await guard(world, *small, big, pods=pods)
    async with reviewed_later(world, {"deny": (Deny(), ["late"])}), asyncio.TaskGroup() as tasks:
        requested = {
            name: tasks.create_task(guarded.workload(name).scale(left, Route.MERGE), name=name)
            for name, left in (("hung", 1), ("late", 3), ("big", 10))
        }
        await pods.wait_until("30 pods called", lambda: len(pods.calls) >= 30)
        guarded.operator.child.send(signal.SIGTERM)
        await wait_page(guarded.operator, "/ready", 500, "stopping")
        refused = await guarded.workload("fresh").scale(3, Route.MERGE)
    answers: dict[str, Answer] = {name: task.result() for name, task in requested.items()}

    assert await guarded.operator.wait_end() == 0
    assert answers["big"].status == 200, answers["big"]
    assert "pods failed to prepare for shutdown" in answers["hung"].message
    assert answers["late"].status == 403
    assert refused.message == guarded.refusal("fresh", (4, 3), "the operator is stopping")
    assert not pods.calls_to("fresh-3")
    assert all(is_called(pods.calls_to(f"hung-{ordinal}")) for ordinal in (1, 2, 3))
    assert not is_called(pods.calls_to("late-3"))
    guarded.operator.start()
    await guarded.operator.wait_ready()
    await guarded.wait_called("late-3", limit=CALLED_WITHIN)
    _assert_held_back(guarded, "late-3")
    await world.wait_ready(["big"])
    await guarded.wait_unrecorded("hung", "late", "fresh", "big")
    big_calls = [call.method for call in pods.calls if call.pod.startswith("big-")]
    assert big_calls == ["POST"] * 50
    await guarded.assert_judged()


def _zones(pods: WebPods, *names: str) -> list[ZoneSpec]:
    """Return sets of four pods, each in a group of its own."""
    return [
        prepared_zone(
            pods,
            ZoneSpec(
                name=name,
                group=name,
                replicas=4,
                pod_management="OrderedReady" if name == "reverted" else "Parallel",
            ),
        )
        for name in names
    ]


async def _lose(guarded: Guarded, name: str, route: Route, status: int) -> None:
    """Request a downscale that is granted by us, and refused by another webhook."""
    answer = await guarded.workload(name).scale(3, route)
    assert answer.status == status, answer
    assert guarded.pods.is_prepared(f"{name}-3")


async def _revert(guarded: Guarded, name: str) -> None:
    for replicas in (3, 4):
        answer = await guarded.workload(name).scale(replicas, Route.SCALE_MERGE)
        assert answer.status == 200, answer
    assert guarded.pods.is_prepared(f"{name}-3")


async def _walk_away(guarded: Guarded, name: str) -> None:
    """Scale, and hang up while the pod prepares."""
    pod = f"{name}-3"
    guarded.pods.behave(pod, Respond(after=timedelta(seconds=2)), method="POST")
    async with asyncio.TaskGroup() as tasks:
        client = tasks.create_task(guarded.workload(name).scale(3, Route.MERGE))
        await guarded.pods.wait_until(f"{pod} called", lambda: bool(guarded.pods.calls_to(pod)))
        client.cancel()


def _assert_held_back(guarded: Guarded, pod: str, *, is_open: bool = True) -> None:
    """SI-12: while the request might still persist, no call un-prepared the pod."""
    requested = guarded.pods.calls_to(pod, "POST")[-1].at
    first = guarded.pods.calls_to(pod, "DELETE")[0].at
    was_held = first - requested >= MAY_PERSIST.total_seconds()
    assert was_held is is_open, guarded.pods.describe()
