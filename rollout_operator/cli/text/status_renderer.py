"""The tables of `status`: 80 columns, or as many as there are.

Layout only: every sentence is the description's. Pure: the same description gives the same lines.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from rollout_operator.cli.text.layout import (
    StatusLayout,
    draw_head,
    draw_labelled,
    draw_waits,
    render_age,
    wrap_text,
)
from rollout_operator.cli.text.policies import draw_policy
from rollout_operator.cli.text.releases import draw_checks, draw_release, draw_schedules
from rollout_operator.lab.lines import BLANK, Line, Style
from rollout_operator.model.description import (
    ELECTION_PART,
    BudgetDescription,
    Description,
    GroupDescription,
    OperatorDescription,
    Phase,
    PodDescription,
    PodState,
    Step,
    ZoneDescription,
)
from rollout_operator.planning.description.phase import list_worst_first, list_worst_releases
from rollout_operator.planning.description.policies import list_worst_policies
from rollout_operator.planning.wording import count, one_line

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
