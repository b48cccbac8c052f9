"""Beside another operator, on a simulated cluster: it is left to do what it does (D-73)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from rollout_lab.model.history import Called
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import PODS
from rollout_operator.model.outcome import Code
from rollout_operator.planning.readiness import LEFT_ALONE
from tests.operator.acting import ZONES, change, delete, is_rolled_out, running
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_d73_a_group_that_another_operator_rolls_out_is_left_alone() -> None:
    """D-73: nothing is deleted until a minute after its last delete; then the rollout goes on."""
    async with running("operator-1") as (sandbox, (process,)):
        await change(sandbox)
        await asyncio.sleep(2)  # until there is a revision that pods may be behind
        for name in ("zone-b-0", "zone-b-1"):
            await delete(sandbox, name)
            left_at = sandbox.elapsed()
            await asyncio.sleep(5)
        assert [reason.code for reason in process.entries()[0].plan.waits] == [Code.OTHER_OPERATOR]
        counted = "rollout_operator_pods_deleted_by_others_total"
        metrics = process.telemetry.metrics.registry
        assert metrics.get_sample_value(counted, {"rollout_group": "ingester"}) == 2
        await asyncio.sleep(180)
        first = min(at for at, actor, _ in list_deletes(sandbox) if at > left_at)
        assert LEFT_ALONE <= first - left_at < LEFT_ALONE + timedelta(seconds=2)
        assert is_rolled_out(sandbox)
        assert [reason.code for reason in process.entries()[0].plan.waits] == [Code.UP_TO_DATE]


@in_virtual_time
async def test_d73_two_that_both_act_take_turns_and_come_to_an_end() -> None:
    """D-73, LI-01: without a Lease; the one that deletes first goes on, the other waits for it."""
    async with running("operator-1", "operator-2") as (sandbox, processes):
        await change(sandbox)
        async with asyncio.timeout(600):
            while not is_rolled_out(sandbox):  # noqa: ASYNC110 (a state, no event)
                await asyncio.sleep(1)
        done = [pod for _, _, pod in list_deletes(sandbox)]
        assert sorted(done) == [f"{zone}-{ordinal}" for zone in ZONES for ordinal in range(3)], (
            "each pod once"
        )
        await asyncio.sleep(LEFT_ALONE.total_seconds() + 5)
        for process in processes:
            waits = [reason.code for reason in process.entries()[0].plan.waits]
            assert waits == [Code.UP_TO_DATE]


@in_virtual_time
async def test_d73_what_the_one_before_deleted_is_not_taken_for_another_operator() -> None:
    """D-73, LI-08: the next goes on with the rollout at once."""
    async with running("operator-1", "operator-2", elects=True) as (sandbox, processes):
        leader, other = sorted(processes, key=lambda one: one.acts, reverse=True)
        await change(sandbox)
        while len(list_deletes(sandbox)) < 3:  # noqa: ASYNC110 (a state, no event)
            await asyncio.sleep(0.1)
        leader.crash()
        while not is_rolled_out(sandbox):
            await asyncio.sleep(0.5)
            waits = [reason.code for one in other.entries() for reason in one.plan.waits]
            assert Code.OTHER_OPERATOR not in waits


def list_deletes(sandbox: Sandbox) -> Sequence[tuple[timedelta, str, str]]:
    """Return when which process deleted which pod."""
    return [
        (called.at, called.actor, called.request.name)
        for called in sandbox.history.list_all(Called)
        if called.actor.startswith("operator-")
        and (called.request.verb, called.request.resource) == ("delete", PODS)
        and called.status < 400
    ]
