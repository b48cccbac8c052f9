"""How `status`, `explain` and `wait` look on a terminal: lines of styled text in columns.

Layout only: the sentences are those of `planning`. The drawing functions are pure: the same
description gives the same lines.
"""

import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Final, NamedTuple, Self, TextIO, TypeAlias

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
    ReleaseDescription,
    ReleasePhase,
    ScheduleDescription,
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

# A pipe or a file gets the width of the smallest terminal.
_NARROW: Final = 80
_WIDE: Final = 160
# Hide the cursor and stop wrapping: a line that is too long must not push the others down.
_BEGIN: Final = "\x1b[?25l\x1b[?7l"
_END: Final = "\x1b[?7h\x1b[?25h"
_LABEL_WIDTH: Final = 8
# Of a group: an empty label makes a group like any other.
EMPTY_NAME: Final = '""'
_LONGEST_NAME: Final = 40
_LONGEST_POLICY_NAME: Final = 24
# A row of pods is never narrower than this.
_LEAST_PODS: Final = 8
_COMPUTED: Final = "this is computed from the objects"
_HEALTHY: Final = "Healthy"


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

_PHASES: Final = {
    Phase.ROLLED_OUT: Style.GREEN,
    Phase.ROLLING_OUT: Style.YELLOW,
    Phase.SCALING: Style.YELLOW,
    Phase.WAITING: Style.YELLOW,
    Phase.HELD: Style.RED,
}
_POLICY_PHASES: Final = {"Idle": Style.GREEN, "Blocked": Style.RED, "Invalid": Style.RED}
_RELEASE_PHASES: Final[Mapping[ReleasePhase, Style]] = {
    ReleasePhase.DEPLOYED: Style.GREEN,
    ReleasePhase.HELD: Style.RED,
    ReleasePhase.FAILED: Style.RED,
}


class _Symbol(NamedTuple):
    """One character for the state of a pod."""

    mark: str
    meaning: str
    style: Style


_UPDATED: Final = _Symbol("#", "updated, ready", Style.GREEN)
_OUTDATED: Final = _Symbol("o", "outdated, ready", Style.PLAIN)
_SYMBOLS: Final = {
    PodState.STARTING: _Symbol("~", "starting", Style.YELLOW),
    PodState.NOT_READY: _Symbol("!", "not ready", Style.MAGENTA),
    PodState.GOING: _Symbol("x", "going", Style.RED),
    PodState.MISSING: _Symbol(".", "missing", Style.RED),
    PodState.UNREADABLE: _Symbol("?", "unreadable", Style.MAGENTA),
}


class StatusLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How much is shown, and in how many columns."""

    width: int
    is_wide: bool = False
    """Show revisions, limits and each pod that is not ready as well."""
    is_terse: bool = False
    """For a terminal with few rows: show objects that are done in one line."""


class OutputStream(msgspec.Struct, frozen=True):
    """Where lines are written, and what it can show."""

    stream: TextIO
    is_terminal: bool
    is_coloured: bool
    size: Callable[[], os.terminal_size] = shutil.get_terminal_size

    def width(self, *, is_wide: bool = False) -> int:
        """Return how many columns a line may have."""
        if self.is_terminal:
            return self.size().columns
        return _WIDE if is_wide else _NARROW

    def write(self, lines: Sequence[Line], width: int) -> None:
        """Write lines one below the other."""
        for line in lines:
            text = render_line(line, width, is_coloured=self.is_coloured)
            self.stream.write(f"{text if self.is_coloured else text.rstrip()}\n")
        self.stream.flush()


def read_output(stream: TextIO, environ: Mapping[str, str]) -> OutputStream:
    """Return a stream; with TERM=dumb no cursor moves, with NO_COLOR there are no colours."""
    is_terminal = stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb")
    return OutputStream(stream, is_terminal, is_terminal and not environ.get("NO_COLOR"))


class LiveFrame(msgspec.Struct):
    """Redraws lines in place on a terminal, as many as fit. Use with `with`."""

    output: OutputStream
    _height: int = 0

    def __enter__(self) -> Self:
        self._write(_BEGIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write(_END)

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
    for release in list_worst_releases(description.list_releases()):
        lines += [BLANK, *draw_release(release, description.now, layout)]
    if not layout.is_terse:
        schedules = [*draw_schedules(description.list_schedules(), layout)]
        checks = [*draw_checks(description.list_checks(), layout)]
        lines += [line for part in (schedules, checks) if part for line in (BLANK, *part)]
    if description.budgets:
        lines += [BLANK, *_draw_budgets(description.budgets, layout)]
    return lines if layout.is_terse else [*lines, *_draw_legend(groups)]


def draw_group(group: GroupDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about a rollout group."""
    name: Line = (
        (one_line(group.name) or EMPTY_NAME, Style.BOLD),
        ("  ", Style.PLAIN),
        (f"{group.phase}", _PHASES[group.phase]),
    )
    yield from _draw_head(name, _render_numbers(group, now), layout)
    if layout.is_terse and group.phase is Phase.ROLLED_OUT:
        return
    yield from _draw_headline(group, layout)
    yield from _draw_zones(group.zones, now, layout)
    if layout.is_terse:
        return
    if group.downscale is not None:
        yield from _draw_labelled("scales", group.downscale.text, layout)
    for step in group.steps:
        if (step.code, step.text) != (group.code, group.headline):
            yield from _draw_labelled("next" if step.is_waiting else "now", step.text, layout)
    yield from _draw_waits("waits", group.waits[_leads(group) :], layout)
    yield from _draw_waits("odd", group.problems, layout)


def draw_policy(policy: PolicyDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about one MultiAZRollout."""
    title: Line = (
        (one_line(f"MultiAZRollout {policy.title}"), Style.BOLD),
        ("  ", Style.PLAIN),
        (policy.phase or "not decided", _POLICY_PHASES.get(policy.phase, Style.YELLOW)),
        (", stalled" if has_stalled(policy) else "", Style.RED),
    )
    total, numbers = policy.desired, ""
    if total or policy.zones:  # else nothing was ever counted
        numbers = f"  {policy.ready}/{total} ready  {policy.updated}/{total} updated"
    yield from _draw_head(title, numbers, layout)
    if layout.is_terse and policy.phase == "Idle":
        return
    yield from _draw_headline(policy, layout)
    yield from _draw_policy_zones(policy, layout)
    if layout.is_terse:
        return
    if policy.batch is not None and (layout.is_wide or policy.batch.completed is None):
        yield from _draw_labelled("last", render_batch(policy.batch), layout)
    if policy.next_batch is not None and policy.next_batch > now:
        yield from _draw_labelled("next", f"batch in {render_age(policy.next_batch - now)}", layout)
    if policy.unknown_zones:
        names = join_names(policy.unknown_zones)
        yield from _draw_labelled("order", f"no StatefulSet is in {names}, of azOrder", layout)
    if policy.groups:
        yield from _draw_labelled("group", join_names(policy.groups), layout)
    yield from _draw_waits("waits", policy.waits[_leads(policy) :], layout)
    if layout.is_wide:
        yield from draw_conditions(policy.conditions, layout, shown=[policy.headline])


def draw_release(
    release: ReleaseDescription, now: datetime, layout: StatusLayout
) -> Iterator[Line]:
    """Yield the lines about one Rollout; where all is well, only the version in place."""
    yield from _draw_release_head(release, layout)
    if layout.is_terse and release.phase is ReleasePhase.DEPLOYED:
        return
    reason = f" [{release.reason}]" if release.reason else ""
    yield from wrap_text(f"{release.headline}{reason}", layout, indent=2)
    if layout.is_terse:
        return
    for wait in release.waits[:1]:
        yield from _draw_remedy(wait.remedy, layout)
    for wait in release.waits[1:]:
        yield from _draw_wait("waits", wait.text, wait.reason, wait.remedy, layout)
    for request in release.requests:
        yield from _draw_labelled("wants", request, layout)
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
    yield from _draw_labelled("of", render_release(release), layout)


def draw_schedules(
    schedules: Sequence[ScheduleDescription], layout: StatusLayout
) -> Iterator[Line]:
    """Yield the lines about schedules of releases."""
    for schedule in schedules:
        text = f"{render_schedule(schedule)}, {count(schedule.rollouts, 'Rollout')}"
        style = Style.PLAIN if schedule.action else Style.RED
        yield from wrap_text(text, layout, style=style)
        if layout.is_wide:
            if schedule.time_zone:
                yield from _draw_labelled("clock", schedule.time_zone, layout)
            if schedule.gates:
                yield from _draw_labelled("gates", join_names(schedule.gates, shown=10), layout)
            yield from draw_conditions(schedule.conditions, layout)


def draw_checks(checks: Sequence[HealthCheckDescription], layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about HealthChecks; those that are healthy only where it is wide."""
    for check in checks:
        if check.status == _HEALTHY and not layout.is_wide:
            continue
        yield from wrap_text(render_health_check(check), layout)
        if layout.is_wide:
            target = f"{check.check_class} {check.object}".strip()
            yield from _draw_labelled("of", target or "no class: written from outside", layout)
            by = join_names(check.rollouts, shown=10) or "no Rollout of this namespace"
            yield from _draw_labelled("for", by, layout)


def draw_conditions(
    conditions: Iterable[ConditionDescription],
    layout: StatusLayout,
    shown: Iterable[str] = (),
) -> Iterator[Line]:
    """Yield the lines of the conditions of a status, each sentence only once."""
    seen = {"", *shown}
    for condition in conditions:
        message = "" if condition.message in seen else f": {condition.message}"
        seen.add(condition.message)
        text = f"{condition.type} is {condition.is_true}, {condition.reason}{message}"
        yield from wrap_text(text, layout, indent=2, style=Style.FAINT)


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


def _draw_head(title: Line, numbers: str, layout: StatusLayout) -> Iterator[Line]:
    """Yield a title with its numbers, in a second line where they do not fit."""
    width = sum(len(text) for text, _ in title) + len(numbers)
    if width <= layout.width:
        yield (*title, (numbers, Style.PLAIN))
    else:
        yield title
        yield ((numbers, Style.PLAIN),)


def _draw_headline(
    described: GroupDescription | PolicyDescription, layout: StatusLayout
) -> Iterator[Line]:
    code = f" [{described.code}]" if described.code is not None else ""
    yield from wrap_text(f"{described.headline}{code}", layout, indent=2)
    if _leads(described) and not layout.is_terse:
        yield from _draw_remedy(described.waits[0].remedy, layout)


def _leads(described: GroupDescription | PolicyDescription) -> bool:
    """Return whether the headline is the first reason to wait."""
    first = next(iter(described.waits), None)
    headline = (described.code, described.headline)
    return first is not None and (first.code, first.text) == headline


def _draw_waits(label: str, waits: Iterable[Waiting], layout: StatusLayout) -> Iterator[Line]:
    for wait in waits:
        yield from _draw_wait(label, wait.text, wait.code, wait.remedy, layout)


def _draw_wait(
    label: str, text: str, code: str, remedy: str, layout: StatusLayout
) -> Iterator[Line]:
    yield from _draw_labelled(label, f"{text} [{code}]", layout)
    yield from _draw_remedy(remedy, layout, indent=_LABEL_WIDTH + 2)


def _draw_remedy(remedy: str, layout: StatusLayout, *, indent: int = 4) -> Iterator[Line]:
    if remedy:
        yield from wrap_text(remedy, layout, indent=indent, style=Style.FAINT)


def _draw_labelled(label: str, text: str, layout: StatusLayout) -> Iterator[Line]:
    first, *more = wrap_text(text, layout, indent=_LABEL_WIDTH)
    [(shown, style)] = first
    yield ((f"  {label:{_LABEL_WIDTH - 2}}", Style.BOLD), (shown[_LABEL_WIDTH:], style))
    yield from more


def _measure_column(title: str, names: Iterable[str], longest: int = _LONGEST_NAME) -> int:
    return min(max(map(len, (title, *names))), longest)


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


def _draw_zones(
    zones: Sequence[ZoneDescription], now: datetime, layout: StatusLayout
) -> Iterator[Line]:
    if not zones:
        return
    names = _measure_column("ZONE", (zone.name for zone in zones))
    tails = [_render_tail(zone, layout) for zone in zones]
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


def _choose_symbol(pod: PodDescription) -> _Symbol:
    if pod.state is PodState.READY:
        return _UPDATED if pod.is_updated else _OUTDATED
    return _SYMBOLS[pod.state]


def _draw_pods(zone: ZoneDescription, room: int) -> list[Span]:
    hidden = max(zone.desired - len(zone.pods), 0)
    pods, more = zone.pods, ""
    if hidden or len(pods) > room:
        pods = pods[: room - len(f"+{zone.desired}")]
        more = f"+{zone.desired - len(pods)}"
    symbols = [_choose_symbol(pod) for pod in pods]
    cells = [(symbol.mark, symbol.style) for symbol in symbols]
    return [*cells, (more, Style.FAINT)] if more else cells


def _render_tail(zone: ZoneDescription, layout: StatusLayout) -> str:
    if not layout.is_wide:
        return "paused" if zone.is_paused else ""
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
            yield from wrap_text(text, layout, indent=4, style=_choose_symbol(pod).style)


def _draw_policy_zones(policy: PolicyDescription, layout: StatusLayout) -> Iterator[Line]:
    if not policy.zones:
        return
    set_names = [sts.name for zone in policy.zones for sts in zone.sets]
    zones = _measure_column("ZONE", (zone.name for zone in policy.zones), _LONGEST_POLICY_NAME)
    sets = _measure_column("STATEFULSET", set_names, _LONGEST_POLICY_NAME)
    title = f"  {'ZONE':{zones}}  {'STATE':8}  {'STATEFULSET':{sets}}  {'READY':>7}  {'UPDATED':>7}"
    yield ((f"{title}{'  SOURCE' if layout.is_wide else ''}", Style.FAINT),)
    for zone in policy.zones:
        busy = ">" if zone.state == "Updating" else " "
        name, state = one_line(zone.name)[:zones], zone.state
        for sts in zone.sets:
            ready = f"{sts.desired - sts.unavailable}/{sts.desired}"
            numbers = f"{ready:>7}  {f'{sts.updated}/{sts.desired}':>7}"
            tail = f"  {sts.source}" if layout.is_wide else ""
            yield (
                (f"{busy} {name:{zones}}", Style.BOLD),
                (f"  {state:8}  {sts.name[:sets]:{sets}}  {numbers}{tail}", Style.PLAIN),
            )
            busy, name, state = " ", "", ""


def _draw_budgets(budgets: Sequence[BudgetDescription], layout: StatusLayout) -> Iterator[Line]:
    names = _measure_column("BUDGET", (budget.name for budget in budgets))
    yield ((f"{'BUDGET':{names}}  {'MAX':>5}  {'DOWN':>7}  {'MAY GO':>6}", Style.FAINT),)
    for budget in budgets:
        style = Style.PLAIN if budget.is_valid else Style.RED
        down = f"{budget.unavailable}/{budget.pods}"
        numbers = f"  {one_line(budget.maximum) or '-':>5}  {down:>7}  {budget.allowed:>6}"
        yield ((f"{one_line(budget.name)[:names]:{names}}", Style.BOLD), (numbers, style))
        if not layout.is_terse:
            first = next(iter(budget.waits), None)
            code = "" if first is None else f" [{first.code}]"
            yield from wrap_text(f"{budget.text}{code}", layout, indent=2)
            yield from _draw_remedy("" if first is None else first.remedy, layout)
            yield from _draw_waits("waits", budget.waits[1:], layout)


def _draw_legend(groups: Sequence[GroupDescription]) -> Iterator[Line]:
    zones = [zone for group in groups for zone in group.zones]
    used = {_choose_symbol(pod) for zone in zones for pod in zone.pods}
    symbols = [symbol for symbol in (_UPDATED, _OUTDATED, *_SYMBOLS.values()) if symbol in used]
    if symbols:
        yield BLANK
        yield (
            *((f"{symbol.mark} {symbol.meaning}  ", symbol.style) for symbol in symbols),
            ("> in progress" if any(zone.is_busy for zone in zones) else "", Style.FAINT),
        )


def _draw_release_head(release: ReleaseDescription, layout: StatusLayout) -> Iterator[Line]:
    """Yield name, phase and versions, in two lines where one is too short: no tag is cut."""
    head: Line = (
        (one_line(f"Rollout {release.title}"), Style.BOLD),
        ("  ", Style.PLAIN),
        (f"{release.phase}", _RELEASE_PHASES.get(release.phase, Style.YELLOW)),
    )
    versions, suspended = render_versions(release), ", suspended" if release.is_suspended else ""
    whole: Line = (*head, (one_line(f"  {versions}"), Style.PLAIN), (suspended, Style.RED))
    if sum(len(text) for text, _ in whole) <= layout.width:
        yield whole
        return
    yield head
    yield from wrap_text(f"{versions}{suspended}", layout, indent=2)


def _draw_bake(release: ReleaseDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    if release.bake_ends is not None:
        left = render_age(release.bake_ends - now)
        yield from _draw_labelled("bake", f"is over in {left}, if nothing fails", layout)
    if release.deadline is not None:
        left = render_age(release.deadline - now)
        yield from _draw_labelled("bake", f"has to start in {left}", layout)
    for deployment in release.history[:1]:
        for text in deployment.failed_checks:
            yield from _draw_labelled("error", text, layout)


def _draw_places(release: ReleaseDescription, layout: StatusLayout) -> Iterator[Line]:
    """Yield gates, health and objects of Flux: all of them, or only those with a problem."""
    for gate in release.gates:
        if layout.is_wide or not gate.is_passing or gate.allowed is not None:
            yield from _draw_labelled("gate", render_gate(gate), layout)
    for check in release.checks:
        if layout.is_wide or check.status != _HEALTHY:
            yield from _draw_labelled("check", render_check(check), layout)
    for target in release.targets:
        if layout.is_wide or target.waiting_for or target.tag not in (release.tag, None):
            yield from _draw_labelled("flux", render_target(target), layout)


def _draw_rest(release: ReleaseDescription, layout: StatusLayout) -> Iterator[Line]:
    if release.policy:
        announced = release.announced or "nothing"
        yield from _draw_labelled(
            "from", f"ImagePolicy {release.policy} announced {announced}", layout
        )
    if release.candidates:
        yield from _draw_labelled("newer", join_names(release.candidates, shown=10), layout)
    for deployment in release.history:
        yield from _draw_labelled("was", render_deployment(deployment), layout)
    yield from draw_conditions(release.conditions, layout)
