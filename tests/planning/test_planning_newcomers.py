"""Pods that never were ready hold nothing, where that is known: D-67, D-26, SI-10, PREP-17."""

import dataclasses
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.downscale import Decrease, Target
from rollout_operator.model.group import Group, Newcomers, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.planning.downscale import (
    PreparePods,
    assess_neighbours,
    choose_pods_to_prepare,
)
from rollout_operator.planning.group import plan_group
from rollout_operator.planning.newcomers import count_used
from rollout_operator.planning.replicas import plan_scaling
from tests.builders import group, outline, prev, unreadable, zone
from tests.planning.scalings import codes, counts, delayed, view

TARGET: Final = Target(port=80, path="p", service="svc")


def crowded(base: Zone, *ordinals: int, marked: bool = True, **changes: object) -> Zone:
    """Return the zone where these pods find no node; `marked`: nothing came before them."""
    letter = base.sts.name[-1]
    names = {f"zone-{letter}-{ordinal}" for ordinal in ordinals}
    pending = {
        "phase": "Pending", "is_ready": False, "ip": "", "trouble": "Unschedulable",
        "is_newcomer": marked, **changes,
    }  # fmt: skip
    pods = [replace(one, **pending) if one.name in names else one for one in base.pods]
    ready = sum(one.is_ready for one in pods)
    sts = replace(base.sts, ready_replicas=ready, available_replicas=ready)
    uids = frozenset(one.uid for one in pods if one.name in names and marked)
    believed = Newcomers(used=base.sts.replicas, marked=uids)
    return dataclasses.replace(base, sts=sts, pods=tuple(pods), newcomers=believed)


def parallel(states: str, ready: int | None = None) -> Zone:
    return zone("a", states, ready=ready, is_ordered=False)


def seen(base: Zone, used: int, *ordinals: int) -> Zone:
    uids = frozenset(Uid(f"uid-a-{ordinal}") for ordinal in ordinals)
    marked = base.newcomers.marked if base.newcomers is not None else frozenset()
    return dataclasses.replace(base, newcomers=Newcomers(used=used, pods=uids, marked=marked))


@pytest.mark.parametrize(
    ("case", "used"),
    [
        pytest.param(parallel("lllll"), 5, id="all are up"),
        pytest.param(crowded(parallel("lllll"), 3, 4), 3, id="D-67 two carry their mark"),
        pytest.param(
            dataclasses.replace(
                crowded(parallel("lllll"), 3, 4), newcomers=Newcomers(used=5)
            ), 5,
            id="SI-01 SI-10 two carry a mark that anybody may have written meanwhile",
        ),
        pytest.param(
            crowded(parallel("lllll"), 3, 4, marked=False), 5,
            id="SI-10 Pending alone proves nothing: they may be successors",
        ),
        pytest.param(
            seen(crowded(parallel("lllll"), 3, 4, marked=False), 3, 3, 4, 5), 5,
            id="SI-10 a live look lacks one of them: it may have been ready since it was seen",
        ),
        pytest.param(
            seen(crowded(parallel("lllll"), 3, 4, marked=False), 3, 3, 4), 3,
            id="D-67 this process saw them come",
        ),
        pytest.param(
            seen(crowded(parallel("lllll"), 3, 4, marked=False), 3, 3), 5,
            id="SI-10 one came that this process did not see",
        ),
        pytest.param(
            crowded(parallel("lllll"), 3, 4, was_ready=True), 5, id="SI-10 they have been ready",
        ),
        pytest.param(
            crowded(parallel("lllll"), 3, 4, ip="10.0.0.9"), 5,
            id="SI-10 phase Pending again after a restart of the node",
        ),
        pytest.param(
            crowded(parallel("lllll"), 3, 4, phase="Running", never_ready=True), 3,
            id="D-26 they run and crash, and never were ready",
        ),
        pytest.param(crowded(parallel("lllll"), 3), 5, id="one above it is up"),
        pytest.param(crowded(parallel("lllll"), 2, 4), 4, id="one in between is up"),
        pytest.param(
            crowded(parallel("llll-"), 3), 5,
            id="SI-10 what is absent in a parallel set may just have been deleted",
        ),
        pytest.param(seen(parallel("lll--", ready=3), 3), 3, id="D-67 a quota forbids them"),
        pytest.param(
            crowded(zone("a", "llll-"), 3), 3,
            id="D-67 in an ordered set no pod is created above one that never was ready",
        ),
        pytest.param(
            zone("a", "lll--", ready=3), 5, id="SI-10 no pod is there to tell that none was",
        ),
        pytest.param(
            dataclasses.replace(
                crowded(parallel("lllll"), 3, 4),
                unreadable_pods=(unreadable("Pod", "zone-a-4", owner="a"),),
            ), 5, id="one cannot be read",
        ),
        pytest.param(
            dataclasses.replace(
                crowded(parallel("lllll"), 3, 4),
                sts=replace(parallel("lllll").sts, ready_replicas=4),
            ), 5, id="SI-10 the status counts one more as ready",
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


def five(letter: str, *ordinals: int, marked: bool = True) -> Zone:
    return crowded(zone(letter, "lllll", is_ordered=False), *ordinals, marked=marked)


def test_d67_newcomers_of_all_zones_hold_no_downscale() -> None:
    """3 -> 5 on all zones without room, and back."""
    assert neighbours(group(five("a", 3, 4), five("b", 3, 4), five("c", 3, 4))) is None


def test_d67_newcomers_of_another_zone_do_not_hold_pods_that_are_up() -> None:
    assert neighbours(group(five("a"), five("b", 3, 4))) is None


def test_prep17_a_successor_in_another_zone_does() -> None:
    verdict = neighbours(group(five("a"), five("b", 3, marked=False)))

    assert verdict is not None
    assert verdict.reason.code is Code.OTHER_ZONE_NOT_READY


def test_d67_newcomers_go_though_another_zone_is_short() -> None:
    assert neighbours(group(five("a", 3, 4), five("b", 0, marked=False))) is None


def test_d67_where_it_is_not_known_a_person_is_told_the_way_out() -> None:
    """403, and not the 429 that clients repeat for ever."""
    verdict = neighbours(group(five("a", 3, 4, marked=False), five("b", 3, 4, marked=False)))

    assert verdict is not None
    assert verdict.code == 403
    assert verdict.reason.text.endswith(
        "statefulset zone-b has 0 non-updated replicas and 2 non-ready replicas; if no pod of the "
        "range ever held anything, take the label grafana.com/prepare-downscale off zone-a for the "
        "moment"
    )


def rolling(*, marked: bool) -> Zone:
    base = zone("a", "pppll", current="prev", is_ordered=False)
    return crowded(base, 3, 4, marked=marked)


def test_d67_a_rollout_holds_no_downscale_of_newcomers() -> None:
    plan = choose_pods_to_prepare(decrease(), rolling(marked=True), TARGET, "cluster.local.")

    assert isinstance(plan, PreparePods)
    assert plan.endpoints == ()


def test_d67_a_rollout_that_waits_for_perhaps_successors_is_told_with_the_way_out() -> None:
    plan = choose_pods_to_prepare(decrease(), rolling(marked=False), TARGET, "cluster.local.")

    assert isinstance(plan, Verdict)
    assert plan.code == 403
    assert plan.reason.text.endswith(
        "2 pods of the range may just be replaced: zone-a is being rolled out; if no pod before "
        "them held anything, pause it, or take the label grafana.com/prepare-downscale off zone-a"
    )


def test_d26_one_that_may_be_starting_is_tried_again() -> None:
    base = crowded(zone("a", "pppll", current="prev"), 3, 4, marked=False, trouble="phase Pending")
    plan = choose_pods_to_prepare(decrease(), base, TARGET, "cluster.local.")

    assert isinstance(plan, Verdict)
    assert plan.code == 429


def old(letter: str, states: str, *ordinals: int, marked: bool = True) -> Zone:
    base = prev(letter, states, is_ordered=False)
    return crowded(base, *ordinals, marked=marked)


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
            group(old("a", "pppll", 3, 4, marked=False), old("b", "pppll", 3, 4, marked=False)),
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


def pending(base: Zone, *, marked: bool) -> Zone:
    return crowded(base, 3, 4, marked=marked)


def test_d67_newcomers_have_no_say_in_a_delayed_downscale() -> None:
    plan = plan_scaling(view(pending(delayed("b", 5), marked=True), scale="3/5"))

    assert (counts(plan), codes(plan)) == ({"zone-b": 3}, [])


def test_delay07_successors_have() -> None:
    plan = plan_scaling(view(pending(delayed("b", 5), marked=False), scale="3/5"))

    assert (counts(plan), codes(plan)) == ({}, ["pod_gave_no_time zone-b"])


def test_a_person_forces_what_waits_for_pods_that_do_not_run() -> None:
    """Those that run keep their time: T-05, 11 and 12."""
    plan = plan_scaling(view(pending(delayed("b", 5, force="3"), marked=False), scale="5/5"))

    assert (counts(plan), codes(plan)) == ({"zone-b": 3}, [])
