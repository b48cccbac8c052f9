"""The tables of `status`: 80 columns, or as many as there are.

Layout only: every sentence is the description's. Pure: the same description gives the same lines.

How texts and reasons stand on a terminal: columns, labels, spans of time.

The lines of `status` and `explain` about a MultiAZRollout. Sentences are the description's.

The lines of `status` and `explain` about releases. Every sentence is the description's.

The output of a command whose lines change: redrawn in place on a terminal.
"""

import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Final, Self, TextIO

import msgspec

from rollout_operator.model.budget import ConditionDescription
from rollout_operator.model.description import (
    ELECTION_PART,
    BudgetDescription,
    Description,
    GateDescription,
    GroupDescription,
    HealthCheckDescription,
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
from rollout_operator.planning.describe_groups import list_worst_first, list_worst_releases
from rollout_operator.planning.describe_policies import has_stalled, list_worst_policies
from rollout_operator.planning.text import (
    render_batch,
    render_check,
    render_deployment,
    render_gate,
    render_health_check,
    render_release,
    render_schedule,
    render_target,
    render_versions,
)
from rollout_operator.planning.wording import count, join_names, one_line, printable

# Cursor and automatic wrapping: a line that is too long must not push the others down.
BEGIN: Final = "\x1b[?25l\x1b[?7l"
END: Final = "\x1b[?7h\x1b[?25h"
LABEL_WIDTH: Final = 8


class Style(StrEnum):
    """Graphic renditions; the eight colours that every terminal has."""

    PLAIN = ""
    BOLD = "1"
    FAINT = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    MAGENTA = "35"


Span = tuple[str, Style]
Line = tuple[Span, ...]
BLANK: Final[Line] = ()


def render_line(line: Line, width: int, *, is_coloured: bool) -> str:
    """Return a line as text, cut to `width` columns; what a tenant wrote commands no terminal."""
    parts = []
    for text, style in line:
        shown = printable(text)[:width]
        width -= len(shown)
        is_styled = is_coloured and style and shown
        parts.append(f"\x1b[{style}m{shown}\x1b[0m" if is_styled else shown)
    return "".join(parts)


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


_POLICY_STYLES: Final = {"Idle": Style.GREEN, "Blocked": Style.RED, "Invalid": Style.RED}
_LONGEST_POLICY_NAME: Final = 24


def draw_policy(policy: PolicyDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about one MultiAZRollout."""
    yield from draw_head(_policy_title(policy), _policy_numbers(policy), layout)
    if layout.is_terse and policy.phase == "Idle":
        return
    code = f" [{policy.code}]" if policy.code is not None else ""
    yield from wrap_text(f"{policy.headline}{code}", layout, indent=2)
    first = policy.waits[0] if policy.waits else None
    is_shown = first is not None and (first.code, first.text) == (policy.code, policy.headline)
    if first is not None and is_shown and first.remedy and not layout.is_terse:
        yield from wrap_text(first.remedy, layout, indent=4, style=Style.FAINT)
    yield from _draw_policy_zones(policy, layout)
    if layout.is_terse:
        return
    if policy.batch is not None and (layout.is_wide or policy.batch.completed is None):
        yield from draw_labelled("last", render_batch(policy.batch), layout)
    if policy.next_batch is not None and policy.next_batch > now:
        yield from draw_labelled("next", f"batch in {render_age(policy.next_batch - now)}", layout)
    if policy.unknown_zones:
        names = join_names(policy.unknown_zones)
        yield from draw_labelled("order", f"no StatefulSet is in {names}, of azOrder", layout)
    if policy.groups:
        yield from draw_labelled("group", join_names(policy.groups), layout)
    yield from draw_waits("waits", policy.waits[is_shown:], layout)
    if layout.is_wide:
        yield from draw_conditions(policy.conditions, layout, shown=[policy.headline])


def _policy_numbers(policy: PolicyDescription) -> str:
    """Return how many pods there are; nothing where none were ever counted."""
    if not policy.desired and not policy.zones:
        return ""
    total = policy.desired
    return f"  {policy.ready}/{total} ready  {policy.updated}/{total} updated"


def _policy_title(policy: PolicyDescription) -> Line:
    return (
        (one_line(f"MultiAZRollout {policy.title}"), Style.BOLD),
        ("  ", Style.PLAIN),
        (policy.phase or "not decided", _POLICY_STYLES.get(policy.phase, Style.YELLOW)),
        (", stalled" if has_stalled(policy) else "", Style.RED),
    )


def _draw_policy_zones(policy: PolicyDescription, layout: StatusLayout) -> Iterator[Line]:
    if not policy.zones:
        return
    zones = _width("ZONE", [zone.name for zone in policy.zones])
    sets = _width("STATEFULSET", [sts.name for zone in policy.zones for sts in zone.sets])
    title = f"  {'ZONE':{zones}}  {'STATE':8}  {'STATEFULSET':{sets}}  {'READY':>7}  {'UPDATED':>7}"
    yield ((f"{title}{'  SOURCE' if layout.is_wide else ''}", Style.FAINT),)
    for zone in policy.zones:
        yield from _draw_zone(zone, zones, sets, layout)


def _draw_zone(
    zone: PolicyZoneDescription, zones: int, sets: int, layout: StatusLayout
) -> Iterator[Line]:
    name, state = one_line(zone.name)[:zones], zone.state
    for sts in zone.sets:
        ready = f"{sts.desired - sts.unavailable}/{sts.desired}"
        updated = f"{sts.updated}/{sts.desired}"
        tail = f"  {sts.source}" if layout.is_wide else ""
        busy = ">" if state == "Updating" else " "
        yield (
            (f"{busy} {name:{zones}}", Style.BOLD),
            (f"  {state:8}  {sts.name[:sets]:{sets}}  {ready:>7}  {updated:>7}{tail}", Style.PLAIN),
        )
        name, state = "", ""


def _width(title: str, names: list[str]) -> int:
    return min(max(len(title), *map(len, names)), _LONGEST_POLICY_NAME)


_RELEASE_STYLES: Final[Mapping[ReleasePhase, Style]] = {
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
        (f"{release.phase}", _RELEASE_STYLES.get(release.phase, Style.YELLOW)),
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


COMPUTED: Final = "this is computed from the objects"
_PHASES: Final = {
    Phase.ROLLED_OUT: Style.GREEN,
    Phase.ROLLING_OUT: Style.YELLOW,
    Phase.SCALING: Style.YELLOW,
    Phase.WAITING: Style.YELLOW,
    Phase.HELD: Style.RED,
}
_LONGEST_NAME: Final = 40
# Fewer marks of pods than this say nothing.
_LEAST_PODS: Final = 8
# The beginning of the part of the operator that names the process that acts.


class PodSymbol(msgspec.Struct, frozen=True):
    """The mark of the state of a pod."""

    mark: str
    meaning: str
    style: Style


UPDATED: Final = PodSymbol("#", "updated, ready", Style.GREEN)
OUTDATED: Final = PodSymbol("o", "outdated, ready", Style.PLAIN)
_SYMBOLS: Final = {
    PodState.STARTING: PodSymbol("~", "starting", Style.YELLOW),
    PodState.NOT_READY: PodSymbol("!", "not ready", Style.MAGENTA),
    PodState.GOING: PodSymbol("x", "going", Style.RED),
    PodState.MISSING: PodSymbol(".", "missing", Style.RED),
    PodState.UNREADABLE: PodSymbol("?", "unreadable", Style.MAGENTA),
}


def draw_status(
    description: Description, remarks: Sequence[str], layout: StatusLayout
) -> list[Line]:
    """Return the lines about one namespace; `remarks` say what could not be read."""
    lines = [_title(description)]
    lines += _draw_operator(description.operator, remarks, layout)
    groups = list_worst_first(description.groups)
    for group in groups:
        lines += [BLANK, *draw_group(group, description.now, layout)]
    for policy in list_worst_policies(description.list_policies()):
        lines += [BLANK, *draw_policy(policy, description.now, layout)]
    lines += _draw_releases(description, layout)
    if description.budgets:
        lines += [BLANK, *_draw_budgets(description.budgets, layout)]
    return lines if layout.is_terse else [*lines, *_draw_legend(groups)]


def _draw_releases(description: Description, layout: StatusLayout) -> Iterator[Line]:
    for release in list_worst_releases(description.list_releases()):
        yield from (BLANK, *draw_release(release, description.now, layout))
    if layout.is_terse:
        return
    for lines in (
        list(draw_schedules(description.list_schedules(), layout)),
        list(draw_checks(description.list_checks(), layout)),
    ):
        yield from (BLANK, *lines) if lines else ()


def choose_symbol(pod: PodDescription) -> PodSymbol:
    """Return the symbol of a pod."""
    if pod.state is PodState.READY:
        return UPDATED if pod.is_updated else OUTDATED
    return _SYMBOLS[pod.state]


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
        shown = (*operator.missing, *_choose_parts(operator, layout))
        for text in shown:
            yield from wrap_text(text, layout, indent=2)
    for remark in remarks:
        yield from wrap_text(remark, layout, style=Style.YELLOW)
    if operator is None or not operator.is_acting:
        yield ((COMPUTED, Style.FAINT),)


def _choose_parts(operator: OperatorDescription, layout: StatusLayout) -> Sequence[str]:
    """Return the printed parts of an operator; if it does not act, at least which operator does."""
    if layout.is_wide:
        return operator.parts
    if operator.is_acting:
        return ()
    return [report.line for report in operator.reports if report.name == ELECTION_PART]


def draw_group(group: GroupDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about a rollout group."""
    yield from draw_head(_name_group(group), _render_numbers(group, now), layout)
    if layout.is_terse and group.phase is Phase.ROLLED_OUT:
        return
    code = f" [{group.code}]" if group.code is not None else ""
    yield from wrap_text(f"{group.headline}{code}", layout, indent=2)
    first = group.waits[0] if group.waits else None
    is_shown = first is not None and (first.code, first.text) == (group.code, group.headline)
    if first is not None and is_shown and first.remedy and not layout.is_terse:
        yield from wrap_text(first.remedy, layout, indent=4, style=Style.FAINT)
    yield from _draw_zones(group.zones, now, layout)
    if layout.is_terse:
        return
    if group.downscale is not None:
        yield from draw_labelled("scales", group.downscale.text, layout)
    headline = (group.code, group.headline)
    steps = [step for step in group.steps if (step.code, step.text) != headline]
    yield from _draw_steps(steps, layout)
    yield from draw_waits("waits", group.waits[is_shown:], layout)
    yield from draw_waits("odd", group.problems, layout)


def _render_numbers(group: GroupDescription, now: datetime) -> str:
    parts = [
        f"{group.ready}/{group.desired} ready",
        f"{group.updated}/{group.desired} updated",
    ]
    if group.since is not None:
        parts.append(f"for {render_age(now - group.since)}")
    if group.expected_end is not None and group.expected_end > now:
        parts.append(f"about {render_age(group.expected_end - now)} left")
    return "".join(f"  {part}" for part in parts)


def _name_group(group: GroupDescription) -> Line:
    return (
        (one_line(group.name) or '""', Style.BOLD),
        ("  ", Style.PLAIN),
        (f"{group.phase}", _PHASES[group.phase]),
    )


def _draw_zones(
    zones: Sequence[ZoneDescription], now: datetime, layout: StatusLayout
) -> Iterator[Line]:
    if not zones:
        return
    names = min(max(len("ZONE"), *(len(zone.name) for zone in zones)), _LONGEST_NAME)
    tails = [_tail(zone) if layout.is_wide else _mark_paused(zone) for zone in zones]
    heads = f"  {'ZONE':{names}}  {'READY':>7}  {'UPDATED':>7}  "
    room = max(layout.width - len(heads) - max(map(len, tails)) - 2, _LEAST_PODS)
    shown = max(min(max(len(zone.pods) for zone in zones), room), len("PODS"))
    title = f"{heads}{'PODS':{shown}}"
    yield ((f"{title}  {'REVISION' if layout.is_wide else ''}".rstrip(), Style.FAINT),)
    for zone, tail in zip(zones, tails, strict=True):
        ready, updated = f"{zone.ready}/{zone.desired}", f"{zone.updated}/{zone.desired}"
        busy = ">" if zone.is_busy else " "
        cells = _draw_pods(zone, room)
        width = sum(len(text) for text, _ in cells)
        yield (
            (f"{busy} {one_line(zone.name)[:names]:{names}}", Style.BOLD),
            (f"  {ready:>7}  {updated:>7}  ", Style.PLAIN),
            *cells,
            (f"{'':{max(shown - width, 0)}}  {tail}".rstrip(), Style.PLAIN),
        )
        if layout.is_wide:
            yield from _draw_unready(zone, now, layout)


def _draw_pods(zone: ZoneDescription, room: int) -> list[tuple[str, Style]]:
    hidden = max(zone.desired - len(zone.pods), 0)
    pods, more = zone.pods, ""
    if hidden or len(pods) > room:
        pods = pods[: room - len(f"+{zone.desired}")]
        more = f"+{zone.desired - len(pods)}"
    symbols = [choose_symbol(pod) for pod in pods]
    cells = [(symbol.mark, symbol.style) for symbol in symbols]
    return [*cells, (more, Style.FAINT)] if more else cells


def _mark_paused(zone: ZoneDescription) -> str:
    return "paused" if zone.is_paused else ""


def _tail(zone: ZoneDescription) -> str:
    current, update = zone.current_revision or "none", zone.update_revision or "none"
    revision = current if current == update else f"{current} > {update}"
    paused = ", paused" if zone.is_paused else ""
    return one_line(f"{revision}, at most {zone.max_unavailable} down{paused}")


def _draw_unready(zone: ZoneDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    for pod in zone.pods:
        if pod.state is not PodState.READY:
            age = f" for {render_age(now - pod.since)}" if pod.since is not None else ""
            why = f": {pod.why}" if pod.why else ""
            revision = f" [{pod.revision}]" if pod.revision else ""
            text = f"{pod.name} {pod.state}{age}{why}{revision}"
            yield from wrap_text(text, layout, indent=4, style=choose_symbol(pod).style)


def _draw_steps(steps: Iterable[Step], layout: StatusLayout) -> Iterator[Line]:
    for step in steps:
        yield from draw_labelled("next" if step.is_waiting else "now", step.text, layout)


def _draw_budgets(budgets: Sequence[BudgetDescription], layout: StatusLayout) -> Iterator[Line]:
    names = min(max(len("BUDGET"), *(len(budget.name) for budget in budgets)), _LONGEST_NAME)
    yield ((f"{'BUDGET':{names}}  {'MAX':>5}  {'DOWN':>7}  {'MAY GO':>6}", Style.FAINT),)
    for budget in budgets:
        style = Style.PLAIN if budget.is_valid else Style.RED
        down = f"{budget.unavailable}/{budget.pods}"
        numbers = f"  {one_line(budget.maximum) or '-':>5}  {down:>7}  {budget.allowed:>6}"
        yield ((f"{one_line(budget.name)[:names]:{names}}", Style.BOLD), (numbers, style))
        if not layout.is_terse:
            yield from _draw_budget_waits(budget, layout)


def _draw_budget_waits(budget: BudgetDescription, layout: StatusLayout) -> Iterator[Line]:
    first = budget.waits[0] if budget.waits else None
    code = "" if first is None else f" [{first.code}]"
    yield from wrap_text(f"{budget.text}{code}", layout, indent=2)
    if first is not None and first.remedy:
        yield from wrap_text(first.remedy, layout, indent=4, style=Style.FAINT)
    yield from draw_waits("waits", budget.waits[1:], layout)


def _draw_legend(groups: Sequence[GroupDescription]) -> Iterator[Line]:
    used = {choose_symbol(pod) for group in groups for zone in group.zones for pod in zone.pods}
    symbols = [symbol for symbol in (UPDATED, OUTDATED, *_SYMBOLS.values()) if symbol in used]
    busy = any(zone.is_busy for group in groups for zone in group.zones)
    if symbols:
        yield BLANK
        yield (
            *((f"{symbol.mark} {symbol.meaning}  ", symbol.style) for symbol in symbols),
            ("> its turn" if busy else "", Style.FAINT),
        )


# The width for a pipe or a file: that of the smallest terminal.
NARROW: Final = 80
WIDE: Final = 160


class OutputStream(msgspec.Struct, frozen=True):
    """The stream that lines are written to, and what it can show."""

    stream: TextIO
    is_terminal: bool
    is_coloured: bool
    size: Callable[[], os.terminal_size] = shutil.get_terminal_size

    def width(self, *, is_wide: bool = False) -> int:
        """Return how many columns a line may have."""
        if self.is_terminal:
            return self.size().columns
        return WIDE if is_wide else NARROW

    def write(self, lines: Sequence[Line], width: int) -> None:
        """Write lines one below the other."""
        for line in lines:
            text = render_line(line, width, is_coloured=self.is_coloured)
            self.stream.write(f"{text if self.is_coloured else text.rstrip()}\n")
        self.stream.flush()


def read_output(stream: TextIO, environ: Mapping[str, str]) -> OutputStream:
    """Return a stream with its abilities: TERM=dumb moves no cursor, NO_COLOR takes the colours."""
    is_terminal = stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb")
    return OutputStream(stream, is_terminal, is_terminal and not environ.get("NO_COLOR"))


class LiveFrame(msgspec.Struct):
    """Redraws a frame over the last frame; never higher than the terminal. Use with `with`."""

    output: OutputStream
    _height: int = 0

    def __enter__(self) -> Self:
        self._write(BEGIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write(END)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines; the last line counts those that do not fit, and names their heads."""
        size = self.output.size()
        # The last row is the cursor's: a line feed there would scroll.
        room = max(size.lines - 1, 1)
        if len(lines) > room:
            hidden = lines[room - 1 :]
            names = [line[0][0] for line in hidden if line and line[0][1] is Style.BOLD]
            text = f"... {len(hidden)} more lines{': ' if names else ''}{', '.join(names)}"
            lines = [*lines[: room - 1], ((text, Style.FAINT),)]
        up = f"\x1b[{self._height}A" if self._height else ""
        texts = [
            render_line(line, size.columns, is_coloured=self.output.is_coloured) for line in lines
        ]
        self._write(f"\r{up}" + "".join(f"{text}\x1b[K\n" for text in texts) + "\x1b[J")
        self._height = len(lines)

    def _write(self, text: str) -> None:
        self.output.stream.write(text)
        self.output.stream.flush()
