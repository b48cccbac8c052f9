"""A Lease that is not as this process wrote it: held by strangers, edited, deleted, forbidden."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rollout_operator.kube.election import ElectionState
from rollout_operator.model.errors import Denied, Unreachable
from rollout_operator.model.lease import LEASE_DURATION, RENEW_DEADLINE, Identity
from tests.kube.election_rig import HERE, SECOND, Rig, StoredLease
from tests.virtual_time import in_virtual_time

STRANGER = "another-holder"
FORBIDDEN = Denied("forbidden", status=403)
ODD: dict[str, dict[str, object]] = {
    "of the future": {
        "renewTime": "9999-12-31T23:59:59.999999Z",
        "leaseDurationSeconds": 2**31 - 1,
    },
    "of the past": {"renewTime": "1970-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1},
    "without times": {"renewTime": None, "acquireTime": None, "leaseDurationSeconds": None},
    "no time at all": {"renewTime": "tomorrow", "acquireTime": "yesterday"},
    "changed often": {"leaseTransitions": 2**31 - 1},
}


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD)
@in_virtual_time
async def test_d70_a_stranger_s_lease_is_waited_for_by_our_own_clock(
    spec: dict[str, Any],
) -> None:
    """D-70, SI-22, FP-17: whatever times it names; taken once it has not changed for 15 s."""
    rig = Rig()
    rig.lease.put(STRANGER, **spec)
    await rig.run_for(LEASE_DURATION - SECOND)
    assert rig.lease.holder == STRANGER
    assert not rig.election.may_act
    await rig.run_for(3 * SECOND)
    assert rig.lease.holder == "me_1"
    assert rig.election.may_act


@in_virtual_time
async def test_d70_one_that_cannot_take_a_free_lease_says_so(lines: list[str]) -> None:
    """D-70, LI-01: no process acts then, and the holder that is gone is not named as the one."""
    rig = Rig()
    rig.lease.put(STRANGER)
    rig.lease.fail_writes = FORBIDDEN
    async with running(rig):
        await asyncio.sleep(12)
        assert rig.election.text == STRANGER
        await asyncio.sleep(80)
        assert rig.election.text == "no process: lease lease cannot be taken: forbidden"
        said = [line for line in lines if "Lease can be neither read nor taken" in line]
        assert len(said) == 2
        assert all("level=warn" in line and "why=forbidden" in line for line in said)
        rig.lease.fail_writes = None
        await asyncio.sleep(3)
        assert rig.election.text == "this process"
    assert not [line for line in lines if "acts again" in line]


@in_virtual_time
async def test_d70_a_holder_s_name_is_reported_within_bounds() -> None:
    """D-70: it goes into logs, pages and refusals, and editors of a Lease choose it."""
    rig = Rig()
    rig.lease.put("x\n\x1b[31m" + "x" * 300_000)
    async with running(rig):
        await asyncio.sleep(3)
        assert rig.election.text.startswith("x\\n\\x1b[31mxxx")
        assert len(rig.election.text) == 300


@in_virtual_time
async def test_d70_a_stranger_that_renews_keeps_it() -> None:
    """D-70, SI-22: any change of the time counts, also one into the past."""
    rig = Rig()
    async with running(rig):
        for minute in range(60, 0, -1):
            rig.lease.put(STRANGER, renewTime=f"2020-01-01T00:{minute - 1:02}:00.000000Z")
            await asyncio.sleep(14)
            assert rig.lease.holder == STRANGER
        assert rig.election.state is ElectionState.FOLLOWING


@in_virtual_time
async def test_d70_a_lease_that_is_deleted_while_held_is_made_again() -> None:
    """D-70, SI-22: by its holder within two seconds, before another may take it."""
    lease = StoredLease()
    leader, other = Rig(lease=lease), Rig(lease=lease, name="other")
    async with running(leader):
        await asyncio.sleep(5)
        async with running(other):
            await asyncio.sleep(5)
            for _ in range(3):
                lease.body.clear()
                await asyncio.sleep(3)
                assert (lease.holder, lease.address) == ("me_1", HERE)
                assert leader.election.may_act
                assert not other.election.may_act


@in_virtual_time
async def test_d70_a_lease_that_is_gone_with_its_holder_is_made_by_another() -> None:
    """D-70, LI-08: after the time in which the holder may still act, and has not noticed."""
    lease = StoredLease()
    lease.put(STRANGER)
    other = Rig(lease=lease)
    async with running(other):
        await asyncio.sleep(2)
        lease.body.clear()
        await asyncio.sleep((LEASE_DURATION - SECOND).total_seconds())
        assert lease.holder is None
        await asyncio.sleep(4)
        assert lease.holder == "me_1"


@pytest.mark.parametrize("holder", ["", STRANGER, "me_2", "me"])
@in_virtual_time
async def test_si22_one_whose_lease_a_person_gives_away_ends(holder: str) -> None:
    """SI-22, FP-18: also to no process, which another may have taken by now."""
    rig = Rig()
    async with running(rig):
        await asyncio.sleep(5)
        rig.lease.put(holder)
        await asyncio.sleep(3)
        assert rig.election.state is ElectionState.SUPERSEDED
        assert not rig.election.may_act
        assert rig.lease.holder == holder


@in_virtual_time
async def test_si22_edits_that_leave_the_holder_change_nothing() -> None:
    """SI-22, DEP-92: what was edited is written again with the next renewal."""
    rig = Rig()
    async with running(rig):
        for spec in ODD.values():
            await asyncio.sleep(5)
            rig.lease.put("me_1", None, **spec)
            await asyncio.sleep(3)
            assert rig.election.may_act
            assert rig.lease.address == HERE
            assert rig.lease.body["spec"]["leaseDurationSeconds"] == 15
        assert rig.election.state is ElectionState.LEADING


@pytest.mark.parametrize("error", [FORBIDDEN, Unreachable("away", status=0)])
@in_virtual_time
async def test_si22_one_that_may_not_renew_holds_still_and_goes_on_later(
    error: Denied | Unreachable,
) -> None:
    """SI-22, LI-01: from 10 s after its last renewal on, and again once it is let."""
    rig = Rig()
    async with running(rig):
        await asyncio.sleep(5)
        rig.lease.fail = error
        await asyncio.sleep((RENEW_DEADLINE + SECOND).total_seconds())
        assert not rig.election.may_act
        assert rig.election.state is ElectionState.LEADING
        rig.lease.fail = None
        await asyncio.sleep(3)
        assert rig.election.may_act


@in_virtual_time
async def test_si22_one_that_follows_does_not_act_for_want_of_a_right() -> None:
    """SI-22: it has seen that another acts; the right is lost, the other is not."""
    rig = Rig()
    rig.lease.put(STRANGER)
    async with running(rig):
        await asyncio.sleep(3)
        rig.lease.fail = FORBIDDEN
        await asyncio.sleep(60)
        assert rig.election.state is ElectionState.FOLLOWING
        assert not rig.election.may_act


@in_virtual_time
async def test_d70_one_that_works_alone_takes_part_once_it_may() -> None:
    """D-70: an API server that has just started forbids everything; it acts all the while."""
    rig = Rig()
    rig.lease.fail = FORBIDDEN
    async with running(rig):
        await asyncio.sleep(1)
        assert state_of(rig) is ElectionState.ALONE
        rig.lease.fail = None
        for _ in range(200):
            assert rig.election.may_act
            await asyncio.sleep(0.1)
        assert state_of(rig) is ElectionState.LEADING
        assert (rig.lease.holder, rig.lease.address) == ("me_1", HERE)


@in_virtual_time
async def test_d70_one_that_works_alone_gives_way_to_one_that_leads() -> None:
    """D-70, SI-22, FP-18: that one was elected before, or under a Role that came later."""
    rig = Rig()
    rig.lease.fail = FORBIDDEN
    async with running(rig):
        await asyncio.sleep(1)
        assert state_of(rig) is ElectionState.ALONE
        rig.lease.put(STRANGER)
        rig.lease.fail = None
        await asyncio.sleep(20)
        assert state_of(rig) is ElectionState.SUPERSEDED
        assert not rig.election.may_act
        assert rig.lease.holder == STRANGER


@in_virtual_time
async def test_d70_one_without_the_right_tries_ever_more_seldom(lines: list[str]) -> None:
    """D-70, LI-11: it is reported once, and costs a call in five minutes."""
    rig = Rig()
    rig.lease.fail = FORBIDDEN
    async with running(rig):
        await asyncio.sleep(24 * 3600)
        assert rig.election.state is ElectionState.ALONE
    assert rig.lease.calls <= 24 * 12 + 6
    assert sum("No election is possible" in line for line in lines) == 1


@in_virtual_time
async def test_d70_the_lease_of_an_earlier_process_of_the_pod_keeps_it_from_nothing() -> None:
    """D-70: where it may be read and not written, as after the Role of an earlier release."""
    rig = Rig()
    rig.election = rig.elect(Identity(name="me", life="2", is_pod=True))
    rig.lease.put("me_1")
    rig.lease.fail_writes = FORBIDDEN
    async with running(rig):
        await asyncio.sleep(3)
        assert rig.election.state is ElectionState.ALONE


def state_of(rig: Rig) -> ElectionState:
    """Return what a process is now."""
    return rig.election.state


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[None]:
    """Let a process take part during the block."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(rig.election.run())
        yield
        task.cancel()
