"""The lines of `status` and `explain` about a MultiAZRollout. Sentences are the description's."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rollout_operator.cli.text.layout import (
    StatusLayout,
    draw_conditions,
    draw_head,
    draw_labelled,
    draw_waits,
    render_age,
    wrap_text,
)
from rollout_operator.lab.lines import Line, Style
from rollout_operator.model.description import PolicyDescription, PolicyZoneDescription
from rollout_operator.planning.description.policies import has_stalled
from rollout_operator.planning.description.text import render_batch
from rollout_operator.planning.wording import join_names, one_line

_STYLES: Final = {"Idle": Style.GREEN, "Blocked": Style.RED, "Invalid": Style.RED}
_LONGEST_NAME: Final = 24


def draw_policy(policy: PolicyDescription, now: datetime, layout: StatusLayout) -> Iterator[Line]:
    """Yield the lines about one MultiAZRollout."""
    yield from draw_head(_title(policy), _render_numbers(policy), layout)
    if layout.is_terse and policy.phase == "Idle":
        return
    code = f" [{policy.code}]" if policy.code is not None else ""
    yield from wrap_text(f"{policy.headline}{code}", layout, indent=2)
    first = policy.waits[0] if policy.waits else None
    is_shown = first is not None and (first.code, first.text) == (policy.code, policy.headline)
    if first is not None and is_shown and first.remedy and not layout.is_terse:
        yield from wrap_text(first.remedy, layout, indent=4, style=Style.FAINT)
    yield from _draw_zones(policy, layout)
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


def _render_numbers(policy: PolicyDescription) -> str:
    """Return how many pods there are; nothing where none were ever counted."""
    if not policy.desired and not policy.zones:
        return ""
    total = policy.desired
    return f"  {policy.ready}/{total} ready  {policy.updated}/{total} updated"


def _title(policy: PolicyDescription) -> Line:
    return (
        (one_line(f"MultiAZRollout {policy.title}"), Style.BOLD),
        ("  ", Style.PLAIN),
        (policy.phase or "not decided", _STYLES.get(policy.phase, Style.YELLOW)),
        (", stalled" if has_stalled(policy) else "", Style.RED),
    )


def _draw_zones(policy: PolicyDescription, layout: StatusLayout) -> Iterator[Line]:
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
    return min(max(len(title), *map(len, names)), _LONGEST_NAME)
