"""What the StatefulSet controller knows: sets, pods and revisions, each perhaps a little behind.

Kinds are behind by themselves, as separate watches are; within one kind nothing changes its order.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final, TypeVar

from rollout_lab.controllers.members import Member, read_member
from rollout_lab.model.fields import controller_of, text
from rollout_lab.model.history import Commit
from rollout_lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_lab.virtual_loop.pace import Range, Timers, draw
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject

Key = tuple[str, str]
"""Namespace and name."""

_WATCHED: Final = (STATEFULSETS.plural, PODS.plural, CONTROLLER_REVISIONS.plural)
_T = TypeVar("_T")
_Owned = dict[str, dict[Key, _T]]


class ControllerCache:
    """The controller's cache. `on_change` is told of each commit when it has got there."""

    def __init__(self, *, timers: Timers, rng: random.Random, lag: Range) -> None:
        self.on_change: Callable[[Commit], None] = lambda _commit: None
        self.sets: dict[Key, JsonObject] = {}
        self._pods: _Owned[Member] = {}
        self._revisions: _Owned[JsonObject] = {}
        self._newest: dict[str, int] = {}
        self._timers = timers
        self._rng = rng
        self._lag = lag
        self._late: dict[str, deque[Commit]] = {plural: deque() for plural in _WATCHED}

    def bring(self, commit: Commit) -> None:
        """Take a commit in, now or after a while."""
        late = self._late.get(commit.resource.plural)
        if late is None:
            return
        if self._lag[1] == timedelta(0):
            self.take(commit)
            return
        late.append(commit)
        # Each step takes the oldest that waits: none overtakes another of its kind.
        step = draw(self._rng, self._lag)
        self._timers.after(step, lambda: self.take(late.popleft()))

    def take(self, commit: Commit) -> None:
        """Take a commit in now; of kinds that are not watched nothing is kept."""
        plural = commit.resource.plural
        if plural not in _WATCHED:
            return
        self._newest[plural] = commit.revision
        key = (commit.namespace, commit.name)
        if plural == STATEFULSETS.plural:
            if commit.after is None:
                self.sets.pop(key, None)
            else:
                self.sets[key] = commit.after
        elif plural == PODS.plural:
            member = None if commit.after is None else read_member(commit.after)
            _move(self._pods, key, commit, member)
        else:
            _move(self._revisions, key, commit, commit.after)
        self.on_change(commit)

    def has_seen(self, plural: str, revision: int) -> bool:
        """Return whether a write of that kind has got here."""
        return self._newest.get(plural, 0) >= revision

    def pods(self, owner: str, namespace: str) -> list[Member]:
        """Return the pods that a UID controls; those without a controller for an empty UID."""
        return _list(self._pods, owner, namespace)

    def revisions(self, owner: str, namespace: str) -> list[JsonObject]:
        """Return the revisions that a UID controls; those without a controller for an empty UID."""
        return _list(self._revisions, owner, namespace)

    def sets_of(self, namespace: str) -> Iterator[JsonObject]:
        """Return the sets of a namespace."""
        return (sts for key, sts in self.sets.items() if key[0] == namespace)


def _list(owned: _Owned[_T], owner: str, namespace: str) -> list[_T]:
    found = owned.get(owner)
    return [obj for key, obj in found.items() if key[0] == namespace] if found else []


def _move(owned: _Owned[_T], key: Key, commit: Commit, t: _T | None) -> None:
    """Put an object, None where it is gone, below its owner."""
    if commit.before is not None:
        before = text(controller_of(commit.before), "uid")
        owned.get(before, {}).pop(key, None)
        if not owned.get(before):
            owned.pop(before, None)
    if commit.after is not None and t is not None:
        owned.setdefault(text(controller_of(commit.after), "uid"), {})[key] = t
