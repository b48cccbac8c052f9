"""Mark the pods before which no pod of their ordinal was ever ready, for the next process.

Only those that have not become ready after a while: most do, and cost no write. A mark ends with
its pod; see `names.NEWCOMER`. Which pods they are is known by `guards.newcomers`.
"""

from datetime import timedelta
from typing import Final, NoReturn

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.newcomers import Arrivals
from rollout_operator.kube.api import PODS, JsonObject, Patcher
from rollout_operator.model.errors import ApiError, Conflict, Denied, NotFound
from rollout_operator.model.names import NEWCOMER
from rollout_operator.model.objects import Pod
from rollout_operator.telemetry.logs import log

MARK_AFTER: Final = timedelta(seconds=10)
# After an error, and where the role does not permit it.
RETRY: Final = timedelta(minutes=1)


class Marks:
    """Writes the marks of one process."""

    def __init__(self, arrivals: Arrivals, door: Patcher, clock: Clock) -> None:
        self._arrivals = arrivals
        self._door = door
        self._clock = clock
        self._is_forbidden = False

    async def run(self) -> NoReturn:
        """Mark newcomers until cancelled; what goes wrong is tried again."""
        while True:
            await self._arrivals.has_come.wait()
            self._arrivals.has_come.clear()
            await self._clock.sleep(MARK_AFTER)
            try:
                for pod in self._arrivals.list_unmarked():
                    await self._mark(pod)
            except ApiError as error:
                self._report(error)
                await self._clock.sleep(RETRY)
                self._arrivals.has_come.set()

    async def _mark(self, pod: Pod) -> None:
        metadata: JsonObject = {"uid": pod.uid, "annotations": {NEWCOMER: pod.uid}}
        try:
            await self._door.patch(PODS, pod.namespace, pod.name, {"metadata": metadata})
        except (Conflict, NotFound):
            return  # it is gone, and its mark with it

    def _report(self, error: ApiError) -> None:
        if isinstance(error, Denied) and not self._is_forbidden:
            log.warn("New pods are not marked: a restart would not know of them", err=error)
            self._is_forbidden = True
        log.debug("New pods are not marked yet", err=error)
