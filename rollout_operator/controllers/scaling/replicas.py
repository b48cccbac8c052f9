"""Write replica counts: the only code that changes `spec.replicas`.

An upscale goes as the cache shows the group. A downscale takes pods away: the same decision is
taken again on a live look, under the group's lock, and is announced before the lock is let go, so
that no rollout begins meanwhile. The lock is not held across the write: a set that is guarded comes
back to us as a review, which takes it (FP-24).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.server_clock import CLOCK_ERROR
from rollout_operator.controllers.live_reads import LOOK_LASTS, describe_slow
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.scaling.intents import IntentWriter, render_steps
from rollout_operator.guards.downscales.reservations import PERSIST_LIMIT, Downscales
from rollout_operator.guards.downscales.times import Times, is_annotated
from rollout_operator.guards.downscales.zone_tracker import READ_AGAIN
from rollout_operator.guards.locks import Locks, group_lock
from rollout_operator.kube.api import STATEFULSETS, JsonObject, Writer
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    DecodeError,
    InvalidInput,
    NotFound,
    Refused,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.model.group import Group
from rollout_operator.model.names import (
    DOWNSCALE_INTENT,
    LAST_DOWNSCALE,
    PREPARE_DOWNSCALE,
    GroupName,
    Uid,
)
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.scaling import ScaleZone, ScalingSnapshot, Written
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.intents import needs_intent
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.planning.downscales.spacing import format_downscale_time
from rollout_operator.planning.scaling.plan import plan_scaling
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# A cache that has not shown an own write for so long is told to be behind by its own age.
UNSEEN_LIMIT: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnseenWrite:
    """A count that the cache does not show yet."""

    replicas: int
    generation: int | None
    """Of the answer; None where none came: it may be written now, later or never."""
    expires_at: timedelta
    """On the clock's `elapsed`."""
    keeps_time: bool = False
    mark: str | None = None
    """By which it holds, of a downscale without an answer that no review announces."""


class Counts:
    """Writes counts, and remembers them until the cache shows them."""

    def __init__(
        self,
        client: Writer,
        observer: Observer,
        times: Times,
        *,
        locks: Locks,
        downscales: Downscales,
        clock: Clock,
        metrics: Metrics,
        intents: IntentWriter,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._observer = observer
        self._times = times
        self._locks = locks
        self._downscales = downscales
        self._clock = clock
        self._metrics = metrics
        self._intents = intents
        self._is_stopping = is_stopping
        self._pending: dict[Uid, _UnseenWrite] = {}
        self._unrecorded: set[Uid] = set()

    def view(self, group: Group) -> ScalingSnapshot:
        """Return what is known of the counts of a group: what was written, and the last times."""
        sets = [zone.sts for zone in group.zones]
        return ScalingSnapshot(
            group=group,
            times=self._times.recall(sets),
            source=self._times.source,
            written=self.list_written(sets),
        )

    def list_written(self, sets: Iterable[StatefulSet]) -> Mapping[Uid, Written]:
        """Return what was written to these sets and is not shown by them; forget what is."""
        sets = tuple(sets)
        self.settle(sets)
        shown = {sts.uid for sts in sets}
        return {
            uid: Written(replicas=pending.replicas, generation=pending.generation)
            for uid, pending in self._pending.items()
            if uid in shown and pending.generation is not None
        }

    def settle(self, sets: Iterable[StatefulSet]) -> timedelta | None:
        """Forget writes that these sets show, and those of any set that nobody can show any more.

        Returns after how long to do so again: a downscale without an answer holds back its group
        until then, whatever has become of the wish for it. None where there is none.
        """
        shown = {sts.uid: sts for sts in sets}
        now = self._clock.elapsed()
        for uid, pending in list(self._pending.items()):
            sts = shown.get(uid)
            if pending.expires_at <= now or (sts is not None and _shows(sts, pending)):
                del self._pending[uid]
                self._downscales.withdraw(uid)
                if pending.generation is None and pending.keeps_time and pending.expires_at > now:
                    self.note_downscale(uid)
        left = [one.expires_at - now for one in self._pending.values() if one.generation is None]
        return min(left, default=None)

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone."""
        self._downscales.last.forget(set_uid)
        self._downscales.intents.forget(set_uid)
        self._intents.forget(set_uid)
        self._unrecorded.discard(set_uid)
        self._pending.pop(set_uid, None)
        self._downscales.withdraw(set_uid)

    def holds_group(self, sts: StatefulSet) -> bool:
        """Tell whether a downscale of a set that was not written may still be, for all we know.

        Without an answer, or allowed by a review and refused by somebody else: until that is over,
        nothing else of its group begins, and to try it again makes it last as long again.
        """
        underway = self._downscales.find_underway(sts.group)
        return underway is not None and underway.zone == sts.name

    def note_downscale(self, uid: Uid) -> None:
        """A set has just been scaled down, whoever did it: others wait from now on."""
        self._downscales.last.note(uid, self._observer.now())
        self._unrecorded.add(uid)

    def has_written(self, sts: StatefulSet) -> bool:
        """Tell whether a view shows what we have just written: its time is remembered already."""
        pending = self._pending.get(sts.uid)
        return pending is not None and _shows(sts, pending) and sts.replicas == pending.replicas

    def has_unrecorded(self, sts: StatefulSet) -> bool:
        """Tell whether a downscale that we wrote is shown by a set, and may not be recorded."""
        return sts.uid in self._unrecorded and sts.uid not in self._pending

    async def record(self, sts: StatefulSet) -> None:
        """Record the last downscale of a set, if nobody has. Raises ApiError and InvalidInput."""
        last = self._downscales.last
        at = last.times[sts.uid]
        version = await self._times.keep(sts, at)
        last.note_shown(sts.uid, at, version)
        if last.times.get(sts.uid) == at:
            self._unrecorded.discard(sts.uid)

    async def refresh_times(self) -> bool:
        """Read times again that no cache shows; tell whether they changed."""
        try:
            return await self._times.refresh()
        except (ApiError, InvalidInput) as error:
            log.debug("Times of downscales were not read again", err=error)
            return False

    @property
    def times_last(self) -> timedelta | None:
        """Return for how long times count that were read; None where a cache shows them."""
        return READ_AGAIN if self._times.source is TimesSource.TRACKER else None

    async def scale_up(self, group: GroupName, action: ScaleZone) -> None:
        """Write more replicas. Raises ApiError; Conflict where the cache was behind."""
        await self._write(group, action)

    async def scale_down(self, scaling: ScalingSnapshot, action: ScaleZone) -> None:
        """Write fewer replicas, if a live look leads to the same decision.

        Raises ApiError, Conflict where it does not, and InvalidInput where times cannot be read.
        """
        group = scaling.group
        async with self._locks.hold(group_lock(group.name)):
            looked_at = self._clock.elapsed()
            live = await self._observer.observe_live(group)
            sets = [zone.sts for zone in live.zones]
            times = await self._times.read(sets)
            plan = plan_scaling(replace(scaling, group=live, times=times, written={}))
            agreed = _find(plan.scale, action)
            others = self._downscales.intents.find(sets, but=action.zone.uid)
            if agreed is None or live.owners != group.owners or others is not None:
                name = action.zone.name
                raise Conflict(f"the API server does not confirm what the cache shows of {name}")
            self._check_stopping(agreed.zone)
            self._downscales.announce(agreed.zone, agreed.replicas)
        is_unanswered = False
        try:
            await self._write(group.name, agreed, until=looked_at + LOOK_LASTS)
        except UnknownOutcome:
            is_unanswered = True
            raise
        finally:
            if not is_unanswered:
                self._downscales.withdraw(agreed.zone.uid)

    def list_marked(self, sets: Iterable[StatefulSet]) -> list[StatefulSet]:
        """Return the sets with a mark that is to be removed: nobody waits for an answer there."""
        return self._downscales.intents.list_left(sets)

    def wait_before_revoke(self, sts: StatefulSet) -> timedelta:
        """Return how long a mark must wait that comes back when it is removed; zero for go."""
        return self._intents.wait_before_revoke(sts)

    async def revoke(self, sts: StatefulSet) -> None:
        """Have a downscale fail, however late it comes, that a set is marked with. Raises ApiError.

        One of this process that got no answer is over with that; one whose mark was gone may have
        happened.
        """
        is_over = await self._intents.revoke(sts)
        pending, mark = self._pending.get(sts.uid), sts.annotations[DOWNSCALE_INTENT]
        if is_over and pending is not None and pending.mark == mark:
            del self._pending[sts.uid]
            self._downscales.withdraw(sts.uid)

    async def _mark(self, action: ScaleZone, mark: str, until: timedelta) -> StatefulSet:
        """Mark a zone before its downscale. Raises ApiError; Conflict where it is too late then."""
        marked = await self._intents.write(action.zone, mark, _render_spec(action))
        self._check_stopping(marked)
        if self._clock.elapsed() > until:
            raise Conflict(describe_slow(marked.name))
        return marked

    def _check_stopping(self, sts: StatefulSet) -> None:
        if self._is_stopping():
            raise Conflict(f"{sts.name} is left to the next process: this one stops")

    async def _write(
        self, group: GroupName, action: ScaleZone, until: timedelta | None = None
    ) -> None:
        """Write a count; a downscale that is not sent `until` then rests on too old a look."""
        zone = action.zone
        log.info(
            "Scaling zone",
            group=group, zone=zone.name, replicas_from=zone.replicas, replicas_to=action.replicas,
            reason=action.reason.code, why=action.reason.text,
        )  # fmt: skip
        mark = None
        try:
            if until is not None and needs_intent(zone):
                mark = self._intents.begin(zone, action.replicas)
                action = replace(action, zone=await self._mark(action, mark, until))
            # Whoever wrote another count since, or another set of that name, is not overwritten. A
            # version would fail with each change of the status, of which a zone that moves has
            # many.
            steps: list[JsonObject] = [
                {"op": "test", "path": "/metadata/uid", "value": zone.uid},
                *_render_spec(action),
                *([] if mark is None else render_steps(mark)),
                {"op": "test", "path": "/spec/replicas", "value": zone.replicas},
                {"op": "replace", "path": "/spec/replicas", "value": action.replicas},
                *self._render_time(action),
            ]
            body = await self._client.patch(STATEFULSETS, zone.namespace, zone.name, steps)
        except ApiError as error:
            self._count(group, action, _name_outcome(error))
            if isinstance(error, UnknownOutcome):
                self._pending[zone.uid] = _UnseenWrite(
                    replicas=action.replicas,
                    generation=None,
                    expires_at=self._clock.elapsed() + PERSIST_LIMIT,
                    keeps_time=action.keeps_time,
                    mark=mark,
                )
            elif mark is not None:
                self._downscales.intents.note_void(zone.uid, mark)
            raise
        self._count(group, action, "accepted")
        try:
            written = decode_statefulset(body)
        except DecodeError as error:
            raise Conflict(str(error), call=f"patch statefulset {zone.name}") from error
        if mark is not None:
            self._downscales.intents.note_gone(zone.uid, mark, written.resource_version)
        self._pending[zone.uid] = _UnseenWrite(
            replicas=written.replicas,
            generation=written.generation,
            expires_at=self._clock.elapsed() + UNSEEN_LIMIT,
        )
        if action.keeps_time:
            self._note_written(written)
        if written.replicas != action.replicas:
            # Some webhook knows better. Else the same would be written again at once.
            why = f"stored as {written.replicas} instead of {action.replicas}"
            raise Refused(f"statefulset {zone.name}: spec.replicas: {why}")

    def _note_written(self, written: StatefulSet) -> None:
        """Remember a downscale that we wrote; the answer to the write may show its record."""
        self.note_downscale(written.uid)
        last, uid = self._downscales.last, written.uid
        if self._times.source is TimesSource.ANNOTATIONS and is_annotated(written, last.times[uid]):
            last.note_shown(uid, last.times[uid], written.resource_version)
            self._unrecorded.discard(uid)

    def _render_time(self, action: ScaleZone) -> list[JsonObject]:
        """Return what records a downscale in the same write, where annotations hold the times."""
        if not action.keeps_time or self._times.source is not TimesSource.ANNOTATIONS:
            return []
        path = f"/metadata/annotations/{LAST_DOWNSCALE.replace('/', '~1')}"
        # The server's clock may be a second ahead of what we know of it.
        text = format_downscale_time(self._observer.now() + CLOCK_ERROR)
        return [{"op": "add", "path": path, "value": text}]

    def _count(self, group: GroupName, action: ScaleZone, outcome: str) -> None:
        direction = "down" if action.is_downscale else "up"
        self._metrics.scalings.labels(group, direction, outcome).inc()


def _shows(sts: StatefulSet, pending: _UnseenWrite) -> bool:
    """Tell whether a cache shows a count that was written, or what somebody wrote after it."""
    if pending.generation is None:
        return sts.replicas == pending.replicas
    return sts.generation >= pending.generation


def _find(actions: Iterable[ScaleZone], wanted: ScaleZone) -> ScaleZone | None:
    """Return the same action in another plan."""
    for one in actions:
        is_same = one.zone.uid == wanted.zone.uid and one.replicas == wanted.replicas
        if is_same and one.zone.replicas == wanted.zone.replicas:
            return one
    return None


def _render_spec(action: ScaleZone) -> list[JsonObject]:
    """Return what keeps a downscale from a spec that it was not decided for.

    One that comes late would find the same count again after an upscale, and take pods that nobody
    has asked. Where a review looks at each attempt they are asked, and nothing is tested: a
    template that changes while pods prepare would fail it. Where pods go because they were not up,
    a status that counts one more as ready since fails it, too.
    """
    zone = action.zone
    if not action.is_downscale or is_labelled(zone.labels, PREPARE_DOWNSCALE):
        return []
    if action.is_exact:
        version = zone.resource_version
        return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    return [{"op": "test", "path": "/metadata/generation", "value": zone.generation}]


def _name_outcome(error: ApiError) -> str:
    match error:
        case Conflict() | NotFound():
            return "conflict"
        case Refused() | TooManyRequests():
            return "refused"
        case UnknownOutcome():
            return "unknown"
    return "failed"
