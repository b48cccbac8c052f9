"""Which pods of a zone count, which go and which wait, and its numbers: cases beyond T-01.

Of the outdated pods that are down anyway (W-03, LI-10 against SI-04), `P` broke by itself at the
revision of before the rollout, `O` is of an abandoned revision and has not been ready since it was
put there, `L` has been replaced already. Their sets are ordered where nothing else is said.
Deleting what is not up yet disrupts nothing more.
"""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from rollout_operator.model.objects import Deletion, Group, Zone, parse_ordinal
from rollout_operator.model.outcome import Code, ReplacePods, Severity
from rollout_operator.planning.rollout import plan_group
from tests.builders import group, outline, pod, prev, with_pods, zone
from tests.planning.tables import BUDGET_SENTENCES, read_group, read_table, shorten

ONE_ZONE = """
SI-07 ROLL-41 a broken pod at the update revision is never deleted
  prev a lLl | zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-1: CrashLoopBackOff)
FP-01 W-07 our own delete that the cache does not show counts
  prev a; accepted zone-a-0 | pods_starting a: 2 wait, 1 of 1 down (zone-a-0: delete accepted)
SI-18 a delete without an answer is repeated for the same pod and no other
  prev a; unknown zone-a-0
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 2 wait, 1 of 1 down, 1 going
SI-03 a delete without an answer is not repeated when another pod has crashed since
  prev a ppP; unknown zone-a-0
  | budget_used a: 3 wait, 2 of 1 down (zone-a-0: delete not answered and zone-a-2:
    CrashLoopBackOff)
SI-03 a delete without an answer is repeated where the limit leaves room for it
  prev a ppP limit=2; unknown zone-a-0
  | replace in zone-a: 1 of broken [zone-a-0] and 1 of broken [zone-a-2]
  | budget_used a: 1 wait, 2 of 2 down, 2 going
LI-10 a delete without an answer is repeated where the pod is down anyway
  prev a PPp; unknown zone-a-0
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 2 wait, 2 of 1 down, 1 going
SI-07 a delete without an answer is not repeated at the update revision
  zone a lll; unknown zone-a-0
  | zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-0: delete not answered)
SI-18 a delete without an answer that shows is not repeated
  prev a tp; unknown zone-a-0 | pods_starting a: 1 wait, 1 of 1 down (zone-a-0: terminating)
W-33 status is more pessimistic than the pods: status counts
  prev a ppp ready=1 limit=3
  | replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used a: 2 wait, 2 of 3 down, 1 going
FP-02 W-33 the pods are more pessimistic than status: the pods count
  prev a p-Lp ready=4 limit=2
  | budget_used a: 2 wait, 2 of 2 down (zone-a-2: CrashLoopBackOff and zone-a-1: no pod)
SORT-02 natural order: 9 before 10
  prev a pppppppppppp limit=11
  | replace in zone-a: 11 of [zone-a-0 zone-a-1 zone-a-2 zone-a-3 zone-a-4 zone-a-5 zone-a-6
    zone-a-7 zone-a-8 zone-a-9 zone-a-10 zone-a-11]
  | budget_used a: 1 wait, 0 of 11 down, 11 going
SEED-113 FP-32 SI-06 a pod with the right name and another owner is none of ours
  prev a; zone b; pod zone-a-* owner_uid=stranger
  | zone_not_ready: zone-a has 0 of 3 pods ready (zone-a-0: no pod, zone-a-1: no pod and zone-a-2:
    no pod)
  | problem pods_missing zone-a
FP-29 of a zone that is scaled from 4 to 2 what goes away neither counts nor goes
  prev a PppP limit=2 replicas=2 first_ordinal=1 | replace in zone-a: 2 of [zone-a-1 zone-a-2]
an unreadable pod counts as down and is reported
  prev a pp- limit=2 ready=3; lost zone-a-2
  | replace in zone-a: 1 of [zone-a-0 zone-a-1] | budget_used a: 1 wait, 1 of 2 down, 1 going
  | problem object_unreadable zone-a
a huge number of replicas costs nothing: work goes with the pods that exist
  zone a ll replicas=2147483647 ready_replicas=2
  | zone_not_ready: zone-a has 2 of 2147483647 pods ready (zone-a-2: no pod, zone-a-3: no pod,
    zone-a-4: no pod and 2147483642 more)
an unreadable pod uses the budget up and is named
  prev a pp- ready=3; lost zone-a-2
  | budget_used a: 2 wait, 1 of 1 down (zone-a-2: unreadable) | problem object_unreadable zone-a
an unreadable pod of another owner does not exist
  zone a ll-; lost zone-a-2 owner=b
  | zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-2: no pod)
  | problem object_unreadable zone-a
W-27 D-11 a pod that is ready for 12 of 30 s is down
  prev a plp min_ready_seconds=30; pod zone-a-* ready_for=3600; pod zone-a-1 ready_for=12
  | pods_starting a: 2 wait, 1 of 1 down (zone-a-1: ready for less than 30s) | again in 18s
W-27 it is available at the last second
  prev a plp min_ready_seconds=30; pod zone-a-* ready_for=3600; pod zone-a-1 ready_for=30
  | replace in zone-a: 1 of [zone-a-0 zone-a-2] | budget_used a: 1 wait, 0 of 1 down, 1 going
W-27 a ready pod of unknown age is not available, and no time makes it so
  prev a plp min_ready_seconds=30; pod zone-a-* ready_for=3600; pod zone-a-1 ready_since=none
  | pods_starting a: 2 wait, 1 of 1 down (zone-a-1: ready for less than 30s)
W-27 the status must agree that pods are available, and no more
  prev a plp min_ready_seconds=30 ready_replicas=0 available_replicas=2; pod zone-a-* ready_for=30
  | pods_starting a: 2 wait, 1 of 1 down (status counts 2 available)
D-14 an outdated pod that settles counts as down, yet it serves: it needs room like a healthy one
  prev a pp limit=2 min_ready_seconds=30 available_replicas=1; pod zone-a-0 ready_for=1; pod
    zone-a-1 ready_for=3600
  | replace in zone-a: 1 of [zone-a-0 zone-a-1] | budget_used a: 1 wait, 1 of 2 down, 1 going
  | again in 29s
FP-28 the template changed again: a newer revision replaces what just came up
  prev a lpp update_revision=next
  | replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]
  | budget_used a: 2 wait, 0 of 1 down, 1 going
"""

BROKEN = """
W-03 D-14 LI-10 a broken outdated pod goes though the budget is used up
  prev a pPp
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 2 wait, 1 of 1 down, 1 going
D-14 broken outdated pods cost no budget, the healthy one takes the room that is left
  prev a PpP limit=3 | replace in zone-a: 2 of broken [zone-a-0 zone-a-2] and 1 of [zone-a-1]
SI-04 of two pods that broke by themselves only one is disrupted by us at a time
  prev a PPp
  | replace in zone-a: 1 of broken [zone-a-0 zone-a-1] | budget_used a: 2 wait, 2 of 1 down, 1 going
SI-04 FP-28 D-15 two pods of an abandoned revision: in turn, refused ones skipped
  prev a OOp
  | replace in zone-a: 1 of broken [zone-a-0 zone-a-1] | budget_used a: 2 wait, 2 of 1 down, 1 going
LI-10 FP-28 as many pods of an abandoned revision as the limit go at once
  prev a OOp limit=2
  | replace in zone-a: 2 of broken [zone-a-0 zone-a-1] | budget_used a: 1 wait, 2 of 2 down, 2 going
LI-10 FP-30 what is absent or going above does not hold a pod of an abandoned revision
  prev a pO-T
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 1 wait, 3 of 1 down, 1 going
SI-04 FP-30 what is absent below holds it
  prev a -Op | budget_used a: 2 wait, 2 of 1 down (zone-a-1: CrashLoopBackOff and zone-a-0: no pod)
SI-04 what is terminating below holds it
  prev a TOp
  | budget_used a: 2 wait, 2 of 1 down (zone-a-0: terminating and zone-a-1: CrashLoopBackOff)
SI-04 an untouched pod of a parallel set waits for whatever else is in flight
  prev a Pp- is_ordered=false
  | budget_used a: 2 wait, 2 of 1 down (zone-a-0: CrashLoopBackOff and zone-a-2: no pod)
LI-10 FP-30 of an ordered set it does not: what is gone above comes back only after it
  prev a pP-
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 1 wait, 2 of 1 down, 1 going
LI-10 FP-27 nor for what is still terminating above, may be for an hour
  prev a Ptp
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 1 wait, 2 of 1 down, 1 going
LI-10 FP-01 nor for what we have just deleted above
  prev a Ppp; accepted zone-a-1
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 1 wait, 2 of 1 down, 1 going
SI-04 FP-30 only the lowest is waited for: where it is refused, no other one goes
  prev a PP-
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 1 wait, 3 of 1 down, 1 going
LI-10 FP-30 what is absent holds the pods above it and not those below
  prev a O-O
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 1 wait, 3 of 1 down, 1 going
SI-04 FP-30 where the limit leaves room, what is gone above counts in ordered sets too
  prev a PP- limit=2
  | replace in zone-a: 1 of broken [zone-a-0 zone-a-1] | budget_used a: 1 wait, 3 of 2 down, 1 going
SI-04 FP-30 what is absent below comes first in an ordered set
  prev a -Pp | budget_used a: 2 wait, 2 of 1 down (zone-a-1: CrashLoopBackOff and zone-a-0: no pod)
SI-04 FP-30 so does what is terminating below
  prev a tP-
  | budget_used a: 1 wait, 3 of 1 down (zone-a-0: terminating, zone-a-1: CrashLoopBackOff and
    zone-a-2: no pod)
SI-04 FP-30 a pod above that exists needs no other one to come up: it is waited for
  prev a PL-
  | budget_used a: 1 wait, 3 of 1 down (zone-a-0: CrashLoopBackOff, zone-a-1: CrashLoopBackOff and
    zone-a-2: no pod)
LI-10 a replaced pod above that finds no node does not keep the fix from a bad one
  prev a OLp is_ordered=false
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 1 wait, 2 of 1 down, 1 going
SI-04 SI-07 the replaced pod is not up and never touched: the broken one waits
  prev a LPp
  | budget_used a: 2 wait, 2 of 1 down (zone-a-0: CrashLoopBackOff and zone-a-1: CrashLoopBackOff)
ROLL-33 SI-04 after a rollback the pod that was replaced counts though it is current
  zone a LOP limit=2 ready=0
  | replace in zone-a: 1 of broken [zone-a-1 zone-a-2] | budget_used a: 1 wait, 3 of 2 down, 1 going
SI-04 FP-28 a pod of an abandoned revision that was up for a while is one more
  prev a O-p is_ordered=false; pod zone-a-0 was_ready=true
  | budget_used a: 2 wait, 2 of 1 down (zone-a-0: CrashLoopBackOff and zone-a-1: no pod)
SI-04 FP-28 of two such pods the one that has not been up yet goes first
  prev a OOp is_ordered=false; pod zone-a-0 was_ready=true
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 2 wait, 2 of 1 down, 1 going
LI-10 FP-30 in an ordered set the lowest: one above is not created before it is ready
  prev a OOp; pod zone-a-0 was_ready=true
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 2 wait, 2 of 1 down, 1 going
LI-10 FP-30 also where one that never was ready lies above a gap
  prev a O-O; pod zone-a-0 was_ready=true
  | replace in zone-a: 1 of broken [zone-a-0] | budget_used a: 1 wait, 3 of 1 down, 1 going
SI-04 an unreadable pod may be in flight and holds one that broke by itself
  prev a Pp- ready=3; lost zone-a-2
  | budget_used a: 2 wait, 2 of 1 down (zone-a-0: CrashLoopBackOff and zone-a-2: unreadable)
  | problem object_unreadable zone-a
SI-04 an unreadable pod holds one of an abandoned revision, too
  prev a Op- ready=3; lost zone-a-2
  | budget_used a: 2 wait, 2 of 1 down (zone-a-0: CrashLoopBackOff and zone-a-2: unreadable)
  | problem object_unreadable zone-a
W-03 SI-04 a replaced pod that settles does not hold one that broke: it is disrupted no more
  prev a lPp min_ready_seconds=30; pod zone-a-* ready_for=1
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 1 wait, 3 of 1 down, 1 going
W-03 SI-04 nor one of an abandoned revision
  prev a lOp min_ready_seconds=30; pod zone-a-* ready_for=1
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 1 wait, 3 of 1 down, 1 going
FP-29 W-24 ordinals below the first are no gap
  prev a -Op ready=1 first_ordinal=1 replicas=2
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 1 wait, 1 of 1 down, 1 going
SI-04 a pod that was evicted and has not been ready since its start holds one that fell
  prev a PPp is_ordered=false; pod zone-a-0 was_ready=true; pod zone-a-1 never_ready=true
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 2 wait, 2 of 1 down, 1 going
SI-04 a pod that was evicted and has no node holds one that fell
  prev a PPp is_ordered=false; pod zone-a-0 was_ready=true; pod zone-a-1 phase=Pending
  | replace in zone-a: 1 of broken [zone-a-1] | budget_used a: 2 wait, 2 of 1 down, 1 going
"""


@pytest.mark.parametrize(("case", "expected"), read_table(ONE_ZONE, read_group))
def test_zone(case: Group, expected: list[str]) -> None:
    plan = plan_group(case)
    wait = plan.requeue_after
    again = [] if wait is None else [f"again in {wait.total_seconds():.0f}s"]
    assert [*shorten(outline(plan), BUDGET_SENTENCES), *again] == expected


def test_an_unreadable_pod_is_reported_and_fails_nothing() -> None:
    plan = plan_group(read_group("prev a pp- limit=2 ready=3; lost zone-a-2"))
    assert "zone-a-2 cannot be read and counts as down: spec.replicas" in plan.problems[0].text
    assert not plan.failed


@pytest.mark.parametrize("name", ["zone-a-", "zone-a-01", "zone-a-x", "zone-b-1", "zone-a-\u0661"])
def test_an_owned_pod_with_another_name_takes_no_ordinal(name: str) -> None:
    base = prev("a", "l-l")
    stray = pod("a", 1, "p", name=name, uid="stray")
    plan = plan_group(group(replace(base, pods=(*base.pods, stray))))
    assert [reason.code for reason in plan.waits] == [Code.ZONE_NOT_READY]
    assert not plan.actions


@pytest.mark.parametrize("step", [1, -1], ids=["as is", "reversed"])
def test_of_two_pods_of_one_name_the_worse_counts(step: int) -> None:
    """FP-07: a cache that missed a delete holds the old and the new pod; the zone is not whole."""
    twins = (pod("a", 0, "l", uid="new"), pod("a", 0, "L", uid="former"))
    base = zone("a", "lll", current="prev")
    plan = plan_group(group(replace(base, pods=(*twins[::step], *base.pods[1:]))))
    assert [reason.code for reason in plan.waits] == [Code.ZONE_NOT_READY]


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        pytest.param(
            "zone a l limit=1; pod zone-a-0 revision=none",
            ["pod_outdated: zone-a-0 is at revision none, zone-a wants last"],
            id="ROLL-32 a pod without a revision is outdated",
        ),
        pytest.param(
            "prev a Pp limit=2",
            [
                "pod_broken_and_outdated: zone-a-0 is at revision prev, zone-a wants last and it is"
                " down (CrashLoopBackOff)",
                "pod_outdated: zone-a-1 is at revision prev, zone-a wants last",
            ],
            id="D-40 trouble and revisions are named",
        ),
    ],
)
def test_reasons_of_pods(case: str, texts: list[str]) -> None:
    action = plan_group(read_group(case)).actions[0]
    assert isinstance(action, ReplacePods)
    assert [f"{pod.reason.code}: {pod.reason.text}" for pod in action.listed] == texts


def test_a_replaced_pod_on_its_way_up_is_starting() -> None:
    (wait,) = plan_group(read_group("prev a Lpp; pod zone-a-0 is_starting=true")).waits
    assert (wait.code, wait.severity) == (Code.PODS_STARTING, Severity.DEBUG)


def test_the_year_9999_is_a_time_like_any_other() -> None:
    base = zone("a", min_ready_seconds=2**31 - 1)
    far = with_pods(base, ready_since=datetime.max.replace(tzinfo=UTC))
    assert [reason.code for reason in plan_group(group(far)).waits] == [Code.ZONE_NOT_READY]


@pytest.mark.parametrize("states", ["lll", "ppp", "lLl"])
def test_li_11_a_plan_reads_the_ordinal_of_each_pod_once(
    states: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the plan of a large zone goes into it; few zones have pods that were never ready."""
    read: list[str] = []

    def count(digits: str) -> int | None:
        read.append(digits)
        return parse_ordinal(digits)

    monkeypatch.setattr("rollout_operator.model.objects.parse_ordinal", count)
    plan_group(group(prev("a", states)))

    assert sorted(read) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        pytest.param(zone("a"), (3, 3, 3, 0), id="rolled out"),
        pytest.param(zone("a", "plL-"), (4, 2, 2, 1), id="an updated pod need not be ready"),
        pytest.param(
            zone("a", "tpl"), (3, 2, 1, 2), id="one that goes is outdated until it is gone"
        ),
        pytest.param(zone("a", "lll", ready=1), (3, 1, 3, 0), id="W-33 status counts as well"),
        pytest.param(zone("a", "---"), (3, 0, 0, 0), id="no pods"),
        pytest.param(zone("a", ""), (0, 0, 0, 0), id="no replicas"),
        pytest.param(zone("a", "ppp", min_ready_seconds=10), (3, 0, 0, 3), id="settling pods once"),
        pytest.param(zone("a", "ppp", update_revision=""), (3, 3, 0, 0), id="nothing to be at"),
    ],
)
def test_pods_are_counted(given: Zone, numbers: tuple[int, int, int, int]) -> None:
    (found,) = plan_group(group(given)).progress or ()
    assert (found.desired, found.ready, found.updated, found.outdated) == numbers


def test_a_delete_that_does_not_show_counts() -> None:
    """W-07: the pod is at the old revision still, and not ready any more."""
    plan = plan_group(group(zone("a", "ppp"), deletions={"zone-a-0": Deletion.ACCEPTED}))

    assert plan.progress is not None
    assert (plan.progress[0].ready, plan.progress[0].outdated) == (2, 3)


def test_a_group_that_is_held_is_counted_too() -> None:
    """A person who must mend something wants to see what there is."""
    plan = plan_group(group(zone("b", "pp"), zone("a", "ll", strategy="RollingUpdate")))

    assert plan.failed
    assert plan.progress is not None
    assert [(one.zone, one.outdated) for one in plan.progress] == [("zone-a", 0), ("zone-b", 2)]


def test_progress_is_no_part_of_the_decision() -> None:
    short, shorter = plan_group(group(zone("a", "ll"))), plan_group(group(zone("a", "ll")))

    assert short == shorter
    assert short.progress is not None


@pytest.mark.parametrize(("case", "expected"), read_table(BROKEN, read_group))
def test_broken(case: Group, expected: list[str]) -> None:
    assert shorten(outline(plan_group(case)), BUDGET_SENTENCES) == expected
