"""Which pods of a zone count, which go and which wait: cases beyond the table T-01."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rollout_operator.model.group import Deletion, Group
from rollout_operator.model.names import (
    Revision,
    Uid,
)
from rollout_operator.model.outcome import Code, Plan, ReplacePods, Severity
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.planning.wording import explain
from tests.builders import NOW, group, outline, pod, prev, sts, unreadable, with_pods, zone

ONE_ZONE = [
    pytest.param(
        group(prev("a", "lLl")),
        ["zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-1: CrashLoopBackOff)"],
        id="SI-07 ROLL-41 a broken pod at the update revision is never deleted",
    ),
    pytest.param(
        group(prev("a"), deletions={"zone-a-0": Deletion.ACCEPTED}),
        [
            "pods_starting: zone-a: 2 outdated pods wait: 1 unavailable of 1 allowed "
            "(zone-a-0: delete accepted)"
        ],
        id="FP-01 W-07 our own delete that the cache does not show counts",
    ),
    pytest.param(
        group(prev("a"), deletions={"zone-a-0": Deletion.UNKNOWN}),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 2 outdated pods wait: 1 unavailable of 1 allowed, 1 going now",
        ],
        id="SI-18 a delete without an answer is repeated for the same pod and no other",
    ),
    pytest.param(
        group(prev("a", "ppP"), deletions={"zone-a-0": Deletion.UNKNOWN}),
        [
            "budget_used: zone-a: 3 outdated pods wait: 2 unavailable of 1 allowed "
            "(zone-a-0: delete not answered and zone-a-2: CrashLoopBackOff)"
        ],
        id="SI-03 a delete without an answer is not repeated when another pod has crashed since",
    ),
    pytest.param(
        group(prev("a", "ppP", limit="2"), deletions={"zone-a-0": Deletion.UNKNOWN}),
        [
            "replace in zone-a: 1 of broken [zone-a-0] and 1 of broken [zone-a-2]",
            "budget_used: zone-a: 1 outdated pod waits: 2 unavailable of 2 allowed, 2 going now",
        ],
        id="SI-03 a delete without an answer is repeated where the limit leaves room for it",
    ),
    pytest.param(
        group(prev("a", "PPp"), deletions={"zone-a-0": Deletion.UNKNOWN}),
        [
            "replace in zone-a: 1 of broken [zone-a-0]",
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 1 allowed, 1 going now",
        ],
        id="LI-10 a delete without an answer is repeated where the pod is down anyway",
    ),
    pytest.param(
        group(zone("a", "lll"), deletions={"zone-a-0": Deletion.UNKNOWN}),
        ["zone_not_ready: zone-a has 2 of 3 pods ready (zone-a-0: delete not answered)"],
        id="SI-07 a delete without an answer is not repeated at the update revision",
    ),
    pytest.param(
        group(prev("a", "tp"), deletions={"zone-a-0": Deletion.UNKNOWN}),
        [
            "pods_starting: zone-a: 1 outdated pod waits: 1 unavailable of 1 allowed "
            "(zone-a-0: terminating)"
        ],
        id="SI-18 a delete without an answer that shows is not repeated",
    ),
    pytest.param(
        group(prev("a", "ppp", ready=1, limit="3")),
        [
            "replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]",
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 3 allowed, 1 going now",
        ],
        id="W-33 status is more pessimistic than the pods: status counts",
    ),
    pytest.param(
        group(prev("a", "p-Lp", ready=4, limit="2")),
        [
            "budget_used: zone-a: 2 outdated pods wait: 2 unavailable of 2 allowed "
            "(zone-a-2: CrashLoopBackOff and zone-a-1: no pod)"
        ],
        id="FP-02 W-33 the pods are more pessimistic than status: the pods count",
    ),
    pytest.param(
        group(prev("a", "p" * 12, limit="11")),
        [
            "replace in zone-a: 11 of [zone-a-0 zone-a-1 zone-a-2 zone-a-3 zone-a-4 "
            "zone-a-5 zone-a-6 zone-a-7 zone-a-8 zone-a-9 zone-a-10 zone-a-11]",
            "budget_used: zone-a: 1 outdated pod waits: 0 unavailable of 11 allowed, 11 going now",
        ],
        id="SORT-02 natural order: 9 before 10",
    ),
]


@pytest.mark.parametrize(("case", "expected"), ONE_ZONE)
def test_zone(case: Group, expected: list[str]) -> None:
    assert outline(plan_group(case)) == expected


def test_pods_of_other_owners_do_not_exist() -> None:
    """SEED-113, FP-32, SI-06: a pod with the right name and another owner is none of ours."""
    stranger = with_pods(prev("a"), owner_uid=Uid("someone"))
    assert outline(plan_group(group(stranger, zone("b")))) == [
        "zone_not_ready: zone-a has 0 of 3 pods ready (zone-a-0: no pod, zone-a-1: no pod and "
        "zone-a-2: no pod)",
        "problem pods_missing zone-a",
    ]


def test_pods_outside_the_desired_ordinals_neither_count_nor_go() -> None:
    """FP-29: scaled from 4 to 2 with ordinals from 1; what goes away is not replaced."""
    base = prev("a", "PppP")
    scaled = replace(base, sts=sts("a", 2, first_ordinal=1, current_revision="prev"))
    assert outline(plan_group(group(scaled))) == ["replace in zone-a: 2 of [zone-a-1 zone-a-2]"]


@pytest.mark.parametrize("name", ["zone-a-", "zone-a-01", "zone-a-x", "zone-b-1", "zone-a-\u0661"])
def test_an_owned_pod_with_another_name_takes_no_ordinal(name: str) -> None:
    base = prev("a", "l-l")
    stray = pod("a", 1, "p", name=name, uid="stray")
    plan = plan_group(group(replace(base, pods=(*base.pods, stray))))
    assert [reason.code for reason in plan.waits] == [Code.ZONE_NOT_READY]
    assert not plan.actions


def test_an_unreadable_pod_counts_as_down_and_is_told() -> None:
    base = prev("a", "pp-", limit="2", ready=3)
    broken = replace(base, unreadable_pods=(unreadable("Pod", "zone-a-2", owner="a"),))
    plan = plan_group(group(broken))
    assert outline(plan) == [
        "replace in zone-a: 1 of [zone-a-0 zone-a-1]",
        "budget_used: zone-a: 1 outdated pod waits: 1 unavailable of 2 allowed, 1 going now",
        "problem object_unreadable zone-a",
    ]
    assert "zone-a-2 cannot be read and counts as down: spec.replicas" in plan.problems[0].text
    assert not plan.failed


def test_an_unreadable_pod_uses_the_budget_up_and_is_named() -> None:
    base = prev("a", "pp-", ready=3)
    broken = replace(base, unreadable_pods=(unreadable("Pod", "zone-a-2", owner="a"),))
    assert outline(plan_group(group(broken)))[0] == (
        "budget_used: zone-a: 2 outdated pods wait: 1 unavailable of 1 allowed "
        "(zone-a-2: unreadable)"
    )


def test_an_unreadable_pod_of_another_owner_does_not_exist() -> None:
    stranger = unreadable("Pod", "zone-a-2", owner="b")
    base = replace(zone("a", "ll-"), unreadable_pods=(stranger,))
    assert "zone-a-2: no pod" in explain(plan_group(group(base)))[0]


@pytest.mark.parametrize("step", [1, -1], ids=["as is", "reversed"])
def test_of_two_pods_of_one_name_the_worse_counts(step: int) -> None:
    """FP-07: a cache that missed a delete holds the old and the new pod; the zone is not whole."""
    twins = (pod("a", 0, "l", uid="new"), pod("a", 0, "L", uid="former"))
    base = zone("a", "lll", current="prev")
    plan = plan_group(group(replace(base, pods=(*twins[::step], *base.pods[1:]))))
    assert [reason.code for reason in plan.waits] == [Code.ZONE_NOT_READY]


def test_a_huge_number_of_replicas_costs_nothing() -> None:
    """Work goes with the pods that exist: a typo in `replicas` must not stop the loop."""
    base = zone("a", "ll", current="prev")
    huge = replace(base, sts=sts("a", 2**31 - 1, ready_replicas=2))
    assert outline(plan_group(group(huge))) == [
        "zone_not_ready: zone-a has 2 of 2147483647 pods ready (zone-a-2: no pod, "
        "zone-a-3: no pod, zone-a-4: no pod and 2147483642 more)"
    ]


def settling(since: timedelta | None, *, limit: str = "1", available: int = 3) -> Plan:
    """Return the plan of a zone with 30 s to settle: zone-a-1 at prev became ready `since` ago."""
    base = with_pods(prev("a", "plp", limit=limit), ready_since=NOW - timedelta(hours=1))
    young = pod("a", 1, "l", ready_since=None if since is None else NOW - since)
    old, _, other = base.pods
    changed = msgspec.structs.replace(
        base.sts, min_ready_seconds=30, ready_replicas=0, available_replicas=available
    )
    return plan_group(group(replace(base, sts=changed, pods=(old, young, other))))


def test_a_pod_counts_only_once_it_is_available() -> None:
    """W-27, D-11: ready for 12 of 30 s is down; the plan says when to look again."""
    plan = settling(timedelta(seconds=12))
    assert outline(plan) == [
        "pods_starting: zone-a: 2 outdated pods wait: 1 unavailable of 1 allowed "
        "(zone-a-1: ready for less than 30s)"
    ]
    assert plan.look_again == timedelta(seconds=18)


def test_a_pod_is_available_at_the_last_second() -> None:
    plan = settling(timedelta(seconds=30))
    assert isinstance(plan.actions[0], ReplacePods)
    assert plan.look_again is None


def test_a_ready_pod_of_unknown_age_is_not_available() -> None:
    plan = settling(None)
    assert not plan.actions
    assert plan.look_again is None


def test_status_must_agree_that_pods_are_available() -> None:
    plan = settling(timedelta(seconds=30), available=2)
    assert outline(plan) == [
        "pods_starting: zone-a: 2 outdated pods wait: 1 unavailable of 1 allowed "
        "(status counts 2 available)"
    ]


def test_an_outdated_pod_that_settles_needs_room_like_a_healthy_one() -> None:
    """D-14: it counts as down already, yet it serves; it is not free."""
    base = with_pods(prev("a", "pp", limit="2"), ready_since=NOW - timedelta(seconds=1))
    changed = msgspec.structs.replace(base.sts, min_ready_seconds=30, available_replicas=1)
    old = pod("a", 1, "p", ready_since=NOW - timedelta(hours=1))
    plan = plan_group(group(replace(base, sts=changed, pods=(base.pods[0], old))))
    assert outline(plan)[0] == "replace in zone-a: 1 of [zone-a-0 zone-a-1]"


def test_a_pod_without_a_revision_is_outdated() -> None:
    """ROLL-32."""
    base = with_pods(zone("a", "lll", limit="1"), revision=None)
    action = plan_group(group(base)).actions[0]
    assert isinstance(action, ReplacePods)
    assert action.listed[0].reason.text == ("zone-a-0 is at revision none, zone-a wants last")


def test_reasons_of_pods_name_trouble_and_revisions() -> None:
    action = plan_group(group(prev("a", "Pp", limit="2"))).actions[0]
    assert isinstance(action, ReplacePods)
    broken, healthy = (one.reason for one in action.listed)
    assert (broken.code, healthy.code) == (Code.POD_BROKEN_AND_OUTDATED, Code.POD_OUTDATED)
    assert broken.text == (
        "zone-a-0 is at revision prev, zone-a wants last and it is down (CrashLoopBackOff)"
    )
    assert healthy.text == "zone-a-1 is at revision prev, zone-a wants last"


@pytest.mark.parametrize("trouble", ["ContainerCreating", "phase Pending", "container x not ready"])
def test_a_replaced_pod_on_its_way_up_is_starting(trouble: str) -> None:
    base = prev("a", "Lpp")
    young = replace(base, pods=(pod("a", 0, "L", trouble=trouble), *base.pods[1:]))
    (wait,) = plan_group(group(young)).waits
    assert (wait.code, wait.severity) == (Code.PODS_STARTING, Severity.DEBUG)


def test_a_newer_revision_replaces_what_just_came_up() -> None:
    """FP-28: the template changed again while the first change was being rolled out."""
    base = prev("a", "lpp", limit="1")
    newer = replace(base, sts=msgspec.structs.replace(base.sts, update_revision=Revision("next")))
    assert outline(plan_group(group(newer)))[0] == (
        "replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]"
    )


def test_the_year_9999_is_a_time_like_any_other() -> None:
    base = with_pods(zone("a"), ready_since=datetime.max.replace(tzinfo=UTC))
    slow = msgspec.structs.replace(base.sts, min_ready_seconds=2**31 - 1)
    plan = plan_group(group(replace(base, sts=slow)))
    assert [reason.code for reason in plan.waits] == [Code.ZONE_NOT_READY]
