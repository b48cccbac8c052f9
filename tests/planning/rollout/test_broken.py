"""Which of the outdated pods that are down anyway may go: W-03, LI-10 against SI-04, case by case.

`P` broke by itself at the revision of before the rollout, `O` is of an abandoned revision and has
not been ready since it was put there, `L` has been replaced already. Sets are ordered where nothing
else is said.
"""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.model.group import Deletion, Group, Zone
from rollout_operator.model.outcome import ReplacePods
from rollout_operator.planning.rollout.plan import plan_group
from tests.builders import NOW, group, outline, prev, unreadable, with_pods, zone


def fallen(base: Zone, name: str) -> Zone:
    """Return the zone with one pod that has been ready and is not any more."""
    pods = [
        msgspec.structs.replace(one, was_ready=True) if one.name == name else one
        for one in base.pods
    ]
    return replace(base, pods=tuple(pods))


BROKEN = [
    pytest.param(
        group(prev("a", "pPp")),
        [
            "replace in zone-a: 1 of broken [zone-a-1]",
            "budget_used: zone-a: 2 outdated pods wait: 1 unavailable of 1 allowed, 1 going now",
        ],
        id="W-03 D-14 LI-10 a broken outdated pod goes though the budget is used up",
    ),
    pytest.param(
        group(prev("a", "PpP", limit="3")),
        ["replace in zone-a: 2 of broken [zone-a-0 zone-a-2] and 1 of [zone-a-1]"],
        id="D-14 broken outdated pods cost no budget, the healthy one takes the room that is left",
    ),
    pytest.param(
        group(prev("a", "PPp")),
        [
            "replace in zone-a: 1 of broken [zone-a-0 zone-a-1]",
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="SI-04 of two pods that broke by themselves only one is disrupted by us at a time",
    ),
    pytest.param(
        group(prev("a", "OOp")),
        [
            "replace in zone-a: 1 of broken [zone-a-0 zone-a-1]",
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="SI-04 FP-28 D-15 two pods of an abandoned revision: in turn, refused ones skipped",
    ),
    pytest.param(
        group(prev("a", "OOp", limit="2")),
        [
            "replace in zone-a: 2 of broken [zone-a-0 zone-a-1]",
            "budget_used: zone-a: 1 outdated pod waits: 2 unavailable of 2 allowed, 2 going now",
        ],
        id="LI-10 FP-28 as many pods of an abandoned revision as the limit go at once",
    ),
    pytest.param(
        group(prev("a", "pO-T")),
        [
            "replace in zone-a: 1 of broken [zone-a-1]",
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 FP-30 what is absent or going above does not hold a pod of an abandoned revision",
    ),
    pytest.param(
        group(prev("a", "-Op")),
        [
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed "
            "(zone-a-1: CrashLoopBackOff and zone-a-0: no pod)"
        ],
        id="SI-04 FP-30 what is absent below holds it",
    ),
    pytest.param(
        group(prev("a", "TOp")),
        [
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed "
            "(zone-a-0: terminating and zone-a-1: CrashLoopBackOff)"
        ],
        id="SI-04 what is terminating below holds it",
    ),
    pytest.param(
        group(prev("a", "Pp-", is_ordered=False)),
        [
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed "
            "(zone-a-0: CrashLoopBackOff and zone-a-2: no pod)"
        ],
        id="SI-04 an untouched pod of a parallel set waits for whatever else is in flight",
    ),
    pytest.param(
        group(prev("a", "pP-")),
        [
            "replace in zone-a: 1 of broken [zone-a-1]",
            "budget_used: zone-a: 1 outdated pod waits: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 FP-30 of an ordered set it does not: what is gone above comes back only after it",
    ),
    pytest.param(
        group(prev("a", "Ptp")),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 1 outdated pod waits: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 FP-27 nor for what is still terminating above, may be for an hour",
    ),
    pytest.param(
        group(prev("a", "Ppp"), deletions={"zone-a-1": Deletion.ACCEPTED}),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 1 outdated pod waits: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 FP-01 nor for what we have just deleted above",
    ),
    pytest.param(
        group(prev("a", "PP-")),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 1 allowed, 1 going now",
        ],
        id="SI-04 FP-30 only the lowest is waited for: where it is refused, no other one goes",
    ),
    pytest.param(
        group(prev("a", "O-O")),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 FP-30 what is absent holds the pods above it and not those below",
    ),
    pytest.param(
        group(prev("a", "PP-", limit="2")),
        [
            "replace in zone-a: 1 of broken [zone-a-0 zone-a-1]",
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 2 allowed, 1 going now",
        ],
        id="SI-04 FP-30 where the limit leaves room, what is gone above counts in ordered sets too",
    ),
    pytest.param(
        group(prev("a", "-Pp")),
        [
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed "
            "(zone-a-1: CrashLoopBackOff and zone-a-0: no pod)"
        ],
        id="SI-04 FP-30 what is absent below comes first in an ordered set",
    ),
    pytest.param(
        group(prev("a", "tP-")),
        [
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 1 allowed "
            "(zone-a-0: terminating, zone-a-1: CrashLoopBackOff and zone-a-2: no pod)"
        ],
        id="SI-04 FP-30 so does what is terminating below",
    ),
    pytest.param(
        group(prev("a", "PL-")),
        [
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 1 allowed "
            "(zone-a-0: CrashLoopBackOff, zone-a-1: CrashLoopBackOff and zone-a-2: no pod)"
        ],
        id="SI-04 FP-30 a pod above that exists needs no other one to come up: it is waited for",
    ),
    pytest.param(
        group(prev("a", "OLp", is_ordered=False)),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 1 outdated pod waits: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 a replaced pod above that finds no node does not keep the fix from a bad one",
    ),
    pytest.param(
        group(with_pods(prev("a", "O-p", is_ordered=False), was_ready=True)),
        [
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed "
            "(zone-a-0: CrashLoopBackOff and zone-a-1: no pod)"
        ],
        id="SI-04 FP-28 a pod of an abandoned revision that was up for a while is one more",
    ),
    pytest.param(
        group(fallen(prev("a", "OOp", is_ordered=False), "zone-a-0")),
        [
            "replace in zone-a: 1 of broken [zone-a-1]",
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="SI-04 FP-28 of two such pods the one that has not been up yet goes first",
    ),
    pytest.param(
        group(fallen(prev("a", "OOp"), "zone-a-0")),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 FP-30 in an ordered set the lowest: one above is not created before it is ready",
    ),
    pytest.param(
        group(fallen(prev("a", "O-O"), "zone-a-0")),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 FP-30 also where one that never was ready lies above a gap",
    ),
    pytest.param(
        group(prev("a", "LPp")),
        [
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed "
            "(zone-a-0: CrashLoopBackOff and zone-a-1: CrashLoopBackOff)"
        ],
        id="SI-04 SI-07 the replaced pod is not up and never touched: the broken one waits",
    ),
    pytest.param(
        group(zone("a", "LOP", limit="2", ready=0)),
        [
            "replace in zone-a: 1 of broken [zone-a-1 zone-a-2]",
            "budget_used: zone-a: 1 outdated pod waits: 3 unavailable of 2 allowed, 1 going now",
        ],
        id="ROLL-33 SI-04 after a rollback the pod that was replaced counts though it is current",
    ),
]


@pytest.mark.parametrize(("case", "expected"), BROKEN)
def test_broken(case: Group, expected: list[str]) -> None:
    assert outline(plan_group(case)) == expected


@pytest.mark.parametrize("state", ["P", "O"], ids=["untouched", "abandoned"])
def test_an_unreadable_pod_may_be_in_flight_and_holds_broken_ones(state: str) -> None:
    """SI-04."""
    base = prev("a", f"{state}p-", ready=3)
    broken = replace(base, unreadable_pods=(unreadable("Pod", "zone-a-2", owner="a"),))
    assert not plan_group(group(broken)).actions


@pytest.mark.parametrize("broken", ["P", "O"], ids=["untouched", "abandoned"])
def test_a_replaced_pod_that_settles_does_not_hold_broken_ones(broken: str) -> None:
    """W-03, SI-04: it is ready, so it is disrupted no more; it only does not count as up yet."""
    base = with_pods(prev("a", f"l{broken}p"), ready_since=NOW - timedelta(seconds=1))
    slow = msgspec.structs.replace(base.sts, min_ready_seconds=30)
    action = plan_group(group(replace(base, sts=slow))).actions[0]
    assert isinstance(action, ReplacePods)
    assert [one.pod.name for one in action.going] == ["zone-a-1"]


def test_ordinals_below_the_first_are_no_gap() -> None:
    """FP-29, W-24."""
    base = prev("a", "-Op", ready=1)
    shifted = msgspec.structs.replace(base.sts, first_ordinal=1, replicas=2)
    assert outline(plan_group(group(replace(base, sts=shifted))))[0] == (
        "replace in zone-a: 1 of broken [zone-a-1]"
    )


@pytest.mark.parametrize(
    "state",
    [{"never_ready": True}, {"phase": "Pending"}],
    ids=["not ready since its start", "without a node"],
)
def test_a_pod_that_was_evicted_and_is_not_up_again_holds_one_that_fell(
    state: dict[str, object],
) -> None:
    """SI-04: its revision is that of before the rollout, as one has that broke by itself."""
    base = fallen(prev("a", "PPp", is_ordered=False, ready=1), "zone-a-0")
    pods = [
        msgspec.structs.replace(one, **state) if one.name == "zone-a-1" else one
        for one in base.pods
    ]

    # Deleting what is not up yet disrupts nothing more; the one that fell waits for it.
    assert outline(plan_group(group(replace(base, pods=tuple(pods)))))[0] == (
        "replace in zone-a: 1 of broken [zone-a-1]"
    )
