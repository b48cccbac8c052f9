"""Budgets that count by partition: which a pod holds, and what other zones have left (T-09)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.budget import Budget
from rollout_operator.model.names import Uid
from rollout_operator.planning.budgets import BudgetSnapshot, assess_disruption, find_partition
from tests.builders import NOW
from tests.planning.disruptions import answer, read_snapshot, render_refusal
from tests.planning.tables import read_table

ALLOWED = """
T-11 20 healthy
  a-0; partitions | allow
T-11 20 a-1 failed
  a-0; a rFr; partitions | allow
T-11 20 ZPDB-93 a-1 and c-2 failed: other partitions
  a-0; a rFr; c rrF; partitions | allow
T-11 21 SI-05 b-0 failed
  a-0; b Frr; partitions | 429 1 pod not ready in partition 0
T-11 22 one is left
  a-0; b Frr; partitions 2 | allow
T-11 23 ZPDB-91 totals over the other zones
  a-0; b Frr; c Frr; partitions 2 | 429 2 pods not ready in partition 0
T-11 24 ZPDB-76 a nameless pod may be of any partition
  a-0; b status_replicas=4; partitions | 429 1 pod unknown in partition 0
T-11 24 the second group of the pattern
  a-0; b status_replicas=4; partitions pattern=ingester(-foo)?-zone-[a-z]-([0-9]+) pattern_group=2
  | 429 1 pod unknown in partition 0
T-11 26 one peer failed, one scaled away
  c-2; a r; b rrF; partitions 2 | 429 1 pod not ready, 1 pod unknown in partition 2
T-11 25 the peer is scaled away
  b-2; a rr; b replicas=2 status_replicas=3; only a b; partitions | 429 1 pod unknown in partition 2
ZPDB-90 the pod's own zone does not count
  a-0; a FFF status_replicas=9; partitions | allow
SI-26 a zone that left while it was short counts with the others
  a-0; b Frr; c Frr; left c; partitions 2 | 429 2 pods not ready in partition 0
SI-26 only its pods of the partition do
  a-0; c rFF; left c; partitions | allow
SI-05 ZPDB-40 what was granted counts
  b-0; partitions; granted a-0 | 429 1 pod not ready in partition 0
ZPDB-93 what was granted of other partitions does not
  b-0; partitions; granted a-1 c-2 | allow
an unreadable pod of the partition
  a-0; b ur-; partitions | 429 1 pod not ready in partition 0
ZPDB-93 unreadable and absent pods of other partitions
  a-0; b ru-; partitions | allow
ZPDB-76 an absent pod has the name that it will have
  a-2; b rr-; partitions | 429 1 pod unknown in partition 2
ZPDB-76 of two pods that are not found, one has a name
  a-0; b rr- status_replicas=4; partitions | 429 1 pod unknown in partition 0
ZPDB-90 a pod that is scaled away, of another partition
  a-0; b rrrt replicas=3; partitions | allow
ZPDB-90 a pod that is scaled away, of this partition
  a-3; a rrrr; b rrrt replicas=3; partitions 2 | 429 1 pod not ready, 1 pod unknown in partition 3
of very many absent pods only some are read
  a-0; b r replicas=2000000000; partitions | 429 1999998999 pods unknown in partition 0
LI-10 the rollout counts for a pod that is up
  a-0; b Crr; partitions; rollout | 429 1 pod not ready in partition 0
LI-10 the rollout does not count for a pod that is down
  a-0; a Crr; b Crr; partitions; rollout | allow
ZPDB-90 the owner may be outside of the selector
  a-0; partitions; owner another | allow
W-41 a zone scaled below the partition is forgiven where the budget says so
  a-2; b rr; partitions forgives_absent_peers=true | allow
W-41 a peer that is wanted and absent is not
  a-2; b rr replicas=3; partitions forgives_absent_peers=true | 429 1 pod unknown in partition 2
W-41 a peer that the status still counts is not
  a-2; b rr status_replicas=3; partitions forgives_absent_peers=true
  | 429 1 pod unknown in partition 2
W-41 a peer that is still going is not
  a-2; b rrt replicas=2 status_replicas=2; partitions forgives_absent_peers=true
  | 429 1 pod not ready in partition 2
W-41 the peers that remain count
  a-2; b rr; c rrC; partitions forgives_absent_peers=true | 429 1 pod not ready in partition 2
ZPDB-91 zones without any pod
  a-0; b ""; c ""; partitions | 429 2 pods unknown in partition 0
T-11 SI-05 delay 0
  a-0; b; pod b-0 ready_for=0; partitions delay=0 | allow
T-11 SI-05 delay 0, nothing says since when it is ready
  a-0; b; pod b-0 ready_since=none; partitions delay=0 | allow
T-11 SI-05 nothing says since when it is ready
  a-0; b; pod b-0 ready_since=none; partitions delay=60 | 429 1 pod not ready in partition 0
T-11 SI-05 ready now
  a-0; b; pod b-0 ready_for=0; partitions delay=60 | 429 1 pod not ready in partition 0
T-11 SI-05 ready in the future
  a-0; b; pod b-0 ready_for=-60; partitions delay=60 | 429 1 pod not ready in partition 0
T-11 SI-05 ready for an hour
  a-0; b; pod b-0 ready_for=3600; partitions delay=60 | allow
T-11 SI-05 ZPDB-92 strictly more is needed
  a-0; b; pod b-0 ready_for=60; partitions delay=60 | 429 1 pod not ready in partition 0
T-11 SI-05 a bit more
  a-0; b; pod b-0 ready_for=60.000001; partitions delay=60 | allow
T-11 SI-05 not running and ready
  a-0; b Frr; partitions delay=60 | 429 1 pod not ready in partition 0
T-11 SI-05 terminating
  a-0; b trr; partitions delay=60 | 429 1 pod not ready in partition 0
T-11 a grant beats any ready time
  a-0; partitions delay=60; granted b-0 | 429 1 pod not ready in partition 0
ZPDB-93 the delay is for this partition only
  a-0; b; pod b-1 b-2 ready_for=0; partitions delay=60 | allow
ZPDB-90 a pod without a partition is of another one
  a-0; b rrF; partitions pattern=ingester-zone-[a-c]-([0-1]) | allow
ZPDB-90 an absent one may be of any: it is not known where names have no partition
  a-0; b rr-; partitions pattern=ingester-zone-[a-c]-([0-1]) | 429 1 pod unknown in partition 0
partitions need not be ordinals: all of a name
  a-0; b rrF; partitions pattern=(ingester)-zone-[a-c]-[0-9]+
  | 429 1 pod not ready in partition ingester
partitions need not be ordinals: none shared
  a-0; partitions pattern=ingester-zone-([a-c])-[0-9]+ | 429 2 pods unknown in partition a
"""

ZONED = r"[a-z\-]+-(zone-[a-z]-[0-9]+)"
OPTIONAL = r"[a-z\-]+-zone-[a-z]-(partition\-)?([0-9]+)"
TWINS = r"ingester(-foo)?-zone-[a-z]-([0-9]+)"


@pytest.mark.parametrize(("case", "expected"), read_table(ALLOWED, read_snapshot))
def test_partition_mode(case: BudgetSnapshot, expected: list[str]) -> None:
    assert [answer(case)] == expected


REFUSED = """
time alone helps a delayed pod
  a-0; b; pod b-0 ready_for=50; partitions delay=60
  | 1 pod not ready in partition 0 (ingester-zone-b-0: ready for less than 1m0s); budget ingester:
    max unavailable 1
  | again in 10s
the longer one of delay and minReadySeconds decides
  a-0; b min_ready_seconds=90; pod b-0 ready_for=50; partitions delay=60
  | 1 pod not ready in partition 0 (ingester-zone-b-0: ready for less than 1m30s); budget ingester:
    max unavailable 1
  | again in 40s
no time where another pod is down for good
  a-0; b; pod b-0 ready_for=0; c Crr; partitions delay=60
  | 2 pods not ready in partition 0 (ingester-zone-b-0: ready for less than 1m0s and
    ingester-zone-c-0: CrashLoopBackOff); budget ingester: max unavailable 1
ZPDB-91 zones without a peer are named
  c-2; a r; b rrF; partitions 2
  | 1 pod not ready, 1 pod unknown in partition 2 (ingester-zone-a: no peer and ingester-zone-b-2:
    Failed); budget ingester: max unavailable 2
"""


@pytest.mark.parametrize(("case", "expected"), read_table(REFUSED, read_snapshot))
def test_what_a_refusal_says(case: BudgetSnapshot, expected: list[str]) -> None:
    refusal = assess_disruption(case)

    assert render_refusal(case) == expected
    assert refusal is not None
    assert refusal.reason.zone == "", "of a partition, no single zone is short"


def test_a_delayed_pod_gives_the_time_to_reconcile_again_to_the_microsecond() -> None:
    case = read_snapshot("a-0; b; pod b-0 ready_for=50; partitions delay=60")
    refusal = assess_disruption(case)

    assert refusal is not None
    assert refusal.requeue_after == timedelta(seconds=10, microseconds=1)
    assert answer(replace(case, now=NOW + refusal.requeue_after)) == "allow"
    almost = NOW + refusal.requeue_after - timedelta(microseconds=1)
    assert answer(replace(case, now=almost)) == "429 1 pod not ready in partition 0"


def partition(pattern: str, group: int, pod: str) -> str | None:
    budget = Budget(
        namespace="prod", name="ingester", uid=Uid("u"), resource_version="1",
        pattern=pattern, pattern_group=group,
    )  # fmt: skip
    return find_partition(budget, pod)


@pytest.mark.parametrize(
    ("pattern", "group", "pod", "expected"),
    [
        pytest.param(ZONED, 1, "ingester-zone-a-0", "zone-a-0", id="T-09 ingester"),
        pytest.param(ZONED, 1, "test-app-zone-a-0", "zone-a-0", id="T-09 another name"),
        pytest.param(ZONED, 1, "", None, id="T-09 no name"),
        pytest.param(ZONED, 1, "ingester-zone-a", None, id="T-09 no ordinal"),
        pytest.param(ZONED, 1, "test-app-1", None, id="T-09 no zone"),
        pytest.param(OPTIONAL, 2, "ingester-zone-a-5", "5", id="T-09 without the optional part"),
        pytest.param(OPTIONAL, 2, "ingester-zone-a-partition-5", "5", id="T-09 with it"),
        pytest.param(OPTIONAL, 1, "ingester-zone-a-5", None, id="W-28 an optional group"),
        pytest.param(TWINS, 2, "ingester-foo-zone-a-1", "1", id="T-09 foo"),
        pytest.param(TWINS, 2, "ingester-zone-a-1", "1", id="T-09 no foo"),
        pytest.param("ingester-([0-9]*)", 1, "ingester-", None, id="an empty partition is none"),
        pytest.param("a-([0-9]+)|b-x", 1, "a-1-more", None, id="W-28 grouped before anchoring"),
        pytest.param(ZONED, 1, "ingester-zone-a-0\n", None, id="not a name"),
        pytest.param(r"(\pL+)-0", 1, "\u00e9-0", "\u00e9", id="letters of all scripts"),
        pytest.param("([bad", 1, "a", None, id="never read as a budget"),
        pytest.param("(a)", 2, "a", None, id="a group that is not there"),
        pytest.param("(a)", 0, "a", None, id="no group"),
    ],
)
def test_t09_partition_of_a_pod(pattern: str, group: int, pod: str, expected: str | None) -> None:
    assert partition(pattern, group, pod) == expected


def test_sec_16_names_beyond_any_limit() -> None:
    assert partition("(a+)+", 1, "a" * 2**20) is None
