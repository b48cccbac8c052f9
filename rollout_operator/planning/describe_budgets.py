"""One disruption budget as people see it, and as its `status`: is it obeyed, how many pods may go.

Numbers and words are those of `planning.budgets`, which answers evictions. How many more may go is
the most that could, one after the other and well chosen, if nothing else changed: by zone those of
the zone with most room, by partition those of all partitions together. Where the names of pods are
doubtful it is less.

`Valid` says that the newest version of the spec is in force. `Ready` is false where a person must
change something; a budget that is used up, or allows nothing, is ready.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import BudgetStatus, BudgetVersions
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LEFT_OUT, Pod, Zone, selects
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.planning.budgets import (
    BudgetSnapshot,
    Decisions,
    Refusal,
    Survey,
    choose_budget,
    find_partition,
)
from rollout_operator.planning.conditions import ConditionFinding, stamp_conditions
from rollout_operator.planning.describe_groups import describe_reason
from rollout_operator.planning.readiness import order_zones
from rollout_operator.planning.wording import NAMES_SHOWN, camel_case, count, cut, join_names, verb

# Of many zones and partitions that are short a person reads the first few.
_MOST_WAITS: Final = 3
_VALID: Final = "Valid"
READY: Final = "Ready"
_IN_FORCE: Final = "the budget is in force as it is written"


def describe_budget(
    versions: BudgetVersions, snapshot: BudgetSnapshot | None, others: Iterable[BudgetVersions] = ()
) -> BudgetDescription:
    """Return a budget as it is now.

    `snapshot` shows its zones, about no pod in particular; None where it cannot be known what the
    budget selects. `others` are the other budgets of the namespace.
    """
    seen = _Scope() if snapshot is None else _observe(versions, snapshot, others)
    room = _Room() if snapshot is None or versions.budget is None else _measure(snapshot, seen)
    # What only a person changes is shown even where other pods may go.
    holding = [
        blocker
        for blocker in room.blockers
        if room.allowed == 0 or blocker.severity is Severity.ERROR
    ]
    waits = _shorten((*_list_problems(versions, seen), *holding))
    return BudgetDescription(
        name=versions.name,
        is_valid=not versions.problem,
        maximum="" if versions.budget is None else versions.budget.maximum,
        zones=seen.zones,
        pods=seen.pods,
        unavailable=seen.unavailable,
        allowed=room.allowed,
        text=cut(waits[0].text if waits else _explain_room(seen, room)),
        waits=tuple(map(describe_reason, waits)),
    )


def list_rivals(
    versions: BudgetVersions, others: Iterable[BudgetVersions]
) -> tuple[BudgetVersions, ...]:
    """Return the budgets that may select a pod of this budget: no label speaks against it."""
    return tuple(
        other
        for other in others
        if other.name != versions.name
        and any(_agree(selector, two) for selector in versions.selectors for two in other.selectors)
    )


def _agree(selector: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(other.get(key, value) == value for key, value in selector.items())


class _Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget selects, and what of it counts as down."""

    zones: int = 0
    owned: int = 0
    """Pods of its zones, whatever their labels are."""
    pods: int = 0
    """Those of them that it selects."""
    unavailable: int = 0
    surveys: dict[Uid, Survey] = {}
    standing: Mapping[Uid, Sequence[Pod]] = {}
    """Pods of each zone that are up, and under this budget alone."""
    problem: Refusal | None = None
    """Why the first pod that it selects is under no budget that could be obeyed."""


class _Room(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods may go, where, and what holds the others."""

    allowed: int = 0
    places: Mapping[str, int] = {}
    """How many may go of each zone, or partition, that has room."""
    total: int = 0
    """Number of zones, or of partitions, with pods that are up."""
    by_partition: bool = False
    blockers: tuple[Reason, ...] = ()


def _observe(
    versions: BudgetVersions, snapshot: BudgetSnapshot, others: Iterable[BudgetVersions]
) -> _Scope:
    surveys: dict[Uid, Survey] = {}
    decisions, rivals = Decisions(snapshot, surveys), list_rivals(versions, others)
    standing: dict[Uid, Sequence[Pod]] = {}
    owned = pods = unavailable = 0
    problem: Refusal | None = None
    for zone in order_zones(snapshot.zones):
        survey = decisions.survey(zone)
        unavailable += survey.zone_count(None).total
        mine = [
            pod for pod in zone.own_pods if any(selects(s, pod.labels) for s in versions.selectors)
        ]
        shared = {
            pod.uid: shared_pod
            for pod in mine
            if (shared_pod := _find_shared_pod(versions, rivals, pod))
        }
        problem = problem or next(iter(shared.values()), None)
        standing[zone.sts.uid] = [
            pod
            for pod in mine
            if pod.is_ready
            and pod.uid not in shared
            and not survey.has_down(pod.uid)
            and selects(snapshot.budget.selector, pod.labels)
        ]
        owned, pods = owned + len(zone.own_pods) + len(zone.own_unreadable), pods + len(mine)
    return _Scope(
        zones=len(snapshot.zones) + len(snapshot.unreadable),
        owned=owned,
        pods=pods,
        unavailable=unavailable,
        surveys=surveys,
        standing=standing,
        problem=problem,
    )


def _find_shared_pod(
    versions: BudgetVersions, rivals: Sequence[BudgetVersions], pod: Pod
) -> Refusal | None:
    if not rivals and LEFT_OUT not in pod.labels:
        return None
    selecting = (rival.find_state(pod.labels) for rival in (versions, *rivals))
    states = sorted(
        (state for state in selecting if state is not None), key=lambda state: state.name
    )
    choice = choose_budget(states, pod)
    if isinstance(choice, Refusal) and choice.reason.code is Code.BUDGETS_OVERLAP:
        return choice
    return None


def _measure(snapshot: BudgetSnapshot, seen: _Scope) -> _Room:
    blocker = Decisions(snapshot, seen.surveys).assess_any()
    if blocker is not None:
        return _Room(blockers=(blocker.reason,))
    zones = [zone for zone in order_zones(snapshot.zones) if zone.own_pods]
    decisions: dict[Uid | None, Decisions] = {
        zone.sts.uid: _decide(snapshot, seen, zone) for zone in zones
    }
    if snapshot.budget.by_partition:
        return _measure_partitions(snapshot, seen, zones, decisions)
    return _measure_zones(seen, zones, decisions)


def _decide(snapshot: BudgetSnapshot, seen: _Scope, zone: Zone) -> Decisions:
    about = replace(snapshot, pod=_choose_pod(seen, zone), owner=zone.sts.uid)
    return Decisions(about, seen.surveys)


def _choose_pod(seen: _Scope, zone: Zone) -> Pod:
    """Return a pod that stands for its zone: one that is up, if there is any."""
    return next(iter(seen.standing[zone.sts.uid]), zone.own_pods[0])


def _measure_zones(
    seen: _Scope, zones: Sequence[Zone], decisions: Mapping[Uid | None, Decisions]
) -> _Room:
    places: dict[str, int] = {}
    blockers: list[Reason] = []
    for zone in zones:
        decided, standing = decisions[zone.sts.uid], seen.standing[zone.sts.uid]
        refusal = decided.assess(_choose_pod(seen, zone))
        if refusal is not None:
            blockers.append(refusal.reason)
        elif standing:
            left = decided.maximum - decided.survey(zone).zone_count(None).total
            # A pod that is down may be all that is: it does not count for itself.
            places[zone.sts.name] = min(max(left, 0), len(standing))
    places = {name: room for name, room in places.items() if room}
    allowed = max(places.values(), default=0)
    return _Room(allowed=allowed, places=places, total=len(zones), blockers=tuple(blockers))


def _measure_partitions(
    snapshot: BudgetSnapshot,
    seen: _Scope,
    zones: Sequence[Zone],
    decisions: Mapping[Uid | None, Decisions],
) -> _Room:
    standing: dict[str | None, list[Pod]] = {}
    for pod in (pod for zone in zones for pod in seen.standing[zone.sts.uid]):
        standing.setdefault(find_partition(snapshot.budget, pod.name), []).append(pod)
    places: dict[str, int] = {}
    blockers: list[Reason] = []
    for partition, pods in standing.items():
        down = {} if partition is None else _count_down(seen, partition)
        left = decisions[pods[0].owner_uid].maximum - sum(down.values())
        if partition is not None and left > 0:
            places[partition] = min(left, len(pods))
            continue
        # What is down in its own zone does not hold a pod.
        first = max(pods, key=lambda pod: down.get(pod.owner_uid, 0))
        if down.get(first.owner_uid, 0) == 0 and len(blockers) >= _MOST_WAITS:
            continue
        refusal = decisions[first.owner_uid].assess(first)
        if refusal is not None:
            blockers.append(refusal.reason)
        elif partition is not None:
            places[partition] = 1
    return _Room(
        allowed=sum(places.values()),
        places=places,
        total=len(standing),
        by_partition=True,
        blockers=tuple(blockers),
    )


def _count_down(seen: _Scope, partition: str) -> Mapping[Uid | None, int]:
    """Return for each zone how many pods of a partition are not proven up."""
    return {owner: survey.zone_count(partition).total for owner, survey in seen.surveys.items()}


def _list_problems(versions: BudgetVersions, seen: _Scope) -> Iterator[Reason]:
    if versions.problem:
        yield Reason(Code.BUDGET_INVALID, _explain_invalid(versions), Severity.ERROR)
    if seen.problem is not None:
        yield seen.problem.reason
    if versions.selectors and seen.owned and not seen.pods:
        text = (
            f"budget {versions.name} selects {count(seen.zones, 'StatefulSet')} and none of"
            f" {verb(seen.owned, 'its pod', f'their {seen.owned} pods')}: no eviction is held"
        )
        yield Reason(Code.BUDGET_SELECTS_NO_PODS, text, Severity.ERROR)


def _explain_invalid(versions: BudgetVersions) -> str:
    if versions.budget is not None:
        effect = f"the version before, of generation {versions.budget.generation}, stays in force"
    elif versions.flawed_selector is not None:
        effect = "no pod that it selects may go"
    else:
        effect = "what it selects is unknown: it guards nothing"
    return f"budget {versions.name} is not valid: {versions.problem}; {effect}"


def _explain_room(seen: _Scope, room: _Room) -> str:
    """Return what may go, of a budget that nothing holds."""
    up = f"{sum(map(len, seen.standing.values()))} of {count(seen.pods, 'pod')} up"
    if not room.places:
        return f"{count(seen.zones, 'zone')}, and no pod that is up"
    more = f"{room.allowed} more {verb(room.allowed, 'pod', 'pods')} may go"
    if room.by_partition:
        where = f"{len(room.places)} of {count(room.total, 'partition')} have room"
    elif len(room.places) == room.total and len({*room.places.values()}) == 1:
        where = "of any one zone"
    else:
        names = [f"{number} of {name}" for name, number in room.places.items()]
        where = f"of one zone alone ({join_names(names, shown=NAMES_SHOWN)})"
    held = f"; {room.blockers[0].text}" if room.blockers else f"; {up}"
    return f"{more}{': ' if room.by_partition else ', '}{where}{held}"


def _shorten(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple({reason.text: reason for reason in reasons}.values())[:_MOST_WAITS]


def render_budget_status(
    described: BudgetDescription, generation: int, *, before: BudgetStatus, now: datetime
) -> BudgetStatus:
    """Return the status of a budget of this generation; `before` is the status that it replaces.

    From that it keeps the times of conditions that hold on, and the conditions of other writers.
    """
    lead = _choose_lead(described)
    is_ready = all(wait.severity is not Severity.ERROR for wait in described.waits)
    flaw = next((wait for wait in described.waits if wait.code is Code.BUDGET_INVALID), None)
    code, text = (Code.BUDGET_VALID, _IN_FORCE) if flaw is None else (flaw.code, flaw.text)
    findings = (
        ConditionFinding(_VALID, described.is_valid, camel_case(code), text),
        ConditionFinding(READY, is_ready, camel_case(lead), described.text),
    )
    return BudgetStatus(
        observed_generation=generation,
        zones=described.zones,
        pods=described.pods,
        current_unavailable=described.unavailable,
        allowed_disruptions=described.allowed,
        conditions=stamp_conditions(
            findings, before.conditions, types=(_VALID, READY), generation=generation, now=now
        ),
    )


def _choose_lead(described: BudgetDescription) -> Code:
    if described.waits:
        return described.waits[0].code
    return Code.BUDGET_HAS_ROOM if described.allowed else Code.BUDGET_VALID
