"""Pods that are on their way out although they still look untouched.

Three sources show them: our own delete that the cache does not show yet, a grant of this process,
and a record on the pod, which any process may have written. All engines count all of them as down.
Which pods may go is decided in `planning.budgets.rule`, how a grant comes about in `arbiter`.

Beside them: pods whose eviction was allowed and did not happen. Another webhook or a
PodDisruptionBudget may refuse what was allowed here, or a client sent the review without an
eviction behind it. While such a grant stands it holds all other pods of the budget; so a pod whose
grants come to nothing must not be granted again at once. That holds no other pod.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.aio.backoff import REFUSED_EVICTIONS
from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.own_deletes import OwnDeletes, has_left
from rollout_operator.guards.budgets.pod_records import Recorder, is_recorded
from rollout_operator.guards.budgets.request import Grant, GrantState
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.group import Deletion
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.telemetry.logs import log

# After so long without another unused grant a pod is like every other.
REMEMBERED: Final = timedelta(hours=1)
# More pods than one node holds; beyond that the pod that was remembered first is forgotten.
MOST_PODS: Final = 1_000
# As long as an answer may take: waiters for this grant wait no longer.
RECORD_REMOVAL_LIMIT: Final = timedelta(seconds=4)


class Unused(msgspec.Struct, frozen=True, kw_only=True):
    """How often evictions of one pod were allowed and did not happen."""

    pod: Pod
    times: int
    at: timedelta
    """When the last grant was released, on the clock's `elapsed`."""


class UnusedGrants:
    """All pods with unused grants, by UID: each time, the next eviction is allowed later."""

    def __init__(self, pods: PodStore, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._by_uid: dict[Uid, Unused] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def record(self, pod: Pod) -> None:
        """Record that a grant of a pod was released, and the pod is untouched."""
        times = self.count(pod.uid) + 1
        self._by_uid.pop(pod.uid, None)  # the newest comes last
        self._by_uid[pod.uid] = Unused(pod=pod, times=times, at=self._clock.elapsed())
        for uid, entry in list(self._by_uid.items()):
            if len(self._by_uid) > MOST_PODS or not self._is_valid(entry):
                del self._by_uid[uid]

    def count(self, pod: Uid) -> int:
        """Return how many grants of a pod came to nothing lately."""
        entry = self._by_uid.get(pod)
        return entry.times if entry is not None and self._is_valid(entry) else 0

    def wait_before(self, pod: Uid) -> timedelta:
        """Return for how long a pod is not to be allowed to go, zero where it may."""
        entry = self._by_uid.get(pod)
        if entry is None:
            return timedelta(0)
        left = entry.at + REFUSED_EVICTIONS.bound(entry.times) - self._clock.elapsed()
        return max(left, timedelta(0))

    def _is_valid(self, entry: Unused) -> bool:
        if self._clock.elapsed() - entry.at >= REMEMBERED:
            return False
        cached = self._pods.get(entry.pod.namespace, entry.pod.name)
        return cached is not None and cached.uid == entry.pod.uid


class InFlight:
    """All grants of this process, and beside them what records and deletes say."""

    def __init__(self, pods: PodStore, deletes: OwnDeletes, clock: Clock) -> None:
        self._pods = pods
        self._deletes = deletes
        self._clock = clock
        self._grants: dict[Uid, Grant] = {}
        self._callbacks: list[Callable[[Pod], None]] = []
        self.unused = UnusedGrants(pods, clock)

    def __len__(self) -> int:
        return len(self._grants)

    def on_change(self, callback: Callable[[Pod], None]) -> None:
        """Call back with the pod whenever a grant has been granted for good, or released."""
        self._callbacks.append(callback)

    def reserve(
        self, pod: Pod, engine: DisruptionSource, budget: str, lasts: timedelta = timedelta(0)
    ) -> Grant:
        """Count a pod as going from now on. It must not count so already."""
        grant = Grant(
            pod=pod, engine=engine, budget=budget, begun=self._clock.elapsed(), lasts=lasts
        )
        self._grants[pod.uid] = grant
        return grant

    def confirm(self, grant: Grant, seen: Pod) -> None:
        """Record that the pod may go; `seen` is its newest version."""
        grant.pod, grant.state, grant.was_granted = seen, GrantState.GRANTED, True
        self._notify(grant)

    def doubt(self, grant: Grant) -> None:
        """Record that no answer said that the pod may go, but a record may say so."""
        grant.state = GrantState.DOUBTFUL
        self._notify(grant)

    def release_open(self, grant: Grant) -> None:
        """End a grant that is not settled yet.

        The controller finds out what was written, if anything was sent.
        """
        if not self.is_open(grant):
            return
        if grant.record:
            self.doubt(grant)
        else:
            self.release(grant)

    def is_open(self, grant: Grant) -> bool:
        """Return whether a grant is being requested: neither given, in doubt, nor released."""
        return self._grants.get(grant.pod.uid) is grant and grant.state is GrantState.REQUESTED

    def release_untouched(self, grant: Grant) -> bool:
        """Release the grant of an untouched pod; return whether an eviction was allowed in vain."""
        self.release(grant)
        is_unused = grant.was_granted and grant.engine is DisruptionSource.EVICTION
        if is_unused:
            self.unused.record(grant.pod)
        return is_unused

    def release(self, grant: Grant) -> None:
        """Release a grant that nothing may use any more; an unknown grant is fine."""
        if self._grants.get(grant.pod.uid) is grant:
            del self._grants[grant.pod.uid]
            self._notify(grant)

    def get(self, uid: Uid) -> Grant | None:
        """Return the grant of a pod."""
        return self._grants.get(uid)

    def list_requested(self, budget: str) -> tuple[Uid, ...]:
        """Return the pods under a budget whose grant may still come to nothing."""
        return tuple(
            uid
            for uid, grant in self._grants.items()
            if grant.state is GrantState.REQUESTED and grant.budget == budget
        )

    def map_going(
        self, owners: Collection[Uid], pods: Iterable[Pod], now: datetime
    ) -> Mapping[Uid, Deletion]:
        """Return all pods of these owners that go although they may look untouched.

        `pods` are the pods that a decision counts; `now` is the API server's time.
        """
        self.forget_seen()
        going = {pod.uid: Deletion.GRANTED for pod in pods if is_recorded(pod, now)}
        for uid, grant in self._grants.items():
            if grant.pod.owner_uid in owners:
                going[uid] = Deletion.GRANTED
        going.update(self._deletes.map_deletions(owners))
        return going

    def forget_seen(self) -> None:
        """Forget the grants of pods that the cache shows on their way out, or gone."""
        for grant in list(self._grants.values()):
            # A grant that is being requested is settled by the requester.
            if grant.state is not GrantState.REQUESTED and has_left(self._pods, grant.pod):
                self.release(grant)

    def _notify(self, grant: Grant) -> None:
        for callback in self._callbacks:
            callback(grant.pod)


class GrantReleases:
    """Releases grants that nothing will come of, in the background while `run` runs.

    Mostly the request waits for it: then its answer says that no grant is left. A client that hangs
    up, or an answer that was not there in time, leaves a record that this process knows was written
    and that no answer reported. It is removed in the background, so that others need not wait until
    the pod is proven untouched (LI-09). A record that cannot be removed soon stays in doubt: the
    controller of disruptions finds out whether the pod is untouched.
    """

    def __init__(self, in_flight: InFlight, recorder: Recorder) -> None:
        self._in_flight = in_flight
        self._recorder = recorder
        self._abandoned: asyncio.Queue[Grant] | None = None

    async def release(self, grant: Grant) -> None:
        """Leave no record of a grant that no answer has mentioned, or that none will use."""
        if await self._recorder.remove(grant):
            self._in_flight.release(grant)
        else:
            self._in_flight.doubt(grant)

    def abandon(self, grant: Grant) -> None:
        """Release in the background a grant that nothing waits for; a settled grant is fine."""
        if not self._in_flight.is_open(grant):
            return
        if self._abandoned is None or not grant.record:
            self._in_flight.release_open(grant)
        else:
            self._abandoned.put_nowait(grant)

    async def run(self) -> None:
        """Release abandoned grants until cancelled; the rest stays in doubt then."""
        queue: asyncio.Queue[Grant] = asyncio.Queue()
        self._abandoned = queue
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    grant = await queue.get()
                    work = self._release_soon(grant)
                    tasks.create_task(work, name=f"release of {grant.pod.name}")
        finally:
            self._abandoned = None
            while not queue.empty():
                self._in_flight.release_open(queue.get_nowait())

    async def _release_soon(self, grant: Grant) -> None:
        try:
            async with asyncio.timeout(RECORD_REMOVAL_LIMIT.total_seconds()):
                await self.release(grant)
        except TimeoutError:
            log.debug("Record of a disruption was not removed in time", pod=grant.pod.name)
        finally:
            self._in_flight.release_open(grant)
