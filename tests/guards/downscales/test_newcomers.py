"""Which ordinals never had a ready pod, as the watches report it: D-67, SI-10, FP-07, FP-09.

What happens is written as `World.play` reads it.
"""

from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.guards.newcomers import (
    FORGOTTEN,
    LONGEST_GAP,
    MOST_ADDED,
    MOST_NAMES,
    SETTLING,
    UNKNOWN,
    PastNames,
)
from rollout_operator.model.names import PREPARE_DOWNSCALE
from tests.builders import sts, unreadable
from tests.guards.downscales.watched_set import GAP, MOMENT, NO_GAP, World, new

# A zone of three is scaled to five, while all is seen.
UP: Final = "scale 5, new 3 4"

TAKE_DOWN: Final = "scale 1, remove 2 1"
OVER_VOLUMES: Final = "delete, remove 2 1 0, create 1"
WAYS: Final = {
    "take down": TAKE_DOWN,
    "recreate over orphans": "own none, create 1, own set, remove 2 1",
    "recreate over volumes": OVER_VOLUMES,
    "recreate before pods go": "delete, create 1, remove 2 1 0",
    "recreate twice": f"{OVER_VOLUMES}, delete, create 1",
    # The watch brings the new set, and not the end of the old one.
    "recreate unseen": "create 1, remove 2 1 0",
    "recreate in a gap": "gap uid=anew replicas=1",
    "spoil an event": f"{TAKE_DOWN}, spoil, change",
    "spoil the downscale": "spoil, remove 2 1, change replicas=1 generation=2",
    "spoil the end": "spoil, delete spoilt, create 1",
    "lose sight": f"{TAKE_DOWN}, list sets",
    "lose sight of pods": f"{TAKE_DOWN}, list pods",
    "go down in a gap": "gap replicas=1 generation=2",
    "come without the label": f"labels off, {TAKE_DOWN}, labels on, restart",
    "leave the group meanwhile": f"labels other, {TAKE_DOWN}, labels on",
    "move the first ordinal": (
        "change first_ordinal=2 generation=2, remove 1 0,"
        " change first_ordinal=0 replicas=1 generation=3"
    ),
    # Another set of that name, of which nothing could be read at first.
    "first show it unreadable": "delete, remove 2 1 0, wait hour, renew, spoil, change",
}


@pytest.mark.parametrize(
    ("steps", "used", "pods"),
    [
        pytest.param(UP, 3, "uid-a-3 uid-a-4", id="D-67: what comes after an upscale is new"),
        pytest.param("new 3, scale 5", 3, "uid-a-3", id="D-67: pods are seen before their set"),
        pytest.param("scale 4, new 3, scale 5", 3, "uid-a-3", id="D-67: an upscale in steps"),
        pytest.param(
            f"{UP}, ready 3, new 3, remove 3, new 3x", 4, "uid-a-4",
            id="SI-10: one that becomes ready is used, and so is its successor",
        ),
        pytest.param(
            f"{UP}, remove 4, new 4x", 3, "uid-a-3 x",
            id="D-67: one that never was ready may be replaced",
        ),
        pytest.param("remove 2, new 2x", 3, "", id="SI-10: an ordinal that was there is not new"),
        pytest.param(
            "list sets, scale 5", 5, "", id="SI-10: right after the start may follow anything"
        ),
        pytest.param(
            "new 3, ready 3, remove 3, new 3x, scale 5", 5, "",
            id="SI-10: the watch of sets lags, a pod has gone before its upscale was seen",
        ),
        pytest.param(
            "new 3, ready 3, scale 5", 4, "", id="SI-10: ready before its upscale was seen"
        ),
        pytest.param(
            f"{UP}, new 3x", 4, "uid-a-4", id="SI-10: its end was not seen: it may have been ready"
        ),
        pytest.param(f"{UP}, list pods", 5, "", id="FP-09: in a gap a pod may have come and gone"),
        pytest.param(
            f"{UP}, list pods at once", 3, "uid-a-3 uid-a-4", id="a list right after a stream"
        ),
        pytest.param(
            f"{UP}, change first_ordinal=1 generation=3", 5, "", id="another first ordinal"
        ),
    ],
)  # fmt: skip
def test_d67_of_a_zone_of_three(steps: str, used: int, pods: str) -> None:
    """D-67, SI-10, FP-09."""
    assert World(3, "lll", steps).seen == (used, set(pods.split()))


@pytest.mark.parametrize(
    ("steps", "used", "pods"),
    [
        pytest.param("", 5, "", id="SI-10: at the start all that is wanted is used"),
        pytest.param(
            "scale 3, going 4, scale 5, remove 4, new 4x", 5, "",
            id="SI-10: a downscale that is reverted before its pods have gone",
        ),
        pytest.param(
            "scale 3, going 4, wait settling, scale 5, remove 4, new 4x", 5, "",
            id="SI-10: or a while later",
        ),
        pytest.param(
            "scale 3, scale 5, scale 3, scale 5", 5, "",
            id="SI-10: writers that fight over a count make nothing new",
        ),
        pytest.param(
            "scale 3, remove 4 3, wait hour, scale 4, new 3x", 3, "x",
            id="D-67: long after a downscale an upscale adds anew",
        ),
        pytest.param(
            "scale 0, remove 4 3 2 1 0, wait hour-, scale 5, new 4x, wait settling", 5, "",
            id="SI-10: a zone that was away for maintenance comes back with its data",
        ),
        pytest.param(
            "scale 3, remove 4 3, wait hour-, scale 5, new 4x, wait settling", 5, "",
            id="SI-10: a part of a zone, too",
        ),
    ],
)  # fmt: skip
def test_d67_of_a_zone_of_five(steps: str, used: int, pods: str) -> None:
    """D-67, SI-10."""
    assert World(5, "lllll", steps).seen == (used, set(pods.split()))


def test_d67_it_counts_once_nothing_has_come_or_gone_for_a_while() -> None:
    world = World(3, "lll", UP)
    assert world.known.settles_in == SETTLING
    world.clock.jump(SETTLING - MOMENT)
    assert world.known.settles_in == MOMENT
    world.clock.jump(MOMENT)
    assert world.known.settles_in == NO_GAP


@pytest.mark.parametrize("change", ["remove 4", "new 5", "scale 6", "scale 4"])
def test_d67_whatever_comes_or_goes_begins_the_time_anew(change: str) -> None:
    """A status that changes does not."""
    world = World(3, "lll", f"{UP}, wait settling")
    world.put(new(3, why_not_ready="Unschedulable"))
    assert world.known.settles_in == NO_GAP
    assert world.play(change).known.settles_in == SETTLING


@pytest.mark.parametrize("labels", [{}, {PREPARE_DOWNSCALE: "true"}], ids=["no label", "labelled"])
@pytest.mark.parametrize(("wait", "used"), [("hour-", 5), ("hour", 3)])
def test_si02_nothing_says_what_a_set_had_before_the_start(
    labels: dict[str, str], wait: str, used: int
) -> None:
    """The label may have been off for the downscale before."""
    world = World(3, "lll")
    world.sts = replace(world.sts, labels=labels)
    assert world.play(f"restart, wait {wait}, scale 5").used == used


def test_si10_an_adopted_pod_is_none() -> None:
    world = World(3, "lll", "scale 4")
    world.put(new(3, owner_uid="stranger"))
    world.put(new(3))
    assert world.seen == (4, set())


def test_si10_a_pod_that_cannot_be_read_may_have_been_ready() -> None:
    world = World(3, "lll", UP)
    found = replace(unreadable("Pod", "zone-a-3", owner="a"), uid="uid-a-3")
    world.arrivals.on_pod(new(3), found)
    assert world.seen == (4, {"uid-a-4"})


def test_si10_fp09_what_came_in_a_short_gap_is_not_new() -> None:
    """Neither a pod, nor an upscale."""
    world = World(3, "lll", UP)
    lasting = world.listed
    world.show_pods(*lasting[:3], new(3, uid="another"), lasting[4], gap=LONGEST_GAP)
    assert world.seen == (5, set())
    world = World(3, "lll")
    world.show_changed(replicas=5, generation=2, gap=NO_GAP)
    assert world.seen == (5, set())


def test_a_set_that_is_gone_has_no_newcomers() -> None:
    world = World(3, "lll", UP)
    world.show_sets(gap=NO_GAP)
    assert world.arrivals.get(world.sts.uid) is None


def test_an_upscale_by_very_many_is_not_checked_one_by_one() -> None:
    assert World(3, "lll", f"scale {3 + MOST_ADDED + 1}").used == 3 + MOST_ADDED + 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wait", ["hour-", "hour"])
def test_si02_what_a_zone_had_is_used_for_an_hour_whatever_happens_to_its_set(
    way: str, wait: str
) -> None:
    """SI-02, D-67, FP-13: its pods come back with their volumes, and other zones wait for them.
    After that an upscale of the same set adds anew.
    """
    world = World(3, "lll", WAYS[way])
    world.remove_above(0)
    world.play(f"wait {wait}, scale 3, new 2x")
    if wait == "hour":
        assert world.seen == (1, {"x"})
    else:
        assert world.used == 3


@pytest.mark.parametrize(
    "miss",
    [
        pytest.param("change generation=3", id="miss events"),
        pytest.param("spoil, change generation=3", id="spoil events"),
        pytest.param("gap generation=3", id="in a gap"),
        pytest.param("at-once generation=3", id="between stream and list"),
        pytest.param("change generation=0", id="back to a backup"),
    ],
)
def test_si02_a_spec_that_was_missed_may_have_wanted_any_ordinal(miss: str) -> None:
    """SI-02, FP-09: 1, 3 and 1 again, which only the generation shows."""
    world = World(1, "l", f"{miss}, wait hour-")
    world.change(replicas=3, generation=world.sts.generation + 1)
    assert world.used == 3


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            "own none, wait hour, remove 2 1 0, create 1, wait settling, scale 4",
            id="orphans of long ago: who deletes them may create their set again",
        ),
        pytest.param(
            "own none, remove 0, wait hour, create 1, wait hour, scale 4",
            id="a pod of the name that the set does not own",
        ),
        pytest.param(
            "own none, wait hour, create 1, wait hour, remove 2, wait hour-, scale 4",
            id="one that goes after its set came",
        ),
        pytest.param(
            "scale 1, wait hour-, remove 2, wait hour-, scale 3",
            id="the hour begins when the last pod of a downscale has gone",
        ),
    ],
)
def test_si02_pods_keep_the_ordinals_of_their_name_used(steps: str) -> None:
    assert World(3, "lll", steps).used == 3


def named_anew(world: World, wait: timedelta = timedelta(0)) -> World:
    """Return the world with a set of a new name, which is scaled from one to three."""
    world.clock.jump(wait)
    world.sts = replace(world.sts, name="zone-new")
    return world.play("create 1, wait settling, scale 3")


def test_d67_a_new_name_has_no_past() -> None:
    assert named_anew(World(0)).used == 1


@pytest.mark.parametrize("wait", [timedelta(0), FORGOTTEN - MOMENT])
def test_si02_a_new_name_is_known_only_after_an_hour_without_a_gap(wait: timedelta) -> None:
    """A set of that name may have come and gone in the gap."""
    world = World(0)
    world.show_sets(world.sts, gap=GAP)
    assert named_anew(world, wait).used == 3


def test_si02_an_object_without_a_name_may_be_any_set() -> None:
    world = World(0)
    world.arrivals.on_set(None, unreadable("StatefulSet", ""))
    assert named_anew(world).used == 3


def test_si02_what_falls_out_of_the_memory_of_names_is_unknown() -> None:
    """Sec: a crowd of sets that are created and deleted neither grows it nor makes it forget."""
    world = World(3, "lll", f"{OVER_VOLUMES}, delete")
    for number in range(MOST_NAMES):
        stranger = sts("b", 1, name=f"crowd-{number}", uid=f"crowd-{number}")
        world.arrivals.on_set(None, stranger)
        world.arrivals.on_set(stranger, None)
    assert world.play("create 1, wait settling, scale 3").used == 3


# The table of names itself

START: Final = timedelta(minutes=1)


def test_si02_a_name_is_remembered_for_an_hour_and_its_highest_ordinal() -> None:
    past = PastNames(START)
    past.add("test", "zone-a", 3, START)
    past.add("test", "zone-b", 5, START)
    past.add("test", "zone-c", 3, START)
    past.add("test", "zone-c", 1, START + FORGOTTEN - MOMENT)
    past.add("test", "zone-d", UNKNOWN, START)
    assert past.take("test", "zone-a", START + FORGOTTEN - MOMENT) == 3
    assert past.take("test", "zone-b", START + FORGOTTEN) == 0
    assert past.take("test", "zone-c", START + FORGOTTEN + MOMENT) == 3
    # It is let go of once it has a set again.
    assert [past.take("test", "zone-d", START) for _ in range(2)] == [UNKNOWN, 0]


def test_si02_it_is_complete_an_hour_after_anything_was_missed() -> None:
    past = PastNames(START)
    assert not past.is_complete(START + FORGOTTEN - MOMENT)
    assert past.is_complete(START + FORGOTTEN)
    past.lose_track(START + FORGOTTEN)
    assert not past.is_complete(START + FORGOTTEN)


def test_si02_a_crowd_of_names_makes_it_incomplete_and_not_larger() -> None:
    """Each process that may create sets may create and delete thousands of them."""
    past, late = PastNames(START), START + 2 * FORGOTTEN
    for number in range(MOST_NAMES):
        past.add("test", f"crowd-{number}", 1, late)
    assert past.is_complete(late)
    past.add("test", "one-more", 1, late + MOMENT)
    assert len(past) == MOST_NAMES
    assert not past.is_complete(late + FORGOTTEN - MOMENT)
    assert past.is_complete(late + FORGOTTEN)
    # What is long ago makes room.
    past.add("test", "zone-a", 1, late + MOMENT + FORGOTTEN)
    assert len(past) == 1
    assert past.is_complete(late + MOMENT + FORGOTTEN)
