"""Zones and pods of a description: numbers, states and bounds."""

from datetime import timedelta

import msgspec
import pytest
from msgspec import structs

from rollout_operator.model.description import PodState, ZoneDescription
from rollout_operator.model.objects import Deletion, Group, Zone
from rollout_operator.planning.describe_groups import (
    MOST_PODS,
    MOST_PODS_IN_ALL,
    describe_zone,
    find_turn,
    share_pods,
)
from rollout_operator.planning.readiness import measure_readiness
from rollout_operator.planning.wording import MAX_LINE
from tests.builders import NOW, group, pod, prev, unreadable, with_pods, zone
from tests.planning.description.groups import starting


def describe(base: Zone, **deletions: Deletion) -> ZoneDescription:
    known = {name.replace("_", "-"): how for name, how in deletions.items()}
    snapshot = group(base, deletions=known)
    readiness = measure_readiness(base, snapshot.deletions, NOW)
    return describe_zone(base, readiness, snapshot, is_busy=False)


def test_a_zone_in_full() -> None:
    base = starting(prev("a", "lLpP-", limit="2"), 1)
    base = structs.replace(base, unreadable_pods=(unreadable("Pod", "zone-a-4", owner="a"),))

    found = describe(base, zone_a_2=Deletion.ACCEPTED)

    assert structs.asdict(_Row.of(found)) == {
        "counts": (5, 1, 2, 2, 2),
        "pods": [
            "zone-a-0 last ready",
            "zone-a-1 last starting: ContainerCreating",
            "zone-a-2 prev going: delete accepted",
            "zone-a-3 prev not ready: CrashLoopBackOff",
            'zone-a-4  unreadable: spec.replicas: expected int, got str: "x"',
        ],
    }


@pytest.mark.parametrize(
    ("base", "states"),
    [
        pytest.param(zone("a", "l-"), ["ready", "missing"], id="a gap"),
        pytest.param(zone("a", "tT"), ["going", "going"], id="terminating"),
        pytest.param(zone("a", ""), [], id="no replicas"),
        pytest.param(
            with_pods(zone("a", "l", min_ready_seconds=9), ready_since=NOW),
            ["starting"],
            id="ready for too short a time",
        ),
        pytest.param(
            structs.replace(
                zone("a", "l"), pods=(pod("a", 0, "l"), pod("a", 0, "L", uid="uid-other"))
            ),
            ["not ready"],
            id="of two pods of one name the worse one",
        ),
        pytest.param(
            structs.replace(zone("a", "l"), pods=(pod("a", 0, "l", owner_uid="uid-x"),)),
            ["missing"],
            id="a pod of another owner",
        ),
    ],
)
def test_states_of_pods(base: Zone, states: list[str]) -> None:
    assert [one.state for one in describe(base).pods] == states


def test_since_when_a_pod_is_ready_or_else_exists() -> None:
    born, ready = NOW - timedelta(hours=2), NOW - timedelta(hours=1)
    base = with_pods(zone("a", "lL"), created=born, ready_since=ready)

    assert [one.since for one in describe(base).pods] == [ready, born]


def test_a_huge_zone_is_cut() -> None:
    """D-68: neither size nor work goes with `spec.replicas`."""
    found = describe(zone("a", "ll", replicas=2**31 - 1, first_ordinal=7))

    assert found.desired == 2**31 - 1
    assert [one.ordinal for one in found.pods] == [*range(7, 7 + MOST_PODS)]
    assert {one.state for one in found.pods} == {PodState.MISSING}


@pytest.mark.parametrize(
    ("zones", "pods"), [(0, 200), (3, 200), (100, 200), (900, 22), (50_000, 1)]
)
def test_all_zones_share_what_is_shown(zones: int, pods: int) -> None:
    assert share_pods(zones) == pods
    assert pods * zones <= max(MOST_PODS_IN_ALL, zones)


def test_long_texts_are_cut() -> None:
    base = with_pods(zone("a", "L"), why_not_ready="x" * 10 * MAX_LINE)

    assert len(describe(base).pods[0].why) == MAX_LINE + 1


def test_without_an_update_revision_nothing_is_known_to_be_outdated() -> None:
    found = describe(zone("a", "lll", update_revision=""))

    assert (found.updated, found.outdated) == (0, 0)


@pytest.mark.parametrize(
    ("snapshot", "name"),
    [
        pytest.param(group(zone("a"), zone("b")), None, id="nothing is due"),
        pytest.param(group(prev("a"), prev("b")), "zone-a", id="the first by name"),
        pytest.param(group(zone("a"), prev("b")), "zone-b", id="the first that has something due"),
        pytest.param(group(prev("a"), prev("b", "pPp")), "zone-b", id="the one that is short"),
        pytest.param(group(prev("a", "Ppp"), prev("b", "Ppp")), None, id="two are short"),
        pytest.param(group(prev("a", paused="true"), prev("b")), "zone-b", id="not a paused one"),
        pytest.param(
            group(prev("a", "Ppp", paused="true"), prev("b")), None, id="behind a paused one"
        ),
        pytest.param(
            group(zone("a", current="prev"), prev("b")), "zone-b", id="recording is not a turn"
        ),
        pytest.param(group(zone("a", current="prev")), "zone-a", id="only recording is left"),
    ],
)
def test_whose_turn_it_is(snapshot: Group, name: str | None) -> None:
    readinesses = [measure_readiness(one, snapshot.deletions, NOW) for one in snapshot.zones]
    turn = find_turn(readinesses)

    assert (None if turn is None else turn.sts.name) == name


class _Row(msgspec.Struct, frozen=True):
    """A zone in short."""

    counts: tuple[int, ...]
    pods: list[str]

    @classmethod
    def of(cls, found: ZoneDescription) -> "_Row":
        numbers = (found.desired, found.ready, found.updated, found.outdated)
        return cls(
            counts=(*numbers, found.max_unavailable),
            pods=[
                f"{one.name} {one.revision} {one.state}{f': {one.why}' if one.why else ''}"
                for one in found.pods
            ],
        )
