"""Changes between two snapshots, one line each: for pipes, logs and `wait`."""

from collections.abc import Iterator, Mapping, Sequence

from rollout_operator.model.description import Description, GroupDescription, ZoneDescription
from rollout_operator.planning.description.release_text import (
    render_health_check,
    render_release,
    render_schedule,
)
from rollout_operator.planning.description.text import render_policy
from rollout_operator.planning.wording import one_line


def map_facts(description: Description, remarks: Sequence[str] = ()) -> Mapping[str, str]:
    """Return a line for each group, zone and budget of a namespace, by its subject.

    Nothing in it changes with time alone: the same state gives the same lines.
    """
    where = description.namespace
    facts = dict(_list_groups(description))
    for policy in description.list_policies():
        facts[f"{where} policy {policy.name}"] = render_policy(policy)
    for release in description.list_releases():
        facts[f"{where} release {release.name}"] = render_release(release)
    for schedule in description.list_schedules():
        facts[f"{where} {schedule.title}"] = render_schedule(schedule)
    for check in description.list_checks():
        facts[f"{where} health {check.title}"] = render_health_check(check)
    for budget in description.budgets:
        code = f" [{budget.waits[0].code}]" if budget.waits else ""
        facts[f"{where} budget {budget.name}"] = f"budget {budget.name}: {budget.text}{code}"
    if remarks:
        facts[f"{where} notes"] = "; ".join(remarks)
    return {about: one_line(text) for about, text in facts.items()}


def list_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that are new or different, then those that are gone."""
    yield from (text for about, text in now.items() if before.get(about) != text)
    yield from (one_line(f"{about} is gone") for about in before if about not in now)


def render_group_line(group: GroupDescription, what: str = "group") -> str:
    """Return a group in one line, or a `what` that is described as a group."""
    ready = f"{group.ready}/{group.desired} ready, {group.updated}/{group.desired} updated"
    code = "" if group.code is None else f" [{group.code}]"
    return one_line(f"{what} {group.name}: {group.phase}, {ready}: {group.headline}{code}")


def _list_groups(description: Description) -> Iterator[tuple[str, str]]:
    for group in description.groups:
        yield f"{description.namespace} group {group.name}", render_group_line(group)
        for zone in group.zones:
            yield f"{description.namespace} zone {zone.name}", _render_zone(zone)


def _render_zone(zone: ZoneDescription) -> str:
    paused = ", paused" if zone.is_paused else ""
    numbers = f"{zone.ready}/{zone.desired} ready, {zone.updated}/{zone.desired} updated"
    return f"zone {zone.name}: {numbers}{paused}"
