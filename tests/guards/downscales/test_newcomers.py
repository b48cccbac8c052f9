"""Which ordinals never had a ready pod, as the watches tell it: D-67, SI-10, FP-07, FP-09."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.guards.downscales.newcomers import LONGEST_GAP, MOST_ADDED, SETTLING, Arrivals
from rollout_operator.guards.downscales.past_names import FORGOTTEN
from rollout_operator.model.names import PREPARE_DOWNSCALE
from tests.builders import pod, unreadable
from tests.guards.downscales.watched_set import GAP, MOMENT, NO_GAP, World, new, prepared


def upscaled() -> World:
    """Return a zone of three that was scaled to five, while all was seen."""
    world = World(3, "lll")
    world.scale(5)
    world.put(new(3))
    world.put(new(4))
    return world


def test_d67_what_comes_after_an_upscale_is_new() -> None:
    assert upscaled().seen == (3, {"uid-a-3", "uid-a-4"})


def test_d67_also_where_pods_are_told_before_their_set() -> None:
    world = World(3, "lll")
    world.put(new(3))
    world.scale(5)

    assert world.seen == (3, {"uid-a-3"})


def test_d67_an_upscale_in_steps() -> None:
    world = World(3, "lll")
    world.scale(4)
    world.put(new(3))
    world.scale(5)

    assert world.seen == (3, {"uid-a-3"})


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


def settle(world: World) -> World:
    world.clock.jump(SETTLING)
    return world


def test_d67_it_counts_once_nothing_has_come_or_gone_for_a_while() -> None:
    world = upscaled()
    assert world.known.settles_in == SETTLING

    world.clock.jump(SETTLING - MOMENT)
    assert world.known.settles_in == MOMENT
    world.clock.jump(MOMENT)
    assert world.known.settles_in == NO_GAP


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.remove(4), id="a pod goes"),
        pytest.param(lambda world: world.put(new(5)), id="a pod comes"),
        pytest.param(lambda world: world.scale(6), id="more replicas"),
        pytest.param(lambda world: world.scale(4), id="fewer replicas"),
    ],
)
def test_d67_whatever_comes_or_goes_begins_the_time_anew(change: Callable[[World], None]) -> None:
    world = settle(upscaled())
    change(world)

    assert world.known.settles_in == SETTLING


def test_d67_a_status_that_changes_does_not() -> None:
    world = settle(upscaled())
    world.put(new(3, trouble="Unschedulable"))

    assert world.known.settles_in == NO_GAP


def test_si10_a_successor_at_an_ordinal_that_was_there_is_none() -> None:
    world = World(3, "lll")
    world.remove(2)
    world.put(new(2, uid="another"))

    assert world.seen == (3, set())


def test_si10_at_the_start_all_that_is_wanted_is_used() -> None:
    assert World(5, "lllLL").seen == (5, set())


def test_si10_an_upscale_right_after_the_start_may_follow_anything() -> None:
    world = World(3, "lll")
    world.list_sets(prepared(3, generation=1), gap=GAP)
    world.scale(5)

    assert world.seen == (5, set())


@pytest.mark.parametrize("wait", [NO_GAP, SETTLING])
def test_si10_a_downscale_that_is_taken_back_before_its_pods_have_gone(wait: timedelta) -> None:
    world = World(5, "lllll")
    world.scale(3)
    world.put(pod("a", 4, "t"))
    world.clock.jump(wait)
    world.scale(5)
    world.remove(4)
    world.put(new(4, uid="another"))

    assert world.seen == (5, set())


def test_si10_writers_that_fight_over_a_count_make_nothing_new() -> None:
    world = World(5, "lllll")
    for replicas in (3, 5, 3, 5):
        world.scale(replicas)

    assert world.seen == (5, set())


def test_d67_long_after_a_downscale_an_upscale_adds_anew() -> None:
    world = World(5, "lllll")
    world.scale(3)
    world.remove(4)
    world.remove(3)
    world.clock.jump(FORGOTTEN)
    world.scale(4)
    world.put(new(3, uid="another"))

    assert world.seen == (3, {"another"})


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_si10_a_zone_that_was_away_for_maintenance_comes_back_with_its_data(replicas: int) -> None:
    world = World(5, "lllll")
    world.scale(replicas)
    for ordinal in range(replicas, 5):
        world.remove(ordinal)
    world.clock.jump(FORGOTTEN - MOMENT)
    world.scale(5)
    world.put(new(4, uid="another"))
    settle(world)

    assert world.known.used == 5


@pytest.mark.parametrize("labels", [{}, {PREPARE_DOWNSCALE: "true"}], ids=["no label", "labelled"])
@pytest.mark.parametrize(("wait", "used"), [(FORGOTTEN - MOMENT, 5), (FORGOTTEN, 3)])
def test_si02_nothing_tells_what_a_set_had_before_the_start(
    labels: dict[str, str], wait: timedelta, used: int
) -> None:
    """The label may have been off for the downscale before."""
    world = World(3, "lll")
    world.sts = replace(world.sts, labels=labels)
    world.arrivals = Arrivals(world.sets, world.pods, world.clock)
    world.list_sets(world.sts)
    world.clock.jump(wait)
    world.scale(5)

    assert world.used == used


def test_si10_a_pod_that_went_just_before_its_upscale_was_told_is_not_new() -> None:
    """The watch of the sets lags: the successor comes before the set is known to want it."""
    world = World(3, "lll")
    world.put(new(3))
    world.put(pod("a", 3, "l"))
    world.remove(3)
    world.put(new(3, uid="another"))
    world.scale(5)

    assert world.seen == (5, set())


def test_si10_one_that_was_ready_before_its_upscale_was_told_is_used() -> None:
    world = World(3, "lll")
    world.put(new(3))
    world.put(pod("a", 3, "l"))
    world.scale(5)

    assert world.seen == (4, set())


def test_si10_an_adopted_pod_is_none() -> None:
    world = World(3, "lll")
    world.scale(4)
    world.put(new(3, owner_uid="stranger"))
    world.put(new(3))

    assert world.seen == (4, set())


def test_si10_a_pod_that_cannot_be_read_may_have_been_ready() -> None:
    world = upscaled()
    found = replace(unreadable("Pod", "zone-a-3", owner="a"), uid="uid-a-3")
    world.arrivals.on_pod(new(3), found)

    assert world.seen == (4, {"uid-a-4"})


def test_si10_one_whose_end_was_not_told_may_have_been_ready() -> None:
    """Another pod of its name is there at once: the watch has left the end out."""
    world = upscaled()
    world.put(new(3, uid="another"))

    assert world.seen == (4, {"uid-a-4"})


def test_si10_fp09_after_a_gap_nothing_is_known() -> None:
    """In a gap a pod may have come, been ready, and gone."""
    world = upscaled()
    world.list_pods(*world.listed, gap=GAP)

    assert world.seen == (5, set())


def test_si10_fp09_what_came_in_a_short_gap_is_not_new() -> None:
    world = upscaled()
    lasting = world.listed
    world.list_pods(*lasting[:3], new(3, uid="another"), lasting[4], gap=LONGEST_GAP)

    assert world.seen == (5, set())


def test_si10_fp09_an_upscale_in_a_short_gap_is_not_known() -> None:
    world = World(3, "lll")
    world.list_changed(replicas=5, generation=2, gap=NO_GAP)

    assert world.seen == (5, set())


def test_a_list_right_after_a_stream_leaves_nothing_out() -> None:
    world = upscaled()
    world.list_pods(*world.listed, gap=NO_GAP)

    assert world.seen == (3, {"uid-a-3", "uid-a-4"})


def test_another_first_ordinal_makes_all_used() -> None:
    world = upscaled()
    world.change(first_ordinal=1, generation=3)

    assert world.seen == (5, set())


def test_a_set_that_is_gone_has_no_newcomers() -> None:
    world = upscaled()
    world.list_sets(gap=NO_GAP)

    assert world.arrivals.get(world.sts.uid) is None


def test_an_upscale_by_very_many_is_not_looked_at_one_by_one() -> None:
    world = World(3, "lll")
    world.scale(3 + MOST_ADDED + 1)

    assert world.used == 3 + MOST_ADDED + 1
