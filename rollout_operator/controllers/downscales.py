"""Look after downscales that were allowed, until they have happened or pods know that they stay.

Records the time of one that happened, where the answer to the review could not. Where one did not
happen, for whatever reason, every pod that was told to go is told that it stays, as often as it
takes; a process that starts finds the notes of the one before it. Works by UID of the StatefulSet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.worker import Result
from rollout_operator.guards.downscales import PERSIST_LIMIT, Claim, Downscales, Stage
from rollout_operator.guards.locks import Locks, calls_lock
from rollout_operator.guards.notes import Notes, read_note
from rollout_operator.guards.records import Records
from rollout_operator.kube.api import STATEFULSETS, Reader
from rollout_operator.kube.server_clock import CLOCK_ERROR
from rollout_operator.kube.store import is_older
from rollout_operator.model.decode import decode_statefulset
from rollout_operator.model.downscale import Endpoint, Key, Note
from rollout_operator.model.errors import ApiError, Conflict, InvalidInput, NotFound
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.planning.aftermath import Fate, choose_staying, is_over, judge_downscale
from rollout_operator.planning.endpoint import plan_endpoint, plan_target
from rollout_operator.pods.client import AT_MOST_PER_REVIEW, PodError
from rollout_operator.telemetry.logs import log

# Nothing is missed by events alone; this is for what events do not tell.
RESYNC: Final = timedelta(seconds=30)
# An unreachable pod is tried this often at first, and at last: LI-05 allows a minute.
BACKOFF: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=15))
# Timers may be early by a little.
CATCH_UP: Final = timedelta(milliseconds=200)
# The cache does not show yet what was just read live.
LAGGING: Final = timedelta(seconds=1)
# A pod that a cache does not show may be missing there only because a watch was cut.
GONE_AFTER: Final = timedelta(seconds=60)
# No story began later than now, and none older is of use.
OLDEST_STORY: Final = timedelta(days=365)


class SetCache(Protocol):
    """What we need of the cached StatefulSets."""

    def get_by_uid(self, uid: Uid) -> StatefulSet | Unreadable | None: ...


class PodCache(Protocol):
    """What we need of the cached pods."""

    def list_by_owner(self, uid: Uid) -> Sequence[Pod | Unreadable]: ...


class Calls(Protocol):
    """The part of `pods.client.PodClient` that is needed."""

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the controller works with."""

    sets: SetCache
    pods: PodCache
    downscales: Downscales
    locks: Locks
    records: Records
    notes: Notes
    calls: Calls
    door: Reader
    clock: Clock
    server_time: Callable[[], datetime]
    cluster_domain: str


class DownscaleController:
    """Reconciles what is remembered of one StatefulSet's downscales."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._failures: dict[Uid, int] = {}
        # By set and pod, for as long as the cache shows the pods: notes whose story is known, so
        # that it is not taken up anew when it has ended, and notes that have been removed.
        self._known: dict[Uid, dict[Uid, str]] = {}
        self._removed: dict[Uid, dict[Uid, str]] = {}

    def adopt(self, set_uid: Uid) -> None:
        """Take over what the notes on a set's pods tell, unless it is known already."""
        sts = self._parts.sets.get_by_uid(set_uid)
        if isinstance(sts, StatefulSet):
            self._adopt(sts, self._list_pods(set_uid))

    async def reconcile(self, set_uid: Uid) -> Result:
        """Look at one set, do what is due, and say when to look again."""
        parts = self._parts
        sts = parts.sets.get_by_uid(set_uid)
        if sts is None:
            claim = parts.downscales.get(set_uid)
            if claim is not None and parts.downscales.time_left(claim) > timedelta(0):
                return Result(again=RESYNC)  # so new that the cache does not show it yet
            parts.downscales.forget_set(set_uid)
            self._failures.pop(set_uid, None)
            self._known.pop(set_uid, None)
            self._removed.pop(set_uid, None)
            return Result()
        if isinstance(sts, Unreadable):
            return Result(again=RESYNC)
        pods = self._list_pods(set_uid)
        self._adopt(sts, pods)
        again, failure = RESYNC, None
        # One that fails does not delay the others: what cannot be recorded is no debt of a pod.
        for step in (self._settle, self._record, self._give_back, self._pay, self._clean):
            try:
                again = min(again, await step(sts, pods))
            except (ApiError, InvalidInput) as error:
                failure = failure or error
        _forget_gone(self._known, set_uid, pods)
        _forget_gone(self._removed, set_uid, pods)
        if failure is not None:
            return Result(again=min(again, self._back_off(set_uid, failure)))
        # A look before the next try is due is no success.
        if parts.downscales.remembers(set_uid):
            return Result(again=again)
        self._failures.pop(set_uid, None)
        return Result()

    def _adopt(self, sts: StatefulSet, pods: Sequence[Pod]) -> None:
        parts = self._parts
        if parts.downscales.remembers(sts.uid):
            _mark(self._known, sts.uid, pods)
            return
        notes = self._read_notes(sts.uid, pods)
        if not notes:
            return
        _mark(self._known, sts.uid, pods)
        # Several stories, of downscales that followed one another, are told as one.
        key = Key(
            set_uid=sts.uid,
            replicas_from=max(note.replicas_from for note in notes),
            replicas_to=min(note.replicas_to for note in notes),
        )
        now = parts.server_time()
        begun = max(note.at for note in notes)
        begun = min(max(begun, now - OLDEST_STORY), now + CLOCK_ERROR)
        lowest = sts.first_ordinal + key.replicas_to
        told = [
            (pod.uid, pod.name)
            for pod in pods
            if (ordinal := sts.ordinal_of(pod.name)) is not None and ordinal >= lowest
        ]
        log.info(
            "Found a downscale of an earlier process",
            zone=sts.name, replicas_from=key.replicas_from, replicas_to=key.replicas_to,
            pods=[name for _, name in told], settled_in=PERSIST_LIMIT,
        )  # fmt: skip
        # Not from `begun` on: the same may have been allowed again until the other process ended.
        present = {pod.uid for pod in pods}
        has_replaced = any(note.first and note.first not in present for note in notes)
        parts.downscales.adopt(sts, key, begun, told, has_replaced=has_replaced)

    def _read_notes(self, set_uid: Uid, pods: Sequence[Pod]) -> list[Note]:
        notes: list[Note] = []
        for pod in _list_noted(self._known, set_uid, pods):
            try:
                note = read_note(pod)
            except InvalidInput as error:
                log.warn("Ignoring a note that cannot be read", err=error)
                _mark(self._known, set_uid, [pod])
                continue
            if note is None:
                continue
            if self._parts.notes.is_own(note):
                # Settled before the cache showed it, 4 minutes late where its event was lost.
                _mark(self._known, set_uid, [pod])
            else:
                notes.append(note)
        return notes

    async def _settle(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Find out what became of the claim; return when to look again."""
        downscales = self._parts.downscales
        claim = downscales.get(sts.uid)
        if claim is None or claim.stage is Stage.PREPARING:
            return RESYNC
        if is_older(sts.resource_version, than=claim.seen_version):
            return LAGGING  # what it shows is of before the downscale
        left = downscales.time_left(claim)
        match judge_downscale(claim.key, sts, may_persist=left > timedelta(0)):
            case Fate.OPEN:
                return max(left, CATCH_UP)
            case Fate.HAPPENED:
                if claim.stage is not Stage.PERSISTED:
                    log.info("Downscale has happened", zone=sts.name, replicas_to=sts.replicas)
                downscales.note_persisted(claim, self._parts.server_time())
                if is_over(pods, claim.pods):
                    downscales.close(claim, owed=())
                return RESYNC
            case Fate.FAILED:
                return await self._give_up(claim, sts, pods)

    async def _record(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Write the time of a downscale where no answer has, or too early. Raises ApiError."""
        parts = self._parts
        begun = parts.downscales.find_unrecorded(sts.uid)
        if begun is None:
            return RESYNC
        # The later one, of when it was allowed and of when it was seen to have happened: of what
        # was asked again, the object carries the time of the first answer (SI-11).
        at = max(begun, parts.downscales.times.get(sts.uid, begun))
        try:
            await parts.records.keep(sts, at)
        except Conflict:
            return LAGGING  # what is there then decides
        parts.downscales.note_recorded(sts.uid, begun)
        return RESYNC

    async def _give_back(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Take back what was recorded of a downscale that did not happen. Raises ApiError."""
        parts = self._parts
        if parts.downscales.find_entry(sts.uid) is None:
            return RESYNC
        # Reviews record under the same lock: what a new one writes is not taken for the old.
        async with parts.locks.hold(calls_lock(sts.uid)):
            entry = parts.downscales.find_entry(sts.uid)
            if entry is not None:
                try:
                    await parts.records.give_back(sts, entry)
                except Conflict:
                    return LAGGING
                parts.downscales.note_given_back(sts.uid)
        return RESYNC

    async def _give_up(self, claim: Claim, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """The time is over. Ask the store itself before pods are told that they stay (SI-12)."""
        parts = self._parts
        try:
            body = await parts.door.fetch(STATEFULSETS, sts.namespace, sts.name)
        except NotFound:
            return LAGGING
        live = decode_statefulset(body)
        if live.uid != sts.uid or live.replicas <= claim.key.replicas_to:
            return LAGGING
        # Asked again while we were looking: it may still happen.
        if parts.downscales.get(sts.uid) is not claim or claim.stage is Stage.PREPARING:
            return CATCH_UP
        if parts.downscales.time_left(claim) > timedelta(0):
            return CATCH_UP
        if claim.has_replaced:
            # It happened before we came, and was taken back: other zones wait all the same (SI-11).
            parts.downscales.note_persisted(claim, parts.server_time())
        staying = choose_staying(live, pods, claim.pods)
        log.warn(
            "Downscale did not happen, telling pods that they stay",
            zone=sts.name, replicas_from=claim.key.replicas_from,
            replicas_to=claim.key.replicas_to, replicas=live.replicas,
            pods=[pod.name for pod in staying], reason=Code.DOWNSCALE_UNDONE,
        )  # fmt: skip
        parts.downscales.close(claim, owed=[pod.uid for pod in staying])
        return RESYNC

    async def _pay(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Tell pods that they stay; return when to look again, RESYNC where no debt is left."""
        downscales = self._parts.downscales
        if not downscales.list_owed(sts.uid):
            return RESYNC
        if is_older(sts.resource_version, than=downscales.find_version(sts.uid)):
            return LAGGING  # of a downscale before this one, it may not show that it happened
        async with self._parts.locks.hold(calls_lock(sts.uid)):
            # What was owed before we had the lock may have been claimed anew meanwhile.
            owed = downscales.list_owed(sts.uid)
            staying = {pod.uid: pod for pod in choose_staying(sts, pods, owed)}
            now = self._parts.clock.elapsed()
            missing = [uid for uid in owed if uid not in staying]
            downscales.settle(
                sts.uid, [uid for uid in missing if owed[uid].due + GONE_AFTER <= now]
            )
            due = [staying[uid] for uid in staying if owed[uid].due <= now]
            if due:
                # Not all at once: reviews of the set wait for the lock.
                await self._call(sts, due[:AT_MOST_PER_REVIEW])
        waits = [
            debt.due + (timedelta(0) if uid in staying else GONE_AFTER)
            for uid, debt in downscales.list_owed(sts.uid).items()
        ]
        now = self._parts.clock.elapsed()
        return max(min(waits, default=now + RESYNC) - now, CATCH_UP)

    async def _call(self, sts: StatefulSet, due: Sequence[Pod]) -> None:
        """Tell these pods. Raises InvalidInput where some could not be told."""
        parts = self._parts
        endpoints = _plan_endpoints(sts, due, parts.cluster_domain)
        failed = await parts.calls.cancel_all(endpoints)
        told = [one for one in endpoints if one.uid not in failed]
        parts.downscales.note_told(sts.uid, [one.uid for one in told])
        if told:
            log.info("Told pods that they stay", zone=sts.name, pods=[one.pod for one in told])
        if failed:
            # Pods change all the time, and each change has us look.
            wait = BACKOFF.bound(self._failures.get(sts.uid, 0) + 1)
            parts.downscales.postpone(sts.uid, failed, wait)
            raise InvalidInput(_first(failed))

    async def _clean(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Remove notes that nobody needs any more. Raises ApiError."""
        noted = _list_noted(self._removed, sts.uid, pods)
        noted = [pod for pod in noted if not pod.is_terminating]
        if not noted or self._parts.downscales.remembers(sts.uid):
            return RESYNC
        # Reviews write their notes under the same lock: none of a new one is removed.
        async with self._parts.locks.hold(calls_lock(sts.uid)):
            if self._parts.downscales.remembers(sts.uid):
                return RESYNC
            error = await self._parts.notes.remove(noted)
        if error is not None:
            raise error
        _mark(self._removed, sts.uid, noted)
        return RESYNC

    def _list_pods(self, set_uid: Uid) -> list[Pod]:
        return [pod for pod in self._parts.pods.list_by_owner(set_uid) if isinstance(pod, Pod)]

    def _back_off(self, set_uid: Uid, error: ApiError | InvalidInput) -> timedelta:
        count = self._failures[set_uid] = self._failures.get(set_uid, 0) + 1
        wait = BACKOFF.bound(count)
        tell = log.warn if count == 1 else log.debug
        tell("Downscale is not settled yet", again_in=wait, err=error)
        return wait


def _list_noted(
    known: Mapping[Uid, Mapping[Uid, str]], set_uid: Uid, pods: Sequence[Pod]
) -> list[Pod]:
    """Return the pods with a note that is not in `known`."""
    ours = known.get(set_uid, {})
    return [pod for pod in pods if pod.downscale_note and ours.get(pod.uid) != pod.downscale_note]


def _mark(known: dict[Uid, dict[Uid, str]], set_uid: Uid, pods: Sequence[Pod]) -> None:
    noted = {pod.uid: pod.downscale_note for pod in pods if pod.downscale_note}
    if noted:
        known.setdefault(set_uid, {}).update(noted)


def _forget_gone(known: dict[Uid, dict[Uid, str]], set_uid: Uid, pods: Sequence[Pod]) -> None:
    ours = known.pop(set_uid, {})
    left = {pod.uid: ours[pod.uid] for pod in pods if pod.uid in ours}
    if left:
        known[set_uid] = left


def _plan_endpoints(sts: StatefulSet, pods: Sequence[Pod], cluster_domain: str) -> list[Endpoint]:
    """Return where pods are called. Raises InvalidInput where the set does not say, any more."""
    target = plan_target(sts.annotations, sts.service_name)
    if isinstance(target, str):
        raise InvalidInput(f"pods of {sts.name} cannot be told that they stay: {target}")
    found = [plan_endpoint(pod, target, cluster_domain) for pod in pods]
    problems = [one for one in found if isinstance(one, str)]
    if len(problems) == len(found):
        raise InvalidInput(problems[0])
    return [one for one in found if isinstance(one, Endpoint)]


def _first(failed: Mapping[Uid, Exception]) -> str:
    return str(next(iter(failed.values())))
