"""The description as sections of the status page: groups, MultiAZRollouts, releases.

The description says everything; this module decides where it stands, and how much of it. Groups in
most need of attention are shown in full while a page of bounded size has room; others get a row
each, then only a number. What is left out is counted, and is in `/status.json`. A section is
rendered again only when what it shows has changed. `escape` is the only way for a tenant's text
into the page.
"""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from functools import partial
from hashlib import sha256
from html import escape as escape_html
from typing import Final, TypeVar

import msgspec

from rollout_operator.model.description import (
    Description,
    GroupDescription,
    NamespaceDescription,
    OperatorDescription,
    Phase,
    PodDescription,
    PodState,
    PolicyDescription,
    PolicyZoneDescription,
    ReleaseDescription,
    ZoneDescription,
)
from rollout_operator.planning import cards
from rollout_operator.planning.cards import (
    Card,
    Fact,
    Form,
    Item,
    Mention,
    Moment,
    Progress,
    Reference,
    Span,
    Strong,
    Text,
    Tone,
)
from rollout_operator.planning.describe_groups import list_worst_first, list_worst_releases
from rollout_operator.planning.describe_policies import list_worst_policies
from rollout_operator.planning.text import render_namespace
from rollout_operator.planning.wording import one_line

# Characters; a millisecond of rendering, about.
_PIECE: Final = 1 << 14
_T = TypeVar("_T")
_PREFIXES: Final = {cards.POLICY_KIND: "p-", cards.RELEASE_KIND: "r-"}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HASH_LENGTH: Final = 16
# A person reads no more of one group, and a page of thirty groups stays small.
_MOST_ITEMS: Final = 8
_MOST_ZONES: Final = 12
_MOST_CAUSES: Final = 4
_MOST_GROUP_CELLS: Final = 60
POD_ICONS: Final = {
    PodState.READY: "ready",
    PodState.STARTING: "starting",
    PodState.NOT_READY: "unready",
    PodState.GOING: "going",
    PodState.MISSING: "missing",
    PodState.UNREADABLE: "unknown",
}
_WHOLE: Final = frozenset({PodState.READY})
_MOST_SETS: Final = 20
_FULL_GROUPS: Final = 30
# Pods that have a cell, over all groups: each takes some 120 bytes.
_MOST_CELLS: Final = 1500
# Groups that have a row, so many to a section, which changes without the others.
_MOST_ROWS: Final = 1000
_ROWS_TOGETHER: Final = 25
MOST_SMALL: Final = 50
MOST_POLICIES: Final = 30
MOST_RELEASES: Final = 30
_MOST_PARTS: Final = 40
_Render = Callable[[], str]


class Fragment(msgspec.Struct):
    """The live part of a page at one moment."""

    number: int
    """Equal for equal fragments."""
    sections: dict[str, str]
    """HTML by the id of its element, in the order of the page."""
    _news: dict[int, bytes] = {}

    def render_news(self, seen: "Fragment | None") -> bytes:
        """Return the event that turns a page that shows `seen` into this one.

        All such pages share its memory, also while it waits for slow clients.
        """
        number = 0 if seen is None else seen.number
        news = self._news.get(number)
        if news is None:
            shown = {} if seen is None else seen.sections
            changed = {key: html for key, html in self.sections.items() if shown.get(key) != html}
            body = {"order": list(self.sections), "changed": changed}
            news = b"event: sections\ndata: %b\n\n" % msgspec.json.encode(body)
            self._news[number] = news
        return news


class SectionRenderer:
    """Renders one description after the other, and keeps the sections that did not change."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, str]] = {}
        self._last: Fragment | None = None
        self._numbers = itertools.count(1)

    async def render(self, description: Description) -> Fragment:
        """Return the sections, yielding to other tasks in between."""
        kept: dict[str, tuple[object, str]] = {}
        for key, what, render in _list_sections(description):
            before = self._kept.get(key)
            is_same = before is not None and before[0] == what
            kept[key] = before if before is not None and is_same else (what, render())
            await asyncio.sleep(0)
        self._kept = kept
        sections = {key: html for key, (_, html) in kept.items()}
        if self._last is None or list(self._last.sections.items()) != list(sections.items()):
            self._last = Fragment(next(self._numbers), sections)
        return self._last


def escape(text: str) -> str:
    """Return `text` as one line of harmless HTML, for an element or a quoted attribute."""
    return escape_html(one_line(text))


def render_prose(text: str) -> str:
    """Return a sentence of ours; text between backticks becomes code."""
    pieces = one_line(text).split("`")
    # One backtick without a second is a character like others.
    if len(pieces) % 2 == 0:
        return escape(text)
    return "".join(
        f"<code>{escape_html(piece)}</code>" if number % 2 else escape_html(piece)
        for number, piece in enumerate(pieces)
    )


def render_time(moment: Moment) -> str:
    """Return a time in full, which the page's script turns into `for`, `ago` or `in`."""
    utc = moment.time.astimezone(UTC)
    form = Form.FOR if moment.form is Form.SINCE else moment.form
    since = "since " if form is Form.FOR else ""
    return (
        f'<time datetime="{utc:%Y-%m-%dT%H:%M:%SZ}" data-form="{form}">'
        f"{since}{utc:%Y-%m-%d %H:%M:%S} UTC</time>"
    )


def render_icon(name: str) -> str:
    """Return an icon of those at the start of the page; it always has words beside it."""
    return f'<svg class="i" aria-hidden="true"><use href="#i-{name}"/></svg>'


_TURN: Final = f' <span class="mark turn">{render_icon("turn")}in progress</span>'


def _render_items(items: Iterable[str], kind: str) -> str:
    rows = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="{kind}">{rows}</ul>' if rows else ""


def _render_rest(rest: int, kind: str = "", key: str = "") -> str:
    if rest <= 0:
        return ""
    anchor = f' id="{key}"' if key else ""
    link = f'<a href="status.json">{rest} more{f" {kind}" if kind else ""}</a>'
    return f'<p{anchor} class="rest">and {link}</p>'


def gather(pieces: Iterable[str], least: int = _PIECE) -> Iterator[bytes]:
    """Yield pieces of some size: none takes long to make, and there are few of them."""
    gathered: list[str] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= least:
            yield "".join(gathered).encode()
            gathered, size = [], 0
    yield "".join(gathered).encode()


def make_anchor(name: str) -> str:
    """Return the id of a group's section: its name if that is valid, else a digest of it."""
    if _PLAIN_NAME.fullmatch(name):
        return f"g-{name}"
    return f"g--{sha256(name.encode('utf-8', 'replace')).hexdigest()[:_HASH_LENGTH]}"


def _make_card_anchor(kind: str, title: str) -> str:
    return f"{_PREFIXES.get(kind, '')}{make_anchor(title)}"


def _count_cells(group: GroupDescription) -> int:
    return sum(min(len(zone.pods), _MOST_GROUP_CELLS) for zone in group.zones[:_MOST_ZONES])


def render_card(card: Card, *, has_grid: bool = True) -> str:
    since = "" if card.since is None else render_time(Moment(card.since, Form.FOR))
    return (
        f'<article class="card {card.tone}" id="{_make_card_anchor(card.kind, card.title)}">'
        f'<header><h2 title="{escape(card.title)}">{escape(card.heading)}</h2>{_render_phase(card)}'
        f'<span class="since">{since}</span></header>'
        f'<p class="headline">{_render_sentence(card.headline)}</p>'
        f"{render_remedy(card.headline.remedy)}{_render_figures(card)}"
        f'<div class="facts">{"".join(map(_render_fact, card.facts))}</div>'
        f'<div class="zones">{"".join(_list_zones(card, has_grid=has_grid))}</div></article>'
    )


def _render_small(card: Card) -> str:
    """Return a card of which there are many on a page, or whose state is all that matters."""
    return (
        f'<div class="small {card.tone}"><b class="zone-name">{escape(card.heading)}</b>'
        f" {_render_phase(card)} {_render_figures(card)}<p>{_render_sentence(card.headline)}</p>"
        f"{render_remedy(card.headline.remedy)}"
        f'<div class="facts">{"".join(map(_render_fact, card.facts))}</div></div>'
    )


def _render_phase(card: Card) -> str:
    return f'<span class="phase {card.tone}">{render_icon(card.tone)}{escape(card.phase)}</span>'


def _render_figures(card: Card) -> str:
    parts = [] if card.progress is None else [*_list_progress(card.progress, card.tone)]
    parts += map(_render_sentence, card.figures)
    bar = "" if card.progress is None or card.tone is Tone.DONE else _render_bar(card.progress)
    text = ' <span class="dot">·</span> '.join(parts)
    return f'{bar}<p class="figures">{text}</p>' if parts else ""


def _list_progress(progress: Progress, tone: Tone) -> Iterator[str]:
    desired, ready, updated = progress
    if tone is Tone.DONE:
        yield f"{ready} of {desired} pods ready"
    else:
        yield f"<b>{updated} of {desired}</b> pods updated"
        yield f"<b>{ready} of {desired}</b> ready"


def _render_bar(progress: Progress) -> str:
    whole = max(progress.desired, 1)
    updated, ready = (max(0, min(number, whole)) for number in (progress.updated, progress.ready))
    return (
        f'<svg class="bar" viewBox="0 0 {whole} 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bar-updated" width="{updated}" height="7"/>'
        f'<rect class="bar-ready" y="8" width="{ready}" height="2"/></svg>'
    )


def _render_fact(fact: Fact) -> str:
    shown = [
        f"{_render_sentence(item)}{render_remedy(item.remedy)}" for item in fact.items[:_MOST_ITEMS]
    ]
    if rest := len(fact.items) - len(shown):
        shown.append(f'and <a href="status.json">{rest} more</a>')
    return f"<section><h3>{fact.title}</h3>{_render_items(shown, 'reasons')}</section>"


def _render_sentence(item: Item) -> str:
    code = "" if item.reference is None else f" {_render_code(item.reference)}"
    return f"{_render_text(item.text)}{code}"


def _render_text(text: Text) -> str:
    return "".join(map(_render_span, text))


def _render_span(span: Span) -> str:
    match span:
        case Strong(text):
            return f"<b>{escape(text)}</b>"
        case Moment():
            return render_time(span)
        case Mention(kind, title):
            return f'{kind} <a href="#{_make_card_anchor(kind, title)}">{escape(title)}</a>'
        case _:
            return escape(span)


def _render_code(reference: Reference) -> str:
    """Return a code as a link, relative so that it works behind a prefix, if it leads anywhere."""
    code, link = escape(reference.code), reference.link
    if not link.startswith(("/", "https://")):
        return f"<code>{code}</code>"
    target = escape(link.lstrip("/") if link.startswith("/") else link)
    return f'<a class="code" href="{target}">{code}</a>'


def render_remedy(remedy: str) -> str:
    return f'<p class="remedy"><b>To do</b> {render_prose(remedy)}</p>' if remedy else ""


def _list_zones(card: Card, *, has_grid: bool) -> Iterator[str]:
    for zone in card.zones[:_MOST_ZONES]:
        yield _render_zone(zone, has_grid=has_grid)
    for policy_zone in card.policy_zones[:_MOST_ZONES]:
        yield _render_policy_zone(policy_zone)
    yield _render_rest(len(card.zones) + len(card.policy_zones) - _MOST_ZONES, "zones")


def _render_zone(zone: ZoneDescription, *, has_grid: bool) -> str:
    marks = _TURN if zone.is_busy else ""
    marks += ' <span class="mark paused">paused</span>' if zone.is_paused else ""
    cells = "".join(_list_cells(zone)) if has_grid else ""
    return _render_row(
        (zone.name, zone.name),
        f"{marks}{_render_revisions(zone)}",
        f'<ol class="cells">{cells}</ol>{"".join(_list_reasons(zone))}',
        f"<b>{zone.ready}/{zone.desired}</b> ready"
        f"<span>{zone.outdated} outdated, at most {zone.max_unavailable} down</span>",
    )


def _render_policy_zone(zone: PolicyZoneDescription) -> str:
    state = f' <span class="mark">{escape(zone.state)}</span>'
    rows = (escape(cards.render_policy_set(sts)) for sts in zone.sets[:_MOST_SETS])
    outdated = sum(sts.outdated for sts in zone.sets)
    unavailable = sum(sts.unavailable for sts in zone.sets)
    return _render_row(
        (zone.name, f"{zone.order}. {zone.name}"),
        _TURN if zone.state == "Updating" else state,
        _render_items(rows, "plain"),
        f"<b>{outdated}</b> outdated<span>{unavailable} unavailable</span>",
    )


def _render_row(names: tuple[str, str], marks: str, content: str, figures: str) -> str:
    """Return a zone by its name, in full and as it is shown, what is in it, and its figures."""
    name, shown = map(escape, names)
    return (
        f'<div class="zone"><div class="zone-head"><b class="zone-name" title="{name}">{shown}</b>'
        f'{marks}</div><div class="pods">{content}</div>'
        f'<div class="zone-figures">{figures}</div></div>'
    )


def _render_revisions(zone: ZoneDescription) -> str:
    """Return the revisions without the name of the zone, with which each begins."""
    current, update = (
        escape(revision.removeprefix(f"{zone.name}-"))
        for revision in (zone.current_revision, zone.update_revision)
    )
    if current == update:
        return f'<span class="revision">{update}</span>'
    return f'<span class="revision">{current or "?"} → {update or "?"}</span>'


def _list_cells(zone: ZoneDescription) -> Iterator[str]:
    for pod in zone.pods[:_MOST_GROUP_CELLS]:
        icon = POD_ICONS[pod.state]
        age = "new" if pod.is_updated else "old"
        title = escape(
            f"{pod.name}: {pod.state}{_render_age(pod)}{f', {pod.why}' if pod.why else ''}"
        )
        yield f'<li class="{icon} {age}" title="{title}">{render_icon(icon)}{pod.ordinal}</li>'
    rest = zone.desired - min(len(zone.pods), _MOST_GROUP_CELLS)
    if rest > 0:
        yield f'<li class="rest">+{rest}</li>'


def _render_age(pod: PodDescription) -> str:
    if pod.state is PodState.MISSING:
        return ""
    return ", update revision" if pod.is_updated else ", older revision"


def _list_reasons(zone: ZoneDescription) -> Iterator[str]:
    """Yield why pods are not ready: the cells' tooltips do not exist on touch screens."""
    unready = [pod for pod in zone.pods if pod.state not in _WHOLE and pod.why]
    for pod in unready[:_MOST_CAUSES]:
        since = "" if pod.since is None else f" {render_time(Moment(pod.since, Form.FOR))}"
        yield (
            f'<p class="problem"><b>{escape(pod.name)}</b> {pod.state}:'
            f" {escape(pod.why)}{since}</p>"
        )
    if len(unready) > _MOST_CAUSES:
        yield f'<p class="problem">and {len(unready) - _MOST_CAUSES} more</p>'


def _list_sections(description: Description) -> Iterator[tuple[str, object, _Render]]:
    groups = list_worst_first(description.groups)
    phases = Counter(group.phase for group in groups)
    firsts = {group.phase: group.title for group in reversed(groups)}
    operator = description.operator
    chips = tuple((phase, phases[phase], firsts[phase]) for phase in firsts)
    lacking = tuple(namespace for namespace in description.namespaces if not namespace.is_ready)
    has_others = bool(description.list_policies() or description.list_releases())
    summary = (chips, operator, lacking, has_others)
    yield "summary", summary, partial(_render_summary, *summary)
    room = _MOST_CELLS
    for group in groups[:_FULL_GROUPS]:
        room -= (cells := _count_cells(group))
        has_grid = room + cells > 0
        render = partial(_render_group, group, has_grid=has_grid)
        yield make_anchor(group.title), (group, has_grid), render
    yield from _list_rows(groups[_FULL_GROUPS:])
    policies = list_worst_policies(description.list_policies())
    for policy in policies[:MOST_POLICIES]:
        key = _make_card_anchor(cards.POLICY_KIND, policy.title)
        yield key, policy, partial(_render_policy, policy)
    yield from _list_rest("more-policies", len(policies) - MOST_POLICIES, "MultiAZRollouts")
    releases = list_worst_releases(description.list_releases())
    for release in releases[:MOST_RELEASES]:
        key = _make_card_anchor(cards.RELEASE_KIND, release.title)
        yield key, release, partial(_render_release, release)
    yield from _list_rest("more-releases", len(releases) - MOST_RELEASES, "Rollouts")
    yield from _list_together(
        "schedules", "Schedules of releases", cards.build_schedule, description.list_schedules()
    )
    yield from _list_together(
        "budgets", "Disruption budgets", cards.build_budget, description.budgets
    )
    if operator is not None:
        yield "operator", operator, partial(_render_operator, operator)


def _render_group(group: GroupDescription, *, has_grid: bool) -> str:
    return render_card(cards.build_group(group), has_grid=has_grid)


def _render_policy(policy: PolicyDescription) -> str:
    return render_card(cards.build_policy(policy))


def _render_release(release: ReleaseDescription) -> str:
    return render_card(cards.build_release(release))


def _list_together(
    key: str, title: str, build: Callable[[_T], Card], described: Sequence[_T]
) -> Iterator[tuple[str, object, _Render]]:
    """Yield the section of those whose cards are small."""

    def render() -> str:
        rows = "".join(_render_small(build(each)) for each in described[:MOST_SMALL])
        more = _render_rest(len(described) - MOST_SMALL)
        return f'<section id="{key}" class="card"><h2>{title}</h2>{rows}{more}</section>'

    if described:
        yield key, described, render


def _render_summary(
    phases: Sequence[tuple[Phase, int, str]],
    operator: OperatorDescription | None,
    lacking: Sequence[NamespaceDescription],
    has_others: bool,
) -> str:
    chips = "".join(
        f'<a class="phase {cards.TONES[phase]}" href="#{make_anchor(first)}">'
        f"{render_icon(cards.TONES[phase])}<b>{number}</b> {phase}</a>"
        for phase, number, first in reversed(phases)
    )
    title = ", ".join(f"{number} {phase}" for phase, number, _ in reversed(phases))
    remarks = "".join((*_list_remarks(operator), *_list_lacking(lacking)))
    # While it begins nothing is known of groups, and that there are none would be wrong.
    is_known = (operator is None or operator.is_ready) and not has_others
    empty = '<p class="empty">No rollout group in this namespace.</p>' if is_known else ""
    return (
        f'<section id="summary" data-title="{title or "no groups"}">{remarks}'
        f'<nav class="chips" aria-label="Groups by what they do">{chips}</nav>'
        f"{'' if chips else empty}</section>"
    )


def _list_remarks(operator: OperatorDescription | None) -> Iterator[str]:
    if operator is None:
        return
    if not operator.is_ready:
        missing = _render_items(map(escape, operator.missing[:_MOST_PARTS]), "plain")
        says = f"<b>Not ready</b>{missing}"
        yield f'<div class="note bad">{render_icon("held")}<div>{says}</div></div>'
    elif not operator.is_acting:
        yield (
            f'<div class="note">{render_icon("waiting")}<div><b>This replica does not act.</b>'
            ' What is said of its <a href="#operator">election</a> names the replica that does.'
            "</div></div>"
        )


def _list_lacking(namespaces: Sequence[NamespaceDescription]) -> Iterator[str]:
    if namespaces:
        lines = map(escape, map(render_namespace, namespaces[:_MOST_PARTS]))
        says = f"<b>Namespaces that are not ready</b>{_render_items(lines, 'plain')}"
        yield f'<div class="note bad">{render_icon("held")}<div>{says}</div></div>'


def _list_rows(groups: Sequence[GroupDescription]) -> Iterator[tuple[str, object, _Render]]:
    shown = groups[:_MOST_ROWS]
    for start in range(0, len(shown), _ROWS_TOGETHER):
        some = tuple(shown[start : start + _ROWS_TOGETHER])
        key = f"more-{start // _ROWS_TOGETHER}"
        yield key, some, partial(_render_rows, key, some)
    yield from _list_rest("rest", len(groups) - len(shown), "groups")


def _list_rest(key: str, rest: int, kind: str) -> Iterator[tuple[str, object, _Render]]:
    if rest > 0:
        yield key, rest, partial(_render_rest, rest, kind, key)


def _render_rows(key: str, groups: Sequence[GroupDescription]) -> str:
    rows = "".join(
        f'<p id="{make_anchor(card.title)}">{_render_phase(card)} <b>{escape(card.title)}</b>'
        f' <span class="figures">{card.progress.ready}/{card.progress.desired} ready</span>'
        f" {_render_sentence(card.headline)}</p>"
        for card in map(cards.build_group, groups)
        if card.progress is not None
    )
    return f'<section id="{key}" class="rows">{rows}</section>'


def _render_operator(operator: OperatorDescription) -> str:
    state = "ready" if operator.is_ready else "not ready"
    acting = "acts" if operator.is_acting else "does not act"
    parts = "".join(
        f"<dt>{escape(report.name)}</dt><dd>{escape(report.text)}</dd>"
        for report in operator.reports[:_MOST_PARTS]
    )
    return (
        f'<section id="operator" class="card"><h2>Operator</h2><dl class="parts">'
        f"<dt>version</dt><dd>{escape(operator.version)}</dd>"
        f"<dt>this process</dt><dd>is {state}, {acting}</dd>{parts}</dl></section>"
    )
