"""Records on pods that are to go, for the process that comes after a crash.

Written before the first pod is called, so that what was prepared is known after a crash. A few
pods of the range carry a copy of the whole record each: enough to survive the loss of some pods,
and few enough for the default rate limit. One more copy is on a pod that stays: those that go may
be gone before the time of the downscale is recorded (SI-11). See `model.downscale.DownscaleRecord`.

Whatever may patch pods may write a record, so a record is a hint and no proof:
- counts: they say which pods are un-prepared, and hold the group back until the set itself,
  read live, says what became of the downscale. Pods that the set does not want are never called;
- places: only those that the set and the pod's own spec confirm, see `assess_downscale_record`;
- the time: it picks among times of the API server, and is recorded nowhere; a record of the
  future says nothing at all;
- the process: a forged name has the record ignored, which is what removing it does, too.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import PODS, JsonObject, Patcher
from rollout_operator.model.downscale import MOST_EARLIER, DownscaleRecord
from rollout_operator.model.errors import ApiError, Conflict, Denied, InvalidInput, NotFound
from rollout_operator.model.names import DOWNSCALE_RECORD, PREPARE_DOWNSCALE
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.units import check_time, format_rfc3339
from rollout_operator.planning.downscales.endpoint import judge_place, judge_target, show
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.telemetry.logs import log

# With the default limits ten requests may be sent at once, and the live read has taken one of them.
COPIES: Final = 4
# Clocks of API servers may differ by so much, or have been set back since a record was written.
FURTHEST_AHEAD: Final = timedelta(minutes=5)

_DECODER: Final = msgspec.json.Decoder(DownscaleRecord)


class PodRecords:
    """Writes and removes records."""

    def __init__(self, client: Patcher, by: str = "") -> None:
        """Write in the name of a process: no two of one namespace may have the same."""
        self._client = client
        self._by = by
        self._is_forbidden = False

    async def write(
        self, record: DownscaleRecord, pods: Sequence[Pod], annotated_pod: Pod | None = None
    ) -> None:
        """Write a record on some of the pods, and on a pod that stays.

        Raises ApiError where none of them carries it.

        Where the role may not patch pods, nothing is written, and that is logged once: after a
        crash it is unknown then which pods were prepared.
        """
        text = msgspec.json.encode(replace(record, by=self._by)).decode()
        annotated = [*choose_annotated(pods), *([] if annotated_pod is None else [annotated_pod])]
        errors = await gather_all(self._put(pod, text) for pod in annotated)
        failures = [error for error in errors if error is not None]
        if failures and len(failures) == len(errors):
            if all(isinstance(error, Denied) for error in failures):
                self._report_forbidden(failures[0])
                return
            raise failures[0]

    def is_own(self, record: DownscaleRecord) -> bool:
        """Return whether this process wrote a record: it knows more of it than the record says."""
        return bool(self._by) and record.by == self._by

    async def remove(self, pods: Sequence[Pod]) -> ApiError | None:
        """Remove the records of these pods; return the first error. Pods that are gone are fine."""
        errors = await gather_all(self._put(pod, None) for pod in pods if pod.downscale_record)
        return next((error for error in errors if error is not None), None)

    async def _put(self, pod: Pod, text: str | None) -> ApiError | None:
        patch: JsonObject = {
            "metadata": {"uid": pod.uid, "annotations": {DOWNSCALE_RECORD: text}},
        }
        try:
            await self._client.patch(PODS, pod.namespace, pod.name, patch)
        except (NotFound, Conflict) as error:
            # Gone or replaced: it carries no record, and needs none to be removed.
            return None if text is None else error
        except ApiError as error:
            return error
        return None

    def _report_forbidden(self, error: ApiError) -> None:
        if not self._is_forbidden:
            log.warn("Downscales are not recorded on pods: a crash would forget them", err=error)
        self._is_forbidden = True


def choose_annotated(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that carry a copy: first, last, and some in between."""
    if len(pods) <= COPIES:
        return list(pods)
    last = len(pods) - 1
    return [pods[last * step // (COPIES - 1)] for step in range(COPIES)]


def read_downscale_record(pod: Pod, now: datetime) -> DownscaleRecord | None:
    """Return the record of a pod, None where it has none; `now` is the API server's time.

    Raises InvalidInput naming the pod, also for a time that has not come yet: no process can have
    written it.
    """
    if not pod.downscale_record:
        return None
    try:
        record = _DECODER.decode(pod.downscale_record)
    except (msgspec.MsgspecError, RecursionError) as error:
        text = f"Pod {pod.name}: annotation {DOWNSCALE_RECORD}: {error}"
        raise InvalidInput(text) from error
    if record.at.tzinfo is None or not 0 <= record.replicas_to < record.replicas_from:
        text = f"Pod {pod.name}: annotation {DOWNSCALE_RECORD}: {pod.downscale_record[:80]!r}"
        raise InvalidInput(text)
    try:
        check_time(record.at)
    except InvalidInput as error:
        raise InvalidInput(f"Pod {pod.name}: annotation {DOWNSCALE_RECORD}: at: {error}") from error
    if record.at - now > FURTHEST_AHEAD:
        ahead = f"at: {format_rfc3339(record.at)} lies in the future"
        raise InvalidInput(f"Pod {pod.name}: annotation {DOWNSCALE_RECORD}: {ahead}")
    # A client that may write annotations of pods must not send calls anywhere else (D-27).
    targets = (*(() if record.target is None else (record.target,)), *record.earlier)
    problem = next(filter(None, map(judge_target, targets)), "")
    if len(record.earlier) > MOST_EARLIER:
        problem = f"earlier: {len(record.earlier)} > {MOST_EARLIER}"
    if problem:
        raise InvalidInput(f"Pod {pod.name}: annotation {DOWNSCALE_RECORD}: {problem}")
    return record


def assess_downscale_record(record: DownscaleRecord, pod: Pod, sts: StatefulSet) -> str | None:
    """Return why a record on a pod is not believed, naming field and value.

    Not in parts: where a place is made up, so may be the rest.
    """
    if not is_labelled(sts.labels, PREPARE_DOWNSCALE):
        shown = show(sts.labels.get(PREPARE_DOWNSCALE, ""))
        return f"the set is not to be prepared: label {PREPARE_DOWNSCALE}: {shown}"
    targets = (*(() if record.target is None else (record.target,)), *record.earlier)
    return next(filter(None, (judge_place(target, sts, pod.ports) for target in targets)), None)
