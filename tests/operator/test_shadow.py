"""Shadow mode beside an operator that acts, on a simulated cluster."""

import asyncio
from typing import Final

import pytest
from prometheus_client import generate_latest
from rollout_lab.model.history import Called
from rollout_lab.model.request import ApiRequest
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox

from rollout_operator.controllers.shadow import MOST_SETTLING, STAYS_FOR
from rollout_operator.kube.api import STATEFULSETS
from rollout_operator.model.names import LEADING_ZONE
from rollout_operator.model.outcome import Code
from tests.operator.acting import (
    SHADOW,
    annotate,
    call,
    change,
    delete,
    is_rolled_out,
    patch,
    running,
)
from tests.virtual_time import in_virtual_time

READS: Final = frozenset({"get", "list", "watch"})


@in_virtual_time
async def test_si25_beside_one_that_acts_nothing_is_written_and_nothing_differs() -> None:
    """SI-25: zero writes and zero differences in a rollout by another operator."""
    async with running("operator-1", SHADOW) as (sandbox, (_, shadow)):
        await change(sandbox)
        while not is_rolled_out(sandbox):  # noqa: ASYNC110 (a state, no event)
            await asyncio.sleep(1)
        await asyncio.sleep(STAYS_FOR.total_seconds() * 2)
        assert list_writes(sandbox) == []
        assert differences(shadow) == 0
        assert list_codes(shadow) == [Code.UP_TO_DATE]


@in_virtual_time
async def test_si25_what_is_not_done_is_reported_and_counted_after_a_minute() -> None:
    """SI-25: no operator acts; the one pod that would be deleted counts once."""
    async with running(SHADOW) as (sandbox, (shadow,)):
        await change(sandbox)
        await asyncio.sleep(STAYS_FOR.total_seconds() / 2)
        plan = shadow.entries()[0].plan
        assert plan.actions == ()
        reason = plan.waits[0]
        assert reason.code is Code.SHADOW_MODE
        assert reason.text.startswith("would delete zone-a-0, but shadow mode writes nothing: ")
        assert differences(shadow) == 0
        await asyncio.sleep(STAYS_FOR.total_seconds() * 3)
        assert differences(shadow) == 1
        assert list_writes(sandbox) == []


@in_virtual_time
@pytest.mark.parametrize(
    ("pod", "counted"),
    [
        pytest.param("zone-a-0", 0, id="the one whose turn it is"),
        pytest.param("zone-a-2", 0, id="another one of its zone"),
        pytest.param("zone-b-1", 1, id="one of the next zone"),
    ],
)
async def test_si25_a_delete_counts_where_it_was_not_the_pods_turn(pod: str, counted: int) -> None:
    """SI-25: the order of equal pods within a zone is no promise."""
    async with running(SHADOW) as (sandbox, (shadow,)):
        await change(sandbox)
        await asyncio.sleep(5)
        await delete(sandbox, pod)
        await asyncio.sleep(10)
        assert differences(shadow) == counted


@in_virtual_time
async def test_si25_a_second_pod_of_a_zone_counts() -> None:
    """SI-25: the first one takes all that may be unavailable."""
    async with running(SHADOW) as (sandbox, (shadow,)):
        await change(sandbox)
        await asyncio.sleep(5)
        await delete(sandbox, "zone-a-2")
        await asyncio.sleep(0.2)
        await delete(sandbox, "zone-a-1")
        await asyncio.sleep(10)
        assert differences(shadow) == 1


@in_virtual_time
async def test_si25_counts_that_are_due_are_reported() -> None:
    """SI-25: the zone that follows another one would be scaled, and is not."""
    async with running(SHADOW) as (sandbox, (shadow,)):
        await annotate(sandbox, "zone-b", LEADING_ZONE, "zone-a")
        await patch(sandbox, "zone-a", {"spec": {"replicas": 4}})
        await asyncio.sleep(30)
        texts = [one.text for one in shadow.entries()[0].plan.waits]
        assert any(
            text.startswith("would scale zone-b from 3 to 4, but shadow mode writes nothing")
            for text in texts
        ), texts
        assert list_writes(sandbox) == []


@in_virtual_time
async def test_si25_a_group_that_is_gone_leaves_nothing() -> None:
    """SI-25: neither a state nor a series is left."""
    async with running(SHADOW) as (sandbox, (shadow,)):
        await annotate(sandbox, "zone-b", LEADING_ZONE, "zone-a")
        await asyncio.sleep(5)
        for name in ("zone-a", "zone-b"):
            await call(sandbox, ApiRequest(verb="delete", resource=STATEFULSETS, name=name))
        await asyncio.sleep(60)
        assert shadow.entries() == ()
        text = generate_latest(shadow.telemetry.metrics.registry).decode()
        assert 'rollout_group="ingester"' not in text


@pytest.mark.slow
@in_virtual_time
async def test_si25_many_deletes_at_once_are_compared_up_to_a_bound() -> None:
    """SI-25, D-68: each costs a plan of the group, and none stops the loop for the others."""
    async with running(SHADOW, pods=MOST_SETTLING + 8) as (sandbox, (shadow,)):
        await change(sandbox)
        await asyncio.sleep(5)
        for number in range(MOST_SETTLING + 8):
            await delete(sandbox, f"zone-b-{number}")
        await asyncio.sleep(10)
        assert 0 < (differences(shadow) or 0) <= MOST_SETTLING


def differences(shadow: SimulatedProcess) -> float | None:
    """Return how many pods were counted of the group."""
    name, group = "rollout_operator_shadow_differences_total", {"rollout_group": "ingester"}
    return shadow.telemetry.metrics.registry.get_sample_value(name, group)


def list_codes(shadow: SimulatedProcess) -> list[Code]:
    """Return the codes of what the shadow says of the group."""
    return [one.code for one in shadow.entries()[0].plan.waits]


def list_writes(sandbox: Sandbox) -> list[ApiRequest]:
    """Return the writes that the shadow has sent, whatever became of them."""
    return [
        called.request
        for called in sandbox.history.list_all(Called)
        if called.actor == SHADOW and called.request.verb not in READS
    ]
