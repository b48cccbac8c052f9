"""Which ordinals never had a ready pod, as the watches tell it: D-67, SI-10, FP-07, FP-09."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.guards.newcomers import LONGEST_GAP, Arrivals
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.objects import Pod, StatefulSet
from tests.builders import pod, sts, sts_uid

UID: Final = sts_uid("a")
NO_GAP: Final = timedelta(0)
GAP: Final = LONGEST_GAP + timedelta(seconds=1)


class World:
    """Stores as informers fill them, and what is told of each change."""

    def __init__(self, replicas: int, pods: str = "") -> None:
        self.sets, self.pods = StatefulSetStore(), PodStore()
        self.arrivals = Arrivals(self.sets, self.pods)
        self._version = 1
        self.list_sets(sts("a", replicas))
        self.list_pods(*(pod("a", ordinal, state) for ordinal, state in enumerate(pods)))

    def scale(self, replicas: int) -> None:
        changes = self.sets.upsert(sts("a", replicas, resource_version=self._next()))
        for old, new in changes:
            self.arrivals.on_set(old, new)

    def put(self, one: Pod) -> None:
        for old, new in self.pods.upsert(replace(one, resource_version=self._next())):
            self.arrivals.on_pod(old, new)

    def remove(self, ordinal: int) -> None:
        found = self.pods.get("test", f"zone-a-{ordinal}")
        assert isinstance(found, Pod)
        for old, new in self.pods.remove(replace(found, resource_version=self._next())):
            self.arrivals.on_pod(old, new)

    def list_sets(self, *found: StatefulSet, gap: timedelta = timedelta.max) -> None:
        changes = self.sets.replace_all(found)
        self.arrivals.on_list(gap)
        for old, new in changes:
            self.arrivals.on_set(old, new)

    def list_pods(self, *found: Pod, gap: timedelta = timedelta.max) -> None:
        changes = self.pods.replace_all(found)
        self.arrivals.on_list(gap)
        for old, new in changes:
            self.arrivals.on_pod(old, new)

    @property
    def believed(self) -> set[str]:
        found = self.arrivals.get(UID)
        assert found is not None
        return set(found.marked)

    @property
    def seen(self) -> tuple[int, set[str]]:
        found = self.arrivals.get(UID)
        assert found is not None
        return found.used, set(found.pods)

    @property
    def unmarked(self) -> list[str]:
        return sorted(one.name for one in self.arrivals.list_unmarked())

    def _next(self) -> str:
        self._version += 1
        return f"{self._version}"


def new(ordinal: int, **changes: object) -> Pod:
    return pod("a", ordinal, "L", phase="Pending", **changes)


def upscaled() -> World:
    """Return a zone of three that was scaled to five, while all was seen."""
    world = World(3, "lll")
    world.scale(5)
    world.put(new(3))
    world.put(new(4))
    return world


def test_d67_what_comes_after_an_upscale_is_new() -> None:
    world = upscaled()

    assert world.seen == (3, {"uid-a-3", "uid-a-4"})
    assert world.unmarked == ["zone-a-3", "zone-a-4"]
    assert world.arrivals.has_come.is_set()


def test_d67_also_where_pods_are_told_before_their_set() -> None:
    world = World(3, "lll")
    world.put(new(3))
    world.scale(5)

    assert world.seen == (3, {"uid-a-3"})


def test_one_that_carries_its_mark_needs_none() -> None:
    world = upscaled()
    world.put(new(3, is_newcomer=True))

    assert world.unmarked == ["zone-a-4"]


def test_si10_one_that_becomes_ready_is_used_and_so_is_its_successor() -> None:
    world = upscaled()
    world.put(pod("a", 3, "l"))
    world.put(new(3))
    world.remove(3)
    world.put(new(3, uid="another"))

    assert world.seen == (4, {"uid-a-4"})


def test_d67_one_that_never_was_ready_may_be_replaced() -> None:
    world = upscaled()
    world.remove(4)
    world.put(new(4, uid="another"))

    assert world.seen == (3, {"uid-a-3", "another"})


def test_si10_a_successor_at_an_ordinal_that_was_there_is_none() -> None:
    world = World(3, "lll")
    world.remove(2)
    world.put(new(2, uid="another"))

    assert world.seen == (3, set())


def test_si10_at_the_start_all_that_is_wanted_is_used() -> None:
    assert World(5, "lllLL").seen == (5, set())


def test_si10_a_downscale_that_is_taken_back_before_its_pods_have_gone() -> None:
    world = World(5, "lllll")
    world.scale(3)
    world.put(pod("a", 4, "t"))
    world.scale(5)
    world.remove(4)
    world.put(new(4, uid="another"))

    assert world.seen == (5, set())


def test_d67_after_a_downscale_an_upscale_adds_anew() -> None:
    world = World(5, "lllll")
    world.scale(3)
    world.remove(4)
    world.remove(3)
    world.scale(4)
    world.put(new(3, uid="another"))

    assert world.seen == (3, {"another"})


def test_si10_an_adopted_pod_is_none() -> None:
    world = World(3, "lll")
    world.scale(4)
    world.put(new(3, owner_uid="stranger"))
    world.put(new(3))

    assert world.seen == (4, set())


def test_si10_fp09_after_a_gap_nothing_is_known() -> None:
    """In a gap a pod may have come, been ready, and gone."""
    world = upscaled()
    world.list_pods(*(one for one in world.pods.list_all() if isinstance(one, Pod)), gap=GAP)

    assert world.seen == (5, set())


def test_si10_fp09_what_came_in_a_gap_is_not_new() -> None:
    world = World(3, "lll")
    lasting = [one for one in world.pods.list_all() if isinstance(one, Pod)]
    world.list_pods(*lasting, new(3), gap=GAP)
    world.scale(5)

    assert world.seen == (4, set())


def test_a_list_right_after_a_stream_leaves_nothing_out() -> None:
    world = upscaled()
    world.list_pods(*(one for one in world.pods.list_all() if isinstance(one, Pod)), gap=NO_GAP)

    assert world.seen == (3, {"uid-a-3", "uid-a-4"})


def test_si10_one_that_was_ready_before_its_upscale_was_told_is_used() -> None:
    """The watch of the sets lags: the successor comes before the set is known to want it."""
    world = World(3, "lll")
    world.put(new(3))
    world.put(pod("a", 3, "l"))
    world.remove(3)
    world.put(new(3, uid="another"))
    world.scale(5)

    assert world.seen == (4, {"another"})


def test_d67_what_was_ready_ahead_is_forgotten_with_the_next_downscale() -> None:
    world = World(3, "lll")
    world.put(new(3))
    world.put(pod("a", 3, "l"))
    world.remove(3)
    world.scale(4)
    world.scale(3)
    world.scale(4)
    world.put(new(3, uid="another"))

    assert world.seen == (3, {"another"})


def test_si10_fp09_one_that_is_gone_after_a_short_gap_may_have_been_ready() -> None:
    world = upscaled()
    lasting = [one for one in world.pods.list_all() if isinstance(one, Pod)]
    world.list_pods(*lasting[:3], new(3, uid="another"), lasting[4], gap=LONGEST_GAP)

    assert world.seen == (4, {"uid-a-4"})


def test_a_set_that_is_gone_is_forgotten() -> None:
    world = upscaled()
    world.list_sets(gap=NO_GAP)

    assert world.arrivals.get(UID) is None
    assert world.unmarked == []


def test_si10_a_mark_is_believed_from_the_time_before_only() -> None:
    """SI-01, SI-10: whoever may annotate pods can write a mark; an earlier process's is there."""
    world = World(3)
    world.list_pods(
        pod("a", 0), pod("a", 1, "P"), pod("a", 2, "P", is_newcomer=True), gap=timedelta.max
    )
    world.arrivals.end_start()
    assert world.believed == {"uid-a-2"}

    world.put(pod("a", 1, "P", is_newcomer=True))
    assert world.believed == {"uid-a-2"}
    world.remove(2)
    assert world.believed == set()


def test_si10_fp09_a_mark_that_was_written_in_a_gap_is_not_believed() -> None:
    """What this process saw come before the gap stays believed by its mark, and nothing else."""
    world = World(2, "ll")
    world.arrivals.end_start()
    world.scale(4)
    world.put(new(2))
    assert world.seen == (2, {"uid-a-2"})

    marked = {"is_newcomer": True}
    pods = (pod("a", 0), pod("a", 1, "P", **marked), new(2, **marked), new(3, **marked))
    world.list_pods(*pods, gap=GAP)
    assert world.believed == {"uid-a-2"}
    world.list_pods(*pods, gap=GAP)
    assert world.believed == {"uid-a-2"}, "and after another one"
