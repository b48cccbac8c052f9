"""Evictions that were refused for lack of room and will be asked for again: who is in front.

Clients such as `kubectl drain` poll. How long one pauses is learned from its repeats; for twice as
long its eviction is remembered, and a rollout lets it have the next place. Whose turn it is decides
`planning.budgets.turns`. All of it is memory of this process: losing it loses a turn and nothing
else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.unused import FindPod, UnusedGrants
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.planning.budgets.counting import find_partition
from rollout_operator.planning.budgets.turns import Turns

# As `kubectl drain` pauses, and as long as clients are given the benefit of the doubt.
USUAL_PAUSE: Final = timedelta(seconds=5)
LEAST_PAUSE: Final = timedelta(seconds=1)
MOST_PAUSE: Final = timedelta(seconds=30)
# More evictions than that wait for no turn.
MOST_WAITERS: Final = 1_000
FORGET_EVERY: Final = timedelta(seconds=1)

LineKey = tuple[str, str]
"""Name of the budget and partition, which is empty in zone mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """An eviction that was refused, and is asked for again and again."""

    pod: Pod
    asked_at: timedelta
    """On the clock's `elapsed`."""
    pause: timedelta
    until: timedelta
    """When the client is awaited no more."""


class Waiting:
    """All evictions that wait, by budget, and whose turn it is there."""

    def __init__(self, find_pod: FindPod, unused: UnusedGrants, clock: Clock) -> None:
        self._find_pod = find_pod
        self._unused = unused
        self._clock = clock
        # Each line in the order in which its evictions came.
        self._waiters: dict[LineKey, dict[Uid, Waiter]] = {}
        self._turns: dict[LineKey, Turns] = {}
        self._forget_at = timedelta(0)

    def __len__(self) -> int:
        return sum(map(len, self._waiters.values()))

    def note_refused(self, budget: Budget, pod: Pod) -> None:
        """An eviction was refused for lack of room. One that came to nothing before has no turn."""
        self._forget_old()
        line = self._waiters.setdefault(_key(budget, pod), {})
        known, now = line.get(pod.uid), self._clock.elapsed()
        if self._unused.count(pod.uid) or (known is None and len(self) >= MOST_WAITERS):
            line.pop(pod.uid, None)
        elif known is None:
            line[pod.uid] = _await(pod, now, USUAL_PAUSE)
        else:
            if known.until < now:
                del line[pod.uid]  # it is the last one again
            line[pod.uid] = _repeat(known, now)

    def note_granted(self, budget: Budget, pod: Pod, engine: DisruptionSource, most: int) -> None:
        """A pod was allowed to go; `most` are the places of a turn."""
        key = _key(budget, pod)
        # A pod that a client waits for is served by whatever makes it go.
        is_served = self._waiters.get(key, {}).pop(pod.uid, None) is not None
        turn = self._turn(key).grant(DisruptionSource.EVICTION if is_served else engine, most)
        self._keep(key, turn)

    def list_in_front(self, budget: Budget, pod: Pod) -> Sequence[Waiter]:
        """Return the evictions that came before that of a pod and may be in its way, in order."""
        return [one for one in self._find_in_front(budget, pod) if self._is_there(one.pod)]

    def count_in_front(self, budget: Budget, pod: Pod) -> int:
        """Return about how many they are: some of their pods may have gone in the last seconds."""
        return sum(1 for _ in self._find_in_front(budget, pod))

    def _find_in_front(self, budget: Budget, pod: Pod) -> Iterator[Waiter]:
        now, by_partition = self._clock.elapsed(), budget.by_partition
        for uid, one in self._waiters.get(_key(budget, pod), {}).items():
            if one.until < now:
                continue
            if uid == pod.uid:
                return
            # By partition, pods of one zone are in nobody's way.
            if not by_partition or one.pod.owner_uid != pod.owner_uid:
                yield one

    def holds(self, budget: Budget, pod: Pod, engine: DisruptionSource) -> bool:
        """Tell whether it is the other side's turn."""
        return self._turn(_key(budget, pod)).holds(engine)

    def hold(self, budget: Budget, pod: Pod, *, is_whole: bool) -> None:
        """A pod was held back, as it is the other side's turn."""
        key = _key(budget, pod)
        self._keep(key, self._turn(key).hold(self._clock.elapsed(), is_whole=is_whole))

    def _turn(self, key: LineKey) -> Turns:
        return self._turns.get(key, Turns()).at(self._clock.elapsed())

    def _keep(self, key: LineKey, turn: Turns) -> None:
        if turn == Turns():
            self._turns.pop(key, None)
        else:
            self._turns[key] = turn

    def _forget_old(self) -> None:
        """Forget whom no client asks for any more: some time later, as its pause may be longer."""
        now = self._clock.elapsed()
        if now < self._forget_at:  # where very many wait, each refusal would look at all of them
            return
        self._forget_at = now + FORGET_EVERY
        for key, line in list(self._waiters.items()):
            for uid, one in list(line.items()):
                if now - one.asked_at > 2 * MOST_PAUSE or not self._is_there(one.pod):
                    del line[uid]
            if not line:
                del self._waiters[key]
        for key in self._turns.keys() - self._waiters.keys():
            self._keep(key, self._turn(key))

    def _is_there(self, pod: Pod) -> bool:
        cached = self._find_pod(pod.namespace, pod.name)
        return isinstance(cached, Pod) and cached.uid == pod.uid and not cached.is_terminating


def _repeat(known: Waiter, now: timedelta) -> Waiter:
    """Return an eviction that is asked for again, with what that says of the client's pause."""
    gap = now - known.asked_at
    pause = known.pause
    if gap >= LEAST_PAUSE:  # else it is the same request, repeated
        pause = min(max(gap, pause / 2), MOST_PAUSE)
    return _await(known.pod, now, pause)


def _await(pod: Pod, now: timedelta, pause: timedelta) -> Waiter:
    return Waiter(pod=pod, asked_at=now, pause=pause, until=now + 2 * pause)


def _key(budget: Budget, pod: Pod) -> LineKey:
    partition = find_partition(budget, pod.name) if budget.by_partition else ""
    return budget.name, partition or ""
