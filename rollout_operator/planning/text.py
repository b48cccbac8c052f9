"""Descriptions as plain text for `curl`, pipes and terminals.

One line says one thing. What a tenant wrote is escaped and cut, so that it cannot control a
terminal.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from rollout_operator.model.description import (
    BatchDescription,
    BudgetDescription,
    DeploymentDescription,
    Description,
    GateDescription,
    GroupDescription,
    HealthCheckDescription,
    NamespaceDescription,
    OperatorDescription,
    PolicyDescription,
    PolicySetDescription,
    ReleaseDescription,
    ScheduleDescription,
    SelectedCheckDescription,
    TargetDescription,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import check_time
from rollout_operator.planning.describe_groups import list_worst_first, list_worst_releases
from rollout_operator.planning.describe_policies import has_stalled, list_worst_policies
from rollout_operator.planning.wording import count, join_names, one_line


def render_time(time: datetime) -> str:
    """Return a time such as `2026-01-02T03:04:05Z`."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def choose_fit(time: datetime | None) -> datetime | None:
    """Return a time in UTC, None where it is out of range."""
    try:
        return None if time is None else check_time(time).astimezone(UTC)
    except InvalidInput:
        return None


def add_span(time: datetime | None, span: timedelta | None) -> datetime | None:
    """Return the sum, None without either or out of range."""
    try:
        return None if time is None or span is None else choose_fit(time + span)
    except OverflowError:
        return None


def render_release(release: ReleaseDescription) -> str:
    """Return one line, which changes only when something happens."""
    reason = f" [{release.reason}]" if release.reason else ""
    return (
        f"Rollout {release.title}: {release.phase}, {render_versions(release)}:"
        f" {release.headline}{reason}"
    )


def render_versions(release: ReleaseDescription) -> str:
    pinned = f", pinned to {release.wanted}" if release.wanted else ""
    then = f", then {release.next}" if release.next else ""
    return f"{release.tag or 'nothing'} deployed{then}{pinned}"


def render_gate(gate: GateDescription) -> str:
    kept = f", kept by {gate.schedule}" if gate.schedule else ""
    kept += f": {gate.schedule_problem}" if gate.schedule_problem else ""
    opens = f", opens at {render_time(gate.opens)}" if gate.opens is not None else ""
    allowed = "" if gate.allowed is None else f", allows {join_names(gate.allowed) or 'none'}"
    return f"{gate.name}: {gate.text}{allowed}{kept}{opens}"


def render_check(check: SelectedCheckDescription) -> str:
    text = f": {check.text}" if check.text else ""
    return f"{check.name} is {check.status or 'not evaluated yet'}{text}"


def render_target(target: TargetDescription) -> str:
    variable = f" ({target.variable})" if target.variable else ""
    waiting = f", {target.waiting_for}" if target.waiting_for else ""
    return f"{target.kind} {target.name}{variable} has {target.tag or 'no tag'}{waiting}"


def render_deployment(deployment: DeploymentDescription) -> str:
    began = "" if deployment.began is None else f" at {render_time(deployment.began)}"
    message = f", {deployment.message}" if deployment.message else ""
    by = f" by {deployment.by}" if deployment.by else ""
    status = f" {deployment.status}" if deployment.status else ""
    return f"{deployment.tag}{status}{began}{by}{message}"


def render_schedule(schedule: ScheduleDescription) -> str:
    reason = "" if schedule.reason == "GatesInSync" else f" [{schedule.reason}]"
    return f"{schedule.title}: {schedule.text}{reason if schedule.reason else ''}"


def render_health_check(check: HealthCheckDescription) -> str:
    text = f": {check.text}" if check.text else ""
    return f"HealthCheck {check.title}: {check.status or 'not evaluated yet'}{text}"


def list_release(release: ReleaseDescription) -> Iterator[str]:
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


def render_description(description: Description) -> Iterator[str]:
    """Yield the lines, without line feeds."""
    return map(one_line, _list_lines(description))


def render_group(group: GroupDescription) -> Iterator[str]:
    return map(one_line, _list_group(group))


def render_namespace(namespace: NamespaceDescription) -> str:
    if namespace.is_ready:
        return f"namespace {namespace.name}: ready"
    return f"namespace {namespace.name}: not ready: {'; '.join(namespace.missing)}"


def render_policy(policy: PolicyDescription) -> str:
    """Return one line, which changes only when something happens."""
    numbers = ""
    if policy.desired or policy.zones:
        total = policy.desired
        numbers = f", {policy.ready} of {total} ready, {policy.updated} of {total} updated"
    code = f" [{policy.code}]" if policy.code is not None else ""
    phase = (policy.phase or "not decided") + (", stalled" if has_stalled(policy) else "")
    head = f"MultiAZRollout {policy.title}: {phase}{numbers}"
    return f"{head}: {policy.headline}{code}"


def render_policy_set(sts: PolicySetDescription) -> str:
    numbers = f"{sts.updated} of {sts.desired} updated, {sts.unavailable} unavailable"
    return f"{sts.name}: {numbers}, zone by {sts.source}"


def render_batch(batch: BatchDescription) -> str:
    state = "open"
    if batch.completed is not None:
        state = f"complete at {render_time(batch.completed)}"
    elif batch.began is not None:
        state = f"open since {render_time(batch.began)}"
    return f"batch {batch.number} in {batch.zone}: {join_names(batch.pods)}, {state}"


def _list_lines(description: Description) -> Iterator[str]:
    if description.operator is not None:
        yield from _list_operator(description.operator)
    yield from map(render_namespace, description.namespaces)
    yield count(len(description.groups), "rollout group")
    for group in list_worst_first(description.groups):
        yield ""
        yield from _list_group(group)
    for policy in list_worst_policies(description.list_policies()):
        yield ""
        yield from _list_policy(policy)
    yield from _list_releases(description)
    for budget in description.budgets:
        yield ""
        yield from _list_budget(budget)


def _list_releases(description: Description) -> Iterator[str]:
    for release in list_worst_releases(description.list_releases()):
        yield ""
        yield from list_release(release)
    for title, lines in (
        ("schedules of releases", map(render_schedule, description.list_schedules())),
        ("health of releases", map(render_health_check, description.list_checks())),
    ):
        shown = [f"  {line}" for line in lines]
        yield from ["", f"{title}:", *shown] if shown else []


def _list_operator(operator: OperatorDescription) -> Iterator[str]:
    yield f"rollout-operator {operator.version}"
    state = "ready" if operator.is_ready else "not ready"
    yield state if operator.is_acting else f"{state}, does not act"
    yield from (f"  {line}" for line in (*operator.missing, *operator.parts))


def _list_group(group: GroupDescription) -> Iterator[str]:
    yield f'group "{group.title}": {group.phase}'
    yield f"  {group.headline}{f' [{group.code}]' if group.code is not None else ''}"
    is_shown = _is_headline(group)
    if is_shown and group.waits[0].remedy:
        yield f"    {group.waits[0].remedy}"
    since = "" if group.since is None else f", in this state since {render_time(group.since)}"
    yield f"  looked at {render_time(group.looked)}{since}"
    yield from _list_pace(group)
    width = max((len(zone.name) for zone in group.zones), default=0)
    yield from (f"  {_render_zone(zone, width)}" for zone in group.zones)
    yield from _list_steps(group)
    yield from _list_waits("waits", group.waits[is_shown:])
    yield from _list_waits("odd", group.problems)


def _list_pace(group: GroupDescription) -> Iterator[str]:
    if group.began is None:
        return
    end = group.expected_end
    until = "" if end is None else f", expected to end at {render_time(end)}"
    done = f"{group.updated} of {group.desired} pods updated"
    yield f"  began at {render_time(group.began)}, {done}{until}"


def _render_zone(zone: ZoneDescription, width: int) -> str:
    words = [
        f"{zone.ready} of {zone.desired} ready",
        f"{zone.updated} of {zone.desired} updated",
        *(["in progress"] if zone.is_busy else []),
        *(["paused"] if zone.is_paused else []),
    ]
    return f"{zone.name:{width}}  {', '.join(words)}"


def _list_steps(group: GroupDescription) -> Iterator[str]:
    now = [step for step in group.steps if not step.is_waiting]
    later = [step for step in group.steps if step.is_waiting]
    since = group.underway_since
    first = "goes now:"
    if since is not None:
        first = f"underway since {render_time(since)}, not done yet:"
    elif [step.text for step in now] == [group.headline]:
        now = []  # the headline has said it
    for title, steps in ((first, now), ("goes next:", later)):
        if steps:
            yield f"  {title}"
        yield from (f"    {step.code}: {step.text}" for step in steps)


def _list_waits(title: str, waits: Sequence[Waiting]) -> Iterator[str]:
    if waits:
        yield f"  {title}:"
    for wait in waits:
        yield f"    {wait.code}: {wait.text}"
        if wait.remedy:
            yield f"      {wait.remedy}"


def _list_policy(policy: PolicyDescription) -> Iterator[str]:
    yield render_policy(policy)
    is_shown = _is_headline(policy)
    if is_shown and policy.waits[0].remedy:
        yield f"  {policy.waits[0].remedy}"
    for zone in policy.zones:
        yield f"  {zone.order}. {zone.name}: {zone.state}"
        yield from (f"    {render_policy_set(sts)}" for sts in zone.sets)
    if policy.batch is not None:
        yield f"  {render_batch(policy.batch)}"
    if policy.next_batch is not None:
        yield f"  next batch at {render_time(policy.next_batch)}"
    if policy.unknown_zones:
        yield f"  no StatefulSet is in {join_names(policy.unknown_zones)}, of azOrder"
    if policy.groups:
        yield f"  replaces the pods of {join_names(policy.groups)}"
    yield from _list_waits("waits", policy.waits[is_shown:])


def _is_headline(described: GroupDescription | PolicyDescription) -> bool:
    """Return whether the first wait is the headline, and needs no line of its own."""
    headline = (described.code, described.headline)
    return bool(described.waits) and (described.waits[0].code, described.waits[0].text) == headline


def _list_budget(budget: BudgetDescription) -> Iterator[str]:
    first = budget.waits[0] if budget.waits else None
    code = "" if first is None else f" [{first.code}]"
    yield f'budget "{budget.title}": {budget.text}{code}'
    if first is not None and first.remedy:
        yield f"  {first.remedy}"
    yield from _list_waits("waits", budget.waits[1:])
