"""The operator on a simulated cluster: what no single part of it shows."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from rollout_lab.model.history import Called
from rollout_lab.model.request import STRATEGIC_PATCH, create, patch
from rollout_lab.virtual_loop.loop import is_left
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from tests.virtual_time import VirtualClock, in_virtual_time

PATIENCE = timedelta(seconds=20)
NEW: JsonObject = {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "v2"}]}}}}


@pytest.mark.parametrize("hours", [-2, 0, 2], ids=["behind", "right", "ahead"])
@in_virtual_time
async def test_a_wrong_clock_does_not_say_how_long_pods_have_been_ready(hours: int) -> None:
    """D-11, FP-17, SI-02, LI-01: the API server's clock counts, whatever our own one shows."""
    zones = [ZoneSpec(name=f"zone-{letter}", replicas=2, min_ready=PATIENCE) for letter in "ab"]
    async with Sandbox() as sandbox:
        for zone in zones:
            body = statefulset(zone, sandbox.namespace)
            await sandbox.call(create(STATEFULSETS, body, sandbox.namespace))
        await VirtualClock().sleep(3 * PATIENCE)
        process = sandbox.process()
        process.clock.offset = timedelta(hours=hours)
        process.start()
        await process.wait_ready()
        for zone in zones:
            await sandbox.call(
                patch(STATEFULSETS, zone.name, NEW, sandbox.namespace, kind=STRATEGIC_PATCH)
            )
        await VirtualClock().sleep(8 * PATIENCE)
        deletes = [
            called.at
            for called in sandbox.history.list_all(Called)
            if called.actor == process.name
            and (called.request.verb, called.request.resource) == ("delete", PODS)
        ]
    assert len(deletes) == 4
    gaps = [later - earlier for earlier, later in pairwise(deletes)]
    assert min(gaps) >= PATIENCE
    assert max(gaps) <= 1.5 * PATIENCE


@in_virtual_time
async def test_fp06_the_tasks_of_a_killed_process_are_known_to_be_left() -> None:
    """FP-06: those that wait for an answer then may be destroyed, unreported; no others."""
    before = asyncio.all_tasks()
    async with Sandbox() as sandbox:
        of_world = asyncio.all_tasks() - before
        processes = [sandbox.process(f"operator-{number}") for number in (1, 2)]
        counts = []
        for process in processes:
            process.start()
            await process.wait_ready()
            counts.append(sum(one.get_name() == "reconcile rollout" for one in asyncio.all_tasks()))
        processes[0].crash()
        left = [one for one in asyncio.all_tasks() if is_left(one)]
        assert sum(one.get_name() == "reconcile rollout" for one in left) == counts[0]
        assert counts[1] == 2 * counts[0] > 0
        assert not any(is_left(one) for one in of_world)
