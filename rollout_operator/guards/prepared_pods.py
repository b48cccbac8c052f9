"""Which pods are to be un-prepared, and the records on pods from which a later process knows them.

A pod that was prepared, and stays, must be un-prepared at each place where it was called, with as
many calls as it takes; see `controllers.downscales`.

A record is written before the first pod is called. A few pods of the range carry a copy of it each:
enough to survive the loss of some pods, and few enough for the default rate limit. One more copy is
on a pod that stays: the others may be gone before the time of the downscale is recorded (SI-11).

Any client that may patch pods may write a record, so it is a hint and no proof:
- counts: they say which pods are un-prepared, and hold the group back until a live read of the set
  shows the outcome. Pods beyond the replicas of the set are never called;
- places: only those that the set and the pod's own spec confirm, see `assess_downscale_record`;
- the time: it picks among times of the API server, and is recorded nowhere; a record of the future
  is not believed at all;
- the process: under a forged name the record is ignored, as if it were removed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import PODS, JsonObject, Patcher
from rollout_operator.model.decode.objects import LONGEST_RECORD
from rollout_operator.model.names import (
    DOWNSCALE_RECORD,
    PREPARE_DOWNSCALE,
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    Uid,
)
from rollout_operator.model.objects import (
    MOST_EARLIER,
    DownscaleRecord,
    Endpoint,
    Pod,
    StatefulSet,
    Target,
)
from rollout_operator.model.units import check_time, format_rfc3339
from rollout_operator.planning.requests import is_labelled, judge_place, judge_target, show
from rollout_operator.planning.wording import NAMES_SHOWN, join_some
from rollout_operator.telemetry.logs import log


class PreparedPod(NamedTuple):
    """A pod that was prepared, and where it was called."""

    pod: str
    target: Target | None
    """None where an earlier version of the operator called it and did not record the place."""


class DueCancel(NamedTuple):
    """A pod that is to be un-prepared, and where: it may be prepared at several places."""

    uid: Uid
    target: Target | None
    """None for the place that the set names then."""


class BacklogEntry(msgspec.Struct):
    pod: str
    due: timedelta
    again: timedelta | None = None
    """After how long it is called once more."""
    failures: int = 0
    gone: timedelta | None = None
    """When the pod was first found gone and not wanted; None while there is a pod to call."""
    is_dormant: bool = False
    """Whether the pod is on its way out, and not wanted: it is not called."""
    causes: frozenset[str] = frozenset()

    @property
    def over(self) -> timedelta | None:
        """Return since when no pod was left to call, None where there may be one soon."""
        if self.gone is None or self.is_dormant:
            return self.gone
        return max(self.gone, self.due)


class UnprepareBacklog:
    """The pods of a StatefulSet that are to be un-prepared."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.due: dict[DueCancel, BacklogEntry] = {}
        self.version = ""
        """The version of the set that a cache must show before any pod is called."""

    def count(self, counts: Callable[[BacklogEntry], bool]) -> int:
        """Return how many pods have such an entry."""
        return len({cancel.uid for cancel, entry in self.due.items() if counts(entry)})

    def list_targets(self) -> tuple[Target | None, ...]:
        return tuple(dict.fromkeys(cancel.target for cancel in self.due))

    def add(
        self,
        version: str,
        called: Mapping[Uid, PreparedPod],
        *,
        after: timedelta = timedelta(0),
        again: timedelta | None = None,
        are_going: bool = False,
    ) -> None:
        """Have pods un-prepared where they were called, not by an older `version` of the set.

        Those that `are_going` are called if they are wanted again before they are gone.
        """
        due = self._clock.elapsed() + after
        for uid, (pod, at) in called.items():
            self.due[DueCancel(uid, at)] = BacklogEntry(pod, due, again, is_dormant=are_going)
            self.version = version

    def record_un_prepared(self, called: Iterable[DueCancel]) -> None:
        """Record that these pods confirmed; some are called once more."""
        for due_cancel in called:
            entry = self.due.get(due_cancel)
            if entry is not None and entry.again is not None:
                due = self._clock.elapsed() + entry.again
                self.due[due_cancel] = BacklogEntry(entry.pod, due)
            else:
                self.due.pop(due_cancel, None)

    def take_over(self, called: Mapping[Uid, PreparedPod]) -> None:
        """Forget calls to pods that are prepared there now: their reservation counts."""
        for uid, (_, at) in called.items():
            self.due.pop(DueCancel(uid, at), None)


def describe_unreached(entries: Iterable[BacklogEntry]) -> str | None:
    """Return which pods could not be reached and why, the first few; None without any."""
    causes = {entry.pod: min(entry.causes, default="") for entry in entries if entry.failures}
    if not causes:
        return None
    shown = [f"{pod} ({why})" for pod, why in sorted(causes.items())[:NAMES_SHOWN]]
    return f"to be told that they stay: {join_some(shown, total=len(causes))}"


class _FailedCall(Protocol):  # of `pods.PodError`
    @property
    def may_arrive(self) -> bool: ...


class CancelCalls(Protocol):  # of `pods.PodClient`
    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, _FailedCall]: ...


# A pod, and the path at which it was called; None where the path is unknown.
_Called = tuple[Uid, str | None]


class UnansweredCancels:
    """Calls to pods of a StatefulSet that have not been answered.

    A slow pod goes on with a call after its caller gave up. The next call counts only once no
    earlier one can take effect any more (SI-10), which `planning.downscales` decides. Pods with the
    record of an ended process may have been called just before it ended.
    """

    def __init__(self, clock: Clock, lasts: timedelta) -> None:
        """A call may take effect for `lasts` after its caller gave up."""
        self._clock, self._lasts = clock, lasts
        self._until: dict[_Called, timedelta] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no call can take effect any more."""
        return max(self._until.values(), default=timedelta(0)) <= self._clock.elapsed()

    async def cancel_all(
        self, calls: CancelCalls, endpoints: Sequence[Endpoint]
    ) -> Mapping[Uid, _FailedCall]:
        """Un-prepare pods; return those that did not confirm.

        The caller holds the lock of the set's calls.
        """
        unanswered = {endpoint.uid for endpoint in endpoints}
        try:
            failed = await calls.cancel_all(endpoints)
            unanswered = {uid for uid, error in failed.items() if error.may_arrive}
        finally:
            # Also where we are cancelled: then none of them may have answered.
            self._record([(one.uid, one.path) for one in endpoints if one.uid in unanswered])
        return failed

    def suspect(self, pods: Iterable[Uid], target: Target | None) -> None:
        """Expect calls of a process that has ended: it may have called these pods."""
        path = None if target is None else target.path
        self._record([(uid, path) for uid in pods])

    def map_waits(self, endpoints: Iterable[Endpoint]) -> dict[Uid, timedelta]:
        """Return how long calls to pods may still take effect there, for pods with any."""
        now, none = self._clock.elapsed(), timedelta(0)
        waits: dict[Uid, timedelta] = {}
        for one in endpoints:
            keys = ((one.uid, one.path), (one.uid, None))
            left = max(self._until.get(key, none) for key in keys) - now
            if left > none:
                waits[one.uid] = left
        return waits

    def _record(self, called: Iterable[_Called]) -> None:
        now = self._clock.elapsed()
        self._until = {key: end for key, end in self._until.items() if end > now}
        self._until.update(dict.fromkeys(called, now + self._lasts))


# With the default limits ten requests may be sent at once, one of which is the live read.
COPIES: Final = 4
# Clocks of API servers may differ by so much, or have been set back since a record was written.
_FURTHEST_AHEAD: Final = timedelta(minutes=5)

_DECODER: Final = msgspec.json.Decoder(DownscaleRecord)
_PATH: Final = f"/metadata/annotations/{DOWNSCALE_RECORD.replace('/', '~1')}"


class PodRecords:
    """Writes and removes the records of one process.

    Those of two processes of one namespace differ by the name `by`.
    """

    def __init__(self, client: Patcher, by: str = "") -> None:
        self._client, self._by = client, by
        self._is_forbidden = False

    async def write(
        self, record: DownscaleRecord, pods: Sequence[Pod], staying: Sequence[Pod] = ()
    ) -> None:
        """Write a record on some of the pods, and on one of those that stay.

        Raises ApiError where none that stays carries it, or none at all, except where the Role
        forbids it: after a crash it is unknown then which pods were prepared, or have gone.
        """
        text = msgspec.json.encode(replace(record, by=self._by)).decode()
        annotated = [*choose_annotated(pods), *staying[:1]]
        errors = await gather_all(self._put(pod, text) for pod in annotated)
        if staying and errors[-1] is not None and not _is_by_role(errors[-1]):
            errors[-1] = await self._put(staying[-1], text)
        failures = [error for error in errors if error is not None]
        if failures and all(map(_is_by_role, failures)):
            if not self._is_forbidden:
                text = "Downscales are not recorded on pods: a crash would forget them"
                log.warn(text, err=failures[0])
            self._is_forbidden = True
        elif failures and (errors[-1] is not None if staying else len(failures) == len(errors)):
            raise failures[-1]

    def is_own(self, record: DownscaleRecord, set_uid: Uid) -> bool:
        """Return whether this process wrote a record for a set, and knows more than it has.

        What it knew of a set that was deleted it has forgotten: where another set adopts the pods,
        their records count (LI-05).
        """
        is_of_set = record.set_uid in (Uid(""), set_uid)
        return bool(self._by) and record.by == self._by and is_of_set

    async def remove(self, pods: Sequence[Pod]) -> ApiError | None:
        """Remove the records that these pods show; return the first error. Pods may be gone."""
        errors = await gather_all(self._remove(pod) for pod in pods if pod.downscale_record)
        return next((error for error in errors if error is not None), None)

    async def _put(self, pod: Pod, text: str) -> ApiError | None:
        # With the version: a request that arrives late must not replace a later record.
        meta: JsonObject = {"uid": pod.uid, "resourceVersion": pod.resource_version}
        meta["annotations"] = {DOWNSCALE_RECORD: text}
        return await self._patch(pod, {"metadata": meta})

    async def _remove(self, pod: Pod) -> ApiError | None:
        # A request that arrives late must not take the record of a later downscale.
        steps: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": _PATH, "value": pod.downscale_record},
            {"op": "remove", "path": _PATH},
        ]
        if len(pod.downscale_record) > LONGEST_RECORD:
            del steps[1]  # it was cut
        error = await self._patch(pod, steps)
        # Gone or replaced: there is no record to remove.
        return None if isinstance(error, NotFound | Conflict) else error

    async def _patch(self, pod: Pod, patch: JsonObject | list[JsonObject]) -> ApiError | None:
        try:
            await self._client.patch(PODS, pod.namespace, pod.name, patch)
        except ApiError as error:
            return error
        return None


def _is_by_role(error: ApiError) -> bool:
    return isinstance(error, Denied) and error.is_by_role


def choose_annotated(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that carry a copy: first, last, and some in between."""
    if len(pods) <= COPIES:
        return list(pods)
    last = len(pods) - 1
    return [pods[last * step // (COPIES - 1)] for step in range(COPIES)]


def read_downscale_record(pod: Pod, now: datetime) -> DownscaleRecord | None:
    """Return the record of a pod, None without one; `now` is the API server's time.

    Raises InvalidInput naming the pod, also for a time in the future.
    """
    if not pod.downscale_record:
        return None
    place = f"Pod {pod.name}: annotation {DOWNSCALE_RECORD}"
    try:
        record = _DECODER.decode(pod.downscale_record)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{place}: {error}") from error
    if record.at.tzinfo is None or not 0 <= record.replicas_to < record.replicas_from:
        raise InvalidInput(f"{place}: {pod.downscale_record[:80]!r}")
    try:
        check_time(record.at)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: at: {error}") from error
    if record.at - now > _FURTHEST_AHEAD:
        raise InvalidInput(f"{place}: at: {format_rfc3339(record.at)} lies in the future")
    # A client that may write annotations of pods must not send calls anywhere else (D-27).
    problem = next(filter(None, map(judge_target, _list_places(record))), "")
    if len(record.earlier) > MOST_EARLIER:
        problem = f"earlier: {len(record.earlier)} > {MOST_EARLIER}"
    if problem:
        raise InvalidInput(f"{place}: {problem}")
    return record


def assess_downscale_record(record: DownscaleRecord, pod: Pod, sts: StatefulSet) -> str | None:
    """Return why a record on a pod is not believed, naming field and value.

    A record with one false place is not believed at all.
    """
    if not is_labelled(sts.labels, PREPARE_DOWNSCALE):
        shown = show(sts.labels.get(PREPARE_DOWNSCALE, ""))
        return f"the set is not to be prepared: label {PREPARE_DOWNSCALE}: {shown}"
    problems = (judge_place(target, sts, pod.ports) for target in _list_places(record))
    return next(filter(None, problems), None)


def _list_places(record: DownscaleRecord) -> tuple[Target, ...]:
    return (*(() if record.target is None else (record.target,)), *record.earlier)
