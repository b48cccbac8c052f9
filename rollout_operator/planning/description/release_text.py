"""Releases as plain text, a line for each thing: for `curl`, for pipes, and for what changes."""

from collections.abc import Iterator

from rollout_operator.model.described.releases import (
    DeploymentDescription,
    GateDescription,
    HealthCheckDescription,
    ReleaseDescription,
    ScheduleDescription,
    SelectedCheckDescription,
    TargetDescription,
)
from rollout_operator.planning.description.times import render_time
from rollout_operator.planning.wording import join_names


def render_release(release: ReleaseDescription) -> str:
    """Return a Rollout in one line, which changes only where something happens."""
    reason = f" [{release.reason}]" if release.reason else ""
    return (
        f"Rollout {release.title}: {release.phase}, {render_versions(release)}:"
        f" {release.headline}{reason}"
    )


def render_versions(release: ReleaseDescription) -> str:
    """Return what is deployed, and what comes next."""
    pinned = f", pinned to {release.wanted}" if release.wanted else ""
    then = f", then {release.next}" if release.next else ""
    return f"{release.tag or 'nothing'} deployed{then}{pinned}"


def render_gate(gate: GateDescription) -> str:
    """Return a gate, and when its schedule opens it."""
    kept = f", kept by {gate.schedule}" if gate.schedule else ""
    kept += f": {gate.schedule_problem}" if gate.schedule_problem else ""
    opens = f", opens at {render_time(gate.opens)}" if gate.opens is not None else ""
    allowed = "" if gate.allowed is None else f", allows {join_names(gate.allowed) or 'none'}"
    return f"{gate.name}: {gate.text}{allowed}{kept}{opens}"


def render_check(check: SelectedCheckDescription) -> str:
    """Return what a HealthCheck found."""
    text = f": {check.text}" if check.text else ""
    return f"{check.name} is {check.status or 'not evaluated yet'}{text}"


def render_target(target: TargetDescription) -> str:
    """Return a place that carries the tag, and what Flux has yet to do there."""
    variable = f" ({target.variable})" if target.variable else ""
    waiting = f", {target.waiting_for}" if target.waiting_for else ""
    return f"{target.kind} {target.name}{variable} has {target.tag or 'no tag'}{waiting}"


def render_deployment(deployment: DeploymentDescription) -> str:
    """Return an entry of the history."""
    began = "" if deployment.began is None else f" at {render_time(deployment.began)}"
    message = f", {deployment.message}" if deployment.message else ""
    by = f" by {deployment.by}" if deployment.by else ""
    status = f" {deployment.status}" if deployment.status else ""
    return f"{deployment.tag}{status}{began}{by}{message}"


def render_schedule(schedule: ScheduleDescription) -> str:
    """Return a schedule in one line."""
    reason = "" if schedule.reason == "GatesInSync" else f" [{schedule.reason}]"
    return f"{schedule.title}: {schedule.text}{reason if schedule.reason else ''}"


def render_health_check(check: HealthCheckDescription) -> str:
    """Return a HealthCheck in one line."""
    text = f": {check.text}" if check.text else ""
    return f"HealthCheck {check.title}: {check.status or 'not evaluated yet'}{text}"


def list_release(release: ReleaseDescription) -> Iterator[str]:
    """Yield the lines of one Rollout."""
    yield render_release(release)
    first, *others = release.waits or [None]
    if first is not None and first.remedy:
        yield f"  {first.remedy}"
    for wait in others:
        if wait is not None:
            yield f"  also: {wait.text} [{wait.reason}]"
            yield from ([f"    {wait.remedy}"] if wait.remedy else [])
    yield from (f"  requested: {request}" for request in release.requests)
    yield from (f"  gate {render_gate(gate)}" for gate in release.gates)
    yield from (f"  health {render_check(check)}" for check in release.checks)
    yield from _list_bake(release)
    yield from (f"  {render_target(target)}" for target in release.targets)
    yield from (f"  was: {render_deployment(deployment)}" for deployment in release.history)


def _list_bake(release: ReleaseDescription) -> Iterator[str]:
    if release.bake_ends is not None:
        yield f"  bakes until {render_time(release.bake_ends)}"
    if release.deadline is not None:
        yield f"  the bake has to start by {render_time(release.deadline)}"
    for deployment in release.history[:1]:
        yield from (f"  failed: {text}" for text in deployment.failed_checks)
