"""Times from the first year to the last that a tenant writes on its pods and sets.

As a tenant can: with a finalizer, so that a pod that is deleted keeps what it says for ever.
"""

import asyncio
import json
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.system.guarded import DOWNSCALE_RECORD, LAST_DOWNSCALE, Guarded, guard, prepared_zone
from tests.world.api import PODS
from tests.world.clients import Route
from tests.world.sets import annotate
from tests.world.world import World

pytestmark = pytest.mark.controlplane

TIMES: Final = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00")


async def test_sec25_times_that_no_calendar_has_room_for(world: World) -> None:
    """SEC-25, SI-12, LI-05: it runs on, starts again, removes the records, and calls other pods.

    The downscale of `evil-1` that is allowed and never stored is un-prepared in time.
    """
    pods = await world.serve_pods()
    names = [f"evil-{number}" for number in range(len(TIMES))]
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name, replicas=2)) for name in names]
    guarded = await guard(world, *zones, pods=pods)
    for name, at in zip(names, TIMES, strict=True):
        await _leave_for_ever(world, f"{name}-0")
        await annotate(world.api, world.namespace, name, **{LAST_DOWNSCALE: at})
    await _forge(world)
    await guarded.wait_unrecorded(*names)
    guarded.operator.kill()
    await guarded.operator.wait_end()
    await _forge(world)
    guarded.operator.start()
    await guarded.operator.wait_ready()
    await _wait_clean(world)
    answer = await guarded.workload("evil-1").scale(1, Route.SCALE_PUT_STALE)
    assert answer.status == 409, answer
    await guarded.wait_called("evil-1-1")
    _assert_no_bug(guarded)


async def _leave_for_ever(world: World, pod: str) -> None:
    stay = {"metadata": {"finalizers": ["example.com/stay"]}}
    await world.api.patch(PODS, world.namespace, pod, stay)
    await world.api.delete(PODS, world.namespace, pod, grace=timedelta(0))


async def _forge(world: World) -> None:
    for number, at in enumerate(TIMES):
        text = json.dumps({"replicasFrom": 3, "replicasTo": 2, "at": at})
        change = {"metadata": {"annotations": {DOWNSCALE_RECORD: text}}}
        await world.api.patch(PODS, world.namespace, f"evil-{number}-0", change)


async def _wait_clean(world: World) -> None:
    """Wait until no pod carries a record, neither a living one nor one that is terminating."""
    async with asyncio.timeout(60):
        while any(  # noqa: ASYNC110
            DOWNSCALE_RECORD in pod["metadata"].get("annotations", {})
            for pod in await world.api.items(PODS, world.namespace)
        ):
            await asyncio.sleep(0.2)


def _assert_no_bug(guarded: Guarded) -> None:
    assert guarded.operator.is_running
    assert not [line for line in guarded.operator.log_lines() if "level=error" in line]
