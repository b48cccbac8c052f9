"""The time between downscales of two zones of a group: how long it is, and whether it has passed.

One function for the webhook and for every controller (D-22). All times are the API server's.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import LAST_DOWNSCALE, MIN_TIME_BETWEEN_DOWNSCALES, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code
from rollout_operator.model.units import (
    format_duration,
    format_go_time,
    format_rfc3339,
    parse_duration,
    parse_rfc3339,
)

Refusal = tuple[Code, str]
"""Why a downscale must wait: the code, and the words after `is not allowed because`."""


def find_recent_downscale(
    scaled: StatefulSet,
    others: Iterable[StatefulSet],
    remembered: Mapping[Uid, datetime],
    now: datetime,
) -> Refusal | None:
    """Return why one zone may not be scaled down yet, None where it may.

    The wait is the longest that any zone asks for, the one that is scaled included. `remembered`
    holds downscales that annotations may not show yet. A time that cannot be read refuses, whoever
    has it (PREP-12, PREP-15): it may be the one that forbids.
    """
    others = tuple(others)
    spans: list[timedelta] = []
    times: list[tuple[StatefulSet, datetime]] = []
    for one in (scaled, *others):
        try:
            spans.append(_read_span(one))
            # The own time of the zone that is scaled does not matter, nor does a broken one.
            last = None if one is scaled else _read_last(one, remembered)
        except InvalidInput as error:
            text = f"parsing downscale annotations failed. statefulset {one.name}: {error}"
            return Code.BAD_DOWNSCALE_TIME, text
        if last is not None:
            times.append((one, last))
    wait = max(spans)
    for one, last in times:
        if wait and now - last < wait:
            return Code.ZONE_DOWNSCALED_LATELY, _word_wait(one, last, wait, now)
    return None


def format_downscale_time(now: datetime) -> str:
    """Return the text that records a downscale: whole seconds, never earlier than it was."""
    whole = now.replace(microsecond=0)
    return format_rfc3339(whole if whole == now else whole + timedelta(seconds=1))


def _read_span(sts: StatefulSet) -> timedelta:
    """Return what one zone asks for; its annotation wins over its label. Raises InvalidInput."""
    key = MIN_TIME_BETWEEN_DOWNSCALES
    kind = "annotation" if key in sts.annotations else "label"
    text = sts.annotations.get(key, sts.labels.get(key))
    if text is None:
        return timedelta(0)
    try:
        return max(parse_duration(text), timedelta(0))
    except InvalidInput as error:
        raise InvalidInput(f"{kind} {key}: {error}") from error


def _read_last(sts: StatefulSet, remembered: Mapping[Uid, datetime]) -> datetime | None:
    text = sts.annotations.get(LAST_DOWNSCALE)
    known = remembered.get(sts.uid)
    if text is None:
        return known
    try:
        written = parse_rfc3339(text)
    except InvalidInput as error:
        raise InvalidInput(f"annotation {LAST_DOWNSCALE}: {error}") from error
    return written if known is None else max(written, known)


def _word_wait(sts: StatefulSet, last: datetime, wait: timedelta, now: datetime) -> str:
    text = (
        f"statefulset {sts.name} was downscaled at {format_go_time(last)} and is labelled to wait"
        f" {format_duration(wait)} between zone downscales"
    )
    # More than the second by which times are rounded up: a person has to mend it.
    if last - now > timedelta(minutes=1):
        text += f"; that time lies in the future: see its annotation {LAST_DOWNSCALE}"
    return text
