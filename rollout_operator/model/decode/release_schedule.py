"""JSON of the spec of a RolloutSchedule, also of the cluster's kind → `ReleaseSchedule`.

Decides what an absent field means and what is refused: what the schema of the kinds refuses, dates
that no calendar has, and ranges that end before they begin (RELB-31). An absent field, null and an
empty list are the same.
"""

import re
from datetime import date
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.wire import JsonBytes, Wire
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.schedule import (
    WEEKDAYS,
    DateRange,
    MinuteRange,
    ReleaseSchedule,
    ScheduleAction,
    ScheduleRule,
)
from rollout_operator.model.units import quote

# Each rule is asked for each of 400 days: a tenant's object must not stop the process meanwhile.
MOST_RULES: Final = 256

# `[0-9]`, and not `\d`: digits of other scripts are none of the schema's.
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class _Range(Wire):
    start: str
    end: str


class _Rule(Wire):
    name: str | None = None
    time_range: _Range | None = None
    days_of_week: list[str] | None = None
    date_range: _Range | None = None


class _Spec(Wire):
    rules: Annotated[list[_Rule], Meta(min_length=1, max_length=MOST_RULES)]
    timezone: str | None = None
    action: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Spec)


def decode_release_schedule(spec: JsonBytes) -> ReleaseSchedule:
    """Return what a spec says of time. Raises InvalidInput, which names field and value."""
    try:
        wire = _DECODER.decode(spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what, _, where = str(error).partition(" - at `$")
        raise InvalidInput(f"spec{where.rstrip('`')}: {what[:1].lower()}{what[1:]}") from error
    return ReleaseSchedule(
        rules=tuple(
            _convert_rule(rule, f"spec.rules[{place}]") for place, rule in enumerate(wire.rules)
        ),
        time_zone=wire.timezone or "UTC",
        # What is unknown denies, as in the original (REL-97).
        action=ScheduleAction.ALLOW if wire.action == "Allow" else ScheduleAction.DENY,
    )


def _convert_rule(rule: _Rule, path: str) -> ScheduleRule:
    times, dates = rule.time_range, rule.date_range
    return ScheduleRule(
        name=rule.name or "",
        times=None if times is None else _convert_times(times, f"{path}.timeRange"),
        weekdays=frozenset(
            _parse_weekday(day, f"{path}.daysOfWeek[{place}]")
            for place, day in enumerate(rule.days_of_week or ())
        ),
        dates=None if dates is None else _convert_dates(dates, f"{path}.dateRange"),
    )


def _convert_times(times: _Range, path: str) -> MinuteRange:
    return MinuteRange(
        _parse_time(times.start, f"{path}.start"), _parse_time(times.end, f"{path}.end")
    )


def _convert_dates(dates: _Range, path: str) -> DateRange:
    first = _parse_date(dates.start, f"{path}.start")
    last = _parse_date(dates.end, f"{path}.end")
    if last < first:
        raise InvalidInput(f"{path}.end: {last} is before the start, {first}")
    return DateRange(first, last)


def _parse_time(text: str, path: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{path}: {quote(text)} is no time from 00:00 to 23:59")
    return int(found[1]) * 60 + int(found[2])


def _parse_date(text: str, path: str) -> date:
    if not _DATE.fullmatch(text):
        raise InvalidInput(f"{path}: {quote(text)} is no date such as 2025-12-24")
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{path}: no calendar has {quote(text)}") from error


def _parse_weekday(text: str, path: str) -> int:
    if text not in WEEKDAYS:
        raise InvalidInput(f"{path}: {quote(text)} is none of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(text)
