"""All scenarios by name, in the sizes that the schedules use, and by any size that shrinks them."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace

from tests.simulation import scenarios_downscales as downscales
from tests.simulation import scenarios_drains as drains
from tests.simulation import scenarios_policies as policies
from tests.simulation import scenarios_releases as releases
from tests.simulation import scenarios_rollouts as rollouts
from tests.simulation import scenarios_scaling as scaling
from tests.simulation import scenarios_sets as sets
from tests.simulation.scenarios import FULL, SMALL, People, Scenario, Size
from tests.simulation.scenarios_departures import (
    Maker,
    deselect_by_budget,
    deselect_by_policy,
    leave,
    relabel,
)

TRACKED: Final = ("-use-zone-tracker",)
PAGE: Final = 5
# Each second of it has a renewal, or a read.
QUIET_OF_ELECTED: Final = timedelta(minutes=5)


def vary(make: Maker, suffix: str, **changes: object) -> Maker:
    """Return the same scenario with some fields changed."""

    def make_varied(size: Size) -> Scenario:
        scenario = make(size)
        return replace(scenario, name=f"{scenario.name}-{suffix}", **changes)

    return make_varied


def track(make: Maker) -> Maker:
    """Return the same scenario with the times of downscales in a ConfigMap."""
    return vary(make, "tracked", args=TRACKED)


def watch(make: Maker) -> Maker:
    """Return the same scenario with an operator that knows all that was there in the last hour."""
    return vary(make, "watched", watched_for=sets.WATCHED)


def elect(make: Maker) -> Maker:
    """Return the same scenario with two processes, of which one is elected to act."""
    return vary(make, "elected", replicas=2, elects=True, quiet=QUIET_OF_ELECTED)


def stream(make: Maker) -> Maker:
    """Return the same scenario with lists that take more than a page, or come as a stream."""

    def make_streamed(size: Size) -> Scenario:
        prepare = make(size).prepare

        async def offer(people: People) -> None:
            people.sandbox.api.largest_page = PAGE
            people.sandbox.api.has_state_streams = True
            if prepare is not None:
                await prepare(people)

        return vary(make, "streamed", prepare=offer)(size)

    return make_streamed


_WIDE: Final = Size(3, 2)
_relabel_for_policy: Final = partial(relabel, key=next(iter(policies.LABELS)))
_OF_THEIR_SIZE: Final[Mapping[str, tuple[Maker, Size]]] = {
    "s1": (rollouts.plain, FULL),
    "s2": (rollouts.rolled_back, FULL),
    "s3": (rollouts.two_at_a_time, Size(3, 5)),
    "s4": (rollouts.crashing, FULL),
    "s5": (scaling.followed, _WIDE),
    "s5-tracked": (track(scaling.followed), _WIDE),
    "s5-contested": (scaling.contested, _WIDE),
    "s5-edited": (scaling.edited, _WIDE),
    "s5-slow": (scaling.slowed, SMALL),
    "s5-edited-tracked": (track(partial(scaling.edited, is_tracked=True)), _WIDE),
    "s6": (scaling.mirrored, _WIDE),
    "s7": (downscales.downscaled, FULL),
    "s7-tracked": (track(downscales.downscaled), FULL),
    "s7-wide": (downscales.widened, Size(2, 4)),
    "s8": (drains.drained, FULL),
    "s8-two": (drains.drained_by_two, FULL),
    "s8-turns": (drains.drained_in_turns, Size(3, 5)),
    "s8-streamed": (stream(drains.drained), FULL),
    "s9": (drains.drained_by_partition, FULL),
    "s9-two": (drains.drained_by_partition_and_two, FULL),
    "s10": (rollouts.recreated, FULL),
    "s11": (rollouts.crowded, SMALL),
    "s12": (scaling.unplaced, _WIDE),
    "s13": (rollouts.crowded_under_budgets, SMALL),
    "s14": (sets.returned, FULL),
    "s14-watched": (watch(sets.returned), FULL),
    "s16": (rollouts.soaked, FULL),
    "s17": (rollouts.gated, FULL),
    "walk": (sets.walked, FULL),
    "both": (downscales.rolled_and_downscaled, _WIDE),
    "s1-left": (leave(rollouts.plain), FULL),
    "s7-left": (leave(downscales.downscaled), FULL),
    "s8-left": (leave(drains.drained, deselect_by_budget), FULL),
    "s9-left": (leave(drains.drained_by_partition, deselect_by_budget), FULL),
    "both-left": (leave(downscales.rolled_and_downscaled), _WIDE),
    "p1-left": (leave(policies.sampled, _relabel_for_policy, deselect_by_policy), FULL),
    "p5-left": (leave(policies.gated, _relabel_for_policy, deselect_by_policy), FULL),
    "p1": (policies.sampled, FULL),
    "p2": (policies.grouped, FULL),
    "p3": (policies.changed, FULL),
    "p4": (policies.soaked, FULL),
    "p5": (policies.gated, FULL),
    "r1": (releases.released, Size(3, 1)),
    "r2": (releases.reconsidered, Size(3, 1)),
    "r3": (releases.frozen, Size(2, 1)),
}
_ELECTED: Final = (
    *("s1", "s17", "s5", "s7", "s8", "p1", "p3", "p5"),
    *("s1-left", "s8-left", "both-left", "p1-left"),
)
_SMALL: Final = ["s1", "s2", "s5", "s6", "s7", "s8", "s9", "both", "s12", "s14", "p1"]
MAKERS: Final[Mapping[str, tuple[Maker, Size]]] = {
    **_OF_THEIR_SIZE,
    **{
        f"{one}-elected": (elect(_OF_THEIR_SIZE[one][0]), _OF_THEIR_SIZE[one][1])
        for one in _ELECTED
    },
    **{f"{one}-small": (_OF_THEIR_SIZE[one][0], SMALL) for one in _SMALL},
    "r1-elected": (elect(releases.released), Size(2, 1)),
    "r1-small": (releases.released, Size(2, 1)),
}
NAMES: Final = tuple(MAKERS)


def get_scenario(name: str, size: Size | None = None) -> Scenario:
    """Return a scenario, in its own size unless another is requested. Raises KeyError."""
    make, usual = MAKERS[name]
    return make(size or usual)
