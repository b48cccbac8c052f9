"""Where the process that leads is to be reached: written with the Lease, and read from it."""

import pytest

from rollout_operator.kube.election import Election
from rollout_operator.model.errors import Denied, NotElected
from rollout_operator.model.lease import Identity
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.election_rig import HERE, SECOND, THERE, Rig, StoredLease
from tests.virtual_time import VirtualClock, in_virtual_time


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
