"""The state that a history has led to, and the disruptions that are not over in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.judge.objects import Budget, Change, Pod, Set

State = TypeVar("State")


@dataclass(slots=True)
class Disruption:
    """From the commit of a delete until a new pod of that name is ready, or it is not wanted."""

    pod: str
    uid: str
    owner: str
    zone: str
    group: str
    was_available: bool
    is_eviction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a budget asks for, and has asked for long enough to be known."""

    budget: Budget
    limit: int
    """The highest of late: a limit lowered a moment ago is not yet known."""


@dataclass(slots=True)
class Situation:
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
    ready_at: dict[str, float] = field(default_factory=dict)
    """By pod name: since when it has been available without a break."""
    budgets: dict[str, list[tuple[float, Budget | None]]] = field(default_factory=dict)
    """By UID: each version of a budget and when it began; None when it is gone."""
    open: list[Disruption] = field(default_factory=list)

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
            case Budget(uid=uid):
                now = change.now if isinstance(change.now, Budget) else None
                self.budgets.setdefault(uid, []).append((change.at, now))
                return
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

    def zones_of(self, budget: Budget) -> list[Set]:
        """Return the sets that a budget selects."""
        return [each for each in self.sets.values() if budget.covers(each.labels)]

    def rules(self, pod: Pod, since: float) -> list[Rule]:
        """Return the budgets that have selected a pod from `since` on, without a break."""
        found = []
        for states in self.budgets.values():
            versions = _window(states, since)
            known = [each for each in versions if each is not None and each.covers(pod.labels)]
            if states[0][0] <= since and len(known) == len(versions):
                limit = max(self._limit_of(each, pod) for each in known)
                found.append(Rule(budget=known[-1], limit=limit))
        return found

    def short(self, zone: Set, before: float) -> list[str]:
        """Return the wanted pods of a zone that have been unavailable since `before` or longer."""
        return [
            name
            for name in zone.pod_names
            if name in self.short_since and self.short_since[name] <= before
        ]

    def _limit_of(self, budget: Budget, pod: Pod) -> int:
        owner = self.sets.get(pod.owner)
        if not budget.percentage or owner is None:
            return budget.maximum
        return max(budget.percentage * owner.replicas // 100, 1)

    def window(self, uid: str, since: float) -> list[Set]:
        """Return the states that a set was in from `since` on, the one then current included."""
        return _window(self.past.get(uid, []), since)

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
        if self.is_available(name):
            self.ready_at.setdefault(name, at)
        else:
            self.ready_at.pop(name, None)
        if name not in self.wanted or self.is_available(name):
            self.short_since.pop(name, None)
        else:
            self.short_since.setdefault(name, at)

    def _lasts(self, disruption: Disruption) -> bool:
        zone = self.sets.get(disruption.owner)
        if zone is None or disruption.pod not in zone.pod_names:
            return False
        pod = self.pods.get(disruption.pod)
        return pod is None or pod.uid == disruption.uid or not self.is_available(disruption.pod)


def _window(states: Sequence[tuple[float, State]], since: float) -> list[State]:
    """Return the states from `since` on, the one then current included."""
    begun = [index for index, (at, _) in enumerate(states) if at <= since]
    return [state for _, state in states[begun[-1] if begun else 0 :]]
