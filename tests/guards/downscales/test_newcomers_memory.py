"""What a name had counts as used for an hour, whatever becomes of its set: SI-02, D-67, FP-13."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.guards.downscales.newcomers import SETTLING, Arrivals
from rollout_operator.guards.downscales.past_names import FORGOTTEN, MOST_NAMES
from rollout_operator.model.names import GROUP_LABEL, PREPARE_DOWNSCALE, Uid
from tests.builders import sts, unreadable
from tests.guards.downscales.watched_set import GAP, MOMENT, NO_GAP, World, new


def take_down(world: World) -> None:
    world.scale(1)
    for ordinal in (2, 1):
        world.remove(ordinal)


def orphan(world: World) -> None:
    """Delete the set, and leave its pods, as `--cascade=orphan` does."""
    world.delete()
    for one in world.listed:
        world.put(replace(one, owner_uid=None))


def adopt(world: World) -> None:
    for one in world.listed:
        world.put(replace(one, owner_uid=world.sts.uid))


def recreate_over_orphans(world: World) -> None:
    orphan(world)
    world.create(1)
    adopt(world)
    for ordinal in (2, 1):
        world.remove(ordinal)


def recreate_over_volumes(world: World) -> None:
    world.delete()
    for one in world.listed:
        world.remove(int(one.name[-1]))
    world.create(1)


def recreate_before_pods_go(world: World) -> None:
    world.delete()
    world.create(1)
    for ordinal in (2, 1, 0):
        world.remove(ordinal)


def recreate_twice(world: World) -> None:
    recreate_over_volumes(world)
    world.delete()
    world.create(1)


def recreate_unseen(world: World) -> None:
    """The watch brings the new set, and not the end of the old one."""
    world.create(1)
    for ordinal in (2, 1, 0):
        world.remove(ordinal)


def recreate_in_a_gap(world: World) -> None:
    world.list_changed(uid=Uid("anew"), replicas=1, gap=GAP)


def spoil_an_event(world: World) -> None:
    take_down(world)
    world.spoil()
    world.change()


def spoil_the_downscale(world: World) -> None:
    world.spoil()
    for ordinal in (2, 1):
        world.remove(ordinal)
    world.change(replicas=1, generation=2)


def spoil_the_end(world: World) -> None:
    world.spoil()
    world.delete(world.spoilt)
    world.create(1)


def lose_sight(world: World) -> None:
    take_down(world)
    world.list_sets(world.sts, gap=GAP)


def lose_sight_of_pods(world: World) -> None:
    take_down(world)
    world.list_pods(*world.listed, gap=GAP)


def go_down_in_a_gap(world: World) -> None:
    world.list_changed(replicas=1, generation=2, gap=GAP)


def come_without_the_label(world: World) -> None:
    world.change(labels={})
    take_down(world)
    world.change(labels={PREPARE_DOWNSCALE: "true"})
    world.arrivals = Arrivals(world.sets, world.pods, world.clock)
    world.list_sets(world.sts)


def leave_the_group_meanwhile(world: World) -> None:
    labels = dict(world.sts.labels)
    world.change(labels={**labels, GROUP_LABEL: "other"})
    take_down(world)
    world.change(labels=labels)


def move_the_first_ordinal(world: World) -> None:
    world.change(first_ordinal=2, generation=2)
    for ordinal in (1, 0):
        world.remove(ordinal)
    world.change(first_ordinal=0, replicas=1, generation=3)


def first_show_it_unreadable(world: World) -> None:
    """Another set of that name, of which nothing could be read at first."""
    world.delete()
    for ordinal in (2, 1, 0):
        world.remove(ordinal)
    world.clock.jump(FORGOTTEN)
    world.sts = replace(world.sts, uid=Uid("anew"), generation=2, replicas=1)
    world.spoil()
    world.change()


WAYS: Final = (
    take_down,
    recreate_over_orphans,
    recreate_over_volumes,
    recreate_before_pods_go,
    recreate_twice,
    recreate_unseen,
    recreate_in_a_gap,
    spoil_an_event,
    spoil_the_downscale,
    spoil_the_end,
    lose_sight,
    lose_sight_of_pods,
    go_down_in_a_gap,
    come_without_the_label,
    leave_the_group_meanwhile,
    move_the_first_ordinal,
    first_show_it_unreadable,
)


@pytest.mark.parametrize("lose", [pytest.param(each, id=each.__name__) for each in WAYS])
def test_si02_what_a_zone_had_is_used_for_an_hour_whatever_happens_to_its_set(
    lose: Callable[[World], None],
) -> None:
    """SI-02, D-67, FP-13: its pods come back with their volumes, and other zones wait for them."""
    world = World(3, "lll")
    lose(world)
    world.remove_above(0)
    world.clock.jump(FORGOTTEN - MOMENT)
    world.scale(3)
    world.put(new(2, uid="another", owner_uid=world.sts.uid))

    assert world.used == 3


@pytest.mark.parametrize("lose", [pytest.param(each, id=each.__name__) for each in WAYS])
def test_d67_after_an_hour_an_upscale_of_the_same_set_adds_anew(
    lose: Callable[[World], None],
) -> None:
    world = World(3, "lll")
    lose(world)
    world.remove_above(0)
    world.clock.jump(FORGOTTEN)
    world.scale(3)
    world.put(new(2, uid="another", owner_uid=world.sts.uid))

    assert world.seen == (1, {"another"})


def miss_events(world: World) -> None:
    world.change(generation=3)


def spoil_events(world: World) -> None:
    world.spoil()
    world.change(generation=3)


def miss_specs_in_a_gap(world: World) -> None:
    world.list_changed(generation=3, gap=GAP)


def miss_specs_between_stream_and_list(world: World) -> None:
    world.list_changed(generation=3, gap=NO_GAP)


def go_back_to_a_backup(world: World) -> None:
    world.change(generation=0)


MISSES: Final = (
    miss_events,
    spoil_events,
    miss_specs_in_a_gap,
    miss_specs_between_stream_and_list,
    go_back_to_a_backup,
)


@pytest.mark.parametrize("miss", [pytest.param(each, id=each.__name__) for each in MISSES])
def test_si02_a_spec_that_was_missed_may_have_wanted_any_ordinal(
    miss: Callable[[World], None],
) -> None:
    """SI-02, FP-09: 1, 3 and 1 again, of which only the generation tells."""
    world = World(1, "l")
    miss(world)
    world.clock.jump(FORGOTTEN - MOMENT)
    world.change(replicas=3, generation=world.sts.generation + 1)

    assert world.used == 3


def test_si02_pods_without_a_set_keep_its_name_used_when_they_go() -> None:
    """Orphans of long ago: who deletes them may create their set again."""
    world = World(3, "lll")
    orphan(world)
    world.clock.jump(FORGOTTEN)
    for ordinal in (2, 1, 0):
        world.remove(ordinal)
    world.create(1)
    world.clock.jump(SETTLING)
    world.scale(4)

    assert world.used == 3


def test_si02_a_pod_of_the_name_that_the_set_does_not_own_may_hold_data() -> None:
    world = World(3, "lll")
    orphan(world)
    world.remove(0)
    world.clock.jump(FORGOTTEN)
    world.create(1)
    world.clock.jump(FORGOTTEN)
    world.scale(4)

    assert world.used == 3


def test_si02_one_that_goes_after_its_set_came_counts_for_an_hour() -> None:
    world = World(3, "lll")
    orphan(world)
    world.clock.jump(FORGOTTEN)
    world.create(1)
    world.clock.jump(FORGOTTEN)
    world.remove(2)
    world.clock.jump(FORGOTTEN - MOMENT)
    world.scale(4)

    assert world.used == 3


def test_si02_the_hour_begins_when_the_last_pod_of_a_downscale_has_gone() -> None:
    world = World(3, "lll")
    world.scale(1)
    world.clock.jump(FORGOTTEN - MOMENT)
    world.remove(2)
    world.clock.jump(FORGOTTEN - MOMENT)
    world.scale(3)

    assert world.used == 3


def test_d67_a_new_name_has_no_past() -> None:
    world = World(0)
    world.sts = replace(world.sts, name="zone-new")
    world.create(1)
    world.clock.jump(SETTLING)
    world.scale(3)

    assert world.used == 1


@pytest.mark.parametrize("wait", [NO_GAP, FORGOTTEN - MOMENT])
def test_si02_a_new_name_is_known_only_after_an_hour_without_a_gap(wait: timedelta) -> None:
    """A set of that name may have come and gone in the gap."""
    world = World(0)
    world.list_sets(world.sts, gap=GAP)
    world.clock.jump(wait)
    world.sts = replace(world.sts, name="zone-new")
    world.create(1)
    world.clock.jump(SETTLING)
    world.scale(3)

    assert world.used == 3


def test_si02_an_object_without_a_name_may_be_any_set() -> None:
    world = World(0)
    world.arrivals.on_set(None, unreadable("StatefulSet", ""))
    world.sts = replace(world.sts, name="zone-new")
    world.create(1)
    world.clock.jump(SETTLING)
    world.scale(3)

    assert world.used == 3


def test_si02_what_falls_out_of_the_memory_of_names_is_unknown() -> None:
    """Sec: a crowd of sets that are created and deleted neither grows it nor makes it forget."""
    world = World(3, "lll")
    recreate_over_volumes(world)
    world.delete()
    for number in range(MOST_NAMES):
        stranger = sts("b", 1, name=f"crowd-{number}", uid=f"crowd-{number}")
        world.arrivals.on_set(None, stranger)
        world.arrivals.on_set(stranger, None)
    world.create(1)
    world.clock.jump(SETTLING)
    world.scale(3)

    assert world.used == 3
