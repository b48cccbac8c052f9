"""One rollout group as HTML: why it does not go on, what next, what to do, and its pods as a grid.

The description says all of it; this module decides what stands where, and how much of it. What is
left out is counted, and stands in `/status.json`.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from msgspec import UnsetType

from rollout_operator.model.description import (
    GroupDescription,
    Phase,
    PodDescription,
    PodState,
    Step,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.outcome import Code
from rollout_operator.model.reasons.remedies import render_path
from rollout_operator.web.status.markup import (
    escape,
    make_anchor,
    make_policy_anchor,
    render_fact,
    render_icon,
    render_link,
    render_prose,
    render_rest,
    render_time,
)

T = TypeVar("T")

# A person reads no more of one group, and a page of thirty groups stays small.
MOST_REASONS: Final = 8
MOST_STEPS: Final = 6
MOST_ZONES: Final = 12
MOST_CAUSES: Final = 4
MOST_CELLS: Final = 60

PHASE_ICONS: Final = {
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


def count_cells(group: GroupDescription) -> int:
    """Return how many pods of a group have a place on the page."""
    return sum(min(len(zone.pods), MOST_CELLS) for zone in group.zones[:MOST_ZONES])


def render_group(group: GroupDescription, *, has_grid: bool) -> str:
    """Return the section of a group; without its grid where the page has enough of them."""
    name, leading = escape(group.title), _find_leading(group)
    since = render_time(group.since, "for") if group.since is not None else ""
    zones = "".join(_list_zones(group, has_grid=has_grid))
    return (
        f'<article class="card {PHASE_ICONS[group.phase]}" id="{make_anchor(group.title)}">'
        f'<header><h2 title="{name}">{name}</h2>{render_phase(group.phase)}'
        f'<span class="since">{since}</span></header>'
        f'<p class="headline">{render_headline(group)}</p>'
        f"{render_remedy(leading.remedy) if leading is not None else ''}{_render_driver(group)}"
        f"{_render_progress(group)}"
        f'<div class="facts">{"".join(_list_facts(group))}</div>'
        f'<div class="zones">{zones}</div></article>'
    )


def render_phase(phase: Phase) -> str:
    """Return the phase of a group: an icon, and the word for it."""
    icon = PHASE_ICONS[phase]
    return f'<span class="phase {icon}">{render_icon(icon)}{phase}</span>'


def render_waiting(waiting: Waiting) -> str:
    """Return one reason: sentence, zone, code with its link, and what a person can do."""
    link = render_link(waiting.link, waiting.code)
    sentence = _render_sentence(waiting.zone, waiting.text)
    return f"{sentence} {link}{render_remedy(waiting.remedy)}"


def _render_sentence(subject: str, text: str) -> str:
    """Return a sentence after the name of its subject, unless it says that itself."""
    name = "" if subject in text else f'<b class="zone-name">{escape(subject)}</b> '
    return f"{name}{escape(text)}"


def render_headline(group: GroupDescription) -> str:
    """Return the sentence to read first, and its code."""
    code = f" {render_code(group.code)}" if group.code is not None else ""
    return f"{escape(group.headline)}{code}"


def render_code(code: Code) -> str:
    """Return a code that leads to its explanation."""
    return render_link(render_path(code), code)


def _find_leading(group: GroupDescription) -> Waiting | None:
    """Return the reason that the headline gives, None where it gives what is done."""
    reasons = (*group.waits, *group.problems)
    leading = (
        reason for reason in reasons if (reason.code, reason.text) == (group.code, group.headline)
    )
    return next(leading, None)


def render_remedy(remedy: str) -> str:
    """Return what a person can do, as HTML; empty where there is nothing to do."""
    return f'<p class="remedy"><b>To do</b> {render_prose(remedy)}</p>' if remedy else ""


def _render_driver(group: GroupDescription) -> str:
    """Return which MultiAZRollout replaces its pods, with a link to it."""
    if isinstance(group.policy, UnsetType):
        return ""
    link = f'<a href="#{make_policy_anchor(group.policy)}">{escape(group.policy)}</a>'
    return f'<p class="figures">replaced by MultiAZRollout {link}</p>'


def _render_progress(group: GroupDescription) -> str:
    """Return how far it is: two bars, and the same as numbers."""
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


def _list_facts(group: GroupDescription) -> Iterator[str]:
    now = [step for step in group.steps if not step.is_waiting]
    later = [step for step in group.steps if step.is_waiting]
    since = ""
    if group.underway_since is not None:
        since = f" {render_time(group.underway_since, 'for')}"
    for title, steps in ((f"Now{since}", now), ("Next", later)):
        shown = [_render_step(step) for step in steps[:MOST_STEPS]]
        yield render_fact(title, [*shown, *_count_rest(steps, MOST_STEPS)])
    leading = _find_leading(group)
    waits = [wait for wait in group.waits if wait is not leading]
    problems = [problem for problem in group.problems if problem is not leading]
    for title, reasons in (("Waits for", waits), ("Also odd", problems)):
        shown = [render_waiting(reason) for reason in reasons[:MOST_REASONS]]
        yield render_fact(title, [*shown, *_count_rest(reasons, MOST_REASONS)])
    if group.downscale is not None:
        sentence = _render_sentence(group.downscale.zone, group.downscale.text)
        yield render_fact("Downscale", [sentence])


def _render_step(step: Step) -> str:
    return f"{_render_sentence(step.pod or step.zone, step.text)} {render_code(step.code)}"


def _count_rest(items: Sequence[T], shown: int) -> Iterator[str]:
    if len(items) > shown:
        yield f'and <a href="status.json">{len(items) - shown} more</a>'


def _list_zones(group: GroupDescription, *, has_grid: bool) -> Iterator[str]:
    for zone in group.zones[:MOST_ZONES]:
        yield _render_zone(zone, has_grid=has_grid)
    yield render_rest(len(group.zones) - MOST_ZONES, "zones")


def _render_zone(zone: ZoneDescription, *, has_grid: bool) -> str:
    name = escape(zone.name)
    marks = f' <span class="mark turn">{render_icon("turn")}its turn</span>' if zone.is_busy else ""
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
    """Return the revisions without the name of the zone, which begins each of them."""
    current, update = (
        escape(revision.removeprefix(f"{zone.name}-"))
        for revision in (zone.current_revision, zone.update_revision)
    )
    if current == update:
        return f'<span class="revision">{update}</span>'
    return f'<span class="revision">{current or "?"} → {update or "?"}</span>'


def _list_cells(zone: ZoneDescription) -> Iterator[str]:
    for pod in zone.pods[:MOST_CELLS]:
        icon = POD_ICONS[pod.state]
        age = "new" if pod.is_updated else "old"
        title = escape(
            f"{pod.name}: {pod.state}{_render_age(pod)}{f', {pod.why}' if pod.why else ''}"
        )
        yield f'<li class="{icon} {age}" title="{title}">{render_icon(icon)}{pod.ordinal}</li>'
    rest = zone.desired - min(len(zone.pods), MOST_CELLS)
    if rest > 0:
        yield f'<li class="rest">+{rest}</li>'


def _render_age(pod: PodDescription) -> str:
    if pod.state is PodState.MISSING:
        return ""
    return ", update revision" if pod.is_updated else ", older revision"


def _list_reasons(zone: ZoneDescription) -> Iterator[str]:
    """Yield why pods are not ready: cells show it to a pointer, but to no finger."""
    unready = [pod for pod in zone.pods if pod.state not in _WHOLE and pod.why]
    for pod in unready[:MOST_CAUSES]:
        since = f" {render_time(pod.since, 'for')}" if pod.since is not None else ""
        yield (
            f'<p class="problem"><b>{escape(pod.name)}</b> {pod.state}:'
            f" {escape(pod.why)}{since}</p>"
        )
    if len(unready) > MOST_CAUSES:
        yield f'<p class="problem">and {len(unready) - MOST_CAUSES} more</p>'
