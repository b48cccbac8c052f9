"""What is refused without counting a pod, in its order, and which budget rules over a pod."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, BudgetState, DisruptionSource
from rollout_operator.model.objects import bound_labels
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.budgets import (
    BudgetSnapshot,
    Refusal,
    assess_disruption,
    choose_budget,
)
from tests.planning.disruptions import (
    answer,
    budget,
    by_partition,
    ingesters,
    member,
    read_snapshot,
    snapshot,
)
from tests.planning.tables import read_table, shorten


def refused(case: BudgetSnapshot) -> Refusal:
    refusal = assess_disruption(case)
    assert refusal is not None
    return refusal


SENTENCES = {
    "; budget ingester$": "; BUDGET",
    "belongs to none of the 3 StatefulSets with the labels name=ingester": "NOT OURS",
    "failed to extract partition from pod Name regular expression:": "NO PARTITION",
    "minimum number of StatefulSets not found:": "TOO FEW",
}
REFUSED = """
SI-09 a frozen view
  a-0; stale 61 | view_stale 429 the newest proof that the cache is live is more than 60s old
ZPDB-61 maximum 0
  a-0; budget 0 | budget_zero 403 max unavailable = 0; BUDGET
ZPDB-64 a zone that cannot be read is not taken for none
  a-0; unreadable ingester-zone-d
  | object_unreadable 500 unable to determine pod status in related StatefulSet ingester-zone-d: it
    cannot be read: spec.replicas: expected int, got str: "x"; BUDGET
W-57 one StatefulSet
  a-0; only a
  | too_few_zones 400 TOO FEW 1 StatefulSet has the labels name=ingester, 2 are needed; BUDGET
W-10 ZPDB-87 the owner is outside of the selector
  a-0; owner stranger | owner_not_statefulset 400 pod ingester-zone-a-0 NOT OURS; BUDGET
W-10 a share of a zone that is not there
  a-0; owner stranger; budget 0 percentage=50
  | owner_not_statefulset 400 pod ingester-zone-a-0 NOT OURS; BUDGET
ZPDB-63 the pattern does not match
  a-0; partitions pattern=store-([0-9]+)
  | partition_unknown 400 NO PARTITION group 1 of "store-([0-9]+)" finds nothing in
    ingester-zone-a-0; BUDGET
W-28 an optional group captures nothing
  a-0; partitions pattern=ingester(-x)?-zone-a-0
  | partition_unknown 400 NO PARTITION group 1 of "ingester(-x)?-zone-a-0" finds nothing in
    ingester-zone-a-0; BUDGET
D-25 a downscale
  a-0; downscale
  | downscale_underway 429 ingester-zone-b is being scaled down from 3 to 2 replicas; no pod may go
    until that has happened or failed; BUDGET
W-57 no StatefulSet
  a-0; only; budget 1 selector=z:1,a:2
  | too_few_zones 400 TOO FEW 0 StatefulSets have the labels a=2,z=1, 2 are needed; BUDGET
W-57 a selector of everything
  a-0; only; budget 1 selector=
  | too_few_zones 400 TOO FEW 0 StatefulSets have the labels {} (any), 2 are needed; BUDGET
D-12 the status is behind
  a-0; c generation=3 observed_generation=2
  | status_behind 429 the status of ingester-zone-c is of generation 2, its spec of generation 3;
    BUDGET
D-12 the status is behind, by partition
  a-0; c generation=3 observed_generation=2; partitions
  | status_behind 429 the status of ingester-zone-c is of generation 2, its spec of generation 3;
    BUDGET
"""


@pytest.mark.parametrize(("case", "expected"), read_table(REFUSED, read_snapshot))
def test_refused_before_counting(case: BudgetSnapshot, expected: list[str]) -> None:
    refusal = refused(case)

    line = f"{refusal.reason.code} {refusal.status} {refusal.reason.text}"
    assert shorten([line], SENTENCES) == expected
    # The rollout is bound by the same, also for a pod that is down.
    down = ingesters("a", "Crr").pods[0]
    assert assess_disruption(replace(case, engine=DisruptionSource.ROLLOUT, pod=down)) == refusal


ALL_AT_ONCE = read_snapshot(
    "a-0; b CCC observed_generation=0; stale 61; budget 0; unreadable ingester-zone-d; downscale; "
    "owner stranger"
)


def test_the_first_obstacle_is_reported() -> None:
    """The order of the checks: each one is what remains once those before it are gone."""
    case = replace(ALL_AT_ONCE, zones=ALL_AT_ONCE.zones[:1])
    codes = [refused(case).reason.code]
    for change in [
        {"snapshot_age": timedelta(0)},
        {"budget": by_partition(pattern="(x)")},
        {"unreadable": ()},
        {"zones": ALL_AT_ONCE.zones},
        {"budget": budget()},
        {"owner": snapshot().owner},
        {"downscale": None},
        {"zones": read_snapshot("a-0; b CCC").zones},
    ]:
        case = replace(case, **change)  # type: ignore[arg-type]  # fields of several types
        codes.append(refused(case).reason.code)

    assert codes == [
        Code.SNAPSHOT_STALE,
        Code.BUDGET_ZERO,
        Code.OBJECT_UNREADABLE,
        Code.TOO_FEW_ZONES,
        Code.PARTITION_UNKNOWN,
        Code.OWNER_NOT_STATEFULSET,
        Code.DOWNSCALE_UNDERWAY,
        Code.STATUS_BEHIND,
        Code.DISRUPTION_BUDGET_USED,
    ]


@pytest.mark.parametrize(
    ("case", "zone"),
    [
        ("a-0; a observed_generation=0; b observed_generation=0", "ingester-zone-a"),
        ("a-0; unreadable zone-f zone-e", "zone-e"),
    ],
)
def test_of_several_zones_the_first_by_name_is_reported(case: str, zone: str) -> None:
    refusal = read_snapshot(case)
    assert refused(replace(refusal, zones=refusal.zones[::-1])).reason.zone == zone


def test_a_frozen_snapshot_is_requeued() -> None:
    """That it has come alive is announced by no event."""
    refusal = refused(read_snapshot("a-0; stale 61"))

    assert refusal.requeue_after == timedelta(seconds=5)
    assert refusal == refused(read_snapshot("a-0; stale 610"))
    assert answer(read_snapshot("a-0; stale 60")) == "allow"


def state(name: str, rule: Budget | None, problem: str = "") -> BudgetState:
    return BudgetState(name=name, budget=rule, problem=problem)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([], None, id="ZPDB-56 none: not in scope"),
        pytest.param([state("ingester", budget(2))], budget(2), id="ZPDB-35 one"),
        pytest.param(
            [state("ingester", budget(2), "a later one is broken")],
            budget(2),
            id="ZPDB-31 the last valid one stays in force",
        ),
        pytest.param(
            [state("b", budget()), state("a", None, "x"), state("c", budget()), state("d", None)],
            "400 budgets_overlap multiple zoned pod disruption budgets found for pod "
            "ingester-zone-a-0: a, b, c and d",
            id="ZPDB-55 several, and not one of them wins",
        ),
        pytest.param(
            [state("ingester", None, "invalid value: selector is not found")],
            "403 budget_invalid budget ingester selects pod ingester-zone-a-0 and is not valid: "
            "invalid value: selector is not found",
            id="W-52 an invalid one is not taken for none",
        ),
    ],
)
def test_which_budget_rules(entries: Sequence[BudgetState], expected: object) -> None:
    chosen = choose_budget(entries, member("a", 0))

    if isinstance(chosen, Refusal):
        reason = chosen.reason
        assert f"{chosen.status} {reason.code} {reason.text}" == expected
        assert (reason.severity, chosen.requeue_after) == (Severity.ERROR, None)
    else:
        assert chosen == expected


def test_d68_a_pod_with_too_many_labels_names_each_budget_that_it_may_be_under() -> None:
    lengthy = member("a", 0, labels=bound_labels({f"l{n}": "" for n in range(200)}))

    chosen = choose_budget([state("store", budget())], lengthy)

    assert isinstance(chosen, Refusal)
    assert (chosen.status, chosen.reason.code) == (400, Code.BUDGETS_OVERLAP)
    assert chosen.reason.text == (
        "pod ingester-zone-a-0 has more than 128 labels, too many to keep: it may be under each"
        " of these budgets: store; remove labels from it"
    )
    assert choose_budget([], lengthy) is None
    named = structs.replace(budget(), selector={"rollout-group": "g"})
    assert choose_budget([state("group", named)], lengthy) == named


def test_d68_a_zone_that_may_be_selected_is_none_of_the_two_that_are_needed() -> None:
    """A foreign set of many labels once let pods go of a budget that had a single zone."""
    many = bound_labels({f"l{n}": "" for n in range(200)})
    foreign = ingesters("b")
    foreign = replace(foreign, sts=structs.replace(foreign.sts, labels=many))
    two = snapshot("a-0")
    alone = replace(two, zones=(two.zones[0], foreign))

    assert answer(two) == "allow"
    assert answer(alone).startswith("400 minimum number of StatefulSets not found: 1")
