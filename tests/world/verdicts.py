"""Judge a history: which safety invariants did the operator's deletes break?

Pure: records in, violations out. SI-01 to SI-04 and SI-06 to SI-08 are checked at the commit of
each delete, on the state just before it. SI-05 (partitions) belongs to budgets and is not here.

Two allowances separate faults of the operator from coincidence. `known` (SI-02, SI-03, SI-07):
a fact counts once it is that old. `flight` (SI-07, SI-08): the state of a StatefulSet counts once
it is that old, since no precondition of a pod delete can speak about a StatefulSet.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tests.world.history import Change, Delete, Pod, Set

KNOWN: Final = timedelta(seconds=5)
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


@dataclass(slots=True)
class _Disruption:
    """From the commit of a delete until a new pod of that name is ready, or it is not wanted."""

    pod: str
    uid: str
    owner: str
    zone: str
    group: str
    was_available: bool


@dataclass(slots=True)
class _World:
    """The state that the history has led to."""

    sets: dict[str, Set] = field(default_factory=dict)
    """By UID."""
    past: dict[str, list[tuple[float, Set]]] = field(default_factory=dict)
    """By UID: each state of a set and when it began."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """By name."""
    wanted: set[str] = field(default_factory=set)
    """Names of the pods that the sets want."""
    short_since: dict[str, float] = field(default_factory=dict)
    """By pod name: since when a wanted ordinal has been unavailable without a break."""
    open: list[_Disruption] = field(default_factory=list)

    def take(self, change: Change) -> None:
        """Move on by one write."""
        match change.now or change.before:
            case Set(uid=uid):
                if isinstance(change.now, Set):
                    self.sets[uid] = change.now
                    self.past.setdefault(uid, []).append((change.at, change.now))
                else:
                    self.sets.pop(uid, None)
            case Pod(name=name) if isinstance(change.now, Pod):
                self.pods[name] = change.now
            case Pod(name=name):
                self.pods.pop(name, None)
            case _:
                return
        self._note_shortage(change)
        self.open = [each for each in self.open if self._lasts(each)]

    def is_available(self, name: str) -> bool:
        """Say whether a ready pod of that name exists and stays."""
        pod = self.pods.get(name)
        return pod is not None and pod.is_ready and not pod.is_terminating

    def zones(self, group: str) -> list[Set]:
        """Return the sets of a group."""
        return [each for each in self.sets.values() if each.group == group]

    def window(self, uid: str, since: float) -> list[Set]:
        """Return the states that a set was in from `since` on, the one then current included."""
        states = self.past.get(uid, [])
        begun = [index for index, (at, _) in enumerate(states) if at <= since]
        return [state for _, state in states[begun[-1] if begun else 0 :]]

    def _note_shortage(self, change: Change) -> None:
        match change.before, change.now:
            case Pod(name=name), _:
                self._note(name, change.at)
            case _, Pod(name=name):
                self._note(name, change.at)
            case (Set() | None) as before, (Set() | None) as now:
                old = before.pod_names if before else ()
                new = now.pod_names if now else ()
                if old == new:
                    return
                self.wanted.difference_update(old)
                self.wanted.update(new)
                for name in {*old, *new}:
                    self._note(name, change.at)

    def _note(self, name: str, at: float) -> None:
        if name not in self.wanted or self.is_available(name):
            self.short_since.pop(name, None)
        else:
            self.short_since.setdefault(name, at)

    def _lasts(self, disruption: _Disruption) -> bool:
        zone = self.sets.get(disruption.owner)
        if zone is None or disruption.pod not in zone.pod_names:
            return False
        pod = self.pods.get(disruption.pod)
        return pod is None or pod.uid == disruption.uid or not self.is_available(disruption.pod)


def find_violations(
    changes: Sequence[Change],
    deletes: Sequence[Delete],
    *,
    namespace: str,
    allowances: Allowances = Allowances(),
) -> list[Violation]:
    """Return the violations in the order of the history; those without a commit come first.

    `changes` are all writes of StatefulSets and pods in order of version, `deletes` all pod
    deletes of the operator, refused ones included.
    """
    found = [violation for delete in deletes for violation in _requests(delete, namespace)]
    world = _World()
    commits = list_commits(changes, deletes)
    for change in changes:
        pod = committed_pod(change)
        if pod is not None and change.version in commits:
            found += _judge(world, pod, change.at, allowances)
            _disrupt(world, pod)
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


def _judge(world: _World, pod: Pod, at: float, allowances: Allowances) -> Iterator[Violation]:
    """Check one delete on the state just before its commit."""
    owner = world.sets.get(pod.owner)
    if owner is None or owner.group is None:
        why = "has no group" if owner else "is no StatefulSet's"
        yield Violation(invariant="SI-06", text=f"delete of {pod.name}, which {why}", at=at)
        return
    for invariant, check in CHECKS.items():
        for text in check(world, pod, owner, at, allowances):
            yield Violation(invariant=invariant, text=f"delete of {pod.name}: {text}", at=at)


def _one_zone(
    world: _World, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    # A zone that has left the group in mid-disruption is no zone of it any more.
    members = {zone.uid for zone in world.zones(owner.group or "")} - {owner.uid}
    others = [each.pod for each in world.open if each.owner in members]
    if others:
        yield f"the operator's disruption of another zone is not over: {', '.join(others)}"


def _others_whole(
    world: _World, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    for zone in world.zones(owner.group or ""):
        if zone.uid == owner.uid:
            continue
        for name in _short(world, zone, at - allowances.known.total_seconds()):
            yield f"{name} has been unavailable for {at - world.short_since[name]:.1f} s"


def _within_limit(
    world: _World, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    if not world.is_available(pod.name):
        return  # it was down anyway: the count does not rise
    missing = {pod.name, *_short(world, owner, at - allowances.known.total_seconds())}
    missing |= {each.pod for each in world.open if each.owner == owner.uid}
    limit = _limit(world, owner, at, allowances)
    if len(missing) > limit:
        yield f"{len(missing)} of {owner.name} missing, limit {limit}: {sorted(missing)}"


def _strictly_within_limit(
    world: _World, pod: Pod, owner: Set, at: float, allowances: Allowances
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
    world: _World, pod: Pod, owner: Set, at: float, allowances: Allowances
) -> Iterator[str]:
    flight = world.window(owner.uid, at - allowances.flight.total_seconds())
    if all(pod.revision == each.update_revision for each in flight):
        yield f"it is on the update revision {pod.revision} already"
    known = world.window(owner.uid, at - allowances.known.total_seconds())
    if all(each.is_paused for each in known):
        yield f"{owner.name} is paused"


def _sets_fit(
    world: _World, pod: Pod, owner: Set, at: float, allowances: Allowances
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


_Check = Callable[[_World, Pod, Set, float, Allowances], Iterator[str]]
CHECKS: Final[dict[str, _Check]] = {
    "SI-01": _one_zone,
    "SI-02": _others_whole,
    "SI-03": _within_limit,
    "SI-04": _strictly_within_limit,
    "SI-07": _right_pod,
    "SI-08": _sets_fit,
}


def _short(world: _World, zone: Set, before: float) -> list[str]:
    """Return the wanted pods of a zone that have been unavailable since `before` or longer."""
    return [
        name
        for name in zone.pod_names
        if name in world.short_since and world.short_since[name] <= before
    ]


def _limit(world: _World, owner: Set, at: float, allowances: Allowances) -> int:
    # A limit lowered a moment ago is not yet known: the highest of the recent ones counts.
    recent = world.window(owner.uid, at - allowances.known.total_seconds())
    return max([owner.limit, *(each.limit for each in recent)])


def _disrupt(world: _World, pod: Pod) -> None:
    owner = world.sets.get(pod.owner)
    if owner is not None and owner.group is not None:
        world.open.append(
            _Disruption(
                pod=pod.name,
                uid=pod.uid,
                owner=owner.uid,
                zone=owner.name,
                group=owner.group,
                was_available=world.is_available(pod.name),
            )
        )
