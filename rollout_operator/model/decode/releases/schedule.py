"""JSON of a RolloutSchedule, also of the cluster's kind → `ScheduleObject`.

Decides what an absent field means and what is refused: what the schema of the kinds refuses, dates
that no calendar has, and ranges that end before they begin (RELB-31). An absent field, null and an
empty list are the same.
"""

import re
from datetime import date
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.broken import split_problem
from rollout_operator.model.decode.installation import WireSelector
from rollout_operator.model.decode.releases.head import parse_selector, read_body, read_head
from rollout_operator.model.decode.wire import JsonBytes, Wire
from rollout_operator.model.errors import DecodeError, InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import GATE_DESCRIPTION, PRETTY_NAME
from rollout_operator.model.releases.schedule import (
    WEEKDAYS,
    DateRange,
    MinuteRange,
    ReleaseSchedule,
    ScheduleAction,
    ScheduleObject,
    ScheduleRule,
    ScheduleStatus,
)
from rollout_operator.model.units import quote

# Each rule is evaluated for each of 400 days: a tenant's object must not stop the process
# meanwhile.
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


class _Selectors(Wire):
    rollout_selector: WireSelector
    namespace_selector: WireSelector | None = None


class _WithSelectors(Wire):
    spec: _Selectors


class _WithSpec(Wire):
    spec: msgspec.Raw


class _WithStatus(Wire):
    status: ScheduleStatus | None = None


_DECODER: Final = msgspec.json.Decoder(_Spec)
_SELECTORS: Final = msgspec.json.Decoder(_WithSelectors)
_SPEC: Final = msgspec.json.Decoder(_WithSpec)
_STATUS: Final = msgspec.json.Decoder(_WithStatus)


def decode_schedule(kind: str, raw: JsonBytes) -> ScheduleObject:
    """Return a schedule of `SCHEDULE` or `CLUSTER_SCHEDULE`; an invalid schedule says why.

    Raises DecodeError where its metadata cannot be read. A status that cannot be read is replaced:
    no gate depends on it.
    """
    read = read_head(kind, raw)
    decoded = ScheduleObject(
        kind=kind,
        head=read.head,
        pretty_name=read.annotation(PRETTY_NAME),
        description=read.annotation(GATE_DESCRIPTION),
        status=_read_status(kind, raw),
    )
    try:
        selectors = read_body(kind, raw, _SELECTORS).spec
        decoded = msgspec.structs.replace(
            decoded,
            rollouts=parse_selector(selectors.rollout_selector, "spec.rolloutSelector"),
            namespaces=_parse_namespaces(selectors.namespace_selector),
        )
        schedule = decode_release_schedule(read_body(kind, raw, _SPEC).spec)
    except DecodeError as error:
        return msgspec.structs.replace(decoded, problem=str(error))
    except InvalidInput as error:
        return msgspec.structs.replace(decoded, problem=f"{kind} {read.head.key}: {error}")
    return msgspec.structs.replace(decoded, schedule=schedule)


def _read_status(kind: str, raw: JsonBytes) -> ScheduleStatus:
    try:
        return read_body(kind, raw, _STATUS).status or ScheduleStatus()
    except DecodeError:
        return ScheduleStatus()


def _parse_namespaces(wire: WireSelector | None) -> LabelSelector | None:
    return None if wire is None else parse_selector(wire, "spec.namespaceSelector")


def decode_release_schedule(spec: JsonBytes) -> ReleaseSchedule:
    """Return what a spec says of time. Raises InvalidInput, which names field and value."""
    try:
        wire = _DECODER.decode(spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what, where = split_problem(error)
        raise InvalidInput(f"spec{where}: {what}") from error
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
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{path}: {quote(text)} is no time from 00:00 to 23:59")
    return int(match[1]) * 60 + int(match[2])


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
