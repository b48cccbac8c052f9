"""What pages say of a namespace, beyond `pages.txt`: plans that are carried out, and bounds."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from rollout_operator.model.names import Revision
from rollout_operator.model.outcome import Code, Reason, RecordRevision
from rollout_operator.planning import describe_groups
from tests.builders import zone
from tests.operator.stage import OperatorStage
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_a_plan_that_is_carried_out_is_shown_with_its_begin() -> None:
    """D-40: what was posted last may be over."""
    stage = OperatorStage(has_webhooks=False)
    async with stage.stack:
        await stage.set_up()
        await stage.act("given pair > wait")
        process = stage.processes["1"]
        states = process.telemetry.group_states
        reason = Reason(Code.ROLLED_OUT, "r")
        step = RecordRevision(zone=zone("a").sts, revision=Revision("new"), reason=reason)
        before = await process.describe()
        with states.carrying_out(replace(states.entries()[0].plan, actions=(step,))):
            await asyncio.sleep(5)
            [group] = (await process.describe()).groups
        [after] = (await process.describe()).groups

    assert (group.underway_since, group.looked) == (before.now, before.now)
    assert group.since == before.groups[0].since
    assert (after.underway_since, after.looked) == (None, before.groups[0].looked)


@in_virtual_time
async def test_what_is_made_for_one_request_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-50, D-51: many zones show fewer pods each, and a thousand groups never stop the loop."""
    monkeypatch.setattr(describe_groups, "MOST_PODS_IN_ALL", 22)
    turns = count()

    async def take_turns() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    stage = OperatorStage(has_webhooks=False)
    async with stage.stack:
        await stage.set_up()
        await stage.act("zone a plain; zone b plain; fleet 9 1 1; 30s; start; 30s > wait")
        async with asyncio.TaskGroup() as tasks:
            other = tasks.create_task(take_turns())
            *_, group = (await stage.processes["1"].describe()).groups
            other.cancel()

    assert [(len(zone.pods), zone.desired) for zone in group.zones] == [(2, 3), (2, 3)]
    assert next(turns) >= 10
