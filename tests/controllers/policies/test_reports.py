"""What metrics and pages of a process say of MultiAZRollouts, until they go."""

import pytest
from msgspec import UNSET
from rollout_lab.model.history import Said
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox

from rollout_operator.model.outcome import Code
from tests.controllers.policies.world import PolicyWorld
from tests.virtual_time import in_virtual_time

OWN = 'namespace="default",name="db"'


def series(process: SimulatedProcess) -> dict[str, str]:
    """Return the samples of policies by what stands before the number."""
    lines = b"".join(process.telemetry.metrics.render()).decode().splitlines()
    own = [line for line in lines if line.startswith("rollout_operator_multiaz_")]
    pairs = (line.removeprefix("rollout_operator_multiaz_").rsplit(" ", 1) for line in own)
    return {pair[0]: pair[1] for pair in pairs}


@in_virtual_time
async def test_maz55_a_rollout_is_counted_and_its_series_go_with_it() -> None:
    """Two zones of two pods: four batches of one; another process begins to count anew."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 10})
        process = await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(8)
        begun = series(process)
        await world.sleep(300)
        done = series(process)
        process.crash()
        process.start()
        await process.wait_ready()
        await world.sleep(10)
        anew = series(process)
        await world.delete_policy()
        await world.sleep(10)
        gone = series(process)

    assert begun[f'pods{{{OWN},zone="us-west-2a",state="outdated"}}'] == "1"
    assert f"last_completed_timestamp_seconds{{{OWN}}}" not in begun
    for zone in ("us-west-2a", "us-west-2b"):
        assert done[f'batches_total{{{OWN},zone="{zone}"}}'] == "2"
        assert done[f'pods_deleted_total{{{OWN},zone="{zone}"}}'] == "2"
        assert done[f'pods{{{OWN},zone="{zone}",state="updated"}}'] == "2"
        assert anew[f'batches_total{{{OWN},zone="{zone}"}}'] == "0"
    assert done[f"batch_duration_seconds_count{{{OWN}}}"] == "4"
    assert done[f'info{{{OWN},phase="Idle"}}'] == "1"
    completed = f"last_completed_timestamp_seconds{{{OWN}}}"
    assert anew[completed] == done[completed]
    assert gone == {}


@in_virtual_time
async def test_maz55_what_blocks_a_policy_is_shown_until_it_does_not() -> None:
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=1, strategy="RollingUpdate")
        await world.create_policy()
        process = await world.start()
        await world.sleep(10)
        blocked = f'blocked{{{OWN},reason="UpdateStrategyNotOnDelete"}}'
        before = series(process)
        for letter in "ab":
            strategy = {"type": "OnDelete", "rollingUpdate": None}
            await world.patch_set(f"db-{letter}", {"spec": {"updateStrategy": strategy}})
        await world.sleep(30)
        after = series(process)

    assert (before[blocked], after[blocked]) == ("1", "0")
    assert (f'info{{{OWN},phase="Blocked"}}' in before, f'info{{{OWN},phase="Idle"}}' in after) == (
        True,
        True,
    )


@pytest.mark.parametrize(
    ("completes_on_delete", "line"), [(False, "Recording revision"), (True, "Zone is rolled out")]
)
@in_virtual_time
async def test_a_zone_is_rolled_out_whoever_records_its_revision(
    capfd: pytest.CaptureFixture[str], completes_on_delete: bool, line: str
) -> None:
    """MAZ-49: since Kubernetes 1.37 the StatefulSet controller does, and as a rule it is first."""
    async with Sandbox(completes_on_delete=completes_on_delete) as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=1)
        await world.create_policy(rollingUpdate={"intervalSeconds": 10})
        await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(300)
    lines = [text for text in "".join(capfd.readouterr()).splitlines() if "rolled_out" in text]
    names = [text.partition("statefulset=")[2][:4] for text in lines if f'"{line}"' in text]
    assert names == ["db-a", "db-b"]


@in_virtual_time
async def test_without_the_flag_nothing_is_said_of_policies() -> None:
    async with Sandbox() as sandbox:
        process = sandbox.process("operator-1")
        process.start()
        await process.wait_ready()
        assert series(process) == {}
        assert (await process.describe()).policies is UNSET


@in_virtual_time
async def test_maz50_what_is_described_is_what_was_decided() -> None:
    """Each policy with its code, and the group that it drives with its name; a replica too."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", group="db", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 600})
        process = await world.start(elects=True)
        standby = await world.start(name="operator-2", elects=True)
        await world.roll_out(letters="ab")
        await world.sleep(60)
        acting, other = await process.describe(), await standby.describe()
        await world.delete_policy()
        await world.sleep(1)
        gone = await process.describe()

    (policy,), (group,) = acting.list_policies(), acting.groups
    assert (policy.title, policy.phase, policy.code) == (
        "default/db",
        "Waiting",
        Code.INTERVAL_WAIT,
    )
    assert (policy.groups, group.policy) == (("db",), "default/db")
    assert [(zone.name, zone.state) for zone in policy.zones] == [
        ("us-west-2a", "Updating"),
        ("us-west-2b", "Pending"),
    ]
    assert policy.next_batch is not None
    (seen,) = other.list_policies()
    assert (seen.code, seen.headline, seen.zones) == (None, policy.headline, policy.zones)
    assert (gone.policies, gone.groups[0].policy) == ((), UNSET)


@in_virtual_time
async def test_a_policy_that_is_refused_is_described_by_its_refusal() -> None:
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=1)
        await world.create_policy("old")
        await world.sleep(2)
        await world.create_policy("young")
        process = await world.start()
        await world.sleep(10)
        described = {one.name: one for one in (await process.describe()).list_policies()}

    assert (described["old"].phase, described["young"].phase) == ("Idle", "Invalid")
    assert "default/old" in described["young"].headline


@in_virtual_time
async def test_a_delete_that_is_refused_is_what_a_policy_waits_for_until_it_is_not() -> None:
    """MAZ-44, MAZ-50: page, condition and log have the error, also of a batch that has stalled."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("a", replicas=1)
        await world.create_policy(progressDeadlineSeconds=30)
        process = await world.start()
        sandbox.api.forbidden.add(("operator-1", "delete", "pods"))
        with sandbox.listening():
            await world.roll_out(letters="a")
            await world.sleep(60)
        held = (await process.describe()).list_policies()[0]
        conditions = {one["type"]: one for one in (await world.get())["status"]["conditions"]}
        said = [one.text for one in sandbox.history.list_all(Said) if "Policy " in one.text]
        sandbox.api.forbidden.clear()
        await world.sleep(120)
        ended = (await process.describe()).list_policies()[0]

    assert (held.phase, held.code) == ("Waiting", Code.BACKING_OFF)
    assert "cannot delete pods/db-a-0" in held.headline
    assert held.headline in conditions["Ready"]["message"]
    assert conditions["Stalled"]["reason"] == "ProgressDeadlineExceeded"
    assert "cannot delete pods/db-a-0" in conditions["Stalled"]["message"]
    for message in ("Policy waits", "Policy has stalled"):
        assert any(message in one and "cannot delete pods/db-a-0" in one for one in said)
    assert (ended.phase, ended.code) == ("Idle", Code.UP_TO_DATE)
