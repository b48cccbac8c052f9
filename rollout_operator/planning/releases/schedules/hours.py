"""When a schedule of releases is active, and at which instant that changes next.

Rules speak of the wall clock of a time zone. Where clocks go forward, the hour that is left out
counts as passed; where they go back, the hour that comes twice counts twice. So a day is a set of
minutes on the wall clock, and an instant is active where its minute is in the set of its date.

The data of time zones are files, so that their reader comes as an argument. `localtime` and
`posixrules` are the zone of a machine: a schedule would mean another time on each. A reader may
look for each part of a name as for a folder, or import it: what the database would never call a
zone is not looked for.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.rollout import OURS, ReleaseCompat
from rollout_operator.model.releases.schedule import (
    MINUTES_OF_DAY,
    MinuteRange,
    ReleaseSchedule,
    ScheduleAction,
    ScheduleRule,
    ScheduleState,
)
from rollout_operator.model.units import quote

# More than a year, so that a date of next year is seen, and no more: what lies beyond is looked for
# again, since a schedule is looked at more often.
HORIZON: Final = timedelta(days=400)

_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_INSTANT: Final = timedelta(microseconds=1)
# Minutes of a day as bits, the first minute lowest.
_WHOLE_DAY: Final = (1 << MINUTES_OF_DAY) - 1

LoadZone = Callable[[str], tzinfo]
"""Returns the zone of a name, such as `zoneinfo.ZoneInfo`; raises OSError or ValueError."""

# The longest has 32 characters and three parts, and one more in the copies below `posix/`.
_LONGEST: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")
_OF_A_MACHINE: Final = frozenset({"local", "localtime", "posixrules"})


class _Pattern(msgspec.Struct, frozen=True):
    """The minutes that a rule has on a day of its own, and those that reach into the day after."""

    rule: ScheduleRule
    own: int
    carried: int

    def minutes_of(self, day: date) -> int:
        """Return the minutes of a local day in which the rule matches."""
        minutes = self.own if _owns(self.rule, day) else 0
        if self.carried and _owns(self.rule, day - _DAY):
            minutes |= self.carried
        return minutes


def evaluate_schedule(
    schedule: ReleaseSchedule, zone: tzinfo, now: datetime, compat: ReleaseCompat = OURS
) -> ScheduleState:
    """Return what a schedule says now (REL-91 to 95, RELB-31)."""
    patterns = tuple(_make_pattern(rule, compat) for rule in schedule.rules)
    matching = [pattern.rule.name for pattern in _list_matching(patterns, zone, now)]
    return ScheduleState(
        is_active=bool(matching),
        active_rules=tuple(name for name in matching if name),
        next_transition=_next_transition(patterns, zone, now, is_active=bool(matching)),
    )


def is_open(
    schedule: ReleaseSchedule, zone: tzinfo, now: datetime, compat: ReleaseCompat = OURS
) -> bool:
    """Return whether a schedule lets versions through now, without what comes after (REL-97)."""
    patterns = (_make_pattern(rule, compat) for rule in schedule.rules)
    is_active = any(_list_matching(patterns, zone, now))
    return is_gate_passing(schedule.action, ScheduleState(is_active=is_active))


def is_gate_passing(action: ScheduleAction, state: ScheduleState) -> bool:
    """Return whether the gates of a schedule let versions through (REL-97)."""
    return state.is_active is (action is ScheduleAction.ALLOW)


def _list_matching(patterns: Iterable[_Pattern], zone: tzinfo, now: datetime) -> Iterator[_Pattern]:
    wall = now.astimezone(zone)
    bit = 1 << (wall.hour * 60 + wall.minute)
    return (pattern for pattern in patterns if pattern.minutes_of(wall.date()) & bit)


def _make_pattern(rule: ScheduleRule, compat: ReleaseCompat) -> _Pattern:
    times = rule.times
    if times is None or times.start == times.end:
        return _Pattern(rule, _WHOLE_DAY, 0)
    if times.start < times.end:
        return _Pattern(rule, _minutes(times), 0)
    evening = _minutes(MinuteRange(times.start, MINUTES_OF_DAY))
    morning = _minutes(MinuteRange(0, times.end))
    if compat.windows_keep_their_day:
        return _Pattern(rule, evening, morning)
    return _Pattern(rule, evening | morning, 0)


def _minutes(times: MinuteRange) -> int:
    return (1 << times.end) - (1 << times.start)


def _owns(rule: ScheduleRule, day: date) -> bool:
    if rule.weekdays and day.weekday() not in rule.weekdays:
        return False
    return rule.dates is None or rule.dates.first <= day <= rule.dates.last


def _next_transition(
    patterns: Sequence[_Pattern], zone: tzinfo, now: datetime, *, is_active: bool
) -> datetime | None:
    """Return the first instant at which the rules together say otherwise (RELB-31 (c) and (d)).

    Each step goes to the end of a local day, or to the moment at which clocks are changed in it:
    between these, wall clock and time run alike.
    """
    instant = now.astimezone(UTC)
    end = instant + HORIZON
    while instant <= end:
        wall = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        midnight = datetime.combine(wall.date(), time())
        step_end = _next_clock_change(zone, instant, instant + (midnight + _DAY - wall))
        others = _union(patterns, wall.date()) ^ (_WHOLE_DAY if is_active else 0)
        minute = _find_bit(others, (wall - midnight) // _MINUTE)
        if minute is not None:
            change = instant + max(midnight + minute * _MINUTE - wall, timedelta(0))
            if change < step_end:
                return change if change <= end else None
        instant = step_end
    return None


def _union(patterns: Iterable[_Pattern], day: date) -> int:
    minutes = 0
    for pattern in patterns:
        minutes |= pattern.minutes_of(day)
    return minutes


def _find_bit(bits: int, first: int) -> int | None:
    """Return the lowest bit that is set, from `first` on."""
    bits = bits >> first << first
    return (bits & -bits).bit_length() - 1 if bits else None


def _next_clock_change(zone: tzinfo, begin: datetime, end: datetime) -> datetime:
    """Return the instant after `begin` at which clocks are changed, `end` where they are not.

    Of no zone clocks are changed forth and back within a day, which would go unseen.
    """
    before = begin.astimezone(zone).utcoffset()
    if end.astimezone(zone).utcoffset() == before:
        return end
    while end - begin > _INSTANT:
        middle = begin + (end - begin) // 2
        if middle.astimezone(zone).utcoffset() == before:
            begin = middle
        else:
            end = middle
    return end


def get_time_zone(name: str, load: LoadZone) -> tzinfo:
    """Return the zone that a schedule names. Raises InvalidInput, which names field and value."""
    if name.lower() in _OF_A_MACHINE:
        raise InvalidInput(f"spec.timezone: {quote(name)} is another time on each machine")
    problem = f"spec.timezone: no time zone is {quote(name)}"
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise InvalidInput(problem)
    try:
        return load(name)
    # `ZoneInfoNotFoundError` is a KeyError.
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(problem) from error
