"""How soon a group whose writes fail is tried again.

A look at a group costs nothing; a write that is refused again and again costs the API server. So
the same attempt is repeated ever more rarely: doubling up to the longest look interval, and after
five minutes of failing only twice a minute. A different attempt, because a template, a role or the
pods changed, goes at once.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.clock import Clock
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Action, Plan, ReplacePods

FIRST_WAIT: Final = timedelta(milliseconds=100)
PERMANENT_AFTER: Final = timedelta(minutes=5)
PERMANENT_WAIT: Final = timedelta(seconds=30)

Signature = tuple[object, ...]


@dataclass(slots=True)
class _Failing:
    signature: Signature
    since: timedelta
    not_before: timedelta
    error: str
    count: int = field(default=1)


class Attempts:
    """Memory of failed attempts, per group."""

    def __init__(self, clock: Clock, *, longest: timedelta) -> None:
        self._clock = clock
        self._backoff = Backoff(first=min(FIRST_WAIT, longest), most=longest)
        self._failing: dict[GroupName, _Failing] = {}

    def wait_before(self, plan: Plan) -> tuple[timedelta, str]:
        """Return how long this plan must still wait, zero for go, and the error it waits for."""
        failing = self._failing.get(plan.group)
        if failing is None or failing.signature != _sign(plan):
            return timedelta(0), ""
        left = failing.not_before - self._clock.elapsed()
        return max(left, timedelta(0)), failing.error

    def note_failure(self, plan: Plan, error: str, *, at_least: timedelta) -> timedelta:
        """Remember a failed attempt at `plan`; return the wait before the next."""
        now = self._clock.elapsed()
        failing = self._failing.get(plan.group)
        if failing is None or failing.signature != _sign(plan):
            failing = _Failing(_sign(plan), since=now, not_before=now, error=error)
            self._failing[plan.group] = failing
        else:
            failing.count += 1
        wait = max(self._choose_wait(failing, now), at_least)
        failing.not_before = now + wait
        failing.error = error
        return wait

    def note_success(self, group: GroupName) -> None:
        """Forget the failures of the group."""
        self._failing.pop(group, None)

    def _choose_wait(self, failing: _Failing, now: timedelta) -> timedelta:
        if now - failing.since >= PERMANENT_AFTER:
            return PERMANENT_WAIT
        return self._backoff.bound(failing.count)


def _sign(plan: Plan) -> Signature:
    return tuple(_sign_action(action) for action in plan.actions)


def _sign_action(action: Action) -> Signature:
    zone = action.zone
    if isinstance(action, ReplacePods):
        pods = tuple(one.pod.uid for one in (*action.free, *action.candidates))
        return ("replace", zone.uid, zone.update_revision, pods)
    return ("record", zone.uid, action.revision)
