"""Read pods live that the cache cannot tell enough of: all reviews of one pod share one read.

How often the API server is asked is decided in `read_shares`. A pod that the cache shows, such as
one that is pending or has ended, does not wait behind names that nobody has ever seen.
"""

from datetime import timedelta

from rollout_operator.aio.single_flight import SingleFlight
from rollout_operator.kube.api import PODS, Reader
from rollout_operator.model.errors import ApiError
from rollout_operator.web.reviews.read_shares import Standing, UnconfirmedReads


class UnknownPods:
    """Reads pods of one namespace."""

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
