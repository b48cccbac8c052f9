"""What counts as the rollout of another operator, and for how long (D-73)."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.controllers.rollout import MOST_SIGNS, OtherOperators
from rollout_operator.guards.grants import COMMIT_LIMIT, OwnDeletes
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import GroupName, Revision
from rollout_operator.model.objects import OtherRollout, Pod, StatefulSet
from tests.builders import pod, sts
from tests.controllers.fake_client import pod_json
from tests.fakes_clock import FakeClock

GROUP = GroupName("ingester")
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class Bench:
    """Two zones of three replicas, and a process that has acted for long enough."""

    def __init__(self, *, acts: bool = True) -> None:
        self.clock = FakeClock()
        self.sets, self.pods = StatefulSetStore(), PodStore()
        self.show(sts("a"), sts("b"))
        self.deletes = OwnDeletes(self.pods, self.clock)
        self.counted: list[GroupName] = []
        self.others = OtherOperators(self.sets, self.deletes, self.clock, self.counted.append)
        if acts:
            self.others.begin()
            self.clock.jump(COMMIT_LIMIT)

    def show(self, *sets: StatefulSet) -> None:
        """Make the cache show these sets and no others."""
        self.sets.replace_all(sets)

    def end(self, name: str, *, old: str = "p", **changes: object) -> None:
        """Let a pod, in its state of before, turn terminating."""
        letter, ordinal = name.split("-")
        before = pod(letter, int(ordinal), old)
        after = replace(before, is_terminating=True, is_ready=False, **changes)
        self.others.on_pod(before, after)

    def find(self) -> OtherRollout | None:
        """Return what is found now."""
        sets = [one for one in self.sets.list_group(GROUP) if isinstance(one, StatefulSet)]
        return self.others.find(GROUP, sets)


def test_two_within_a_minute_hold_until_a_minute_after_the_last() -> None:
    bench = Bench()
    bench.end("a-0")
    assert bench.find() is None
    bench.clock.jump(MINUTE)
    bench.end("a-1")
    # The first is so long ago that this is the last moment.
    assert bench.find() == OtherRollout(pods=("zone-a-0", "zone-a-1"), left=MINUTE)
    bench.clock.jump(40 * SECOND)
    bench.end("b-0")
    assert bench.find() == OtherRollout(pods=("zone-a-1", "zone-b-0"), left=MINUTE)
    bench.clock.jump(MINUTE - SECOND)
    assert bench.find() == OtherRollout(pods=("zone-a-1", "zone-b-0"), left=SECOND)
    bench.clock.jump(SECOND)
    assert bench.find() is None
    assert bench.counted == [GROUP] * 3
    assert len(bench.others) == 0, "what is over is forgotten"


def test_two_that_lie_further_apart_are_none() -> None:
    bench = Bench()
    for name in ("a-0", "a-1", "a-2"):
        bench.end(name)
        assert bench.find() is None
        bench.clock.jump(MINUTE + SECOND)


def by_us(bench: Bench) -> None:
    for ordinal in range(3):
        own = pod("a", ordinal)
        bench.deletes.begin(own)
        bench.end(f"a-{ordinal}")


def by_us_as_a_list_shows(bench: Bench) -> None:
    """The group is reconciled before a list has reported all that it shows."""
    for ordinal in range(3):
        bench.deletes.begin(pod("a", ordinal))
    bench.deletes.map_deletions([])  # the cache shows none of these pods any more
    assert not len(bench.deletes)
    for ordinal in range(3):
        bench.end(f"a-{ordinal}")


def each(**changes: object) -> Callable[[Bench], None]:
    """Return how all pods of zone a end, with this about them."""

    def act(bench: Bench) -> None:
        for ordinal in range(3):
            bench.end(f"a-{ordinal}", **changes)  # type: ignore[arg-type]  # by the table

    return act


def gone(bench: Bench) -> None:
    for ordinal in range(3):
        bench.others.on_pod(pod("a", ordinal), None)


def already_terminating(bench: Bench) -> None:
    for ordinal in range(3):
        bench.end(f"a-{ordinal}", old="t")


def scaled_down(bench: Bench) -> None:
    bench.show(sts("a", 1), sts("b"))
    bench.end("a-2")
    bench.end("a-1")


def scaled_down_as_is_seen_later(bench: Bench) -> None:
    bench.end("a-2")
    bench.end("a-1")
    bench.show(sts("a", 1), sts("b"))


def set_terminating(bench: Bench) -> None:
    bench.show(sts("a", is_terminating=True), sts("b"))
    each()(bench)


def set_gone_as_is_seen_later(bench: Bench) -> None:
    each()(bench)
    bench.show(sts("b"))


def set_created_anew(bench: Bench) -> None:
    each()(bench)
    bench.show(sts("a", uid="uid-new"), sts("b"))


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(by_us, id="own deletes"),
        pytest.param(by_us_as_a_list_shows, id="own deletes that a list shows late"),
        pytest.param(each(is_disrupted=True), id="evictions, preemption, nodes that go"),
        pytest.param(each(old="l"), id="pods at the update revision"),
        pytest.param(each(old="P"), id="pods that are not ready"),
        pytest.param(already_terminating, id="pods that were going before"),
        pytest.param(gone, id="pods that are found gone"),
        pytest.param(scaled_down, id="a downscale"),
        pytest.param(scaled_down_as_is_seen_later, id="a downscale that is seen late"),
        pytest.param(set_terminating, id="a set that is deleted"),
        pytest.param(set_gone_as_is_seen_later, id="a set that is gone"),
        pytest.param(set_created_anew, id="another set of the name"),
    ],
)
def test_what_is_no_rollout_of_another_operator(act: Callable[[Bench], None]) -> None:
    bench = Bench()
    act(bench)
    assert bench.find() is None


def test_nothing_counts_before_this_process_acts_and_shortly_after() -> None:
    """What the process before has sent may be carried out so long."""
    bench = Bench(acts=False)
    each()(bench)
    bench.others.begin()
    bench.clock.jump(COMMIT_LIMIT - SECOND)
    each()(bench)
    assert bench.find() is None
    assert bench.counted == []
    bench.clock.jump(SECOND)
    each()(bench)
    assert bench.find() is not None


def test_a_template_that_changes_meanwhile_begins_no_rollout() -> None:
    """Pods were at the update revision when a person deleted them."""
    bench = Bench()
    each(old="l")(bench)
    bench.show(sts("a", update_revision=Revision("next")), sts("b"))
    assert bench.find() is None


def test_the_memory_is_bounded_and_goes_with_the_group() -> None:
    bench = Bench()
    for _ in range(MOST_SIGNS + 1):
        bench.end("a-0")
    assert len(bench.others._signs[GROUP]) == MOST_SIGNS
    bench.show()
    assert bench.find() is None
    assert len(bench.others) == 0


def test_the_pods_of_other_groups_and_owners_are_not_read() -> None:
    bench = Bench()
    before = pod("a", 0)
    after = replace(before, is_terminating=True, is_ready=False)
    for owner in (None, "uid-x"):
        lost: tuple[Pod, Pod] = (
            replace(before, owner_uid=owner),
            replace(after, owner_uid=owner),
        )
        bench.others.on_pod(*lost)
    bench.show(sts("a", labels={}))
    bench.end("a-0")
    assert bench.counted == []


@pytest.mark.parametrize(
    ("status", "expected"), [("True", True), ("False", False), ("Unknown", False)]
)
def test_a_pod_says_itself_that_it_is_evicted(status: str, expected: bool) -> None:
    body = pod_json("a", 0)
    held = body["status"]
    assert isinstance(held, dict)
    condition = {"type": "DisruptionTarget", "status": status, "reason": "EvictionByEvictionAPI"}
    held["conditions"] = [*held.get("conditions", []), condition]
    assert decode_pod(msgspec.json.encode(body)).is_disrupted is expected
