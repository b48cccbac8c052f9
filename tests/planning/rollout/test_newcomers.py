"""Pods that never were ready hold nothing, where that is known: D-67, D-26, SI-10, PREP-17."""

import dataclasses
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.downscale import Decrease, Target
from rollout_operator.model.group import Group, Newcomers, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.planning.downscales.rule import (
    PreparePods,
    assess_neighbours,
    choose_pods_to_prepare,
)
from rollout_operator.planning.rollout.newcomers import count_used
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.builders import group, outline, prev, unreadable, zone
from tests.planning.scalings import codes, counts, delayed, view

TARGET: Final = Target(port=80, path="p", service="svc")


def crowded(base: Zone, *ordinals: int, new: bool = True, **changes: object) -> Zone:
    """Return the zone where these pods find no node; `new`: nothing came before them."""
    letter = base.sts.name[-1]
    names = {f"zone-{letter}-{ordinal}" for ordinal in ordinals}
    pending = {
        "phase": "Pending", "is_ready": False, "ip": "", "trouble": "Unschedulable", **changes,
    }  # fmt: skip
    pods = [replace(one, **pending) if one.name in names else one for one in base.pods]
    ready = sum(one.is_ready for one in pods)
    sts = replace(base.sts, ready_replicas=ready, available_replicas=ready)
    whole = dataclasses.replace(base, sts=sts, pods=tuple(pods))
    return seen(whole, min(ordinals), *ordinals) if new and ordinals else whole


def parallel(states: str, ready: int | None = None) -> Zone:
    return zone("a", states, ready=ready, is_ordered=False)


def seen(base: Zone, used: int, *ordinals: int, generation: int = 1, settles_in: int = 0) -> Zone:
    uids = frozenset(Uid(f"uid-{base.sts.name[-1]}-{ordinal}") for ordinal in ordinals)
    newcomers = Newcomers(
        used=used, generation=generation, pods=uids, settles_in=timedelta(seconds=settles_in)
    )
    return dataclasses.replace(base, newcomers=newcomers)


def pending_two(**changes: object) -> Zone:
    return crowded(parallel("lllll"), 3, 4, new=False, **changes)


@pytest.mark.parametrize(
    ("case", "used"),
    [
        pytest.param(parallel("lllll"), 5, id="all are up"),
        pytest.param(
            pending_two(), 5, id="SI-10 Pending alone proves nothing: they may be successors"
        ),
        pytest.param(seen(pending_two(), 3, 3, 4), 3, id="D-67 this process saw them come"),
        pytest.param(
            seen(pending_two(), 3, 3, 4, settles_in=1), 5,
            id="SI-10 until a moment ago something came or went there",
        ),
        pytest.param(
            seen(pending_two(), 3, 3, 4, generation=2), 5,
            id="SI-10 the spec has changed since what was seen last",
        ),
        pytest.param(
            seen(pending_two(), 3, 3, 4, 5), 5,
            id="SI-10 a live look lacks one of them: it may have been ready since it was seen",
        ),
        pytest.param(
            seen(pending_two(), 3, 3), 5, id="SI-10 one came that this process did not see"
        ),
        pytest.param(
            seen(pending_two(was_ready=True), 3, 3, 4), 5, id="SI-10 they have been ready"
        ),
        pytest.param(
            seen(pending_two(is_terminating=True), 3, 3, 4), 5, id="SI-10 they are on their way out"
        ),
        pytest.param(
            seen(pending_two(phase="Running", never_ready=True), 3, 3, 4), 3,
            id="D-26 they run and crash, and never were ready",
        ),
        pytest.param(seen(parallel("llllL", ready=4), 3, 3, 4), 4, id="SI-10 one is ready now"),
        pytest.param(seen(parallel("lllLl", ready=4), 3, 3, 4), 5, id="SI-10 one above it is up"),
        pytest.param(seen(parallel("lll--", ready=3), 3), 3, id="D-67 a quota forbids them"),
        pytest.param(parallel("lll--", ready=3), 5, id="SI-10 absence alone proves nothing"),
        pytest.param(
            dataclasses.replace(
                seen(pending_two(), 3, 3, 4),
                unreadable_pods=(unreadable("Pod", "zone-a-4", owner="a"),),
            ), 5, id="one cannot be read",
        ),
        pytest.param(
            seen(dataclasses.replace(
                pending_two(), sts=replace(parallel("lllll").sts, ready_replicas=4),
            ), 3, 3, 4), 5, id="SI-10 the status counts one more as ready",
        ),
    ],
)  # fmt: skip
def test_how_many_hold_something(case: Zone, used: int) -> None:
    assert count_used(case) == used


def decrease(letter: str = "a") -> Decrease:
    return Decrease(
        resource="statefulsets", namespace="test", name=f"zone-{letter}",
        replicas_from=5, replicas_to=3,
    )  # fmt: skip


def neighbours(case: Group) -> Verdict | None:
    return assess_neighbours(decrease(), case.zones[0].sts, case, {})


def five(letter: str, *ordinals: int, new: bool = True) -> Zone:
    return crowded(zone(letter, "lllll", is_ordered=False), *ordinals, new=new)


def test_d67_newcomers_of_all_zones_hold_no_downscale() -> None:
    """3 -> 5 on all zones without room, and back."""
    assert neighbours(group(five("a", 3, 4), five("b", 3, 4), five("c", 3, 4))) is None


def test_d67_newcomers_of_another_zone_do_not_hold_pods_that_are_up() -> None:
    assert neighbours(group(five("a"), five("b", 3, 4))) is None


def test_prep17_a_successor_in_another_zone_does() -> None:
    verdict = neighbours(group(five("a"), five("b", 3, new=False)))

    assert verdict is not None
    assert verdict.reason.code is Code.OTHER_ZONE_NOT_READY


def test_d67_newcomers_go_though_another_zone_is_short() -> None:
    assert neighbours(group(five("a", 3, 4), five("b", 0, new=False))) is None


def test_d67_where_it_is_not_known_a_person_is_told_the_way_out() -> None:
    """403, and not the 429 that clients repeat for ever."""
    verdict = neighbours(group(five("a", 3, 4, new=False), five("b", 3, 4, new=False)))

    assert verdict is not None
    assert verdict.code == 403
    assert verdict.reason.text.endswith(
        "statefulset zone-b has 0 non-updated replicas and 2 non-ready replicas; if no pod of the "
        "range ever held anything, take the label grafana.com/prepare-downscale off zone-a for the "
        "moment"
    )


def test_d67_a_range_of_some_that_run_is_told_the_way_out_in_the_same_words() -> None:
    """D-67: 3 and 4 have no room, 2 runs. Not 403: the other zone may be whole again."""
    crowd = group(five("a", 3, 4, new=False), five("b", 3, 4, new=False))
    alone = neighbours(crowd)
    more = dataclasses.replace(decrease(), replicas_to=2)
    mixed = assess_neighbours(more, crowd.zones[0].sts, crowd, {})

    assert alone is not None
    assert mixed is not None
    _, way_out = alone.reason.text.split("; ")
    assert mixed.reason.text.endswith(f"; {way_out}")
    assert (alone.code == 403, mixed.code == 403) == (True, False)


@pytest.mark.parametrize("crowd", [five("a"), five("a", 3, 4, new=False)], ids=["run", "ran"])
def test_prep17_pods_that_hold_something_have_no_such_way_out(crowd: Zone) -> None:
    """PREP-17: all of them run, or one does not and was ready before."""
    held = [replace(pod, was_ready=not pod.is_ready) for pod in crowd.pods]
    verdict = neighbours(
        group(dataclasses.replace(crowd, pods=tuple(held)), five("b", 3, 4, new=False))
    )

    assert verdict is not None
    assert "the label" not in verdict.reason.text


def test_d67_until_they_have_settled_clients_are_told_when() -> None:
    """429, for about so long: time alone changes the answer."""
    crowd = [seen(five(letter, 3, 4, new=False), 3, 3, 4, settles_in=21) for letter in "ab"]
    verdict = neighbours(group(*crowd))

    assert verdict is not None
    assert verdict.code == 429
    assert verdict.reason.text.endswith(
        "2 non-ready replicas; new replicas of zone-a and zone-b count as never used in about 30s"
    )


def test_d67_a_rollout_waits_for_time_where_that_is_all_it_takes() -> None:
    base = seen(rolling(new=False), 3, 3, 4, settles_in=21)
    plan = choose_pods_to_prepare(decrease(), base, TARGET, "cluster.local.")

    assert isinstance(plan, Verdict)
    assert plan.code == 429
    assert plan.reason.text.endswith("new replicas of zone-a count as never used in about 30s")


def rolling(*, new: bool) -> Zone:
    base = zone("a", "pppll", current="prev", is_ordered=False)
    return crowded(base, 3, 4, new=new)


def test_d67_a_rollout_holds_no_downscale_of_newcomers() -> None:
    plan = choose_pods_to_prepare(decrease(), rolling(new=True), TARGET, "cluster.local.")

    assert isinstance(plan, PreparePods)
    assert plan.endpoints == ()


def test_d67_a_rollout_that_waits_for_perhaps_successors_is_told_with_the_way_out() -> None:
    plan = choose_pods_to_prepare(decrease(), rolling(new=False), TARGET, "cluster.local.")

    assert isinstance(plan, Verdict)
    assert plan.code == 403
    assert plan.reason.text.endswith(
        "2 pods of the range may just be replaced: zone-a is being rolled out; if no pod before "
        "them held anything, pause it, or take the label grafana.com/prepare-downscale off zone-a"
    )


def test_d26_one_that_may_be_starting_is_tried_again() -> None:
    base = crowded(zone("a", "pppll", current="prev"), 3, 4, new=False, is_starting=True)
    plan = choose_pods_to_prepare(decrease(), base, TARGET, "cluster.local.")

    assert isinstance(plan, Verdict)
    assert plan.code == 429


def old(letter: str, states: str, *ordinals: int, new: bool = True) -> Zone:
    base = prev(letter, states, is_ordered=False)
    return crowded(base, *ordinals, new=new)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(
            group(old("a", "pppll", 3, 4), old("b", "pppll", 3, 4)),
            [
                "replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]",
                "budget_used: zone-a: 2 outdated pods wait: 0 unavailable of 1 allowed, 1 going"
                " now",
                "another_zone_first: zone-b waits for zone-a",
            ],
            id="D-67 newcomers of several zones stop no rollout, and use no budget",
        ),
        pytest.param(
            group(old("a", "pppll", 3, 4, new=False), old("b", "pppll", 3, 4, new=False)),
            [
                "several_zones_not_ready: zone-a has 3 of 5 pods ready (zone-a-3: Unschedulable and"
                " zone-a-4: Unschedulable); zone-b has 3 of 5 pods ready (zone-b-3: Unschedulable"
                " and zone-b-4: Unschedulable)"
            ],
            id="SI-02 what may be successors does",
        ),
        pytest.param(
            group(old("a", "lllpp", 3, 4), old("b", "lll")),
            [
                "replace in zone-a: 2 of broken [zone-a-3 zone-a-4]",
                "another_zone_first: zone-b waits for zone-a",
            ],
            id="D-67 the rollout that would replace them does so at once",
        ),
        pytest.param(
            group(old("a", "lllll", 3, 4), old("b", "ppp")),
            [
                "replace in zone-b: 1 of [zone-b-0 zone-b-1 zone-b-2]",
                "zone_not_ready: zone-a has 3 of 5 pods ready (zone-a-3: Unschedulable and"
                " zone-a-4: Unschedulable)",
                "budget_used: zone-b: 2 outdated pods wait: 0 unavailable of 1 allowed, 1 going"
                " now",
            ],
            id="D-67 a zone that is rolled out but for them lets the next one go on",
        ),
    ],
)
def test_rollouts(case: Group, expected: list[str]) -> None:
    assert outline(plan_group(case)) == expected


def pending(base: Zone, *, new: bool) -> Zone:
    return crowded(base, 3, 4, new=new)


def test_d67_newcomers_have_no_say_in_a_delayed_downscale() -> None:
    plan = plan_scaling(view(pending(delayed("b", 5), new=True), scale="3/5"))

    assert (counts(plan), codes(plan)) == ({"zone-b": 3}, [])


def test_delay07_successors_have() -> None:
    plan = plan_scaling(view(pending(delayed("b", 5), new=False), scale="3/5"))

    assert (counts(plan), codes(plan)) == ({}, ["pod_gave_no_time zone-b"])


def test_a_person_forces_what_waits_for_pods_that_do_not_run() -> None:
    """Those that run keep their time: T-05 rows 11 and 12."""
    plan = plan_scaling(view(pending(delayed("b", 5, force="3"), new=False), scale="5/5"))

    assert (counts(plan), codes(plan)) == ({"zone-b": 3}, [])


def test_si09_what_goes_unasked_goes_for_this_version_of_the_set_only() -> None:
    """A status that counts one of them as ready since then fails the write."""
    newcomers = plan_scaling(view(pending(delayed("b", 5), new=True), scale="3/5"))
    forced = plan_scaling(view(pending(delayed("b", 5, force="3"), new=False), scale="5/5"))

    assert [one.is_exact for one in (*newcomers.scale, *forced.scale)] == [True, True]


def test_d67_the_group_is_looked_at_again_when_they_have_settled() -> None:
    base = seen(five("a", 3, 4, new=False), 3, 3, 4, settles_in=21)

    assert plan_group(group(base)).look_again == timedelta(seconds=21)
    assert plan_scaling(view(base, scale="5/5")).look_again == timedelta(seconds=21)
