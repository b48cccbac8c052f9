"""Write replica counts: the only code that changes `spec.replicas`.

An upscale goes as the cache shows the group. A downscale takes pods away: the same decision is
taken again on a live read, under the group's lock, and is announced before the lock is let go, so
that no rollout begins meanwhile. The lock is not held across the write: a set that is guarded comes
back to us as a review, which takes it (FP-24). All that may take long goes before the live read:
the mark of a downscale that no review announces, and the turn to send the write.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import CLOCK_ERROR, Clock
from rollout_operator.controllers.live_reads import LIVE_READ_LASTS, describe_slow_call
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.scaling.intents import IntentWriter
from rollout_operator.controllers.scaling.removals import Removals
from rollout_operator.controllers.scaling.writes import name_outcome, render_patch
from rollout_operator.guards.downscales.reservations import PERSIST_LIMIT, Downscales
from rollout_operator.guards.downscales.times import DownscaleTimes, is_annotated
from rollout_operator.guards.downscales.zone_tracker import READ_AGAIN
from rollout_operator.guards.locks import Locks, group_lock
from rollout_operator.kube.api import STATEFULSETS, JsonObject, TimedPatcher
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    DeadlinePassed,
    DecodeError,
    Denied,
    InvalidInput,
    Refused,
    UnknownOutcome,
)
from rollout_operator.model.group import Group
from rollout_operator.model.names import DOWNSCALE_INTENT, LAST_DOWNSCALE, GroupName, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.scaling import ScaleZone, ScalingSnapshot, Written
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.intents import announces, needs_intent
from rollout_operator.planning.downscales.spacing import format_downscale_time
from rollout_operator.planning.scaling.plan import plan_scaling
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# A cache that has not shown an own write for so long is reported as behind by its own age.
UNSEEN_LIMIT: Final = timedelta(seconds=60)


class _UnseenWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A count that the cache does not show yet."""

    replicas: int
    generation: int | None
    """The version in the answer; None without an answer: it may be written now, later or never."""
    expires_at: timedelta
    """On the clock's `elapsed`."""
    keeps_time: bool = False
    mark: str | None = None
    """The mark that it rests on, if it is a downscale without an answer that no review
    announces."""


@dataclass(slots=True)
class Replicas:
    """Writes counts, and remembers them until the cache shows them."""

    client: TimedPatcher
    observer: Observer
    times: DownscaleTimes
    _: KW_ONLY
    locks: Locks
    downscales: Downscales
    clock: Clock
    metrics: Metrics
    intents: IntentWriter
    removals: Removals
    is_stopping: Callable[[], bool] = lambda: False
    on_scaled: Callable[[ScaleZone], None] = lambda action: None
    _unseen: dict[Uid, _UnseenWrite] = field(default_factory=dict, init=False)
    _unrecorded: set[Uid] = field(default_factory=set, init=False)

    def take_snapshot(self, group: Group) -> ScalingSnapshot:
        """Return the snapshot of the counts of a group: what was written, and the last times."""
        sets = [zone.sts for zone in group.zones]
        return ScalingSnapshot(
            group=group,
            times=self.times.recall(sets),
            source=self.times.source,
            written=self.map_written(sets),
        )

    def map_written(self, sets: Iterable[StatefulSet]) -> Mapping[Uid, Written]:
        """Return the counts written to these sets that they do not show; forget all others."""
        sets = tuple(sets)
        self.settle(sets)
        shown = {sts.uid for sts in sets}
        return {
            uid: Written(replicas=unseen.replicas, generation=unseen.generation)
            for uid, unseen in self._unseen.items()
            if uid in shown and unseen.generation is not None
        }

    def settle(self, sets: Iterable[StatefulSet]) -> timedelta | None:
        """Forget writes that these sets show, and those of any set that is gone.

        Returns after how long to do so again: a downscale without an answer holds back its group
        until then, whether or not it is still wanted. None where there is none.
        """
        shown = {sts.uid: sts for sts in sets}
        now = self.clock.elapsed()
        for uid, unseen in list(self._unseen.items()):
            sts = shown.get(uid)
            if unseen.expires_at <= now or (sts is not None and _shows(sts, unseen)):
                del self._unseen[uid]
                self.downscales.end_announcement(uid)
                if unseen.generation is None and unseen.keeps_time and unseen.expires_at > now:
                    self.record_downscale(uid)
        left = [
            write.expires_at - now for write in self._unseen.values() if write.generation is None
        ]
        return min(left, default=None)

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone."""
        self.downscales.last.forget(set_uid)
        self.downscales.intents.forget(set_uid)
        self.removals.forget(set_uid)
        self._unrecorded.discard(set_uid)
        self._unseen.pop(set_uid, None)
        self.downscales.end_announcement(set_uid)

    def is_blocked(self, sts: StatefulSet) -> bool:
        """Return whether a downscale without a successful write may still happen, for all we know.

        It got no answer, or was allowed by us and refused by another webhook: until that is over,
        nothing else of its group begins, and to try it again makes it last as long again.
        """
        underway = self.downscales.find_underway(sts.group)
        return underway is not None and underway.zone == sts.name

    def record_downscale(self, uid: Uid) -> None:
        """Record that a set has just been scaled down by any client: others wait from now on."""
        self.downscales.last.record(uid, self.observer.now())
        self._unrecorded.add(uid)

    def has_written(self, sts: StatefulSet) -> bool:
        """Return whether a cached set shows our last write: its time is remembered already."""
        unseen = self._unseen.get(sts.uid)
        return unseen is not None and _shows(sts, unseen) and sts.replicas == unseen.replicas

    def has_unrecorded(self, sts: StatefulSet) -> bool:
        """Return whether a set shows a downscale that we wrote, and that may not be recorded."""
        return sts.uid in self._unrecorded and sts.uid not in self._unseen

    async def record(self, sts: StatefulSet) -> None:
        """Record the last downscale of a set once. Raises ApiError and InvalidInput."""
        last = self.downscales.last
        at = last.times[sts.uid]
        version = await self.times.keep(sts, at)
        last.record_shown(sts.uid, at, version)
        if last.times.get(sts.uid) == at:
            self._unrecorded.discard(sts.uid)

    async def refresh_times(self) -> bool:
        """Read again times that no cache shows; return whether they changed."""
        try:
            return await self.times.refresh()
        except (ApiError, InvalidInput) as error:
            log.debug("Times of downscales were not read again", err=error)
            return False

    @property
    def times_last(self) -> timedelta | None:
        """Return for how long times count after a read; None where a cache shows them."""
        return READ_AGAIN if self.times.source is TimesSource.TRACKER else None

    async def scale_up(self, group: GroupName, action: ScaleZone) -> None:
        """Write more replicas. Raises ApiError; Conflict where the cache was behind."""
        await self._write(group, action)

    async def scale_down(self, scaling: ScalingSnapshot, action: ScaleZone) -> None:
        """Write fewer replicas, if a live read leads to the same decision.

        Raises ApiError, Conflict where it does not, DeadlinePassed where the live read is too old
        by then, and InvalidInput where times cannot be read.
        """
        zone, mark, is_announced = action.zone, None, False
        try:
            if needs_intent(zone):
                self._check_stopping(zone)
                mark, is_announced = self.intents.begin(zone, action.replicas), True
                self.downscales.announce(zone, action.replicas)
                await self.intents.write(zone, mark)
            await self.client.wait_turn_to_patch(STATEFULSETS, zone.namespace, zone.name)
            agreed = await self._confirm(scaling, action, mark)
            is_announced = True
            await self._write(scaling.group.name, agreed, mark, has_turn=True)
        except UnknownOutcome:
            is_announced = False  # until it can be written no more, see `settle`
            raise
        except (ApiError, InvalidInput):
            if mark is not None:
                self.downscales.intents.record_void(zone.uid, mark)
            raise
        finally:
            if is_announced:
                self.downscales.end_announcement(zone.uid)

    async def _confirm(
        self, scaling: ScalingSnapshot, action: ScaleZone, mark: str | None
    ) -> ScaleZone:
        """Return the action by a live read, which has to show its mark as well; announce it.

        Raises as `scale_down`.
        """
        group, name = scaling.group, action.zone.name
        async with self.locks.hold(group_lock(group.name)):
            live = await self.observer.observe_live(group)
            sent_at, listed_in = self.clock.elapsed() - live.snapshot_age, live.snapshot_age
            sets = [zone.sts for zone in live.zones]
            times = await self.times.read(sets)
            plan = plan_scaling(replace(scaling, group=live, times=times, written={}))
            agreed = _find(plan.scale, action)
            others = self.downscales.intents.find(sets, but=action.zone.uid)
            if agreed is None or live.owners != group.owners or others is not None:
                raise Conflict(f"the API server does not confirm what the cache shows of {name}")
            zone, intents = agreed.zone, self.downscales.intents
            if mark is not None and zone.annotations.get(DOWNSCALE_INTENT) != mark:
                intents.record_gone(zone.uid, mark, zone.resource_version)
                raise Conflict(f"the mark of the downscale of {name} is not there any more")
            self._check_stopping(zone)
            age = self.clock.elapsed() - sent_at
            # A review that announces a downscale decides it as well, by a live read of its own.
            if mark is not None and age > LIVE_READ_LASTS:
                raise DeadlinePassed(describe_slow_call(listed_in, age - listed_in))
            self.downscales.announce(zone, agreed.replicas)
        return agreed

    def list_marked(self, sets: Iterable[StatefulSet]) -> list[StatefulSet]:
        """Return the sets with a mark that is to be removed: a write may still rest on it."""
        intents = self.downscales.intents
        return [sts for sts in intents.list_left(sets) if not intents.is_idle(sts)]

    def list_unused(
        self, sets: Iterable[StatefulSet], actions: Sequence[ScaleZone]
    ) -> list[StatefulSet]:
        """Return the sets with a mark of ours that is over, and that none of these actions uses."""
        wanted = {action.zone.uid: action.replicas for action in actions}
        idle = [sts for sts in sets if self.downscales.intents.is_idle(sts)]
        return [sts for sts in idle if not announces(sts, wanted.get(sts.uid, sts.replicas))]

    async def revoke(self, sts: StatefulSet) -> None:
        """Have the downscale that a set is marked with fail, however late it comes. Raises
        ApiError.
        """
        mark = sts.annotations[DOWNSCALE_INTENT]
        try:
            is_over = await self.intents.revoke(sts)
        except (Denied, Refused):
            self.downscales.record_refused(sts, mark)
            raise
        unseen = self._unseen.get(sts.uid)
        if is_over and unseen is not None and unseen.mark == mark:
            del self._unseen[sts.uid]
            self.downscales.end_announcement(sts.uid)

    def time_left(self, sts: StatefulSet) -> timedelta | None:
        """Return for how long the mark of a set counts still; see `Intents.time_left`."""
        return self.downscales.intents.time_left(sts)

    def _check_stopping(self, sts: StatefulSet) -> None:
        if self.is_stopping():
            raise Conflict(f"{sts.name} is left to the next process: this one stops")

    async def _write(
        self,
        group: GroupName,
        action: ScaleZone,
        mark: str | None = None,
        *,
        has_turn: bool = False,
    ) -> None:
        """Write a count; a marked downscale fails without its mark, and removes it."""
        zone = action.zone
        log.info(
            "Scaling zone",
            group=group, zone=zone.name, replicas_from=zone.replicas, replicas_to=action.replicas,
            reason=action.reason.code, why=action.reason.text,
        )  # fmt: skip
        try:
            steps = render_patch(action, mark, self._render_time(action))
            body = await self.client.patch(
                STATEFULSETS, zone.namespace, zone.name, steps, has_turn=has_turn
            )
        except ApiError as error:
            self._count(group, action, name_outcome(error))
            if isinstance(error, UnknownOutcome):
                self._unseen[zone.uid] = _UnseenWrite(
                    replicas=action.replicas,
                    generation=None,
                    expires_at=self.clock.elapsed() + PERSIST_LIMIT,
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
            self.downscales.intents.record_gone(zone.uid, mark, written.resource_version)
            self.removals.record_answered(zone.uid)
        self._unseen[zone.uid] = _UnseenWrite(
            replicas=written.replicas,
            generation=written.generation,
            expires_at=self.clock.elapsed() + UNSEEN_LIMIT,
        )
        if action.keeps_time:
            self._record_written(written)
        if written.replicas != action.replicas:
            # A webhook has changed it. Else the same would be written again at once.
            why = f"stored as {written.replicas} instead of {action.replicas}"
            raise Refused(f"statefulset {zone.name}: spec.replicas: {why}")
        self.on_scaled(action)

    def _record_written(self, written: StatefulSet) -> None:
        """Remember a downscale that we wrote; the answer to the write may show its record."""
        self.record_downscale(written.uid)
        last, uid = self.downscales.last, written.uid
        if self.times.source is TimesSource.ANNOTATIONS and is_annotated(written, last.times[uid]):
            last.record_shown(uid, last.times[uid], written.resource_version)
            self._unrecorded.discard(uid)

    def _render_time(self, action: ScaleZone) -> list[JsonObject]:
        """Return the steps that record a downscale in the same write, if annotations do."""
        if not action.keeps_time or self.times.source is not TimesSource.ANNOTATIONS:
            return []
        path = f"/metadata/annotations/{LAST_DOWNSCALE.replace('/', '~1')}"
        # The server's clock may be a second ahead of what we know of it.
        text = format_downscale_time(self.observer.now() + CLOCK_ERROR)
        return [{"op": "add", "path": path, "value": text}]

    def _count(self, group: GroupName, action: ScaleZone, outcome: str) -> None:
        direction = "down" if action.is_downscale else "up"
        self.metrics.scalings.labels(group, direction, outcome).inc()


def _shows(sts: StatefulSet, unseen: _UnseenWrite) -> bool:
    """Return whether a cache shows the replicas that were written, or a later write."""
    if unseen.generation is None:
        return sts.replicas == unseen.replicas
    return sts.generation >= unseen.generation


def _find(actions: Iterable[ScaleZone], wanted: ScaleZone) -> ScaleZone | None:
    """Return the same action in another plan."""
    for action in actions:
        is_same = action.zone.uid == wanted.zone.uid and action.replicas == wanted.replicas
        if is_same and action.zone.replicas == wanted.zone.replicas:
            return action
    return None
