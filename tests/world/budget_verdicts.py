"""Judge one disruption by the budget that covers its pod: SI-01 to SI-05 and SI-17.

Pure: the state just before the commit in, invariants and words out. It holds for evictions that
the operator admitted and for its own deletes; what a group asks for besides is in `verdicts`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tests.judge.objects import Pod, Set
from tests.world.situation import Rule, Situation

# `lastTransitionTime` has whole seconds, rounded down: by it a pod is ready that much earlier.
COARSE: Final = timedelta(seconds=1, milliseconds=500)

Finding = tuple[str, str]
"""Invariant and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a disruption is judged."""

    at: float
    known: timedelta
    """How old a fact must be before the operator has to know it."""
    is_eviction: bool
    are_recorded: bool = True
    """Whether the operator may write records."""

    @property
    def since(self) -> float:
        """Return when the newest fact began that must be known."""
        return self.at - self.known.total_seconds()


def judge_by_budget(world: Situation, pod: Pod, terms: Terms) -> Iterator[Finding]:
    """Yield what the budget of a pod has against its disruption."""
    owner, rules = world.sets.get(pod.owner), world.rules(pod, terms.since)
    if owner is None or not rules or not _is_counted(world, pod, terms):
        return
    if len(rules) > 1:
        yield "SI-03", f"budgets overlap: {[rule.budget.name for rule in rules]}"
        return
    if terms.are_recorded and pod.record != pod.uid:
        yield "SI-17", "no record of it was written on the pod before"
    (rule,) = rules
    if rule.budget.pattern:
        yield from _by_partition(world, pod, rule, terms)
    else:
        yield from _by_zone(world, pod, owner, rule, terms)


def _is_counted(world: Situation, pod: Pod, terms: Terms) -> bool:
    """Say whether something is lost: evictions of what does not run are never refused (ZPDB-54).

    A rollout may replace what is down anyway (D-14).
    """
    return pod.is_running if terms.is_eviction else world.is_available(pod.name)


def _by_zone(world: Situation, pod: Pod, owner: Set, rule: Rule, terms: Terms) -> Iterator[Finding]:
    if terms.is_eviction:  # for deletes the group says the same
        others = {zone.uid: zone for zone in world.zones_of(rule.budget) if zone.uid != owner.uid}
        open_ones = [each.pod for each in world.open if each.owner in others]
        if open_ones:
            yield "SI-01", f"the disruption of another zone is not over: {', '.join(open_ones)}"
        for zone in others.values():
            for name in world.short(zone, terms.since):
                yield "SI-02", f"{name} has been unavailable since {world.short_since[name]:.1f}"
    elif rule.limit == 0:
        return  # ROLL-36: the limit of the group is all there is
    mine = [each for each in world.open if each.owner == owner.uid]
    missing = {pod.name, *world.short(owner, terms.since), *(each.pod for each in mine)}
    if len(missing) > rule.limit:
        yield "SI-03", f"{sorted(missing)} missing, {rule.budget.name} allows {rule.limit}"
    at_once = {each.pod for each in mine if each.was_available} | {pod.name}
    if len(at_once) > rule.limit:
        yield "SI-04", f"{sorted(at_once)} at once, {rule.budget.name} allows {rule.limit}"


def _by_partition(world: Situation, pod: Pod, rule: Rule, terms: Terms) -> Iterator[Finding]:
    budget = rule.budget
    partition = budget.partition(pod.name)
    limit = rule.limit if rule.limit or terms.is_eviction else 1
    if not partition:
        yield "SI-05", f"it is of no partition of {budget.name}"
        return
    at_once = {pod.name} | {
        each.pod
        for each in world.open
        if each.was_available and budget.partition(each.pod) == partition
    }
    if len(at_once) > limit:
        yield "SI-05", f"{sorted(at_once)} at once, {budget.name} allows {limit}"
    down = {
        name
        for zone in world.zones_of(budget)
        for name in (*world.short(zone, terms.since), *_too_fresh(world, zone, rule, terms))
        if zone.uid != pod.owner and budget.partition(name) == partition
    }
    if len(down) >= limit:
        yield "SI-05", f"{sorted(down)} down or too fresh, {budget.name} allows {limit}"


def _too_fresh(world: Situation, zone: Set, rule: Rule, terms: Terms) -> Iterator[str]:
    """Yield the pods of a zone that have not been ready for as long as the budget asks."""
    if not rule.budget.delay:
        return
    ready_by = terms.at - (rule.budget.delay - COARSE).total_seconds()
    for name in zone.pod_names:
        if world.ready_at.get(name, ready_by) > ready_by:
            yield name
