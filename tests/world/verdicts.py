"""Judge a history: which safety invariants did the operator's disruptions break?

Pure: records in, violations out. SI-01 to SI-04 and SI-06 to SI-08 are checked at the commit of
each delete, on the state just before it; what budgets ask of deletes and evictions is checked at
the same moment, by `budget_verdicts`.

Two allowances separate faults of the operator from coincidence. `known` (SI-02, SI-03, SI-07):
a fact counts once it is that old. `flight` (SI-07, SI-08): the state of a StatefulSet counts once
it is that old, since no precondition of a pod delete can speak about a StatefulSet.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tests.judge.objects import Change, Delete, Eviction, Pod, Set
from tests.world.budget_verdicts import Terms, judge_by_budget
from tests.world.situation import Disruption, Situation

KNOWN: Final = timedelta(seconds=5)
# A write is seen some moments after its commit, more of them on a busy machine.
SEEN_LATE: Final = timedelta(seconds=5)
# A template may change between the operator's last look and the commit of its delete.
FLIGHT: Final = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken promise."""

    invariant: str
    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """How old a fact must be before the operator has to know it."""

    known: timedelta = KNOWN
    flight: timedelta = FLIGHT
    are_recorded: bool = True
    """Whether the operator may write the records of SI-17."""


def find_violations(
    changes: Sequence[Change],
    deletes: Sequence[Delete],
    *,
    namespace: str,
    allowances: Allowances = Allowances(),
    evicted: frozenset[int] = frozenset(),
) -> list[Violation]:
    """Return the violations in the order of the history; those without a commit come first.

    `changes` are all writes of StatefulSets, pods and budgets in order of version, `deletes` all
    pod deletes of the operator, refused ones included. `evicted` are the versions of the writes by
    which evictions began the end of pods: of these only pods under a budget are judged.
    """
    found = [violation for delete in deletes for violation in _requests(delete, namespace)]
    world = Situation()
    commits = list_commits(changes, deletes)
    for change in changes:
        pod = committed_pod(change)
        if pod is not None and change.version in commits:
            found += _judge(world, pod, change.at, allowances)
            _disrupt(world, pod)
        elif pod is not None and change.version in evicted and world.rules(pod, change.at):
            found += _judge_eviction(world, pod, change.at, allowances)
            _disrupt(world, pod, is_eviction=True)
        world.take(change)
    return found


def committed_pod(change: Change) -> Pod | None:
    """Return the pod whose end this write began: marked as terminating, or gone at once."""
    if not isinstance(change.before, Pod) or change.before.is_terminating:
        return None
    if isinstance(change.now, Pod) and not change.now.is_terminating:
        return None
    return change.before


def list_commits(changes: Sequence[Change], deletes: Iterable[Delete]) -> set[int]:
    """Return the versions of the writes by which these deletes began the end of pods.

    The answer to a delete shows the version of that write, or where the pod is gone at once, as
    one without a node is, that of its removal: the server then marks and removes it in two writes.
    """
    answers = {(each.uid, each.version) for each in deletes if each.is_done}
    removals = {
        change.before.uid: change.version
        for change in changes
        if isinstance(change.before, Pod) and change.now is None
    }
    return {
        change.version
        for change in changes
        if (pod := committed_pod(change)) is not None
        and not answers.isdisjoint(
            {(pod.uid, change.version), (pod.uid, removals.get(pod.uid, change.version))}
        )
    }


def list_evicted(
    changes: Sequence[Change], evictions: Sequence[Eviction], wall_offset: float
) -> frozenset[int]:
    """Return the versions of the writes by which these evictions began the end of pods.

    An answer to an eviction shows no version: name and time must do. A pod ends only once.
    """
    late = SEEN_LATE.total_seconds()
    done = [each for each in evictions if each.is_done]
    return frozenset(
        change.version
        for change in changes
        if (pod := committed_pod(change)) is not None
        and any(
            each.name == pod.name
            and each.received - wall_offset <= change.at <= each.answered - wall_offset + late
            for each in done
        )
    )


def _requests(delete: Delete, namespace: str) -> Iterator[Violation]:
    """Check what the request alone shows, whether it was granted or not."""
    name = f"{delete.namespace}/{delete.name}"
    if delete.namespace != namespace:
        yield Violation(invariant="SI-06", text=f"delete of {name} in a foreign namespace", at=0.0)
    if not delete.name:
        yield Violation(invariant="SI-07", text="delete of a whole collection of pods", at=0.0)
    # The audit log keeps no body of a request that the role forbids.
    elif delete.code != 403 and not (delete.asked_uid and delete.asked_version):
        text = (
            f"delete of {name} with uid {delete.asked_uid or 'unset'} and resourceVersion"
            f" {delete.asked_version or 'unset'} as preconditions"
        )
        yield Violation(invariant="SI-07", text=text, at=0.0)


def _judge(world: Situation, pod: Pod, at: float, allowances: Allowances) -> Iterator[Violation]:
    """Check one delete on the state just before its commit."""
    owner = world.sets.get(pod.owner)
    if owner is None or owner.group is None:
        why = "has no group" if owner else "is no StatefulSet's"
        yield Violation(invariant="SI-06", text=f"delete of {pod.name}, which {why}", at=at)
        return
    for invariant, check in CHECKS.items():
        for text in check(world, pod, owner, at, allowances):
            yield Violation(invariant=invariant, text=f"delete of {pod.name}: {text}", at=at)
    yield from _judge_by_budget(world, pod, at, allowances, is_eviction=False)


def _judge_eviction(
    world: Situation, pod: Pod, at: float, allowances: Allowances
) -> Iterator[Violation]:
    if pod.owner not in world.sets:
        yield Violation(
            invariant="SI-06", text=f"eviction of {pod.name}, which is no zone's", at=at
        )
    yield from _judge_by_budget(world, pod, at, allowances, is_eviction=True)


def _judge_by_budget(
    world: Situation, pod: Pod, at: float, allowances: Allowances, *, is_eviction: bool
) -> Iterator[Violation]:
    terms = Terms(
        at=at,
        known=allowances.known,
        is_eviction=is_eviction,
        are_recorded=allowances.are_recorded,
    )
    what = "eviction" if is_eviction else "delete"
    for invariant, text in judge_by_budget(world, pod, terms):
        yield Violation(invariant=invariant, text=f"{what} of {pod.name}: {text}", at=at)


def _one_zone(
    world: Situation, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    # A zone that has left the group in mid-disruption is no zone of it any more.
    members = {zone.uid for zone in world.zones(owner.group or "")} - {owner.uid}
    # Partitions are whole apart from one another: of evictions then only SI-05 speaks.
    by_partition = any(rule.budget.pattern for rule in world.rules(pod, at))
    others = [
        each.pod
        for each in world.open
        if each.owner in members and not (each.is_eviction and by_partition)
    ]
    if others:
        yield f"the operator's disruption of another zone is not over: {', '.join(others)}"


def _others_whole(
    world: Situation, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    for zone in world.zones(owner.group or ""):
        if zone.uid == owner.uid:
            continue
        for name in world.short(zone, at - allowances.known.total_seconds()):
            yield f"{name} has been unavailable for {at - world.short_since[name]:.1f} s"


def _within_limit(
    world: Situation, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    if not world.is_available(pod.name):
        return  # it was down anyway: the count does not rise
    missing = {pod.name, *world.short(owner, at - allowances.known.total_seconds())}
    missing |= {each.pod for each in world.open if each.owner == owner.uid}
    limit = _limit(world, owner, at, allowances)
    if len(missing) > limit:
        yield f"{len(missing)} of {owner.name} missing, limit {limit}: {sorted(missing)}"


def _strictly_within_limit(
    world: Situation, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    if not world.is_available(pod.name):
        return
    open_ones = {
        each.pod for each in world.open if each.owner == owner.uid and each.was_available
    } | {pod.name}
    limit = _limit(world, owner, at, allowances)
    if len(open_ones) > limit:
        yield f"{len(open_ones)} disruptions in {owner.name} at once, limit {limit}"


def _right_pod(
    world: Situation, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    flight = world.window(owner.uid, at - allowances.flight.total_seconds())
    if all(pod.revision == each.update_revision for each in flight):
        yield f"it is on the update revision {pod.revision} already"
    known = world.window(owner.uid, at - allowances.known.total_seconds())
    if all(each.is_paused for each in known):
        yield f"{owner.name} is paused"


def _sets_fit(
    world: Situation, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    tests: dict[str, Callable[[Set], bool]] = {
        "has another strategy than OnDelete": lambda each: each.strategy != "OnDelete",
        "has a status that lags": lambda each: each.observed < each.generation,
        "has no update revision": lambda each: not each.update_revision,
    }
    since = at - allowances.flight.total_seconds()
    for zone in world.zones(owner.group or ""):
        if zone.uid != owner.uid and world.past[zone.uid][0][0] > since:
            continue  # a zone that young is not known
        flight = world.window(zone.uid, since)
        for what, is_so in tests.items():
            if all(is_so(each) for each in flight):
                yield f"{zone.name} {what}"


_Check = Callable[[Situation, Pod, Set, float, Allowances], Iterator[str]]
CHECKS: Final[dict[str, _Check]] = {
    "SI-01": _one_zone,
    "SI-02": _others_whole,
    "SI-03": _within_limit,
    "SI-04": _strictly_within_limit,
    "SI-07": _right_pod,
    "SI-08": _sets_fit,
}


def _limit(world: Situation, owner: Set, at: float, allowances: Allowances) -> int:
    # A limit lowered a moment ago is not yet known: the highest of the recent ones counts.
    recent = world.window(owner.uid, at - allowances.known.total_seconds())
    return max([owner.limit, *(each.limit for each in recent)])


def _disrupt(world: Situation, pod: Pod, *, is_eviction: bool = False) -> None:
    owner = world.sets.get(pod.owner)
    if owner is not None and (owner.group is not None or is_eviction):
        world.open.append(
            Disruption(
                pod=pod.name,
                uid=pod.uid,
                owner=owner.uid,
                zone=owner.name,
                group=owner.group or "",
                was_available=world.is_available(pod.name),
                is_eviction=is_eviction,
            )
        )
