"""The gate that every disruption of a pod under a budget passes: eviction, and delete of a rollout.

It makes two promises of the one decision in `planning.disruption`. Within this process nothing is
awaited between a decision and its reservation, so no lock is needed and none can be held too long.
Between processes a record is written on the pod first and all pods are looked at after that: of two
that grant at the same time the one that wrote later sees the other's record, and both decide with
it. See docs/budgets.md, and tests/models for the proof.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rollout_operator.guards.asking import Answer, Ask, Parts, Permit
from rollout_operator.guards.pending import Grant, Stage, is_recorded, read_record
from rollout_operator.guards.precedence import Precedence
from rollout_operator.guards.refusals import (
    QUARANTINE,
    refuse,
    refuse_contested,
    refuse_in_quarantine,
    refuse_late,
    refuse_standing,
    refuse_unrecorded,
    refuse_unused,
)
from rollout_operator.guards.waiting import Waiting
from rollout_operator.model.budget import Budget, selects
from rollout_operator.model.disruption import Engine, Record
from rollout_operator.model.downscale import Underway
from rollout_operator.model.errors import ApiError, InvalidInput, UnknownOutcome
from rollout_operator.model.group import Zone
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.planning.disruption import (
    Decisions,
    Refusal,
    Scene,
    assess_disruption,
    choose_budget,
    refuse_stale_view,
)
from rollout_operator.planning.zones import VIEW_LIMIT
from rollout_operator.telemetry.logs import log

# An answer leaves so soon after its record was written. Whoever finds the record on an untouched
# pod waits twice as long before it is taken back, so that what the answer allowed has happened.
ANSWER_LIMIT: Final = timedelta(seconds=4)
# The same asked again so soon is the same request, repeated; its answer may be used for as long.
REPEAT_LIMIT: Final = timedelta(seconds=2)
# The other one of two withdraws as soon as it has looked.
CONTEST_PAUSE: Final = timedelta(milliseconds=100)
CONTEST_LOOKS: Final = 6
# More who wait are refused at once: each is decided on again when the first one is settled.
MOST_WAITING: Final = 64
# Pods that are decided on before others have their turn: some milliseconds.
SLICE: Final = 100


class Gate:
    """Decides, reserves, records and confirms."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._began = parts.clock.elapsed()
        self._waiting: deque[asyncio.Future[None]] = deque()
        unused = parts.pending.unused
        waiting = Waiting(parts.pods.get, unused, parts.clock)
        self._precedence = Precedence(waiting, unused, parts.clock)
        parts.pending.on_change(self._wake)

    async def assess_all(self, asks: Sequence[Ask]) -> Sequence[Refusal | None]:
        """Return for each pod why it may not go as the caches show it, None where it may.

        What the caches show is looked at once for all pods of a StatefulSet under one budget.
        """
        decisions: dict[tuple[str, Uid | None], Decisions] = {}
        found: list[Refusal | None] = []
        for number, ask in enumerate(asks, 1):
            choice = self.choose(ask)
            if isinstance(choice, Budget):
                key = (choice.name, ask.pod.owner_uid)
                if key not in decisions:
                    decisions[key] = Decisions(self._observe(choice, ask))
                found.append(self._assess(ask, decisions[key]))
            else:
                found.append(choice)
            if number % SLICE == 0:
                await asyncio.sleep(0)  # others have their turn
        return found

    def _assess(self, ask: Ask, decisions: Decisions) -> Refusal | None:
        refusal = decisions.assess(ask.pod)
        return refusal or self._precedence.assess(ask, decisions.scene_of(ask.pod))

    def may_cover(self, pod: Pod) -> bool:
        """Tell whether a budget selects a pod, or might: not all are known."""
        return self.choose(Ask(pod=pod, engine=Engine.EVICTION)) is not None

    def choose(self, ask: Ask) -> Budget | Refusal | None:
        """Return the budget that rules over a pod, None where none does."""
        lack = self._parts.find_lack(ask.engine)
        if lack is not None:
            return refuse(Code.BUDGETS_NOT_READ, f"the budgets are not known yet: {lack}")
        choice = choose_budget(self._parts.budgets.find(ask.pod.labels), ask.pod.name)
        # A pod that no budget selects as far as we know is let go only where we know enough.
        return refuse_stale_view() if choice is None and self._is_stale() else choice

    async def ask(self, ask: Ask, until: timedelta) -> Answer:
        """Answer before `until`, on the clock's `elapsed`. What is permitted is reserved."""
        with self._parts.metrics.disruptions.inflight.track_inprogress():
            answer = await self._ask(ask, until)
        if isinstance(answer, Refusal) and ask.engine is Engine.EVICTION:
            choice = self.choose(ask)
            if isinstance(choice, Budget):
                answer = self._precedence.line_up(ask, choice, answer)
        self._count(answer)
        return answer

    async def give_back(self, pod: Pod) -> None:
        """The pod was permitted to go, and will not."""
        grant = self._parts.pending.get(pod.uid)
        # By its version: meanwhile it may have been taken back, and the pod be granted to others.
        if grant is not None and grant.pod.resource_version == pod.resource_version:
            await self._withdraw(grant)

    async def _ask(self, ask: Ask, until: timedelta) -> Answer:
        while True:
            choice = self.choose(ask)
            if choice is None:
                return Permit(pod=ask.pod)
            if isinstance(choice, Refusal):
                return choice
            if self._is_given(ask):
                return Permit(pod=ask.pod, budget=choice.name)
            scene = self._observe(choice, ask)
            refusal = assess_disruption(scene) or self._find_standing(scene)
            if not self._waits_for_others(scene, refusal):
                break
            if not await self._wait(until):
                return refusal or refuse_contested(ask.pod, choice)
        refusal = refusal or self._find_unused(ask) or self._precedence.assess(ask, scene)
        if refusal is not None:
            return refusal
        if ask.dry_run:
            return Permit(pod=ask.pod, budget=choice.name)
        return await self._grant(ask, scene, until)

    def _is_stale(self) -> bool:
        return self._parts.age() > VIEW_LIMIT

    def _observe(self, budget: Budget, ask: Ask) -> Scene:
        """Return what the caches show; nothing may be awaited until it has been decided on."""
        parts = self._parts
        sets = [one for one in parts.sets.list_all() if selects(budget.selector, one.labels)]
        readable = [one for one in sets if isinstance(one, StatefulSet)]
        pods = {one.uid: parts.pods.list_by_owner(one.uid) for one in readable}
        scene = Scene(
            budget=budget,
            pod=ask.pod,
            owner=ask.pod.owner_uid or Uid(""),
            zones=(),
            now=parts.now(),
            deletions={},
            engine=ask.engine,
            # ROLL-36
            override=min(ask.limit, 1) if budget.by_partition else ask.limit,
            downscale=_find_first(parts.find_downscale, readable),
            view_age=parts.age(),
            unreadable=tuple(one for one in sets if isinstance(one, Unreadable)),
        )
        return self._fill(scene, readable, pods)

    def _fill(
        self,
        scene: Scene,
        sets: Sequence[StatefulSet],
        pods: Mapping[Uid, Sequence[Pod | Unreadable]],
    ) -> Scene:
        zones = tuple(
            Zone(
                sts=one,
                pods=tuple(pod for pod in pods[one.uid] if isinstance(pod, Pod)),
                unreadable_pods=tuple(pod for pod in pods[one.uid] if isinstance(pod, Unreadable)),
            )
            for one in sets
        )
        listed = (pod for zone in zones for pod in zone.pods)
        going = self._parts.pending.list_going(pods.keys(), listed, scene.now)
        return replace(scene, zones=zones, deletions=going)

    def _is_given(self, ask: Ask) -> bool:
        """Tell whether the same was permitted a moment ago: asked again it stays so (SI-16)."""
        grant = self._parts.pending.get(ask.pod.uid)
        return (
            grant is not None
            and grant.stage is Stage.GIVEN
            and grant.engine is ask.engine is Engine.EVICTION
            and self._age_of(grant) < REPEAT_LIMIT
        )

    def _find_standing(self, scene: Scene) -> Refusal | None:
        """Return that the pod was permitted to go before, which may still be used.

        It is not permitted anew: whoever took that back would take back the former, too.
        """
        pod = scene.pod
        if self._parts.pending.get(pod.uid) is None and not is_recorded(pod, scene.now):
            return None
        return refuse_standing(pod)

    def _find_unused(self, ask: Ask) -> Refusal | None:
        """Return that evictions of the pod came to nothing lately; others go on meanwhile."""
        unused, pod = self._parts.pending.unused, ask.pod
        wait = unused.wait_before(pod.uid)
        if ask.engine is not Engine.EVICTION or not wait:
            return None
        return refuse_unused(pod, unused.count(pod.uid), wait)

    def _waits_for_others(self, scene: Scene, refusal: Refusal | None) -> bool:
        """Tell whether only grants that may come to nothing within moments stand in the way."""
        asked = self._parts.pending.list_asked(scene.budget.name)
        if refusal is None or not asked:
            return False
        if scene.pod.uid in asked:  # its answer is that of this one, too
            return True
        going = {uid: how for uid, how in scene.deletions.items() if uid not in asked}
        return assess_disruption(replace(scene, deletions=going)) is None

    async def _wait(self, until: timedelta) -> bool:
        """Wait until a grant has been settled; who came first goes on first. False: not in time."""
        if len(self._waiting) >= MOST_WAITING:
            return False
        left = until - self._parts.clock.elapsed()
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

    async def _grant(self, ask: Ask, scene: Scene, until: timedelta) -> Answer:
        parts = self._parts
        left = min(until - parts.clock.elapsed(), ANSWER_LIMIT)
        if left <= timedelta(0):  # nothing would be sent, and nobody could be sure of it
            return refuse_late(ask.pod)
        lasts = ask.lasts + REPEAT_LIMIT
        grant = parts.pending.reserve(ask.pod, ask.engine, scene.budget.name, lasts)
        try:
            async with asyncio.timeout(left.total_seconds()):
                return await self._record(grant, scene)
        except TimeoutError:
            return refuse_late(ask.pod)
        finally:
            # Also where whoever asked has gone: what was written is found out by somebody else.
            if grant.stage is Stage.ASKED:
                parts.pending.doubt(grant)

    async def _record(self, grant: Grant, scene: Scene) -> Answer:
        """Write the record, look at all pods, and decide again."""
        pod, parts = grant.pod, self._parts
        try:
            record = await parts.recorder.write(grant, scene.now)
        except UnknownOutcome as error:
            return refuse_unrecorded(pod, error)
        except ApiError as error:
            grant.record = ""
            parts.pending.release(grant)
            return refuse_unrecorded(pod, error)
        if record is None and parts.clock.elapsed() - self._began < QUARANTINE:
            parts.pending.release(grant)
            return refuse_in_quarantine()
        try:
            return await self._confirm(grant, record, scene)
        except ApiError as error:
            await self._withdraw(grant)
            return refuse_unrecorded(pod, error)

    async def _confirm(self, grant: Grant, record: Record | None, scene: Scene) -> Answer:
        """Look live until the pod may go, or may not. Raises ApiError."""
        parts = self._parts
        sets = self._list_sets(scene)
        for look in range(CONTEST_LOOKS):
            if look:
                await parts.clock.sleep(CONTEST_PAUSE)
            live, seen = await self._look(scene, sets)
            if seen is None or (record is not None and seen.disruption != grant.record):
                await self._withdraw(grant)
                return refuse_unrecorded(grant.pod, None)
            refusal = assess_disruption(live)
            if refusal is None and self._age_of(grant) < ANSWER_LIMIT:
                parts.pending.give(grant, seen)
                self._precedence.note_granted(live)
                log.info(
                    "Allowing disruption",
                    pod=seen.name, budget=scene.budget.name, engine=grant.engine,
                )  # fmt: skip
                return Permit(pod=seen, budget=scene.budget.name)
            if refusal is None or not _wins(record, live):
                break
        await self._withdraw(grant)
        return refusal or refuse_late(grant.pod)

    def _list_sets(self, scene: Scene) -> Sequence[StatefulSet]:
        """Return the sets whose pods are looked at: the pod's own may be none of the zones."""
        sets = {zone.sts.uid: zone.sts for zone in scene.zones}
        if scene.owner not in sets:
            for one in self._parts.sets.list_all():
                if isinstance(one, StatefulSet) and one.uid == scene.owner:
                    sets[one.uid] = one
        return tuple(sets.values())

    async def _look(self, scene: Scene, sets: Sequence[StatefulSet]) -> tuple[Scene, Pod | None]:
        """Return the scene with live pods, and the pod itself where it is still untouched."""
        zones = [zone.sts for zone in scene.zones]
        pods: dict[Uid, list[Pod | Unreadable]] = {one.uid: [] for one in zones}
        seen: Pod | None = None
        for pod in await self._parts.reader.fetch_pods(sets):
            if pod.owner_uid in pods:
                pods[pod.owner_uid].append(pod)
            if pod.uid == scene.pod.uid and isinstance(pod, Pod) and not pod.is_terminating:
                seen = pod
        now = replace(scene, now=self._parts.now(), pod=seen or scene.pod)
        live = self._fill(now, zones, pods)
        # Without its own record the pod is one like the others, and what refuses it refuses them.
        going = {uid: how for uid, how in live.deletions.items() if uid != scene.pod.uid}
        # Since it was decided for the first time, the budget may have been changed.
        choice = self.choose(Ask(pod=now.pod, engine=scene.engine))
        budget = choice if isinstance(choice, Budget) else scene.budget
        return replace(live, deletions=going, budget=budget), seen

    async def _withdraw(self, grant: Grant) -> None:
        """Leave nothing behind of a grant that nobody was told of, or nobody will use."""
        pending = self._parts.pending
        if await self._parts.recorder.withdraw(grant):
            pending.release(grant)
        else:
            pending.doubt(grant)

    def _count(self, answer: Answer) -> None:
        metrics = self._parts.metrics.disruptions
        if isinstance(answer, Refusal):
            metrics.count(answer.reason.code, answer.status)
        else:
            metrics.count(Code.DISRUPTION_GRANTED if answer.budget else Code.POD_NOT_IN_SCOPE)

    def _age_of(self, grant: Grant) -> timedelta:
        return self._parts.clock.elapsed() - grant.begun


def _find_first(
    find: Callable[[GroupName], Underway | None], sets: Sequence[StatefulSet]
) -> Underway | None:
    groups = dict.fromkeys(one.group for one in sets if one.group is not None)
    return next((found for group in groups if (found := find(group)) is not None), None)


def _wins(record: Record | None, live: Scene) -> bool:
    """Tell whether the pod may go once all weaker records of other processes are withdrawn.

    The earlier one wins; a tie is broken by names, the same for both.
    """
    if record is None:
        return False
    weaker = {pod.uid for zone in live.zones for pod in zone.pods if _is_weaker(_read(pod), record)}
    if not weaker:
        return False
    going = {uid: how for uid, how in live.deletions.items() if uid not in weaker}
    return assess_disruption(replace(live, deletions=going)) is None


def _is_weaker(other: Record | None, record: Record) -> bool:
    if other is None or other.by == record.by:
        return False
    return (other.at, other.by, other.uid) > (record.at, record.by, record.uid)


def _read(pod: Pod) -> Record | None:
    try:
        return read_record(pod)
    except InvalidInput:
        return None
