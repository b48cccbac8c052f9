"""Grants that come to nothing: the pod waits longer each time, and others do not (LI-09, D-68)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.guards.budgets.unused import MOST_PODS, PAUSES, REMEMBERED, UnusedGrants
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Unreadable
from tests.builders import pod
from tests.virtual_time import VirtualClock, in_virtual_time

PLAIN = pod("a", 0)
SECOND = timedelta(seconds=1)


class Bench:
    """Memory of grants before a cache that shows what `shown` holds."""

    def __init__(self) -> None:
        self.shown: dict[str, Pod] = {PLAIN.name: PLAIN}
        self.clock = VirtualClock()
        self.unused = UnusedGrants(self._find, self.clock)

    def _find(self, namespace: str, name: str) -> Pod | Unreadable | None:
        return self.shown.get(name)


@in_virtual_time
async def test_li09_each_time_it_waits_twice_as_long_up_to_a_minute() -> None:
    made = Bench()
    waits = []
    for _ in range(6):
        made.unused.note(PLAIN)
        waits.append(made.unused.wait_before(PLAIN.uid) / SECOND)
        await made.clock.sleep(PAUSES.most)
        assert not made.unused.wait_before(PLAIN.uid)
    assert waits == [5, 10, 20, 40, 60, 60]
    assert made.unused.count(PLAIN.uid) == 6


@in_virtual_time
async def test_li09_other_pods_wait_for_nothing() -> None:
    made = Bench()
    made.unused.note(PLAIN)
    assert not made.unused.wait_before(Uid("another"))
    assert made.unused.count(Uid("another")) == 0


@in_virtual_time
async def test_li09_after_a_while_it_is_forgotten() -> None:
    made = Bench()
    made.unused.note(PLAIN)
    await made.clock.sleep(REMEMBERED)
    assert made.unused.count(PLAIN.uid) == 0
    made.unused.note(PLAIN)
    assert made.unused.wait_before(PLAIN.uid) == PAUSES.first


@pytest.mark.parametrize("successor", [None, replace(PLAIN, uid=Uid("new"))])
@in_virtual_time
async def test_li09_a_pod_that_is_gone_is_forgotten(successor: Pod | None) -> None:
    made = Bench()
    made.unused.note(PLAIN)
    made.shown = {} if successor is None else {PLAIN.name: successor}
    assert made.unused.count(PLAIN.uid) == 0
    other = replace(PLAIN, name="other", uid=Uid("other"))
    made.shown["other"] = other
    made.unused.note(other)
    assert len(made.unused) == 1


@in_virtual_time
async def test_d68_the_memory_is_bounded() -> None:
    """D-68: the pods are real, and there may be very many of them."""
    made = Bench()
    pods = [replace(PLAIN, name=f"p-{at}", uid=Uid(f"u-{at}")) for at in range(MOST_PODS + 5)]
    made.shown = {one.name: one for one in pods}
    for one in pods:
        made.unused.note(one)
    assert len(made.unused) == MOST_PODS
    assert made.unused.count(pods[0].uid) == 0
    assert made.unused.count(pods[-1].uid) == 1
