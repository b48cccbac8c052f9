"""Random zones under a budget, and the questions whether their pods may go."""

from datetime import timedelta
from typing import Final

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Deletion, Zone
from rollout_operator.planning.budgets import BudgetSnapshot
from tests.builders import NOW
from tests.examples import repeatable
from tests.planning.disruptions import budget, by_partition, ingesters, member

REPEATABLE: Final = repeatable(300)

# Not the ends of the range: those are drawn more often than others.
rarely = st.integers(0, 9).map(lambda number: number == 6)
seldom = st.integers(0, 4).map(lambda number: number == 3)
states = st.text("rrrrrrrFCtu-", min_size=1, max_size=4)
whole_states = st.text("r", min_size=1, max_size=4)
# In seconds, mostly long enough for everything.
ages = st.sampled_from([*[3600] * 9, None, -1, 0, 29, 30, 31, 60, 61])


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
    aged = [
        msgspec.structs.replace(pod, ready_since=_since(draw(ages))) if pod.is_ready else pod
        for pod in zone.pods
    ]
    if draw(rarely):
        aged.append(member(letter, 2, "C", uid=Uid(f"stray-{letter}"), owner_uid=Uid("stranger")))
    if draw(rarely):
        aged.append(member(letter, 0, draw(st.sampled_from("rt")), uid=Uid(f"double-{letter}")))
    return replace(zone, pods=tuple(aged))


def _since(age: float | None) -> object:
    return None if age is None else NOW - timedelta(seconds=age)


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
        engine=draw(
            st.sampled_from(
                [DisruptionSource.EVICTION, DisruptionSource.EVICTION, DisruptionSource.ROLLOUT]
            )
        ),
        # A share of nothing is 0; the obstacle that this is has tests of its own.
        override=1,
    )


any_snapshot = st.one_of(snapshots(rules_of_zones), snapshots(rules_of_partitions()))


@st.composite
def whole_worlds(draw: st.DrawFn, rules: st.SearchStrategy[Budget]) -> BudgetSnapshot:
    """Draw a question about zones in which nothing is missing, all of the same size."""
    letters, pods = draw(st.sampled_from(["ab", "abc"])), draw(st.integers(1, 4))
    known = tuple(ingesters(letter, "r" * pods) for letter in letters)
    return BudgetSnapshot(
        budget=draw(rules),
        pod=known[0].pods[0],
        owner=known[0].sts.uid,
        zones=known,
        now=NOW,
        deletions={},
    )
