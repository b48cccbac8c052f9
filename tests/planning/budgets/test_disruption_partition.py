"""Budgets that count by partition: what the other zones have left of the pod's partition."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.group import Zone
from rollout_operator.model.names import Uid
from rollout_operator.planning.budgets.rule import Scene, assess_disruption
from tests.builders import NOW
from tests.planning.disruptions import (
    answer,
    by_partition,
    granted,
    ingesters,
    member,
    scene,
)

MINUTE = timedelta(minutes=1)
FORGIVING = by_partition(forgives_absent_peers=True)


def two_zones(case: Scene) -> Scene:
    """Return the case without its third zone."""
    return replace(case, zones=case.zones[:2])


TABLE = [
    pytest.param(scene(rule=by_partition()), "allow", id="T-11 20 healthy"),
    pytest.param(
        scene("a-0", ingesters("a", "rFr"), rule=by_partition()), "allow", id="T-11 20 a-1 failed"
    ),
    pytest.param(
        scene("a-0", ingesters("a", "rFr"), ingesters("c", "rrF"), rule=by_partition()),
        "allow",
        id="T-11 20 ZPDB-93 a-1 and c-2 failed: other partitions",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "Frr"), rule=by_partition()),
        "429 1 pod not ready in partition 0",
        id="T-11 21 SI-05 b-0 failed",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "Frr"), rule=by_partition(2)), "allow", id="T-11 22 one is left"
    ),
    pytest.param(
        scene("a-0", ingesters("b", "Frr"), ingesters("c", "Frr"), rule=by_partition(2)),
        "429 2 pods not ready in partition 0",
        id="T-11 23 ZPDB-91 totals over the other zones",
    ),
    pytest.param(
        scene("a-0", ingesters("b", status_replicas=4), rule=by_partition()),
        "429 1 pod unknown in partition 0",
        id="T-11 24 ZPDB-76 a nameless pod may be of any partition",
    ),
    pytest.param(
        scene(
            "a-0",
            ingesters("b", status_replicas=4),
            rule=by_partition(pattern=r"ingester(-foo)?-zone-[a-z]-([0-9]+)", pattern_group=2),
        ),
        "429 1 pod unknown in partition 0",
        id="T-11 24 the second group of the pattern",
    ),
    pytest.param(
        two_zones(
            scene(
                "b-2",
                ingesters("a", "rr"),
                ingesters("b", replicas=2, status_replicas=3),
                rule=by_partition(),
            )
        ),
        "429 1 pod unknown in partition 2",
        id="T-11 25 the peer is scaled away",
    ),
    pytest.param(
        scene("c-2", ingesters("a", "r"), ingesters("b", "rrF"), rule=by_partition(2)),
        "429 1 pod not ready, 1 pod unknown in partition 2",
        id="T-11 26 one peer failed, one scaled away",
    ),
]
COUNTING = [
    pytest.param(
        scene("a-0", ingesters("a", "FFF", status_replicas=9), rule=by_partition()),
        "allow",
        id="ZPDB-90 the pod's own zone does not count",
    ),
    pytest.param(
        replace(scene("a-0", rule=by_partition()), owner=Uid("another")),
        "allow",
        id="ZPDB-90 the owner may be outside of the selector",
    ),
    pytest.param(
        scene("b-0", rule=by_partition(), deletions=granted("a-0")),
        "429 1 pod not ready in partition 0",
        id="SI-05 ZPDB-40 what was granted counts",
    ),
    pytest.param(
        scene("b-0", rule=by_partition(), deletions=granted("a-1", "c-2")),
        "allow",
        id="ZPDB-93 what was granted of other partitions does not",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "ur-"), rule=by_partition()),
        "429 1 pod not ready in partition 0",
        id="an unreadable pod of the partition",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "ru-"), rule=by_partition()),
        "allow",
        id="ZPDB-93 unreadable and absent pods of other partitions",
    ),
    pytest.param(
        scene("a-2", ingesters("b", "rr-"), rule=by_partition()),
        "429 1 pod unknown in partition 2",
        id="ZPDB-76 an absent pod has the name that it will have",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "rr-", status_replicas=4), rule=by_partition()),
        "429 1 pod unknown in partition 0",
        id="ZPDB-76 of two pods that are not found, one has a name",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "rrrt", replicas=3), rule=by_partition()),
        "allow",
        id="ZPDB-90 a pod that is scaled away, of another partition",
    ),
    pytest.param(
        scene(
            "a-3", ingesters("a", "rrrr"), ingesters("b", "rrrt", replicas=3), rule=by_partition(2)
        ),
        "429 1 pod not ready, 1 pod unknown in partition 3",
        id="ZPDB-90 a pod that is scaled away, of this partition",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "r", replicas=2_000_000_000), rule=by_partition()),
        "429 1999998999 pods unknown in partition 0",
        id="of very many absent pods only some are looked at",
    ),
    pytest.param(
        scene("a-0", ingesters("b", "Crr"), rule=by_partition(), engine=DisruptionSource.ROLLOUT),
        "429 1 pod not ready in partition 0",
        id="LI-10 the rollout counts for a pod that is up",
    ),
    pytest.param(
        scene(
            "a-0",
            ingesters("a", "Crr"),
            ingesters("b", "Crr"),
            rule=by_partition(),
            engine=DisruptionSource.ROLLOUT,
        ),
        "allow",
        id="LI-10 the rollout does not count for a pod that is down",
    ),
]
PEERS = [
    pytest.param(
        scene("a-2", ingesters("b", "rr"), rule=FORGIVING),
        "allow",
        id="W-41 a zone scaled below the partition is forgiven where the budget says so",
    ),
    pytest.param(
        scene("a-2", ingesters("b", "rr", replicas=3), rule=FORGIVING),
        "429 1 pod unknown in partition 2",
        id="W-41 a peer that is wanted and absent is not",
    ),
    pytest.param(
        scene("a-2", ingesters("b", "rr", status_replicas=3), rule=FORGIVING),
        "429 1 pod unknown in partition 2",
        id="W-41 a peer that the status still counts is not",
    ),
    pytest.param(
        scene("a-2", ingesters("b", "rrt", replicas=2, status_replicas=2), rule=FORGIVING),
        "429 1 pod not ready in partition 2",
        id="W-41 a peer that is still going is not",
    ),
    pytest.param(
        scene("a-2", ingesters("b", "rr"), ingesters("c", "rrC"), rule=FORGIVING),
        "429 1 pod not ready in partition 2",
        id="W-41 the peers that remain count",
    ),
    pytest.param(
        scene("a-0", ingesters("b", ""), ingesters("c", ""), rule=by_partition()),
        "429 2 pods unknown in partition 0",
        id="ZPDB-91 zones without any pod",
    ),
]


@pytest.mark.parametrize(("case", "expected"), [*TABLE, *COUNTING, *PEERS])
def test_partition_mode(case: Scene, expected: str) -> None:
    assert answer(case) == expected


def since(age: timedelta | None) -> Zone:
    """Return zone b, whose pod 0 is ready for this long."""
    first = member("b", 0, ready_since=None if age is None else NOW - age)
    base = ingesters("b")
    return replace(base, pods=(first, *base.pods[1:]))


REFUSED = "429 1 pod not ready in partition 0"


@pytest.mark.parametrize(
    ("zone", "delay", "expected"),
    [
        pytest.param(since(timedelta(0)), timedelta(0), "allow", id="delay 0"),
        pytest.param(since(None), timedelta(0), "allow", id="delay 0, ready since nobody knows"),
        pytest.param(since(None), MINUTE, REFUSED, id="ready since nobody knows"),
        pytest.param(since(timedelta(0)), MINUTE, REFUSED, id="ready now"),
        pytest.param(since(-MINUTE), MINUTE, REFUSED, id="ready in the future"),
        pytest.param(since(timedelta(hours=1)), MINUTE, "allow", id="ready for an hour"),
        pytest.param(since(MINUTE), MINUTE, REFUSED, id="ZPDB-92 strictly more is needed"),
        pytest.param(since(MINUTE + timedelta(microseconds=1)), MINUTE, "allow", id="a bit more"),
        pytest.param(ingesters("b", "Frr"), MINUTE, REFUSED, id="not running and ready"),
        pytest.param(ingesters("b", "trr"), MINUTE, REFUSED, id="terminating"),
    ],
)
def test_readiness_with_delay(zone: Zone, delay: timedelta, expected: str) -> None:
    """T-11, readiness with delay; SI-05."""
    assert answer(scene("a-0", zone, rule=by_partition(delay=delay))) == expected


def test_a_grant_beats_any_ready_time() -> None:
    """T-11, readiness with delay: pending eviction."""
    case = scene("a-0", rule=by_partition(delay=MINUTE), deletions=granted("b-0"))

    assert answer(case) == REFUSED


def test_the_delay_is_for_this_partition_only() -> None:
    """ZPDB-93."""
    zone = replace(ingesters("b"), pods=tuple(member("b", at, ready_since=NOW) for at in range(3)))
    own = member("b", 0)
    case = scene("a-0", replace(zone, pods=(own, *zone.pods[1:])), rule=by_partition(delay=MINUTE))

    assert answer(case) == "allow"


def test_a_delayed_pod_gives_the_time_to_look_again() -> None:
    rule = by_partition(delay=MINUTE)
    case = scene("a-0", since(timedelta(seconds=50)), rule=rule)
    refusal = assess_disruption(case)

    assert refusal is not None
    assert refusal.look_again == timedelta(seconds=10, microseconds=1)
    assert refusal.reason.text == (
        "1 pod not ready in partition 0 (ingester-zone-b-0: ready for less than 1m0s); "
        "budget ingester: max unavailable 1"
    )
    assert answer(replace(case, now=NOW + refusal.look_again)) == "allow"
    almost = NOW + refusal.look_again - timedelta(microseconds=1)
    assert answer(replace(case, now=almost)) == REFUSED


def test_the_longer_one_of_delay_and_patience_decides() -> None:
    base = since(timedelta(seconds=50))
    sts = ingesters("b", min_ready_seconds=90).sts
    refusal = assess_disruption(
        scene("a-0", replace(base, sts=sts), rule=by_partition(delay=MINUTE))
    )

    assert refusal is not None
    assert refusal.look_again == timedelta(seconds=40)
    assert "ready for less than 1m30s" in refusal.reason.text


def test_no_time_to_look_again_where_time_alone_does_not_help() -> None:
    rule = by_partition(delay=MINUTE)
    refusal = assess_disruption(scene("a-0", since(timedelta(0)), ingesters("c", "Crr"), rule=rule))

    assert refusal is not None
    assert refusal.look_again is None


def test_the_text_names_the_zones_without_a_peer() -> None:
    case = scene("c-2", ingesters("a", "r"), ingesters("b", "rrF"), rule=by_partition(2))
    refusal = assess_disruption(case)

    assert refusal is not None
    assert refusal.reason.text == (
        "1 pod not ready, 1 pod unknown in partition 2 (ingester-zone-a: no peer and "
        "ingester-zone-b-2: Failed); budget ingester: max unavailable 2"
    )
    assert refusal.reason.zone == ""


def test_a_pod_without_a_partition_is_of_another_one_and_an_absent_one_of_any() -> None:
    """ZPDB-90; what is not there cannot be told apart where names have no partition."""
    rule = by_partition(pattern=r"ingester-zone-[a-c]-([0-1])")
    down = scene("a-0", ingesters("b", "rrF"), rule=rule)
    absent = scene("a-0", ingesters("b", "rr-"), rule=rule)

    assert answer(down) == "allow"
    assert answer(absent) == "429 1 pod unknown in partition 0"


def test_partitions_need_not_be_ordinals() -> None:
    """The peer of pod 0 in one zone need not be pod 0 in another."""
    shared = by_partition(pattern=r"(ingester)-zone-[a-c]-[0-9]+")
    apart = by_partition(pattern=r"ingester-zone-([a-c])-[0-9]+")

    assert answer(scene("a-0", ingesters("b", "rrF"), rule=shared)).endswith("partition ingester")
    assert answer(scene("a-0", rule=apart)) == "429 2 pods unknown in partition a"
