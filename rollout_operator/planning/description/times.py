"""Times as people read them; those that others wrote, as far as a calendar has them."""

from datetime import UTC, datetime, timedelta

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import check_time


def render_time(time: datetime) -> str:
    """Return a time to the second, such as `2026-01-02T03:04:05Z`."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def choose_fit(time: datetime | None) -> datetime | None:
    """Return a time in UTC, None where it has no place there, or no room for what is added."""
    try:
        return None if time is None else check_time(time).astimezone(UTC)
    except InvalidInput:
        return None


def add_span(time: datetime | None, span: timedelta | None) -> datetime | None:
    """Return a time to come; None without either, or where no calendar has it."""
    try:
        return None if time is None or span is None else choose_fit(time + span)
    except OverflowError:
        return None
