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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from html import escape as escape_html
from typing import Final, TypeVar

import msgspec
from msgspec import UnsetType

from rollout_operator.model.budget import ConditionDescription
from rollout_operator.model.description import (
    BatchDescription,
    BudgetDescription,
    DeploymentDescription,
    Description,
    GateDescription,
    GroupDescription,
    NamespaceDescription,
    OperatorDescription,
    Phase,
    PodDescription,
    PodState,
    PolicyDescription,
    PolicyZoneDescription,
    ReleaseDescription,
    ReleasePhase,
    ReleaseWait,
    ScheduleDescription,
    Step,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.outcome import Code, render_path
from rollout_operator.planning.describe_groups import list_worst_first, list_worst_releases
from rollout_operator.planning.describe_policies import has_stalled, is_held, list_worst_policies
from rollout_operator.planning.text import (
    render_check,
    render_namespace,
    render_policy_set,
    render_schedule,
    render_target,
)
from rollout_operator.planning.wording import count, join_names, one_line

# Characters; a millisecond of rendering, about.
_PIECE: Final = 1 << 14
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HASH_LENGTH: Final = 16
_T = TypeVar("_T")
# A person reads no more of one group, and a page of thirty groups stays small.
_MOST_REASONS: Final = 8
_MOST_STEPS: Final = 6
_MOST_ZONES: Final = 12
_MOST_CAUSES: Final = 4
_MOST_GROUP_CELLS: Final = 60
_PHASE_ICONS: Final = {
    Phase.ROLLED_OUT: "done",
    Phase.ROLLING_OUT: "moving",
    Phase.SCALING: "scaling",
    Phase.WAITING: "waiting",
    Phase.HELD: "held",
}
POD_ICONS: Final = {
    PodState.READY: "ready",
    PodState.STARTING: "starting",
    PodState.NOT_READY: "unready",
    PodState.GOING: "going",
    PodState.MISSING: "missing",
    PodState.UNREADABLE: "unknown",
}
_WHOLE: Final = frozenset({PodState.READY})
_MOST_BATCH_PODS: Final = 20
_MOST_SETS: Final = 20
# Phases of the resource by the icons of groups.
_POLICY_ICONS: Final[Mapping[str, str]] = {
    "Idle": "done",
    "Progressing": "moving",
}
_MOST_ITEMS: Final = 20
MOST_SCHEDULES: Final = 50
_RELEASE_ICONS: Final[Mapping[ReleasePhase, str]] = {
    ReleasePhase.DEPLOYED: "done",
    ReleasePhase.BAKING: "moving",
    ReleasePhase.DEPLOYING: "moving",
    ReleasePhase.WAITING: "waiting",
    ReleasePhase.HELD: "held",
    ReleasePhase.FAILED: "held",
}
_FULL_GROUPS: Final = 30
# Pods that have a cell, over all groups: each takes some 120 bytes.
_MOST_CELLS: Final = 1500
# Groups that have a row, so many to a section, which changes without the others.
_MOST_ROWS: Final = 1000
_ROWS_TOGETHER: Final = 25
_MOST_BUDGETS: Final = 100
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


def _render_link(link: str, label: str) -> str:
    """Return a link, relative so that it works behind a prefix; code where there is none."""
    shown = escape(label)
    if not link.startswith(("/", "https://")):
        return f"<code>{shown}</code>"
    target = escape(link.lstrip("/") if link.startswith("/") else link)
    return f'<a class="code" href="{target}">{shown}</a>'


def render_time(time: datetime, form: str) -> str:
    """Return a time in full, which the page's script turns into `for`, `ago` or `in`."""
    utc = time.astimezone(UTC)
    since = "since " if form == "for" else ""
    return (
        f'<time datetime="{utc:%Y-%m-%dT%H:%M:%SZ}" data-form="{form}">'
        f"{since}{utc:%Y-%m-%d %H:%M:%S} UTC</time>"
    )


def render_icon(name: str) -> str:
    """Return an icon of those at the start of the page; it always has words beside it."""
    return f'<svg class="i" aria-hidden="true"><use href="#i-{name}"/></svg>'


def _render_items(items: Iterable[str], kind: str) -> str:
    rows = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="{kind}">{rows}</ul>' if rows else ""


def _render_fact(title: str, items: Iterable[str]) -> str:
    rows = _render_items(items, "reasons")
    return f"<section><h3>{title}</h3>{rows}</section>" if rows else ""


def _render_rest(rest: int, kind: str = "", key: str = "") -> str:
    if rest <= 0:
        return ""
    anchor = f' id="{key}"' if key else ""
    link = f'<a href="status.json">{rest} more{f" {kind}" if kind else ""}</a>'
    return f'<p{anchor} class="rest">and {link}</p>'


def gather(pieces: Iterable[str]) -> Iterator[bytes]:
    """Yield pieces of some size: none takes long to make, and there are few of them."""
    gathered: list[str] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield "".join(gathered).encode()
            gathered, size = [], 0
    yield "".join(gathered).encode()


def make_anchor(name: str) -> str:
    """Return the id of a group's section: its name if that is valid, else a digest of it."""
    if _PLAIN_NAME.fullmatch(name):
        return f"g-{name}"
    return f"g--{sha256(name.encode('utf-8', 'replace')).hexdigest()[:_HASH_LENGTH]}"


def _make_policy_anchor(title: str) -> str:
    return f"p-{make_anchor(title)}"


def _make_release_anchor(title: str) -> str:
    return f"r-{make_anchor(title)}"


def _render_condition(condition: ConditionDescription) -> str:
    since = f" {render_time(condition.since, 'for')}" if condition.since is not None else ""
    text = f": {escape(condition.message)}" if condition.message else ""
    state = f"{condition.is_true}, {escape(condition.reason)}"
    return f"<b>{escape(condition.type)}</b> is {state}{since}{text}"


def _count_cells(group: GroupDescription) -> int:
    return sum(min(len(zone.pods), _MOST_GROUP_CELLS) for zone in group.zones[:_MOST_ZONES])


def _render_group(group: GroupDescription, *, has_grid: bool) -> str:
    name, leading = escape(group.title), _find_leading(group)
    since = render_time(group.since, "for") if group.since is not None else ""
    zones = "".join(_list_zones(group, has_grid=has_grid))
    return (
        f'<article class="card {_PHASE_ICONS[group.phase]}" id="{make_anchor(group.title)}">'
        f'<header><h2 title="{name}">{name}</h2>{_render_phase(group.phase)}'
        f'<span class="since">{since}</span></header>'
        f'<p class="headline">{_render_headline(group)}</p>'
        f"{render_remedy(leading.remedy) if leading is not None else ''}{_render_driver(group)}"
        f"{_render_progress(group)}"
        f'<div class="facts">{"".join(_list_group_facts(group))}</div>'
        f'<div class="zones">{zones}</div></article>'
    )


def _render_phase(phase: Phase) -> str:
    icon = _PHASE_ICONS[phase]
    return f'<span class="phase {icon}">{render_icon(icon)}{phase}</span>'


def _render_waiting(waiting: Waiting) -> str:
    link = _render_link(waiting.link, waiting.code)
    sentence = _render_sentence(waiting.zone, waiting.text)
    return f"{sentence} {link}{render_remedy(waiting.remedy)}"


def _render_sentence(subject: str, text: str) -> str:
    """Return a sentence after the name of its subject, unless it already names it."""
    name = "" if subject in text else f'<b class="zone-name">{escape(subject)}</b> '
    return f"{name}{escape(text)}"


def _render_headline(group: GroupDescription) -> str:
    code = f" {_render_code(group.code)}" if group.code is not None else ""
    return f"{escape(group.headline)}{code}"


def _render_code(code: Code) -> str:
    return _render_link(render_path(code), code)


def _find_leading(group: GroupDescription) -> Waiting | None:
    """Return the wait that the headline shows, None where it shows an action."""
    reasons = (*group.waits, *group.problems)
    leading = (
        reason for reason in reasons if (reason.code, reason.text) == (group.code, group.headline)
    )
    return next(leading, None)


def render_remedy(remedy: str) -> str:
    return f'<p class="remedy"><b>To do</b> {render_prose(remedy)}</p>' if remedy else ""


def _render_driver(group: GroupDescription) -> str:
    if isinstance(group.policy, UnsetType):
        return ""
    link = f'<a href="#{_make_policy_anchor(group.policy)}">{escape(group.policy)}</a>'
    return f'<p class="figures">replaced by MultiAZRollout {link}</p>'


def _render_progress(group: GroupDescription) -> str:
    if group.phase is Phase.ROLLED_OUT:
        return f'<p class="figures">{group.ready} of {group.desired} pods ready</p>'
    whole = max(group.desired, 1)
    updated, ready = (max(0, min(number, whole)) for number in (group.updated, group.ready))
    return (
        f'<svg class="bar" viewBox="0 0 {whole} 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bar-updated" width="{updated}" height="7"/>'
        f'<rect class="bar-ready" y="8" width="{ready}" height="2"/></svg>'
        f'<p class="figures"><b>{group.updated} of {group.desired}</b> pods updated'
        f' <span class="dot">·</span> <b>{group.ready} of {group.desired}</b> ready'
        f"{_render_span(group)}</p>"
    )


def _render_span(group: GroupDescription) -> str:
    dot = ' <span class="dot">·</span> '
    began = f"{dot}began {render_time(group.began, 'ago')}" if group.began is not None else ""
    if group.expected_end is None:
        return began
    return f"{began}{dot}expected end {render_time(group.expected_end, 'in')}"


def _list_group_facts(group: GroupDescription) -> Iterator[str]:
    now = [step for step in group.steps if not step.is_waiting]
    later = [step for step in group.steps if step.is_waiting]
    since = ""
    if group.underway_since is not None:
        since = f" {render_time(group.underway_since, 'for')}"
    for title, steps in ((f"Now{since}", now), ("Next", later)):
        shown = [_render_step(step) for step in steps[:_MOST_STEPS]]
        yield _render_fact(title, [*shown, *_count_rest(steps, _MOST_STEPS)])
    leading = _find_leading(group)
    waits = [wait for wait in group.waits if wait is not leading]
    problems = [problem for problem in group.problems if problem is not leading]
    for title, reasons in (("Waits for", waits), ("Also odd", problems)):
        shown = [_render_waiting(reason) for reason in reasons[:_MOST_REASONS]]
        yield _render_fact(title, [*shown, *_count_rest(reasons, _MOST_REASONS)])
    if group.downscale is not None:
        sentence = _render_sentence(group.downscale.zone, group.downscale.text)
        yield _render_fact("Downscale", [sentence])


def _render_step(step: Step) -> str:
    return f"{_render_sentence(step.pod or step.zone, step.text)} {_render_code(step.code)}"


def _count_rest(items: Sequence[_T], shown: int) -> Iterator[str]:
    if len(items) > shown:
        yield f'and <a href="status.json">{len(items) - shown} more</a>'


def _list_zones(group: GroupDescription, *, has_grid: bool) -> Iterator[str]:
    for zone in group.zones[:_MOST_ZONES]:
        yield _render_zone(zone, has_grid=has_grid)
    yield _render_rest(len(group.zones) - _MOST_ZONES, "zones")


def _render_zone(zone: ZoneDescription, *, has_grid: bool) -> str:
    name = escape(zone.name)
    marks = (
        f' <span class="mark turn">{render_icon("turn")}in progress</span>' if zone.is_busy else ""
    )
    marks += ' <span class="mark paused">paused</span>' if zone.is_paused else ""
    cells = "".join(_list_cells(zone)) if has_grid else ""
    return (
        f'<div class="zone"><div class="zone-head"><b class="zone-name" title="{name}">{name}</b>'
        f"{marks}{_render_revisions(zone)}</div>"
        f'<div class="pods"><ol class="cells">{cells}</ol>{"".join(_list_reasons(zone))}</div>'
        f'<div class="zone-figures"><b>{zone.ready}/{zone.desired}</b> ready'
        f"<span>{zone.outdated} outdated, at most {zone.max_unavailable} down</span></div></div>"
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
        since = f" {render_time(pod.since, 'for')}" if pod.since is not None else ""
        yield (
            f'<p class="problem"><b>{escape(pod.name)}</b> {pod.state}:'
            f" {escape(pod.why)}{since}</p>"
        )
    if len(unready) > _MOST_CAUSES:
        yield f'<p class="problem">and {len(unready) - _MOST_CAUSES} more</p>'


def _render_policy(policy: PolicyDescription) -> str:
    name = escape(policy.title)
    icon = "held" if is_held(policy) else _POLICY_ICONS.get(policy.phase, "waiting")
    code = f" {_render_code(policy.code)}" if policy.code is not None else ""
    remedy = render_remedy(policy.waits[0].remedy) if policy.waits else ""
    zones = "".join(_list_policy_zones(policy))
    return (
        f'<article class="card {icon}" id="{_make_policy_anchor(policy.title)}">'
        f'<header><h2 title="{name}">MultiAZRollout {name}</h2>'
        f'<span class="phase {icon}">{render_icon(icon)}{escape(policy.phase or "-")}'
        f"{', stalled' if has_stalled(policy) else ''}</span>"
        f'</header><p class="headline">{escape(policy.headline)}{code}</p>'
        f"{remedy}{_render_figures(policy)}"
        f'<div class="facts">{"".join(_list_policy_facts(policy))}</div>'
        f'<div class="zones">{zones}</div></article>'
    )


def _render_figures(policy: PolicyDescription) -> str:
    if not policy.desired and not policy.zones:
        return ""
    return (
        f'<p class="figures"><b>{policy.updated} of {policy.desired}</b>'
        f' pods updated <span class="dot">·</span> <b>{policy.ready} of {policy.desired}</b> ready'
        "</p>"
    )


def _list_policy_facts(policy: PolicyDescription) -> Iterator[str]:
    batch = [] if policy.batch is None else [_render_batch(policy.batch)]
    if policy.next_batch is not None:
        batch.append(f"next batch {render_time(policy.next_batch, 'in')}")
    if policy.is_paused:
        batch.append("paused")
    yield _render_fact("Batch", batch)
    yield _render_fact("Waits for", map(_render_waiting, policy.waits[1:_MOST_REASONS]))
    yield _render_fact("Replaces the pods of", map(escape, policy.groups[:_MOST_SETS]))
    unknown = map(escape, policy.unknown_zones[:_MOST_ZONES])
    yield _render_fact("No StatefulSet, but in azOrder", unknown)
    yield _render_fact("Conditions", map(_render_condition, policy.conditions))


def _render_batch(batch: BatchDescription) -> str:
    shown = ", ".join(map(escape, batch.pods[:_MOST_BATCH_PODS]))
    rest = len(batch.pods) - _MOST_BATCH_PODS
    pods = f"{shown} and {rest} more" if rest > 0 else shown
    state = "open"
    if batch.completed is not None:
        state = f"complete {render_time(batch.completed, 'ago')}"
    elif batch.began is not None:
        state = f"open {render_time(batch.began, 'for')}"
    return f"batch {batch.number} in <b>{escape(batch.zone)}</b>: {pods}, {state}"


def _list_policy_zones(policy: PolicyDescription) -> Iterator[str]:
    for zone in policy.zones[:_MOST_ZONES]:
        yield _render_policy_zone(zone)
    yield _render_rest(len(policy.zones) - _MOST_ZONES, "zones")


def _render_policy_zone(zone: PolicyZoneDescription) -> str:
    name = escape(zone.name)
    turn = f' <span class="mark turn">{render_icon("turn")}in progress</span>'
    mark = turn if zone.state == "Updating" else f' <span class="mark">{escape(zone.state)}</span>'
    rows = _render_items(
        (escape(render_policy_set(sts)) for sts in zone.sets[:_MOST_SETS]), "plain"
    )
    outdated = sum(sts.outdated for sts in zone.sets)
    unavailable = sum(sts.unavailable for sts in zone.sets)
    return (
        f'<div class="zone"><div class="zone-head"><b class="zone-name" title="{name}">'
        f'{zone.order}. {name}</b>{mark}</div><div class="pods">{rows}</div>'
        f'<div class="zone-figures"><b>{outdated}</b> outdated'
        f"<span>{unavailable} unavailable</span></div></div>"
    )


def render_release(release: ReleaseDescription) -> str:
    name, icon = escape(release.title), _RELEASE_ICONS[release.phase]
    remedy = render_remedy(release.waits[0].remedy) if release.waits else ""
    return (
        f'<article class="card {icon}" id="{_make_release_anchor(release.title)}">'
        f'<header><h2 title="{name}">Rollout {name}</h2>'
        f'<span class="phase {icon}">{render_icon(icon)}{escape(release.phase)}</span>'
        f'</header><p class="headline">{escape(release.headline)}{_render_reason(release.reason)}'
        f'</p>{remedy}<p class="figures">{_render_versions(release)}</p>'
        f'<div class="facts">{"".join(_list_release_facts(release))}</div></article>'
    )


def _render_schedules(schedules: Sequence[ScheduleDescription]) -> str:
    rows = _render_items(map(_render_schedule, schedules[:MOST_SCHEDULES]), "reasons")
    more = _render_rest(len(schedules) - MOST_SCHEDULES)
    title = "<h2>Schedules of releases</h2>"
    return f'<section id="schedules" class="card">{title}{rows}{more}</section>'


def _render_reason(reason: str) -> str:
    return f" <code>{escape(reason)}</code>" if reason else ""


def _render_versions(release: ReleaseDescription) -> str:
    parts = [f"<b>{escape(release.tag or 'nothing')}</b> deployed"]
    if release.wanted:
        parts.append(f"pinned to <b>{escape(release.wanted)}</b>")
    if release.next:
        parts.append(f"next <b>{escape(release.next)}</b>")
    if release.announced:
        parts.append(f"announced <b>{escape(release.announced)}</b>")
    if release.is_suspended:
        parts.append("suspended")
    return ' <span class="dot">·</span> '.join(parts)


def _list_release_facts(release: ReleaseDescription) -> Iterator[str]:
    yield _render_fact("Waits for", map(_render_wait, release.waits[1:_MOST_REASONS]))
    yield _render_fact("Bake", _list_bake(release))
    yield _render_fact("Gates", map(_render_gate, release.gates[:_MOST_ITEMS]))
    checks = map(escape, map(render_check, release.checks[:_MOST_ITEMS]))
    yield _render_fact("Health", checks)
    targets = map(escape, map(render_target, release.targets[:_MOST_ITEMS]))
    yield _render_fact("Objects of Flux", targets)
    yield _render_fact("Requested", map(escape, release.requests))
    yield _render_fact("History", map(_render_entry, release.history))
    yield _render_fact("Conditions", map(_render_condition, release.conditions[:_MOST_ITEMS]))


def _render_wait(wait: ReleaseWait) -> str:
    return f"{escape(wait.text)}{_render_reason(wait.reason)}{render_remedy(wait.remedy)}"


def _list_bake(release: ReleaseDescription) -> Iterator[str]:
    current = release.history[0] if release.history else None
    if release.bake_ends is not None:
        yield f"is over {render_time(release.bake_ends, 'in')}"
    if release.deadline is not None:
        yield f"has to start {render_time(release.deadline, 'in')}"
    if current is not None:
        yield from (f"failed: {escape(text)}" for text in current.failed_checks[:_MOST_ITEMS])
        if current.retries:
            yield f"tried again {current.retries} times"


def _render_gate(gate: GateDescription) -> str:
    state = "open" if gate.is_passing else "closed"
    allowed = ""
    if gate.allowed is not None:
        allowed = f", allows {escape(join_names(gate.allowed) or 'none')}"
    kept = f", kept by {escape(gate.schedule)}" if gate.schedule else ""
    kept += f": {escape(gate.schedule_problem)}" if gate.schedule_problem else ""
    opens = f", opens {render_time(gate.opens, 'in')}" if gate.opens is not None else ""
    return f"<b>{escape(gate.name)}</b> {state}: {escape(gate.text)}{allowed}{kept}{opens}"


def _render_entry(deployment: DeploymentDescription) -> str:
    began = f" {render_time(deployment.began, 'ago')}" if deployment.began is not None else ""
    by = f" by {escape(deployment.by)}" if deployment.by else ""
    texts = "".join(f", {escape(text)}" for text in (deployment.message, deployment.text) if text)
    return f"<b>{escape(deployment.tag)}</b> {escape(deployment.status)}{began}{by}{texts}"


def _render_schedule(schedule: ScheduleDescription) -> str:
    changes = ""
    if schedule.changes is not None:
        what = "closes" if schedule.is_open else "opens"
        changes = f", {what} {render_time(schedule.changes, 'in')}"
    concerned = count(schedule.rollouts, "Rollout")
    return f"{escape(render_schedule(schedule))}, {concerned}{changes}"


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
        yield _make_policy_anchor(policy.title), policy, partial(_render_policy, policy)
    yield from _list_rest("more-policies", len(policies) - MOST_POLICIES, "MultiAZRollouts")
    yield from _list_releases(description)
    if description.budgets:
        yield "budgets", description.budgets, partial(_render_budgets, description.budgets)
    if operator is not None:
        yield "operator", operator, partial(_render_operator, operator)


def _list_releases(description: Description) -> Iterator[tuple[str, object, _Render]]:
    releases = list_worst_releases(description.list_releases())
    for release in releases[:MOST_RELEASES]:
        yield _make_release_anchor(release.title), release, partial(render_release, release)
    yield from _list_rest("more-releases", len(releases) - MOST_RELEASES, "Rollouts")
    if schedules := description.list_schedules():
        yield "schedules", schedules, partial(_render_schedules, schedules)


def _render_summary(
    phases: Sequence[tuple[Phase, int, str]],
    operator: OperatorDescription | None,
    lacking: Sequence[NamespaceDescription],
    has_others: bool,
) -> str:
    chips = "".join(
        f'<a class="phase {_PHASE_ICONS[phase]}" href="#{make_anchor(first)}">'
        f"{render_icon(_PHASE_ICONS[phase])}<b>{number}</b> {phase}</a>"
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
        f'<p id="{make_anchor(group.title)}">{_render_phase(group.phase)}'
        f" <b>{escape(group.title)}</b>"
        f' <span class="figures">{group.ready}/{group.desired} ready</span>'
        f" {_render_headline(group)}</p>"
        for group in groups
    )
    return f'<section id="{key}" class="rows">{rows}</section>'


def _render_budgets(budgets: Sequence[BudgetDescription]) -> str:
    rows = "".join(map(_render_budget, budgets[:_MOST_BUDGETS]))
    more = _render_rest(len(budgets) - _MOST_BUDGETS)
    return f'<section id="budgets" class="card"><h2>Disruption budgets</h2>{rows}{more}</section>'


def _render_budget(budget: BudgetDescription) -> str:
    room = "may be disrupted now" if budget.is_valid else "invalid"
    kind = "invalid" if not budget.is_valid else "free" if budget.allowed else "used"
    waits = _render_items(map(_render_waiting, budget.waits[:_MOST_PARTS]), "reasons")
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
    parts = "".join(
        f"<dt>{escape(report.name)}</dt><dd>{escape(report.text)}</dd>"
        for report in operator.reports[:_MOST_PARTS]
    )
    return (
        f'<section id="operator" class="card"><h2>Operator</h2><dl class="parts">'
        f"<dt>version</dt><dd>{escape(operator.version)}</dd>"
        f"<dt>this process</dt><dd>is {state}, {acting}</dd>{parts}</dl></section>"
    )
