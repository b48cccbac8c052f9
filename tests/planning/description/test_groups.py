"""Groups as every outlet shows them: all states, and whatever hostile objects hold.

What a person reads of each state stands in `states.txt`.
"""

import dataclasses
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec import structs

from rollout_operator.model.description import (
    DownscaleDescription,
    GroupDescription,
    Phase,
    PodState,
    Step,
    Waiting,
)
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Group, Zone
from rollout_operator.model.outcome import Code, Plan, Reason, Severity, render_path
from rollout_operator.planning.describe_groups import MOST_REASONS, MOST_STEPS, describe_group
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.text import render_group
from rollout_operator.planning.wording import MAX_LINE
from tests.builders import NOW, group, pod, prev, unreadable, with_pods, zone
from tests.goldens import Golden
from tests.planning.description.groups import STATES

KEPT: Final = Path(__file__).parent / "states.txt"
BEFORE: Final = NOW - timedelta(minutes=1)


def describe(snapshot: Group, plan: Plan | None = None) -> GroupDescription:
    decided = plan_group(snapshot) if plan is None else plan
    return describe_group(snapshot, decided, NOW)


def test_what_a_person_reads_of_each_state(golden: Golden) -> None:
    """D-75: the whole text of each."""
    reported = [["# " + name, *render_group(describe(one)), ""] for name, one in STATES.items()]

    golden.check(KEPT, "\n".join([*chain(*reported), ""]))


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_data(name: str) -> None:
    """D-75: the same goes through JSON and back."""
    described = describe(STATES[name])

    body = msgspec.json.encode(described)
    assert msgspec.json.decode(body, type=GroupDescription) == described


@pytest.mark.parametrize("name", STATES)
def test_the_order_of_zones_and_pods_does_not_matter(name: str) -> None:
    snapshot = STATES[name]
    zones = tuple(structs.replace(one, pods=one.pods[::-1]) for one in reversed(snapshot.zones))

    assert describe(structs.replace(snapshot, zones=zones)) == describe(snapshot)


def test_a_reason_comes_with_what_to_do_and_where_it_is_explained() -> None:
    described = describe(STATES["paused"])

    assert described.waits == (
        Waiting(
            code=Code.PAUSED,
            text="zone-a is paused: 3 outdated pods wait",
            zone="zone-a",
            remedy=Code.PAUSED.remedy,
            link=render_path(Code.PAUSED),
        ),
    )


def test_a_reason_that_passes_by_itself_needs_nothing() -> None:
    described = describe(STATES["about to begin"])

    assert [(one.severity, one.remedy) for one in described.waits] == [(Severity.DEBUG, "")] * 2


def test_what_has_been_starting_for_long_moves_no_more() -> None:
    """A readiness probe that fails for ever looks like one that has not passed yet."""
    young, old = describe(STATES["starting"]), describe(STATES["starting for long"])

    assert (young.phase, old.phase) == (Phase.ROLLING_OUT, Phase.WAITING)
    assert (young.zones[0].pods[0].state, old.zones[0].pods[0].state) == (
        PodState.STARTING,
        PodState.NOT_READY,
    )
    [first, second] = (one.waits[0] for one in (young, old))
    assert (first.code, first.text) == (second.code, second.text)
    assert (first.remedy, second.remedy) == ("", Code.PODS_STARTING.remedy)
    assert old.expected_end is None


def test_a_downscale_is_reported() -> None:
    assert describe(STATES["downscale underway"]).downscale == DownscaleDescription(
        zone="zone-b", text="zone-b is being scaled down from 3 to 2 replicas"
    )


def test_times_of_the_decision_are_kept() -> None:
    snapshot = STATES["about to begin"]
    wait = Reason(Code.ZONE_NOT_READY, "as it was before")
    plan = dataclasses.replace(plan_group(snapshot), waits=(wait,))

    described = describe_group(snapshot, plan, NOW, BEFORE, is_underway=True)

    assert (described.since, described.looked, described.underway_since) == (BEFORE, NOW, NOW)
    assert described.steps == (
        Step(
            code=Code.POD_OUTDATED,
            text="zone-a-0 is at revision prev, zone-a wants last",
            zone="zone-a",
            pod="zone-a-0",
        ),
    )
    assert [one.text for one in described.waits] == ["as it was before"]


def test_what_the_caches_show_already_is_not_done_again() -> None:
    """A plan is posted after it was carried out."""
    before, after = STATES["about to begin"], STATES["a step that is done already"]

    (step,) = describe(after, plan_group(before)).steps
    assert (step.pod, step.is_waiting) == ("zone-a-1", True)


@pytest.mark.parametrize(
    ("snapshot", "phase", "code"),
    [
        pytest.param(
            group(prev("a"), zone("b")), Phase.ROLLING_OUT, Code.POD_OUTDATED, id="a new revision"
        ),
        pytest.param(
            group(zone("a", "lLl", ready=2)), Phase.WAITING, Code.ZONE_NOT_READY, id="a crash"
        ),
        pytest.param(
            group(zone("a", current="prev")), Phase.ROLLING_OUT, None, id="one to be recorded"
        ),
    ],
)
def test_what_is_newer_than_the_decision_is_not_called_done(
    snapshot: Group, phase: Phase, code: Code | None
) -> None:
    """`wait` in a script must not end on a decision of before the change."""
    done = Plan(group=snapshot.name, waits=(Reason(Code.UP_TO_DATE, "all ready"),))

    described = describe(snapshot, done)
    assert (described.phase, described.code) == (phase, code)


HOLDS: Final = [
    pytest.param([Code.BUDGETS_OVERLAP], False, Phase.HELD, Code.BUDGETS_OVERLAP, id="a budget"),
    pytest.param(
        [Code.DISRUPTION_BUDGET_USED],
        False,
        Phase.WAITING,
        Code.DISRUPTION_BUDGET_USED,
        id="a budget that is used",
    ),
    pytest.param([Code.BACKING_OFF], True, Phase.WAITING, Code.BACKING_OFF, id="a failed call"),
    pytest.param(
        [Code.LIVE_READ_EXPIRED], True, Phase.WAITING, Code.LIVE_READ_EXPIRED, id="a slow one"
    ),
    pytest.param(
        [Code.DELAYED_BY_PODS, Code.BAD_DELAY],
        False,
        Phase.ROLLING_OUT,
        Code.POD_OUTDATED,
        id="scaling does not hold a rollout",
    ),
    pytest.param(
        [Code.PAUSED, Code.WRONG_STRATEGY],
        True,
        Phase.HELD,
        Code.WRONG_STRATEGY,
        id="what holds the group comes first",
    ),
    pytest.param(
        [Code.SNAPSHOT_STALE], True, Phase.HELD, Code.SNAPSHOT_STALE, id="failed otherwise"
    ),
]


@pytest.mark.parametrize(("codes", "failed", "phase", "code"), HOLDS)
def test_the_phase_of_a_rollout_that_is_held(
    codes: list[Code], failed: bool, phase: Phase, code: Code
) -> None:
    snapshot = STATES["about to begin"]
    waits = tuple(Reason(one, f"because of {one}") for one in codes)
    plan = dataclasses.replace(plan_group(snapshot), waits=waits, failed=failed)

    described = describe(snapshot, plan)
    assert (described.phase, described.code) == (phase, code)


@pytest.mark.parametrize(
    ("codes", "phase"),
    [
        pytest.param([Code.BAD_DELAY], Phase.HELD, id="of a zone"),
        pytest.param([Code.ZONE_DOWNSCALED_LATELY], Phase.WAITING, id="time"),
        pytest.param([Code.ZONE_DOWNSCALED_LATELY, Code.NO_LEADING_ZONE], Phase.HELD, id="both"),
    ],
)
def test_the_phase_of_a_group_whose_replicas_are_held(codes: list[Code], phase: Phase) -> None:
    waits = tuple(Reason(one, f"because of {one}") for one in codes)
    snapshot = STATES["rolled out"]

    assert describe(snapshot, Plan(group=snapshot.name, waits=waits)).phase is phase


def test_without_a_decision_that_is_said() -> None:
    described = describe(group(zone("a", current="prev")), Plan(group=GroupName("ingester")))

    assert (described.headline, described.code) == ("nothing has been decided yet", None)


HOSTILE: Final = {
    "huge replicas": zone("a", "lL", replicas=2**31 - 1, first_ordinal=2**31 - 1),
    "pods of one name": structs.replace(
        zone("a", "l"), pods=tuple(pod("a", 0, "p", uid=f"uid-{n}") for n in range(300))
    ),
    "names that are none": structs.replace(
        zone("a", "l"),
        pods=tuple(pod("a", 0, name=name) for name in ("zone-a-", "zone-a-x", "", "zone-a-01")),
    ),
    "unreadable pods": structs.replace(
        zone("a", "-" * 300),
        unreadable_pods=tuple(unreadable("Pod", f"zone-a-{n}", owner="a") for n in range(300)),
    ),
    "long texts": with_pods(
        zone("a", "LLL", limit="\x00" * 10**5, paused="y" * 10**5), why_not_ready="\u202e" * 10**5
    ),
    "many outdated": zone("a", "p" * 300, limit="300", ready=300, current="prev"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_bounded(name: str) -> None:
    """D-68, SEC-13."""
    one: Zone = HOSTILE[name]
    described = describe(group(one, prev("b")))

    assert len(described.waits) <= MOST_REASONS + 1
    assert len(described.problems) <= MOST_REASONS + 1
    assert len(described.steps) <= MOST_STEPS
    texts = [described.headline, *(each.text for each in (*described.waits, *described.problems))]
    assert max(map(len, texts)) <= MAX_LINE + 1
    assert len(msgspec.json.encode(described)) < 200_000
    assert all(line.isprintable() for line in render_group(described))


def test_of_many_reasons_the_rest_is_counted() -> None:
    described = describe(group(HOSTILE["unreadable pods"]))

    assert [one.text for one in described.problems][-1] == "and 200 more"
