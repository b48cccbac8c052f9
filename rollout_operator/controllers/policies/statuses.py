"""The newest known state of each MultiAZRollout, and writes of its status.

A write is refused where the object has changed since, so two processes never record over each
other. What this process wrote counts until the cache shows it. A write that was refused so, or got
no answer, leaves a doubt: nothing is decided for the policy until it was read back.

What may wait is written once a second: of a pod that is replaced several events come at once.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, JsonObject, Patcher, Reader
from rollout_operator.kube.cache.store import PolicyStore, is_older
from rollout_operator.model.decode.status import decode_watched_policy
from rollout_operator.model.errors import Conflict, NotFound, UnknownOutcome
from rollout_operator.model.policy.status import PolicyStatus
from rollout_operator.model.policy.watched import WatchedPolicy

# Fields that may be absent: a merge patch leaves alone what it does not name.
_MAY_GO: Final = ("startTime", "completionTime", "nextBatchTime", "lastBatch")
_BATCH_MAY_GO: Final = ("completionTime",)
# Between two writes of a policy, where the later one may wait.
WRITE_PAUSE: Final = timedelta(seconds=1)


class PolicyClient(Reader, Patcher, Protocol):
    """What a PolicyStatuses calls."""


class PolicyStatuses:
    """Reads and writes the policies of one namespace."""

    def __init__(
        self, client: PolicyClient, namespace: str, cached: PolicyStore, clock: Clock
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._cached = cached
        self._clock = clock
        self._written_at: dict[str, timedelta] = {}
        self._newest: dict[str, WatchedPolicy] = {}
        self._doubtful: set[str] = set()

    def get(self, name: str) -> WatchedPolicy | None:
        """Return a policy with the newest status; None where the cache shows none.

        What it asks for is what the cache shows: whom it owns follows from that as well.
        """
        cached, newest = self._cached.get(self._namespace, name), self._newest.get(name)
        if not isinstance(cached, WatchedPolicy):
            return None
        is_newer = newest is not None and is_older(cached.resource_version, newest.resource_version)
        if newest is not None and is_newer and newest.policy == cached.policy:
            return newest
        return cached

    def is_behind(self, name: str) -> bool:
        """Return whether the cache shows another spec than the API server did since."""
        cached, newest = self._cached.get(self._namespace, name), self._newest.get(name)
        return (
            isinstance(cached, WatchedPolicy)
            and newest is not None
            and newest.policy != cached.policy
            and is_older(cached.resource_version, newest.resource_version)
        )

    def is_doubtful(self, name: str) -> bool:
        """Return whether it must be read back before anything is decided."""
        return name in self._doubtful

    async def read_back(self, name: str) -> None:
        """Read a policy as the store has it. Raises what `Reader.fetch` raises, and DecodeError."""
        try:
            body = await self._client.fetch(MULTI_AZ_ROLLOUTS, self._namespace, name)
        except NotFound:
            self.forget(name)
            raise
        self._newest[name] = decode_watched_policy(body)
        self._doubtful.discard(name)

    def wait_before(self, name: str) -> timedelta:
        """Return for how long a write that may wait is put off."""
        written_at = self._written_at.get(name)
        if written_at is None:
            return timedelta(0)
        return max(written_at + WRITE_PAUSE - self._clock.elapsed(), timedelta(0))

    async def write(self, watched: WatchedPolicy, status: PolicyStatus) -> PolicyStatus:
        """Write a status over the one that is known; return what the API server has kept of it.

        Raises Conflict where the policy has changed since, and as `Patcher.patch`, and DecodeError.
        """
        head: JsonObject = {"uid": watched.uid, "resourceVersion": watched.resource_version}
        patch: JsonObject = {"metadata": head, "status": render_status_patch(status)}
        try:
            body = await self._client.patch(
                MULTI_AZ_ROLLOUTS, self._namespace, watched.name, patch, subresource="status"
            )
        except (UnknownOutcome, Conflict):
            self._doubtful.add(watched.name)
            raise
        written = decode_watched_policy(body)
        self._newest[watched.name] = written
        self._written_at[watched.name] = self._clock.elapsed()
        return written.status

    def forget(self, name: str) -> None:
        """Forget a policy that is gone."""
        self._newest.pop(name, None)
        self._doubtful.discard(name)
        self._written_at.pop(name, None)


def render_status_patch(status: PolicyStatus) -> Mapping[str, object]:
    """Return a status as a merge patch: what is absent is null, and goes."""
    fields: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
    patch: JsonObject = {**dict.fromkeys(_MAY_GO), **fields}
    batch = patch["lastBatch"]
    if isinstance(batch, dict):
        patch["lastBatch"] = {**dict.fromkeys(_BATCH_MAY_GO), **batch}
    return patch
