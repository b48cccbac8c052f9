"""The arbiter of every disruption of a pod under a budget: eviction, and delete of a rollout.

It makes two promises about the one decision in `planning.budgets.rule`. Within this process nothing
is awaited between a decision and its reservation, so no lock is needed and none can be held too
long. Between processes a record is written on the pod first and all pods are read after that: of
two that grant at the same time the later writer sees the other's record, and both decide with it.
See docs/budgets.md, and tests/models for the proof.

An eviction sends one request, and the arbiter reads all pods itself. A rollout has to read its
group before a delete anyway: it reserves first, and one live read serves its own decision and that
of the arbiter.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.guards.budgets.in_flight import GrantReleases
from rollout_operator.guards.budgets.pod_records import RECORD_COUNTS, is_recorded, wins
from rollout_operator.guards.budgets.precedence import Precedence, WaitingEvictions
from rollout_operator.guards.budgets.request import (
    QUARANTINE,
    Answer,
    DisruptionRequest,
    Grant,
    GrantedPod,
    GrantState,
    Reservation,
    refuse_contested,
    refuse_in_quarantine,
    refuse_late,
    refuse_standing,
    refuse_unrecorded,
    refuse_unused,
)
from rollout_operator.guards.budgets.snapshots import ArbiterContext, Snapshots
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.errors import ApiError, UnknownOutcome
from rollout_operator.model.group import Group
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets.rule import (
    BudgetSnapshot,
    Decisions,
    Refusal,
    assess_disruption,
)
from rollout_operator.telemetry.logs import log

# An answer leaves so soon after its record was written. A process that finds the record on an
# untouched pod waits twice as long before its grant is released, so that what the answer allowed
# has happened.
ANSWER_LIMIT: Final = timedelta(seconds=4)
# A delete of a rollout names the version of the pod that has the record: once the record is
# removed, that delete fails, at whatever time. So the record only has to count until the delete is
# carried out, at most 5 s and a request after the read that it rests on.
ROLLOUT_LIMIT: Final = RECORD_COUNTS / 4
# The same pod requested again so soon is the same request, repeated; its answer may be used for as
# long.
REPEAT_LIMIT: Final = timedelta(seconds=2)
# The other process releases its grant as soon as it has read.
CONTEST_PAUSE: Final = timedelta(milliseconds=100)
CONTEST_READS: Final = 6
# More waiters are refused at once: each is decided on again when the first is settled.
MOST_WAITING: Final = 64
# Pods that are decided on before other tasks may run: some milliseconds.
SLICE: Final = 100


class Arbiter:
    """Decides, reserves, records and confirms."""

    def __init__(self, context: ArbiterContext) -> None:
        self._in_flight = context.in_flight
        self._recorder = context.recorder
        self._now = context.now
        self._clock = context.clock
        self._metrics = context.metrics.disruptions
        self._snapshots = Snapshots(context)
        self._releases = GrantReleases(context.in_flight, context.recorder)
        self._began = context.clock.elapsed()
        self._waiting: deque[asyncio.Future[None]] = deque()
        unused = context.in_flight.unused
        waiting = WaitingEvictions(context.pods, unused, context.clock)
        self._precedence = Precedence(waiting, unused, context.clock)
        context.in_flight.on_change(self._wake)

    def begin(self) -> None:
        """Decide from now on: what another process granted may not be known."""
        self._began = self._clock.elapsed()

    async def run(self) -> None:
        """Release grants whose clients hung up, until cancelled."""
        await self._releases.run()

    async def assess_all(self, requests: Sequence[DisruptionRequest]) -> Sequence[Refusal | None]:
        """Return for each pod why it may not go as the caches show it, None where it may.

        What the caches show is taken once for all pods of a StatefulSet under one budget.
        """
        decisions: dict[tuple[str, Uid | None], Decisions] = {}
        refusals: list[Refusal | None] = []
        for number, request in enumerate(requests, 1):
            choice = self._snapshots.choose(request)
            if isinstance(choice, Budget):
                key = (choice.name, request.pod.owner_uid)
                if key not in decisions:
                    decisions[key] = Decisions(self._snapshots.observe(choice, request))
                decided = decisions[key]
                refusal = decided.assess(request.pod)
                choice = refusal or self._precedence.assess(
                    request, decided.snapshot_of(request.pod)
                )
            refusals.append(choice)
            if number % SLICE == 0:
                await asyncio.sleep(0)  # other tasks may run
        return refusals

    def choose(self, request: DisruptionRequest) -> Budget | Refusal | None:
        """Return the budget that rules over a pod, None where none does."""
        return self._snapshots.choose(request)

    def may_cover(self, pod: Pod) -> bool:
        """Return whether a budget selects a pod, or might: not all are known."""
        return self.choose(DisruptionRequest(pod=pod, engine=DisruptionSource.EVICTION)) is not None

    async def request(self, request: DisruptionRequest, until: timedelta) -> Answer:
        """Answer before `until`, on the clock's `elapsed`. A pod that is granted is reserved."""
        with self._metrics.inflight.track_inprogress():
            snapshot = await self._decide(request, until)
            answer = (
                await self._grant(request, snapshot, until)
                if isinstance(snapshot, BudgetSnapshot)
                else snapshot
            )
        if isinstance(answer, Refusal) and request.engine is DisruptionSource.EVICTION:
            choice = self.choose(request)
            if isinstance(choice, Budget):
                answer = self._precedence.line_up(request, choice, answer)
        self._count(answer)
        return answer

    async def reserve(
        self, request: DisruptionRequest, until: timedelta
    ) -> Reservation | Refusal | None:
        """Write that a pod is to go, for a caller that reads all pods live after that; None without
        a budget.

        Waits until `until` for earlier requests. The caller ends a reservation by `confirm` or
        `release`.
        """
        with self._metrics.inflight.track_inprogress():
            snapshot = await self._decide(request, until)
            if isinstance(snapshot, GrantedPod):
                return None
            answer = (
                await self._record(request, snapshot)
                if isinstance(snapshot, BudgetSnapshot)
                else snapshot
            )
        if isinstance(answer, Refusal):
            self._count(answer)
        return answer

    async def confirm(self, reserved: Reservation, live: Group, until: timedelta) -> Answer:
        """Answer before `until`, by a live read of a group that began after the reservation."""
        left = until - self._clock.elapsed()
        answer: Answer = refuse_late(reserved.request.pod)
        try:
            with self._metrics.inflight.track_inprogress():
                if left > timedelta(0):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left.total_seconds()):
                            answer = await self._confirm(reserved, live)
            if isinstance(answer, Refusal):
                await self.release(reserved)  # where there was no time to confirm
        finally:
            self._releases.abandon(reserved.grant)
        self._count(answer)
        return answer

    async def release(self, reserved: Reservation) -> None:
        """Release a reservation that will not be confirmed; a settled reservation is fine."""
        grant = reserved.grant
        is_open = grant.state is not GrantState.GRANTED
        if is_open and self._in_flight.get(grant.pod.uid) is grant:
            await self._releases.release(grant)

    def abandon(self, reserved: Reservation) -> None:
        """Release a reservation in the background."""
        self._releases.abandon(reserved.grant)

    async def release_pod(self, pod: Pod) -> None:
        """Release the grant of a pod that was granted, and stays."""
        grant = self._in_flight.get(pod.uid)
        # By its version: meanwhile it may have been released, and the pod be granted to others.
        if grant is not None and grant.pod.resource_version == pod.resource_version:
            await self._releases.release(grant)

    async def _decide(
        self, request: DisruptionRequest, until: timedelta
    ) -> Answer | BudgetSnapshot:
        """Return the answer, or what the caches show where they let a pod go under a budget.

        The caller has to reserve the pod before anything else is awaited.
        """
        while True:
            choice = self.choose(request)
            if choice is None:
                return GrantedPod(pod=request.pod)
            if isinstance(choice, Refusal):
                return choice
            if self._is_granted(request):
                return GrantedPod(pod=request.pod, budget=choice.name)
            snapshot = self._snapshots.observe(choice, request)
            refusal = assess_disruption(snapshot) or self._find_standing(snapshot)
            if not self._waits_for_others(snapshot, refusal):
                break
            if not await self._wait(until):
                return refusal or refuse_contested(request.pod, choice)
        refusal = (
            refusal or self._find_unused(request) or self._precedence.assess(request, snapshot)
        )
        if refusal is not None:
            return refusal
        if request.dry_run:
            return GrantedPod(pod=request.pod, budget=choice.name)
        return snapshot

    def _is_granted(self, request: DisruptionRequest) -> bool:
        """Return whether the same was granted a moment ago: repeated, it stays so (SI-16)."""
        grant = self._in_flight.get(request.pod.uid)
        return (
            grant is not None
            and grant.state is GrantState.GRANTED
            and grant.engine is request.engine is DisruptionSource.EVICTION
            and self._age_of(grant) < REPEAT_LIMIT
        )

    def _find_standing(self, snapshot: BudgetSnapshot) -> Refusal | None:
        """Refuse a pod whose earlier grant may still be used.

        It is not granted twice: to release the second grant would release the first.
        """
        pod = snapshot.pod
        grant = self._in_flight.get(pod.uid)
        if grant is None and not is_recorded(pod, snapshot.now):
            return None
        return refuse_standing(pod, is_granted=grant is not None and grant.was_granted)

    def _find_unused(self, request: DisruptionRequest) -> Refusal | None:
        """Refuse a pod whose evictions came to nothing lately; others go on meanwhile."""
        unused, pod = self._in_flight.unused, request.pod
        wait = unused.wait_before(pod.uid)
        if request.engine is not DisruptionSource.EVICTION or not wait:
            return None
        return refuse_unused(pod, unused.count(pod.uid), wait)

    def _waits_for_others(self, snapshot: BudgetSnapshot, refusal: Refusal | None) -> bool:
        """Return whether only grants that may come to nothing within moments stand in the way."""
        open_grants = self._in_flight.list_requested(snapshot.budget.name)
        if refusal is None or not open_grants:
            return False
        if snapshot.pod.uid in open_grants:  # its answer is that of this request, too
            return True
        going = {uid: how for uid, how in snapshot.deletions.items() if uid not in open_grants}
        return assess_disruption(replace(snapshot, deletions=going)) is None

    async def _wait(self, until: timedelta) -> bool:
        """Wait in the order of arrival until a grant has been settled; return False if too late."""
        if len(self._waiting) >= MOST_WAITING:
            return False
        left = until - self._clock.elapsed()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(left.total_seconds()):
                await turn
        except TimeoutError:
            return False
        return True

    def _wake(self, pod: Pod) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _grant(
        self, request: DisruptionRequest, snapshot: BudgetSnapshot, until: timedelta
    ) -> Answer:
        left = min(until - self._clock.elapsed(), ANSWER_LIMIT)
        if left <= timedelta(0):  # nothing would be sent, and no answer could rest on it
            return refuse_late(request.pod)
        reserved: Reservation | Refusal | None = None
        try:
            async with asyncio.timeout(left.total_seconds()):
                reserved = await self._record(request, snapshot)
                if isinstance(reserved, Refusal):
                    return reserved
                return await self._confirm(reserved, None)
        except TimeoutError:
            return refuse_late(request.pod)
        finally:
            # Also where the client has gone. An answer that may have left was given before.
            if isinstance(reserved, Reservation):
                self._releases.abandon(reserved.grant)

    async def _record(
        self, request: DisruptionRequest, snapshot: BudgetSnapshot
    ) -> Reservation | Refusal:
        """Reserve a pod and write its record."""
        lasts = request.lasts + REPEAT_LIMIT
        grant = self._in_flight.reserve(request.pod, request.engine, snapshot.budget.name, lasts)
        stands = False
        try:
            record = await self._recorder.write(grant, self._now)
            if record is None and self._clock.elapsed() - self._began < QUARANTINE:
                return refuse_in_quarantine()
            stands = True
            return Reservation(request=request, budget=snapshot.budget, grant=grant, record=record)
        except ApiError as error:
            if not isinstance(error, UnknownOutcome):
                grant.record = ""
            return refuse_unrecorded(request.pod, error)
        finally:
            # Also where the requester has gone: the record may still be in flight.
            if not stands:
                self._in_flight.release_open(grant)

    async def _confirm(self, reserved: Reservation, group: Group | None) -> Answer:
        """Decide again by live pods: those of `group` first, where it has all that count."""
        grant = reserved.grant
        try:
            answer = await self._read_until_sure(reserved, group)
        except ApiError as error:
            answer = refuse_unrecorded(grant.pod, error)
        if isinstance(answer, Refusal):
            await self._releases.release(grant)
        return answer

    async def _read_until_sure(self, reserved: Reservation, group: Group | None) -> Answer:
        """Read live until the pod may go, or may not. Raises ApiError."""
        grant, record = reserved.grant, reserved.record
        limit = ROLLOUT_LIMIT if grant.engine is DisruptionSource.ROLLOUT else ANSWER_LIMIT
        for attempt in range(CONTEST_READS):
            if attempt:
                await self._clock.sleep(CONTEST_PAUSE)
            live, seen = await self._snapshots.observe_live(reserved, None if attempt else group)
            if seen is None or (record is not None and seen.disruption != grant.record):
                return refuse_unrecorded(grant.pod, None)
            choice = self.choose(replace(reserved.request, pod=seen))
            if isinstance(choice, Refusal):  # meanwhile it is not known which budget rules (W-52)
                return choice
            refusal = assess_disruption(live)
            if refusal is None and self._age_of(grant) < limit:
                self._in_flight.confirm(grant, seen)
                self._precedence.record_granted(live)
                log.info(
                    "Allowing disruption",
                    pod=seen.name, budget=live.budget.name, engine=grant.engine,
                )  # fmt: skip
                return GrantedPod(pod=seen, budget=live.budget.name)
            if refusal is None or not wins(record, live):
                break
        return refusal or refuse_late(grant.pod)

    def _count(self, answer: Answer) -> None:
        if isinstance(answer, Refusal):
            self._metrics.count(answer.reason.code, answer.status)
        else:
            self._metrics.count(Code.DISRUPTION_GRANTED if answer.budget else Code.POD_NOT_IN_SCOPE)

    def _age_of(self, grant: Grant) -> timedelta:
        return self._clock.elapsed() - grant.begun
