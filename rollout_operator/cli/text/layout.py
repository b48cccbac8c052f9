"""How texts and reasons stand on a terminal: columns, labels, spans of time."""

import textwrap
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.lab.lines import Line, Style
from rollout_operator.model.condition import ConditionDescription
from rollout_operator.model.description import Waiting
from rollout_operator.planning.wording import one_line

LABEL_WIDTH: Final = 8


class StatusLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How much is shown, and in how many columns."""

    width: int
    is_wide: bool = False
    """Revisions, limits and each pod that is not ready as well."""
    is_terse: bool = False
    """For a terminal with few rows: groups that are done stand in one line."""


def render_age(span: timedelta) -> str:
    """Return a span as people say it: `42s`, `3m12s`, `2h5m`, `4d3h`."""
    seconds = max(int(span.total_seconds()), 0)
    for size, unit, below, lower in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // below}{lower}"
    return f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"


def draw_head(title: Line, numbers: str, layout: StatusLayout) -> Iterator[Line]:
    """Yield a title with its numbers, in a line of their own where both have no room in one."""
    width = sum(len(text) for text, _ in title) + len(numbers)
    if width <= layout.width:
        yield (*title, (numbers, Style.PLAIN))
    else:
        yield title
        yield ((numbers, Style.PLAIN),)


def draw_waits(label: str, waits: Iterable[Waiting], layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines of reasons, each with what a person can do."""
    for wait in waits:
        yield from draw_labelled(label, f"{wait.text} [{wait.code}]", layout)
        if wait.remedy:
            yield from wrap_text(wait.remedy, layout, indent=LABEL_WIDTH + 2, style=Style.FAINT)


def draw_conditions(
    conditions: Iterable[ConditionDescription],
    layout: StatusLayout,
    shown: Iterable[str] = (),
) -> Iterator[Line]:
    """Yield the lines of the conditions of a status; a sentence that repeats is left out."""
    seen = {"", *shown}
    for condition in conditions:
        message = "" if condition.message in seen else f": {condition.message}"
        seen.add(condition.message)
        text = f"{condition.type} is {condition.is_true}, {condition.reason}{message}"
        yield from wrap_text(text, layout, indent=2, style=Style.FAINT)


def draw_labelled(label: str, text: str, layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines of a text after a label."""
    first, *more = wrap_text(text, layout, indent=LABEL_WIDTH)
    (shown, style), *_ = first
    yield ((f"  {label:{LABEL_WIDTH - 2}}", Style.BOLD), (shown[LABEL_WIDTH:], style))
    yield from more


def wrap_text(
    text: str, layout: StatusLayout, *, indent: int = 0, style: Style = Style.PLAIN
) -> Iterator[Line]:
    """Yield the lines of a text, at least one."""
    pad = " " * indent
    lines = textwrap.wrap(
        one_line(text),
        max(layout.width - 1, 20),
        initial_indent=pad,
        subsequent_indent=pad,
        break_on_hyphens=False,
    )
    for line in lines or [pad]:
        yield ((line, style),)
