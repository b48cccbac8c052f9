"""All scenarios by name, in the sizes that the schedules use, and by any size that shrinks them."""

from collections.abc import Callable, Mapping
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
from tests.simulation.scenarios import FULL, SMALL, Scenario, Size
from tests.simulation.scenarios_departures import (
    deselect_by_budget,
    deselect_by_policy,
    leave,
    relabel,
)
from tests.simulation.scenarios_people import People

Maker = Callable[[Size], Scenario]

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


_relabel_for_policy: Final = partial(relabel, key=next(iter(policies.LABELS)))
_left_drains: Final = leave(drains.drained, deselect_by_budget)
_left_policies: Final = leave(policies.sampled, _relabel_for_policy, deselect_by_policy)
_left_both: Final = leave(downscales.rolled_and_downscaled)

MAKERS: Final[Mapping[str, tuple[Maker, Size]]] = {
    "s1": (rollouts.plain, FULL),
    "s2": (rollouts.rolled_back, FULL),
    "s3": (rollouts.two_at_a_time, Size(3, 5)),
    "s4": (rollouts.crashing, FULL),
    "s5": (scaling.followed, Size(3, 2)),
    "s5-tracked": (track(scaling.followed), Size(3, 2)),
    "s5-contested": (scaling.contested, Size(3, 2)),
    "s5-edited": (scaling.edited, Size(3, 2)),
    "s5-slow": (scaling.slowed, SMALL),
    "s5-edited-tracked": (track(partial(scaling.edited, is_tracked=True)), Size(3, 2)),
    "s6": (scaling.mirrored, Size(3, 2)),
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
    "s12": (scaling.unplaced, Size(3, 2)),
    "s13": (rollouts.crowded_under_budgets, SMALL),
    "s14": (sets.returned, FULL),
    "s14-watched": (watch(sets.returned), FULL),
    "walk": (sets.walked, FULL),
    "both": (downscales.rolled_and_downscaled, Size(3, 2)),
    "s1-left": (leave(rollouts.plain), FULL),
    "s7-left": (leave(downscales.downscaled), FULL),
    "s8-left": (_left_drains, FULL),
    "s9-left": (leave(drains.drained_by_partition, deselect_by_budget), FULL),
    "both-left": (_left_both, Size(3, 2)),
    "p1-left": (_left_policies, FULL),
    "s1-left-elected": (elect(leave(rollouts.plain)), FULL),
    "s8-left-elected": (elect(_left_drains), FULL),
    "both-left-elected": (elect(_left_both), Size(3, 2)),
    "p1-left-elected": (elect(_left_policies), FULL),
    "s1-elected": (elect(rollouts.plain), FULL),
    "s5-elected": (elect(scaling.followed), Size(3, 2)),
    "s7-elected": (elect(downscales.downscaled), FULL),
    "s8-elected": (elect(drains.drained), FULL),
    "p1": (policies.sampled, FULL),
    "p2": (policies.grouped, FULL),
    "p3": (policies.changed, FULL),
    "p1-elected": (elect(policies.sampled), FULL),
    "p3-elected": (elect(policies.changed), FULL),
    "r1": (releases.released, Size(3, 1)),
    "r2": (releases.reconsidered, Size(3, 1)),
    "r3": (releases.frozen, Size(2, 1)),
    "r1-elected": (elect(releases.released), Size(2, 1)),
    "r1-small": (releases.released, Size(2, 1)),
    "s1-small": (rollouts.plain, SMALL),
    "s2-small": (rollouts.rolled_back, SMALL),
    "s5-small": (scaling.followed, SMALL),
    "s6-small": (scaling.mirrored, SMALL),
    "s7-small": (downscales.downscaled, SMALL),
    "s8-small": (drains.drained, SMALL),
    "s9-small": (drains.drained_by_partition, SMALL),
    "both-small": (downscales.rolled_and_downscaled, SMALL),
    "s12-small": (scaling.unplaced, SMALL),
    "s14-small": (sets.returned, SMALL),
    "p1-small": (policies.sampled, SMALL),
}
NAMES: Final = tuple(MAKERS)


def get_scenario(name: str, size: Size | None = None) -> Scenario:
    """Return a scenario, in its own size unless another is requested. Raises KeyError."""
    make, usual = MAKERS[name]
    return make(size or usual)
