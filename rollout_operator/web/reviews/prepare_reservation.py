"""Reserve a downscale, if a set may lose pods now, before another request can.

The first half of the hook prepare-downscale: one live read of the whole group under its lock, the
times of downscales, and the decision of `planning.downscales.reservation`. What follows from a
reservation, the calls to pods, the record and the answer, is in `prepare_downscale`.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import CLOCK_ERROR, Clock
from rollout_operator.guards.downscales.backlog import CancelCalls
from rollout_operator.guards.downscales.pod_records import PodRecords
from rollout_operator.guards.downscales.reservations import (
    PERSIST_LIMIT,
    DownscaleReservation,
    Downscales,
    ReservationState,
)
from rollout_operator.guards.downscales.times import DownscaleTimes, GroupTimes, Member
from rollout_operator.guards.locks import Locks, calls_lock, group_lock
from rollout_operator.model.downscale import Decrease, Endpoint, Key
from rollout_operator.model.errors import ApiError, Conflict, InvalidInput
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.planning.downscales.request import RETRY, plan_preparation, refuse_decrease
from rollout_operator.planning.downscales.reservation import (
    DownscaleSnapshot,
    EarlierDownscale,
    ReservationPlan,
    plan_reservation,
)
from rollout_operator.planning.downscales.rule import assess_unanswered
from rollout_operator.pods.client import PodError
from rollout_operator.telemetry.logs import log
from rollout_operator.web.reviews.read_shares import RepeatedReads
from rollout_operator.web.reviews.scale_parent import Parents


class GroupObserver(Protocol):
    """The source of snapshots of groups."""

    def observe(self, name: GroupName) -> Group: ...

    async def observe_live(self, cached: Group) -> Group: ...

    async def observe_alone(self, name: str) -> Group: ...


class PrepareCalls(CancelCalls, Protocol):
    """The part of `pods.client.PodClient` that is needed."""

    async def prepare_all(self, endpoints: Sequence[Endpoint]) -> list[PodError]: ...


class PrepareContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the hook works with."""

    parents: Parents
    observer: GroupObserver
    repeated: RepeatedReads
    locks: Locks
    downscales: Downscales
    records: DownscaleTimes
    pod_records: PodRecords
    pods: PrepareCalls
    clock: Clock
    server_time: Callable[[], datetime]
    """The API server's clock, at most a second behind the truth."""
    namespace: str
    cluster_domain: str
    is_stopping: Callable[[], bool] = lambda: False


class DecreaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One decrease of a set that is said to carry the label.

    The user, the set, from how many to how many: all else is read (D-68).
    """

    decrease: Decrease
    set_uid: Uid
    group: GroupName | None
    """The set as the review says it is: where it is not so, nothing is done."""
    first_ordinal: int | None
    """The first ordinal by the review; None where it does not say."""
    until: timedelta
    takes_patch: bool
    """Whether the object under review is the set itself, not its Scale."""

    @property
    def lock(self) -> str:
        """Return the key of the lock under which it is decided."""
        return calls_lock(self.set_uid) if self.group is None else group_lock(self.group)

    def describes(self, sts: StatefulSet) -> bool:
        """Return whether a set is as the review says: nothing is done on its word."""
        is_same = sts.uid == self.set_uid and sts.name == self.decrease.name
        is_first = self.first_ordinal is None or sts.first_ordinal == self.first_ordinal
        is_counted = sts.replicas == self.decrease.replicas_from
        return is_same and is_first and is_counted and sts.group == self.group

    def refuse_changed(self, sts: StatefulSet | None) -> Verdict:
        """Return the refusal for a set that is not in the store as the review says."""
        return self.refuse(Code.CHANGED_MEANWHILE, _render_change(sts), status=RETRY)

    def refuse(self, code: Code, why: str, *, status: int = 0) -> Verdict:
        """Return the refusal; `why` goes on after `is not allowed because`."""
        return refuse_decrease(self.decrease, code, why, status=status)


class ReservedDownscale(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that is reserved, and the pods that are still to be called for it."""

    reservation: DownscaleReservation
    plan: ReservationPlan
    granted_at: timedelta | None
    """On the clock's `elapsed`: when the same was allowed before, if that may still persist."""
    sts: StatefulSet
    others: tuple[StatefulSet, ...]
    """The rest of the group, as it was at the decision."""
    seen: GroupTimes
    """The times on which the decision rests."""


async def reserve_downscale(
    context: PrepareContext, request: DecreaseRequest
) -> Verdict | ReservedDownscale | asyncio.Future[Verdict]:
    """Decide on a live read of the group, and reserve the downscale before another request can.

    The lock is held across the read, so that what is seen is what is reserved. Returns the
    future of the answer where another review of the same is underway. Raises ApiError.
    """
    # Not under the lock: other reviews of the group go on meanwhile.
    await context.repeated.wait_turn(request.set_uid, request.until - context.clock.elapsed())
    async with context.locks.hold(request.lock):
        group = await _observe(context, request)
        zone = next((each for each in group.zones if each.sts.uid == request.set_uid), None)
        if zone is None or not request.describes(zone.sts):
            return request.refuse_changed(None if zone is None else zone.sts)
        sts = zone.sts
        target = plan_preparation(request.decrease, sts.labels, sts.annotations, sts.service_name)
        if isinstance(target, Verdict):
            return target
        key = Key(
            set_uid=request.set_uid,
            replicas_from=request.decrease.replicas_from,
            replicas_to=request.decrease.replicas_to,
            target=target,
        )
        downscale = context.downscales.get(request.set_uid)
        if downscale is not None and downscale.key == key and downscale.answer is not None:
            # The API server may write it as late as this review allows.
            context.downscales.renew(downscale, ())
            return downscale.answer
        seen = await _read_times(context, request, key, group)
        if isinstance(seen, Verdict):
            return seen
        # Again: during the read it may have been settled, or found on the pods.
        downscale = context.downscales.get(request.set_uid)
        if downscale is not None and sts.replicas <= downscale.key.replicas_to:
            context.downscales.record_persisted(downscale, context.server_time())
        sets = [zone.sts for zone in group.zones]
        underway = context.downscales.find_underway(request.group, sets, but=request.set_uid)
        snapshot = DownscaleSnapshot(
            decrease=request.decrease,
            key=key,
            target=target,
            zone=zone,
            group=replace(group, now=context.server_time(), downscale=underway),
            is_grouped=bool(request.group),
            times=None if seen is None else seen.times,
            source=context.records.source,
            earlier=_find_earlier(context, request.set_uid),
            cluster_domain=context.cluster_domain,
        )
        return _decide(context, request, snapshot, seen)


def _decide(
    context: PrepareContext,
    request: DecreaseRequest,
    snapshot: DownscaleSnapshot,
    seen: GroupTimes | None,
) -> Verdict | ReservedDownscale:
    downscales, zone = context.downscales, snapshot.zone
    plan = plan_reservation(snapshot)
    if isinstance(plan, Verdict):
        return plan
    refusal = find_unanswered(context, request, plan.missing)
    if refusal is not None:
        return refusal
    remembered, earlier = downscales.get(request.set_uid), snapshot.earlier
    is_same = earlier is not None and earlier.may_be(snapshot.key)
    same = remembered if is_same else None
    granted_at = None if same is None else downscales.granted_at(same)
    pods = [(endpoint.uid, endpoint.pod) for endpoint in plan.pods.endpoints]
    if same is not None and plan.is_repeated:
        downscales.renew(same, pods)
        reservation = same
    else:
        if is_same and earlier is not None and earlier.is_late:
            log.warn(
                "Downscale is requested again and again, and does not happen",
                zone=zone.sts.name, replicas_from=snapshot.key.replicas_from,
                replicas_to=snapshot.key.replicas_to,
            )  # fmt: skip
        # The server's clock may be a second ahead of what we know of it.
        begun = context.server_time() + CLOCK_ERROR
        reservation = downscales.begin(zone.sts, snapshot.key, begun, pods)
    reservation.state = ReservationState.PREPARING
    reservation.answer = asyncio.get_running_loop().create_future()
    return ReservedDownscale(
        reservation=reservation,
        plan=plan,
        granted_at=granted_at,
        sts=zone.sts,
        others=tuple(each.sts for each in snapshot.group.zones if each is not zone),
        seen=seen or GroupTimes(),
    )


def _find_earlier(context: PrepareContext, set_uid: Uid) -> EarlierDownscale | None:
    reservation = context.downscales.get(set_uid)
    if reservation is None:
        return None
    return EarlierDownscale(
        key=reservation.key,
        is_preparing=reservation.state is ReservationState.PREPARING,
        is_persisted=reservation.state is ReservationState.PERSISTED,
        is_adopted=reservation.is_adopted,
        is_late=context.server_time() - reservation.begun >= PERSIST_LIMIT,
        prepared=reservation.prepared,
    )


async def _read_times(
    context: PrepareContext, request: DecreaseRequest, key: Key, group: Group
) -> GroupTimes | Verdict | None:
    """Return when zones went last, None where they do not matter."""
    earlier = _find_earlier(context, request.set_uid)
    if not request.group or (earlier is not None and earlier.is_repeated_by(key)):
        return None
    members: list[Member] = [zone.sts for zone in group.zones]
    members += group.unreadable
    try:
        return await context.records.fetch_times(members, but=request.set_uid)
    except ApiError as error:
        why = f"loading zones failed. {error}"
        return request.refuse(Code.GROUP_NOT_READ, why, status=RETRY)
    except InvalidInput as error:
        return request.refuse(Code.BAD_DOWNSCALE_TIME, f"{error}")


async def _observe(context: PrepareContext, request: DecreaseRequest) -> Group:
    """Return the live state. Raises ApiError, and Conflict where the cache is behind it."""
    observer = context.observer
    if not request.group:
        return await observer.observe_alone(request.decrease.name)
    cached = observer.observe(request.group)
    live = await observer.observe_live(cached)
    if cached.owners != live.owners:
        raise Conflict("the cache does not yet show the same members of the group")
    return live


def find_unanswered(
    context: PrepareContext, request: DecreaseRequest, endpoints: Sequence[Endpoint]
) -> Verdict | None:
    """Return the refusal where a call that a pod stays may yet arrive after a call that it goes."""
    waits = context.downscales.unanswered.map_waits(request.set_uid, endpoints)
    return assess_unanswered(request.decrease, endpoints, waits)


def _render_change(sts: StatefulSet | None) -> str:
    if sts is None:
        return "the API server does not confirm that it exists in its group; try again"
    return f"the API server shows it with {sts.replicas} replicas; try again"
