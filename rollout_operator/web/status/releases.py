"""Releases as HTML: each Rollout with what it waits for, and the schedules below them.

The description says all of it. What is left out is counted, and stands in `/status.json`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rollout_operator.model.described.releases import (
    DeploymentDescription,
    GateDescription,
    ReleaseDescription,
    ReleasePhase,
    ReleaseWait,
    ScheduleDescription,
)
from rollout_operator.planning.description.release_text import (
    render_check,
    render_schedule,
    render_target,
)
from rollout_operator.planning.wording import count, join_names
from rollout_operator.web.status.group import MOST_REASONS, render_remedy
from rollout_operator.web.status.markup import (
    escape,
    make_release_anchor,
    render_condition,
    render_fact,
    render_icon,
    render_items,
    render_rest,
    render_time,
)

MOST_ITEMS: Final = 20
MOST_SCHEDULES: Final = 50
_ICONS: Final[Mapping[ReleasePhase, str]] = {
    ReleasePhase.DEPLOYED: "done",
    ReleasePhase.BAKING: "moving",
    ReleasePhase.DEPLOYING: "moving",
    ReleasePhase.WAITING: "waiting",
    ReleasePhase.HELD: "held",
    ReleasePhase.FAILED: "held",
}


def render_release(release: ReleaseDescription) -> str:
    """Return the section of a Rollout."""
    name, icon = escape(release.title), _ICONS[release.phase]
    remedy = render_remedy(release.waits[0].remedy) if release.waits else ""
    return (
        f'<article class="card {icon}" id="{make_release_anchor(release.title)}">'
        f'<header><h2 title="{name}">Rollout {name}</h2>'
        f'<span class="phase {icon}">{render_icon(icon)}{escape(release.phase)}</span>'
        f'</header><p class="headline">{escape(release.headline)}{_render_reason(release.reason)}'
        f'</p>{remedy}<p class="figures">{_render_versions(release)}</p>'
        f'<div class="facts">{"".join(_list_facts(release))}</div></article>'
    )


def render_schedules(schedules: Sequence[ScheduleDescription]) -> str:
    """Return the section of all schedules."""
    rows = render_items(map(_render_schedule, schedules[:MOST_SCHEDULES]), "reasons")
    more = render_rest(len(schedules) - MOST_SCHEDULES)
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


def _list_facts(release: ReleaseDescription) -> Iterator[str]:
    yield render_fact("Waits for", map(_render_wait, release.waits[1:MOST_REASONS]))
    yield render_fact("Bake", _list_bake(release))
    yield render_fact("Gates", map(_render_gate, release.gates[:MOST_ITEMS]))
    checks = map(escape, map(render_check, release.checks[:MOST_ITEMS]))
    yield render_fact("Health", checks)
    targets = map(escape, map(render_target, release.targets[:MOST_ITEMS]))
    yield render_fact("Objects of Flux", targets)
    yield render_fact("Requested", map(escape, release.requests))
    yield render_fact("History", map(_render_entry, release.history))
    yield render_fact("Conditions", map(render_condition, release.conditions[:MOST_ITEMS]))


def _render_wait(wait: ReleaseWait) -> str:
    return f"{escape(wait.text)}{_render_reason(wait.reason)}{render_remedy(wait.remedy)}"


def _list_bake(release: ReleaseDescription) -> Iterator[str]:
    current = release.history[0] if release.history else None
    if release.bake_ends is not None:
        yield f"is over {render_time(release.bake_ends, 'in')}"
    if release.deadline is not None:
        yield f"has to start {render_time(release.deadline, 'in')}"
    if current is not None:
        yield from (f"failed: {escape(text)}" for text in current.failed_checks[:MOST_ITEMS])
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
