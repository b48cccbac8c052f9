"""Which zones count still that have left, in whatever order watches tell of it (SI-26)."""

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.guards.departed import (
    BUDGET,
    COUNTS_FOR,
    GROUP,
    LATEST,
    MOST_DEPARTED,
    POLICY,
    DepartedZones,
)
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.names import GROUP_LABEL, Uid
from rollout_operator.model.objects import Deletion, Newcomers, Pod, StatefulSet, Unreadable, Zone
from rollout_operator.planning.readiness import measure_readiness
from tests.builders import NOW, pod, sts, unreadable
from tests.fakes_clock import FakeClock
from tests.goldens import Golden
from tests.stories import Story, read_stories

GROUPS: Final = tuple((GROUP, name) for name in ("ingester", "other"))
LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "other": {GROUP_LABEL: "other"},
    "back": {GROUP_LABEL: "ingester"},
}
SPANS: Final = {"moment": timedelta(seconds=1), "lag": LATEST, "end": COUNTS_FOR}
SELECTED: Final = {"name": "zone-a", GROUP_LABEL: "ingester"}


class World:
    """Stores as informers fill them, with zone-a of three pods at version 10."""

    def __init__(self, pods: PodStore | None = None) -> None:
        self.sets, self.clock = StatefulSetStore(), FakeClock()
        self.pods = PodStore() if pods is None else pods
        self.going: dict[Uid, Deletion] = {}
        self.newcomers: Newcomers | None = None
        self.age = timedelta(0)
        self.seen = 10
        """The newest version that the watch of pods has told of."""
        self.listed_from: str | None = None
        self.woken: list[str] = []
        self.departed = self.restart()
        self.version = 10
        self.show(sts("a", resource_version="10"))
        for ordinal in range(3):
            self.put(ordinal)

    def restart(self) -> DepartedZones:
        """Return what another process would have in its memory: nothing."""
        self.departed = DepartedZones(
            self.sets,
            self.pods,
            self.clock,
            map_going=lambda owners, pods, now: self.going,
            now=lambda: NOW,
            age=lambda: self.age,
            seen=lambda: str(self.seen),
            listed_from=lambda: self.listed_from,
            find_newcomers=lambda uid: self.newcomers,
        )
        self.departed.on_change(GROUP, self.woken.append)
        return self.departed

    def show(self, item: StatefulSet | Unreadable) -> None:
        """Report a StatefulSet as the watch does."""
        for old, new in self.sets.upsert(item):
            self.departed.on_set(old, new)

    def put(self, ordinal: int, state: str = "l", **changes: object) -> None:
        """Report a pod as the watch does, in its next version where no other is given."""
        self.version += 1
        given = {"labels": SELECTED, "resource_version": str(self.version), **changes}
        self.seen = max(self.seen, int(str(given["resource_version"])))
        for old, new in self.pods.upsert(pod("a", ordinal, state, **given)):
            self.departed.on_pod(old, new)

    def play(self, steps: str) -> None:
        """Have things happen one after another, such as `down 1, delete, wait end`."""
        for step in steps.split(", "):
            verb, *words = step.split()
            self._play(verb, words)

    def _play(self, verb: str, words: list[str]) -> None:
        old = self.sets.get("test", "zone-a")
        self.version += 1
        version = str(self.version)
        match verb:
            case "down" | "up" | "going":
                state = {"down": "L", "up": "l", "going": "T"}[verb]
                self.put(int(words[0]), state, **(read_pod(words[1:])))
            case "gone":
                self.remove_pods(words[:1], *words[1:])
            case "orphan":
                for place in words or "012":
                    held = self.pods.get("test", f"zone-a-{place}")
                    state = "l" if isinstance(held, Pod) and held.is_ready else "L"
                    self.put(int(place), state, owner_uid=None)
            case "adopt":
                for ordinal in range(3):
                    self.put(ordinal, owner_uid=Uid("uid-new"))
            case "label":
                assert isinstance(old, StatefulSet)
                self.show(replace(old, labels=LABELS[words[0]], resource_version=version))
            case "scale":
                assert isinstance(old, StatefulSet)
                self.show(replace(old, replicas=int(words[0]), resource_version=version))
            case "status":
                assert isinstance(old, StatefulSet)
                self.show(replace(old, ready_replicas=int(words[0]), resource_version=version))
            case "terminate":
                assert isinstance(old, StatefulSet)
                self.show(replace(old, is_terminating=True, resource_version=version))
            case "spoil":
                labels = LABELS[words[0]] if words else LABELS["back"]
                lost = unreadable("StatefulSet", "zone-a")
                self.show(replace(lost, uid=Uid("uid-a"), labels=labels, resource_version=version))
            case "delete":
                assert old is not None
                for before, now in self.sets.remove(replace(old, resource_version=version)):
                    self.departed.on_set(before, now)
            case "relist":
                kept = [replace(one, uid=Uid("uid-new")) for one in [old] if words and one]
                for before, now in self.sets.replace_all(kept):
                    self.departed.on_set(before, now)
            case "gap":
                self.list_pods(words[0], "zone-a-" + words[1])
            case "create":
                labels = LABELS[words[0]] if words else LABELS["back"]
                ready = int(words[1]) if len(words) > 1 else 3
                made = sts("a", uid=Uid("uid-new"), labels=labels, ready_replicas=ready)
                self.show(replace(made, resource_version=version))
            case "accepted":
                self.going[Uid(f"uid-a-{words[0]}")] = Deletion.ACCEPTED
            case "follow":
                self.follow(words)
            case "newcomers":
                pods = frozenset(Uid(f"uid-a-{ordinal}") for ordinal in range(int(words[0]), 3))
                self.newcomers = Newcomers(used=int(words[0]), generation=1, pods=pods)
            case "restart":
                self.restart().begin()
            case "bookmark":
                self.seen = self.version
            case "blind":
                self.age = timedelta(minutes=2)
            case "wait":
                self.clock.jump(SPANS[words[0]])
            case _:
                raise ValueError(verb)

    def follow(self, words: Iterable[str]) -> None:
        """Have zone b, which is whole, get one label after another, or be deleted and renewed."""
        moved = sts("b", 0, resource_version=f"{self.version}")
        self.show(moved)
        for word in words:
            self.version += 1
            moved = replace(moved, resource_version=f"{self.version}")
            if word in SPANS:
                self.clock.jump(SPANS[word])
            elif word == "delete":
                for old, new in self.sets.remove(moved):
                    self.departed.on_set(old, new)
                moved = replace(moved, uid=Uid("uid-b-new"))
            else:
                moved = replace(moved, labels=LABELS[word])
                self.show(moved)

    def remove_pods(self, ordinals: Iterable[str], version: str = "") -> None:
        for ordinal in ordinals:
            last = self.pods.get("test", f"zone-a-{ordinal}")
            assert last is not None
            for old, new in self.pods.remove(
                replace(last, resource_version=version or str(self.version))
            ):
                self.departed.on_pod(old, new)

    def list_pods(self, how: str, name: str) -> None:
        """Report by a list, after a gap in the watch, that a pod is gone, or is down."""
        pods = {one.name: one for one in self.pods.list_all() if isinstance(one, Pod)}
        last = pods.pop(name)
        if how == "down":
            pods[name] = replace(last, is_ready=False, resource_version=str(self.version))
        self.listed_from = str(self.seen)
        for old, new in self.pods.replace_all(pods.values()):
            self.departed.on_pod(old, new)
        self.listed_from = None

    def outline(self) -> list[str]:
        """Return what is remembered, such as `ingester 2/3 600s`; groups without are left out."""
        self.seen = self.version  # the watch has come so far: nothing is unproven
        return [
            f"{scope[1]} {self.render(zone)}"
            for scope in GROUPS
            for zone in self.departed.list_zones(scope)
        ]

    def render(self, zone: Zone) -> str:
        assert zone.counts_for is not None
        seen = measure_readiness(zone, self.going, NOW)
        up = seen.used - seen.unavailable
        return f"{up}/{seen.used} {zone.counts_for.total_seconds():g}s"


def read_pod(words: list[str]) -> dict[str, object]:
    """Return the version of a pod's change, where it is given."""
    return {"resource_version": words[0]} if words else {}


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("departed.txt")))
def test_si26_what_counts(story: Story, golden: Golden) -> None:
    world = World()
    world.version = 20
    world.play(*story.commands)
    story.check(", ".join(world.outline()) or "none", golden)


def test_si26_a_pod_of_another_owner_is_none_of_the_zone() -> None:
    """SI-06: a name alone proves nothing, nor does a name without the labels of the selector."""
    world = World()
    world.play("down 1, delete, gone 0, gone 2")
    world.put(0, owner_uid=Uid("a Job"))
    world.put(2, owner_uid=None, labels={})
    assert world.outline() == ["ingester 0/3 600s"]


def test_si26_pods_of_a_live_read_count_in_place_of_the_caches() -> None:
    """SI-09: by owner, or by name without one; all appear as the zone's own."""
    world = World()
    world.play("down 1, delete, orphan")
    up = [pod("a", ordinal, owner_uid=None, labels=SELECTED) for ordinal in range(3)]
    (zone,) = world.departed.list_zones(GROUPS[0], {None: up, Uid("uid-b"): [pod("b", 0)]})
    assert len(zone.own_pods) == 3
    assert measure_readiness(zone, {}, NOW).is_whole
    (zone,) = world.departed.list_zones(GROUPS[0], {Uid("uid-a"): [pod("a", 0)]})
    assert measure_readiness(zone, {}, NOW).missing == 2


def test_si26_a_live_read_counts_for_a_zone_of_which_the_watch_is_behind() -> None:
    """It was whole for all that caches knew; each change of its pods wakes what waits."""
    world = World()
    world.play("delete")
    assert [world.render(zone) for zone in world.departed.list_zones(GROUPS[0])] == ["3/3 600s"]
    assert [world.render(zone) for zone in world.departed.list_zones(GROUPS[0], {})] == ["0/3 600s"]
    world.woken.clear()
    world.play("up 1 14")
    assert world.woken == ["ingester"]
    world.play("bookmark")
    assert world.departed.list_zones(GROUPS[0], {}) == ()


def test_si26_a_whole_zone_that_a_list_no_longer_shows_holds_nothing() -> None:
    """When it went is not known: pods that went with it are no sign that it was short."""
    world = World()
    world.play("relist")
    assert world.departed.list_zones(GROUPS[0], {}) == ()


def test_si26_a_zone_that_left_later_and_is_proven_hides_no_other() -> None:
    """One that began to go before left last, by a version that the watch has passed."""
    world = World()
    world.show(sts("b", 0, resource_version="12"))
    going = sts("b", 0, resource_version="13", is_terminating=True)
    world.show(going)
    world.play("delete")
    for old, new in world.sets.remove(replace(going, resource_version="20")):
        world.departed.on_set(old, new)
    assert [zone.sts.name for zone in world.departed.list_zones(GROUPS[0], {})] == ["zone-a"]


def test_si26_what_happens_to_it_wakes_the_group() -> None:
    world = World()
    world.play("down 1")
    assert not world.woken
    for step in ("delete", "orphan 0", "up 1", "down 1", "create back 0"):
        world.woken.clear()
        world.play(step)
        assert set(world.woken) == {"ingester"}, step


def test_si26_a_pod_was_down_before_a_selector_changed_of_which_the_watch_tells_late() -> None:
    """The version of the change counts, not that of the StatefulSet, which stays as it is."""
    world = World()
    world.departed.add_kind(BUDGET, list, lambda name, sts: False)
    world.departed.on_selector((BUDGET, "store"), lambda labels: True, None, "20")
    world.put(2, resource_version="14")
    assert len(world.departed) == 0
    world.put(1, "L", resource_version="15")
    assert len(world.departed.list_zones((BUDGET, "store"))) == 1


def test_si26_the_memory_is_bounded() -> None:
    """D-68: the oldest is forgotten."""
    world = World()
    world.play("down 1")
    for number in range(MOST_DEPARTED + 10):
        labelled = {GROUP_LABEL: f"g{number}"}
        old = world.sets.get("test", "zone-a")
        assert isinstance(old, StatefulSet)
        world.show(replace(old, labels=labelled, resource_version=str(1000 + number)))
    assert len(world.departed) == MOST_DEPARTED


def test_si26_a_set_that_is_labelled_again_and_again_pushes_out_no_other() -> None:
    """D-68: who may label one StatefulSet must not have the operator forget the others."""
    world = World()
    world.play("down 1, delete")
    world.show(sts("b", ready_replicas=0, resource_version="1000", labels=LABELS["none"]))
    for number in range(1001, 1001 + MOST_DEPARTED + 10):
        old = world.sets.get("test", "zone-b")
        assert isinstance(old, StatefulSet)
        labelled = {GROUP_LABEL: f"g{number}"}
        world.show(replace(old, labels=labelled, resource_version=str(number)))
    assert world.outline() == ["ingester 2/3 600s"]
    assert len(world.departed) == MOST_DEPARTED


@pytest.mark.parametrize("step", ["label back", "down 1", "status 1"])
def test_si26_a_set_that_is_labelled_again_and_again_is_matched_with_policies_a_few_times(
    step: str,
) -> None:
    """SI-03: one that is short is matched anew whenever it or its pods change."""
    world, matched, woken = World(), list[str](), list[str]()

    def selects(name: str, sts: StatefulSet | Unreadable) -> bool:
        matched.append(name)
        return sts.labels.get("app") == name

    world.departed.add_kind(POLICY, lambda: [f"p{number}" for number in range(100)], selects)
    world.departed.on_change(POLICY, woken.append)
    world.play("down 1")
    for number in range(1000, 1100):
        old = world.sets.get("test", "zone-a")
        assert isinstance(old, StatefulSet)
        labelled = {GROUP_LABEL: f"g{number}", "app": "p7"}
        world.show(replace(old, labels=labelled, resource_version=str(number)))
    world.version = 2000
    matched.clear()
    woken.clear()
    world.play(step)
    assert len(matched) <= 100 * 60
    assert set(woken) == {"p7"}


def make_fat(number: int, replicas: int = 3, **changes: object) -> StatefulSet:
    """Return a StatefulSet with about as much text as is kept of labels; none of it is shared."""
    labels = {f"{'k' * 200}/{number}-{label}": f"{number:060}" for label in range(120)}
    given = {"ready_replicas": 0, "resource_version": f"{number}", **changes}
    return sts("b", replicas, labels={**labels, GROUP_LABEL: f"g{number}"}, **given)


def relabel(world: World, number: int) -> None:
    world.show(make_fat(number))


def delete_short(world: World, number: int) -> None:
    delete_fat(world, make_fat(number, name=f"zone-{number}", uid=Uid(f"{number}")))


def delete_whole(world: World, number: int) -> None:
    delete_fat(world, make_fat(number, 0, name=f"zone-{number}", uid=Uid(f"{number}")))


def delete_fat(world: World, fat: StatefulSet) -> None:
    world.show(fat)
    for old, new in world.sets.remove(replace(fat, resource_version=f"{fat.resource_version}0")):
        world.departed.on_set(old, new)


@pytest.mark.parametrize("churn", [relabel, delete_short, delete_whole])
def test_si26_the_memory_is_bounded_whatever_labels_hold(
    churn: Callable[[World, int], None],
) -> None:
    """D-68: the small records of others stay, though they are the oldest."""
    world = World()
    world.play("down 1, delete")
    tracemalloc.start()
    try:
        for number in range(1000, 2000):
            churn(world, number)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 24 << 20
    assert world.outline()[0] == "ingester 2/3 600s"


LARGEST: Final = 2**31 - 1


class CountedPods(PodStore):
    """Counts how many pods are looked up by name."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_up = 0

    def get(self, namespace: str, name: str) -> Pod | Unreadable | None:
        self.looked_up += 1
        return super().get(namespace, name)


def delete_large(world: World) -> None:
    large = sts("b", ready_replicas=0, resource_version="1000", replicas=LARGEST)
    world.show(large)
    for old, new in world.sets.remove(replace(large, resource_version="1001")):
        world.departed.on_set(old, new)


def leave_large_behind(world: World) -> None:
    world.show(
        sts(
            "b", ready_replicas=0, resource_version="1000", replicas=LARGEST, labels=LABELS["other"]
        )
    )
    mover = sts("c", 0, resource_version="1001", labels=LABELS["other"])
    world.show(mover)
    world.show(replace(mover, resource_version="1002", labels=LABELS["back"]))


def find_orphans_far_apart(world: World) -> None:
    for ordinal in (0, LARGEST - 1):
        world.pods.upsert(pod("b", ordinal, "L", labels=SELECTED, owner_uid=None))
    world.restart().begin()


@pytest.mark.parametrize("leave", [delete_large, leave_large_behind, find_orphans_far_apart])
def test_si26_replicas_that_nobody_created_cost_nothing(leave: Callable[[World], None]) -> None:
    """SI-03: `spec.replicas` may be anything; hundreds of such sets must not stop all groups."""
    world = World(CountedPods())
    leave(world)
    (zone,) = world.departed.list_zones(GROUPS[0])
    assert (zone.sts.name, zone.sts.replicas) == ("zone-b", LARGEST)
    assert isinstance(world.pods, CountedPods)
    assert world.pods.looked_up == 0


class CountedReads(list[Pod | Unreadable]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Pod | Unreadable]:
        self.times += 1
        return super().__iter__()


def test_si26_pods_without_an_owner_are_gone_through_once_for_all_zones() -> None:
    """SI-03: of both there may be thousands."""
    world = World()
    world.play("down 1, delete, orphan")
    for zone in "bcd":
        old = sts(zone, ready_replicas=0, resource_version="1000")
        world.show(old)
        world.show(replace(old, labels={}, resource_version="1001"))
    read = CountedReads(pod("a", ordinal, owner_uid=None, labels=SELECTED) for ordinal in range(3))
    assert len(world.departed.list_zones(GROUPS[0], {None: read})) == 4
    assert read.times == 1
