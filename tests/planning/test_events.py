"""Which doings are worth an Event, and what it says."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, EventAction, EventKind, FlawedBudget
from rollout_operator.model.names import GroupName, Revision, Uid
from rollout_operator.model.objects import Group, StatefulSet, Unreadable, Zone
from rollout_operator.model.outcome import (
    Code,
    Plan,
    Reason,
    RecordRevision,
    Replacement,
    Severity,
    Verdict,
)
from rollout_operator.planning.events import (
    MOST_ZONES,
    START_STAYS,
    WAIT_STAYS,
    Choice,
    ReportedGroup,
    choose_budget_event,
    choose_delete_events,
    choose_finish_events,
    choose_revision_events,
    choose_wait_events,
    choose_zone_events,
    is_reported,
    next_wait_report,
    record_waits,
    render_held,
    render_refused_downscale,
    render_scaled,
)
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.scaling import plan_scaling
from rollout_operator.planning.wording import camel_case
from tests.builders import group, pod, sts, unreadable, zone
from tests.planning.scalings import read_snapshot

SECOND = timedelta(seconds=1)
NEW = ReportedGroup()
AT_REST = ReportedGroup(was_rolled_out=True)
REST = Plan(group=GroupName("g"), waits=(Reason(Code.UP_TO_DATE, "9 pods: all ready"),))


def delete(reported: ReportedGroup, whole: Group, letter: str, ordinal: int, at: int = 0) -> Choice:
    """Report that a pod of the group was deleted, so many seconds after the start."""
    reason = Reason(Code.POD_OUTDATED, f"{letter}-{ordinal} is outdated", zone=f"zone-{letter}")
    one = Replacement(pod=pod(letter, ordinal), reason=reason)
    return choose_delete_events(reported, whole, one, at * SECOND)


def outline(choice: Choice) -> list[str]:
    return [f"{one.regarding.name} {one.reason}: {one.note}" for one in choice[1]]


def waiting(code: Code = Code.PAUSED, zone: str = "zone-a", **changes: object) -> Plan:
    reason = Reason(code, f"{zone or 'all'} waits", Severity.INFO, zone)
    return Plan(group=GroupName("g"), waits=(replace(reason, **changes),))


def test_the_reason_is_the_code_in_camel_case() -> None:
    assert camel_case(Code.SEVERAL_ZONES_NOT_READY) == "SeveralZonesNotReady"
    assert len({camel_case(code) for code in Code}) == len(Code)


def test_a_rollout_from_its_begin_to_its_end() -> None:
    """Each zone begins once; the end is reported at the zones of which pods were replaced."""
    before = group(zone("a", "pp", current="prev"), zone("b", "pp", current="prev"))
    first = delete(AT_REST, before, "a", 0, at=5)
    assert outline(first) == [
        "zone-a RolloutBegun: zone-a is rolled out to last: 2 pods are outdated",
        "zone-a-0 PodOutdated: a-0 is outdated",
    ]
    second = delete(first[0], before, "a", 1, at=6)
    assert outline(second) == ["zone-a-1 PodOutdated: a-1 is outdated"]
    action = next(
        one
        for one in plan_group(group(zone("a", "ll", current="prev"))).actions
        if isinstance(one, RecordRevision)
    )
    rolled = choose_revision_events(second[0], action)
    assert outline(rolled) == [f"zone-a ZoneRolledOut: {action.reason.text}"]
    assert outline(choose_revision_events(rolled[0], action)) == [], "an attempt that is repeated"
    third = delete(rolled[0], before, "b", 0, at=40)
    assert outline(third)[0].startswith("zone-b RolloutBegun")
    end = choose_finish_events(third[0], REST, 95 * SECOND)
    assert outline(end) == [
        "zone-a RolloutFinished: 9 pods: all ready; the rollout took 1m30s",
        "zone-b RolloutFinished: 9 pods: all ready; the rollout took 1m30s",
    ]
    assert outline(choose_finish_events(end[0], REST, 99 * SECOND)) == []


@pytest.mark.parametrize(
    ("after", "is_reported"),
    [
        pytest.param([zone("a", "ll")], True, id="by the StatefulSet controller, since 1.37"),
        pytest.param([zone("a", "ll", current="prev")], False, id="this process is about to"),
        pytest.param([zone("a", "ll", current="prev", paused="true")], False, id="paused before"),
        pytest.param([zone("a", "ll", paused="true")], True, id="paused, and recorded"),
        pytest.param([zone("a", "ll"), zone("b", "pL")], True, id="another zone is short"),
        pytest.param(
            [zone("a", "ll", current="prev"), zone("b", "pL"), zone("c", "pL")],
            False,
            id="others are short, and nothing recorded",
        ),
        pytest.param([zone("a", "lp", current="prev")], False, id="half done"),
        pytest.param([zone("a", "lL")], False, id="not ready"),
        pytest.param([zone("a", "ll", min_ready_seconds=30)], False, id="not ready long enough"),
        pytest.param([zone("a", "ll", ready=1)], False, id="W-33 not ready by its status"),
        pytest.param([zone("a", "l-")], False, id="a pod is gone"),
        pytest.param([zone("a", "pp", update_revision="prev")], False, id="rolled back"),
        pytest.param([zone("b", "ll")], False, id="it has left"),
    ],
)
def test_a_zone_is_rolled_out_whoever_records_its_revision(
    after: list[Zone], *, is_reported: bool
) -> None:
    begun, _ = delete(AT_REST, group(zone("a", "pp", current="prev")), "a", 0)
    progress = plan_group(group(*after)).progress or ()
    found = choose_zone_events(begun, progress)
    note = "zone-a has 2 of 2 pods ready at revision last, which is its current revision"
    assert outline(found) == [f"zone-a ZoneRolledOut: {note}"] * is_reported
    assert outline(choose_zone_events(found[0], progress)) == []


@pytest.mark.parametrize("is_replaced", [True, False])
def test_of_a_zone_that_was_made_anew_no_end_is_reported_at_the_old_one(
    *, is_replaced: bool
) -> None:
    """Its revisions have the same names; pods that came with it, up to date, are no rollout."""
    a, b = (zone(letter, "pp", current="prev") for letter in "ab")
    old = replace(a, sts=replace(a.sts, uid=Uid("old")))
    rolling, _ = delete(AT_REST, group(old, b), "a", 0)
    if is_replaced:
        rolling, _ = delete(rolling, group(a, b), "a", 0, at=9)
    rolling, _ = delete(rolling, group(a, b), "b", 0, at=20)
    plan = plan_group(group(zone("a", "ll"), zone("b", "ll")))
    rolled, zones = choose_zone_events(rolling, plan.progress or ())
    _, ends = choose_finish_events(rolled, plan, 30 * SECOND)
    uids = [a.sts.uid] * is_replaced + [b.sts.uid]
    assert [(one.regarding.uid, one.reason) for one in (*zones, *ends)] == [
        *((uid, "ZoneRolledOut") for uid in uids),
        *((uid, "RolloutFinished") for uid in uids),
    ]


def test_a_rollout_that_an_earlier_process_began_is_not_begun_again() -> None:
    """Nor is it said how long it took."""
    half = group(zone("a", "lp", current="prev"))
    choice = delete(NEW, half, "a", 1)
    assert outline(choice) == ["zone-a-1 PodOutdated: a-1 is outdated"]
    end = choose_finish_events(choice[0], REST, 9 * SECOND)
    assert outline(end) == ["zone-a RolloutFinished: 9 pods: all ready"]


def test_a_rollout_to_another_revision_begins_anew() -> None:
    """Also where some of its pods are at it already, as after a rollback."""
    first, _ = delete(AT_REST, group(zone("a", "pp", current="prev")), "a", 0)
    back = group(zone("a", "pl", current="prev", update_revision=Revision("prev")))
    assert outline(delete(first, back, "a", 1))[0].startswith("zone-a RolloutBegun")


def test_a_pod_of_an_unknown_zone_is_reported_alone() -> None:
    assert outline(delete(AT_REST, group(), "a", 0)) == ["zone-a-0 PodOutdated: a-0 is outdated"]


def test_what_is_not_at_rest_is_no_end() -> None:
    rolling, _ = delete(AT_REST, group(zone("a", "pp", current="prev")), "a", 0)
    for plan in (waiting(), Plan(group=GroupName("g"))):
        assert choose_finish_events(rolling, plan, SECOND) == (rolling, ())


@pytest.mark.parametrize(
    ("plan", "stood_for", "wait"),
    [
        pytest.param(waiting(), timedelta(0), WAIT_STAYS, id="it may pass"),
        pytest.param(waiting(), WAIT_STAYS, timedelta(0), id="it stays"),
        pytest.param(waiting(), timedelta(hours=1), timedelta(0), id="for long"),
        pytest.param(
            # As the planner has it: quiet in the log, and news only where it stays.
            waiting(Code.PODS_STARTING, severity=Severity.DEBUG),
            WAIT_STAYS,
            START_STAYS - WAIT_STAYS,
            id="pods start",
        ),
        pytest.param(
            waiting(Code.ZONE_NOT_READY),
            WAIT_STAYS,
            START_STAYS - WAIT_STAYS,
            id="the last pod of a zone starts",
        ),
        pytest.param(
            waiting(severity=Severity.DEBUG), WAIT_STAYS, None, id="no person has to know of it"
        ),
        pytest.param(Plan(group=GroupName("g")), WAIT_STAYS, None, id="it waits for nothing"),
    ],
)
def test_a_wait_is_worth_an_event_once_it_stays(
    plan: Plan, stood_for: timedelta, wait: timedelta | None
) -> None:
    assert next_wait_report(NEW, plan, stood_for) == wait


def test_a_wait_is_reported_once_until_another_one_leads() -> None:
    reported, events = choose_wait_events(NEW, waiting(), [sts("a"), sts("b")])
    assert outline((reported, events)) == ["zone-a Paused: zone-a waits"]
    assert next_wait_report(reported, waiting(), WAIT_STAYS) is None
    assert record_waits(reported, waiting(text="other numbers")) == reported
    again = record_waits(reported, waiting(Code.BUDGET_USED))
    assert next_wait_report(again, waiting(), WAIT_STAYS) == timedelta(0)


def test_a_wait_of_the_group_stands_at_its_zones() -> None:
    members: list[StatefulSet | Unreadable] = [unreadable("StatefulSet", "zone-z"), sts("a")]
    members += [sts(f"m{number}") for number in range(20)]
    _, events = choose_wait_events(NEW, waiting(zone=""), members)
    assert len(events) == MOST_ZONES
    assert events[0].regarding.name == "zone-a"
    assert {one.note for one in events} == {"all waits"}
    _, events = choose_wait_events(NEW, waiting(zone="zone-z"), members)
    assert [one.regarding.uid for one in events] == ["uid-of-zone-z"]
    _, events = choose_wait_events(NEW, waiting(Code.ZONE_LEFT_SHORT, zone="zone-x"), [sts("a")])
    assert outline((NEW, events)) == ["zone-a ZoneLeftShort: zone-x waits"]


def test_a_count_is_reported_with_from_to_and_why() -> None:
    (action,) = plan_scaling(read_snapshot("a 5; b 3 follows=a label=12h")).scale
    event = render_scaled(action)
    assert (event.regarding.name, event.reason, event.note) == (
        "zone-b",
        "ScaleUp",
        action.reason.text,
    )
    assert "3" in event.note
    assert "5" in event.note


def refused(code: Code = Code.NO_DOWNSCALE) -> Verdict:
    return Verdict(is_allowed=False, reason=Reason(code, "not allowed", Severity.WARN))


def test_a_refused_downscale_names_the_requester() -> None:
    event = render_refused_downscale(sts("a"), refused(), "alice")
    assert (event.reason, event.note) == ("NoDownscale", "not allowed; requested by alice")
    assert event.severity is Severity.WARN
    assert render_refused_downscale(sts("a"), refused(), "").note == "not allowed"


def test_a_held_pod_is_reported() -> None:
    event = render_held(pod("a", 0), refused(Code.DISRUPTION_BUDGET_USED))
    assert event.regarding.kind is EventKind.POD
    assert (event.reason, event.action) == ("DisruptionBudgetUsed", EventAction.REFUSE_EVICTION)


@pytest.mark.parametrize("code", [Code.NOT_ELECTED, Code.STOPPING])
def test_what_only_the_process_has_to_do_with_is_not_shown(code: Code) -> None:
    assert not is_reported(refused(code))
    assert is_reported(refused())


GOOD = Budget(namespace="test", name="zpdb", uid=Uid("u"), resource_version="1")
BAD = FlawedBudget(namespace="test", name="zpdb", uid=Uid("u"), resource_version="2", problem="no")
BROKEN = unreadable("ZoneAwarePodDisruptionBudget", "zpdb")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(None, GOOD, None, id="a good one"),
        pytest.param(None, BAD, "BudgetInvalid: no", id="a bad one"),
        pytest.param(GOOD, BAD, "BudgetInvalid: no", id="it turns bad"),
        pytest.param(BAD, BAD, None, id="it stays bad"),
        pytest.param(BAD, GOOD, "BudgetValid: zpdb is obeyed again", id="it is mended"),
        pytest.param(BAD, None, None, id="it is gone"),
        pytest.param(None, BROKEN, f"BudgetInvalid: {BROKEN.error}", id="it cannot be read"),
    ],
)
def test_a_budget_is_reported_where_it_turns(
    old: Budget | FlawedBudget | None, new: Budget | FlawedBudget | None, message: str | None
) -> None:
    event = choose_budget_event(old, new)
    assert (None if event is None else f"{event.reason}: {event.note}") == message
