"""The time between downscales of two zones of a group: how long it is, and whether it has passed.

One function for the webhook and for every controller (D-22). All times are the API server's.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import LAST_DOWNSCALE, MIN_TIME_BETWEEN_DOWNSCALES, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code
from rollout_operator.model.tracker import TimesSource
from rollout_operator.model.units import (
    format_duration,
    format_go_time,
    format_next_second,
    format_rfc3339,
    parse_duration,
    parse_rfc3339,
)

_SECOND: Final = timedelta(seconds=1)

# As all releases word it: people look for these texts.
BROKEN_TIMES: Final = {
    TimesSource.ANNOTATIONS: "parsing downscale annotations failed.",
    TimesSource.TRACKER: "parsing parsing downscale timestamps from the zone ConfigMap failed.",
}


class Blocker(msgspec.Struct, frozen=True):
    """Why a zone may not lose pods now."""

    code: Code
    why: str
    """The words after `is not allowed because`."""
    status: int = 0
    """HTTP, 0 for the API server's own choice."""


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale of another zone that was too short a time ago."""

    sts: StatefulSet
    last: datetime
    wait: timedelta
    left: timedelta
    """More than zero."""


class BadTime(msgspec.Struct, frozen=True, kw_only=True):
    """A time or a span that cannot be read."""

    sts: StatefulSet
    why: str
    """Names key and value."""


def find_recent_downscale(
    scaled: StatefulSet,
    others: Iterable[StatefulSet],
    remembered: Mapping[Uid, datetime],
    now: datetime,
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> Blocker | None:
    """Return why one zone may not be scaled down yet, None where it may.

    The wait is the longest that any zone wants, the scaled zone included. `remembered`
    holds downscales that annotations may not show yet, and all there are where `source` is the zone
    tracker. A time that cannot be read refuses, on any zone (PREP-12, PREP-15): it may be the time
    that forbids.
    """
    downscales = list_recent(scaled, others, remembered, now, source)
    if isinstance(downscales, BadTime):
        text = f"{BROKEN_TIMES[source]} statefulset {downscales.sts.name}: {downscales.why}"
        return Blocker(Code.BAD_DOWNSCALE_TIME, text)
    if not downscales:
        return None
    recent = downscales[0]
    return Blocker(
        Code.ZONE_DOWNSCALED_LATELY,
        f"statefulset {recent.sts.name} was downscaled at {format_go_time(recent.last)} and is"
        f" labelled to wait {format_duration(recent.wait)} between zone downscales"
        f"{hint_future(recent, now, source)}",
    )


def list_recent(
    scaled: StatefulSet,
    others: Iterable[StatefulSet],
    remembered: Mapping[Uid, datetime],
    now: datetime,
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> tuple[Recent, ...] | BadTime:
    """Return as data what `find_recent_downscale` words: all downscales that are too recent.

    They come in the order of `others`.
    """
    others = tuple(others)
    spans: list[timedelta] = []
    times: list[tuple[StatefulSet, datetime]] = []
    for other in (scaled, *others):
        try:
            spans.append(_read_span(other))
            # The own time of the zone that is scaled does not matter, nor does a broken one.
            last = None if other is scaled else _read_last(other, remembered, source)
        except InvalidInput as error:
            return BadTime(sts=other, why=str(error))
        if last is not None:
            times.append((other, last))
    wait = max(spans)
    return tuple(
        Recent(sts=time, last=last, wait=wait, left=wait - (now - last))
        for time, last in times
        if wait and now - last < wait
    )


def knows_downscale(
    others: Iterable[StatefulSet],
    remembered: Mapping[Uid, datetime],
    source: TimesSource = TimesSource.ANNOTATIONS,
) -> bool:
    """Return whether any of these zones has been scaled down, whenever that was."""
    has_times = source is TimesSource.ANNOTATIONS
    return any(
        other.uid in remembered or (has_times and LAST_DOWNSCALE in other.annotations)
        for other in others
    )


def hint_future(
    recent: Recent, now: datetime, source: TimesSource = TimesSource.ANNOTATIONS
) -> str:
    """Return what a person must mend where a time lies in the future, with its semicolon."""
    # More than the second by which times are rounded up.
    if recent.last - now <= timedelta(minutes=1):
        return ""
    is_tracked = source is TimesSource.TRACKER
    place = "entry in the zone ConfigMap" if is_tracked else f"annotation {LAST_DOWNSCALE}"
    return f"; that time lies in the future: see its {place}"


def format_downscale_time(now: datetime) -> str:
    """Return the text that records a downscale: whole seconds, never earlier than it was."""
    return format_next_second(now)


def format_left(left: timedelta) -> str:
    """Return how long something still takes, in whole seconds, never less than it does."""
    return format_duration(-(-left // _SECOND) * _SECOND)


def format_moment(time: datetime) -> str:
    """Return a time that another client wrote, in UTC wherever it has a place there."""
    try:
        return format_rfc3339(time)
    except OverflowError:
        return format_go_time(time)


def _read_span(sts: StatefulSet) -> timedelta:
    """Return what one zone wants; its annotation wins over its label. Raises InvalidInput."""
    key = MIN_TIME_BETWEEN_DOWNSCALES
    kind = "annotation" if key in sts.annotations else "label"
    text = sts.annotations.get(key, sts.labels.get(key))
    if text is None:
        return timedelta(0)
    try:
        return max(parse_duration(text), timedelta(0))
    except InvalidInput as error:
        raise InvalidInput(f"{kind} {key}: {error}") from error


def _read_last(
    sts: StatefulSet, remembered: Mapping[Uid, datetime], source: TimesSource
) -> datetime | None:
    text = sts.annotations.get(LAST_DOWNSCALE)
    recorded = remembered.get(sts.uid)
    if text is None or source is TimesSource.TRACKER:
        return recorded
    try:
        written = parse_rfc3339(text)
    except InvalidInput as error:
        raise InvalidInput(f"annotation {LAST_DOWNSCALE}: {error}") from error
    return written if recorded is None else max(written, recorded)
