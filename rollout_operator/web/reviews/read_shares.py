"""Reads of the API server that reviews cause: a share of the rate limit for each cause.

Decides how much of it a client of the port can use up. A review goes before rollouts, and any
client can send one: of objects that never were, of real objects with false counts, and of real
objects again and again. Objects that the cache confirms are read as ever. All other reads wait for
a small bucket of their own, so that rollouts and honest reviews keep the rest; a review whose turn
comes too late is refused at once, to be tried again.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.shared import SingleFlight
from rollout_operator.kube.api import PODS, Reader, Resource
from rollout_operator.kube.client.rate_limit import Priority, RateLimiter
from rollout_operator.model.errors import ApiError
from rollout_operator.model.names import Uid

# Of the requests that the process may send to an API group, for each bucket of a kind.
_SHARE: Final = 0.1
# A drain evicts all pods of a node at once: a few of them may have ended, or be new.
_BURST: Final = 5
# Of kinds without a cache every honest review needs a read: `kubectl scale deployment --all`.
_UNCACHED_SHARE: Final = 0.3
_UNCACHED_BURST: Final = 10
# Reads of groups whose set was under review a moment ago: clients try again, and the API server
# sends the review anew where another client has written.
_AGAIN_SHARE: Final = 0.2
_AGAIN_BURST: Final = 10
_AGAIN: Final = "downscales that are requested again"
# The first read of the group of a set in so long a time takes from no bucket of repetitions.
LATELY: Final = timedelta(minutes=1)


class Standing(StrEnum):
    """The standing of an object that the cache cannot confirm."""

    SHOWN = "that the cache shows otherwise"
    """It has the name and the UID of the review: there are only so many of them."""
    UNKNOWN = "that the cache does not show"
    """Perhaps made up: there is no end of them."""
    UNCACHED = "of kinds without a cache"
    """Perhaps made up as well, but honest reviews have no other way."""


class UnconfirmedReads:
    """Reads objects that the cache does not confirm, for all hooks of a process.

    Each kind has a bucket for objects that the cache shows and a bucket for all others, so that
    made-up names delay no reviews of real objects, and those of one kind none of another. Kinds
    without a cache share one.
    """

    def __init__(self, qps: float) -> None:
        """Read at shares of `qps` requests a second; without a limit for zero or less."""
        self._limits = RateLimiter(qps * _SHARE, _BURST)
        self._uncached = RateLimiter(qps * _UNCACHED_SHARE, _UNCACHED_BURST)

    async def fetch(
        self,
        reader: Reader,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        standing: Standing,
        within: timedelta,
    ) -> bytes:
        """Return an object as the store has it.

        Raises as `Reader.fetch`, and Throttled where its turn comes only after `within`.
        """
        if standing is Standing.UNCACHED:
            await self._uncached.take(standing, Priority.READ, within)
        else:
            await self._limits.take(f"{resource.plural} {standing}", Priority.READ, within)
        return await reader.fetch(resource, namespace, name)


class UnknownPods:
    """Reads pods of which the cache does not hold enough; all reviews of a pod share a read."""

    def __init__(self, reader: Reader, namespace: str, reads: UnconfirmedReads) -> None:
        self._reader = reader
        self._namespace = namespace
        self._limited = reads
        self._reads: SingleFlight[str, bytes | ApiError] = SingleFlight()

    async def fetch(self, name: str, standing: Standing, within: timedelta) -> bytes:
        """Return a pod, from a read that was sent after the call.

        Raises as `UnconfirmedReads.fetch`.
        """
        answer = await self._reads.share(
            name, lambda: self._fetch(name, standing, within), lambda begun_before: False
        )
        if isinstance(answer, ApiError):
            raise answer.with_traceback(None)  # others raise it too
        return answer

    async def _fetch(self, name: str, standing: Standing, within: timedelta) -> bytes | ApiError:
        try:
            return await self._limited.fetch(
                self._reader, PODS, self._namespace, name, standing=standing, within=within
            )
        except ApiError as error:
            return error


class RepeatedReads:
    """Paces the live reads that reviews of confirmed sets lead to.

    A client that knows a name, a UID and a count can send reviews of that set for ever. The first
    read in a minute is free, so that no other client's repetitions keep a set from its first
    answer.
    """

    def __init__(self, qps: float, clock: Clock) -> None:
        """Limit reads to `qps` requests a second; not at all for zero or less."""
        self._limits = RateLimiter(qps * _AGAIN_SHARE, _AGAIN_BURST)
        self._clock = clock
        self._free: dict[Uid, timedelta] = {}
        """When each set had a free read, the oldest first."""

    async def wait_turn(self, set_uid: Uid, within: timedelta) -> None:
        """Wait until the group of a set may be read.

        Raises Throttled where that is only after `within`.
        """
        now = self._clock.elapsed()
        self._forget_before(now - LATELY)
        if set_uid not in self._free:
            self._free[set_uid] = now
            return
        await self._limits.take(_AGAIN, Priority.READ, within)

    def _forget_before(self, then: timedelta) -> None:
        for uid, at in list(self._free.items()):
            if at > then:
                return
            del self._free[uid]
