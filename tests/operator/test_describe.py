"""What processes of a simulated cluster say of their namespace."""

import asyncio
from dataclasses import replace

import pytest
from rollout_lab.model.request import ApiRequest
from rollout_lab.zones import ZoneSpec

from rollout_operator import __version__
from rollout_operator.kube.api import ZONE_BUDGETS
from rollout_operator.model.description import Description, GroupDescription, Phase
from rollout_operator.model.names import Revision
from rollout_operator.model.outcome import Code, Reason, RecordRevision
from rollout_operator.planning import describe_groups
from rollout_operator.planning.text import render_description
from tests.builders import zone
from tests.operator.acting import SHADOW, call, change, create, patch, running
from tests.operator.test_failover import list_election, replicas, sort_by_leading
from tests.simulation.drainers import zone_budget
from tests.virtual_time import in_virtual_time


def only_group(description: Description) -> GroupDescription:
    (group,) = description.groups
    return group


def outline(group: GroupDescription) -> list[str]:
    """Return the zones in short: one letter for the state of each pod, capital where updated."""
    return [
        "".join(one.state[0].upper() if one.is_updated else one.state[0] for one in zone.pods)
        for zone in group.zones
    ]


@in_virtual_time
async def test_a_rollout_from_its_begin_to_its_end() -> None:
    """D-75: numbers of the caches, reasons of the process that acts."""
    async with running("operator-1") as (sandbox, (process,)):
        before = await process.describe()
        await change(sandbox)
        seen: list[GroupDescription] = []
        async with asyncio.timeout(600):
            while not seen or seen[-1].updated < seen[-1].desired or seen[-1].waits:
                await asyncio.sleep(1)
                seen.append(only_group(await process.describe()))

    operator = before.operator
    assert operator is not None
    assert (operator.version, operator.is_ready, operator.is_acting) == (__version__, True, True)
    assert operator.missing == ()
    assert any(line.startswith("pods watch: proved live") for line in operator.parts)
    assert before.namespace == "default"
    assert (only_group(before).phase, only_group(before).code) == (
        Phase.ROLLED_OUT,
        Code.UP_TO_DATE,
    )
    assert outline(only_group(before)) == outline(seen[-1]) == ["RRR", "RRR"]
    underway = [one for one in seen if 0 < one.updated < one.desired]
    assert {one.phase for one in underway} == {Phase.ROLLING_OUT}
    updated = [one.updated for one in underway]
    assert updated == sorted(updated)
    assert all(one.began is not None for one in underway)
    assert any(one.expected_end is not None for one in underway)
    assert seen[-1].phase is Phase.ROLLED_OUT


@in_virtual_time
async def test_one_that_follows_shows_what_its_own_caches_lead_to() -> None:
    """D-75, DEP-93: each replica shows the groups; only one says that it acts."""
    async with replicas(2) as (_, processes):
        leader, other = sort_by_leading(processes)
        await asyncio.sleep(5)
        shown = [await process.describe() for process in (leader, other)]
        assert [one.operator and one.operator.is_acting for one in shown] == [True, False]
        assert [only_group(one).headline for one in shown] == [
            "4 pods of 2 zones: all ready at the update revision"
        ] * 2
        assert [only_group(one).since is None for one in shown] == [False, True]
        assert f"  {list_election(other)[0]}" in list(render_description(shown[1]))


@in_virtual_time
async def test_a_plan_that_is_carried_out_is_shown_with_its_begin() -> None:
    """D-40: what was posted last may be over."""
    async with running("operator-1") as (_, (process,)):
        await asyncio.sleep(5)
        states, sts = process.telemetry.group_states, zone("a").sts
        step = RecordRevision(
            zone=sts, revision=Revision("new"), reason=Reason(Code.ROLLED_OUT, "r")
        )
        before = await process.describe()
        plan = replace(states.entries()[0].plan, actions=(step,))
        with states.carrying_out(plan):
            await asyncio.sleep(5)
            group = only_group(await process.describe())
        after = only_group(await process.describe())

    assert (group.underway_since, group.looked) == (before.now, before.now)
    assert group.since == only_group(before).since
    assert (after.underway_since, after.looked) == (None, only_group(before).looked)


@in_virtual_time
async def test_in_shadow_mode_it_shows_what_would_be_done() -> None:
    """SI-25: as the log does, with the pod that goes next."""
    async with running(SHADOW) as (sandbox, (shadow,)):
        await change(sandbox)
        await asyncio.sleep(30)
        group = only_group(await shadow.describe())

    assert (group.phase, group.code) == (Phase.WAITING, Code.SHADOW_MODE)
    assert group.headline.startswith("would delete zone-a-0, but shadow mode writes nothing: ")
    assert [(step.pod, step.is_waiting) for step in group.steps] == [("zone-a-0", True)]


@in_virtual_time
async def test_what_a_person_must_change_is_reported_with_what_to_do() -> None:
    async with running("operator-1") as (sandbox, (process,)):
        await patch(sandbox, "zone-b", {"spec": {"updateStrategy": {"type": "RollingUpdate"}}})
        await asyncio.sleep(5)
        group = only_group(await process.describe())

    assert (group.phase, group.code) == (Phase.HELD, Code.WRONG_STRATEGY)
    assert [one.remedy for one in group.waits] == [Code.WRONG_STRATEGY.remedy]


@in_virtual_time
async def test_budgets_are_described_with_what_to_do() -> None:
    """D-75: of one that guards nothing, and of one that guards what it is to guard."""
    async with running("operator-1") as (sandbox, (process,)):
        for name, zone in (("named", "zone-a"), ("grouped", "")):
            labels = {"name": zone} if zone else {"rollout-group": "ingester"}
            body = zone_budget(name, labels)
            await call(sandbox, ApiRequest(verb="create", resource=ZONE_BUDGETS, body=body))
        await asyncio.sleep(30)
        description = await process.describe()

    grouped, named = description.budgets
    assert (grouped.name, grouped.zones, grouped.pods) == ("grouped", 2, 0)
    assert [(one.code, one.remedy) for one in grouped.waits] == [
        (Code.BUDGET_SELECTS_NO_PODS, Code.BUDGET_SELECTS_NO_PODS.remedy)
    ]
    assert [one.code for one in named.waits] == [Code.TOO_FEW_ZONES]
    assert f'budget "named": {named.text} [{Code.TOO_FEW_ZONES}]' in list(
        render_description(description)
    )


@in_virtual_time
async def test_many_zones_show_fewer_pods_each() -> None:
    """D-50: what is made for one request has a bound, whatever replicas tenants request."""
    async with running("operator-1") as (_, (process,)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(describe_groups, "MOST_PODS_IN_ALL", 4)
            group = only_group(await process.describe())

    assert outline(group) == ["RR", "RR"]
    assert [zone.desired for zone in group.zones] == [3, 3]


@in_virtual_time
async def test_others_have_a_turn_between_two_groups() -> None:
    """D-51: a thousand groups never stop the loop."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running("operator-1") as (sandbox, (process,)):
        for number in range(9):
            zone = ZoneSpec(name=f"zone-{number}", replicas=1, group=f"group-{number}")
            await create(sandbox, zone)
        await asyncio.sleep(30)
        async with asyncio.TaskGroup() as tasks:
            other = tasks.create_task(take_turns())
            description = await process.describe()
            other.cancel()

    assert [one.name for one in description.groups] == [
        *(f"group-{number}" for number in range(9)),
        "ingester",
    ]
    assert turns >= len(description.groups)
