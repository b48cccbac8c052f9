"""What names without a StatefulSet had lately: SI-02, D-67."""

from datetime import timedelta
from typing import Final

from rollout_operator.guards.downscales.past_names import FORGOTTEN, MOST_NAMES, UNKNOWN, PastNames

START: Final = timedelta(minutes=1)
MOMENT: Final = timedelta(seconds=1)


def test_si02_a_name_is_remembered_for_an_hour() -> None:
    past = PastNames(START)
    past.add("test", "zone-a", 3, START)
    past.add("test", "zone-b", 5, START)

    assert past.take("test", "zone-a", START + FORGOTTEN - MOMENT) == 3
    assert past.take("test", "zone-b", START + FORGOTTEN) == 0


def test_si02_the_highest_ordinal_stays_and_the_hour_begins_anew() -> None:
    past = PastNames(START)
    past.add("test", "zone-a", 3, START)
    past.add("test", "zone-a", 1, START + FORGOTTEN - MOMENT)

    assert past.take("test", "zone-a", START + FORGOTTEN + MOMENT) == 3


def test_a_name_is_let_go_of_once_it_has_a_set_again() -> None:
    past = PastNames(START)
    past.add("test", "zone-a", UNKNOWN, START)

    assert past.take("test", "zone-a", START) == UNKNOWN
    assert past.take("test", "zone-a", START) == 0


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


def test_what_is_long_ago_makes_room() -> None:
    past = PastNames(START)
    for number in range(MOST_NAMES):
        past.add("test", f"crowd-{number}", 1, START)
    past.add("test", "zone-a", 1, START + FORGOTTEN)

    assert len(past) == 1
    assert past.is_complete(START + FORGOTTEN)
