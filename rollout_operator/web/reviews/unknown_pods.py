"""Read pods that the cache cannot tell of, for a share of the rate limit.

Decides how often reviews of evictions may have the API server asked. Whoever reaches the port may
name pods that never were, one after the other, and each would cost a read that goes before those of
rollouts. So such reads have a small bucket of their own, and all reviews of one pod share one.
"""

from datetime import timedelta
from typing import Final

from rollout_operator.aio.single_flight import SingleFlight
from rollout_operator.kube.api import PODS, Reader
from rollout_operator.kube.client.rate_limit import Priority, RateLimiter
from rollout_operator.model.errors import ApiError

# Of the requests that the process may send to the API group of pods, under a flood of made-up names
# rollouts keep nine of ten.
_SHARE: Final = 0.1
# A drain asks for all pods of a node at once: a few of them may have ended, or be new.
_BURST: Final = 5
_BUCKET: Final = "pods of evictions that the cache does not show"


class UnknownPods:
    """Reads pods of one namespace."""

    def __init__(self, reader: Reader, namespace: str, qps: float) -> None:
        """Read at a share of `qps` requests a second; zero or less: as often as reviews ask."""
        self._reader = reader
        self._namespace = namespace
        self._limits = RateLimiter(qps * _SHARE, _BURST)
        self._reads: SingleFlight[str, bytes | ApiError] = SingleFlight()

    async def fetch(self, name: str, within: timedelta) -> bytes:
        """Return a pod, from a read that was sent after the call.

        Raises as `Reader.fetch`, and Throttled where the next read is due only after `within`.
        """
        answer = await self._reads.share(
            name, lambda: self._fetch(name, within), lambda begun_before: False
        )
        if isinstance(answer, ApiError):
            raise answer.with_traceback(None)  # others raise it too
        return answer

    async def _fetch(self, name: str, within: timedelta) -> bytes | ApiError:
        try:
            await self._limits.take(_BUCKET, Priority.LOOK, within)
            return await self._reader.fetch(PODS, self._namespace, name)
        except ApiError as error:
            return error
