"""A Lease: where its holder is to be reached, and what other writers make of it.

Held by strangers, edited, deleted, forbidden.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rollout_operator.kube.election import Election, ElectionState
from rollout_operator.model.lease import LEASE_DURATION, RENEW_DEADLINE, Identity, Times
from rollout_operator.model.names import Denied, NotElected, Unreachable
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.election_rig import HERE, SECOND, THERE, Rig, StoredLease
from tests.virtual_time import VirtualClock, in_virtual_time

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


@in_virtual_time
async def test_dep92_the_next_leader_writes_where_it_answers() -> None:
    """DEP-92, D-71: and mends it where another client has edited it."""
    rig = Rig()
    await rig.run_for(SECOND)
    assert rig.lease.address == HERE
    rig.lease.put("me_1", "6.6.6.6:666")
    await rig.run_for(5 * SECOND)
    assert rig.lease.address == HERE
    assert rig.find_leader() is None


@pytest.mark.parametrize(
    ("holder", "loss"),
    [
        pytest.param("other_1", "another process acts: other_1", id="taken"),
        pytest.param(
            "", "lease lease names no holder any more: another writer removed it", id="emptied"
        ),
    ],
)
@in_virtual_time
async def test_si22_one_that_lost_the_lease_names_the_holder(holder: str, loss: str) -> None:
    """SI-22, D-40: also after its last write, which has nothing to release."""
    rig = Rig()
    await rig.run_for(SECOND)
    assert rig.election.loss == ""
    rig.lease.put(holder)
    await rig.run_for(5 * SECOND)
    await rig.election.wait_superseded()
    await rig.election.release()
    assert rig.election.loss == loss
    assert rig.lease.body["spec"]["holderIdentity"] == holder


@in_virtual_time
async def test_li08_a_lease_that_was_deleted_is_made_again_with_a_word() -> None:
    """LI-08, D-40: the log says so; this process acts on."""
    lines: list[str] = []
    logs.configure(write=lambda line: lines.append(line.decode()))
    rig = Rig()
    await rig.run_for(SECOND)
    rig.lease.body.clear()
    await rig.run_for(5 * SECOND)
    logs.configure()
    assert rig.lease.body["spec"]["holderIdentity"] == "me_1"
    assert rig.election.may_act
    assert sum("Lease was deleted; this process made it again" in line for line in lines) == 1


@in_virtual_time
async def test_dep92_the_address_goes_with_the_lease() -> None:
    """DEP-92: of a process that ended, and of an earlier one where the next has none."""
    rig = Rig()
    await rig.run_for(SECOND)
    await rig.election.release()
    assert rig.lease.address is None
    assert rig.find_leader() is None

    silent = Rig(address="")
    silent.lease.put("")
    await silent.run_for(SECOND)
    assert silent.lease.body["spec"]["holderIdentity"] == "me_1"
    assert silent.lease.address is None


@in_virtual_time
async def test_dep92_a_follower_knows_the_leader_as_long_as_it_renews() -> None:
    """DEP-92: none before it has read the Lease, none that may not act any more."""
    rig = Rig()
    assert rig.find_leader() is None
    rig.lease.put("other_1")
    await rig.run_for(SECOND)
    assert rig.find_leader() == ("other_1", THERE)
    await rig.run_for(12 * SECOND)
    assert rig.find_leader() is None, "it has not been renewed for so long that it may not act"


@in_virtual_time
async def test_dep92_an_odd_address_is_none() -> None:
    rig = Rig()
    rig.lease.put("other_1", "https://evil.example:8444")
    await rig.run_for(SECOND)
    assert rig.find_leader() == ("other_1", "")


@in_virtual_time
async def test_dep92_no_process_leads_by_a_lease_that_was_released() -> None:
    rig = Rig()
    rig.lease.put("other_1")
    await rig.run_for(SECOND)
    rig.lease.put("")
    await rig.run_for(3 * SECOND)
    assert rig.find_leader() is None
    assert rig.election.may_act


@in_virtual_time
async def test_dep94_one_that_has_released_the_lease_learns_the_next_leader() -> None:
    """DEP-94: it passes reviews on until it ends, and takes the Lease no more."""
    rig = Rig()
    await rig.run_for(SECOND)
    await rig.election.release()
    await rig.election.read_leader()
    assert rig.find_leader() is None
    rig.lease.put("next_1")
    await rig.election.read_leader()
    assert rig.find_leader() == ("next_1", THERE)
    rig.lease.body.clear()
    await rig.election.read_leader()
    assert rig.find_leader() is None
    assert rig.lease.body == {}
    assert not rig.election.may_act


@in_virtual_time
async def test_si25_no_write_passes_in_shadow_mode() -> None:
    """SI-25: whatever requests one, and whatever the Role grants."""
    election = Election(
        StoredLease(),
        namespace="prod",
        name="lease",
        me=Identity(name="here", life="1", address=HERE),
        clock=VirtualClock(),
        metrics=Metrics(),
        times=Times(),
        is_shadow=True,
    )
    with pytest.raises(NotElected, match=r"cannot delete pod a-0: .* in shadow mode"):
        election.check("delete pod a-0")
    await election.release()
    with pytest.raises(NotElected):
        election.check("delete pod a-0")


@in_virtual_time
async def test_si22_the_fence_says_for_how_long_a_write_may_be_sent() -> None:
    """SI-22: until 10 s after the last renewal; for ever where there is no election."""
    rig = Rig()
    await rig.run_for(SECOND)
    assert rig.election.check("delete pod a-0") == 9 * SECOND
    alone = Rig()
    alone.lease.fail = Denied("forbidden", status=403)
    await alone.run_for(SECOND)
    assert alone.election.check("delete pod a-0") is None


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


@pytest.mark.parametrize(
    ("own", "stated", "after"),
    [
        pytest.param(15, 40, 40, id="the holder has a longer one"),
        pytest.param(40, 15, 40, id="this process has"),
        pytest.param(15, 600, 600, id="the longest"),
        pytest.param(15, 601, 15, id="more than any flag"),
        pytest.param(3, 1, 3, id="short ones"),
    ],
)
@pytest.mark.parametrize("is_deleted", [False, True], ids=["kept", "deleted"])
@in_virtual_time
async def test_d70_a_lease_is_waited_for_as_long_as_either_says(
    own: int, stated: int, after: int, is_deleted: bool
) -> None:
    """D-70, SI-22: replicas of two versions of a Deployment may have other flags."""
    times = Times(lease=own * SECOND, deadline=2 * SECOND, retry=SECOND)
    rig = Rig(times=times)
    rig.lease.put(STRANGER, leaseDurationSeconds=stated)
    async with running(rig):
        await asyncio.sleep(1.1)
        if is_deleted:
            rig.lease.body.clear()
        acting = []
        for pause in (after - 1.5, 3):
            await asyncio.sleep(pause)
            acting.append(rig.election.may_act)
        assert acting == [False, True]
        assert rig.lease.body["spec"]["leaseDurationSeconds"] == own


@in_virtual_time
async def test_d70_the_flags_say_how_often_it_is_renewed_and_for_how_long_it_counts() -> None:
    """D-70, SI-22."""
    rig = Rig(times=Times(lease=60.5 * SECOND, deadline=40 * SECOND, retry=10 * SECOND))
    async with running(rig):
        await asyncio.sleep(95)
        assert rig.lease.calls == 11  # a read, and a write each ten seconds
        assert rig.lease.body["spec"]["leaseDurationSeconds"] == 61
        rig.lease.fail = Unreachable("away", status=0)
        acting = []
        for pause in (34, 2):
            await asyncio.sleep(pause)
            acting.append(rig.election.may_act)
        assert acting == [True, False]


@pytest.mark.parametrize(
    ("failure", "why"),
    [(FORBIDDEN, "forbidden"), (TimeoutError(), "the API server does not answer")],
)
@in_virtual_time
async def test_d70_one_that_cannot_take_a_free_lease_says_so(
    failure: Denied | TimeoutError, why: str, lines: list[str]
) -> None:
    """D-70, LI-01: no process acts then, and the holder that is gone is not named as the one."""
    rig = Rig()
    rig.lease.put(STRANGER)
    rig.lease.fail_writes = failure
    async with running(rig):
        await asyncio.sleep(12)
        assert rig.election.text == STRANGER
        await asyncio.sleep(80)
        assert rig.election.text == f"no process: lease lease cannot be taken: {why}"
        said = [line for line in lines if "Lease can be neither read nor taken" in line]
        assert len(said) == 2
        assert all("level=warn" in line and why in line for line in said)
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
