"""When it cannot be told now who must be prepared: refused for a while (SI-10, SI-13, D-26)."""

import dataclasses

import pytest

from rollout_operator.model.group import Zone
from rollout_operator.model.names import Uid
from tests.builders import prev, unreadable, with_pods
from tests.planning.downscales.test_prepare import ask, five, outline, refused, with_pod

RETRY = 429
MAY_BE_REPLACED = (
    "may just be replaced: zone-a is being rolled out; try again when it is, or pause it"
)


def hidden(base: Zone, *names: str) -> Zone:
    """Return the zone with pods of these names that cannot be read."""
    lost = tuple(unreadable("Pod", name, owner="a") for name in names)
    return dataclasses.replace(base, unreadable_pods=lost)


def rolling(states: str, *, paused: str | None = None) -> Zone:
    return with_pods(prev("a", states, paused=paused), ip="10.0.0.1")


@pytest.mark.parametrize(
    ("case", "why"),
    [
        pytest.param(
            five("llllt"),
            "zone-a-4 is terminating: try again when it has been replaced",
            id="SI-10 its successor was never ready but has its data",
        ),
        pytest.param(
            with_pod(five("llllt"), 4, never_ready=True, phase="Pending"),
            "zone-a-4 is terminating: try again when it has been replaced",
            id="SI-10 terminating, whatever else it was",
        ),
        pytest.param(
            with_pod(five("llllL"), 4, was_ready=True, phase="Pending"),
            "zone-a-4 has been ready and does not run now (phase Pending)",
            id="D-26 has been ready, is pending",
        ),
        pytest.param(
            with_pod(five("lllLl"), 3, was_ready=True, phase="Succeeded"),
            "zone-a-3 has been ready and does not run now (phase Succeeded)",
            id="D-26 has been ready, has ended",
        ),
        pytest.param(
            with_pod(five("llllL"), 4, was_ready=True, phase="Failed"),
            "zone-a-4 has been ready and does not run now (phase Failed)",
            id="D-26 has been ready, has failed",
        ),
        pytest.param(
            hidden(five("llll"), "zone-a-4"),
            "pods cannot be read: zone-a-4",
            id="SI-13 a pod of the range cannot be read",
        ),
        pytest.param(
            hidden(five("lll"), "zone-a-4", "zone-a-3"),
            "pods cannot be read: zone-a-3 and zone-a-4",
            id="SI-13 two pods of the range cannot be read",
        ),
        pytest.param(
            hidden(five("llll"), ""),
            "pods cannot be read: one without a name",
            id="SI-13 it may be any pod",
        ),
        pytest.param(
            hidden(five(), "zone-a-04", "zone-a-2"),
            "pods cannot be read: zone-a-04",
            id="SI-13 a name that no controller gives",
        ),
        pytest.param(
            hidden(five("lll"), "b", "d", "c", "a", "e"),
            "pods cannot be read: a, b, c and 2 more",
            id="SI-13 many pods cannot be read",
        ),
        pytest.param(
            rolling("pppp-"),
            f"1 pod of the range {MAY_BE_REPLACED}",
            id="SI-10 missing while the zone rolls",
        ),
        pytest.param(
            with_pod(rolling("ppppP"), 4, phase="Pending", is_starting=True),
            f"1 pod of the range {MAY_BE_REPLACED}",
            id="SI-10 the successor of one that was rolled is pending",
        ),
        pytest.param(
            with_pod(rolling("ppppL"), 4, never_ready=True, is_starting=True),
            f"1 pod of the range {MAY_BE_REPLACED}",
            id="SI-10 the successor of one that was rolled has not been ready yet",
        ),
        pytest.param(
            rolling("ppp--"),
            f"2 pods of the range {MAY_BE_REPLACED}",
            id="SI-10 all missing while the zone rolls",
        ),
        pytest.param(
            rolling("pppp-", paused="false"),
            f"1 pod of the range {MAY_BE_REPLACED}",
            id="SI-10 a zone that is not paused",
        ),
    ],
)
def test_in_doubt_it_is_refused_for_a_while(case: Zone, why: str) -> None:
    """SI-10, SI-13: a retry is worth it, and nobody has been called."""
    assert ask(case) == refused(why, RETRY)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(five("ttTll"), ([4, 3], [4, 3], ""), id="one that stays terminates"),
        pytest.param(
            with_pod(five("llLll"), 2, was_ready=True, phase="Failed"),
            ([4, 3], [4, 3], ""),
            id="one that stays has failed",
        ),
        pytest.param(
            hidden(five("--lll"), "zone-a-0", "zone-a-1"),
            ([4, 3], [4, 3], ""),
            id="those that stay cannot be read",
        ),
        pytest.param(
            hidden(five(), "zone-a-5"), ([4, 3], [4, 3], ""), id="one above the range is lost"
        ),
        pytest.param(
            with_pod(five("llllL"), 4, was_ready=True, phase="Unknown"),
            ([4, 3], [4, 3], ""),
            id="SI-10 has been ready, on a silent node: must confirm",
        ),
        pytest.param(
            rolling("ppppp"), ([4, 3], [4, 3], ""), id="the zone rolls, nobody is missing"
        ),
        pytest.param(rolling("-pppp"), ([4, 3], [4, 3], ""), id="the zone rolls below the range"),
        pytest.param(
            rolling("pppp-", paused="true"),
            ([3], [3], "1 pod of the range: no such pod"),
            id="the zone is paused: nobody replaces pods",
        ),
        pytest.param(
            with_pod(five(), 4, owner_uid=Uid("stranger"), is_terminating=True),
            ([3], [3], "1 pod of the range: no such pod"),
            id="D-10 a stranger's pod terminates",
        ),
    ],
)
def test_there_is_no_doubt(case: Zone, expected: tuple[list[int], list[int], str]) -> None:
    assert outline(ask(case)) == expected


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_d26_idle_phases(phase: str) -> None:
    """A pod that never was ready and does not run has nothing to prepare, and is told of."""
    case = with_pod(five("llllL"), 4, phase=phase)
    assert outline(ask(case)) == ([3], [4, 3], f"zone-a-4 does not run (phase {phase})")


@pytest.mark.parametrize("phase", ["Running", "Unknown", "", "pending"])
def test_d26_all_other_phases_must_confirm(phase: str) -> None:
    case = with_pod(five("llllL"), 4, phase=phase)
    assert outline(ask(case)) == ([4, 3], [4, 3], "")


def test_those_that_are_not_called_are_counted() -> None:
    """Four are idle: three are named."""
    case = with_pods(five("llLLLL"), phase="Pending")
    answer = ask(case, start=6, end=2)
    assert outline(answer) == (
        [],
        [5, 4, 3, 2],
        "zone-a-5 does not run (phase Pending), zone-a-4 does not run (phase Pending),"
        " zone-a-3 does not run (phase Pending) and 1 more",
    )
