"""A forecast as text: for each Rollout a table of versions, when each comes, and what holds it."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import zip_longest
from typing import Final
from zoneinfo import ZoneInfo

from rollout_operator.model.description import (
    Arrival,
    Forecast,
    HoldForecast,
    HoldingGate,
    RolloutForecast,
    VersionForecast,
)
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.releases import BakeStatus
from rollout_operator.model.units import format_duration
from rollout_operator.planning.schedules import get_time_zone
from rollout_operator.planning.text import render_time
from rollout_operator.planning.wording import wrap_words

_INDENT: Final = "  "
_HEADS: Final = ("VERSION", "WHEN", "UNTIL THEN")
_LONGEST_TAG: Final = 24
_TIME: Final = 30
_GAP: Final = 2
_ACTIVE: Final = frozenset({BakeStatus.DEPLOYING, BakeStatus.IN_PROGRESS})


def render_forecast(forecast: Forecast, width: int) -> Iterator[str]:
    """Yield the lines."""
    span = _render_span(forecast.ends - forecast.begins)
    begins = render_time(forecast.begins)
    yield from wrap_words(
        f"Nothing is sent anywhere: this is what the operator would decide from {begins} on,"
        f" within {span}.",
        width,
    )
    for rollout in forecast.rollouts:
        yield ""
        yield from _render_rollout(rollout, span, width)
    for title, sentences in (
        ("Not obeyed, or not read:", forecast.problems),
        ("Taken for granted:", forecast.assumptions),
    ):
        if sentences:
            yield ""
            yield title
        for sentence in sentences:
            yield from wrap_words(f"{_INDENT}{sentence}", width, _INDENT * 2)


def _render_rollout(rollout: RolloutForecast, span: str, width: int) -> Iterator[str]:
    place = f"Rollout {rollout.namespace}/{rollout.name}"
    yield f"{place}: {f'{rollout.tag} is deployed' if rollout.tag else 'nothing is deployed'}"
    longest = max(len(_HEADS[0]), *(len(version.tag) for version in rollout.versions))
    columns = (min(longest, _LONGEST_TAG), _TIME)
    left = width - len(_INDENT) - sum(columns) - 2 * _GAP
    yield _join(_HEADS, columns)
    for version in rollout.versions:
        zone = _load(version.time_zone)
        cells = (
            textwrap.wrap(version.tag or "-", columns[0]),
            list(_render_when(version, span, zone)),
            [
                line
                for sentence in _explain(version, zone)
                for line in wrap_words(sentence, left, _INDENT)
            ],
        )
        for row in zip_longest(*cells, fillvalue=""):
            yield _join(row, columns)


def _join(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    parts = [cell.ljust(width + _GAP) for cell, width in zip(cells, widths, strict=False)]
    return f"{_INDENT}{''.join(parts)}{cells[-1]}".rstrip()


def _render_when(version: VersionForecast, span: str, zone: tzinfo) -> Iterator[str]:
    match version.verdict:
        case Arrival.DEPLOYED if version.at is not None:
            yield _show(version.at, zone)
            yield version.time_zone
        case Arrival.LATER:
            yield f"never within {span}"
        case Arrival.PERSON:
            yield "never without a person"
        case _:
            yield "no candidate"


def _explain(version: VersionForecast, zone: tzinfo) -> Iterator[str]:
    for hold in version.holds:
        yield from _render_hold(hold, version.verdict, zone)
    if version.holds_left_out:
        yield f"and {version.holds_left_out} more, in turns"
    if version.verdict is not Arrival.DEPLOYED:
        return
    if not version.holds:
        yield "nothing holds it"
    if version.bake in _ACTIVE:
        yield f"not through its bake then: {version.bake_text} [{version.bake}]"
    elif version.bake:
        ends = f" {_show(version.bake_ends, zone)}" if version.bake_ends else ""
        yield f"then{ends}: {version.bake_text} [{version.bake}]"


def _render_hold(hold: HoldForecast, verdict: Arrival, zone: tzinfo) -> Iterator[str]:
    until = "" if hold.until is None else f"until {_show(hold.until, zone)}: "
    yield f"{until}{hold.text} [{hold.reason}]"
    for gate in hold.gates:
        yield f"{_INDENT}{gate.name}: {_explain_gate(gate, hold, zone)}"
    if hold.remedy and verdict is Arrival.PERSON and hold.until is None:
        yield f"{_INDENT}what helps: {hold.remedy}"


def _explain_gate(gate: HoldingGate, hold: HoldForecast, zone: tzinfo) -> str:
    if not gate.schedule:
        return f"{gate.text}; no schedule keeps it, so it stays until a person acts"
    if hold.until is not None and gate.opens is not None:
        return f"{gate.schedule} opens it"
    opens = "never" if gate.opens is None else _show(gate.opens, zone)
    return f"{gate.text}; {gate.schedule} opens it: {opens}"


def _show(moment: datetime, zone: tzinfo) -> str:
    """Return a time on the wall clock of a zone, such as `Mon 2026-11-23 06:00:00 +01:00`."""
    local = moment.astimezone(zone).isoformat(sep=" ", timespec="seconds")
    return f"{moment.astimezone(zone):%a} {local[:19]} {local[19:]}"


def _render_span(span: timedelta) -> str:
    """Return days where there are only such, as people say it."""
    days = span // timedelta(days=1)
    return f"{days}d" if span == timedelta(days=days) else format_duration(span)


def _load(name: str) -> tzinfo:
    try:
        return get_time_zone(name, ZoneInfo)
    except InvalidInput:
        return UTC
