"""Write replica counts, and the marks that announce downscales.

This is the only code that changes `spec.replicas`. An upscale goes as the cache shows the group. A
downscale removes pods: it is decided again on a live read, under the group's lock, and announced
before the lock is released, so that no rollout begins meanwhile. The lock is not held across the
write: the review of a prepared set takes it (FP-24). What may take long goes before the live read:
writing the mark of a downscale that no review announces, and waiting for the turn to write.

A mark is on its set before that live read, which has to show it, and the write fails without it.
Without an answer to the write the mark stays, and the process that finds it removes it; where the
write was answered, or not sent at all, the next attempt uses the same mark. `planning` says what
marks are for.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import CLOCK_ERROR, Clock
from rollout_operator.aio.queue import Rewrites
from rollout_operator.controllers.context import Context
from rollout_operator.controllers.observe import (
    EXPIRED_IN_A_ROW,
    LIVE_READ_LASTS,
    Observer,
    describe_slow_call,
)
from rollout_operator.controllers.worker import RESYNC, Attempt, Attempts, get_retry_after
from rollout_operator.guards.downscales import PERSIST_LIMIT, Downscales, Intents, is_annotated
from rollout_operator.guards.tracker import READ_AGAIN
from rollout_operator.guards.turns import group_lock
from rollout_operator.kube.api import STATEFULSETS, ApiClient, JsonObject, Patcher, Reader
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import (
    DOWNSCALE_INTENT,
    LAST_DOWNSCALE,
    PREPARE_DOWNSCALE,
    ApiError,
    Conflict,
    DeadlinePassed,
    DecodeError,
    Denied,
    GroupName,
    InvalidInput,
    NotFound,
    Refused,
    TooManyRequests,
    Uid,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.objects import Group, StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import (
    CallPods,
    PodCalls,
    ScaleZone,
    ScalingSnapshot,
    TimesSource,
    Written,
)
from rollout_operator.model.units import format_next_second
from rollout_operator.planning.downscales import format_left
from rollout_operator.planning.requests import announces, is_labelled, needs_intent, render_intent
from rollout_operator.planning.scaling import plan_scaling
from rollout_operator.telemetry.logs import log

# Of the requests that the process may send to an API group. A removal takes up to three.
_SHARE: Final = 0.2
# A process that ends in a bad moment leaves some marks behind.
_BURST: Final = 10
# Removed at a time: each has a worker, of which there are a few for all groups.
_MOST_UNDERWAY: Final = 4
# How soon a mark in the line tries again; it costs no request.
_SHORTEST_WAIT: Final = timedelta(seconds=5)
_PATH: Final = f"/metadata/annotations/{DOWNSCALE_INTENT.replace('/', '~1')}"
# First wait after the API server contradicted the cache, which catches up any moment.
_RECHECK_WAIT: Final = timedelta(milliseconds=50)
# A write that holds back its group and fails for longer than it may hold it leaves the group to
# others for most of this time (D-25).
_HELD_WAIT: Final = timedelta(minutes=2)
# Timers may be early by a little.
CATCH_UP: Final = timedelta(milliseconds=20)
# A cache that does not show an own write for so long is reported as behind by its own age.
_UNSEEN_LIMIT: Final = timedelta(seconds=60)


class Removals:
    """Paces the removals of marks by one process.

    Any client that may annotate sets can write any number of marks. A mark that this process did
    not write has a share of the rate limit and waits in a line, where it keeps no worker from other
    groups; and it is removed ever more seldom from the same set, whatever its text (LI-09, LI-11).
    """

    def __init__(self, intents: Intents, clock: Clock, qps: float) -> None:
        """Share the rate limit of `qps` requests a second; without a limit for zero or less."""
        self._intents, self._clock = intents, clock
        self._interval = timedelta(seconds=1 / (qps * _SHARE) if qps > 0 else 0)
        self._paid_until = timedelta(0)
        """When the removals so far have taken no more than their share."""
        self._ours: Rewrites[Uid, str] = Rewrites(clock)
        self._foreign: Rewrites[Uid, None] = Rewrites(clock)
        self._underway = 0
        self._line: dict[Uid, timedelta] = {}
        """When each set in the line tries again, in the order in which they came."""

    def wait_before(self, sts: StatefulSet) -> timedelta:
        """Return how long a mark must wait because earlier marks came back.

        Otherwise a copy of the set, as GitOps may hold it, would be fought at full speed. All marks
        that are not ours count alike.
        """
        if self._is_ours(sts):
            return self._ours.wait_before(sts.uid, _text(sts))
        return self._foreign.wait_before(sts.uid, None)

    def count(self, sts: StatefulSet) -> int:
        """Return how often such a mark was removed from a set in a row."""
        if self._is_ours(sts):
            return self._ours.count(sts.uid, _text(sts))
        return self._foreign.count(sts.uid, None)

    def wait_in_line(self, sts: StatefulSet) -> timedelta:
        """Return how long a mark must wait for those before it; zero if it may take its `turn`."""
        if self._is_ours(sts):
            return timedelta(0)
        now = self._clock.elapsed()
        # One that comes late keeps its place.
        self._line[sts.uid] = now
        for uid in list(islice(self._line, _MOST_UNDERWAY)):
            if now - self._line[uid] > _SHORTEST_WAIT:  # it no longer tries: its mark is gone
                del self._line[uid]
        has_share = self._paid_until - now <= (_BURST - 1) * self._interval
        room = _MOST_UNDERWAY - self._underway if has_share else 0
        place = list(self._line).index(sts.uid)
        # By its place: if all tried again at once, only the first few would have their turn, and
        # the share of the time until then would be lost.
        is_due = place < room
        wait = timedelta(0) if is_due else max(place * self._interval, _SHORTEST_WAIT)
        self._line[sts.uid] = now + wait
        return wait

    @contextmanager
    def turn(self, sts: StatefulSet) -> Iterator[None]:
        """Hold the turn of a mark while it is removed; without an error it counts as removed."""
        if self._is_ours(sts):
            yield
            self._ours.record(sts.uid, _text(sts))
            return
        self._line.pop(sts.uid, None)
        self._paid_until = max(self._paid_until, self._clock.elapsed()) + self._interval
        self._underway += 1
        try:
            yield
        finally:
            self._underway -= 1
        self._foreign.record(sts.uid, None)

    def record_answered(self, set_uid: Uid) -> None:
        """Record that a set was scaled down by a mark of ours: nobody contests that any more."""
        self._foreign.forget(set_uid)

    def forget(self, set_uid: Uid) -> None:
        self._ours.forget(set_uid)
        self._foreign.forget(set_uid)
        self._line.pop(set_uid, None)

    def _is_ours(self, sts: StatefulSet) -> bool:
        return self._intents.is_ours(sts.uid, _text(sts))


def _text(sts: StatefulSet) -> str:
    return sts.annotations[DOWNSCALE_INTENT]


class _IntentClient(Reader, Patcher, Protocol): ...


@dataclass(slots=True)
class IntentWriter:
    client: Patcher
    removing: _IntentClient
    removals: Removals
    downscales: Downscales
    process: str
    """Unique within a namespace."""
    _attempts: int = field(default=0, init=False)

    def begin(self, sts: StatefulSet, replicas: int) -> str:
        """Return the mark of an attempt: the last one if it stands and announces the same."""
        if self.downscales.intents.is_idle(sts) and announces(sts, replicas):
            text = sts.annotations[DOWNSCALE_INTENT]
        else:
            self._attempts += 1
            text = render_intent(sts, replicas, f"{self.process}-{self._attempts}")
        self.downscales.intents.begin(sts.uid, text)
        return text

    async def write(self, sts: StatefulSet, text: str) -> None:
        """Mark a set, in place of any other mark.

        Raises ApiError. Without an answer no write that relies on the mark may be sent, so that
        this is no UnknownOutcome of the downscale.
        """
        if sts.annotations.get(DOWNSCALE_INTENT) == text:
            return
        # The live read confirms the rest: this spares a mark where the cache is behind.
        spec: JsonObject = {"op": "test", "path": "/metadata/generation", "value": sts.generation}
        add: JsonObject = {"op": "add", "path": _PATH, "value": text}
        try:
            await _patch(self.client, sts, [_test_uid(sts.uid), spec, add])
        except UnknownOutcome as error:
            raise Unreachable(f"{error}", call=error.call) from error

    async def revoke(self, sts: StatefulSet) -> bool:
        """Remove the mark of a set; return whether it was still there.

        From then on the write that relies on it fails, however late. Raises ApiError; Conflict
        where the API server shows another set.
        """
        text = sts.annotations[DOWNSCALE_INTENT]
        underway = self.downscales.intents.find([sts])
        if underway is not None:
            was_removed = self.removals.count(sts) > 0
            log.info(
                "Removing mark of a downscale that was removed before and is back"
                if was_removed
                else "Revoking downscale without an answer",
                zone=sts.name,
                replicas_from=underway.replicas_from,
                replicas_to=underway.replicas_to,
            )
        with self.removals.turn(sts):
            try:
                now = await _patch(self.removing, sts, [_test_uid(sts.uid), *_render_steps(text)])
            except NotFound as error:
                raise Conflict(f"{error}", call=error.call) from error
            except Conflict:
                now = _decode(await self.removing.fetch(STATEFULSETS, sts.namespace, sts.name))
                if now.uid != sts.uid or now.annotations.get(DOWNSCALE_INTENT) != text:
                    self.downscales.record_revoked(sts, text, now.resource_version)
                    return False
                now = await self._remove(now)
            self.downscales.record_revoked(sts, text, now.resource_version)
            return True

    async def _remove(self, sts: StatefulSet) -> StatefulSet:
        """Remove the mark of a set in this very version.

        A test of the text of a mark fails in the API server where Go's JSON writes its characters
        otherwise. Ours have none of them, but a person may write one.
        """
        head: JsonObject = {"uid": sts.uid, "resourceVersion": sts.resource_version}
        patch: JsonObject = {"metadata": {**head, "annotations": {DOWNSCALE_INTENT: None}}}
        return _decode(await self.removing.patch(STATEFULSETS, sts.namespace, sts.name, patch))


def _render_steps(text: str) -> list[JsonObject]:
    """Return the steps of a patch that fails without a mark, and removes it."""
    return [{"op": "test", "path": _PATH, "value": text}, {"op": "remove", "path": _PATH}]


async def _patch(client: Patcher, sts: StatefulSet, steps: list[JsonObject]) -> StatefulSet:
    return _decode(await client.patch(STATEFULSETS, sts.namespace, sts.name, steps))


def _test_uid(uid: Uid) -> JsonObject:
    return {"op": "test", "path": "/metadata/uid", "value": uid}


def _decode(body: bytes) -> StatefulSet:
    try:
        return decode_statefulset(body)
    except DecodeError as error:
        raise Conflict(f"{error}") from error


class _Overtaken(Conflict):
    """A live read leads to another decision, as each time that a rollout goes on first."""


class _OldAnswers(DeadlinePassed):
    """What the pods of a delayed downscale said is too old at its live read."""

    def __init__(self, calls: CallPods) -> None:
        super().__init__(f"the pods of {calls.zone.name} have answered too long ago")
        self.calls = calls


class ReconcileOutcome(msgspec.Struct, kw_only=True):
    reasons: list[Reason] = []
    again: timedelta = RESYNC

    def clear(self) -> None:
        self.reasons.clear()
        self.again = RESYNC

    def fail(self, reason: Reason, again: timedelta) -> None:
        self.reasons.append(reason)
        self.again = min(self.again, again + CATCH_UP)


class Write(msgspec.Struct, frozen=True, kw_only=True):
    attempt: Attempt
    what: str
    zone: str = ""
    send: Callable[[], Awaitable[None]]
    is_blocked: Callable[[], bool] = lambda: False
    """Whether nothing else of the group may begin although it failed."""
    waited_for: Callable[[], timedelta | None] = lambda: None
    """How much longer the group waits for it, perhaps zero; None where that is unknown."""

    @property
    def clash(self) -> Attempt:
        # Its conflicts with the store.
        return ("clash", *self.attempt)

    @property
    def stuck(self) -> Attempt:
        # Those of them by which its decision still stands.
        return ("stuck", *self.attempt)

    @property
    def late(self) -> Attempt:
        # Its live reads that were too old.
        return ("late", *self.attempt)


class ScalingWrites:
    """Sends the writes of one process, unless they failed lately, and reports the outcomes.

    Three things may go wrong with a write, and each has its own back-off: it failed; the API server
    contradicted the cache, which is no reason to warn; the live read that it relies on was too old
    before it was sent, which is logged once it happens repeatedly (SI-09).
    """

    def __init__(self, attempts: Attempts) -> None:
        self.attempts = attempts

    async def send(self, write: Write, outcome: ReconcileOutcome) -> bool:
        """Return whether a write was sent and accepted (D-18)."""
        attempts = self.attempts
        if self._must_wait(write, outcome):
            return False
        try:
            await write.send()
        except Conflict as error:
            wait = attempts.record_failure(write.clash, str(error), at_least=_RECHECK_WAIT)
            is_overtaken = isinstance(error, _Overtaken)
            if not is_overtaken:
                attempts.record_failure(write.stuck, str(error))
            if is_overtaken or attempts.failing_for(write.stuck) < _UNSEEN_LIMIT:
                outcome.fail(_render_clash(write, str(error)), wait)
                return False
            # No cache is behind for so long: something else is in the way, and others go first.
            wait = attempts.record_failure(write.attempt, str(error), at_least=wait)
            _fail(write, str(error), wait, outcome)
            return False
        except DeadlinePassed as error:
            wait = attempts.record_failure(write.late, str(error))
            outcome.fail(self._render_late(write, str(error)), wait)
            return False
        except (ApiError, InvalidInput) as error:
            wait = self._record_failure(write, error)
            _fail(write, str(error), wait, outcome)
            return False
        for attempt in (write.attempt, write.clash, write.stuck, write.late):
            attempts.record_success(attempt)
        return True

    def _must_wait(self, write: Write, outcome: ReconcileOutcome) -> bool:
        wait, failure = self.attempts.wait_before(write.attempt)
        if wait:
            _fail(write, failure, wait, outcome)
            return True
        wait, failure = self.attempts.wait_before(write.clash)
        if wait:
            outcome.fail(_render_clash(write, failure), wait)
            return True
        wait, failure = self.attempts.wait_before(write.late)
        if wait:
            outcome.fail(self._render_late(write, failure), wait)
        return bool(wait)

    def _record_failure(self, write: Write, error: ApiError | InvalidInput) -> timedelta:
        attempts, least = self.attempts, get_retry_after(error)
        if write.is_blocked() and attempts.failing_for(write.attempt) >= PERSIST_LIMIT:
            least = max(least, _HELD_WAIT)
        wait = attempts.record_failure(write.attempt, str(error), at_least=least)
        log.debug(
            "Attempt failed", attempt=write.attempt[0], zone=write.zone, again_in=wait, err=error
        )
        return wait

    def _render_late(self, write: Write, why: str) -> Reason:
        is_failure = self.attempts.count(write.late) >= EXPIRED_IN_A_ROW
        text = f"{write.what}: a live read was too old before the write was sent: {why}"
        severity = Severity.WARN if is_failure else Severity.DEBUG
        return Reason(code=Code.LIVE_READ_EXPIRED, text=text, severity=severity, zone=write.zone)


def _render_clash(write: Write, failure: str) -> Reason:
    return Reason(
        code=Code.SNAPSHOT_CHANGED, text=failure, severity=Severity.DEBUG, zone=write.zone
    )


def _fail(write: Write, failure: str, wait: timedelta, outcome: ReconcileOutcome) -> None:
    """Record why a write failed, and how much longer its group waits for it."""
    reason, left = render_failure(write.what, failure, write.zone), write.waited_for()
    if left is not None:
        text = f"{reason.text}; its group goes on nevertheless"
        reason = replace(reason, text=text)
    if left:
        reason = replace(reason, text=f"{text} in {format_left(left)}", stable_text=f"{text} later")
        wait = min(wait, left)
    outcome.fail(reason, wait)


def render_failure(what: str, failure: str, zone: str) -> Reason:
    text = f"{what}: the last attempt failed and will be repeated: {failure}"
    return Reason(code=Code.SCALE_REFUSED, text=text, severity=Severity.WARN, zone=zone)


def _render_patch(
    action: ScaleZone, mark: str | None, record: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return the steps that write replicas, and those that record their time.

    They fail where another count was written since, or the set is another. A test of the version
    would fail with each change of the status, of which a zone that scales has many.
    """
    zone = action.zone
    return [
        {"op": "test", "path": "/metadata/uid", "value": zone.uid},
        *_render_spec(action),
        *([] if mark is None else _render_steps(mark)),
        {"op": "test", "path": "/spec/replicas", "value": zone.replicas},
        {"op": "replace", "path": "/spec/replicas", "value": action.replicas},
        *record,
    ]


def _name_outcome(error: ApiError) -> str:
    match error:
        case Conflict() | NotFound():
            return "conflict"
        case Refused() | TooManyRequests():
            return "refused"
        case UnknownOutcome():
            return "unknown"
    return "failed"


def _render_spec(action: ScaleZone) -> list[JsonObject]:
    """Return the tests that protect a spec that a downscale was not decided for.

    A late downscale would find the same count again after an upscale, and remove pods that were not
    called. A review of each attempt has them called, and a template that changes while pods prepare
    must not fail it. A downscale of pods because they were not ready tests their status as well.
    """
    zone = action.zone
    if not action.is_downscale or is_labelled(zone.labels, PREPARE_DOWNSCALE):
        return []
    if action.is_exact:
        version = zone.resource_version
        return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    return [{"op": "test", "path": "/metadata/generation", "value": zone.generation}]


class _UnseenWrite(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int
    generation: int | None
    """That of the answer; None without an answer: it may be written now, later or never."""
    expires_at: timedelta
    """On the clock's `elapsed`."""
    keeps_time: bool = False
    mark: str | None = None
    """The mark of a downscale without an answer that no review announces."""


class Replicas:
    """Writes counts, and remembers them until the cache shows them."""

    def __init__(
        self, context: Context, client: ApiClient, observer: Observer, process: str
    ) -> None:
        """`process` is a name that no other process of the namespace has."""
        self._context, self._client, self._observer = context, client, observer
        self._clock, self._downscales = context.clock, context.downscales
        self._times = context.make_records(client)
        self.removals = Removals(self._downscales.intents, self._clock, context.settings.client_qps)
        self._intents = IntentWriter(
            client,
            context.open("revoking", Priority.RELEASE),
            self.removals,
            self._downscales,
            process,
        )
        self._unseen: dict[Uid, _UnseenWrite] = {}
        self._unrecorded: set[Uid] = set()

    def take_snapshot(self, group: Group) -> ScalingSnapshot:
        """Return the snapshot of the counts of a group, with those just written and last times."""
        sets = [zone.sts for zone in group.zones]
        self.settle(sets)
        shown = {sts.uid for sts in sets}
        written = {
            uid: Written(replicas=unseen.replicas, generation=unseen.generation)
            for uid, unseen in self._unseen.items()
            if uid in shown and unseen.generation is not None
        }
        times, source = self._times.recall(sets), self._times.source
        return ScalingSnapshot(group=group, times=times, source=source, written=written)

    def settle(self, sets: Iterable[StatefulSet]) -> timedelta | None:
        """Forget writes that these sets show.

        Returns after how long to do so again: until then a downscale without an answer holds back
        its group, whether or not it is still wanted. None where there is none.
        """
        shown = {sts.uid: sts for sts in sets}
        now = self._clock.elapsed()
        for uid, unseen in list(self._unseen.items()):
            sts = shown.get(uid)
            if unseen.expires_at <= now or (sts is not None and _shows(sts, unseen)):
                del self._unseen[uid]
                self._downscales.end_announcement(uid)
                if unseen.generation is None and unseen.keeps_time and unseen.expires_at > now:
                    self.record_downscale(uid)
        left = [
            write.expires_at - now for write in self._unseen.values() if write.generation is None
        ]
        return min(left, default=None)

    def forget(self, set_uid: Uid) -> None:
        self._downscales.last.forget(set_uid)
        self._downscales.intents.forget(set_uid)
        self.removals.forget(set_uid)
        self._unrecorded.discard(set_uid)
        self._unseen.pop(set_uid, None)
        self._downscales.end_announcement(set_uid)

    def is_blocked(self, sts: StatefulSet) -> bool:
        """Return whether a downscale of a set may still happen although it was not written.

        It got no answer, or was allowed by us and refused by another webhook: until that is over,
        nothing else of its group begins, and each further attempt makes it last as long again.
        """
        underway = self._downscales.find_underway(sts.group)
        return underway is not None and underway.zone == sts.name

    def record_downscale(self, uid: Uid) -> None:
        """Record that any client has scaled a set down just now: others wait from now on."""
        self._downscales.last.record(uid, self._observer.now())
        self._unrecorded.add(uid)

    def take_record(self, sts: StatefulSet) -> None:
        """Learn that a set shows its last downscale, whatever process has recorded it."""
        last = self._downscales.last
        at = last.map_unshown({sts.uid: sts.resource_version}).get(sts.uid)
        is_there = self._times.source is TimesSource.ANNOTATIONS
        if is_there and at is not None and is_annotated(sts, at):
            last.record_shown(sts.uid, at, sts.resource_version)
            self._unrecorded.discard(sts.uid)

    def has_written(self, sts: StatefulSet) -> bool:
        """Return whether a cached set shows our last write, whose time is remembered already."""
        unseen = self._unseen.get(sts.uid)
        return unseen is not None and _shows(sts, unseen) and sts.replicas == unseen.replicas

    def has_unrecorded(self, sts: StatefulSet) -> bool:
        """Return whether a set shows a downscale of ours that may not be recorded."""
        return sts.uid in self._unrecorded and sts.uid not in self._unseen

    async def record(self, sts: StatefulSet) -> None:
        """Record the last downscale of a set once. Raises ApiError and InvalidInput."""
        last = self._downscales.last
        at = last.times[sts.uid]
        version = await self._times.keep(sts, at)
        last.record_shown(sts.uid, at, version)
        if last.times.get(sts.uid) == at:
            self._unrecorded.discard(sts.uid)

    async def refresh_times(self) -> bool:
        """Read again times that are not cached; return whether they changed."""
        try:
            return await self._times.refresh()
        except (ApiError, InvalidInput) as error:
            log.debug("Times of downscales were not read again", err=error)
            return False

    @property
    def times_last(self) -> timedelta | None:
        """Return how long times count after a read; None where they are cached."""
        return READ_AGAIN if self._times.source is TimesSource.TRACKER else None

    async def scale_up(self, group: GroupName, action: ScaleZone) -> None:
        """Write more replicas. Raises ApiError; Conflict where the cache was behind."""
        await self._write(group, action)

    async def scale_down(
        self,
        scaling: ScalingSnapshot,
        action: ScaleZone,
        is_current: Callable[[], bool],
        ask: Callable[[CallPods], Awaitable[Mapping[Uid, PodCalls]]],
    ) -> None:
        """Write fewer replicas, if a live read leads to the same decision.

        `is_current` says whether what the zone mirrors is still shown as it was planned by. `ask`
        calls pods whose answers have grown old since, and returns all that is known of them.

        Raises ApiError, Conflict where it does not, DeadlinePassed where the live read is too old
        by then, and InvalidInput where times cannot be read.
        """
        zone, mark, is_announced = action.zone, None, False
        try:
            if needs_intent(zone):
                self._check_stopping(zone)
                mark, is_announced = self._intents.begin(zone, action.replicas), True
                self._downscales.announce(zone, action.replicas)
                await self._intents.write(zone, mark)
            await self._client.wait_turn_to_patch(STATEFULSETS, zone.namespace, zone.name)
            try:
                agreed = await self._confirm(scaling, action, mark)
            except _OldAnswers as old:
                scaling = replace(scaling, pod_calls=await ask(old.calls))
                agreed = await self._confirm(scaling, action, mark)
            is_announced = True
            if not is_current():
                raise _Overtaken(f"what {zone.name} mirrors has changed meanwhile")
            await self._write(scaling.group.name, agreed, mark, has_turn=True)
        except UnknownOutcome:
            is_announced = False  # until it can be written no more, see `settle`
            raise
        except (ApiError, InvalidInput):
            if mark is not None:
                self._downscales.intents.record_void(zone.uid, mark)
            raise
        finally:
            if is_announced:
                self._downscales.end_announcement(zone.uid)

    async def _confirm(
        self, scaling: ScalingSnapshot, action: ScaleZone, mark: str | None
    ) -> ScaleZone:
        """Return the action by a live read, which has to show the mark as well; announce it."""
        group, name = scaling.group, action.zone.name
        async with self._context.locks.hold(group_lock(group.name)):
            live = await self._observer.observe_live(group)
            sent_at, listed_in = self._clock.elapsed() - live.snapshot_age, live.snapshot_age
            sets = [zone.sts for zone in live.zones]
            times = await self._times.read(sets)
            plan = plan_scaling(replace(scaling, group=live, times=times, written={}))
            same = (other for other in plan.scale if _name_change(other) == _name_change(action))
            agreed = next(same, None)
            others = self._downscales.intents.find(sets, but=action.zone.uid)
            for calls in plan.pod_calls:
                if calls.post and calls.zone.uid == action.zone.uid:
                    raise _OldAnswers(calls)
            if agreed is None or live.owners != group.owners or others is not None:
                raise _Overtaken(f"the API server does not confirm what the cache shows of {name}")
            zone, intents = agreed.zone, self._downscales.intents
            if mark is None and needs_intent(zone):
                raise Conflict(f"no review announces the downscale of {name} any more")
            if mark is not None and zone.annotations.get(DOWNSCALE_INTENT) != mark:
                intents.record_gone(zone.uid, mark, zone.resource_version)
                raise Conflict(f"the mark of the downscale of {name} is not there any more")
            self._check_stopping(zone)
            age = self._clock.elapsed() - sent_at
            # A review that announces a downscale decides it by a live read of its own.
            if mark is not None and age > LIVE_READ_LASTS:
                raise DeadlinePassed(describe_slow_call(listed_in, age - listed_in))
            self._downscales.announce(zone, agreed.replicas)
        return agreed

    def list_marked(self, sets: Iterable[StatefulSet]) -> list[StatefulSet]:
        """Return the sets with a mark that is to be removed: a write may still rely on it."""
        intents = self._downscales.intents
        return [sts for sts in intents.list_left(sets) if not intents.is_idle(sts)]

    def list_unused(
        self, sets: Iterable[StatefulSet], actions: Sequence[ScaleZone]
    ) -> list[StatefulSet]:
        """Return the sets with a mark of ours that is over, and that these actions do not use."""
        wanted = {action.zone.uid: action.replicas for action in actions}
        idle = [sts for sts in sets if self._downscales.intents.is_idle(sts)]
        return [sts for sts in idle if not announces(sts, wanted.get(sts.uid, sts.replicas))]

    async def revoke(self, sts: StatefulSet) -> None:
        """Have the marked downscale of a set fail, however late it comes. Raises ApiError."""
        mark = sts.annotations[DOWNSCALE_INTENT]
        try:
            is_over = await self._intents.revoke(sts)
        except (Denied, Refused):
            self._downscales.record_refused(sts, mark)
            raise
        unseen = self._unseen.get(sts.uid)
        if is_over and unseen is not None and unseen.mark == mark:
            del self._unseen[sts.uid]
            self._downscales.end_announcement(sts.uid)

    def _check_stopping(self, sts: StatefulSet) -> None:
        if self._context.is_stopping:
            raise Conflict(f"{sts.name} is left to the next process: this one stops")

    async def _write(
        self,
        group: GroupName,
        action: ScaleZone,
        mark: str | None = None,
        *,
        has_turn: bool = False,
    ) -> None:
        zone = action.zone
        log.info(
            "Scaling zone",
            group=group, zone=zone.name, replicas_from=zone.replicas, replicas_to=action.replicas,
            reason=action.reason.code, why=action.reason.text,
        )  # fmt: skip
        try:
            steps = _render_patch(action, mark, self._render_time(action))
            body = await self._client.patch(
                STATEFULSETS, zone.namespace, zone.name, steps, has_turn=has_turn
            )
        except ApiError as error:
            self._count(group, action, _name_outcome(error))
            if isinstance(error, UnknownOutcome):
                self._unseen[zone.uid] = _UnseenWrite(
                    replicas=action.replicas,
                    generation=None,
                    expires_at=self._clock.elapsed() + PERSIST_LIMIT,
                    keeps_time=action.keeps_time,
                    mark=mark,
                )
            raise
        self._count(group, action, "accepted")
        try:
            written = decode_statefulset(body)
        except DecodeError as error:
            raise Conflict(str(error), call=f"patch statefulset {zone.name}") from error
        if mark is not None:
            self._downscales.intents.record_gone(zone.uid, mark, written.resource_version)
            self.removals.record_answered(zone.uid)
        self._unseen[zone.uid] = _UnseenWrite(
            replicas=written.replicas,
            generation=written.generation,
            expires_at=self._clock.elapsed() + _UNSEEN_LIMIT,
        )
        if action.keeps_time:
            self.record_downscale(written.uid)
            self.take_record(written)
        if written.replicas != action.replicas:
            # A webhook changed it; otherwise the same would be written again at once.
            why = f"stored as {written.replicas} instead of {action.replicas}"
            raise Refused(f"statefulset {zone.name}: spec.replicas: {why}")
        self._context.events.on_scaled(action)

    def _render_time(self, action: ScaleZone) -> list[JsonObject]:
        """Return the steps that record a downscale in the same write, if annotations keep it."""
        if not action.keeps_time or self._times.source is not TimesSource.ANNOTATIONS:
            return []
        path = f"/metadata/annotations/{LAST_DOWNSCALE.replace('/', '~1')}"
        # The server's clock may be a second ahead of our estimate.
        text = format_next_second(self._observer.now() + CLOCK_ERROR)
        return [{"op": "add", "path": path, "value": text}]

    def _count(self, group: GroupName, action: ScaleZone, outcome: str) -> None:
        direction = "down" if action.is_downscale else "up"
        self._context.metrics.scalings.labels(group, direction, outcome).inc()


def _shows(sts: StatefulSet, unseen: _UnseenWrite) -> bool:
    """Return whether a cached set shows the replicas that were written, or a later write."""
    if unseen.generation is None:
        return sts.replicas == unseen.replicas
    return sts.generation >= unseen.generation


def _name_change(action: ScaleZone) -> tuple[Uid, int, int]:
    return action.zone.uid, action.zone.replicas, action.replicas
