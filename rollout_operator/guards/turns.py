"""Whether a waiting eviction or the rollout gets the next place; and the locks of groups.

Clients such as `kubectl drain` repeat an eviction that was refused for lack of room. For a while it
is awaited, and a rollout lets it have the next place. `planning.budgets` decides whose turn it is.
All of it is memory of this process: losing it costs a turn at most. It only holds back pods that
their budget would let go, so no mistake here can cross a budget.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.grants import DisruptionRequest, UnusedGrants, refuse
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Deletion, Pod
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets import (
    BudgetSnapshot,
    Refusal,
    Turns,
    assess_disruption,
    compute_maximum,
    find_partition,
    is_down,
)
from rollout_operator.planning.wording import count, verb

# An eviction that was refused is awaited for so long. `kubectl drain` repeats it every 5 s, the
# cluster autoscaler every 10 s, Cluster API and Gardener every 20 s, some others every 30 s. One
# that comes back later finds its place taken, each time.
AWAITED: Final = timedelta(seconds=45)
# Further evictions get no turn.
MOST_WAITERS: Final = 1_000
FORGET_EVERY: Final = timedelta(seconds=1)
# Refusals of an eviction that only needs a free place.
_ROOM: Final = frozenset(
    {Code.DISRUPTION_BUDGET_USED, Code.ZONE_LEFT_SHORT, Code.EVICTION_FIRST, Code.ROLLOUT_FIRST}
)
# Each costs a decision; the next few show whether the rollout is in the way.
_MOST_CHECKED: Final = 5

_LineKey = tuple[str, str]
"""Name of the budget and partition, which is empty in zone mode."""
Held: TypeAlias = dict[tuple[str, ...], Refusal | None]
"""What holds pods that count as up, by budget, owner, and the first evictions in front of them."""


class _Waiter(msgspec.Struct, frozen=True):
    pod: Pod
    until: timedelta
    """When the client is no longer waited for."""


class Precedence:
    """Decides whether a pod that its budget lets go is next.

    Remembers all waiting evictions by budget, and whose turn it is there.
    """

    def __init__(self, pods: PodStore, unused: UnusedGrants, clock: Clock) -> None:
        self._pods, self._unused, self._clock = pods, unused, clock
        # Each line in the order in which its evictions came.
        self._waiters: dict[_LineKey, dict[Uid, _Waiter]] = {}
        self._turns: dict[_LineKey, Turns] = {}
        self._forget_at = timedelta(0)

    def __len__(self) -> int:
        return sum(map(len, self._waiters.values()))

    def assess(
        self, request: DisruptionRequest, snapshot: BudgetSnapshot, held: Held | None = None
    ) -> Refusal | None:
        """Return the refusal of a pod that is not next, None if it may go now.

        `held` is shared by pods that are decided on alike by one snapshot: each eviction that waits
        is a decision that goes through all pods.
        """
        if request.engine is DisruptionSource.ROLLOUT:
            return self._assess_rollout(snapshot, {} if held is None else held)
        return self._assess_eviction(request, snapshot)

    def record_granted(self, snapshot: BudgetSnapshot) -> None:
        engine, key = snapshot.engine, _key(snapshot.budget, snapshot.pod)
        most = compute_maximum(snapshot)
        if engine is DisruptionSource.ROLLOUT:
            most = min(most, snapshot.override)
        # A client that waits for the pod is served, whatever removes it.
        if self._waiters.get(key, {}).pop(snapshot.pod.uid, None) is not None:
            engine = DisruptionSource.EVICTION
        self._keep(key, self._turn(key).grant(engine, max(most, 1)))

    def line_up(self, request: DisruptionRequest, budget: Budget, refusal: Refusal) -> Refusal:
        """Record an eviction that lacks room, and say how many are in front of it."""
        if refusal.reason.code not in _ROOM:
            return refusal
        # About: some of their pods may just have gone.
        front = sum(1 for _ in self._iterate_in_front(budget, request.pod))
        if not request.dry_run:
            self._await(budget, request.pod)
        place = f"{count(front, 'eviction')} ahead" if front else "the next eviction in line"
        reason = replace(refusal.reason, text=f"{refusal.reason.text}; {place}")
        return replace(refusal, reason=reason)

    def _await(self, budget: Budget, pod: Pod) -> None:
        self._forget_old()
        line, now = self._waiters.setdefault(_key(budget, pod), {}), self._clock.elapsed()
        if pod.uid in line and line[pod.uid].until < now:
            del line[pod.uid]  # it is last again
        # After an unused grant a pod has no turn.
        if self._unused.count(pod.uid) or (pod.uid not in line and len(self) >= MOST_WAITERS):
            line.pop(pod.uid, None)
        else:
            line[pod.uid] = _Waiter(pod, now + AWAITED)

    def _assess_rollout(self, snapshot: BudgetSnapshot, held: Held) -> Refusal | None:
        budget, pod = snapshot.budget, snapshot.pod
        # A pod that is down already takes no other pod's place (LI-10).
        if is_down(snapshot) or not self._holds(snapshot):
            return None
        front = self._list_in_front(budget, pod)
        key = (budget.name, snapshot.owner, *(waiter.pod.uid for waiter in front[:_MOST_CHECKED]))
        if key not in held:
            held[key] = self._find_in_the_way(snapshot, front)
        return held[key]

    def _find_in_the_way(
        self, snapshot: BudgetSnapshot, front: Sequence[_Waiter]
    ) -> Refusal | None:
        budget = snapshot.budget
        if not any(_is_in_the_way(snapshot, waiter) for waiter in front[:_MOST_CHECKED]):
            return None
        self._hold(snapshot, is_whole=False)
        left = max(waiter.until for waiter in front) - self._clock.elapsed()
        first, many = front[0].pod, len(front)
        return replace(
            _refuse_as_evictions_wait(first, many, budget, left),
            is_shared=not budget.by_partition,
        )

    def _assess_eviction(
        self, request: DisruptionRequest, snapshot: BudgetSnapshot
    ) -> Refusal | None:
        budget, pod = snapshot.budget, snapshot.pod
        if self._holds(snapshot):
            if not request.dry_run:
                self._hold(snapshot, is_whole=_is_whole(snapshot))
            text = (
                f"the next place under budget {budget.name} is for the rollout, which has held"
                f" still for evictions; {pod.name} waits"
            )
            return replace(refuse(Code.ROLLOUT_FIRST, text), requeue_after=None)
        front = self._list_in_front(budget, pod)
        if not front or not self._unused.count(pod.uid):
            return None
        # A pod whose grants were not used holds up no eviction that may be serious.
        left = front[0].until - self._clock.elapsed()
        return _refuse_as_evictions_wait(front[0].pod, len(front), budget, left)

    def _list_in_front(self, budget: Budget, pod: Pod) -> Sequence[_Waiter]:
        """Return the evictions that came before that of a pod and may be in its way, in order."""
        waiters = self._iterate_in_front(budget, pod)
        return [waiter for waiter in waiters if self._is_there(waiter.pod)]

    def _iterate_in_front(self, budget: Budget, pod: Pod) -> Iterator[_Waiter]:
        now, by_partition = self._clock.elapsed(), budget.by_partition
        for uid, waiter in self._waiters.get(_key(budget, pod), {}).items():
            if waiter.until < now:
                continue
            if uid == pod.uid:
                return
            # By partition, pods of one zone are not in each other's way.
            if not by_partition or waiter.pod.owner_uid != pod.owner_uid:
                yield waiter

    def _holds(self, snapshot: BudgetSnapshot) -> bool:
        """Return whether it is the other side's turn, if that waits."""
        return self._turn(_key(snapshot.budget, snapshot.pod)).holds(snapshot.engine)

    def _hold(self, snapshot: BudgetSnapshot, *, is_whole: bool) -> None:
        """Record that a pod was held back because it is the other side's turn."""
        key = _key(snapshot.budget, snapshot.pod)
        self._keep(key, self._turn(key).hold(self._clock.elapsed(), is_whole=is_whole))

    def _turn(self, key: _LineKey) -> Turns:
        return self._turns.get(key, Turns()).at(self._clock.elapsed())

    def _keep(self, key: _LineKey, turn: Turns) -> None:
        if turn == Turns():
            self._turns.pop(key, None)
        else:
            self._turns[key] = turn

    def _forget_old(self) -> None:
        """Forget pods that are gone, or whose clients have stopped repeating."""
        now = self._clock.elapsed()
        if now < self._forget_at:  # else each refusal would go through all of them
            return
        self._forget_at = now + FORGET_EVERY
        for key, line in list(self._waiters.items()):
            for uid, waiter in list(line.items()):
                if waiter.until < now or not self._is_there(waiter.pod):
                    del line[uid]
            if not line:
                del self._waiters[key]
        for key in self._turns.keys() - self._waiters.keys():
            self._keep(key, self._turn(key))

    def _is_there(self, pod: Pod) -> bool:
        cached = self._pods.get(pod.namespace, pod.name)
        return isinstance(cached, Pod) and cached.uid == pod.uid and not cached.is_terminating


def _key(budget: Budget, pod: Pod) -> _LineKey:
    partition = find_partition(budget, pod.name) if budget.by_partition else ""
    return budget.name, partition or ""


def _is_in_the_way(snapshot: BudgetSnapshot, waiter: _Waiter) -> bool:
    """Return whether a waiting eviction lacks room once the pod of the snapshot is gone."""
    going = {**snapshot.deletions, snapshot.pod.uid: Deletion.GRANTED}
    theirs = replace(
        snapshot,
        pod=waiter.pod,
        owner=waiter.pod.owner_uid or Uid(""),
        engine=DisruptionSource.EVICTION,
        override=0,
        deletions=going,
    )
    return assess_disruption(theirs) is not None


def _is_whole(snapshot: BudgetSnapshot) -> bool:
    """Return whether nothing is down, so that the pod could go under any limit."""
    budget = replace(snapshot.budget, max_unavailable=1, percentage=None)
    return assess_disruption(replace(snapshot, budget=budget)) is None


def _refuse_as_evictions_wait(first: Pod, many: int, budget: Budget, left: timedelta) -> Refusal:
    text = (
        f"the next place under budget {budget.name} is for the eviction of {first.name}, which was"
        f" refused and is awaited; {count(many, 'eviction')} {verb(many, 'waits', 'wait')}"
    )
    again = timedelta(seconds=max(math.ceil(left.total_seconds()), 1))
    return replace(refuse(Code.EVICTION_FIRST, text), requeue_after=again)


class Locks:
    """Locks by key, kept for as long as a task holds or awaits them.

    A caller that reads a group and then acts on it holds the group's lock: a downscale is not
    granted between a rollout's live read and its deletes, nor the other way round (D-25). It is
    held across reads and deletes, never across a write that comes back as a review of our own.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            yield

    @asynccontextmanager
    async def hold_all(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Wait for several locks, in the order of their keys, so that no two callers deadlock."""
        async with AsyncExitStack() as stack:
            for key in sorted({*keys}):
                await stack.enter_async_context(self.hold(key))
            yield


def group_lock(group: GroupName) -> str:
    return f"group {group}"


def policy_lock(namespace: str, name: str) -> str:
    return f"policy {namespace}/{name}"


def calls_lock(set_uid: Uid) -> str:
    return f"calls {set_uid}"
