"""Which news of a policy are reported."""

import pytest
from msgspec import structs

from rollout_operator.model.budget import ZoneSource
from rollout_operator.model.objects import Zone
from rollout_operator.model.policy import (
    PolicyRefusal,
    PolicyRefusalCode,
    PolicySetStatus,
    PolicySnapshot,
    PolicyStatus,
    PolicyZoneStatus,
    RefusedPolicy,
    ZoneFinding,
    ZoneFindingCode,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.model.units import IntOrPercent
from rollout_operator.planning.policies import plan_policy
from rollout_operator.planning.policy_status import (
    choose_policy_events,
    find_batch,
    list_overridden,
    render_policy_status,
    render_refused_status,
)
from tests.builders import NOW, prev, zone
from tests.planning.policies.played import PlayedPolicy
from tests.planning.policies.snapshots import batch, policy, seconds, snapshot

B = zone("b")
NEVER = PolicyStatus()


def play(played: PlayedPolicy, until: int, status: PolicyStatus = NEVER) -> list[str]:
    """Return the reasons of all Events of a rollout, each with the second before it."""
    found = []
    while played.time < until:
        played.batch = find_batch(status)
        time, plan = played.time, played.tick()
        assert played.last is not None
        after = render_policy_status(played.last, plan, before=status)
        found += [f"{time} {one.reason}" for one in choose_policy_events(status, after)]
        status = after
    return found


def test_a_rollout_is_reported_from_start_to_end() -> None:
    """MAZ-53: each once, by what the status said before; a status that is read back is enough."""
    played = PlayedPolicy(("2a", "a"), ("2b", "b"), replicas=1)
    played.change_template("v2")

    assert play(played, 60) == [
        "0 RolloutStarted", "0 ZoneStarted", "0 BatchStarted",
        "5 BatchCompleted", "5 ZoneCompleted",
        "35 ZoneStarted", "35 BatchStarted",
        "40 BatchCompleted", "40 ZoneCompleted", "40 RolloutCompleted",
    ]  # fmt: skip


def test_a_rollout_without_a_pause() -> None:
    """MAZ-42: the next batch replaces the record of the last, the zone is reported still."""
    played = PlayedPolicy(("2a", "a"), ("2b", "b"), replicas=1, interval=seconds(0))
    played.change_template("v2")

    found = play(played, 30)
    assert [one for one in found if "Zone" in one or "Rollout" in one] == [
        "0 RolloutStarted", "0 ZoneStarted", "5 ZoneCompleted", "5 ZoneStarted",
        "10 ZoneCompleted", "10 RolloutCompleted",
    ]  # fmt: skip


def test_a_rollout_that_stalls() -> None:
    """MT-46, MAZ-44: reported once."""
    played = PlayedPolicy(("2a", "a"), ("2b", "b"), replicas=1, progress_deadline=seconds(30))
    played.crashing.add("v2")
    played.change_template("v2")

    assert play(played, 100)[3:] == ["31 RolloutStalled"]


@pytest.mark.parametrize(
    ("zones", "reason"),
    [
        pytest.param((prev("a", "pwp"), prev("b", "pWp")), "RolloutBlocked", id="MT-41"),
        pytest.param(
            (prev("a"), zone("b", strategy="RollingUpdate")), "UpdateStrategyNotOnDelete",
            id="MT-65",
        ),
    ],
)  # fmt: skip
def test_what_stops_a_policy_is_reported_once(zones: tuple[Zone, ...], reason: str) -> None:
    _assert_reported_once(snapshot(*zones), reason)


def test_a_set_that_spans_zones_is_reported_once() -> None:
    """MT-06, MAZ-20."""
    finding = ZoneFinding(code=ZoneFindingCode.SPANS_ZONES, text="a has pods in 2a and 2b")
    spans = ZoneResolution(code=ZonesCode.SPANS_ZONES, findings=(finding,))

    _assert_reported_once(
        structs.replace(snapshot(prev("a"), B), resolution=spans), "StatefulSetSpansZones"
    )


def _assert_reported_once(case: PolicySnapshot, reason: str) -> None:
    plan = plan_policy(case)
    first = render_policy_status(case, plan, before=NEVER)
    again = render_policy_status(case, plan, before=first)

    reported = [(one.reason, one.severity) for one in choose_policy_events(NEVER, first)]
    assert (reason, "warn") in reported
    assert choose_policy_events(first, again) == ()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (PolicyRefusalCode.INVALID_SPEC, "InvalidSpec"),
        (PolicyRefusalCode.NAMESPACE_MISMATCH, "InvalidSpec"),
        (PolicyRefusalCode.EMPTY_SELECTOR, "InvalidSpec"),
        (PolicyRefusalCode.CONFLICT, "Conflict"),
        (PolicyRefusalCode.ROLLOUT_GROUP_SPLIT, "RolloutGroupSplit"),
    ],
)
def test_a_refusal_is_reported_once(code: PolicyRefusalCode, reason: str) -> None:
    """MT-60, MT-61, MT-62, MT-64: a line that would steer a terminal is escaped."""
    refusal = PolicyRefusal(code=code, field="spec", text="no\x1b[2J")
    refused = RefusedPolicy(head=policy().head, refusals=(refusal,))
    status = render_refused_status(refused, before=NEVER, now=NOW)

    (event,) = choose_policy_events(NEVER, status)
    assert (event.reason, event.note, event.severity) == (reason, "no\\x1b[2J", "warn")
    assert choose_policy_events(status, status) == ()


def test_a_zone_that_nothing_says_is_reported_once() -> None:
    """MT-12, MAZ-19."""
    one = PolicySetStatus(name="db", source=ZoneSource.SET_NAME)
    status = PolicyStatus(zones=(PolicyZoneStatus(name="db", stateful_sets=(one,)),))

    assert [one.reason for one in choose_policy_events(NEVER, status)] == ["ZoneUnknown"]
    assert choose_policy_events(status, status) == ()


def test_a_batch_that_opens_again_begins_nothing() -> None:
    """MAZ-40: a failure in the pause is no new batch."""
    closed = snapshot(prev("a", "ppl"), B, batch=batch("a-2", completion=-9))
    broken = snapshot(prev("a", "ppL"), B, batch=batch("a-2", completion=-9))
    before = render_policy_status(closed, plan_policy(closed), before=NEVER)
    after = render_policy_status(broken, plan_policy(broken), before=before)

    assert choose_policy_events(before, after) == ()


@pytest.mark.parametrize(
    ("limit", "reported"),
    [("2", False), ("3", True), ("50%", True), ("x", True), (None, False)],
)
def test_an_annotation_that_does_not_count(limit: str | None, reported: bool) -> None:
    """MAZ-26: where it says something else than the policy."""
    case = snapshot(zone("a", limit=limit), max_unavailable=IntOrPercent(2))
    found = list_overridden(case.policy, case.group)

    assert [one.reason for one in found] == ["MaxUnavailableOverridden"] * reported


def test_what_a_rollout_has_many_of_is_routine() -> None:
    """MAZ-53: Events of batches and zones have room of their own."""
    played = PlayedPolicy(("2a", "a"), ("2b", "b"), replicas=1, interval=seconds(0))
    played.change_template("v2")
    status = NEVER
    routine: set[str] = set()
    others: set[str] = set()
    while played.time < 30:
        played.batch = find_batch(status)
        plan = played.tick()
        assert played.last is not None
        after = render_policy_status(played.last, plan, before=status)
        for one in choose_policy_events(status, after):
            (routine if one.is_routine else others).add(one.reason)
        status = after

    assert others == {"RolloutStarted", "RolloutCompleted"}
    assert {"BatchStarted", "ZoneStarted", "ZoneCompleted"} <= routine
