"""What holds for every description, whatever the group or the budget looks like."""

from collections.abc import Iterable

from hypothesis import given
from msgspec import structs

from rollout_operator.model.description import Phase, PodState
from rollout_operator.model.objects import Deletion, Group, Zone
from rollout_operator.model.outcome import Code, ReplacePods
from rollout_operator.planning.budgets import (
    BudgetSnapshot,
    CountingRule,
    Survey,
    assess_disruption,
)
from rollout_operator.planning.describe_budgets import describe_budget
from rollout_operator.planning.describe_groups import describe_group
from rollout_operator.planning.explain import explain_pod, explain_set
from rollout_operator.planning.rollout import plan_group
from tests.builders import NOW
from tests.examples import repeatable
from tests.planning.budgets.test_properties import rules_of_partitions, rules_of_zones, snapshots
from tests.planning.description.test_budgets import about_nothing, versions
from tests.planning.rollout.test_properties import groups

REPEATABLE = repeatable(60)


@REPEATABLE
@given(groups())
def test_phase_and_headline_agree_with_the_plan(snapshot: Group) -> None:
    plan = plan_group(snapshot)
    described = describe_group(snapshot, plan, NOW)

    is_done = [wait.code for wait in plan.waits] == [Code.UP_TO_DATE]
    assert (described.phase is Phase.ROLLED_OUT) <= is_done
    assert (described.phase is Phase.HELD) >= plan.failed
    assert is_done <= (described.phase in (Phase.ROLLED_OUT, Phase.SCALING))
    assert described.code is not None
    assert {one.zone for one in described.steps} <= {one.name for one in described.zones}


@REPEATABLE
@given(groups())
def test_numbers_are_those_of_the_pods(snapshot: Group) -> None:
    described = describe_group(snapshot, plan_group(snapshot), NOW)

    for zone in described.zones:
        assert len(zone.pods) == zone.desired
        assert zone.updated == sum(one.is_updated for one in zone.pods)
        assert zone.ready <= sum(one.state is PodState.READY for one in zone.pods)
        absent = sum(one.state is PodState.MISSING for one in zone.pods)
        if zone.update_revision:
            assert zone.updated + zone.outdated + absent == zone.desired
        assert all(bool(one.why) is (one.state is not PodState.READY) for one in zone.pods)
    assert sum(zone.is_busy for zone in described.zones) <= 1


@REPEATABLE
@given(groups())
def test_explanations_agree_with_the_plan(snapshot: Group) -> None:
    """What goes has no condition, what waits has one."""
    plan = plan_group(snapshot)
    actions = [action for action in plan.actions if isinstance(action, ReplacePods)]
    going = {one.pod.uid: action.zone.name for action in actions for one in action.going}
    for zone in snapshot.zones:
        about = explain_set(snapshot, plan, zone.sts.name)
        assert about is not None
        assert about.may_go is (zone.sts.name in going.values())
        for pod in zone.own_pods:
            answer = explain_pod(snapshot, plan, pod.name)
            assert answer is not None
            assert answer.may_go is (pod.uid in going)
            waits = answer.answer.endswith("it cannot go yet")
            assert bool(answer.conditions) is (waits or answer.code is Code.REVISION_EMPTY)


@repeatable(100)
@given(snapshots(rules_of_zones))
def test_by_zone_as_many_may_go_as_the_rule_lets_go(drawn: BudgetSnapshot) -> None:
    """No second rule: let pods go one after the other, as long as decisions allow it."""
    case = about_nothing(drawn)
    found = describe_budget(versions(case.budget), case)

    by_zone = [_let_go(case, [zone]) for zone in case.zones]
    assert found.allowed == max(by_zone, default=0)


@repeatable(100)
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
