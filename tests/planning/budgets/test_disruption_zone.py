"""Budgets that count by zone: what is down in the pod's own zone and in the others."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.group import Deletion, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets.rule import Scene, assess_disruption, find_maximum
from tests.builders import NOW
from tests.planning.disruptions import (
    answer,
    budget,
    granted,
    ingesters,
    lost_member,
    member,
    scene,
    uid_of,
)

TABLE = [
    pytest.param(scene(rule=budget(0)), "403 max unavailable = 0", id="T-11 8 maximum 0"),
    pytest.param(
        scene(rule=budget(0, percentage=0)), "403 max unavailable = 0", id="T-11 8 percentage 0"
    ),
    pytest.param(scene(rule=budget(0), override=1), "allow", id="T-11 9 a rollout overrides 0"),
    pytest.param(
        replace(scene(), zones=(ingesters("a"),)),
        "400 minimum number of StatefulSets not found: 1 StatefulSet has the labels "
        "name=ingester, 2 are needed",
        id="T-11 10 W-57 one StatefulSet only",
    ),
    pytest.param(scene(), "allow", id="T-11 11 all healthy"),
    pytest.param(
        scene("a-0", ingesters("a", "rrF")),
        "429 1 pod not ready in ingester-zone-a",
        id="T-11 12 the zone's budget is used",
    ),
    pytest.param(
        scene("a-0", ingesters("a", "rrF"), rule=budget(2)), "allow", id="T-11 13 one is left"
    ),
    pytest.param(
        scene("a-0", ingesters("c", "rrF")),
        "429 1 pod not ready in ingester-zone-c",
        id="T-11 14 SI-02 another zone is short",
    ),
    pytest.param(
        scene("a-0", ingesters("c", "rrF"), rule=budget(2)),
        "429 1 pod not ready in ingester-zone-c",
        id="T-11 14 ZPDB-85 another zone is short, whatever the maximum",
    ),
    pytest.param(
        scene("a-0", ingesters("b", status_replicas=4)),
        "429 1 pod unknown in ingester-zone-b",
        id="T-11 15 ZPDB-74 a pod that only the status knows",
    ),
    pytest.param(
        scene("a-2", deletions=granted("a-0")),
        "429 1 pod not ready in ingester-zone-a",
        id="T-11 16 ZPDB-40 what was granted counts",
    ),
    pytest.param(scene(override=0), "allow", id="T-11 17 an override of 0 changes nothing"),
    pytest.param(
        scene("b-0", override=2, deletions=granted("a-0")),
        "429 1 pod not ready in ingester-zone-a",
        id="T-11 17 an override is none where the maximum is not 0",
    ),
]
COUNTING = [
    pytest.param(
        scene("a-0", ingesters("a", "CCC"), rule=budget(2)),
        "429 2 pods not ready in ingester-zone-a",
        id="ZPDB-59 ZPDB-75 an unready pod is no exemption, and does not count itself",
    ),
    pytest.param(
        scene("a-0", ingesters("a", "Crr")), "allow", id="ZPDB-75 the pod itself never counts"
    ),
    pytest.param(
        scene(deletions=granted("a-0")), "allow", id="SI-16 asked again, the same pod may go"
    ),
    pytest.param(
        scene("a-0", replace(ingesters("a"), pods=(member("a", 0, uid=Uid("old")),))),
        "429 2 pods unknown in ingester-zone-a",
        id="ZPDB-75 a pod of the same name is another pod",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "rt-u")),
        "429 2 pods not ready, 1 pod unknown in ingester-zone-b",
        id="ZPDB-75 terminating, absent and unreadable pods",
    ),
    pytest.param(
        scene("a-0", ingesters("a", "r--"), rule=budget(3)), "allow", id="ZPDB-86 2 of 3 are gone"
    ),
    pytest.param(
        scene("a-0", ingesters("a", "r---"), rule=budget(3)),
        "429 3 pods unknown in ingester-zone-a",
        id="ZPDB-86 3 of 3 are gone",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "rrrC", replicas=3)),
        "429 1 pod not ready in ingester-zone-b",
        id="ZPDB-75 a pod beyond the desired ordinals counts",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "rrrr", replicas=3, status_replicas=3)),
        "allow",
        id="ZPDB-76 more pods than expected are none too few",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "r-rr", replicas=3, status_replicas=3)),
        "429 1 pod unknown in ingester-zone-b",
        id="ZPDB-76 a pod too many does not stand in for an absent one",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "-rrr", replicas=3, status_replicas=3, first_ordinal=1)),
        "allow",
        id="D-10 ordinals start where spec.ordinals says",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "", replicas=2_000_000_000)),
        "429 2000000000 pods unknown in ingester-zone-b",
        id="T-11 absent pods are not counted one by one",
    ),
    pytest.param(
        scene("a-0", ingesters("b", min_ready_seconds=3600)),
        "allow",
        id="D-11 ready for minReadySeconds",
    ),
    pytest.param(
        scene("a-0", ingesters("b", min_ready_seconds=3601)),
        "429 3 pods not ready in ingester-zone-b",
        id="D-11 W-27 ready, and not for minReadySeconds",
    ),
    pytest.param(
        scene("a-0", rule=budget(delay=timedelta(hours=2))),
        "allow",
        id="ZPDB-92 the cross-zone delay is of partition mode",
    ),
    *(
        pytest.param(
            scene("b-0", deletions={uid_of("a", 0): state}),
            "429 1 pod not ready in ingester-zone-a",
            id=f"SI-01 SI-17 SI-18 {state}: a pod on its way out is down",
        )
        for state in Deletion
    ),
]


@pytest.mark.parametrize(("case", "expected"), [*TABLE, *COUNTING])
def test_zone_mode(case: Scene, expected: str) -> None:
    assert answer(case) == expected


@pytest.mark.parametrize(
    ("replicas", "status", "rule", "expected"),
    [
        pytest.param(3, 3, budget(0), 0, id="T-09 nothing set"),
        pytest.param(3, 3, budget(1), 1, id="T-09 ZPDB-80 maxUnavailable 1"),
        pytest.param(3, 3, budget(7), 7, id="ZPDB-80 more than there are"),
        pytest.param(3, 3, budget(0, percentage=100), 3, id="T-09 100 %"),
        pytest.param(3, 3, budget(0, percentage=1), 1, id="T-09 W-56 1 % is one pod"),
        pytest.param(3, 3, budget(0, percentage=75), 2, id="T-09 75 % is rounded down"),
        pytest.param(10, 6, budget(0, percentage=50), 3, id="T-09 50 %, spec 10, status 6"),
        pytest.param(10, 20, budget(0, percentage=50), 5, id="T-09 50 %, spec 10, status 20"),
        pytest.param(3, 0, budget(0, percentage=50), 0, id="T-09 status 0"),
        pytest.param(0, 3, budget(0, percentage=50), 0, id="ZPDB-81 spec 0"),
    ],
)
def test_effective_maximum(replicas: int, status: int, rule: object, expected: int) -> None:
    owner = ingesters("a", "", replicas=replicas, status_replicas=status)
    # A share is of the zone of the pod, never of another one.
    other = ingesters("b", "", replicas=40, status_replicas=40)
    case = scene("a-0", owner, other, budget=rule)

    assert find_maximum(case) == expected
    assert find_maximum(replace(case, override=9)) == (expected or 9)


def test_a_refusal_names_what_is_down_and_why() -> None:
    """ZPDB-95: the numbers first, as in all releases; names, reasons and budget after them."""
    refusal = assess_disruption(scene("a-0", ingesters("c", "rrC")))

    assert refusal is not None
    assert refusal.reason.text == (
        "1 pod not ready in ingester-zone-c (ingester-zone-c-2: CrashLoopBackOff); "
        "budget ingester: max unavailable 1"
    )
    assert refusal.reason.code is Code.DISRUPTION_BUDGET_USED
    assert (refusal.status, refusal.reason.zone) == (429, "ingester-zone-c")
    assert refusal.look_again is None


def test_a_refusal_names_few_pods_and_counts_the_rest() -> None:
    zone = ingesters("a", "rFt-u--", status_replicas=9)
    refusal = assess_disruption(scene("a-0", zone, rule=budget(2), deletions=granted("a-0")))

    assert refusal is not None
    assert refusal.reason.text == (
        "3 pods not ready, 5 pods unknown in ingester-zone-a (ingester-zone-a-1: Failed, "
        "ingester-zone-a-2: terminating, ingester-zone-a-4: unreadable and 4 more); "
        "budget ingester: max unavailable 2"
    )


@pytest.mark.parametrize(
    ("zone", "troubles"),
    [
        pytest.param(
            ingesters("b", "r--"),
            "ingester-zone-b-1: no pod and ingester-zone-b-2: no pod",
            id="absent",
        ),
        pytest.param(
            ingesters("b", status_replicas=5),
            "ingester-zone-b counts 5 pods, 3 found",
            id="nameless",
        ),
        pytest.param(
            ingesters("b", min_ready_seconds=7200),
            ", ".join(f"ingester-zone-b-{at}: ready for less than 2h0m0s" for at in range(2))
            + " and ingester-zone-b-2: ready for less than 2h0m0s",
            id="settling",
        ),
    ],
)
def test_a_refusal_says_what_is_missing(zone: Zone, troubles: str) -> None:
    refusal = assess_disruption(scene("a-0", zone))

    assert refusal is not None
    assert f" ({troubles}); " in refusal.reason.text


def test_the_first_short_zone_by_name_gives_the_reason() -> None:
    case = scene("b-0", ingesters("a", "rC-"), ingesters("c", "C--"), ingesters("b", "r--"))
    turned = replace(case, zones=tuple(reversed(case.zones)))

    assert answer(case) == answer(turned)
    assert answer(case) == "429 1 pod not ready, 1 pod unknown in ingester-zone-a"


def test_an_unreadable_pod_of_no_known_owner_counts_where_it_is_handed_in() -> None:
    """One of another set does not."""
    base = ingesters("b", "rr-")
    nobody = replace(base, unreadable_pods=(_owned(None),))
    stranger = replace(base, unreadable_pods=(_owned(Uid("someone")),), pods=ingesters("b").pods)

    assert answer(scene("a-0", nobody)) == "429 1 pod not ready in ingester-zone-b"
    assert answer(scene("a-0", stranger)) == "allow"


def _owned(owner: Uid | None) -> Unreadable:
    return msgspec.structs.replace(lost_member("b", 2), owner_uid=owner)


def test_pods_of_other_owners_do_not_exist() -> None:
    """D-10: a pod of the right name with another owner neither stands in nor counts as down."""
    stranger = member("b", 2, "C", owner_uid=Uid("someone"))
    base = ingesters("b")

    assert answer(scene("a-0", replace(base, pods=(*base.pods, stranger)))) == "allow"
    assert (
        answer(scene("a-0", replace(base, pods=(*base.pods[:2], stranger))))
        == "429 1 pod unknown in ingester-zone-b"
    )


class TestRollout:
    """D-14, LI-10: what is down already may be deleted, for the rollout only."""

    down = scene("a-0", ingesters("a", "CCC"), ingesters("b", "C--"))

    def test_a_pod_that_is_down_costs_nothing(self) -> None:
        assert answer(replace(self.down, engine=DisruptionSource.ROLLOUT)) == "allow"

    def test_its_own_grant_does_not_hide_that_it_is_down(self) -> None:
        case = replace(self.down, engine=DisruptionSource.ROLLOUT, deletions=granted("a-0"))

        assert answer(case) == "allow"

    def test_an_eviction_has_no_such_exemption(self) -> None:
        assert answer(self.down) == "429 2 pods not ready in ingester-zone-a"

    @pytest.mark.parametrize("state", ["r", "t"])
    def test_a_pod_that_is_up_or_going_is_counted(self, state: str) -> None:
        case = scene("a-0", ingesters("a", f"{state}CC"), engine=DisruptionSource.ROLLOUT)

        assert answer(case) == "429 2 pods not ready in ingester-zone-a"

    def test_a_settling_pod_is_up_for_this(self) -> None:
        zone = ingesters("a", min_ready_seconds=7200)

        assert answer(scene("a-0", zone, engine=DisruptionSource.ROLLOUT)).startswith(
            "429 2 pods not ready"
        )

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"budget": budget(0)}, "403 max unavailable = 0"),
            ({"zones": (ingesters("a", "CCC"),)}, "400 minimum number of"),
            ({"view_age": timedelta(seconds=61)}, "429 the newest proof"),
        ],
    )
    def test_all_else_holds(self, changes: dict[str, object], expected: str) -> None:
        case = replace(self.down, engine=DisruptionSource.ROLLOUT, **changes)  # type: ignore[arg-type]

        assert answer(case).startswith(expected)


class TestLookAgain:
    """When time alone changes the answer; no event announces that."""

    def test_the_first_settling_pod(self) -> None:
        late = member("b", 1, ready_since=NOW - timedelta(seconds=10))
        base = ingesters("b", min_ready_seconds=30)
        zone = replace(base, pods=(base.pods[0], late, base.pods[2]))
        refusal = assess_disruption(scene("a-0", zone))

        assert refusal is not None
        assert refusal.look_again == timedelta(seconds=20)
        # What runs with time is not part of the text.
        later = scene("a-0", zone, now=NOW + timedelta(seconds=5))
        again = assess_disruption(later)
        assert again is not None
        assert (again.reason, again.look_again) == (refusal.reason, timedelta(seconds=15))
        assert answer(scene("a-0", zone, now=NOW + timedelta(seconds=20))) == "allow"

    def test_none_where_another_pod_is_down_for_good(self) -> None:
        zone = ingesters("b", "rrC", min_ready_seconds=7200)
        # The budget is of the own zone: in another one a single pod is too many.
        refusal = assess_disruption(scene("a-0", zone, rule=budget(3)))

        assert refusal is not None
        assert refusal.look_again is None

    def test_the_own_zone_may_keep_others_down(self) -> None:
        zone = ingesters("a", "rCr", min_ready_seconds=7200)
        refusal = assess_disruption(scene("a-0", zone, rule=budget(2)))

        assert refusal is not None
        assert refusal.look_again == timedelta(hours=1)

    def test_none_where_nobody_knows_since_when(self) -> None:
        base = ingesters("b", min_ready_seconds=30)
        zone = replace(base, pods=(*base.pods[:2], member("b", 2, ready_since=None)))
        refusal = assess_disruption(scene("a-0", zone))

        assert refusal is not None
        assert refusal.look_again is None
