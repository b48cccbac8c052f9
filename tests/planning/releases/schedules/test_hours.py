"""When a schedule of releases is active, and when that changes next, over changes of clocks too."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.releases.model.decode import decode_schedule
from rollout_operator.releases.model.releases import (
    KUBERIK,
    OURS,
    SCHEDULE,
    WEEKDAYS,
    DateRange,
    MinuteRange,
    ReleaseSchedule,
    ScheduleAction,
    ScheduleRule,
    ScheduleState,
)
from rollout_operator.releases.planning.schedules import (
    HORIZON,
    evaluate_schedule,
    get_time_zone,
    is_gate_passing,
    is_open,
)
from tests.examples import repeatable
from tests.model.decode.releases.trees import as_json
from tests.planning.releases.schedules.schedule_stage import ScheduleStage
from tests.stories import check_stories, check_tables

Rule = Mapping[str, Any]
NEW_YORK: Final = "America/New_York"
MINUTE: Final = timedelta(minutes=1)
WORKDAYS: Final = list(WEEKDAYS[:5])


def schedule(*rules: Rule, **fields: str) -> ReleaseSchedule:
    spec = {"rolloutSelector": {}, "rules": rules, **fields}
    found = decode_schedule(SCHEDULE, as_json(spec)).schedule
    assert found is not None
    return found


def hours(text: str, *days: str, name: str = "", dates: str = "") -> Rule:
    """Return a rule: `hours("22:00-06:00", "Friday")`; nothing stands for no restriction."""
    start, _, end = text.partition("-")
    first, _, last = dates.partition("..")
    return {
        **({"name": name} if name else {}),
        **({"timeRange": {"start": start, "end": end}} if text else {}),
        **({"daysOfWeek": days} if days else {}),
        **({"dateRange": {"start": first, "end": last}} if dates else {}),
    }


def at(text: str) -> datetime:
    """Return an instant: `at("2025-03-09 13:30")` in UTC."""
    return datetime.fromisoformat(f"{text}+00:00")


def _read_rule(text: str) -> Rule:
    """Return the rule of a line such as `22:00-06:00 Friday 2025-01-03..2025-01-03 name=x`."""
    words = text.replace("Workdays", " ".join(WORKDAYS)).split()
    name = "".join(word[5:] for word in words if word.startswith("name="))
    times = "".join(word for word in words if ":" in word)
    dates = "".join(word for word in words if ".." in word)
    return hours(times, *(word for word in words if word in WEEKDAYS), name=name, dates=dates)


def show_state(case: str) -> str:
    written, _, when = case.partition(" at ")
    now, _, zone = when.removesuffix(" as kuberik").partition(" in ")
    read = schedule(*map(_read_rule, written.split(", ")))
    compat = KUBERIK if when.endswith(" as kuberik") else OURS
    state = evaluate_schedule(read, ZoneInfo(zone or "UTC"), at(now), compat)
    then = state.next_transition
    assert then is None or then.utcoffset() == timedelta(0)
    assert then is None or (then.second, then.microsecond) == (0, 0)
    until = "and stays so" if then is None else f"until {then:%Y-%m-%d %H:%M}"
    rules = f" by {' '.join(state.active_rules)}" if state.active_rules else ""
    return f"{'open' if state.is_active else 'closed'}{rules} {until}"


test_when_it_is_open_and_until_when = check_tables(__file__, "tables", hours=show_state)


test_story = check_stories(__file__, gates=ScheduleStage, holds=ScheduleStage)


def test_the_value_of_a_gate() -> None:
    """RT-113, REL-97: what is unknown denies."""
    passing = {"Allow": (True, False), "Deny": (False, True)}
    for action in ("Allow", "Deny", "deny", "Perhaps", ""):
        found: ScheduleAction = schedule({}, action=action).action
        states = [ScheduleState(is_active=is_active) for is_active in (True, False)]
        values = tuple(is_gate_passing(found, state) for state in states)
        assert values == passing.get(action, passing["Deny"])


def is_active_by_definition(schedule: ReleaseSchedule, zone: ZoneInfo, now: datetime) -> bool:
    """Say it in the words of the rules: of each the window of today, and that of yesterday."""
    wall = now.astimezone(zone).replace(tzinfo=None)
    for rule in schedule.rules:
        for day in (wall.date(), wall.date() - timedelta(days=1)):
            midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 a wall clock
            begin, end = midnight, midnight + timedelta(days=1)
            if rule.times is not None and rule.times.start != rule.times.end:
                begin = midnight + rule.times.start * MINUTE
                end = midnight + rule.times.end * MINUTE
                end += timedelta(days=1) if end < begin else timedelta(0)
            in_days = not rule.weekdays or day.weekday() in rule.weekdays
            in_dates = rule.dates is None or rule.dates.first <= day <= rule.dates.last
            if in_days and in_dates and begin <= wall < end:
                return True
    return False


# The day before clocks are changed, or a day is left out.
CHANGES: Final = (
    (NEW_YORK, "2025-03-08 12:00"),
    (NEW_YORK, "2025-11-01 12:00"),
    ("America/Havana", "2025-03-08 12:00"),
    ("America/Havana", "2025-11-01 12:00"),
    ("Australia/Lord_Howe", "2025-04-05 00:00"),
    ("Australia/Lord_Howe", "2025-10-04 00:00"),
    ("Pacific/Apia", "2011-12-29 12:00"),
)
MINUTES: Final = st.one_of(
    st.sampled_from([0, 30, 60, 90, 105, 120, 150, 180, 1380, 1410]), st.integers(0, 1439)
)
DATES: Final = st.builds(
    lambda first, days: DateRange(first, first + timedelta(days=days)),
    st.sampled_from([date(2025, 3, 9), date(2025, 11, 1), date(2011, 12, 30), date(2025, 10, 5)]),
    st.integers(0, 2),
)
RULES: Final = st.builds(
    ScheduleRule,
    times=st.none() | st.builds(MinuteRange, MINUTES, MINUTES),
    weekdays=st.frozensets(st.integers(0, 6), max_size=6),
    dates=st.none() | DATES,
)


@given(
    rules=st.lists(RULES, min_size=1, max_size=3),
    change=st.sampled_from(CHANGES),
    minutes=st.integers(0, 1440),
)
@repeatable(60)
def test_no_minute_is_otherwise_than_the_rules_say(
    rules: list[ScheduleRule], change: tuple[str, str], minutes: int
) -> None:
    """RELB-31 (a) to (c): every minute until the next transition, and that one, by definition."""
    zone, begin = ZoneInfo(change[0]), at(change[1]) + minutes * MINUTE
    one = ReleaseSchedule(rules=tuple(rules))
    state = evaluate_schedule(one, zone, begin)
    then = state.next_transition

    assert then is None or begin < then <= begin + HORIZON
    assert state.is_active is is_active_by_definition(one, zone, begin)
    assert is_open(one, zone, begin) is is_gate_passing(one.action, state)
    last = begin + timedelta(days=2)
    minute = begin
    while minute <= last and (then is None or minute < then):
        assert is_active_by_definition(one, zone, minute) is state.is_active, minute
        minute += MINUTE
    assert then is None or is_active_by_definition(one, zone, then) is not state.is_active


def test_what_is_reported_does_not_hang_on_the_zone_in_which_now_is_given() -> None:
    rules = schedule(hours("01:15-01:45"))
    now = at("2025-11-02 06:20")
    elsewhere = now.astimezone(ZoneInfo("Asia/Tokyo"))
    found = evaluate_schedule(rules, ZoneInfo(NEW_YORK), elsewhere)

    assert found == evaluate_schedule(rules, ZoneInfo(NEW_YORK), now)
    assert found.next_transition is not None
    assert found.next_transition.utcoffset() == timedelta(0)


def test_each_zone_of_the_database_has_a_name_that_is_searched() -> None:
    """REL-91: also in the copies that some systems keep."""
    for name in sorted(available_timezones() - {"localtime", "posixrules"}):
        for copy in (name, f"posix/{name}", f"right/{name}"):
            assert get_time_zone(copy, lambda _: UTC) is UTC
