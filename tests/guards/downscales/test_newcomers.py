"""Which ordinals never had a ready pod, as the watches report it: D-67, SI-10, FP-07, FP-09.

What happens is written as `World.play` reads it.
"""

from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.guards.downscales.newcomers import LONGEST_GAP, MOST_ADDED, SETTLING
from rollout_operator.model.names import PREPARE_DOWNSCALE
from tests.builders import unreadable
from tests.guards.downscales.watched_set import MOMENT, NO_GAP, World, new

# A zone of three is scaled to five, while all is seen.
UP: Final = "scale 5, new 3 4"


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
