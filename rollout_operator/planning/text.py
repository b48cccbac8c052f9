"""Cards as lines of styled text in columns, for terminals, pipes and `curl`.

Layout only: the sentences are those of `planning.cards`. The drawing functions are pure: the same
description gives the same lines.
"""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import msgspec

from rollout_operator.model.description import (
    ELECTION_PART,
    Description,
    NamespaceDescription,
    OperatorDescription,
    PodState,
    PolicyZoneDescription,
    ZoneDescription,
)
from rollout_operator.planning.cards import (
    Card,
    Form,
    Item,
    Moment,
    Tone,
    list_cards,
    render_progress,
)
from rollout_operator.planning.wording import count, one_line, printable, render_time

_LABEL_WIDTH: Final = 8
_LONGEST_NAME: Final = 40
_LONGEST_POLICY_NAME: Final = 24
# A row of pods is never narrower than this.
_LEAST_PODS: Final = 8
# Of a zone that is down as a whole a person reads no more.
_MOST_UNREADY: Final = 20
_COMPUTED: Final = "this is computed from the objects"
# Columns of numbers are aligned at the right.
_WIDTHS: Final = {"READY": 7, "UPDATED": 7}


class Style(StrEnum):
    """Graphic renditions; the eight colours that every terminal has."""

    PLAIN = ""
    BOLD = "1"
    FAINT = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    MAGENTA = "35"


Span: TypeAlias = tuple[str, Style]
Line: TypeAlias = tuple[Span, ...]
BLANK: Final[Line] = ()

_TONES: Final = {
    Tone.DONE: Style.GREEN,
    Tone.MOVING: Style.YELLOW,
    Tone.SCALING: Style.YELLOW,
    Tone.WAITING: Style.YELLOW,
    Tone.HELD: Style.RED,
}


class _Symbol(NamedTuple):
    """One character for the state of a pod."""

    mark: str
    meaning: str
    style: Style


# By the state of a pod, and whether it is at the update revision.
_SYMBOLS: Final = {
    (PodState.READY, True): _Symbol("#", "updated, ready", Style.GREEN),
    (PodState.READY, False): _Symbol("o", "outdated, ready", Style.PLAIN),
    **{
        (state, is_updated): symbol
        for state, symbol in (
            (PodState.STARTING, _Symbol("~", "starting", Style.YELLOW)),
            (PodState.NOT_READY, _Symbol("!", "not ready", Style.MAGENTA)),
            (PodState.GOING, _Symbol("x", "going", Style.RED)),
            (PodState.MISSING, _Symbol(".", "missing", Style.RED)),
            (PodState.UNREADABLE, _Symbol("?", "unreadable", Style.MAGENTA)),
        )
        for is_updated in (True, False)
    },
}


class StatusLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How much is shown, and in how many columns."""

    width: int
    is_wide: bool = False
    """Show revisions, limits and each pod that is not ready as well."""
    is_terse: bool = False
    """For a terminal with few rows: show objects that are done in one line."""
    is_dated: bool = False
    """Show times as dates: what is written down stays true."""


PLAIN_TEXT: Final = StatusLayout(width=100_000, is_wide=True, is_dated=True)
"""For `curl` and files: whole sentences."""


def render_description(description: Description) -> Iterator[str]:
    """Yield a description as plain text, without line feeds."""
    for line in draw_status(description, (), PLAIN_TEXT):
        yield render_line(line, PLAIN_TEXT.width, is_coloured=False).rstrip()


def draw_status(
    description: Description, remarks: Sequence[str], layout: StatusLayout
) -> Iterator[Line]:
    """Yield the lines about one namespace; `remarks` say what could not be read."""
    yield _title(description)
    yield from _draw_operator(description.operator, remarks, layout)
    for namespace in description.namespaces:
        yield from wrap_text(render_namespace(namespace), layout)
    for card in list_cards(description):
        if layout.is_wide or not card.is_detail:
            yield BLANK
            yield from draw_card(card, description.now, layout)
    if not layout.is_terse:
        yield from _draw_legend([zone for group in description.groups for zone in group.zones])


def draw_card(card: Card, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about a group, a policy or a release."""
    yield from _draw_head(card, now, layout)
    if layout.is_terse and card.tone is Tone.DONE:
        return
    headline = card.headline._replace(remedy="") if layout.is_terse else card.headline
    yield from _draw_item(headline, now, layout)
    yield from _draw_zones(card.zones, now, layout)
    yield from _draw_policy_zones(card.policy_zones, layout)
    if layout.is_terse:
        return
    for fact in card.facts:
        for item in fact.items:
            yield from _draw_item(item, now, layout)


def render_line(line: Line, width: int, *, is_coloured: bool) -> str:
    """Return a line as text, cut to `width` columns, with the escapes of tenants made harmless."""
    parts = []
    for text, style in line:
        shown = printable(text)[:width]
        width -= len(shown)
        is_styled = is_coloured and style and shown
        parts.append(f"\x1b[{style}m{shown}\x1b[0m" if is_styled else shown)
    return "".join(parts)


def render_age(span: timedelta) -> str:
    """Return a span as people say it: `42s`, `3m12s`, `2h5m`, `4d3h`."""
    seconds = max(int(span.total_seconds()), 0)
    for size, unit, below, lower in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // below}{lower}"
    return f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"


def wrap_text(
    text: str, layout: StatusLayout, *, indent: int = 0, style: Style = Style.PLAIN
) -> Iterator[Line]:
    """Yield the lines of a text, at least one."""
    pad, text, width = " " * indent, one_line(text), max(layout.width - 1, 20)
    lines = [f"{pad}{text}"]
    # Most texts fit, and wrapping takes a hundred times as long.
    if len(lines[0]) > width:
        lines = textwrap.wrap(
            text, width, initial_indent=pad, subsequent_indent=pad, break_on_hyphens=False
        )
    for line in lines:
        yield ((line, style),)


def render_namespace(namespace: NamespaceDescription) -> str:
    if namespace.is_ready:
        return f"namespace {namespace.name}: ready"
    return f"namespace {namespace.name}: not ready: {'; '.join(namespace.missing)}"


def _draw_head(card: Card, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    """Yield a title with its numbers, in a second line where they do not fit: no tag is cut."""
    head: Line = ((one_line(card.heading), Style.BOLD), ("  ", Style.PLAIN))
    head += ((one_line(card.phase), _TONES[card.tone]),)
    parts = [] if card.progress is None else render_progress(card.progress)
    if card.since is not None:
        parts.append(_render_moment(Moment(card.since, Form.FOR), now, layout))
    parts += [
        _render_text(figure, now, layout)
        for figure in card.figures
        if layout.is_wide or not figure.is_detail
    ]
    if layout.is_dated and card.looked is not None:
        parts.append(f"looked at {render_time(card.looked)}")
    numbers = one_line("".join(f"  {part}" for part in parts))
    if _measure(head) + len(numbers) <= layout.width:
        yield (*head, (numbers, Style.PLAIN))
    else:
        yield head
        yield from wrap_text(numbers.strip(), layout, indent=2)


def _draw_item(item: Item, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    text = _render_text(item, now, layout)
    if not text or (item.is_detail and not layout.is_wide):
        return
    if item.label:
        yield from _draw_labelled(item.label, text, layout)
    else:
        style = Style.FAINT if item.is_detail else Style.PLAIN
        yield from wrap_text(text, layout, indent=2, style=style)
    if item.remedy:
        indent = _LABEL_WIDTH + 2 if item.label else 4
        yield from wrap_text(item.remedy, layout, indent=indent, style=Style.FAINT)


def _draw_labelled(label: str, text: str, layout: StatusLayout) -> Iterator[Line]:
    first, *more = wrap_text(text, layout, indent=_LABEL_WIDTH)
    [(shown, style)] = first
    yield ((f"  {label:{_LABEL_WIDTH - 2}}", Style.BOLD), (shown[_LABEL_WIDTH:], style))
    yield from more


def _render_text(item: Item, now: datetime, layout: StatusLayout) -> str:
    words = [
        span if isinstance(span, str)
        else _render_moment(span, now, layout) if isinstance(span, Moment)
        else span.text
        for span in item.text
    ]  # fmt: skip
    found = item.reference
    is_shown = found is not None and (layout.is_wide or not found.is_detail)
    return f"{''.join(words)} [{found.code}]" if found and is_shown else "".join(words)


def _render_moment(moment: Moment, now: datetime, layout: StatusLayout) -> str:
    time, form = moment
    if form is Form.SINCE or (form is Form.FOR and layout.is_dated):
        return f"since {render_time(time)}"
    if form is Form.AT or layout.is_dated:
        return f"at {render_time(time)}"
    if form is Form.FOR:
        return f"for {render_age(now - time)}"
    return f"in {render_age(time - now)}" if time > now else "due now"


def _title(description: Description) -> Line:
    numbers = (
        (len(description.groups), "rollout group"),
        (len(description.list_policies()), "MultiAZRollout"),
        (len(description.list_releases()), "Rollout"),
    )
    kinds = [count(number, noun) for number, noun in numbers if number]
    return (
        (f"namespace {one_line(description.namespace)}", Style.BOLD),
        (f"  {', '.join(kinds) or '0 rollout groups'}", Style.PLAIN),
    )


def _draw_operator(
    operator: OperatorDescription | None, remarks: Sequence[str], layout: StatusLayout
) -> Iterator[Line]:
    if operator is not None:
        state = "ready" if operator.is_ready else "not ready"
        acts = "acts" if operator.is_acting else "does not act"
        yield ((f"operator {one_line(operator.version)}: {state}, {acts}", Style.PLAIN),)
        for text in (*operator.missing, *_choose_parts(operator, layout)):
            yield from wrap_text(text, layout, indent=2)
    for remark in remarks:
        yield from wrap_text(remark, layout, style=Style.YELLOW)
    if operator is None or not operator.is_acting:
        yield ((_COMPUTED, Style.FAINT),)


def _choose_parts(operator: OperatorDescription, layout: StatusLayout) -> Sequence[str]:
    """Return the parts to print; if this operator does not act, at least which one does."""
    if layout.is_wide:
        return operator.parts
    if operator.is_acting:
        return ()
    return [report.line for report in operator.reports if report.name == ELECTION_PART]


def _draw_table(titles: Sequence[str], rows: Sequence[Sequence[Line]]) -> Iterator[Line]:
    """Yield the head of a table, then its rows."""
    widths = [
        max(_WIDTHS.get(title, len(title)), *(_measure(row[place]) for row in rows))
        for place, title in enumerate(titles)
    ]
    head = [
        f"{title:>{width}}" if title in _WIDTHS else f"{title:{width}}"
        for title, width in zip(titles, widths, strict=True)
    ]
    yield (("  ".join(head).rstrip(), Style.FAINT),)
    for row in rows:
        line: list[Span] = []
        for title, width, cell in zip(titles, widths, row, strict=True):
            pad = (" " * (width - _measure(cell)), Style.PLAIN)
            line += [*([("  ", Style.PLAIN)] if line else []), *([pad] if title in _WIDTHS else [])]
            line += [*cell, *([] if title in _WIDTHS else [pad])]
        yield tuple(line)


def _measure(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def _cell(text: str, style: Style = Style.PLAIN, longest: int = _LONGEST_NAME) -> Line:
    return ((one_line(text)[:longest], style),)


def _draw_zones(
    zones: Sequence[ZoneDescription], now: datetime, layout: StatusLayout
) -> Iterator[Line]:
    if not zones:
        return
    tails = [_render_tail(zone, layout) for zone in zones]
    names = min(max(len(one_line(zone.name)) for zone in zones), _LONGEST_NAME)
    room = max(layout.width - names - max(map(len, tails)) - 24, _LEAST_PODS)
    titles = ("  ZONE", "READY", "UPDATED", "PODS", "REVISION" if layout.is_wide else "")
    rows = [
        (
            _cell(f"{'>' if zone.is_busy else ' '} {zone.name}", Style.BOLD, _LONGEST_NAME + 2),
            _cell(f"{zone.ready}/{zone.desired}"),
            _cell(f"{zone.updated}/{zone.desired}"),
            tuple(_draw_pods(zone, room)),
            ((tail, Style.PLAIN),),
        )
        for zone, tail in zip(zones, tails, strict=True)
    ]
    head, *lines = _draw_table(titles, rows)
    yield head
    for zone, line in zip(zones, lines, strict=True):
        yield line
        if layout.is_wide:
            yield from _draw_unready(zone, now, layout)


def _draw_pods(zone: ZoneDescription, room: int) -> list[Span]:
    hidden = max(zone.desired - len(zone.pods), 0)
    pods, more = zone.pods, ""
    if hidden or len(pods) > room:
        pods = pods[: room - len(f"+{zone.desired}")]
        more = f"+{zone.desired - len(pods)}"
    runs = groupby(_SYMBOLS[pod.state, pod.is_updated] for pod in pods)
    cells = [(symbol.mark * len([*run]), symbol.style) for symbol, run in runs]
    return [*cells, (more, Style.FAINT)] if more else cells


def _render_tail(zone: ZoneDescription, layout: StatusLayout) -> str:
    if not layout.is_wide:
        return "paused" if zone.is_paused else ""
    current, update = zone.current_revision or "none", zone.update_revision or "none"
    revision = current if current == update else f"{current} > {update}"
    paused = ", paused" if zone.is_paused else ""
    return one_line(f"{revision}, at most {zone.max_unavailable} down{paused}")


def _draw_unready(zone: ZoneDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    unready = [pod for pod in zone.pods if pod.state is not PodState.READY]
    for pod in unready[:_MOST_UNREADY]:
        since = None if pod.since is None else Moment(pod.since, Form.FOR)
        age = "" if since is None else f" {_render_moment(since, now, layout)}"
        why = f": {pod.why}" if pod.why else ""
        revision = f" [{pod.revision}]" if pod.revision else ""
        text = f"{pod.name} {pod.state}{age}{why}{revision}"
        yield from wrap_text(text, layout, indent=4, style=_SYMBOLS[pod.state, False].style)
    if len(unready) > _MOST_UNREADY:
        yield from wrap_text(f"and {len(unready) - _MOST_UNREADY} more", layout, indent=4)


def _draw_policy_zones(
    zones: Sequence[PolicyZoneDescription], layout: StatusLayout
) -> Iterator[Line]:
    rows = []
    for zone in zones:
        busy = ">" if zone.state == "Updating" else " "
        heads = (f"{busy} {zone.name}", zone.state)
        for sts in zone.sets:
            cells = (
                _cell(heads[0], Style.BOLD, _LONGEST_POLICY_NAME + 2),
                _cell(heads[1]),
                _cell(sts.name, longest=_LONGEST_POLICY_NAME),
                _cell(f"{sts.desired - sts.unavailable}/{sts.desired}"),
                _cell(f"{sts.updated}/{sts.desired}"),
                _cell(sts.source if layout.is_wide else ""),
            )
            rows.append(cells)
            heads = ("", "")
    if rows:
        source = "SOURCE" if layout.is_wide else ""
        titles = ("  ZONE", "STATE", "STATEFULSET", "READY", "UPDATED", source)
        yield from _draw_table(titles, rows)


def _draw_legend(zones: Sequence[ZoneDescription]) -> Iterator[Line]:
    used = {(pod.state, pod.is_updated) for zone in zones for pod in zone.pods}
    symbols = dict.fromkeys(symbol for state, symbol in _SYMBOLS.items() if state in used)
    if symbols:
        yield BLANK
        yield (
            *((f"{symbol.mark} {symbol.meaning}  ", symbol.style) for symbol in symbols),
            ("> in progress" if any(zone.is_busy for zone in zones) else "", Style.FAINT),
        )
