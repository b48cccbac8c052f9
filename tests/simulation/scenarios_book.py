"""All scenarios by name, in the sizes that the schedules use, and by any size that shrinks them."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace

from tests.simulation.scenarios import FULL, SMALL, Scenario, Script, Size
from tests.simulation.scenarios_departures import (
    deselect_by_budget,
    deselect_by_policy,
    leave,
    relabel,
)
from tests.simulation.scenarios_downscales import downscaled, rolled_and_downscaled, widened
from tests.simulation.scenarios_drains import (
    drained,
    drained_by_partition,
    drained_by_partition_and_two,
    drained_by_two,
    drained_in_turns,
)
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_policies import LABELS, changed, grouped, sampled
from tests.simulation.scenarios_releases import frozen, reconsidered, released
from tests.simulation.scenarios_rollouts import (
    crashing,
    crowded,
    crowded_under_budgets,
    plain,
    recreated,
    rolled_back,
    two_at_a_time,
)
from tests.simulation.scenarios_room import unplaced
from tests.simulation.scenarios_scaling import (
    contested,
    edited,
    edited_in_the_map,
    followed,
    mirrored,
    slowed,
)
from tests.simulation.scenarios_sets import WATCHED, returned, walked

Maker = Callable[[Size], Scenario]

TRACKED: Final = ("-use-zone-tracker",)
PAGE: Final = 5
# Each second of it has a renewal, or a read.
QUIET_OF_ELECTED: Final = timedelta(minutes=5)


def track(make: Maker) -> Maker:
    """Return the same scenario with the times of downscales in a ConfigMap."""

    def make_tracked(size: Size) -> Scenario:
        scenario = make(size)
        return replace(scenario, name=f"{scenario.name}-tracked", args=TRACKED)

    return make_tracked


def stream(make: Maker) -> Maker:
    """Return the same scenario with lists that take more than a page, or come as a stream."""

    def make_streamed(size: Size) -> Scenario:
        scenario = make(size)
        return replace(
            scenario,
            name=f"{scenario.name}-streamed",
            prepare=_offer_streams(scenario.prepare),
        )

    return make_streamed


def watch(make: Maker) -> Maker:
    """Return the same scenario with an operator that knows all that was there in the last hour."""

    def make_watched(size: Size) -> Scenario:
        scenario = make(size)
        return replace(scenario, name=f"{scenario.name}-watched", watched_for=WATCHED)

    return make_watched


def elect(make: Maker) -> Maker:
    """Return the same scenario with two processes, of which one is elected to act."""

    def make_elected(size: Size) -> Scenario:
        scenario = make(size)
        name = f"{scenario.name}-elected"
        return replace(scenario, name=name, replicas=2, elects=True, quiet=QUIET_OF_ELECTED)

    return make_elected


_relabel_for_policy: Final = partial(relabel, key=next(iter(LABELS)))


def _offer_streams(prepare: Script | None) -> Script:
    async def offer(people: People) -> None:
        people.sandbox.api.largest_page = PAGE
        people.sandbox.api.has_state_streams = True
        if prepare is not None:
            await prepare(people)

    return offer


MAKERS: Final[Mapping[str, tuple[Maker, Size]]] = {
    "s1": (plain, FULL),
    "s2": (rolled_back, FULL),
    "s3": (two_at_a_time, Size(3, 5)),
    "s4": (crashing, FULL),
    "s5": (followed, Size(3, 2)),
    "s5-tracked": (track(followed), Size(3, 2)),
    "s5-contested": (contested, Size(3, 2)),
    "s5-edited": (edited, Size(3, 2)),
    "s5-slow": (slowed, SMALL),
    "s5-edited-tracked": (track(edited_in_the_map), Size(3, 2)),
    "s6": (mirrored, Size(3, 2)),
    "s7": (downscaled, FULL),
    "s7-tracked": (track(downscaled), FULL),
    "s7-wide": (widened, Size(2, 4)),
    "s8": (drained, FULL),
    "s8-two": (drained_by_two, FULL),
    "s8-turns": (drained_in_turns, Size(3, 5)),
    "s8-streamed": (stream(drained), FULL),
    "s9": (drained_by_partition, FULL),
    "s9-two": (drained_by_partition_and_two, FULL),
    "s10": (recreated, FULL),
    "s11": (crowded, SMALL),
    "s12": (unplaced, Size(3, 2)),
    "s13": (crowded_under_budgets, SMALL),
    "s14": (returned, FULL),
    "s14-watched": (watch(returned), FULL),
    "walk": (walked, FULL),
    "both": (rolled_and_downscaled, Size(3, 2)),
    "s1-left": (leave(plain), FULL),
    "s7-left": (leave(downscaled), FULL),
    "s8-left": (leave(drained, deselect_by_budget), FULL),
    "s9-left": (leave(drained_by_partition, deselect_by_budget), FULL),
    "both-left": (leave(rolled_and_downscaled), Size(3, 2)),
    "p1-left": (leave(sampled, _relabel_for_policy, deselect_by_policy), FULL),
    "s1-left-elected": (elect(leave(plain)), FULL),
    "s8-left-elected": (elect(leave(drained, deselect_by_budget)), FULL),
    "both-left-elected": (elect(leave(rolled_and_downscaled)), Size(3, 2)),
    "p1-left-elected": (elect(leave(sampled, _relabel_for_policy, deselect_by_policy)), FULL),
    "s1-elected": (elect(plain), FULL),
    "s5-elected": (elect(followed), Size(3, 2)),
    "s7-elected": (elect(downscaled), FULL),
    "s8-elected": (elect(drained), FULL),
    "p1": (sampled, FULL),
    "p2": (grouped, FULL),
    "p3": (changed, FULL),
    "p1-elected": (elect(sampled), FULL),
    "p3-elected": (elect(changed), FULL),
    "r1": (released, Size(3, 1)),
    "r2": (reconsidered, Size(3, 1)),
    "r3": (frozen, Size(2, 1)),
    "r1-elected": (elect(released), Size(2, 1)),
    "r1-small": (released, Size(2, 1)),
    "s1-small": (plain, SMALL),
    "s2-small": (rolled_back, SMALL),
    "s5-small": (followed, SMALL),
    "s6-small": (mirrored, SMALL),
    "s7-small": (downscaled, SMALL),
    "s8-small": (drained, SMALL),
    "s9-small": (drained_by_partition, SMALL),
    "both-small": (rolled_and_downscaled, SMALL),
    "s12-small": (unplaced, SMALL),
    "s14-small": (returned, SMALL),
    "p1-small": (sampled, SMALL),
}
NAMES: Final = tuple(MAKERS)


def get_scenario(name: str, size: Size | None = None) -> Scenario:
    """Return a scenario, in its own size unless another is requested. Raises KeyError."""
    make, usual = MAKERS[name]
    return make(size or usual)
