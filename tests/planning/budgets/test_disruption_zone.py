"""Budgets that count by zone: what is down in the pod's own zone and in the others."""

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Newcomers, Zone
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets import BudgetSnapshot, assess_disruption, compute_maximum
from tests.planning.disruptions import (
    answer,
    budget,
    by_partition,
    ingesters,
    lost_member,
    member,
    read_snapshot,
    render_refusal,
    snapshot,
    uid_of,
)
from tests.planning.tables import read_table, shorten

SENTENCES = {
    "minimum number of StatefulSets not found: 1 StatefulSet has the labels name=ingester, 2 are"
    " needed": "TOO FEW",
    r"; budget ingester: max unavailable (\d+)$": r"; BUDGET \1",
}
ALLOWED = """
T-11 8 maximum 0
  a-0; budget 0 | 403 max unavailable = 0
T-11 8 percentage 0
  a-0; budget 0 percentage=0 | 403 max unavailable = 0
T-11 9 a rollout overrides 0
  a-0; budget 0; override 1 | allow
T-11 11 all healthy
  a-0 | allow
T-11 12 the zone's budget is used
  a-0; a rrF | 429 1 pod not ready in ingester-zone-a
T-11 13 one is left
  a-0; a rrF; budget 2 | allow
ZPDB-80 a maximum of more than 32 bits
  a-0; a rFF; budget 99999999999 | allow
ZPDB-85 another zone is short, whatever the maximum of more than 32 bits
  a-0; c rrF; budget 99999999999 | 429 1 pod not ready in ingester-zone-c
T-11 14 SI-02 another zone is short
  a-0; c rrF | 429 1 pod not ready in ingester-zone-c
T-11 14 ZPDB-85 another zone is short, whatever the maximum
  a-0; c rrF; budget 2 | 429 1 pod not ready in ingester-zone-c
T-11 15 ZPDB-74 a pod that only the status knows
  a-0; b status_replicas=4 | 429 1 pod unknown in ingester-zone-b
T-11 16 ZPDB-40 what was granted counts
  a-2; granted a-0 | 429 1 pod not ready in ingester-zone-a
T-11 17 an override of 0 changes nothing
  a-0; override 0 | allow
T-11 17 an override is none where the maximum is not 0
  b-0; override 2; granted a-0 | 429 1 pod not ready in ingester-zone-a
T-11 10 W-57 one StatefulSet only
  a-0; only a | 400 TOO FEW
ZPDB-59 ZPDB-75 an unready pod is no exemption, and does not count itself
  a-0; a CCC; budget 2 | 429 2 pods not ready in ingester-zone-a
ZPDB-75 the pod itself never counts
  a-0; a Crr | allow
SI-16 requested again, the same pod may go
  a-0; granted a-0 | allow
ZPDB-75 terminating, absent and unreadable pods
  a-0; b rt-u | 429 2 pods not ready, 1 pod unknown in ingester-zone-b
ZPDB-86 2 of 3 are gone
  a-0; a r--; budget 3 | allow
ZPDB-86 3 of 3 are gone
  a-0; a r---; budget 3 | 429 3 pods unknown in ingester-zone-a
ZPDB-75 a pod beyond the desired ordinals counts
  a-0; b rrrC replicas=3 | 429 1 pod not ready in ingester-zone-b
ZPDB-76 more pods than expected are none too few
  a-0; b rrrr replicas=3 status_replicas=3 | allow
ZPDB-76 a pod too many does not stand in for an absent one
  a-0; b r-rr replicas=3 status_replicas=3 | 429 1 pod unknown in ingester-zone-b
D-10 ordinals start where spec.ordinals says
  a-0; b -rrr replicas=3 status_replicas=3 first_ordinal=1 | allow
T-11 absent pods are not counted one by one
  a-0; b "" replicas=2000000000 | 429 2000000000 pods unknown in ingester-zone-b
D-11 ready for minReadySeconds
  a-0; b min_ready_seconds=3600 | allow
D-11 W-27 ready, and not for minReadySeconds
  a-0; b min_ready_seconds=3601 | 429 3 pods not ready in ingester-zone-b
ZPDB-92 the cross-zone delay is of partition mode
  a-0; budget delay=7200 | allow
ZPDB-75 a pod of the same name is another pod
  a-0; a r-- replicas=3; pod a-0 uid=old | 429 2 pods unknown in ingester-zone-a
SI-01 SI-17 SI-18 accepted: a pod on its way out is down
  b-0; accepted a-0 | 429 1 pod not ready in ingester-zone-a
SI-01 SI-17 SI-18 unknown: a pod on its way out is down
  b-0; unknown a-0 | 429 1 pod not ready in ingester-zone-a
SI-01 SI-17 SI-18 granted: a pod on its way out is down
  b-0; granted a-0 | 429 1 pod not ready in ingester-zone-a
SI-26 a zone that left while it was short
  b-0; a rrC; left a; budget 2 | 429 1 pod not ready in ingester-zone-a
SI-26 a zone that left and is whole now
  b-0; left a | allow
SI-26 with a zone that left there are two zones still
  b-0; a rrC; left a; only a b | 429 1 pod not ready in ingester-zone-a
SI-26 a pod of the zone that left
  a-0; a rrC; left a | 429 1 pod not ready in ingester-zone-a
SI-26 D-14 a pod that is down costs a rollout nothing
  b-0; a rrC; left a; b Crr; rollout | allow
the first short zone by name gives the reason
  b-0; a rC-; b r--; c C-- | 429 1 pod not ready, 1 pod unknown in ingester-zone-a
D-14 LI-10 a pod that is down costs a rollout nothing
  a-0; a CCC; b C--; rollout | allow
D-14 LI-10 its own grant does not hide that it is down
  a-0; a CCC; b C--; rollout; granted a-0 | allow
D-14 an eviction has no such exemption
  a-0; a CCC; b C-- | 429 2 pods not ready in ingester-zone-a
D-14 a pod that is up is counted for a rollout, too
  a-0; a rCC; rollout | 429 2 pods not ready in ingester-zone-a
D-14 and so is one that is going
  a-0; a tCC; rollout | 429 2 pods not ready in ingester-zone-a
D-14 a settling pod is up for this
  a-0; a min_ready_seconds=7200; rollout | 429 2 pods not ready in ingester-zone-a
D-14 a maximum of 0 binds a rollout
  a-0; a CCC; b C--; rollout; budget 0 | 403 max unavailable = 0
D-14 so does a budget of one zone
  a-0; a CCC; only a; rollout | 400 TOO FEW
D-14 and a frozen view
  a-0; a CCC; b C--; rollout; stale 61
  | 429 the newest proof that the cache is live is more than 60s old
"""


@pytest.mark.parametrize(("case", "expected"), read_table(ALLOWED, read_snapshot))
def test_zone_mode(case: BudgetSnapshot, expected: list[str]) -> None:
    for one in (case, replace(case, zones=case.zones[::-1])):
        assert shorten([answer(one)], SENTENCES) == expected


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
    # A share is of the zone of the pod, never of another.
    other = ingesters("b", "", replicas=40, status_replicas=40)
    case = snapshot("a-0", owner, other, budget=rule)

    assert compute_maximum(case) == expected
    assert compute_maximum(replace(case, override=9)) == (expected or 9)


REFUSED = """
ZPDB-95 the numbers first, as in all releases; names, reasons and budget after them
  a-0; c rrC | 1 pod not ready in ingester-zone-c (ingester-zone-c-2: CrashLoopBackOff); BUDGET 1
SI-26 a zone that left: what ends it, and when
  a-0; c rrC; left c
  | 1 pod not ready in ingester-zone-c (ingester-zone-c-2: CrashLoopBackOff); budget ingester: max
    unavailable 1; ingester-zone-c was deleted or left while it was short, and counts until its
    StatefulSet is back and whole, for another 8 minutes at most
  | again in 440s
ZPDB-95 few pods are named, the rest is counted
  a-0; a rFt-u-- status_replicas=9; budget 2; granted a-0
  | 3 pods not ready, 5 pods unknown in ingester-zone-a (ingester-zone-a-1: Failed,
    ingester-zone-a-2: terminating, ingester-zone-a-4: unreadable and 4 more); BUDGET 2
ZPDB-95 absent pods
  a-0; b r--
  | 2 pods unknown in ingester-zone-b (ingester-zone-b-1: no pod and ingester-zone-b-2: no pod);
    BUDGET 1
ZPDB-95 nameless pods
  a-0; b status_replicas=5
  | 2 pods unknown in ingester-zone-b (ingester-zone-b counts 5 pods, 3 found); BUDGET 1
ZPDB-95 settling pods; time alone changes the answer, and no event announces that
  a-0; b rr min_ready_seconds=7200
  | 2 pods not ready in ingester-zone-b (ingester-zone-b-0: ready for less than 2h0m0s and
    ingester-zone-b-1: ready for less than 2h0m0s); BUDGET 1
  | again in 3600s
the first settling pod; what runs with time is not part of the text
  a-0; b min_ready_seconds=30; pod b-1 ready_for=10
  | 1 pod not ready in ingester-zone-b (ingester-zone-b-1: ready for less than 30s); BUDGET 1
  | again in 20s
the same, 5 s later
  a-0; b min_ready_seconds=30; pod b-1 ready_for=15
  | 1 pod not ready in ingester-zone-b (ingester-zone-b-1: ready for less than 30s); BUDGET 1
  | again in 15s
the same, when it has settled
  a-0; b min_ready_seconds=30; pod b-1 ready_for=30 | allow
no time helps where another pod is down for good: in another zone a single one is too many
  a-0; b rrC min_ready_seconds=7200; budget 3
  | 3 pods not ready in ingester-zone-b (ingester-zone-b-0: ready for less than 2h0m0s,
    ingester-zone-b-1: ready for less than 2h0m0s and ingester-zone-b-2: CrashLoopBackOff); BUDGET 3
the own zone may keep others down
  a-0; a rCr min_ready_seconds=7200; budget 2
  | 2 pods not ready in ingester-zone-a (ingester-zone-a-1: CrashLoopBackOff and ingester-zone-a-2:
    ready for less than 2h0m0s); BUDGET 2
  | again in 3600s
no time where nothing says since when a pod is ready
  a-0; b min_ready_seconds=30; pod b-2 ready_since=none
  | 1 pod not ready in ingester-zone-b (ingester-zone-b-2: ready for less than 30s); BUDGET 1
"""


@pytest.mark.parametrize(("case", "expected"), read_table(REFUSED, read_snapshot))
def test_what_a_refusal_says(case: BudgetSnapshot, expected: list[str]) -> None:
    assert shorten(render_refusal(case), SENTENCES) == expected


def test_a_refusal_has_code_status_and_zone() -> None:
    refusal = assess_disruption(read_snapshot("a-0; c rrC"))

    assert refusal is not None
    assert refusal.reason.code is Code.DISRUPTION_BUDGET_USED
    assert (refusal.status, refusal.reason.zone) == (429, "ingester-zone-c")


@pytest.mark.parametrize(
    ("owner", "pods", "expected"),
    [
        pytest.param(None, "rr-", "429 1 pod not ready in ingester-zone-b", id="of no known owner"),
        pytest.param(Uid("stranger"), "rrr", "allow", id="of another set"),
    ],
)
def test_an_unreadable_pod_counts_where_it_may_be_of_the_zone(
    owner: Uid | None, pods: str, expected: str
) -> None:
    lost = msgspec.structs.replace(lost_member("b", 2), owner_uid=owner)
    zone = replace(ingesters("b", pods), unreadable_pods=(lost,))

    assert answer(snapshot("a-0", zone)) == expected


def test_pods_of_other_owners_do_not_exist() -> None:
    """D-10: a pod of the right name with another owner neither stands in nor counts as down."""
    stranger = member("b", 2, "C", owner_uid=Uid("stranger"))
    base = ingesters("b")

    assert answer(snapshot("a-0", replace(base, pods=(*base.pods, stranger)))) == "allow"
    assert (
        answer(snapshot("a-0", replace(base, pods=(*base.pods[:2], stranger))))
        == "429 1 pod unknown in ingester-zone-b"
    )


# Beside new pods of an upscale that never became ready: D-67, ZPDB-82, ZPDB-90


def _upscaled(letter: str, states: str = "rrrFF") -> Zone:
    """Return a zone of three that was scaled to five; its last two pods never became ready."""
    zone = ingesters(letter, states)
    uids = frozenset(uid_of(letter, ordinal) for ordinal in (3, 4))
    newcomers = Newcomers(used=3, generation=zone.sts.generation, pods=uids)
    status = msgspec.structs.replace(zone.sts, ready_replicas=3)
    return replace(zone, sts=status, newcomers=newcomers)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(snapshot("a-0", *map(_upscaled, "abc")), "allow", id="D-67 in all zones"),
        pytest.param(
            snapshot("a-0", _upscaled("b", "rrr--")),
            "429 2 pods unknown in ingester-zone-b",
            id="SI-10 those that were seen are gone",
        ),
        pytest.param(
            snapshot("a-0", _upscaled("b", "rrFFF")),
            "429 1 pod not ready in ingester-zone-b",
            id="SI-02 one that holds something is down beside them",
        ),
        pytest.param(
            snapshot("a-3", *map(_upscaled, "abc")), "allow", id="D-67 one of them goes itself"
        ),
        pytest.param(
            snapshot("a-0", _upscaled("b"), rule=by_partition()),
            "allow",
            id="ZPDB-90 another partition",
        ),
        pytest.param(
            snapshot(
                "a-3",
                *(ingesters(letter, "rrrrr") for letter in "ac"),
                _upscaled("b"),
                rule=by_partition(),
            ),
            "429 1 pod not ready in partition 3",
            id="ZPDB-90 its partition has them for peers, and is held by nothing else",
        ),
    ],
)
def test_d67_newcomers_count_for_no_budget_of_zones(case: BudgetSnapshot, expected: str) -> None:
    assert answer(case).startswith(expected)


def test_zpdb82_newcomers_lend_no_room() -> None:
    case = snapshot("a-0", _upscaled("a"), rule=budget(0, percentage=50))

    assert compute_maximum(case) == 1
