"""The newest known state of each MultiAZRollout, and when its status is written.

A status that may wait is written once a second: a replaced pod brings several events at once.
"""

from datetime import timedelta
from typing import Final, Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, Patcher, Reader
from rollout_operator.kube.cache.store import PolicyStore
from rollout_operator.model.decode.status import decode_watched_policy
from rollout_operator.model.policy.status import PolicyStatus
from rollout_operator.model.policy.watched import WatchedPolicy

# Between two writes of a policy, where the later write may wait.
WRITE_PAUSE: Final = timedelta(seconds=1)


class PolicyClient(Reader, Patcher, Protocol):
    """What a PolicyStatuses calls."""


class PolicyStatuses:
    """Reads and writes the policies of one namespace."""

    def __init__(
        self, client: PolicyClient, namespace: str, cached: PolicyStore, clock: Clock
    ) -> None:
        self._namespace = namespace
        self._cached = cached
        self._clock = clock
        self._newest = NewestObjects(cached.get, namespace, client, decode_watched_policy)
        self._writer = StatusWriter(client, MULTI_AZ_ROLLOUTS, self._newest)
        self._written_at: dict[str, timedelta] = {}

    def get(self, name: str) -> WatchedPolicy | None:
        """Return a policy with the newest status; None where the cache shows none.

        Its spec is that of the cache: what it owns follows from that as well.
        """
        cached = self._cached.get(self._namespace, name)
        if not isinstance(cached, WatchedPolicy):
            return None
        newest = self._newest.choose(cached)
        if isinstance(newest, WatchedPolicy) and newest.policy == cached.policy:
            return newest
        return cached

    def is_behind(self, name: str) -> bool:
        """Return whether the cache shows an older spec than the API server has shown."""
        cached = self._cached.get(self._namespace, name)
        return isinstance(cached, WatchedPolicy) and self.get(name) is not self._newest.get(name)

    async def settle(self, name: str) -> WatchedPolicy | None:
        """Return a policy to decide by: read back first where a write has no answer.

        Raises what `Reader.fetch` raises, and DecodeError.
        """
        await self._newest.settle(MULTI_AZ_ROLLOUTS, name)
        return self.get(name)

    def wait_before(self, name: str) -> timedelta:
        """Return for how long a write that may wait is put off."""
        written_at = self._written_at.get(name)
        if written_at is None:
            return timedelta(0)
        return max(written_at + WRITE_PAUSE - self._clock.elapsed(), timedelta(0))

    async def write(self, watched: WatchedPolicy, status: PolicyStatus) -> None:
        """Write a status over the known state. Raises as `StatusWriter.write`."""
        await self._writer.write(watched, status)
        self._written_at[watched.name] = self._clock.elapsed()

    def forget(self, name: str) -> None:
        """Forget a policy that is gone."""
        self._newest.forget(name)
        self._written_at.pop(name, None)
