"""A description as sections of a page, each rendered again only where what it shows has changed.

Decides which groups are shown in full: those in most need of attention, as many as fit into a page
of bounded size. The others have a row each, then only a number.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Final

import msgspec

from rollout_operator.model.description import (
    BudgetDescription,
    Description,
    GroupDescription,
    NamespaceDescription,
    OperatorDescription,
    PartReport,
    Phase,
)
from rollout_operator.planning.description.phase import list_worst_first, list_worst_releases
from rollout_operator.planning.description.policies import list_worst_policies
from rollout_operator.planning.description.text import render_namespace
from rollout_operator.web.status.group import (
    PHASE_ICONS,
    count_cells,
    render_group,
    render_headline,
    render_phase,
    render_waiting,
)
from rollout_operator.web.status.markup import (
    escape,
    make_anchor,
    make_policy_anchor,
    make_release_anchor,
    render_icon,
    render_items,
    render_rest,
)
from rollout_operator.web.status.policies import render_policy
from rollout_operator.web.status.releases import render_release, render_schedules

FULL_GROUPS: Final = 30
# Pods that have a cell, over all groups: each takes some 120 bytes.
MOST_CELLS: Final = 1500
# Groups that have a row, so many to a section, which changes without the others.
MOST_ROWS: Final = 1000
ROWS_TOGETHER: Final = 25
MOST_BUDGETS: Final = 100
MOST_POLICIES: Final = 30
MOST_RELEASES: Final = 30
MOST_PARTS: Final = 40

Render = Callable[[], str]


class Fragment(msgspec.Struct):
    """The live part of a page at one moment."""

    number: int
    """Two fragments of the same number are the same."""
    sections: dict[str, str]
    """HTML by the id of its element, in the order of the page."""
    _news: dict[int, bytes] = {}

    def render_news(self, seen: "Fragment | None") -> bytes:
        """Return the event that says what a page that shows `seen` has to change.

        It is one piece of memory for all such pages, also while it waits for slow clients.
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
    """Renders one description after the other, and keeps the sections that stay as they are."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, str]] = {}
        self._last: Fragment | None = None
        self._numbers = count(1)

    async def render(self, description: Description) -> Fragment:
        """Return the sections, the same objects where nothing has changed, in slices."""
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


def _list_sections(description: Description) -> Iterator[tuple[str, object, Render]]:
    """Yield id, content and renderer of each section."""
    groups = list_worst_first(description.groups)
    phases = Counter(group.phase for group in groups)
    firsts = {group.phase: group.title for group in reversed(groups)}
    operator = description.operator
    chips = tuple((phase, phases[phase], firsts[phase]) for phase in firsts)
    lacking = tuple(namespace for namespace in description.namespaces if not namespace.is_ready)
    has_others = bool(description.list_policies() or description.list_releases())
    summary = (chips, operator, lacking, has_others)
    yield "summary", summary, partial(_render_summary, *summary)
    room = MOST_CELLS
    for group in groups[:FULL_GROUPS]:
        room -= (cells := count_cells(group))
        has_grid = room + cells > 0
        render = partial(render_group, group, has_grid=has_grid)
        yield make_anchor(group.title), (group, has_grid), render
    yield from _list_rows(groups[FULL_GROUPS:])
    policies = list_worst_policies(description.list_policies())
    for policy in policies[:MOST_POLICIES]:
        yield make_policy_anchor(policy.title), policy, partial(render_policy, policy)
    yield from _list_rest("more-policies", len(policies) - MOST_POLICIES, "MultiAZRollouts")
    yield from _list_releases(description)
    if description.budgets:
        yield "budgets", description.budgets, partial(_render_budgets, description.budgets)
    if operator is not None:
        yield "operator", operator, partial(_render_operator, operator)


def _list_releases(description: Description) -> Iterator[tuple[str, object, Render]]:
    releases = list_worst_releases(description.list_releases())
    for release in releases[:MOST_RELEASES]:
        yield make_release_anchor(release.title), release, partial(render_release, release)
    yield from _list_rest("more-releases", len(releases) - MOST_RELEASES, "Rollouts")
    if schedules := description.list_schedules():
        yield "schedules", schedules, partial(render_schedules, schedules)


def _render_summary(
    phases: Sequence[tuple[Phase, int, str]],
    operator: OperatorDescription | None,
    lacking: Sequence[NamespaceDescription],
    has_others: bool,
) -> str:
    chips = "".join(
        f'<a class="phase {PHASE_ICONS[phase]}" href="#{make_anchor(first)}">'
        f"{render_icon(PHASE_ICONS[phase])}<b>{number}</b> {phase}</a>"
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
        missing = render_items(map(escape, operator.missing[:MOST_PARTS]), "plain")
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
        lines = map(escape, map(render_namespace, namespaces[:MOST_PARTS]))
        says = f"<b>Namespaces that are not ready</b>{render_items(lines, 'plain')}"
        yield f'<div class="note bad">{render_icon("held")}<div>{says}</div></div>'


def _list_rows(groups: Sequence[GroupDescription]) -> Iterator[tuple[str, object, Render]]:
    shown = groups[:MOST_ROWS]
    for start in range(0, len(shown), ROWS_TOGETHER):
        some = tuple(shown[start : start + ROWS_TOGETHER])
        key = f"more-{start // ROWS_TOGETHER}"
        yield key, some, partial(_render_rows, key, some)
    yield from _list_rest("rest", len(groups) - len(shown), "groups")


def _list_rest(key: str, rest: int, kind: str) -> Iterator[tuple[str, object, Render]]:
    if rest > 0:
        yield key, rest, partial(render_rest, rest, kind, key)


def _render_rows(key: str, groups: Sequence[GroupDescription]) -> str:
    return f'<section id="{key}" class="rows">{"".join(map(_render_row, groups))}</section>'


def _render_row(group: GroupDescription) -> str:
    return (
        f'<p id="{make_anchor(group.title)}">{render_phase(group.phase)}'
        f" <b>{escape(group.title)}</b>"
        f' <span class="figures">{group.ready}/{group.desired} ready</span>'
        f" {render_headline(group)}</p>"
    )


def _render_budgets(budgets: Sequence[BudgetDescription]) -> str:
    rows = "".join(map(_render_budget, budgets[:MOST_BUDGETS]))
    more = render_rest(len(budgets) - MOST_BUDGETS)
    return f'<section id="budgets" class="card"><h2>Disruption budgets</h2>{rows}{more}</section>'


def _render_budget(budget: BudgetDescription) -> str:
    room = "may be disrupted now" if budget.is_valid else "invalid"
    kind = "invalid" if not budget.is_valid else "free" if budget.allowed else "used"
    waits = render_items(map(render_waiting, budget.waits[:MOST_PARTS]), "reasons")
    text = "" if budget.waits else f"<p>{escape(budget.text)}</p>"
    return (
        f'<div class="budget {kind}"><div class="room"><b>{budget.allowed}</b>{room}</div>'
        f'<div><b class="zone-name">{escape(budget.title)}</b> <span class="figures">'
        f"at most {escape(budget.maximum)} · {budget.zones} zones · {budget.pods} pods,"
        f" {budget.unavailable} down</span>{text}{waits}</div></div>"
    )


def _render_operator(operator: OperatorDescription) -> str:
    state = "ready" if operator.is_ready else "not ready"
    acting = "acts" if operator.is_acting else "does not act"
    parts = "".join(map(_render_part, operator.reports[:MOST_PARTS]))
    return (
        f'<section id="operator" class="card"><h2>Operator</h2><dl class="parts">'
        f"<dt>version</dt><dd>{escape(operator.version)}</dd>"
        f"<dt>this process</dt><dd>is {state}, {acting}</dd>{parts}</dl></section>"
    )


def _render_part(report: PartReport) -> str:
    return f"<dt>{escape(report.name)}</dt><dd>{escape(report.text)}</dd>"
