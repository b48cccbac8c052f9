"""What holds for every decision on a disruption, whatever the zones look like.

An oracle says what a budget allows once more and naively, pod by pod and name by name (ZPDB-73 to
95). It knows only the rules of counting, none of the obstacles before them; partitions are the last
number of a name.
"""

import random
from collections import Counter
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, DisruptionSource
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
from tests.builders import NOW, shuffled
from tests.examples import repeatable
from tests.planning.disruptions import answer, budget, by_partition, ingesters, member

pytestmark = pytest.mark.thorough

REPEATABLE: Final = repeatable(300)

# Not the ends of the range: those are drawn more often than others.
rarely = st.integers(0, 9).map(lambda number: number == 6)
seldom = st.integers(0, 4).map(lambda number: number == 3)
states = st.text("lllllllNLTu-", min_size=1, max_size=4)
engines = st.sampled_from([*[DisruptionSource.EVICTION] * 2, DisruptionSource.ROLLOUT])
whole_states = st.text("l", min_size=1, max_size=4)
# Mostly long enough ago for everything.
ages = st.sampled_from(
    [None, *(NOW - timedelta(seconds=one) for one in [*[3600] * 9, -1, 0, 29, 30, 31, 60, 61])]
)


@st.composite
def zones(draw: st.DrawFn, letter: str) -> Zone:
    """Draw a zone: mostly whole, with stray pods and counts that do not fit now and then."""
    pods = draw(states if draw(seldom) else whole_states)
    replicas = max(len(pods) + (draw(st.integers(-1, 1)) if draw(rarely) else 0), 0)
    zone = ingesters(
        letter,
        pods,
        replicas=replicas,
        status_replicas=max(replicas + (draw(st.integers(-2, 1)) if draw(rarely) else 0), 0),
        first_ordinal=1 if draw(rarely) else 0,
        min_ready_seconds=draw(st.sampled_from([0, 0, 30])),
    )
    aged = [replace(pod, ready_since=draw(ages)) if pod.is_ready else pod for pod in zone.pods]
    if draw(rarely):
        aged.append(member(letter, 2, "L", uid=Uid(f"stray-{letter}"), owner_uid=Uid("stranger")))
    if draw(rarely):
        aged.append(member(letter, 0, draw(st.sampled_from("lT")), uid=Uid(f"double-{letter}")))
    return replace(zone, pods=tuple(aged))


rules_of_zones = st.one_of(
    st.integers(1, 3).map(budget),
    st.integers(1, 100).map(lambda share: budget(0, percentage=share)),
)


@st.composite
def rules_of_partitions(draw: st.DrawFn) -> Budget:
    return by_partition(
        draw(st.integers(1, 3)),
        delay=timedelta(seconds=draw(st.sampled_from([0, 30, 60]))),
        forgives_absent_peers=draw(st.booleans()),
    )


@st.composite
def snapshots(draw: st.DrawFn, rules: st.SearchStrategy[Budget]) -> BudgetSnapshot:
    """Draw a question that gets as far as counting."""
    known = tuple(draw(zones(letter)) for letter in draw(st.sampled_from(["ab", "abc", "abcd"])))
    pods = [pod for zone in known for pod in zone.pods if pod.owner_uid == zone.sts.uid]
    going = draw(st.sampled_from(pods)) if pods else member("a", 0)
    gone = draw(st.lists(st.sampled_from([*pods, going]), max_size=2)) if draw(rarely) else []
    return BudgetSnapshot(
        budget=draw(rules),
        pod=going,
        owner=Uid(str(going.owner_uid)),
        zones=tuple(draw(st.permutations(known))),
        now=NOW,
        deletions={pod.uid: draw(st.sampled_from(Deletion)) for pod in gone},
        engine=draw(engines),
        # A share of nothing is 0; the obstacle that this is has tests of its own.
        override=1,
    )


any_snapshot = st.one_of(snapshots(rules_of_zones), snapshots(rules_of_partitions()))


@st.composite
def whole_worlds(draw: st.DrawFn, rules: st.SearchStrategy[Budget]) -> BudgetSnapshot:
    """Draw a question about zones in which nothing is missing, all of the same size."""
    letters, pods = draw(st.sampled_from(["ab", "abc"])), draw(st.integers(1, 4))
    known = tuple(ingesters(letter, "l" * pods) for letter in letters)
    return BudgetSnapshot(
        budget=draw(rules),
        pod=known[0].pods[0],
        owner=known[0].sts.uid,
        zones=known,
        now=NOW,
        deletions={},
    )


# The oracle


def expect_disruption(snapshot: BudgetSnapshot) -> str:
    """Return `allow`, or the numbers and the place of the refusal."""
    is_rollout = snapshot.engine is DisruptionSource.ROLLOUT
    if is_rollout and not snapshot.pod.is_ready and not snapshot.pod.is_terminating:
        return "allow"
    most = _find_maximum(snapshot)
    if snapshot.budget.pattern:
        partition = _number(snapshot.pod)
        others = [zone for zone in snapshot.zones if zone.sts.uid != snapshot.owner]
        counts = [_count(snapshot, zone, partition) for zone in others]
        not_ready, unknown = (sum(part) for part in zip((0, 0), *counts, strict=True))
        is_full = not_ready + unknown >= most
        return _text(not_ready, unknown, f"partition {partition}") if is_full else "allow"
    for zone in sorted(snapshot.zones, key=lambda zone: zone.sts.name):
        not_ready, unknown = _count(snapshot, zone)
        if not_ready + unknown >= (most if zone.sts.uid == snapshot.owner else 1):
            return _text(not_ready, unknown, zone.sts.name)
    return "allow"


def _find_maximum(snapshot: BudgetSnapshot) -> int:
    share = snapshot.budget.percentage
    if share is None:
        return snapshot.budget.max_unavailable or snapshot.override
    (sts,) = [zone.sts for zone in snapshot.zones if zone.sts.uid == snapshot.owner]
    pods = min(sts.replicas, sts.status_replicas)
    if share == 0 or pods == 0:
        return snapshot.override
    return max(1, int(share * pods / 100 + 1e-9))


def _count(snapshot: BudgetSnapshot, zone: Zone, partition: str = "") -> tuple[int, int]:
    """Return how many pods of a zone, or of a partition in it, are not ready, and unknown."""

    def count(names: list[str]) -> int:
        return sum(not partition or name.endswith(f"-{partition}") for name in names)

    sts, pods = zone.sts, _list_owned(zone)
    lost = [one.name for one in zone.unreadable_pods]
    there = [*(pod.name for pod in pods), *lost]
    wanted = [f"{sts.name}-{sts.first_ordinal + at}" for at in range(sts.replicas)]
    absent = [name for name in wanted if name not in there]
    down = [pod.name for pod in pods if _is_down(snapshot, zone, pod)]
    nameless = max(max(sts.replicas, sts.status_replicas) - len(there) - len(absent), 0)
    unknown = nameless + count(absent)
    if partition and not count(there) and not unknown:
        unknown = 0 if snapshot.budget.forgives_absent_peers else 1
    return count([*lost, *down]), unknown


def _list_owned(zone: Zone) -> list[Pod]:
    return [pod for pod in zone.pods if pod.owner_uid == zone.sts.uid]


def _is_down(snapshot: BudgetSnapshot, zone: Zone, pod: Pod) -> bool:
    if pod.uid == snapshot.pod.uid:
        return False
    if pod.is_terminating or not pod.is_ready or pod.uid in snapshot.deletions:
        return True
    age = None if pod.ready_since is None else snapshot.now - pod.ready_since
    patience = timedelta(seconds=zone.sts.min_ready_seconds)
    if patience and (age is None or age < patience):
        return True
    delay = snapshot.budget.delay if snapshot.budget.pattern else timedelta(0)
    return bool(delay) and (age is None or age <= delay)


def _number(pod: Pod) -> str:
    return pod.name.rsplit("-", 1)[1]


def _text(not_ready: int, unknown: int, place: str) -> str:
    parts = []
    if not_ready:
        parts.append(f"{not_ready} pod{'s' if not_ready > 1 else ''} not ready")
    if unknown:
        parts.append(f"{unknown} pod{'s' if unknown > 1 else ''} unknown")
    return f"{', '.join(parts)} in {place}"


# The properties

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
        alone = assess_disruption(replace(case, pod=pod))
        assert decisions.assess(pod) == alone
        if alone is not None and alone.is_shared:
            others = [assess_disruption(replace(case, pod=one)) for one in pods]
            assert {_reason(one) for one in others if one is not None and one.is_shared} == {
                _reason(alone)
            }


@REPEATABLE
@given(any_snapshot, rngs)
def test_the_order_of_zones_and_pods_does_not_matter(
    case: BudgetSnapshot, rng: random.Random
) -> None:
    other = replace(case, zones=shuffled(case.zones, rng))
    assert assess_disruption(other) == assess_disruption(case)


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
    almost = replace(case, now=case.now + refusal.requeue_after - moment)
    then = replace(case, now=case.now + refusal.requeue_after)

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
    partitions = Counter(_number(pod) for pod in _grant_all(case, rng))

    most = min(case.budget.max_unavailable, len(case.zones))
    assert set(partitions) == {_number(pod) for pod in _pods(case)}
    assert set(partitions.values()) == {most}


@REPEATABLE
@given(snapshots(rules_of_partitions()), rngs)
def test_partitions_do_not_block_each_other(case: BudgetSnapshot, rng: random.Random) -> None:
    """ZPDB-93: pods of other partitions may be in whatever state, as long as they are there."""
    others = [pod for pod in _pods(case) if _number(pod) != _number(case.pod)]
    changed = case
    for pod in others:
        how = rng.choice(["unready", "terminating", *Deletion])
        changed = _take_down(changed, pod, how)

    assert answer(changed) == answer(case)


@REPEATABLE
@given(any_snapshot)
def test_a_rollout_may_do_what_an_eviction_may(case: BudgetSnapshot) -> None:
    """And what is refused to it alone is nothing."""
    eviction = assess_disruption(replace(case, engine=DisruptionSource.EVICTION))
    rollout = assess_disruption(replace(case, engine=DisruptionSource.ROLLOUT))

    assert rollout in (None, eviction)
    if rollout is None and eviction is not None:
        assert eviction.reason.code is Code.DISRUPTION_BUDGET_USED
        assert not case.pod.is_ready


def _grant_all(case: BudgetSnapshot, rng: random.Random) -> list[Pod]:
    """Request all pods, again and again, and return those that may go."""
    going: dict[Uid, Pod] = {}
    pods = _pods(case)
    for pod in [*rng.sample(pods, len(pods)), *rng.sample(pods, len(pods))]:
        requested = replace(
            case,
            pod=pod,
            owner=Uid(str(pod.owner_uid)),
            deletions=dict.fromkeys(going, Deletion.GRANTED),
        )
        if assess_disruption(requested) is None:
            going[pod.uid] = pod
    return list(going.values())


def _pods(case: BudgetSnapshot) -> list[Pod]:
    return [pod for zone in case.zones for pod in _list_owned(zone)]


def _is_desired(case: BudgetSnapshot, pod: Pod) -> bool:
    """Return whether the pod is wanted, and the only one of its name."""
    (sts,) = [zone.sts for zone in case.zones if zone.sts.uid == pod.owner_uid]
    same = [one for one in _pods(case) if one.name == pod.name]
    return sts.ordinal_of(pod.name) in sts.ordinals and len(same) == 1


def _take_down(case: BudgetSnapshot, pod: Pod, how: str) -> BudgetSnapshot:
    if isinstance(how, Deletion):
        return replace(case, deletions={**case.deletions, pod.uid: how})
    changed = {
        "unready": (replace(pod, is_ready=False, ready_since=None),),
        "terminating": (replace(pod, is_ready=False, is_terminating=True),),
        "gone": (),
    }[how]
    zones = tuple(
        replace(zone, pods=(*(one for one in zone.pods if one.uid != pod.uid), *changed))
        if pod in zone.pods
        else zone
        for zone in case.zones
    )
    return replace(case, zones=zones)


def _reason(refusal: Refusal | None) -> object:
    return None if refusal is None else refusal.reason
