"""What stops a group, whose turn it is, what is reported: cases beyond the table T-01."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Group, Underway
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.wording import explain
from tests.builders import group, outline, prev
from tests.planning.tables import read_group, read_table, shorten

LEFT = {
    r"zone-b was deleted or left while it was short, and counts until its StatefulSet is back and"
    r" whole, for another 8 minutes at most$": "LEFT",
}
WHOLE_GROUP = """
SI-09 a view of just 60 s is still used
  prev a; stale 60
  | replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 2 pods left to update after this one (0 unavailable of 1 allowed)
SI-09 a view older than 60 s: nothing
  prev a; stale 61 | view_stale: the newest proof that the cache is live is more than 60s old
SI-08 a member that cannot be read: nothing, failed
  prev a; unreadable zone-b
  | object_unreadable: StatefulSet zone-b cannot be read: spec.replicas: expected int, got str: "x"
  | failed
FP-03 D-12 status of another zone behind: nothing
  prev a; zone b generation=3 observed_generation=2
  | status_behind: the status of zone-b is of generation 2, its spec of generation 3
FP-28 a set that is being deleted: nothing
  prev a; zone b is_terminating=true | set_terminating: zone-b is being deleted
D-73 another operator rolls the group out: nothing
  prev a; other zone-a-0 zone-a-1 40
  | other_operator: another operator rolls this group out: zone-a-0 and zone-a-1 were outdated and
    ready, and were deleted within 60s without this process, which goes on 60s after the last such
    delete
D-73 and no revision is recorded either
  zone a current=prev; other zone-a-0 zone-a-1 40
  | other_operator: another operator rolls this group out: zone-a-0 and zone-a-1 were outdated and
    ready, and were deleted within 60s without this process, which goes on 60s after the last such
    delete
D-73 what a person has to mend is reported first
  prev a; zone b strategy=RollingUpdate; other zone-a-0 zone-a-1 40
  | wrong_strategy: StatefulSet zone-b has RollingUpdate update strategy while OnDelete is expected,
    skipping reconcile
  | failed
ROLL-31 current revision empty: nothing, failed
  prev a; zone b current=
  | revision_empty: StatefulSet zone-b: status.currentRevision is empty | failed
ROLL-31 update revision empty: nothing, failed
  prev a; zone b update_revision=
  | revision_empty: StatefulSet zone-b: status.updateRevision is empty | failed
SI-08 update revision empty in a paused zone: nothing, failed
  prev a; zone b paused=true update_revision= current=
  | revision_empty: StatefulSet zone-b: status.updateRevision is empty | failed
ROLL-30 current revision empty in a paused zone does not matter
  zone a; zone b paused=true current=
  | up_to_date: 6 pods of 2 zones: all ready at the update revision
ROLL-13 every set with a wrong strategy is named, before anything else
  zone b strategy=RollingUpdate; zone a strategy=RollingUpdate generation=9
  | wrong_strategy: StatefulSet zone-a has RollingUpdate update strategy while OnDelete is expected,
    skipping reconcile
  | wrong_strategy: StatefulSet zone-b has RollingUpdate update strategy while OnDelete is expected,
    skipping reconcile
  | failed
SI-26 a zone that left while it was short: nothing
  prev a; left b lLl ready=2
  | zone_left_short: zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); LEFT
SI-26 nor is a revision recorded
  zone a current=prev; left b l-l ready=3
  | zone_left_short: zone-b has 2 of 3 pods ready (zone-b-1: no pod); LEFT
SI-26 none of its pods goes, however outdated
  zone a; left b pPp ready=2 current=prev
  | zone_left_short: zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); LEFT
SI-26 once it is whole it holds nothing, as yet
  prev a; left b lll
  | replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 2 pods left to update after this one (0 unavailable of 1 allowed)
SI-26 beside another short zone, whose pod may recover
  prev a pwp; left b lLl ready=2
  | zone_left_short: zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); LEFT
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (zone-a-1: container app not ready);
    zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff)
D-88 SI-26 beside another short zone, whose pod crashes
  prev a pPp; left b lLl ready=2
  | replace in zone-a: 1 of broken [zone-a-1]
  | zone_left_short: zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); LEFT
  | several_zones_not_ready: zone-a has 2 of 3 pods ready (zone-a-1: CrashLoopBackOff); zone-b has
    2 of 3 pods ready (zone-b-1: CrashLoopBackOff)
SI-26 two that left
  prev a; left b lLl ready=2; left c
  | zone_left_short: zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); LEFT
SI-26 a paused zone has its own reason
  prev a paused=true; left b lLl ready=2
  | zone_left_short: zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); LEFT
  | paused: zone-a is paused: 3 outdated pods wait
SI-26 its strategy, status and revisions stop nothing
  prev a; left b strategy=RollingUpdate generation=9 current= update_revision=
  | replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 2 pods left to update after this one (0 unavailable of 1 allowed)
W-32 D-13 a paused zone that is not whole blocks the others
  prev a; zone b lLl paused=true
  | paused_zone_not_ready: paused zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); zone-a
    waits
D-40 why each zone waits is said before its turn
  prev a; prev b paused=true; prev c
  | replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used: zone-a: 2 pods left to update after this one (0 unavailable of 1 allowed)
  | paused: zone-b is paused: 3 outdated pods wait | another_zone_first: zone-c waits for zone-a
ROLL-39 a is recorded and b goes on at once; c waits for its turn
  zone c current=prev; zone a current=prev; prev b
  | record zone-a last | replace in zone-b: 1 of [zone-b-0 zone-b-1 zone-b-2]
  | budget_used: zone-b: 2 pods left to update after this one (0 unavailable of 1 allowed)
  | another_zone_first: zone-c waits for zone-b
SEED-103 outdated though current equals update; a zone of no replicas is whole
  zone a pp; zone b "" | replace in zone-a: 2 of [zone-a-0 zone-a-1]
ROLL-33 FP-28 a rollback in mid-rollout: pods of the abandoned revision go
  zone a oll limit=1; prev b
  | replace in zone-a: 1 of [zone-a-0] | another_zone_first: zone-b waits for zone-a
what is odd is reported also where nothing may be decided
  zone a strategy=RollingUpdate paused=maybe limit=0
  | wrong_strategy: StatefulSet zone-a has RollingUpdate update strategy while OnDelete is expected,
    skipping reconcile
  | problem bad_max_unavailable zone-a | problem bad_paused zone-a | failed
no zones
  none | up_to_date: 0 pods of 0 zones: all ready at the update revision
"""


@pytest.mark.parametrize(("case", "expected"), read_table(WHOLE_GROUP, read_group))
def test_group(case: Group, expected: list[str]) -> None:
    assert shorten(outline(plan_group(case)), LEFT) == expected


UNDERWAY = Underway(zone="zone-b", replicas_from=3, replicas_to=1)
SCALING = """
D-25 a rollout elsewhere waits
  prev a; zone b | downscale
D-25 one in the zone itself, too
  zone a; prev b | downscale
D-25 nor does a broken pod go
  prev a Ppp; zone b | downscale
D-25 nothing is recorded
  zone a current=prev; zone b | downscale
SI-09 a stale cache is reported first
  prev a; stale 300 | view_stale: the newest proof that the cache is live is more than 60s old
SI-08 what a person must mend is reported first
  prev a; unreadable zone-b
  | object_unreadable: StatefulSet zone-b cannot be read: spec.replicas: expected int, got str: "x"
  | failed
D-25 a wrong strategy is reported when the downscale is over
  prev a; zone b strategy=RollingUpdate | downscale
"""


@pytest.mark.parametrize(("case", "expected"), read_table(SCALING, read_group))
def test_d25_no_pod_is_replaced_while_a_downscale_may_still_happen(
    case: Group, expected: list[str]
) -> None:
    """SEED-110, SEED-111: it is no failure, and its end is an event of its own."""
    plan = plan_group(replace(case, downscale=UNDERWAY))
    text = (
        "downscale_underway: zone-b is being scaled down from 3 to 1 replicas; no pod is replaced "
        "until that has happened or failed"
    )

    assert outline(plan) == [text if line == "downscale" else line for line in expected]
    assert plan.actions == ()
    assert plan.requeue_after is None or plan.waits[0].code is Code.SNAPSHOT_STALE


REASONS = """
SEED-104 SEED-112 pods that are missing: what is searched for and what the status counts, loudly
  zone a ---
  | warn zone-a zone-a has 0 of 3 pods: no pod names it (uid uid-a) as controlling owner, while its
    status counts 3
a set that is just being filled raises no warning
  zone a --- status_replicas=0 ready=0
  | info zone-a zone-a has 0 of 3 pods: no pod names it (uid uid-a) as controlling owner, while its
    status counts 0
pods that are only above the desired ordinals are its own all the same
  zone a ---ll replicas=3
SEED-011 both spellings of the group label must agree
  zone a labels=rollout-group:x,grafana.com/rollout-group:x; zone b
    labels=rollout-group:ingester,grafana.com/rollout-group:store
  | warn zone-b StatefulSet zone-b: labels rollout-group: "ingester" and grafana.com/rollout-group:
    "store" differ; the first is used
W-01 sets that select the same pods are named once
  zone c selector=app:x,tier:w; zone a selector=app:x,tier:w; zone b; zone d selector=; zone e
    selector=
  | warn zone-a zone-a and zone-c all select pods with app=x,tier=w; pods are distinguished by owner
    only
"""


@pytest.mark.parametrize(("case", "expected"), read_table(REASONS, read_group))
def test_what_is_odd(case: Group, expected: list[str]) -> None:
    problems = plan_group(case).problems
    assert [f"{one.severity} {one.zone} {one.text}" for one in problems] == expected


def test_what_a_wait_is_about_and_how_loud_it_is() -> None:
    """D-25: it is of the zone that goes. MAZ-25: a policy's turn is no trouble, not to know is."""
    underway = replace(read_group("prev a; zone b"), downscale=UNDERWAY)
    waits = [
        *plan_group(underway).waits,
        *plan_group(read_group("prev a Lpp; prev b pLp; prev c")).waits,
        *plan_group(replace(read_group("prev a"), driver="prod/db")).waits,
        *plan_group(replace(read_group("prev a"), driver="")).waits,
    ]
    assert [(wait.code, wait.zone, wait.severity) for wait in waits] == [
        (Code.DOWNSCALE_UNDERWAY, "zone-b", Severity.INFO),
        (Code.SEVERAL_ZONES_NOT_READY, "", Severity.WARN),
        (Code.DRIVEN_BY_POLICY, "", Severity.INFO),
        (Code.POLICIES_NOT_READ, "", Severity.WARN),
    ]
    assert waits[1].text == (
        "zone-a has 2 of 3 pods ready (zone-a-0: CrashLoopBackOff); "
        "zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff)"
    )


def test_a_stale_snapshot_is_requeued_soon() -> None:
    """That a view has come alive again is announced by no event."""
    plan = plan_group(replace(group(prev("a")), snapshot_age=timedelta(minutes=5)))
    assert plan.requeue_after == timedelta(seconds=5)
    assert not plan.failed


def test_d73_another_operator_is_reported_once_and_the_group_taken_up_in_time() -> None:
    """D-73: one warning in the log, whichever pods it deletes; no failed reconcile."""
    plans = [plan_group(read_group(f"prev a; other zone-a-{n} zone-b-{n} 40")) for n in (0, 1)]
    (first,), (second,) = (plan.waits for plan in plans)
    assert first.text != second.text
    assert first.stable_text == second.stable_text == "another operator rolls this group out"
    assert first.severity is Severity.WARN
    assert plans[0].requeue_after == timedelta(seconds=40)
    assert not plans[0].failed


@pytest.mark.parametrize("value", ["True", "1", "yes", "YES", "y", "nope", "until monday"])
def test_a_pause_that_cannot_be_read_is_reported_and_pauses(value: str) -> None:
    """D-89."""
    plan = plan_group(group(prev("a", paused=value)))
    assert [wait.code for wait in plan.waits] == [Code.PAUSED]
    assert not plan.actions
    (problem,) = plan.problems
    assert (problem.code, problem.severity) == (Code.BAD_PAUSED, Severity.WARN)
    assert f'"{value}"' in problem.text


@pytest.mark.parametrize("value", ["", " ", "false", "False", "no", "NO", "off", "Off", "0"])
def test_a_clear_no_pauses_nothing(value: str) -> None:
    """D-89."""
    plan = plan_group(group(prev("a", paused=value)))
    assert plan.actions
    assert not plan.problems


def test_groups_are_independent() -> None:
    """SEED-055, D-18: a failed group says nothing about another."""
    bad = plan_group(group(prev("a", current_revision="")))
    good = plan_group(replace(group(prev("x")), name=GroupName("compactor")))
    assert bad.failed
    assert not bad.actions
    assert good.group == "compactor"
    assert good.actions


EXPLAINED = """
D-40 what is done, then what waits, then what is odd
  zone a current=prev paused=maybe; prev b pP; prev c
  | zone-b-1 is at revision prev, zone-b wants last and it is down (CrashLoopBackOff)
  | zone-b: 1 pod left to update after this one (1 unavailable of 1 allowed)
  | zone-c waits for zone-b
  | StatefulSet zone-a: annotation grafana.com/rollout-paused: "maybe" is neither "true" nor
    "false"; the zone is paused
a recorded revision
  zone a current=prev
  | zone-a has 3 of 3 pods ready at revision last, which becomes its current revision in place of
    prev
"""


@pytest.mark.parametrize(("case", "expected"), read_table(EXPLAINED, read_group))
def test_explain(case: Group, expected: list[str]) -> None:
    assert [*explain(plan_group(case))] == expected


def test_explain_of_many_pods_is_short() -> None:
    lines = explain(plan_group(read_group(f"zone a {'p' * 40} limit=30")))
    assert lines[9:] == (
        "zone-a-9 is at revision prev, zone-a wants last",
        "and 20 more",
        "zone-a: 10 pods left to update after these 30 (0 unavailable of 30 allowed)",
    )
