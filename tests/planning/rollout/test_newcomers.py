"""Pods that never were ready hold nothing, where that is known: D-67, D-26, SI-10, PREP-17."""

from datetime import timedelta
from typing import Final

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Decrease, Group, Newcomers, Target, Zone
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.planning.downscales import assess_neighbours, choose_pods_to_prepare
from rollout_operator.planning.readiness import count_used
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.scaling import plan_scaling
from tests.builders import group, outline, prev, unreadable, zone
from tests.planning.scalings import codes, counts, delayed, snapshot

TARGET: Final = Target(port=80, path="p", service="svc")


def crowded(base: Zone, *ordinals: int, new: bool = True, **changes: object) -> Zone:
    """Return the zone where these pods find no node; `new`: nothing came before them."""
    letter = base.sts.name[-1]
    names = {f"zone-{letter}-{ordinal}" for ordinal in ordinals}
    pending = {
        "phase": "Pending", "is_ready": False, "ip": "", "why_not_ready": "Unschedulable",
        **changes,
    }  # fmt: skip
    pods = [replace(one, **pending) if one.name in names else one for one in base.pods]
    ready = sum(one.is_ready for one in pods)
    sts = replace(base.sts, ready_replicas=ready, available_replicas=ready)
    whole = structs.replace(base, sts=sts, pods=tuple(pods))
    return seen(whole, min(ordinals), *ordinals) if new and ordinals else whole


def parallel(states: str, ready: int | None = None) -> Zone:
    return zone("a", states, ready=ready, is_ordered=False)


def seen(base: Zone, used: int, *ordinals: int, generation: int = 1, settles_in: int = 0) -> Zone:
    uids = frozenset(Uid(f"uid-{base.sts.name[-1]}-{ordinal}") for ordinal in ordinals)
    newcomers = Newcomers(
        used=used, generation=generation, pods=uids, settles_in=timedelta(seconds=settles_in)
    )
    return structs.replace(base, newcomers=newcomers)


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
            id="SI-10 a live read lacks one of them: it may have been ready since it was seen",
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
            structs.replace(
                seen(pending_two(), 3, 3, 4),
                unreadable_pods=(unreadable("Pod", "zone-a-4", owner="a"),),
            ), 5, id="one cannot be read",
        ),
        pytest.param(
            seen(structs.replace(
                pending_two(), sts=replace(parallel("lllll").sts, ready_replicas=4),
            ), 3, 3, 4), 5, id="SI-10 the status counts one more as ready",
        ),
    ],
)  # fmt: skip
def test_how_many_hold_something(case: Zone, used: int) -> None:
    assert count_used(case) == used


def decrease(to: int = 3) -> Decrease:
    return Decrease(
        resource="statefulsets", namespace="test", name="zone-a", replicas_from=5, replicas_to=to
    )


def five(letter: str, *ordinals: int, new: bool = True) -> Zone:
    return crowded(zone(letter, "lllll", is_ordered=False), *ordinals, new=new)


def settling(letter: str) -> Zone:
    return seen(five(letter, 3, 4, new=False), 3, 3, 4, settles_in=21)


def held(base: Zone) -> Zone:
    """Return the zone whose pods that are down were ready before."""
    pods = tuple(replace(pod, was_ready=not pod.is_ready) for pod in base.pods)
    return structs.replace(base, pods=pods)


SUCCESSORS: Final = five("b", 3, 4, new=False)
WAY_OUT: Final = (
    "if no pod of the range ever held anything, take the label grafana.com/prepare-downscale off"
    " zone-a for the moment"
)


@pytest.mark.parametrize(
    ("zones", "to", "status", "end"),
    [
        pytest.param(
            [five(one, 3, 4) for one in "abc"], 3, None, "",
            id="D-67 newcomers of all zones: 3 to 5 on all of them without room, and back",
        ),
        pytest.param(
            [five("a"), five("b", 3, 4)], 3, None, "",
            id="D-67 newcomers of another zone do not hold pods that are up",
        ),
        pytest.param(
            [five("a", 3, 4), five("b", 0, new=False)], 3, None, "",
            id="D-67 newcomers go though another zone is short",
        ),
        pytest.param(
            [five("a"), five("b", 3, new=False)], 3, 0, "1 non-ready replicas",
            id="PREP-17 a successor in another zone holds",
        ),
        pytest.param(
            [five("a", 3, 4, new=False), SUCCESSORS], 3, 403, f"2 non-ready replicas; {WAY_OUT}",
            id="D-67 where it is not known: the way out, and not the 429 that clients repeat",
        ),
        pytest.param(
            [five("a", 3, 4, new=False), SUCCESSORS], 2, 0, f"2 non-ready replicas; {WAY_OUT}",
            id="D-67 some of the range run: not 403, as the other zone may be whole again",
        ),
        pytest.param(
            [held(five("a")), SUCCESSORS], 3, 0, "2 non-ready replicas",
            id="PREP-17 all of them run: no way out",
        ),
        pytest.param(
            [held(five("a", 3, 4, new=False)), SUCCESSORS], 3, 0, "2 non-ready replicas",
            id="PREP-17 one was ready before: no way out",
        ),
        pytest.param(
            [settling("a"), settling("b")], 3, 429,
            "2 non-ready replicas; new replicas of zone-a and zone-b count as never used in about"
            " 30s",
            id="D-67 until they have settled: when",
        ),
    ],
)  # fmt: skip
def test_d67_what_newcomers_hold(zones: list[Zone], to: int, status: int | None, end: str) -> None:
    verdict = assess_neighbours(decrease(to), zones[0].sts, group(*zones), {})

    assert (None if verdict is None else verdict.code) == status
    if verdict is not None:
        assert verdict.reason.code is Code.OTHER_ZONE_NOT_READY
        assert verdict.reason.text.endswith(end)


ROLLING: Final = zone("a", "pppll", current="prev", is_ordered=False)


@pytest.mark.parametrize(
    ("base", "status", "end"),
    [
        pytest.param(crowded(ROLLING, 3, 4), None, "", id="D-67 newcomers: no pod is called"),
        pytest.param(
            seen(crowded(ROLLING, 3, 4, new=False), 3, 3, 4, settles_in=21), 429,
            "new replicas of zone-a count as never used in about 30s",
            id="D-67 time is all it takes",
        ),
        pytest.param(
            crowded(ROLLING, 3, 4, new=False), 403,
            "2 pods of the range may just be replaced: zone-a is being rolled out; if no pod before"
            " them held anything, pause it, or take the label grafana.com/prepare-downscale off"
            " zone-a",
            id="D-67 perhaps successors: the way out",
        ),
        pytest.param(
            crowded(zone("a", "pppll", current="prev"), 3, 4, new=False, is_starting=True), 429, "",
            id="D-26 one that may be starting is tried again",
        ),
    ],
)  # fmt: skip
def test_d67_a_rollout_beside_newcomers(base: Zone, status: int | None, end: str) -> None:
    plan = choose_pods_to_prepare(decrease(), base, TARGET, "cluster.local.")

    if isinstance(plan, Verdict):
        assert plan.code == status
        assert plan.reason.text.endswith(end)
    else:
        assert (plan.endpoints, status) == ((), None)


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
                "budget_used: zone-a: 2 pods left to update after this one (0 unavailable of 1"
                " allowed)",
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
            group(prev("a", "Ppp"), old("b", "lllpp", 3, 4, new=False)),
            [
                "replace in zone-a: 1 of broken [zone-a-0]",
                "replace in zone-b: 1 of broken [zone-b-3 zone-b-4]",
                "several_zones_not_ready: zone-a has 2 of 3 pods ready (zone-a-0:"
                " CrashLoopBackOff); zone-b has 3 of 5 pods ready (zone-b-3: Unschedulable and"
                " zone-b-4: Unschedulable)",
            ],
            id="D-88 an upscale at the bad revision keeps the good one from no zone",
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
                "budget_used: zone-b: 2 pods left to update after this one (0 unavailable of 1"
                " allowed)",
            ],
            id="D-67 a zone that is rolled out but for them lets the next one go on",
        ),
    ],
)
def test_rollouts(case: Group, expected: list[str]) -> None:
    assert outline(plan_group(case)) == expected


def pending(force: str | None = None, *, new: bool) -> Zone:
    return crowded(delayed("b", 5, force=force), 3, 4, new=new)


@pytest.mark.parametrize(
    ("base", "scale", "expected"),
    [
        pytest.param(pending(new=True), "3/5", ({"zone-b": 3}, []), id="D-67 newcomers: no say"),
        pytest.param(
            pending(new=False), "3/5", ({}, ["pod_gave_no_time zone-b"]), id="DELAY-07 successors"
        ),
        pytest.param(
            pending("3", new=False), "5/5", ({"zone-b": 3}, []),
            id="T-05 a person forces what waits for pods that do not run",
        ),
    ],
)  # fmt: skip
def test_d67_newcomers_in_a_delayed_downscale(
    base: Zone, scale: str, expected: tuple[dict[str, int], list[str]]
) -> None:
    """SI-09: what goes unreviewed goes for this version of the set only: a status that counts any
    of them as ready since then fails the write.
    """
    plan = plan_scaling(snapshot(base, scale=scale))

    assert (counts(plan), codes(plan)) == expected
    assert all(one.is_exact for one in plan.scale)


def test_d67_the_group_is_reconciled_again_when_they_have_settled() -> None:
    for plan in (
        plan_group(group(settling("a"))),
        plan_scaling(snapshot(settling("a"), scale="5/5")),
    ):
        assert plan.requeue_after == timedelta(seconds=21)
