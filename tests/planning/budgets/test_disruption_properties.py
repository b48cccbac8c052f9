"""What holds for every decision on a disruption, whatever the zones look like."""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Deletion, Pod, Zone
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets import (
    BudgetSnapshot,
    Decisions,
    Refusal,
    assess_disruption,
    compute_maximum,
)
from tests.planning.budget_oracle import expect_disruption
from tests.planning.disruption_snapshots import (
    REPEATABLE,
    any_snapshot,
    rules_of_partitions,
    rules_of_zones,
    snapshots,
    whole_worlds,
)
from tests.planning.disruptions import answer

pytestmark = pytest.mark.thorough

rngs = st.integers(0, 2**32).map(random.Random)


@REPEATABLE
@given(any_snapshot)
def test_it_decides_as_the_naive_count_does(case: BudgetSnapshot) -> None:
    """ZPDB-73..95, as a second hand has written them."""
    assert answer(case).removeprefix("429 ") == expect_disruption(case)


@REPEATABLE
@given(any_snapshot, rngs)
def test_d51_many_pods_get_the_answers_that_each_gets_alone(
    case: BudgetSnapshot, rng: random.Random
) -> None:
    """D-51: what one snapshot says of all pods of a zone is what it says of each."""
    pods = [pod for pod in _pods(case) if pod.owner_uid == case.owner]
    rng.shuffle(pods)
    decisions = Decisions(case)

    for pod in pods:
        alone = assess_disruption(structs.replace(case, pod=pod))
        assert decisions.assess(pod) == alone
        if alone is not None and alone.is_shared:
            others = [assess_disruption(structs.replace(case, pod=one)) for one in pods]
            assert {_reason(one) for one in others if one is not None and one.is_shared} == {
                _reason(alone)
            }


@REPEATABLE
@given(any_snapshot, rngs)
def test_the_order_of_zones_and_pods_does_not_matter(
    case: BudgetSnapshot, rng: random.Random
) -> None:
    zones = [
        structs.replace(
            zone,
            pods=tuple(_shuffled(zone.pods, rng)),
            unreadable_pods=tuple(rng.sample(zone.unreadable_pods, len(zone.unreadable_pods))),
        )
        for zone in case.zones
    ]
    rng.shuffle(zones)

    assert assess_disruption(structs.replace(case, zones=tuple(zones))) == (assess_disruption(case))


@REPEATABLE
@given(any_snapshot, st.sampled_from(["unready", "terminating", "gone", *Deletion]), rngs)
def test_a_refusal_stays_when_one_more_pod_goes_down(
    case: BudgetSnapshot, how: str, rng: random.Random
) -> None:
    before = assess_disruption(case)
    others = [pod for pod in _pods(case) if pod.uid != case.pod.uid and _is_desired(case, pod)]
    if before is None or not others:
        return
    after = assess_disruption(_take_down(case, rng.choice(others), how))

    assert after is not None
    assert (after.status, after.reason.code) == (before.status, before.reason.code)


@REPEATABLE
@given(any_snapshot)
def test_time_alone_does_what_a_refusal_says(case: BudgetSnapshot) -> None:
    """At the time of the next reconcile one pod fewer is down; before that, nothing has changed."""
    refusal = assess_disruption(case)
    if refusal is None or refusal.requeue_after is None:
        return
    moment = timedelta(microseconds=1)
    almost = structs.replace(case, now=case.now + refusal.requeue_after - moment)
    then = structs.replace(case, now=case.now + refusal.requeue_after)

    assert refusal.requeue_after > timedelta(0)
    assert _reason(assess_disruption(almost)) == _reason(refusal)
    assert _reason(assess_disruption(then)) != _reason(refusal)


@REPEATABLE
@given(any_snapshot)
def test_a_refusal_can_be_read(case: BudgetSnapshot) -> None:
    refusal = assess_disruption(case)
    if refusal is not None:
        text = refusal.reason.text
        assert text == text.strip()
        assert not text.endswith(".")
        assert "()" not in text
        assert text.endswith(f"; budget ingester: max unavailable {compute_maximum(case)}")
        assert len(text) < 400


@REPEATABLE
@given(whole_worlds(rules_of_zones), rngs)
def test_grants_stay_in_one_zone_and_within_its_budget(
    case: BudgetSnapshot, rng: random.Random
) -> None:
    """SI-01, SI-03, SI-04: however often and in whatever order requests come."""
    going = _grant_all(case, rng)

    zones = Counter(pod.owner_uid for pod in going)
    assert len(zones) == 1
    (taken,) = zones.values()
    assert taken == min(compute_maximum(case), len(case.zones[0].pods))


@REPEATABLE
@given(whole_worlds(rules_of_partitions()), rngs)
def test_grants_leave_each_partition_its_budget(case: BudgetSnapshot, rng: random.Random) -> None:
    """SI-05, ZPDB-93: all partitions reach their budget, and none of them crosses it."""
    partitions = Counter(_partition(pod) for pod in _grant_all(case, rng))

    most = min(case.budget.max_unavailable, len(case.zones))
    assert set(partitions) == {_partition(pod) for pod in _pods(case)}
    assert set(partitions.values()) == {most}


@REPEATABLE
@given(snapshots(rules_of_partitions()), rngs)
def test_partitions_do_not_block_each_other(case: BudgetSnapshot, rng: random.Random) -> None:
    """ZPDB-93: pods of other partitions may be in whatever state, as long as they are there."""
    others = [pod for pod in _pods(case) if _partition(pod) != _partition(case.pod)]
    changed = case
    for pod in others:
        how = rng.choice(["unready", "terminating", *Deletion])
        changed = _take_down(changed, pod, how)

    assert answer(changed) == answer(case)


@REPEATABLE
@given(any_snapshot)
def test_a_rollout_may_do_what_an_eviction_may(case: BudgetSnapshot) -> None:
    """And what is refused to it alone is nothing."""
    eviction = assess_disruption(structs.replace(case, engine=DisruptionSource.EVICTION))
    rollout = assess_disruption(structs.replace(case, engine=DisruptionSource.ROLLOUT))

    assert rollout in (None, eviction)
    if rollout is None and eviction is not None:
        assert eviction.reason.code is Code.DISRUPTION_BUDGET_USED
        assert not case.pod.is_ready


def _grant_all(case: BudgetSnapshot, rng: random.Random) -> list[Pod]:
    """Request all pods, again and again, and return those that may go."""
    going: dict[Uid, Pod] = {}
    for pod in [*_shuffled(_pods(case), rng), *_shuffled(_pods(case), rng)]:
        requested = structs.replace(
            case,
            pod=pod,
            owner=Uid(str(pod.owner_uid)),
            deletions=dict.fromkeys(going, Deletion.GRANTED),
        )
        if assess_disruption(requested) is None:
            going[pod.uid] = pod
    return list(going.values())


def _shuffled(pods: Sequence[Pod], rng: random.Random) -> list[Pod]:
    return rng.sample(pods, len(pods))


def _pods(case: BudgetSnapshot) -> list[Pod]:
    return [pod for zone in case.zones for pod in zone.pods if pod.owner_uid == zone.sts.uid]


def _partition(pod: Pod) -> str:
    return pod.name.rsplit("-", 1)[1]


def _is_desired(case: BudgetSnapshot, pod: Pod) -> bool:
    """Return whether the pod is wanted, and the only one of its name."""
    (sts,) = [zone.sts for zone in case.zones if zone.sts.uid == pod.owner_uid]
    same = [one for one in _pods(case) if one.name == pod.name]
    return sts.ordinal_of(pod.name) in sts.ordinals and len(same) == 1


def _take_down(case: BudgetSnapshot, pod: Pod, how: str) -> BudgetSnapshot:
    if isinstance(how, Deletion):
        return structs.replace(case, deletions={**case.deletions, pod.uid: how})
    changed = {
        "unready": (replace(pod, is_ready=False, ready_since=None),),
        "terminating": (replace(pod, is_ready=False, is_terminating=True),),
        "gone": (),
    }[how]
    return structs.replace(case, zones=tuple(_exchange(zone, pod, changed) for zone in case.zones))


def _exchange(zone: Zone, pod: Pod, changed: tuple[Pod, ...]) -> Zone:
    if all(one.uid != pod.uid for one in zone.pods):
        return zone
    rest = tuple(one for one in zone.pods if one.uid != pod.uid)
    return structs.replace(zone, pods=(*rest, *changed))


def _reason(refusal: Refusal | None) -> object:
    return None if refusal is None else refusal.reason
