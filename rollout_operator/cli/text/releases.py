"""The lines of `status` and `explain` about releases. Every sentence is the description's."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from rollout_operator.cli.text.layout import (
    LABEL_WIDTH,
    StatusLayout,
    draw_conditions,
    draw_labelled,
    render_age,
    wrap_text,
)
from rollout_operator.lab.lines import Line, Style
from rollout_operator.model.described.releases import (
    GateDescription,
    HealthCheckDescription,
    ReleaseDescription,
    ReleasePhase,
    ReleaseWait,
    ScheduleDescription,
)
from rollout_operator.planning.description.release_text import (
    render_check,
    render_deployment,
    render_gate,
    render_health_check,
    render_release,
    render_schedule,
    render_target,
    render_versions,
)
from rollout_operator.planning.wording import count, join_names, one_line

_STYLES: Final[Mapping[ReleasePhase, Style]] = {
    ReleasePhase.DEPLOYED: Style.GREEN,
    ReleasePhase.HELD: Style.RED,
    ReleasePhase.FAILED: Style.RED,
}
_HEALTHY: Final = "Healthy"


def draw_release(
    release: ReleaseDescription, now: datetime, layout: StatusLayout
) -> Iterator[Line]:
    """Yield the lines about one Rollout; where all is well, only the version in place."""
    yield from _draw_head(release, layout)
    is_done = release.phase is ReleasePhase.DEPLOYED
    if layout.is_terse and is_done:
        return
    reason = f" [{release.reason}]" if release.reason else ""
    yield from wrap_text(f"{release.headline}{reason}", layout, indent=2)
    if layout.is_terse:
        return
    first, *others = release.waits or [None]
    if first is not None and first.remedy:
        yield from wrap_text(first.remedy, layout, indent=4, style=Style.FAINT)
    for wait in others:
        if wait is not None:
            yield from _draw_wait(wait, layout)
    for request in release.requests:
        yield from draw_labelled("wants", request, layout)
    yield from _draw_bake(release, now, layout)
    yield from _draw_places(release, layout)
    if layout.is_wide:
        yield from _draw_rest(release, layout)


def draw_gate(
    release: ReleaseDescription, gate: GateDescription, layout: StatusLayout
) -> Iterator[Line]:
    """Yield the lines about one gate of a Rollout."""
    style = Style.PLAIN if gate.is_passing else Style.YELLOW
    yield from wrap_text(f"RolloutGate {render_gate(gate)}", layout, style=style)
    yield from draw_labelled("of", render_release(release), layout)


def draw_schedules(
    schedules: Sequence[ScheduleDescription], layout: StatusLayout
) -> Iterator[Line]:
    """Yield the lines about schedules of releases."""
    for schedule in schedules:
        concerned = f"{render_schedule(schedule)}, {count(schedule.rollouts, 'Rollout')}"
        style = Style.PLAIN if schedule.action else Style.RED
        yield from wrap_text(concerned, layout, style=style)
        if layout.is_wide:
            if schedule.time_zone:
                yield from draw_labelled("clock", schedule.time_zone, layout)
            if schedule.gates:
                yield from draw_labelled("gates", join_names(schedule.gates, shown=10), layout)
            yield from draw_conditions(schedule.conditions, layout)


def draw_checks(checks: Sequence[HealthCheckDescription], layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about HealthChecks; all are shown where the layout is wide."""
    for check in checks:
        if check.status == _HEALTHY and not layout.is_wide:
            continue
        yield from wrap_text(render_health_check(check), layout)
        if layout.is_wide:
            what = f"{check.check_class} {check.object}".strip()
            yield from draw_labelled("of", what or "no class: written from outside", layout)
            by = join_names(check.rollouts, shown=10) or "no Rollout of this namespace"
            yield from draw_labelled("for", by, layout)


def _draw_head(release: ReleaseDescription, layout: StatusLayout) -> Iterator[Line]:
    """Yield name, phase and versions, on a line each where one line is too short: no tag is cut."""
    head: Line = (
        (one_line(f"Rollout {release.title}"), Style.BOLD),
        ("  ", Style.PLAIN),
        (f"{release.phase}", _STYLES.get(release.phase, Style.YELLOW)),
    )
    versions, suspended = render_versions(release), ", suspended" if release.is_suspended else ""
    whole: Line = (*head, (one_line(f"  {versions}"), Style.PLAIN), (suspended, Style.RED))
    if sum(len(text) for text, _ in whole) <= layout.width:
        yield whole
        return
    yield head
    yield from wrap_text(f"{versions}{suspended}", layout, indent=2)


def _draw_wait(wait: ReleaseWait, layout: StatusLayout) -> Iterator[Line]:
    yield from draw_labelled("waits", f"{wait.text} [{wait.reason}]", layout)
    if wait.remedy:
        yield from wrap_text(wait.remedy, layout, indent=LABEL_WIDTH + 2, style=Style.FAINT)


def _draw_bake(release: ReleaseDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    if release.bake_ends is not None:
        left = render_age(release.bake_ends - now)
        yield from draw_labelled("bake", f"is over in {left}, if nothing fails", layout)
    if release.deadline is not None:
        left = render_age(release.deadline - now)
        yield from draw_labelled("bake", f"has to start in {left}", layout)
    for deployment in release.history[:1]:
        for text in deployment.failed_checks:
            yield from draw_labelled("error", text, layout)


def _draw_places(release: ReleaseDescription, layout: StatusLayout) -> Iterator[Line]:
    """Yield gates, health and objects of Flux: all of them, or only those with a problem."""
    for gate in release.gates:
        if layout.is_wide or not gate.is_passing or gate.allowed is not None:
            yield from draw_labelled("gate", render_gate(gate), layout)
    for check in release.checks:
        if layout.is_wide or check.status != _HEALTHY:
            yield from draw_labelled("check", render_check(check), layout)
    for target in release.targets:
        if layout.is_wide or target.waiting_for or target.tag not in (release.tag, None):
            yield from draw_labelled("flux", render_target(target), layout)


def _draw_rest(release: ReleaseDescription, layout: StatusLayout) -> Iterator[Line]:
    if release.policy:
        announced = release.announced or "nothing"
        yield from draw_labelled(
            "from", f"ImagePolicy {release.policy} announced {announced}", layout
        )
    if release.candidates:
        yield from draw_labelled("newer", join_names(release.candidates, shown=10), layout)
    for deployment in release.history:
        yield from draw_labelled("was", render_deployment(deployment), layout)
    yield from draw_conditions(release.conditions, layout)
