"""One MultiAZRollout as HTML: what it waits for, its zones in order, its batch and conditions.

The description says all of it. What is left out is counted, and stands in `/status.json`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from rollout_operator.model.description import (
    BatchDescription,
    PolicyDescription,
    PolicyZoneDescription,
)
from rollout_operator.planning.description.policies import has_stalled, is_held
from rollout_operator.planning.description.text import render_policy_set
from rollout_operator.web.status.group import (
    MOST_REASONS,
    MOST_ZONES,
    render_code,
    render_remedy,
    render_waiting,
)
from rollout_operator.web.status.markup import (
    escape,
    make_policy_anchor,
    render_condition,
    render_fact,
    render_icon,
    render_items,
    render_rest,
    render_time,
)

MOST_BATCH_PODS: Final = 20
MOST_SETS: Final = 20
# Phases of the resource by the icons of groups.
_ICONS: Final[Mapping[str, str]] = {
    "Idle": "done",
    "Progressing": "moving",
}


def render_policy(policy: PolicyDescription) -> str:
    """Return the section of a MultiAZRollout."""
    name, icon = escape(policy.title), _choose_icon(policy)
    code = f" {render_code(policy.code)}" if policy.code is not None else ""
    remedy = render_remedy(policy.waits[0].remedy) if policy.waits else ""
    zones = "".join(_list_zones(policy))
    return (
        f'<article class="card {icon}" id="{make_policy_anchor(policy.title)}">'
        f'<header><h2 title="{name}">MultiAZRollout {name}</h2>'
        f'<span class="phase {icon}">{render_icon(icon)}{escape(policy.phase or "-")}'
        f"{', stalled' if has_stalled(policy) else ''}</span>"
        f'</header><p class="headline">{escape(policy.headline)}{code}</p>'
        f'{remedy}{_render_figures(policy)}<div class="facts">{"".join(_list_facts(policy))}</div>'
        f'<div class="zones">{zones}</div></article>'
    )


def _render_figures(policy: PolicyDescription) -> str:
    """Return how many pods there are; nothing where none were ever counted."""
    if not policy.desired and not policy.zones:
        return ""
    return (
        f'<p class="figures"><b>{policy.updated} of {policy.desired}</b>'
        f' pods updated <span class="dot">·</span> <b>{policy.ready} of {policy.desired}</b> ready'
        "</p>"
    )


def _choose_icon(policy: PolicyDescription) -> str:
    return "held" if is_held(policy) else _ICONS.get(policy.phase, "waiting")


def _list_facts(policy: PolicyDescription) -> Iterator[str]:
    batch = [] if policy.batch is None else [_render_batch(policy.batch)]
    if policy.next_batch is not None:
        batch.append(f"next batch {render_time(policy.next_batch, 'in')}")
    if policy.is_paused:
        batch.append("paused")
    yield render_fact("Batch", batch)
    yield render_fact("Waits for", map(render_waiting, policy.waits[1:MOST_REASONS]))
    yield render_fact("Replaces the pods of", map(escape, policy.groups[:MOST_SETS]))
    unknown = map(escape, policy.unknown_zones[:MOST_ZONES])
    yield render_fact("No StatefulSet, but in azOrder", unknown)
    yield render_fact("Conditions", map(render_condition, policy.conditions))


def _render_batch(batch: BatchDescription) -> str:
    shown = ", ".join(map(escape, batch.pods[:MOST_BATCH_PODS]))
    rest = len(batch.pods) - MOST_BATCH_PODS
    pods = f"{shown} and {rest} more" if rest > 0 else shown
    state = "open"
    if batch.completed is not None:
        state = f"complete {render_time(batch.completed, 'ago')}"
    elif batch.began is not None:
        state = f"open {render_time(batch.began, 'for')}"
    return f"batch {batch.number} in <b>{escape(batch.zone)}</b>: {pods}, {state}"


def _list_zones(policy: PolicyDescription) -> Iterator[str]:
    for zone in policy.zones[:MOST_ZONES]:
        yield _render_zone(zone)
    yield render_rest(len(policy.zones) - MOST_ZONES, "zones")


def _render_zone(zone: PolicyZoneDescription) -> str:
    name = escape(zone.name)
    turn = f' <span class="mark turn">{render_icon("turn")}its turn</span>'
    mark = turn if zone.state == "Updating" else f' <span class="mark">{escape(zone.state)}</span>'
    rows = render_items((escape(render_policy_set(sts)) for sts in zone.sets[:MOST_SETS]), "plain")
    outdated = sum(sts.outdated for sts in zone.sets)
    unavailable = sum(sts.unavailable for sts in zone.sets)
    return (
        f'<div class="zone"><div class="zone-head"><b class="zone-name" title="{name}">'
        f'{zone.order}. {name}</b>{mark}</div><div class="pods">{rows}</div>'
        f'<div class="zone-figures"><b>{outdated}</b> outdated'
        f"<span>{unavailable} unavailable</span></div></div>"
    )
