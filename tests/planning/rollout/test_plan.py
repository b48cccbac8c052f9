"""What stops a group, whose turn it is, what is told: cases beyond the table T-01."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rollout_operator.model.downscale import Underway
from rollout_operator.model.group import Group
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    GroupName,
)
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.planning.wording import explain
from tests.builders import group, outline, prev, unreadable, zone

WHOLE_GROUP = [
    pytest.param(
        replace(group(prev("a")), view_age=timedelta(seconds=60)),
        [
            "replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]",
            "budget_used: zone-a: 2 outdated pods wait: 0 unavailable of 1 allowed, 1 going now",
        ],
        id="SI-09 a view of just 60 s is still used",
    ),
    pytest.param(
        replace(group(prev("a")), view_age=timedelta(seconds=61)),
        ["view_stale: the newest proof that the view is live is more than 60s old"],
        id="SI-09 a view older than 60 s: nothing",
    ),
    pytest.param(
        replace(group(prev("a")), unreadable=(unreadable("StatefulSet", "zone-b"),)),
        [
            "object_unreadable: StatefulSet zone-b cannot be read: spec.replicas: expected int, "
            'got str: "x"',
            "failed",
        ],
        id="SI-08 a member that cannot be read: nothing, failed",
    ),
    pytest.param(
        group(prev("a"), zone("b", generation=3, observed_generation=2)),
        ["status_behind: the status of zone-b is of generation 2, its spec of generation 3"],
        id="FP-03 D-12 status of another zone behind: nothing",
    ),
    pytest.param(
        group(prev("a"), zone("b", is_terminating=True)),
        ["set_terminating: zone-b is being deleted"],
        id="FP-28 a set that is being deleted: nothing",
    ),
    pytest.param(
        group(prev("a"), zone("b", current="")),
        ["revision_empty: StatefulSet zone-b: status.currentRevision is empty", "failed"],
        id="ROLL-31 current revision empty: nothing, failed",
    ),
    pytest.param(
        group(prev("a"), zone("b", update_revision="")),
        ["revision_empty: StatefulSet zone-b: status.updateRevision is empty", "failed"],
        id="ROLL-31 update revision empty: nothing, failed",
    ),
    pytest.param(
        group(prev("a"), zone("b", paused="true", update_revision="", current="")),
        ["revision_empty: StatefulSet zone-b: status.updateRevision is empty", "failed"],
        id="SI-08 update revision empty in a paused zone: nothing, failed",
    ),
    pytest.param(
        group(zone("a"), zone("b", paused="true", current="")),
        ["up_to_date: 6 pods of 2 zones: all ready at the update revision"],
        id="ROLL-30 current revision empty in a paused zone does not matter",
    ),
    pytest.param(
        group(
            zone("b", strategy="RollingUpdate"), zone("a", strategy="RollingUpdate", generation=9)
        ),
        [
            "wrong_strategy: StatefulSet zone-a has RollingUpdate update strategy while OnDelete "
            "is expected, skipping reconcile",
            "wrong_strategy: StatefulSet zone-b has RollingUpdate update strategy while OnDelete "
            "is expected, skipping reconcile",
            "failed",
        ],
        id="ROLL-13 every set with a wrong strategy is named, before anything else",
    ),
    pytest.param(
        group(prev("a"), zone("b", "lLl", paused="true")),
        [
            "paused_zone_not_ready: paused zone-b has 2 of 3 pods ready "
            "(zone-b-1: CrashLoopBackOff); zone-a waits"
        ],
        id="W-32 D-13 a paused zone that is not whole blocks the others",
    ),
    pytest.param(
        group(prev("a"), prev("b", paused="true"), prev("c")),
        [
            "replace in zone-a: 1 of [zone-a-0 zone-a-1 zone-a-2]",
            "budget_used: zone-a: 2 outdated pods wait: 0 unavailable of 1 allowed, 1 going now",
            "paused: zone-b is paused: 3 outdated pods wait",
            "another_zone_first: zone-c waits for zone-a",
        ],
        id="D-40 why each zone waits is said before its turn",
    ),
    pytest.param(
        group(zone("c", current="prev"), zone("a", current="prev"), prev("b")),
        [
            "record zone-a last",
            "replace in zone-b: 1 of [zone-b-0 zone-b-1 zone-b-2]",
            "budget_used: zone-b: 2 outdated pods wait: 0 unavailable of 1 allowed, 1 going now",
            "another_zone_first: zone-c waits for zone-b",
        ],
        id="ROLL-39 a is recorded and b goes on at once; c waits for its turn",
    ),
    pytest.param(
        group(zone("a", "pp"), zone("b", "", limit=None)),
        [
            "replace in zone-a: 2 of [zone-a-0 zone-a-1]",
        ],
        id="SEED-103 outdated though current equals update; a zone of no replicas is whole",
    ),
    pytest.param(
        group(), ["up_to_date: 0 pods of 0 zones: all ready at the update revision"], id="no zones"
    ),
]


@pytest.mark.parametrize(("case", "expected"), WHOLE_GROUP)
def test_group(case: Group, expected: list[str]) -> None:
    assert outline(plan_group(case)) == expected


UNDERWAY = Underway(zone="zone-b", replicas_from=3, replicas_to=1)
SCALING = (
    "downscale_underway: zone-b is being scaled down from 3 to 1 replicas; no pod is replaced "
    "until that has happened or failed"
)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(group(prev("a"), zone("b")), [SCALING], id="D-25 a rollout elsewhere waits"),
        pytest.param(group(zone("a"), prev("b")), [SCALING], id="D-25 one in the zone itself, too"),
        pytest.param(
            group(prev("a", "Ppp"), zone("b")), [SCALING], id="D-25 nor does a broken pod go"
        ),
        pytest.param(
            group(zone("a", current="prev"), zone("b")), [SCALING], id="D-25 nothing is recorded"
        ),
        pytest.param(
            replace(group(prev("a")), view_age=timedelta(minutes=5)),
            ["view_stale: the newest proof that the view is live is more than 60s old"],
            id="SI-09 a stale view is told first",
        ),
        pytest.param(
            replace(group(prev("a")), unreadable=(unreadable("StatefulSet", "zone-b"),)),
            [
                "object_unreadable: StatefulSet zone-b cannot be read: spec.replicas: expected "
                'int, got str: "x"',
                "failed",
            ],
            id="SI-08 what a person must mend is told first",
        ),
        pytest.param(
            group(prev("a"), zone("b", strategy="RollingUpdate")),
            [SCALING],
            id="D-25 a wrong strategy is told when the downscale is over",
        ),
    ],
)
def test_d25_no_pod_is_replaced_while_a_downscale_may_still_happen(
    case: Group, expected: list[str]
) -> None:
    """SEED-110, SEED-111: it is no failure, and its end is an event of its own."""
    plan = plan_group(replace(case, downscale=UNDERWAY))

    assert outline(plan) == expected
    assert plan.actions == ()
    assert plan.look_again is None or plan.waits[0].code is Code.VIEW_STALE


def test_d25_the_reason_is_of_the_zone_that_goes() -> None:
    (reason,) = plan_group(replace(group(prev("a"), zone("b")), downscale=UNDERWAY)).waits

    assert (reason.code, reason.zone, reason.severity) == (
        Code.DOWNSCALE_UNDERWAY,
        "zone-b",
        Severity.INFO,
    )


def test_pods_missing_says_who_is_searched_for_and_what_status_counts() -> None:
    """SEED-104, SEED-112: a set whose pods cannot be matched raises a warning."""
    (problem,) = plan_group(group(zone("a", "---"))).problems
    assert problem.severity is Severity.WARN
    assert problem.text == (
        "zone-a has 0 of 3 pods: no pod names it (uid uid-a) as controlling owner, while its "
        "status counts 3"
    )


def test_a_set_that_is_just_being_filled_raises_no_warning() -> None:
    (problem,) = plan_group(group(zone("a", "---", status_replicas=0, ready=0))).problems
    assert problem.severity is Severity.INFO


def test_a_stale_view_is_looked_at_again_soon() -> None:
    """That a view has come alive again is announced by no event."""
    plan = plan_group(replace(group(prev("a")), view_age=timedelta(minutes=5)))
    assert plan.look_again == timedelta(seconds=5)
    assert not plan.failed


@pytest.mark.parametrize("value", ["True", "TRUE", "1", "yes", ""])
def test_a_strange_pause_is_told_and_does_not_pause(value: str) -> None:
    plan = plan_group(group(prev("a", paused=value)))
    assert plan.actions
    (problem,) = plan.problems
    assert (problem.code, problem.severity) == (Code.BAD_PAUSED, Severity.WARN)
    assert f'"{value}"' in problem.text


def test_both_spellings_of_the_group_label_must_agree() -> None:
    """SEED-011."""
    same = zone("a", labels={GROUP_LABEL: "ingester", GROUP_LABEL_LONG: "ingester"})
    differ = zone("b", labels={GROUP_LABEL: "ingester", GROUP_LABEL_LONG: "store"})
    (problem,) = plan_group(group(same, differ)).problems
    assert (problem.code, problem.zone) == (Code.GROUP_LABELS_DIFFER, "zone-b")
    for part in ('rollout-group: "ingester"', 'grafana.com/rollout-group: "store"'):
        assert part in problem.text


def test_sets_that_select_the_same_pods_are_named_once() -> None:
    """W-01."""
    shared = {"app": "ingester", "tier": "write"}
    zones = [zone(letter, selector=shared) for letter in "ca"]
    plan = plan_group(group(*zones, zone("b"), zone("d", selector={}), zone("e", selector={})))
    (problem,) = plan.problems
    assert problem.code is Code.PODS_SHARE_LABELS
    assert problem.text == (
        "zone-a and zone-c all select pods with app=ingester,tier=write; pods are told apart by "
        "owner only"
    )


def test_problems_are_told_also_where_nothing_may_be_decided() -> None:
    plan = plan_group(group(zone("a", strategy="RollingUpdate", paused="maybe", limit="0")))
    codes = [problem.code for problem in plan.problems]
    assert codes == [Code.BAD_MAX_UNAVAILABLE, Code.BAD_PAUSED]


def test_groups_are_independent() -> None:
    """SEED-055, D-18: a failed group says nothing about another one."""
    bad = plan_group(group(prev("a", current_revision="")))
    good = plan_group(replace(group(prev("x")), name=GroupName("compactor")))
    assert bad.failed
    assert not bad.actions
    assert good.group == "compactor"
    assert good.actions


def test_rollback_in_mid_rollout_moves_on_to_the_first_revision() -> None:
    """ROLL-33, FP-28: update is current again, pods of the abandoned revision are found."""
    plan = plan_group(group(zone("a", "oll", limit="1"), prev("b")))
    assert outline(plan) == [
        "replace in zone-a: 1 of [zone-a-0]",
        "another_zone_first: zone-b waits for zone-a",
    ]


def test_explain_says_what_is_done_then_what_waits_then_what_is_odd() -> None:
    case = group(zone("a", current="prev", paused="maybe"), prev("b", "pP"), prev("c"))
    assert explain(plan_group(case)) == (
        "zone-b-1 is at revision prev, zone-b wants last and it is down (CrashLoopBackOff)",
        "zone-b: 1 outdated pod waits: 1 unavailable of 1 allowed, 1 going now",
        "zone-a and zone-c wait for zone-b",
        'StatefulSet zone-a: annotation grafana.com/rollout-paused: "maybe" is neither "true" nor '
        '"false"; the zone is not paused',
    )


def test_explain_tells_a_recorded_revision() -> None:
    assert explain(plan_group(group(zone("a", current="prev")))) == (
        "zone-a has 3 of 3 pods ready at revision last, its status still names prev as current",
    )


def test_explain_of_many_pods_is_short() -> None:
    lines = explain(plan_group(group(zone("a", "p" * 40, limit="30"))))
    assert lines[9:] == (
        "zone-a-9 is at revision prev, zone-a wants last",
        "and 20 more",
        "zone-a: 10 outdated pods wait: 0 unavailable of 30 allowed, 30 going now",
    )


def test_reasons_of_several_short_zones_are_loud() -> None:
    (wait,) = plan_group(group(prev("a", "Ppp"), prev("b", "pPp"), prev("c"))).waits
    assert (wait.code, wait.severity) == (Code.SEVERAL_ZONES_NOT_READY, Severity.WARN)
    assert wait.text == (
        "zone-a has 2 of 3 pods ready (zone-a-0: CrashLoopBackOff); "
        "zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff)"
    )
