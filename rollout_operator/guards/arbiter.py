"""The arbiter of every disruption of a pod under a budget: an eviction, or a delete of a rollout.

Within this process nothing is awaited between a decision and its reservation, so no lock is needed.
Between processes a record is written on the pod first and all pods are read after that: of two that
grant at the same time the later writer sees the other's record, and both decide with it. See
docs/budgets.md, and tests/models for the proof. What a budget allows is decided in
`planning.budgets`.

An eviction sends one request, and the arbiter reads all pods itself. A rollout has to read its
group before a delete anyway: it reserves first, and one live read serves its own decision and that
of the arbiter.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.departed import OwnedPods, compose_zone
from rollout_operator.guards.grants import (
    QUARANTINE,
    RECORD_COUNTS,
    Answer,
    DisruptionRequest,
    Grant,
    GrantedPod,
    GrantReleases,
    GrantState,
    InFlight,
    Recorder,
    Reservation,
    is_recorded,
    refuse,
    wins,
)
from rollout_operator.guards.turns import Held, Precedence
from rollout_operator.kube.store import AnyBudget, PodStore, StatefulSetStore, decides
from rollout_operator.model.budget import (
    Budget,
    BudgetState,
    BudgetVersions,
    DisruptionSource,
    FlawedBudget,
)
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    DeadlinePassed,
    NotFound,
    Uid,
    UnknownOutcome,
)
from rollout_operator.model.objects import (
    Group,
    Newcomers,
    Pod,
    StatefulSet,
    Underway,
    Unreadable,
    Zone,
    selects,
)
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets import (
    BudgetSnapshot,
    Decisions,
    Refusal,
    assess_disruption,
    choose_budget,
    refuse_stale_cache,
)
from rollout_operator.planning.describe_budgets import describe_budget
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from rollout_operator.planning.wording import count
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# An answer leaves so soon after its record was written. A process that finds the record on an
# untouched pod waits twice as long before its grant is released, so that what the answer allowed
# has happened.
ANSWER_LIMIT: Final = timedelta(seconds=4)
# A delete of a rollout names the version of the pod that has the record: once the record is
# removed, that delete fails, at whatever time. So the record only has to count until the delete is
# carried out, at most 5 s and a request after the read that it rests on.
_ROLLOUT_LIMIT: Final = RECORD_COUNTS / 4
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


class BudgetCatalog:
    """The budgets of one namespace, fed by their informer.

    Of each the newest version that can be obeyed is in force, for as long as the budget exists.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics.budgets
        self._known: dict[str, BudgetVersions] = {}

    def on_change(self, old: AnyBudget | None, new: AnyBudget | None) -> None:
        last = new or old
        if last is None or not last.name:  # without a name it cannot be distinguished
            self._metrics.count("ignored")
        elif new is None:
            self._forget(last)
        elif isinstance(new, Budget):
            self._take(new)
        else:
            self._take_flawed(new)

    def list_selecting(self, labels: Mapping[str, str]) -> tuple[BudgetState, ...]:
        states = [versions.find_state(labels) for versions in self._known.values()]
        found = [state for state in states if state is not None]
        return tuple(sorted(found, key=lambda state: state.name))

    def get(self, name: str) -> BudgetVersions | None:
        return self._known.get(name)

    def list_all(self) -> Sequence[BudgetVersions]:
        return tuple(versions for _, versions in sorted(self._known.items()))

    def _take(self, budget: Budget) -> None:
        versions = self._find_same(budget)
        if versions is not None and not _is_news(versions, budget):
            if budget.generation < versions.generation:
                log.warn(
                    "Ignoring an older version of a budget",
                    zpdb=budget.name,
                    generation=budget.generation,
                    known_generation=versions.generation,
                )
            self._metrics.count("ignored")
            return
        self._known[budget.name] = BudgetVersions(
            namespace=budget.namespace,
            name=budget.name,
            uid=budget.uid,
            generation=budget.generation,
            budget=budget,
        )
        log.info(
            "Obeying budget",
            zpdb=budget.name,
            generation=budget.generation,
            max_unavailable=budget.maximum,
            partition_pattern=budget.pattern,
        )
        self._metrics.count("updated")
        self._show(budget.name)

    def _take_flawed(self, flawed: FlawedBudget | Unreadable) -> None:
        self._metrics.count("invalid")
        versions = self._find_same(flawed)
        generation = flawed.generation if isinstance(flawed, FlawedBudget) else 0
        if versions is not None and 0 < generation < versions.generation:
            return
        base = versions or BudgetVersions(
            namespace=flawed.namespace, name=flawed.name, uid=flawed.uid, generation=generation
        )
        problem = flawed.problem if isinstance(flawed, FlawedBudget) else flawed.error
        now = replace(
            base,
            generation=max(generation, base.generation),
            problem=problem,
            flawed_selector=flawed.selector if isinstance(flawed, FlawedBudget) else None,
        )
        self._known[flawed.name] = now
        self._show(flawed.name)
        if (now.generation, now.problem) != (base.generation, base.problem) or versions is None:
            self._report_flawed(flawed.name, now)

    def _report_flawed(self, name: str, now: BudgetVersions) -> None:
        stays = now.budget
        effect = "the version before stays in force"
        if stays is None:
            effect = "no pod that it selects may go"
            if now.flawed_selector is None:
                effect = "what it selects is unknown: it guards nothing"
        log.error(
            "Budget cannot be obeyed",
            zpdb=name,
            generation=now.generation,
            generation_in_force=stays.generation if stays is not None else None,
            effect=effect,
            err=now.problem,
        )

    def _forget(self, last: AnyBudget) -> None:
        versions = self._find_same(last)
        generation = 0 if isinstance(last, Unreadable) else last.generation
        if versions is None or 0 < generation < versions.generation:
            self._metrics.count("delete-ignored")
            return
        del self._known[last.name]
        log.info("Budget is gone", zpdb=last.name, generation=versions.generation)
        self._metrics.count("deleted")
        self._metrics.forget(last.name)

    def _find_same(self, budget: AnyBudget) -> BudgetVersions | None:
        """Return the known versions of this very object: another UID is another budget."""
        versions = self._known.get(budget.name)
        return versions if versions is not None and versions.uid == budget.uid else None

    def _show(self, name: str) -> None:
        versions = self._known[name]
        maximum: int | None = 0
        if versions.budget is not None:
            is_share = versions.budget.percentage is not None
            maximum = None if is_share else versions.budget.max_unavailable
        self._metrics.show(name, maximum=maximum, is_valid=not versions.problem)


def _is_news(versions: BudgetVersions, budget: Budget) -> bool:
    """Return whether a version replaces the known version of the same budget.

    Annotations change without a new generation.
    """
    if budget.generation != versions.generation or versions.budget is None:
        return budget.generation >= versions.generation
    return bool(versions.problem) or decides(versions.budget, budget)


class _PodReader(Protocol):
    async def fetch_pods(self, sets: Sequence[StatefulSet]) -> Sequence[Pod | Unreadable]:
        """Return all pods of these sets from a live read. Raises ApiError."""
        ...


class ArbiterContext(msgspec.Struct, frozen=True, kw_only=True):
    budgets: BudgetCatalog
    find_lack: Callable[[DisruptionSource], str | None]
    """Says why budgets are not known yet; None where they are."""
    sets: StatefulSetStore
    pods: PodStore
    reader: _PodReader
    in_flight: InFlight
    recorder: Recorder
    find_downscale: Callable[[Iterable[StatefulSet]], Underway | None]
    age: Callable[[], timedelta]
    """Age of the oldest proof that the caches are live."""
    now: Callable[[], datetime]
    """The API server's time."""
    clock: Clock
    metrics: Metrics
    find_newcomers: Callable[[Uid], Newcomers | None] = lambda uid: None
    find_departed: Callable[[str, OwnedPods | None], tuple[Zone, ...]] = lambda budget, live: ()
    """Returns the zones that left a budget while they were short, with live or cached pods."""


class Snapshots:
    """Makes the snapshots that the arbiter decides on, from the caches or from live pods."""

    def __init__(self, context: ArbiterContext) -> None:
        self._context = context

    def choose(self, request: DisruptionRequest) -> Budget | Refusal | None:
        """Return the budget that rules over a pod, None where none does."""
        lack = self._context.find_lack(request.engine)
        if lack is not None:
            return refuse(Code.BUDGETS_NOT_READ, f"the budgets are not known yet: {lack}")
        states = self._context.budgets.list_selecting(request.pod.labels)
        choice = choose_budget(states, request.pod)
        # That no budget selects a pod is believed only of caches that are fresh.
        if choice is None and self._context.age() > SNAPSHOT_LIMIT:
            return refuse_stale_cache()
        return choice

    def observe(self, budget: Budget, request: DisruptionRequest) -> BudgetSnapshot:
        """Return what the caches show; decide on it before anything is awaited."""
        snapshot, sets = self._outline(budget, request)
        owned: OwnedPods = {sts.uid: self._context.pods.list_by_owner(sts.uid) for sts in sets}
        return self._fill(snapshot, sets, owned, self._context.find_departed(budget.name, None))

    async def observe_live(
        self, reserved: Reservation, group: Group | None
    ) -> tuple[BudgetSnapshot, Pod | None]:
        """Return a snapshot with live pods, and the pod itself where it is still untouched."""
        request = reserved.request
        snapshot, zones = self._outline(reserved.budget, request)
        # Without the pods in the cache: these may be behind what a live read shows.
        departed = self._context.find_departed(reserved.budget.name, {})
        sets = (*self._list_sets(snapshot, zones), *(zone.sts for zone in departed))
        live = {} if group is None else {zone.sts.uid: zone for zone in group.counted}
        pods: Sequence[Pod | Unreadable]
        if all(sts.uid in live for sts in sets):
            pods = [pod for zone in live.values() for pod in zone.pods]
            pods = [*pods, *(pod for zone in live.values() for pod in zone.unreadable_pods)]
        else:
            live, pods = {}, await self._context.reader.fetch_pods(sets)
        seen = next((pod for pod in pods if pod.uid == request.pod.uid), None)
        if not isinstance(seen, Pod) or seen.is_terminating:
            seen = None
        # Since the first decision, all but the pods may have changed as well.
        request = replace(request, pod=seen or request.pod)
        choice = self.choose(request)
        budget = choice if isinstance(choice, Budget) else reserved.budget
        snapshot, zones = self._outline(budget, request)
        # Pods of a set that was not read are missing, and count as down.
        owned: dict[Uid | None, list[Pod | Unreadable]] = {sts.uid: [] for sts in zones}
        for pod in pods:
            owned.setdefault(pod.owner_uid, []).append(pod)
        zones = [live[sts.uid].sts if sts.uid in live else sts for sts in zones]
        snapshot = replace(
            snapshot, downscale=snapshot.downscale or self._context.find_downscale(zones)
        )
        departed = self._context.find_departed(budget.name, owned)
        snapshot = self._fill(snapshot, zones, owned, departed)
        # Without its own record the pod is like the others, and what refuses it refuses them.
        going = {uid: how for uid, how in snapshot.deletions.items() if uid != request.pod.uid}
        return replace(snapshot, deletions=going), seen

    def _outline(
        self, budget: Budget, request: DisruptionRequest
    ) -> tuple[BudgetSnapshot, Sequence[StatefulSet]]:
        """Return the snapshot of a budget without its pods, and the sets that they belong to."""
        context = self._context
        sets = [sts for sts in context.sets.list_all() if selects(budget.selector, sts.labels)]
        readable = [sts for sts in sets if isinstance(sts, StatefulSet)]
        snapshot = BudgetSnapshot(
            budget=budget,
            pod=request.pod,
            owner=request.pod.owner_uid or Uid(""),
            zones=(),
            now=context.now(),
            deletions={},
            engine=request.engine,
            # ROLL-36
            override=min(request.limit, 1) if budget.by_partition else request.limit,
            downscale=context.find_downscale(readable),
            snapshot_age=context.age(),
            unreadable=tuple(sts for sts in sets if isinstance(sts, Unreadable)),
        )
        return snapshot, readable

    def _fill(
        self,
        snapshot: BudgetSnapshot,
        sets: Sequence[StatefulSet],
        pods: OwnedPods,
        departed: Sequence[Zone],
    ) -> BudgetSnapshot:
        find_newcomers = self._context.find_newcomers
        zones = [compose_zone(sts, pods[sts.uid], find_newcomers(sts.uid)) for sts in sets]
        zones += departed
        listed = (pod for zone in zones for pod in zone.pods)
        owners = {zone.sts.uid for zone in zones}
        going = self._context.in_flight.map_going(owners, listed, snapshot.now)
        return replace(snapshot, zones=tuple(zones), deletions=going)

    def _list_sets(
        self, snapshot: BudgetSnapshot, zones: Sequence[StatefulSet]
    ) -> Sequence[StatefulSet]:
        """Return the sets whose pods are read: the pod's own may be none of the zones."""
        own = self._context.sets.get_by_uid(snapshot.owner)
        if isinstance(own, StatefulSet) and all(sts.uid != snapshot.owner for sts in zones):
            return (*zones, own)
        return tuple(zones)


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
        self._precedence = Precedence(context.pods, unused, context.clock)
        context.in_flight.on_change(self._wake)

    def begin(self) -> None:
        """Decide from now on: what another process granted may not be known."""
        self._began = self._clock.elapsed()

    async def run(self) -> None:
        await self._releases.run()

    async def assess_all(self, requests: Sequence[DisruptionRequest]) -> Sequence[Refusal | None]:
        """Return for each pod why it may not go as the caches show it, None where it may."""
        # One snapshot for all pods of a StatefulSet under one budget.
        decisions: dict[tuple[str, Uid | None], Decisions] = {}
        held: Held = {}
        refusals: list[Refusal | None] = []
        for number, request in enumerate(requests, 1):
            choice = self._snapshots.choose(request)
            if isinstance(choice, Budget):
                key = (choice.name, request.pod.owner_uid)
                if key not in decisions:
                    decisions[key] = Decisions(self._snapshots.observe(choice, request))
                decided = decisions[key]
                choice = decided.assess(request.pod) or self._precedence.assess(
                    request,
                    decided.snapshot_of(request.pod),
                    held if decided.is_like_others(request.pod) else None,
                )
            refusals.append(choice)
            if number % SLICE == 0:
                await asyncio.sleep(0)  # other tasks may run
        return refusals

    def choose(self, request: DisruptionRequest) -> Budget | Refusal | None:
        return self._snapshots.choose(request)

    def may_cover(self, pod: Pod) -> bool:
        """Return whether a budget selects a pod, or may: not all budgets are known."""
        return self.choose(DisruptionRequest(pod=pod, engine=DisruptionSource.EVICTION)) is not None

    def is_granted(self, pod: Pod) -> bool:
        """Return whether an eviction of a pod under a budget was granted a moment ago (SI-16)."""
        request = DisruptionRequest(pod=pod, engine=DisruptionSource.EVICTION)
        return self._is_granted(request) and isinstance(self.choose(request), Budget)

    async def request(self, request: DisruptionRequest, until: timedelta) -> Answer:
        """Answer before `until`, on the clock's `elapsed`. A pod that may go is reserved."""
        with self._metrics.inflight.track_inprogress():
            answer = await self._decide(request, until)
            if isinstance(answer, BudgetSnapshot):
                answer = await self._grant(request, answer, until)
        if isinstance(answer, Refusal) and request.engine is DisruptionSource.EVICTION:
            choice = self.choose(request)
            if isinstance(choice, Budget):
                answer = self._precedence.line_up(request, choice, answer)
        self._count(answer)
        return answer

    async def reserve(
        self, request: DisruptionRequest, until: timedelta
    ) -> Reservation | Refusal | None:
        """Record that a pod is to go, for a caller that reads all pods live after that.

        Waits until `until` for earlier requests. The caller ends a reservation by `confirm` or
        `release`; without a budget there is none.
        """
        with self._metrics.inflight.track_inprogress():
            answer = await self._decide(request, until)
            if isinstance(answer, GrantedPod):
                return None
            if isinstance(answer, BudgetSnapshot):
                reserved = await self._record(request, answer)
            else:
                reserved = answer
        if isinstance(reserved, Refusal):
            self._count(reserved)
        return reserved

    async def confirm(self, reserved: Reservation, live: Group, until: timedelta) -> Answer:
        """Answer before `until`, by a live read of a group that began after the reservation."""
        left = until - self._clock.elapsed()
        answer: Answer = _refuse_late(reserved.request.pod)
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
        self._releases.abandon(reserved.grant)

    async def release_pod(self, pod: Pod) -> None:
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
                text = f"another disruption under budget {choice.name} is decided on"
                contested = refuse(Code.GRANT_CONTESTED, f"{text}; {request.pod.name} waits")
                return refusal or contested
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
        # It is not granted twice: to release the second grant would release the first.
        pod = snapshot.pod
        grant = self._in_flight.get(pod.uid)
        if grant is None and not is_recorded(pod, snapshot.now):
            return None
        text = f"{pod.name} was allowed to go a moment ago"
        if grant is None or not grant.was_granted:
            text = (
                f"{pod.name} may have been allowed to go a moment ago: there is a record, and it is"
                " not known what became of it"
            )
        return refuse(Code.GRANT_CONTESTED, text)

    def _find_unused(self, request: DisruptionRequest) -> Refusal | None:
        # Other pods of the budget go on meanwhile.
        unused, pod = self._in_flight.unused, request.pod
        wait = unused.wait_before(pod.uid)
        if request.engine is not DisruptionSource.EVICTION or not wait:
            return None
        text = (
            f"{pod.name} was allowed to go {count(unused.count(pod.uid), 'time')} and stayed, as"
            " where a PodDisruptionBudget or another webhook refuses it; it may be allowed again in"
            f" {math.ceil(wait.total_seconds())} s"
        )
        return replace(refuse(Code.GRANT_UNUSED, text), requeue_after=wait)

    def _waits_for_others(self, snapshot: BudgetSnapshot, refusal: Refusal | None) -> bool:
        """Return whether the pod might go, were it not for grants that are not settled yet."""
        open_grants = self._in_flight.list_requested(snapshot.budget.name)
        if refusal is None or not open_grants:
            return False
        if snapshot.pod.uid in open_grants:  # its answer is that of this request, too
            return True
        going = {uid: how for uid, how in snapshot.deletions.items() if uid not in open_grants}
        return assess_disruption(replace(snapshot, deletions=going)) is None

    async def _wait(self, until: timedelta) -> bool:
        """Wait in the order of arrival until a grant is settled; return False where it is late."""
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
        if left <= timedelta(0):  # the answer would be too late, and nothing has to be written
            return _refuse_late(request.pod)
        reserved: Reservation | Refusal | None = None
        try:
            async with asyncio.timeout(left.total_seconds()):
                reserved = await self._record(request, snapshot)
                if isinstance(reserved, Refusal):
                    return reserved
                return await self._confirm(reserved, None)
        except TimeoutError:
            return _refuse_late(request.pod)
        finally:
            # Also where the client has gone. An answer that may have left was given before.
            if isinstance(reserved, Reservation):
                self._releases.abandon(reserved.grant)

    async def _record(
        self, request: DisruptionRequest, snapshot: BudgetSnapshot
    ) -> Reservation | Refusal:
        lasts = request.lasts + REPEAT_LIMIT
        grant = self._in_flight.reserve(request.pod, request.engine, snapshot.budget.name, lasts)
        stands = False
        try:
            record = await self._recorder.write(grant, self._now)
            if record is None and self._clock.elapsed() - self._began < QUARANTINE:
                text = (
                    "the operator has just started and may not keep records on pods: nothing is"
                    f" allowed to go in its first {QUARANTINE.total_seconds():g} s"
                )
                return refuse(Code.START_QUARANTINE, text)
            stands = True
            return Reservation(request=request, budget=snapshot.budget, grant=grant, record=record)
        except ApiError as error:
            if not isinstance(error, UnknownOutcome):
                grant.record = ""
            return _refuse_unrecorded(request.pod, error)
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
            answer = _refuse_unrecorded(grant.pod, error)
        if isinstance(answer, Refusal):
            await self._releases.release(grant)
        return answer

    async def _read_until_sure(self, reserved: Reservation, group: Group | None) -> Answer:
        """Read live until the pod may go, or may not. Raises ApiError."""
        grant, record = reserved.grant, reserved.record
        limit = _ROLLOUT_LIMIT if grant.engine is DisruptionSource.ROLLOUT else ANSWER_LIMIT
        for attempt in range(CONTEST_READS):
            if attempt:
                await self._clock.sleep(CONTEST_PAUSE)
            live, seen = await self._snapshots.observe_live(reserved, None if attempt else group)
            if seen is None or (record is not None and seen.disruption != grant.record):
                return _refuse_unrecorded(grant.pod, None)
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
        return refusal or _refuse_late(grant.pod)

    def _count(self, answer: Answer) -> None:
        if isinstance(answer, Refusal):
            self._metrics.count(answer.reason.code, answer.status)
        else:
            self._metrics.count(Code.DISRUPTION_GRANTED if answer.budget else Code.POD_NOT_IN_SCOPE)

    def _age_of(self, grant: Grant) -> timedelta:
        return self._clock.elapsed() - grant.begun


def _refuse_late(pod: Pod) -> Refusal:
    text = f"no answer of the API server about {pod.name} in time"
    return _refuse_for(DeadlinePassed(text), text)


def _refuse_unrecorded(pod: Pod, error: ApiError | None) -> Refusal:
    # Without an error the pod has changed.
    if error is None or isinstance(error, Conflict | NotFound):
        text = f"{pod.name} changed at this very moment; try again"
        return _refuse_for(error or Conflict(text), text)
    log.debug("Disruption not recorded", pod=pod.name, err=error)
    return _refuse_for(error, f"that {pod.name} may go could not be recorded: {error}")


def _refuse_for(error: ApiError, text: str) -> Refusal:
    return replace(refuse(Code.GRANT_NOT_RECORDED, text), error=error)


class BudgetAccount(msgspec.Struct, frozen=True, kw_only=True):
    known: BudgetVersions
    described: BudgetDescription
    zones: tuple[Uid, ...]


class Accounts:
    """Describes the budgets of one namespace, by the same counting as decisions."""

    def __init__(self, context: ArbiterContext) -> None:
        self._budgets = context.budgets
        self._find_lack = context.find_lack
        self._snapshots = Snapshots(context)

    def find(self, name: str) -> BudgetAccount | None:
        """Return the account of a budget, None where it is not known."""
        budget = self._budgets.get(name)
        if budget is None or self._find_lack(DisruptionSource.EVICTION) is not None:
            return None
        # The snapshot of a pod of no zone; a budget that cannot be obeyed allows nothing.
        request = DisruptionRequest(
            pod=Pod(namespace="", name="", uid=Uid(""), resource_version=""),
            engine=DisruptionSource.EVICTION,
        )
        stands_for = budget.budget or _stand_in(budget)
        snapshot = None if stands_for is None else self._snapshots.observe(stands_for, request)
        return BudgetAccount(
            known=budget,
            described=describe_budget(budget, snapshot, self._budgets.list_all()),
            zones=() if snapshot is None else tuple(zone.sts.uid for zone in snapshot.zones),
        )

    def list_descriptions(self) -> Iterator[BudgetDescription]:
        """Yield the description of each budget, by name; each takes milliseconds."""
        for versions in self._budgets.list_all():
            account = self.find(versions.name)
            if account is not None:
                yield account.described


def _stand_in(versions: BudgetVersions) -> Budget | None:
    if versions.flawed_selector is None:
        return None
    return Budget(
        namespace=versions.namespace,
        name=versions.name,
        uid=versions.uid,
        resource_version="",
        selector=versions.flawed_selector,
        max_unavailable=0,
    )
