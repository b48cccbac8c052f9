"""Release grants of disruptions that did not happen: the pod still stands, untouched.

An eviction that we allowed may be refused by the API server, and a process may die between a
record and its effect. Whatever process sees the record on an untouched pod removes it, so that the
budget is free again (LI-07). Which pods may go is decided in `planning.budgets.rule`.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.worker import Result
from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.budgets.pod_records import Recorder, read_record
from rollout_operator.guards.budgets.request import GrantState
from rollout_operator.kube.api import PODS, LiveReader
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.errors import ApiError, Conflict, Denied, InvalidInput, NotFound
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.budgets import DisruptionMetrics
from rollout_operator.telemetry.logs import log

# An answer leaves within 4 s of its record (`ANSWER_LIMIT`), and an API server that waits for it no
# longer than 5 s, as our manifests have it, acts on it at once. With what follows the budget is
# free again within ten seconds (LI-07).
UNTOUCHED_FOR: Final = timedelta(seconds=8)
# No webhook may be given more time (30 s) by its configuration, whatever a record says.
LONGEST: Final = timedelta(seconds=34)
# A connection that died without a sign costs no more than this.
LIVE_READ_LIMIT: Final = timedelta(seconds=3)
# Where the pod has changed during the read, and after an error.
REQUEUE_AFTER: Final = timedelta(milliseconds=500)
RETRY: Final = timedelta(seconds=5)
# Where the role forbids it: a record that can be read has ended by itself before.
RETRY_FORBIDDEN: Final = timedelta(minutes=5)
DONE: Final = timedelta(0)

PodKey = tuple[str, str]
"""Namespace and name."""


@dataclass(slots=True, kw_only=True)
class DisruptionController:
    """Reconciles pods that may go, by namespace and name."""

    pods: PodStore
    in_flight: InFlight
    recorder: Recorder
    client: LiveReader
    clock: Clock
    metrics: DisruptionMetrics
    _seen: dict[PodKey, tuple[Uid, str, timedelta]] = field(default_factory=dict, init=False)
    """Since when we have known which record, on the clock's `elapsed`."""

    async def reconcile(self, key: PodKey) -> Result:
        """Check whether a pod that may go has gone; release the grant where it has not."""
        cached = self.pods.get(*key)
        if not isinstance(cached, Pod) or cached.is_terminating:
            self.in_flight.forget_seen()
            return self._forget(key)
        if self.in_flight.get(cached.uid) is None and not cached.disruption:
            return self._forget(key)
        left = self._time_left(cached)
        if left <= DONE:
            try:
                left = await self._remove_record(cached)
            except TimeoutError:
                left = REQUEUE_AFTER
            except ApiError as error:
                log.debug("Grant not released yet", pod=cached.name, err=error)
                left = RETRY
        return Result(again=left) if left > DONE else self._forget(key)

    async def _remove_record(self, cached: Pod) -> timedelta:
        """Return when to reconcile again, DONE where nothing is left to do.

        Raises ApiError, and TimeoutError where the API server does not answer in time. Our own rate
        limits may make it wait for longer.
        """
        await self.client.wait_turn(PODS, cached.namespace)
        try:
            async with asyncio.timeout(LIVE_READ_LIMIT.total_seconds()):
                body = await self.client.fetch(PODS, cached.namespace, cached.name, has_turn=True)
            pod = decode_pod(body)
        except NotFound:
            return DONE
        except InvalidInput as error:
            log.warn("Pod cannot be read", pod=cached.name, err=error)
            return RETRY
        if pod.uid != cached.uid or pod.is_terminating:
            return DONE  # it went: the cache will show it
        left = self._time_left(pod)  # it may have been granted anew, here or elsewhere
        if left > DONE:
            return left
        again = DONE
        if pod.disruption:
            await self.recorder.wait_turn(pod)
            try:
                async with asyncio.timeout(LIVE_READ_LIMIT.total_seconds()):
                    await self.recorder.clear(pod)
            except (Conflict, NotFound):
                return REQUEUE_AFTER
            except Denied as error:  # then it ends by itself: see `RECORD_COUNTS`
                log.warn("Record of a disruption cannot be removed", pod=pod.name, err=error)
                again = RETRY_FORBIDDEN
        self._release(pod)
        return again

    def _release(self, pod: Pod) -> None:
        log.info(
            "Releasing a grant: the pod is untouched",
            pod=pod.name,
            reason=Code.GRANT_TAKEN_BACK,
            after=UNTOUCHED_FOR,
        )
        grant = self.in_flight.get(pod.uid)
        if grant is not None and self.in_flight.release_untouched(grant):
            self.metrics.unused.inc()

    def _time_left(self, pod: Pod) -> timedelta:
        """Return for how long a grant of a pod may be used, by this process or another."""
        grant = self.in_flight.get(pod.uid)
        if grant is None:
            return self._time_left_of_record(pod)
        if grant.state is GrantState.REQUESTED:
            return UNTOUCHED_FOR  # the requester settles it, and that wakes us
        own = grant.begun + _choose_span(grant.lasts) - self.clock.elapsed()
        if pod.disruption in ("", grant.record):
            return own
        return max(own, self._time_left_of_record(pod))  # another process granted it anew

    def _time_left_of_record(self, pod: Pod) -> timedelta:
        """Return for how long the grant in a record may still be used.

        It counts from when we have first seen it, by a clock that is never set: the time that it
        names may be wrong.
        """
        elapsed = self.clock.elapsed()
        key, what = (pod.namespace, pod.name), (pod.uid, pod.disruption)
        recorded = self._seen.get(key)
        if recorded is None or recorded[:2] != what:
            recorded = self._seen[key] = (*what, elapsed)
        try:
            record = read_record(pod)
        except InvalidInput as error:
            log.warn("Record of a disruption cannot be read", pod=pod.name, err=error)
            return recorded[2] + UNTOUCHED_FOR - elapsed
        if record is None:
            return DONE  # of another pod: it never meant anything
        return recorded[2] + _choose_span(record.lasts) - elapsed

    def _forget(self, key: PodKey) -> Result:
        self._seen.pop(key, None)
        return Result()


def _choose_span(lasts: timedelta) -> timedelta:
    """Return after what time an untouched pod proves that a grant was not used."""
    return min(max(lasts, UNTOUCHED_FOR), LONGEST)
