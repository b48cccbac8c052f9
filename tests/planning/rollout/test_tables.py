"""The tables of the rollout controller: T-01 and T-02, row by row.

Rows 7 to 10 of T-01 are about refusals: what is tried instead is up to the executor, so here all
candidates are listed. Row 12 needs disruption budgets.
"""

import pytest

from rollout_operator.model.objects import Group
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.rollout import plan_group
from tests.builders import outline, sts
from tests.planning.tables import read_group, read_table

T01 = """
T-01 #1 RollingUpdate in a: nothing, failed (ROLL-13, SEED-012, SEED-058)
  zone a strategy=RollingUpdate; zone b ppp current=prev
  | wrong_strategy: StatefulSet zone-a has RollingUpdate update strategy while OnDelete is expected,
    skipping reconcile
  | failed
T-01 #2 both short by status: nothing (ROLL-15)
  zone a ppp current=prev ready=2; zone b ppp current=prev ready=1
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (status counts 2 ready); zone-b has 1 of 3
    pods ready (status counts 1 ready)
T-01 #3 both have a terminating pod: nothing
  zone a tpp current=prev; zone b ppt current=prev
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (zone-a-0: terminating); zone-b has 2 of 3
    pods ready (zone-b-2: terminating)
T-01 #4 one short by status, one by a pod: nothing
  zone a ppp current=prev ready=2; zone b ppt current=prev
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (status counts 2 ready); zone-b has 2 of 3
    pods ready (zone-b-2: terminating)
D-88 a good revision heals a bad one in all zones that are short
  prev a Ppp; zone b current=prev; prev c ppn
  | replace in zone-a: 1 of broken [zone-a-0]
  | replace in zone-c: 1 of broken [zone-c-2]
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (zone-a-0: CrashLoopBackOff); zone-c has 2
    of 3 pods ready (zone-c-2: container app not ready)
D-88 beside them nothing goes: neither healthy pods within the limit, nor what may recover
  zone a Pwp current=prev limit=3 ready=1; zone b ppW current=prev limit=3 ready=2
  | replace in zone-a: 1 of broken [zone-a-0]
  | several_zones_not_ready: zone-a has 1 of 3 pods ready (zone-a-0: CrashLoopBackOff and zone-a-1:
    container app not ready); zone-b has 2 of 3 pods ready (zone-b-2: container app not ready)
D-88 nor a pod that is at the update revision, or on its way out
  prev a lLp; prev b Ntp
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (zone-a-1: CrashLoopBackOff); zone-b has 1
    of 3 pods ready (zone-b-0: container app not ready and zone-b-1: terminating)
D-88 SI-04 each zone replaces no more pods at a time than its limit
  prev a PPP; prev b nnn limit=2
  | replace in zone-a: 1 of broken [zone-a-0 zone-a-1 zone-a-2]
  | replace in zone-b: 2 of broken [zone-b-0 zone-b-1 zone-b-2]
  | several_zones_not_ready: zone-a has 0 of 3 pods ready (zone-a-0: CrashLoopBackOff, zone-a-1:
    CrashLoopBackOff and zone-a-2: CrashLoopBackOff); zone-b has 0 of 3 pods ready (zone-b-0:
    container app not ready, zone-b-1: container app not ready and zone-b-2: container app not
    ready)
D-88 ROLL-30 a paused zone holds its own pods
  prev a Ppp paused=true; prev b ppP
  | replace in zone-b: 1 of broken [zone-b-2]
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (zone-a-0: CrashLoopBackOff); zone-b has 2
    of 3 pods ready (zone-b-2: CrashLoopBackOff)
T-01 #5 all at last: nothing
  zone a; zone b | up_to_date: 6 pods of 2 zones: all ready at the update revision
T-01 #6 b outdated: b-0 and b-1 first
  zone a; zone b ppp current=prev
  | replace in zone-b: 2 of [zone-b-0 zone-b-1 zone-b-2]
  | budget_used: zone-b: 1 pod left to update after these 2 (0 unavailable of 2 allowed)
T-01 #7 #8 one refused: D-15 every candidate is listed, so b-2 may take its place
  zone a; zone b ppp current=prev
  | replace in zone-b: 2 of [zone-b-0 zone-b-1 zone-b-2]
  | budget_used: zone-b: 1 pod left to update after these 2 (0 unavailable of 2 allowed)
T-01 #9 #10 equal revisions are no shortcut, refusals do not move on to b (ROLL-33)
  zone a ppp; zone b ppp
  | replace in zone-a: 2 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 1 pod left to update after these 2 (0 unavailable of 2 allowed)
  | another_zone_first: zone-b waits for zone-a
T-01 #11 both outdated: a first (SORT-01)
  zone a ppp current=prev; zone b ppp current=prev
  | replace in zone-a: 2 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 1 pod left to update after these 2 (0 unavailable of 2 allowed)
  | another_zone_first: zone-b waits for zone-a
T-01 #13 limit xxx counts as 1 (ROLL-53, SEED-060)
  zone a ppp current=prev limit=xxx
  | replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 2 pods left to update after this one (0 unavailable of 1 allowed)
  | problem bad_max_unavailable zone-a
T-01 #14 short zone first, half the budget is used (ROLL-16)
  zone a ppp current=prev; zone b ppp current=prev ready=2
  | replace in zone-b: 1 of [zone-b-0 zone-b-1 zone-b-2]
  | budget_used: zone-b: 2 pods left to update after this one (1 unavailable of 2 allowed)
  | another_zone_first: zone-a waits for zone-b
T-01 #15 budget used up by status: nothing
  zone a ppp current=prev; zone b ppp current=prev ready=1
  | pods_starting: zone-b is waiting for its status (1 ready). 3 pods left to update (2 unavailable
    of 2 allowed); then zone-a
T-01 #16 terminating pod is skipped and counts
  zone a tpp current=prev
  | replace in zone-a: 1 of [zone-a-1 zone-a-2]
  | budget_used: zone-a: 1 pod left to update after this one (1 unavailable of 2 allowed)
T-01 #17 rolled out: current revision is recorded (ROLL-39)
  zone a lll current=prev | record zone-a last
T-01 #18 short by status: nothing recorded
  zone a lll current=prev ready=1
  | zone_not_ready: zone-a has 1 of 3 pods ready (status counts 1 ready)
T-01 #19 a pod does not exist: nothing recorded
  zone a ll- current=prev | zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-2: no pod)
T-01 #20 a short by status: b waits (ROLL-41)
  zone a ready=2; zone b ppp current=prev
  | zone_not_ready: zone-a has 2 of 3 pods ready (status counts 2 ready); zone-b waits
T-01 #21 a has a terminating pod: b waits
  zone a llT; zone b ppp current=prev
  | zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-2: terminating); zone-b waits
T-01 #22 a has no pods: b waits, and by D-10 no set owns any (SEED-112)
  zone a ---; zone b ppp current=prev
  | zone_not_ready: zone-a has 0 of 3 pods ready (zone-a-0: no pod, zone-a-1: no pod and zone-a-2:
    no pod); zone-b waits
  | problem pods_missing zone-a
T-01 #23 the compactor without group label is in no group (SEED-054)
  zone a; zone b | up_to_date: 6 pods of 2 zones: all ready at the update revision
T-01 #24 paused: nothing (ROLL-30)
  zone a ppp current=prev paused=true | paused: zone-a is paused: 3 outdated pods wait
T-01 #25 a paused and whole: b goes
  zone a ppp current=prev paused=true; zone b ppp current=prev
  | replace in zone-b: 2 of [zone-b-0 zone-b-1 zone-b-2]
  | paused: zone-a is paused: 3 outdated pods wait
  | budget_used: zone-b: 1 pod left to update after these 2 (0 unavailable of 2 allowed)
T-01 #26 paused false is not paused
  zone a ppp current=prev paused=false
  | replace in zone-a: 2 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 1 pod left to update after these 2 (0 unavailable of 2 allowed)
"""


@pytest.mark.parametrize(("case", "expected"), read_table(T01, read_group))
def test_t01_rolling_pods(case: Group, expected: list[str]) -> None:
    assert outline(plan_group(case)) == expected


@pytest.mark.parametrize(
    ("text", "replicas", "pods", "is_odd"),
    [
        pytest.param(None, 7, 1, False, id="T-02 absent: 1 (ROLL-50)"),
        pytest.param("3", 1, 3, False, id="T-02 3 of 1: more than replicas (ROLL-52)"),
        pytest.param("99999999999", 3, 99999999999, False, id="ROLL-52 more than 32 bits"),
        pytest.param("25%", 10, 2, False, id="T-02 25% of 10: 2, rounded down"),
        pytest.param("30%", 0, 1, False, id="T-02 30% of 0: at least 1 (ROLL-51)"),
        pytest.param("xxx", 7, 1, True, id="T-02 xxx: 1 (ROLL-53)"),
    ],
)
def test_t02_max_unavailable(text: str | None, replicas: int, pods: int, is_odd: bool) -> None:
    """The grammar of the value, all of T-02, is in the tests of units."""
    annotations = {} if text is None else {"rollout-max-unavailable": text}
    limit, problem = choose_limit(sts("a", replicas, annotations=annotations))
    assert (limit, problem is not None) == (pods, is_odd)


def test_a_bad_limit_names_set_annotation_value_and_what_is_used() -> None:
    _, problem = choose_limit(sts("a", annotations={"rollout-max-unavailable": "300%"}))
    assert problem is not None
    for part in ("zone-a", "rollout-max-unavailable", "300%", "1 is used"):
        assert part in problem.text
    assert (problem.code, problem.severity) == (Code.BAD_MAX_UNAVAILABLE, Severity.WARN)
