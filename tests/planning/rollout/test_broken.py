"""Which of the outdated pods that are down anyway may go: W-03, LI-10 against SI-04, case by case.

`P` broke by itself at the revision of before the rollout, `O` is of an abandoned revision and has
not been ready since it was put there, `L` has been replaced already. Sets are ordered where nothing
else is said. Deleting what is not up yet disrupts nothing more.
"""

import pytest

from rollout_operator.model.group import Group
from rollout_operator.planning.rollout.plan import plan_group
from tests.builders import outline
from tests.planning.tables import BUDGET_SENTENCES, read_group, read_table, shorten

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


@pytest.mark.parametrize(("case", "expected"), read_table(BROKEN, read_group))
def test_broken(case: Group, expected: list[str]) -> None:
    assert shorten(outline(plan_group(case)), BUDGET_SENTENCES) == expected
