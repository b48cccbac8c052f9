"""What is said of a budget: it counts and refuses as decisions do, and in their words.

A case is a question as in `tests.planning.disruptions`, about no pod in particular; then how many
pods count as down, how many more may go, and the sentence up to the names.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import pytest
from hypothesis import given
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, BudgetVersions, DisruptionSource
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Deletion, Pod, Zone
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.budgets import (
    BudgetSnapshot,
    CountingRule,
    Survey,
    assess_disruption,
)
from rollout_operator.planning.describe_budgets import describe_budget, list_rivals
from tests.examples import repeatable
from tests.planning.disruption_snapshots import rules_of_partitions, rules_of_zones, snapshots
from tests.planning.disruptions import budget, read_snapshot
from tests.planning.tables import read_table

LABELS: Final = {"name": "ingester"}
FEWER: Final = repeatable(100)
NO_POD: Final = Pod(namespace="", name="", uid=Uid(""), resource_version="")
CASES: Final = """
all are up
  a-0 | 0 1 1 more pod may go, of any one zone; 9 of 9 pods up
a maximum of 2
  a-0; budget 2 | 0 2 2 more pods may go, of any one zone; 9 of 9 pods up
ZPDB-80 a maximum of more than 32 bits
  a-0; a rrF; b rrr; c rrr; budget 99999999999 | 1 2 2 more pods may go, of one zone alone
the largest maximum
  a-0; budget 9223372036854775807 | 0 3 3 more pods may go, of any one zone; 9 of 9 pods up
no more than there are
  a-0; a r; b r; c r; budget 5 | 0 1 1 more pod may go, of any one zone; 3 of 3 pods up
a share of each zone
  a-0; a rrrr; b rr; c rr; budget 0 percentage=50 | 0 2 2 more pods may go, of one zone alone
the budget is used
  a-0; c rrF | 1 0 1 pod not ready in ingester-zone-c
room where one is down already
  a-0; c rrF; budget 2 | 1 1 1 more pod may go, of one zone alone
two zones are short
  a-0; b rrF; c rrF; budget 5 | 2 0 1 pod not ready in ingester-zone-b
what was granted counts
  a-0; granted b-1 | 1 0 1 pod not ready in ingester-zone-b
what is absent counts
  a-0; a rr-; budget 2 | 1 1 1 more pod may go, of one zone alone
a maximum of 0
  a-0; budget 0 | 0 0 max unavailable = 0
one StatefulSet only
  a-0; only a
  | 0 0 minimum number of StatefulSets not found: 1 StatefulSet has the labels name=ingester, 2 are
    needed
a set that cannot be read
  a-0; unreadable ingester-zone-x
  | 0 0 unable to determine pod status in related StatefulSet ingester-zone-x: it cannot be read:
    spec.replicas: expected int, got str: "x"
a downscale is underway
  a-0; downscale
  | 0 0 ingester-zone-b is being scaled down from 3 to 2 replicas; no pod may go until that has
    happened or failed
caches that are too old
  a-0; stale 61 | 0 0 the newest proof that the cache is live is more than 60s old
no pod is up
  a-0; a FFF; b FFF; c FFF; budget 9 | 9 0 3 pods not ready in ingester-zone-b
by partition
  a-0; partitions 1 | 0 3 3 more pods may go: 3 of 3 partitions have room; 9 of 9 pods up
by partition, two of each
  a-0; partitions 2 | 0 6 6 more pods may go: 3 of 3 partitions have room; 9 of 9 pods up
by partition, one is used
  a-0; b rFr; partitions 1
  | 1 2 2 more pods may go: 2 of 3 partitions have room; 1 pod not ready in partition 1
by partition, one is half used
  a-0; b rFr; partitions 2 | 1 5 5 more pods may go: 3 of 3 partitions have room; 8 of 9 pods up
by partition, a whole zone is down
  a-0; b FFF; partitions 1 | 3 0 1 pod not ready in partition 0
by partition, a name without one
  a-0; partitions 1 pattern=x([0-9]+)
  | 0 0 failed to extract partition from pod Name regular expression: group 1 of "x([0-9]+)" finds
    nothing in ingester-zone-a-0
"""


def versions(rule: Budget | None = None, **changes: object) -> BudgetVersions:
    """Return what is known of budget `ingester`."""
    plain = BudgetVersions(
        namespace="test", name="ingester", uid=Uid("uid-budget"), generation=1, budget=rule
    )
    return replace(plain, **changes)


def about_nothing(case: BudgetSnapshot, labels: Mapping[str, str] = LABELS) -> BudgetSnapshot:
    """Return the zones of a question whose pods have labels."""
    zones = tuple(
        structs.replace(
            zone, pods=tuple(replace(pod, labels={**pod.labels, **labels}) for pod in zone.pods)
        )
        for zone in case.zones
    )
    return structs.replace(
        case, pod=NO_POD, owner=Uid(""), zones=zones, engine=DisruptionSource.EVICTION
    )


def describe(
    text: str = "a-0", *others: BudgetVersions, labels: Mapping[str, str] = LABELS
) -> BudgetDescription:
    case = about_nothing(read_snapshot(text), labels)
    return describe_budget(versions(case.budget), case, others)


@pytest.mark.parametrize(("text", "expected"), read_table(CASES, str))
def test_what_is_said(text: str, expected: list[str]) -> None:
    found = describe(text)
    sentence = found.text.split(" (")[0].split("; budget")[0]

    assert [f"{found.unavailable} {found.allowed} {sentence}"] == expected


def test_the_sentence_and_its_code_are_those_of_a_refusal() -> None:
    """D-75: a person reads the answer to an eviction."""
    case = read_snapshot("a-0; c rrF")
    refusal = assess_disruption(case)
    (wait,) = describe("a-0; c rrF").waits

    assert refusal is not None
    assert (wait.code, wait.text) == (refusal.reason.code, refusal.reason.text)
    assert describe("a-0; c rrF").text == wait.text


def test_what_it_selects() -> None:
    found = describe("a-0; b rr-")

    assert (found.name, found.is_valid, found.maximum) == ("ingester", True, "1")
    assert (found.zones, found.pods) == (3, 8)
    assert describe("a-0; budget 0 percentage=20").maximum == "20%"


def test_labels_on_sets_and_on_none_of_their_pods() -> None:
    """No eviction is held: the author of the budget thinks otherwise."""
    found = describe(labels={})
    (wait,) = found.waits

    assert (found.pods, found.allowed) == (0, 0)
    assert (wait.code, wait.severity) == (Code.BUDGET_SELECTS_NO_PODS, Severity.ERROR)
    assert wait.text.startswith(
        "budget ingester selects 3 StatefulSets and none of their 9 pods: no eviction is held"
    )


def test_zones_without_pods_are_no_mistake() -> None:
    case = about_nothing(read_snapshot("a-0"))
    bare = tuple(
        structs.replace(zone, pods=(), sts=replace(zone.sts, replicas=0, status_replicas=0))
        for zone in case.zones
    )
    none = describe_budget(versions(case.budget), structs.replace(case, zones=bare))
    assert (none.waits, none.text) == ((), "3 zones, and no pod that is up")
    nothing = structs.replace(case, zones=())
    (few,) = describe_budget(versions(case.budget), nothing).waits
    assert few.code is Code.TOO_FEW_ZONES


def test_a_pod_under_two_budgets_may_not_go() -> None:
    """ZPDB-55, and which they are."""
    other = versions(budget(name="zz", selector={"zone": "b"}), name="zz")
    found = describe("a-0", other, labels={**LABELS, "zone": "b"})
    (wait,) = found.waits

    assert (found.allowed, wait.code, wait.severity) == (
        0, Code.BUDGETS_OVERLAP, Severity.ERROR,
    )  # fmt: skip
    assert wait.text.endswith("found for pod ingester-zone-a-0: ingester and zz")
    assert describe("a-0", other).waits == (), "no pod has both labels"


def test_only_budgets_that_may_select_the_same_pod_are_compared() -> None:
    """Most select by another value of the same label: a hundred of them cost nothing."""
    rules = {
        "same": {"name": "ingester"}, "other": {"name": "querier"}, "wider": {"app": "mimir"},
        "all": {}, "narrower": {"name": "ingester", "app": "mimir"},
    }  # fmt: skip
    others = [versions(budget(name=name, selector=own), name=name) for name, own in rules.items()]
    own = versions(budget())

    found = list_rivals(own, [own, *others])
    assert [one.name for one in found] == ["same", "wider", "all", "narrower"]


def test_a_budget_that_cannot_be_obeyed() -> None:
    case = about_nothing(read_snapshot("a-0; c rrF"))
    before = describe_budget(versions(case.budget, problem="bad"), case)
    never = describe_budget(versions(problem="bad", flawed_selector=LABELS), case)
    blind = describe_budget(versions(problem="bad"), None)

    assert before.text == (
        "budget ingester is not valid: bad; the version before, of generation 1, stays in force"
    )
    assert [wait.code for wait in before.waits] == [
        Code.BUDGET_INVALID, Code.DISRUPTION_BUDGET_USED,
    ]  # fmt: skip
    assert never.text == "budget ingester is not valid: bad; no pod that it selects may go"
    assert (never.zones, never.pods, never.unavailable, never.allowed) == (3, 9, 1, 0)
    assert blind.text.endswith("bad; what it selects is unknown: it guards nothing")
    assert {one.is_valid for one in (before, never, blind)} == {False}


@FEWER
@given(snapshots(rules_of_zones))
def test_by_zone_as_many_may_go_as_the_rule_lets_go(drawn: BudgetSnapshot) -> None:
    """No second rule: let pods go one after the other, as long as decisions allow it."""
    case = about_nothing(drawn)
    found = describe_budget(versions(case.budget), case)

    by_zone = [_let_go(case, [zone]) for zone in case.zones]
    assert found.allowed == max(by_zone, default=0)


@FEWER
@given(snapshots(rules_of_partitions()))
def test_by_partition_at_least_as_many_may_go(drawn: BudgetSnapshot) -> None:
    """And none are shown only where none may."""
    case = about_nothing(drawn)
    found = describe_budget(versions(case.budget), case)

    most = _let_go(case, case.zones)
    assert found.allowed <= most
    assert (found.allowed == 0) == (most == 0)


def _let_go(case: BudgetSnapshot, zones: Iterable[Zone]) -> int:
    """Return how many pods that count as up may go, one after the other."""
    gone = dict(case.deletions)
    rule = CountingRule(budget=case.budget, deletions=case.deletions, now=case.now)
    many = 0
    for zone in zones:
        survey = Survey(zone, rule)
        for pod in zone.own_pods:
            if survey.has_down(pod.uid) or not pod.is_ready:
                continue
            requested = structs.replace(case, pod=pod, owner=zone.sts.uid, deletions={**gone})
            if assess_disruption(requested) is None:
                gone[pod.uid] = Deletion.GRANTED
                many += 1
    return many
