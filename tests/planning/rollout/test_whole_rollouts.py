"""Whole rollouts in a small world without an API: they end, and on the way nothing is overdone.

The world's status is exact and at once; caches that lag belong to the tests of the controllers. A
seed chooses what happens next: one pod a step is created, becomes ready, crashes or recovers.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest

from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import Revision, Uid
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, RecordRevision
from rollout_operator.planning.rollout.plan import plan_group
from tests.builders import group, pod, sts

REPLICAS: Final = 4
# Longer than any rollout of 12 pods: who is not done by then never will be.
LONGEST: Final = 600
BAD: Final = "bad"


@dataclass(eq=False)
class Seat:
    """One ordinal: the revision of its pod, None where there is none."""

    revision: str | None
    is_ready: bool = True
    version: int = 0
    was_ready: bool = True
    """Whether the pod that is there now has ever been ready."""
    is_disrupted: bool = False
    """Deleted by the operator, and no new pod has been ready since."""


@dataclass
class World:
    """Three zones, a StatefulSet controller, kubelets, and chance."""

    seed: int
    limit: int = 1
    is_ordered: bool = False
    """Whether a pod is created only once all pods below it are ready."""
    is_grim: bool = False
    """Whether an outdated pod that crashes never recovers by itself."""
    update: str = "next"
    current: dict[str, str] = field(default_factory=lambda: dict.fromkeys("abc", "prev"))
    zones: dict[str, list[Seat]] = field(
        default_factory=lambda: {name: [Seat("prev") for _ in range(REPLICAS)] for name in "abc"}
    )
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def look(self) -> Group:
        return group(*(self._zone(letter) for letter in self.zones))

    def reconcile(self) -> frozenset[Code]:
        """Plan and carry out; return the reasons for waiting."""
        plan = plan_group(self.look())
        for action in plan.actions:
            letter = action.zone.name[-1]
            if isinstance(action, RecordRevision):
                self.story.append(f"record {letter}")
                self.current[letter] = action.revision
                continue
            for one in action.going:
                self._delete(letter, one.pod)
        return frozenset(reason.code for reason in plan.waits)

    def step(self, *, may_crash: bool = False) -> None:
        """Let one thing happen in the cluster, if there is anything to happen."""
        moves = [*self._moves(may_crash=may_crash)]
        if moves:
            seat, revision, is_ready = self.rng.choice(moves)
            seat.version += seat.revision is None
            seat.was_ready = is_ready or (seat.was_ready and seat.revision is not None)
            seat.revision, seat.is_ready = revision, is_ready
            seat.is_disrupted = seat.is_disrupted and not is_ready

    def is_done(self) -> bool:
        seats = [seat for zone in self.zones.values() for seat in zone]
        return all(seat.is_ready and seat.revision == self.update for seat in seats) and set(
            self.current.values()
        ) == {self.update}

    def _moves(self, *, may_crash: bool) -> Iterator[tuple[Seat, str, bool]]:
        for zone in self.zones.values():
            for ordinal, seat in enumerate(zone):
                if seat.revision is None:
                    if not self.is_ordered or all(low.is_ready for low in zone[:ordinal]):
                        yield seat, self.update, False
                elif seat.is_ready:
                    if may_crash:
                        yield seat, seat.revision, False
                elif seat.revision == self.update != BAD or self._may_recover(seat):
                    yield seat, seat.revision, True

    def _may_recover(self, seat: Seat) -> bool:
        return seat.revision != BAD and not self.is_grim

    def _zone(self, letter: str) -> Zone:
        seats = list(enumerate(self.zones[letter]))
        up = sum(seat.is_ready for _, seat in seats)
        view = sts(
            letter,
            REPLICAS,
            annotations={"rollout-max-unavailable": str(self.limit)},
            current_revision=self.current[letter],
            update_revision=self.update,
            ready_replicas=up,
            available_replicas=up,
            is_ordered=self.is_ordered,
        )
        return Zone(sts=view, pods=tuple(self._pods(letter, seats)))

    def _pods(self, letter: str, seats: list[tuple[int, Seat]]) -> Iterator[Pod]:
        for ordinal, seat in seats:
            if seat.revision is not None:
                yield pod(
                    letter,
                    ordinal,
                    "p" if seat.is_ready else "P",
                    revision=Revision(seat.revision),
                    uid=Uid(f"uid-{letter}-{ordinal}-{seat.version}"),
                    was_ready=seat.was_ready and not seat.is_ready,
                )

    def _delete(self, letter: str, one: Pod) -> None:
        seat = self.zones[letter][int(one.name[-1])]
        assert one.uid.endswith(f"-{seat.version}")
        assert one.revision != self.update
        self.story.append(f"delete {one.name}")
        assert self._may_go(letter, seat), f"SI-04: {self.story}"
        seat.revision, seat.is_ready, seat.is_disrupted = None, False, True
        disrupted = [name for name, zone in self.zones.items() if any(map(_is_disrupted, zone))]
        assert disrupted == [letter], f"SI-01: {self.story}"

    def _may_go(self, letter: str, seat: Seat) -> bool:
        zone = self.zones[letter]
        others = [other for other in zone if other.is_disrupted and other is not seat]
        above = zone[zone.index(seat) + 1 :]
        # The only way on: the update revision gets to all others once this pod is ready, and no
        # sooner.
        is_awaited = self.is_ordered and not seat.is_ready
        is_awaited &= all(other in above and other.revision != self.update for other in others)
        # Put there by a disruption that lasts: to end it anew adds none.
        return seat.is_disrupted or len(others) < self.limit or is_awaited


def _is_disrupted(seat: Seat) -> bool:
    return seat.is_disrupted


def run_to_rest(world: World) -> None:
    """Let the rollout end, check that it ended well and that then nothing is done any more."""
    for _ in range(LONGEST):
        world.reconcile()
        if world.is_done():
            break
        world.step()
    assert world.is_done(), f"LI-01: stuck after {world.story}: {plan_group(world.look()).waits}"
    length = len(world.story)
    assert world.reconcile() == {Code.UP_TO_DATE}
    assert len(world.story) == length


def run_for(world: World, steps: int, *, may_crash: bool = False) -> None:
    for _ in range(steps):
        world.reconcile()
        world.step(may_crash=may_crash and world.rng.random() < 0.2)


seeds = pytest.mark.parametrize("seed", range(12), ids="seed {}".format)
limits = pytest.mark.parametrize("limit", [1, 2, 4], ids="limit {}".format)
orders = pytest.mark.parametrize("is_ordered", [False, True], ids=["parallel", "ordered"])


@seeds
@limits
@orders
def test_a_rollout_ends_zone_by_zone(seed: int, limit: int, is_ordered: bool) -> None:
    """LI-01, SI-01, SI-04, SEED-002, SEED-059: 12 deletes, no more, and each zone is recorded."""
    world = World(seed, limit, is_ordered=is_ordered)
    run_to_rest(world)
    deletes = [line for line in world.story if line.startswith("delete")]
    assert len(deletes) == len(set(deletes)) == 3 * REPLICAS
    order = [line[-1] if line.startswith("record") else line[-3] for line in world.story]
    assert order == sorted(order)


@seeds
@limits
@orders
def test_a_rollout_ends_though_pods_crash_on_the_way(
    seed: int, limit: int, is_ordered: bool
) -> None:
    """LI-01, SI-01, SI-04, FP-27: pods of any zone crash and recover at any time."""
    world = World(seed, limit, is_ordered=is_ordered)
    run_for(world, 60, may_crash=True)
    run_to_rest(world)


@seeds
@limits
@orders
def test_the_fix_of_a_broken_revision_goes_out(seed: int, limit: int, is_ordered: bool) -> None:
    """LI-10, W-03, FP-28: a revision that never becomes ready is replaced by the next one."""
    world = World(seed, limit, is_ordered=is_ordered, update=BAD)
    run_for(world, world.rng.randrange(1, 40))
    world.update = "fix"
    run_to_rest(world)


@seeds
@limits
@orders
def test_a_fix_goes_out_though_pods_crash_on_the_way(
    seed: int, limit: int, is_ordered: bool
) -> None:
    """LI-10, SI-04: also where untouched pods crash by themselves meanwhile."""
    world = World(seed, limit, is_ordered=is_ordered, update=BAD)
    run_for(world, world.rng.randrange(1, 40), may_crash=True)
    world.update = "fix"
    run_for(world, 40, may_crash=True)
    run_to_rest(world)


@seeds
@limits
@orders
def test_a_rollback_in_mid_rollout_ends(seed: int, limit: int, is_ordered: bool) -> None:
    """ROLL-33, FP-28: back to the revision from which the rollout started, good or bad."""
    world = World(seed, limit, is_ordered=is_ordered, update=BAD if seed % 2 else "next")
    run_for(world, world.rng.randrange(1, 60))
    world.update = "prev"
    run_to_rest(world)


@seeds
@orders
def test_a_gap_above_a_pod_of_a_broken_revision_is_filled(seed: int, is_ordered: bool) -> None:
    """FP-30, LI-10: limit 1, zone-a-0 never becomes ready, the node of zone-a-3 was drained."""
    world = World(seed, 1, is_ordered=is_ordered, update=BAD)
    run_for(world, 20)
    drained = world.zones["a"][3]
    drained.revision, drained.is_ready = None, False
    world.reconcile()
    world.update = "fix"
    run_to_rest(world)


@pytest.mark.parametrize("seed", range(40), ids="seed {}".format)
@limits
@orders
def test_untouched_pods_that_crash_for_good_are_healed(
    seed: int, limit: int, is_ordered: bool
) -> None:
    """LI-10, FP-30, SI-04: pods of one zone at the former revision crash in mid-rollout."""
    world = World(seed, limit, is_ordered=is_ordered, is_grim=True)
    run_for(world, world.rng.randrange(40))
    zone = world.zones[world.rng.choice("abc")]
    for seat in world.rng.sample(zone, world.rng.randrange(1, REPLICAS)):
        seat.is_ready = False
    run_to_rest(world)


@pytest.mark.parametrize("seed", range(40), ids="seed {}".format)
@limits
@orders
def test_the_fix_of_a_revision_that_worked_for_a_while_goes_out(
    seed: int, limit: int, is_ordered: bool
) -> None:
    """LI-10, FP-28, SI-04: pods come up, others follow, then some of the first crash for good."""
    world = World(seed, limit, is_ordered=is_ordered, is_grim=True)
    run_for(world, world.rng.randrange(40))
    short = [zone for zone in world.zones.values() if not all(seat.is_ready for seat in zone)]
    new = [seat for seat in [*short, world.zones["a"]][0] if seat.revision == "next"]
    for seat in world.rng.sample(new, world.rng.randrange(len(new) + 1)):
        seat.is_ready = False
    world.update = "fix"
    run_to_rest(world)
