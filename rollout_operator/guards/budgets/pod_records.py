"""Records of disruptions on the pods that go: written before, removed where nothing comes of it.

Decides what is written, what an answer to a write means, what a record counts for while it stands,
and which of two processes goes on that let pods go at the same moment. The arbiter decides whether
a pod may go; the controller of disruptions, when a record that was not released is removed.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.request import Grant
from rollout_operator.kube.api import PODS, JsonObject, TimedPatcher
from rollout_operator.model.budget import Record
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    UnknownOutcome,
)
from rollout_operator.model.names import DISRUPTION_RECORD
from rollout_operator.model.objects import Pod
from rollout_operator.model.units import check_time
from rollout_operator.planning.budgets.rule import BudgetSnapshot, assess_disruption
from rollout_operator.telemetry.logs import log

# A role may be given the verb at any time.
TRY_AGAIN: Final = timedelta(minutes=1)
# A record whose write is not answered for so long is of unknown outcome: its pod counts as going,
# and its budget and the lock of its group are held meanwhile. Live reads are waited for as long.
WRITE_LASTS: Final = timedelta(seconds=8)
# A record is removed long before; where no process is left that may, it ends by itself (LI-07).
RECORD_COUNTS: Final = timedelta(minutes=2)

_RECORD: Final = msgspec.json.Decoder(Record)
_PATH: Final = f"/metadata/annotations/{DISRUPTION_RECORD.replace('/', '~1')}"


def read_record(pod: Pod) -> Record | None:
    """Return the record of a pod, None where it has none.

    Raises InvalidInput naming pod and value.
    """
    if not pod.disruption:
        return None
    try:
        record = _RECORD.decode(pod.disruption)
        check_time(record.at)
    except (msgspec.MsgspecError, RecursionError, InvalidInput) as error:
        text = f"Pod {pod.name}: annotation {DISRUPTION_RECORD}: {error}"
        raise InvalidInput(text) from error
    return record if record.uid == pod.uid else None


def is_recorded(pod: Pod, now: datetime) -> bool:
    """Return whether the record of a pod makes it count as going: so does an unreadable record."""
    if not pod.disruption:
        return False
    try:
        record = read_record(pod)
    except InvalidInput:
        return True
    return record is not None and now - record.at < RECORD_COUNTS


def wins(record: Record | None, live: BudgetSnapshot) -> bool:
    """Return whether the pod may go once all weaker records of other processes are removed.

    The earlier record wins; a tie is broken by names, the same for both processes.
    """
    if record is None:
        return False
    pods = (pod for zone in live.zones for pod in zone.pods)
    weaker = {pod.uid for pod in pods if _is_weaker(pod, record)}
    if not weaker:
        return False
    going = {uid: how for uid, how in live.deletions.items() if uid not in weaker}
    return assess_disruption(replace(live, deletions=going)) is None


def _is_weaker(pod: Pod, record: Record) -> bool:
    try:
        other = read_record(pod)
    except InvalidInput:
        return False
    if other is None or other.by == record.by:
        return False
    return (other.at, other.by, other.uid) > (record.at, record.by, record.uid)


class Recorder:
    """Writes and removes the records of one process."""

    def __init__(self, client: TimedPatcher, clock: Clock, by: str) -> None:
        """Write in the name of a process: no two of one namespace may have the same."""
        self._client = client
        self._clock = clock
        self._by = by
        self._forbidden_at: timedelta | None = None

    @property
    def is_forbidden(self) -> bool:
        """Return whether the role may not patch pods: grants live in memory only then."""
        at = self._forbidden_at
        return at is not None and self._clock.elapsed() - at < TRY_AGAIN

    async def write(self, grant: Grant, now: Callable[[], datetime]) -> Record | None:
        """Record a grant on the pod as it was decided on; None where the role forbids it.

        It counts from when it is sent: a grant that is given up before that leaves nothing. `now`
        gives the API server's time. Raises Conflict where the pod has changed since, UnknownOutcome
        where there is no answer within `WRITE_LASTS`, and what `TimedPatcher` raises.
        """
        if self.is_forbidden:
            return None
        pod = grant.pod
        await self._client.wait_turn_to_patch(PODS, pod.namespace, pod.name)
        grant.begun = self._clock.elapsed()
        record = Record(uid=pod.uid, by=self._by, at=now(), engine=grant.engine, lasts=grant.lasts)
        grant.record = msgspec.json.encode(record).decode()
        metadata = {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {DISRUPTION_RECORD: grant.record},
        }
        try:
            async with asyncio.timeout(WRITE_LASTS.total_seconds()):
                await self._patch(pod, {"metadata": metadata}, has_turn=True)
        except TimeoutError as error:
            lasts = f"{WRITE_LASTS.total_seconds():g} s"
            raise UnknownOutcome(f"no answer within {lasts}", call="patch pods") from error
        except Denied as error:
            grant.record = ""
            self._report_forbidden(error)
            return None
        self._forbidden_at = None
        return record

    async def remove(self, grant: Grant) -> bool:
        """Remove a record, if it is still as it was written; return whether it is gone."""
        if not grant.record:
            return True
        steps: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": grant.pod.uid},
            {"op": "test", "path": _PATH, "value": grant.record},
            {"op": "remove", "path": _PATH},
        ]
        try:
            await self._patch(grant.pod, steps)
        except (Conflict, NotFound):
            return True  # the pod, or the record, is another by now
        except ApiError as error:
            log.debug("Record of a disruption was not removed", pod=grant.pod.name, err=error)
            return False
        return True

    async def wait_turn(self, pod: Pod) -> None:
        """Wait until a record may be removed at once. Raises Throttled."""
        await self._client.wait_turn_to_patch(PODS, pod.namespace, pod.name)

    async def clear(self, pod: Pod) -> None:
        """Remove whatever record a pod has, unless the pod has changed since it was seen.

        The caller has waited for its turn. Raises as `write`.
        """
        metadata = {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {DISRUPTION_RECORD: None},
        }
        await self._patch(pod, {"metadata": metadata}, has_turn=True)

    async def _patch(
        self, pod: Pod, patch: JsonObject | Sequence[JsonObject], *, has_turn: bool = False
    ) -> None:
        await self._client.patch(PODS, pod.namespace, pod.name, patch, has_turn=has_turn)

    def _report_forbidden(self, error: ApiError) -> None:
        if self._forbidden_at is None:
            log.warn(
                "Disruptions are not recorded on pods: a restart, or a second replica, would not"
                " know of them",
                err=error,
            )
        self._forbidden_at = self._clock.elapsed()
