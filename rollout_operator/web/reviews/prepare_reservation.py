"""Decide whether a set may lose pods now, and claim the downscale before anyone else can.

The first half of the hook prepare-downscale: one live look at the whole group under its lock, the
times of downscales, and the decision of `planning.downscales.rule`. What follows from a claim, the
calls to pods, the record and the answer, is in `prepare_downscale`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.server_clock import CLOCK_ERROR
from rollout_operator.guards.downscales.backlog import CancelCalls
from rollout_operator.guards.downscales.pod_records import PodRecords
from rollout_operator.guards.downscales.reservations import (
    PERSIST_LIMIT,
    Claim,
    Downscales,
    ReservationState,
)
from rollout_operator.guards.downscales.times import Member, RecordedTimes, Records
from rollout_operator.guards.locks import Locks, calls_lock, group_lock
from rollout_operator.model.downscale import Decrease, Endpoint, Key, Target
from rollout_operator.model.errors import ApiError, Conflict, InvalidInput
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.planning.downscales.request import RETRY, assess_prepared, refuse_decrease
from rollout_operator.planning.downscales.rule import (
    PreparePods,
    assess_neighbours,
    assess_unanswered,
    choose_pods_to_prepare,
)
from rollout_operator.pods.client import PodError
from rollout_operator.telemetry.logs import log
from rollout_operator.web.reviews.read_shares import RepeatedLooks
from rollout_operator.web.reviews.scale_parent import Parents


class Looker(Protocol):
    """Where pictures of groups come from."""

    def observe(self, name: GroupName) -> Group: ...

    async def observe_live(self, cached: Group) -> Group: ...

    async def observe_alone(self, name: str) -> Group: ...


class PrepareCalls(CancelCalls, Protocol):
    """The part of `pods.client.PodClient` that is needed."""

    async def prepare_all(self, endpoints: Sequence[Endpoint]) -> list[PodError]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareContext:
    """What the hook works with."""

    parents: Parents
    looker: Looker
    looks: RepeatedLooks
    locks: Locks
    downscales: Downscales
    records: Records
    notes: PodRecords
    pods: PrepareCalls
    clock: Clock
    server_time: Callable[[], datetime]
    """The API server's clock, at most a second behind the truth."""
    namespace: str
    cluster_domain: str
    is_stopping: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecreaseRequest:
    """One decrease of a set that is said to carry the label.

    Who asks, of which set, from how many to how many: all else is looked up (D-68).
    """

    decrease: Decrease
    set_uid: Uid
    group: GroupName | None
    """As it is said to be: where that is not so, nothing is done."""
    first_ordinal: int | None
    """The same of the first ordinal; None where nothing is said of it."""
    until: timedelta
    takes_patch: bool
    """Whether the object under review is the set itself, not its Scale."""

    @property
    def lock(self) -> str:
        """Return the key of the lock under which it is decided."""
        return calls_lock(self.set_uid) if self.group is None else group_lock(self.group)

    def describes(self, sts: StatefulSet) -> bool:
        """Tell whether a set is what the review says: nothing is done on its word."""
        is_same = sts.uid == self.set_uid and sts.name == self.decrease.name
        is_first = self.first_ordinal is None or sts.first_ordinal == self.first_ordinal
        is_counted = sts.replicas == self.decrease.replicas_from
        return is_same and is_first and is_counted and sts.group == self.group

    def refuse_changed(self, sts: StatefulSet | None) -> Verdict:
        """Return the refusal where the store shows something else than the review."""
        return self.refuse(Code.CHANGED_MEANWHILE, _word_change(sts), status=RETRY)

    def refuse(self, code: Code, why: str, *, status: int = 0) -> Verdict:
        """Return the refusal; `why` goes on after `is not allowed because`."""
        return refuse_decrease(self.decrease, code, why, status=status)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedDownscale:
    """A downscale that is claimed, and who is still to be called for it."""

    claim: Claim
    plan: PreparePods
    missing: tuple[Endpoint, ...]
    granted_at: timedelta | None
    """On the clock's `elapsed`: when the same was allowed before, if that may persist still."""
    is_repeated: bool
    """Whether it is the same request again: then the time of the first answer stands."""
    sts: StatefulSet
    others: tuple[StatefulSet, ...]
    """The rest of the group, as it was when that was decided."""
    seen: RecordedTimes
    """The times on which the decision rests."""


@dataclass(frozen=True, slots=True)
class _LiveState:
    """What a decision rests on."""

    group: Group
    zone: Zone
    """The one that is asked about."""
    target: Target
    """Where its pods are called, as it says itself."""
    key: Key
    seen: RecordedTimes | None
    """None where it was not read, for one that is repeated."""


class Claims:
    """Decides and claims, for one review at a time of each group."""

    def __init__(self, parts: PrepareContext) -> None:
        self._parts = parts

    async def claim(
        self, ask: DecreaseRequest
    ) -> Verdict | ReservedDownscale | asyncio.Future[Verdict]:
        """Decide on a live picture of the group, and claim the downscale before anyone else can.

        The lock is held across the look, so that what is seen is what is claimed. Returns the
        future of the answer where the same is being asked already. Raises ApiError.
        """
        parts = self._parts
        # Not under the lock: others of the group go on meanwhile.
        await parts.looks.wait_turn(ask.set_uid, ask.until - parts.clock.elapsed())
        async with parts.locks.hold(ask.lock):
            group = await self._look(ask)
            zone = next((one for one in group.zones if one.sts.uid == ask.set_uid), None)
            if zone is None or not ask.describes(zone.sts):
                return ask.refuse_changed(None if zone is None else zone.sts)
            sts = zone.sts
            target = assess_prepared(ask.decrease, sts.labels, sts.annotations, sts.service_name)
            if isinstance(target, Verdict):
                return target
            key = _make_key(ask, target)
            known = parts.downscales.get(ask.set_uid)
            if known is not None and known.key == key and known.answer is not None:
                # The API server may write it as late as this review allows.
                parts.downscales.renew(known, ())
                return known.answer
            seen = await self._read_times(ask, key, group)
            if isinstance(seen, Verdict):
                return seen
            # Again: while we looked, it may have been settled, or found on the pods.
            known = parts.downscales.get(ask.set_uid)
            if known is not None and sts.replicas <= known.key.replicas_to:
                parts.downscales.note_persisted(known, parts.server_time())
            return self._decide(ask, _LiveState(group, zone, target, key, seen), known)

    def _decide(
        self, ask: DecreaseRequest, look: _LiveState, known: Claim | None
    ) -> Verdict | ReservedDownscale:
        parts, zone = self._parts, look.zone
        same = self._find_same(look.key)
        if known is not None and same is None and _may_persist(known, look):
            why = f"statefulset {zone.sts.name} is already in process of updating replicas"
            return ask.refuse(Code.OTHER_DOWNSCALE_UNDERWAY, why, status=RETRY)
        is_repeated = same is not None and self._is_repeated(same)
        if ask.group and not is_repeated:
            refusal = self._assess_neighbours(ask, look)
            if refusal is not None:
                return refusal
        plan = choose_pods_to_prepare(ask.decrease, zone, look.target, parts.cluster_domain)
        if isinstance(plan, Verdict):
            return plan
        prepared = same.prepared if same is not None and is_repeated else frozenset[Uid]()
        missing = tuple(one for one in plan.endpoints if one.uid not in prepared)
        refusal = find_unanswered(parts, ask, missing)
        if refusal is not None:
            return refusal
        granted_at = None if same is None else parts.downscales.granted_at(same)
        told = [(one.uid, one.pod) for one in plan.endpoints]
        if same is not None and is_repeated:
            parts.downscales.renew(same, told)
            claim = same
        else:
            claim = self._begin(look, told, same)
        claim.stage = ReservationState.PREPARING
        claim.answer = asyncio.get_running_loop().create_future()
        return ReservedDownscale(
            claim=claim,
            plan=plan,
            missing=missing,
            granted_at=granted_at,
            is_repeated=is_repeated,
            sts=zone.sts,
            others=tuple(one.sts for one in look.group.zones if one is not zone),
            seen=look.seen or RecordedTimes(),
        )

    def _begin(self, look: _LiveState, told: list[tuple[Uid, str]], same: Claim | None) -> Claim:
        sts, key = look.zone.sts, look.key
        if same is not None and self._is_late(same):
            log.warn(
                "Downscale is asked for again and again, and does not happen",
                zone=sts.name, replicas_from=key.replicas_from, replicas_to=key.replicas_to,
            )  # fmt: skip
        # The server's clock may be a second ahead of what we know of it.
        begun = self._parts.server_time() + CLOCK_ERROR
        return self._parts.downscales.begin(sts, key, begun, told)

    def _assess_neighbours(self, ask: DecreaseRequest, look: _LiveState) -> Verdict | None:
        parts = self._parts
        if look.seen is None:
            why = "the same was asked before, and is over meanwhile; try again"
            return ask.refuse(Code.CHANGED_MEANWHILE, why, status=RETRY)
        sets = [zone.sts for zone in look.group.zones]
        underway = parts.downscales.find_underway(
            ask.group, but=ask.set_uid
        ) or parts.downscales.intents.find(sets, but=ask.set_uid)
        picture = replace(look.group, now=parts.server_time(), downscale=underway)
        return assess_neighbours(
            ask.decrease, look.zone.sts, picture, look.seen.times, parts.records.source
        )

    def _find_same(self, key: Key) -> Claim | None:
        """Return the claim of a downscale that was asked for before and may still happen."""
        known = self._parts.downscales.get(key.set_uid)
        is_open = known is not None and known.stage is not ReservationState.PERSISTED
        return known if known is not None and is_open and known.key.may_be(key) else None

    def _is_repeated(self, claim: Claim) -> bool:
        """Tell whether who asks the same again is not judged again.

        What was granted holds the others back (D-24). What another process began it may never have
        granted; and so late it is another request, from a client that keeps trying: the world has
        changed, and so has the time to record.
        """
        return not claim.is_adopted and not self._is_late(claim)

    def _is_late(self, claim: Claim) -> bool:
        return self._parts.server_time() - claim.begun >= PERSIST_LIMIT

    async def _read_times(
        self, ask: DecreaseRequest, key: Key, group: Group
    ) -> RecordedTimes | Verdict | None:
        """Return when zones went last, None where that is not judged."""
        parts = self._parts
        same = self._find_same(key)
        if not ask.group or (same is not None and self._is_repeated(same)):
            return None
        members: list[Member] = [zone.sts for zone in group.zones]
        members += group.unreadable
        try:
            return await parts.records.look(members, but=ask.set_uid)
        except ApiError as error:
            why = f"loading zones failed. {error}"
            return ask.refuse(Code.GROUP_NOT_READ, why, status=RETRY)
        except InvalidInput as error:
            return ask.refuse(Code.BAD_DOWNSCALE_TIME, f"{error}")

    async def _look(self, ask: DecreaseRequest) -> Group:
        """Return the live picture. Raises ApiError, and Conflict where the cache is behind it."""
        looker = self._parts.looker
        if not ask.group:
            return await looker.observe_alone(ask.decrease.name)
        cached = looker.observe(ask.group)
        live = await looker.observe_live(cached)
        if cached.owners != live.owners:
            raise Conflict("the cache does not yet show the same members of the group")
        return live


def find_unanswered(
    parts: PrepareContext, ask: DecreaseRequest, endpoints: Sequence[Endpoint]
) -> Verdict | None:
    """Return the refusal where pods may hear that they stay after what they would be told now."""
    waits = parts.downscales.unanswered.list_waits(ask.set_uid, endpoints)
    return assess_unanswered(ask.decrease, endpoints, waits)


def _make_key(ask: DecreaseRequest, target: Target) -> Key:
    return Key(
        set_uid=ask.set_uid,
        replicas_from=ask.decrease.replicas_from,
        replicas_to=ask.decrease.replicas_to,
        target=target,
    )


def _may_persist(claim: Claim, look: _LiveState) -> bool:
    """Tell whether another downscale of the set may still be written.

    A write is taken only of the very version that was reviewed: the set has been changed since,
    where it tells another target now.
    """
    if claim.stage is ReservationState.PERSISTED:
        return False
    return claim.stage is ReservationState.PREPARING or claim.key.target in (None, look.target)


def _word_change(sts: StatefulSet | None) -> str:
    if sts is None:
        return "the API server does not confirm that it exists in its group; try again"
    return f"the API server shows it with {sts.replicas} replicas; try again"
