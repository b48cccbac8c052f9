"""Who owns what is decided anew with each change, and not more often than others can bear."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from rollout_operator.controllers.policy_zones import BURST, PAUSE, Owners
from rollout_operator.kube.store import PolicyStore, StatefulSetStore
from rollout_operator.model.policy import PolicyScope, WatchedPolicy
from tests.planning.policies.snapshots import policy
from tests.virtual_time import VirtualClock, in_virtual_time


class Rig:
    """Owners of one policy, which a tenant changes."""

    def __init__(self) -> None:
        self.store = PolicyStore()
        self.owners = Owners(self.store, StatefulSetStore(), VirtualClock())
        self.waits: list[timedelta] = []
        self.owners.on_change(self.waits.append)
        self.generation = 0
        self.change()

    def change(self) -> None:
        """Change the policy, as a watch shows it."""
        self.generation += 1
        own = policy()
        own = replace(own, head=replace(own.head, generation=self.generation))
        new = WatchedPolicy(resource_version=f"{self.generation}", policy=own)
        old = self.store.get("prod", "db")
        self.store.upsert(new)
        self.owners.on_policy(old, new)

    def find(self) -> PolicyScope:
        """Return what the policy owns."""
        found = self.owners.find("db")
        assert isinstance(found, PolicyScope)
        return found


@in_virtual_time
async def test_li_09_many_changes_are_decided_once_a_second() -> None:
    """A tenant who relabels in a loop let no other namespace have its turn, nor the lease."""
    rig = Rig()
    decided = {rig.find().policy.head.generation}
    for _ in range(10 * BURST):
        rig.change()
        decided.add(rig.find().policy.head.generation)
    assert len(decided) == BURST
    assert rig.owners.is_behind(rig.find()), "nothing is done by what it was"
    assert timedelta(0) < rig.waits[-1] <= PAUSE
    await asyncio.sleep(rig.waits[-1].total_seconds())
    assert rig.find().policy.head.generation == rig.generation
    assert not rig.owners.is_behind(rig.find())


@in_virtual_time
async def test_mt72_a_policy_that_is_gone_owns_nothing_at_once() -> None:
    """MT-72: however often others change."""
    rig = Rig()
    for _ in range(2 * BURST):
        rig.change()
        rig.find()
    old = rig.store.get("prod", "db")
    assert old is not None
    rig.store.remove(old)
    rig.owners.on_policy(old, None)

    assert rig.owners.find("db") is None


@in_virtual_time
async def test_a_change_now_and_then_counts_at_once() -> None:
    rig = Rig()
    for _ in range(10 * BURST):
        rig.change()
        assert rig.find().policy.head.generation == rig.generation
        await asyncio.sleep(PAUSE.total_seconds())
    assert {*rig.waits} == {timedelta(0)}
