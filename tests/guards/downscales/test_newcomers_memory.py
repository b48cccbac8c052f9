"""What a name had counts as used for an hour, whatever becomes of its set: SI-02, D-67, FP-13.

What happens is written as `World.play` reads it.
"""

from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.guards.downscales.newcomers import FORGOTTEN, MOST_NAMES, UNKNOWN, PastNames
from tests.builders import sts, unreadable
from tests.guards.downscales.watched_set import GAP, MOMENT, World

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
