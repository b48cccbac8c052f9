"""Play Rollouts ahead: what the planners of schedules and releases decide at each moment to come.

Nothing is decided here but when to look again, and what is taken for granted of others. Flux runs
a tag, and a HealthCheck that waits is healthy, a given span later. What failed stays so, people do
nothing, and no version is announced that is not known yet.

What is written down of one Rollout while it is played: deployments, and what held each of them.

Reasons, texts and remedies are those that every outlet shows of a Rollout. What is judged here is
whether time alone may end a wait, or only an act of people.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.description import (
    Arrival,
    GateDescription,
    HoldForecast,
    HoldingGate,
    ReleaseDescription,
    RolloutForecast,
    VersionForecast,
)
from rollout_operator.model.names import InvalidInput, Uid
from rollout_operator.model.release_plan import (
    ApplyTag,
    FluxTarget,
    HealthStatus,
    PolicyReading,
    ReleaseObjects,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
)
from rollout_operator.model.releases import (
    OURS,
    BakeStatus,
    DeleteGate,
    GateAction,
    GatedRollout,
    HistoryEntry,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseHead,
    ReleaseRollout,
    ReleaseStatus,
    ScheduleObject,
    ScheduleSnapshot,
)
from rollout_operator.planning import candidates
from rollout_operator.planning.bake import BlockedCode
from rollout_operator.planning.candidates import GatesCode, drop_intents
from rollout_operator.planning.describe_releases import describe_release, name_schedule
from rollout_operator.planning.health_checks import find_reset
from rollout_operator.planning.releases import plan_release
from rollout_operator.planning.schedules import (
    AFTER_TRANSITION,
    READY,
    KnownSchedules,
    LoadZone,
    ScheduleReading,
    get_time_zone,
    list_holds,
    plan_schedule,
    read_schedule,
    render_schedule_status,
)

# Schedules that are closed in turns hold a version by turns, each day of the span.
MOST_HOLDS: Final = 5
_UTC: Final = "UTC"
_RESTING: Final = frozenset({BlockedCode.MANUAL, GatesCode.NO_CANDIDATES})
_TIMED: Final = frozenset({candidates.WRITING, BakeStatus.IN_PROGRESS})


class ForecastRecord:
    """One Rollout, from the start of the play to its end."""

    def __init__(self, rollout: ReleaseRollout | RefusedRelease, load: LoadZone) -> None:
        self.is_over = False
        """Whether only an act of people changes anything any more."""
        self._load = load
        self._head = rollout.head
        current = rollout.status.current
        self._tag = "" if current is None else current.version.tag
        self._entry = current
        self._zone = _UTC
        self._versions: list[VersionForecast] = []
        self._holds: list[HoldForecast] = []
        self._left_out = 0
        self._last = VersionForecast(verdict=Arrival.NONE)
        if current is not None and current.is_active:
            self._versions.append(self._begin(current, current.timestamp))

    def record_deployment(self, rollout: ReleaseRollout | RefusedRelease, now: datetime) -> None:
        """Record a deployment that has begun, or how the deployment before it ends."""
        current, before = rollout.status.current, self._entry
        if current is None:
            return
        is_new = before is None or _identify(current) != _identify(before)
        is_retried = before is not None and current.retries > before.retries
        self._end_bake(rollout.status)
        self._entry = current
        if is_new or is_retried:
            self._versions.append(self._begin(current, now))

    def record_waits(
        self,
        rollout: ReleaseRollout | RefusedRelease,
        objects: ReleaseObjects,
        now: datetime,
        *,
        is_settled: bool,
    ) -> None:
        """Record what holds the next version now.

        `is_settled`: Flux and HealthChecks have come to what they come to by themselves.
        """
        described = describe_release(rollout, objects)
        current = rollout.status.current
        is_active = current is not None and current.is_active
        gates = tuple(_list_holding(described.gates))
        self._choose_zone(gates or described.gates, objects.schedules)
        if self._versions and self._versions[-1].at == now:
            self._versions[-1] = msgspec.structs.replace(
                self._versions[-1], local_time=self._render(now), time_zone=self._zone
            )
        if described.waits and (described.next or not is_active):
            self._hold(described, gates, now)
        else:
            self._holds, self._left_out = [], 0
        verdict = _judge(described, gates, objects.schedules, is_settled=is_settled)
        if is_active and not described.next:
            verdict = Arrival.NONE
        holds = () if self._holds or verdict is not Arrival.NONE else _explain_rest(rollout, now)
        self._last = VersionForecast(verdict=verdict, tag=described.next, holds=holds)
        self.is_over = not is_active and verdict in (Arrival.PERSON, Arrival.NONE)

    def end(self) -> RolloutForecast:
        """Return all of it, with what waits last."""
        last = msgspec.structs.replace(
            self._last,
            holds=(*self._holds, *self._last.holds),
            holds_left_out=self._left_out,
            time_zone=self._zone,
        )
        return RolloutForecast(
            namespace=self._head.namespace,
            name=self._head.name,
            tag=self._tag,
            versions=(*self._versions, last),
        )

    def _begin(self, entry: HistoryEntry, at: datetime) -> VersionForecast:
        """Return a deployment; what held it is over."""
        holds = tuple(self._close(at))
        left_out, self._holds, self._left_out = self._left_out, [], 0
        return VersionForecast(
            verdict=Arrival.DEPLOYED,
            tag=entry.version.tag,
            at=at,
            local_time=self._render(at),
            time_zone=self._zone,
            holds=holds,
            holds_left_out=left_out,
            bake=entry.bake_status or "",
            bake_text=entry.bake_status_message or "",
        )

    def _end_bake(self, status: ReleaseStatus) -> None:
        """Say of the last deployment what its entry of the history says by now."""
        if not self._versions or self._entry is None:
            return
        known = _identify(self._entry)
        for entry in status.history[:2]:
            if _identify(entry) == known:
                self._versions[-1] = msgspec.structs.replace(
                    self._versions[-1],
                    bake=entry.bake_status or "",
                    bake_text=entry.bake_status_message or "",
                    bake_ends=entry.bake_end_time,
                )

    def _hold(
        self, described: ReleaseDescription, gates: tuple[GateDescription, ...], now: datetime
    ) -> None:
        first = described.waits[0]
        is_gated = first.reason in (GatesCode.BLOCKING, GatesCode.NONE_ALLOWED)
        hold = HoldForecast(
            since=now,
            reason=first.reason,
            text=first.text,
            remedy=first.remedy,
            gates=tuple(map(_show, gates)) if is_gated else (),
        )
        last = self._holds[-1] if self._holds else None
        if last is not None and last.until is None and _identify_hold(last) == _identify_hold(hold):
            return
        self._holds = [*self._close(now)]
        if len(self._holds) < MOST_HOLDS:
            self._holds.append(hold)
        else:
            self._left_out += 1

    def _close(self, now: datetime) -> Iterator[HoldForecast]:
        for hold in self._holds:
            is_open = hold.until is None
            yield msgspec.structs.replace(hold, until=now) if is_open else hold

    def _choose_zone(
        self, gates: Iterable[GateDescription], schedules: Iterable[ScheduleObject]
    ) -> None:
        """Count time as the schedule does that opens last of those that keep these gates."""
        zones = {
            name_schedule(each): each.schedule.time_zone for each in schedules if each.schedule
        }
        kept = sorted(
            (gate for gate in gates if gate.schedule in zones),
            key=lambda gate: (
                gate.opens is not None,
                gate.opens or datetime.max.replace(tzinfo=UTC),
            ),
        )
        if kept:
            self._zone = zones[kept[-1].schedule]

    def _render(self, at: datetime) -> str:
        try:
            zone = get_time_zone(self._zone, self._load)
        except InvalidInput:
            self._zone = _UTC  # the schedule is refused
            zone = UTC
        return at.astimezone(zone).isoformat(timespec="seconds")


def _identify(entry: HistoryEntry) -> tuple[int | None, datetime]:
    return (entry.id, entry.timestamp)


def _identify_hold(hold: HoldForecast) -> tuple[str, str]:
    return (hold.reason, hold.text)


def _show(gate: GateDescription) -> HoldingGate:
    return HoldingGate(name=gate.name, text=gate.text, schedule=gate.schedule, opens=gate.opens)


def _list_holding(gates: Iterable[GateDescription]) -> Iterator[GateDescription]:
    """Yield the gates that are closed, or let through certain versions only."""
    return (gate for gate in gates if not gate.is_passing or gate.allowed is not None)


def _explain_rest(
    rollout: ReleaseRollout | RefusedRelease, now: datetime
) -> tuple[HoldForecast, ...]:
    """Return why no version waits, by the condition that says it."""
    kinds = (candidates.DEPLOYMENT_BLOCKED, candidates.GATES_PASSING, candidates.READY)
    for condition in map(rollout.status.find_condition, kinds):
        if condition is not None and (
            condition.reason in _RESTING or condition.type == candidates.READY
        ):
            return (HoldForecast(since=now, reason=condition.reason, text=condition.message),)
    return ()


def _judge(
    described: ReleaseDescription,
    gates: Iterable[GateDescription],
    schedules: Iterable[ScheduleObject],
    *,
    is_settled: bool,
) -> Arrival:
    """Return whether time may end what holds a version back."""
    if not described.waits:
        return Arrival.NONE
    reason = described.waits[0].reason
    if reason in _TIMED or (reason == BakeStatus.DEPLOYING and not is_settled):
        return Arrival.LATER
    obeyed = {name_schedule(schedule) for schedule in schedules if _is_obeyed(schedule)}
    closed = [gate for gate in gates if not gate.is_passing]
    is_kept = all(gate.schedule in obeyed for gate in closed)
    return Arrival.LATER if reason == GatesCode.BLOCKING and is_kept else Arrival.PERSON


def _is_obeyed(schedule: ScheduleObject) -> bool:
    return any(
        condition.type == READY and condition.status == "True"
        for condition in schedule.status.conditions
    )


class ForecastRollout(msgspec.Struct, frozen=True, kw_only=True):
    """One Rollout, with what belongs to it alone."""

    rollout: ReleaseRollout | RefusedRelease
    policy: PolicyReading = PolicyReading()
    targets: tuple[FluxTarget, ...] = ()
    suspended: frozenset[tuple[str, str]] = frozenset()
    """Objects of Flux, by kind and name, that do nothing until a person resumes them."""


class ForecastInput(msgspec.Struct, frozen=True, kw_only=True):
    """Objects as they are at the start, and how far ahead is looked."""

    begins: datetime
    ends: datetime
    rollouts: tuple[ForecastRollout, ...]
    objects: ReleaseObjects = ReleaseObjects()
    compat: ReleaseCompat = OURS
    verifies_wanted: bool = False
    """Whether a pin waits until a registry says that it has the tag: here it says nothing."""
    settles_after: timedelta = timedelta(seconds=30)
    """After which Flux runs a tag that is written, and a HealthCheck that waits is healthy."""


# A deployment settles in three: recorded, written, done.
_MOST_PASSES: Final = 10
# Pauses up to this poll what others do. Of that nothing comes any more after hours.
_LONGEST_POLL: Final = timedelta(minutes=1)
_POLLING: Final = timedelta(hours=2)
_DECIDED: Final = frozenset({HealthStatus.HEALTHY, HealthStatus.UNHEALTHY})


class PlayedReleases(msgspec.Struct, frozen=True, kw_only=True):
    """What has come of a play."""

    rollouts: tuple[RolloutForecast, ...]
    problems: tuple[str, ...]
    """Why schedules are not obeyed."""


def play_ahead(given: ForecastInput, load: LoadZone) -> PlayedReleases:
    """Return what is foreseen of each Rollout; `load` reads the time zone of a name."""
    play = _Play(given, load)
    play.run()
    return PlayedReleases(
        rollouts=tuple(player.record.end() for player in play.players),
        problems=tuple(dict.fromkeys(play.problems)),
    )


class _Player:
    """One Rollout as the play has left it."""

    def __init__(self, given: ForecastRollout, record: ForecastRecord, begins: datetime) -> None:
        self.given = given
        self.record = record
        self.rollout = given.rollout
        self.targets = given.targets
        self.gates: tuple[ReleaseGate, ...] | None = None
        """Those of the last pass; None before it."""
        self.wake: datetime | None = begins
        self.settles_at: datetime | None = None
        """When Flux runs what it has been given."""
        self.changed_at = begins

    def carry_out(self, plan: ReleasePlan) -> bool:
        """Carry out at once what a plan wants; return whether anything has changed."""
        before = (self.rollout, self.targets)
        self.rollout = msgspec.structs.replace(self.rollout, status=plan.status)
        for action in plan.actions:
            match action:
                case ApplyTag(target=target, tag=tag):
                    self.targets = tuple(
                        self._write(known, tag) if known == target else known
                        for known in self.targets
                    )
                case RemoveIntents(intents=intents) if isinstance(self.rollout, ReleaseRollout):
                    names = [intent.annotation for intent in intents]
                    left = drop_intents(self.rollout.intents, names)
                    self.rollout = msgspec.structs.replace(self.rollout, intents=left)
                case _:
                    pass  # Flux looks at its objects anyhow
        return before != (self.rollout, self.targets)

    def is_due(self, gates: tuple[ReleaseGate, ...], now: datetime) -> bool:
        """Return whether anything that a decision depends on is new."""
        times = [time for time in (self.wake, self.settles_at) if time is not None]
        return gates != self.gates or any(time <= now for time in times)

    def settle(self) -> None:
        """Have Flux run what it was given, but where it is suspended."""
        self.settles_at = None
        self.targets = tuple(
            target
            if (target.kind, target.name) in self.given.suspended
            else msgspec.structs.replace(target, waiting_for="")
            for target in self.targets
        )

    def plan_next(self, now: datetime, pause: timedelta | None) -> None:
        """Look again after a pause, unless it only polls what does not change any more."""
        is_idle = pause is None or (pause <= _LONGEST_POLL and now - self.changed_at > _POLLING)
        self.wake = None if pause is None or is_idle else now + pause

    def _write(self, target: FluxTarget, tag: str) -> FluxTarget:
        is_suspended = (target.kind, target.name) in self.given.suspended
        waits = "it is suspended" if is_suspended else f"it does not run {tag} yet"
        return msgspec.structs.replace(target, tag=tag, waiting_for=waits)


class _Play:
    """All objects, at a moment that moves on."""

    def __init__(self, given: ForecastInput, load: LoadZone) -> None:
        self.players = [
            _Player(each, ForecastRecord(each.rollout, load), given.begins)
            for each in given.rollouts
        ]
        self.problems: list[str] = []
        self._given = given
        self._load = load
        self._now = given.begins
        self._gates = {gate.head.key: gate for gate in given.objects.gates}
        self._schedules = list(given.objects.schedules)
        self._wakes: dict[int, datetime | None] = {}
        self._checks = {check.head.key: check for check in given.objects.checks}
        self._heals: dict[str, datetime] = {}

    def run(self) -> None:
        """Go from moment to moment until the end, or until nothing comes any more."""
        settled = self._now + self._given.settles_after
        for check in self._checks.values():
            if check.status.status not in _DECIDED:
                self._heals[check.head.key] = settled
        for player in self.players:
            player.settles_at = settled
        for place in range(len(self._schedules)):
            self._wakes[place] = self._now
        while True:
            self._pass()
            coming = [time for time in self._list_times() if time > self._now]
            if not coming or min(coming) > self._given.ends:
                return
            self._now = min(coming)

    def _list_times(self) -> Iterator[datetime]:
        running = [player for player in self.players if not player.record.is_over]
        if not running:
            return
        times = [*self._wakes.values(), *self._heals.values()]
        times += [time for player in running for time in (player.wake, player.settles_at)]
        yield from (time for time in times if time is not None)

    def _pass(self) -> None:
        for place, wake in self._wakes.items():
            if wake is not None and wake <= self._now:
                self._keep_gates(place)
        healed = [key for key, time in self._heals.items() if time <= self._now]
        for key in healed:
            del self._heals[key]
            self._set_health(key, HealthStatus.HEALTHY)
        by_rollout: dict[tuple[str, str], list[ReleaseGate]] = {}
        for gate in self._gates.values():
            by_rollout.setdefault((gate.head.namespace, gate.rollout), []).append(gate)
        for player in self.players:
            head = player.rollout.head
            gates = tuple(by_rollout.get((head.namespace, head.name), ()))
            if not player.record.is_over and (healed or player.is_due(gates, self._now)):
                self._decide(player, gates)

    def _decide(self, player: _Player, gates: tuple[ReleaseGate, ...]) -> None:
        """Pass over one Rollout until nothing is to be done for it now."""
        player.gates = gates
        if player.settles_at is not None and player.settles_at <= self._now:
            player.settle()
        pause: timedelta | None = None
        for _ in range(_MOST_PASSES if not player.rollout.head.is_terminating else 0):
            plan = plan_release(self._observe(player, gates))
            pause = plan.requeue_after
            if not player.carry_out(plan):
                break
            player.changed_at = self._now
            if any(isinstance(action, ApplyTag) for action in plan.actions):
                player.settles_at = self._now + self._given.settles_after
            player.record.record_deployment(player.rollout, self._now)
            self._reset_checks(player)
        player.plan_next(self._now, pause)
        objects = ReleaseObjects(gates=gates, schedules=tuple(self._schedules))
        is_settled = player.settles_at is None and not self._heals
        player.record.record_waits(player.rollout, objects, self._now, is_settled=is_settled)

    def _observe(self, player: _Player, gates: tuple[ReleaseGate, ...]) -> ReleaseSnapshot:
        return ReleaseSnapshot(
            rollout=player.rollout,
            now=self._now,
            policy=player.given.policy,
            gates=gates,
            schedule_holds=list_holds(
                self._know_schedules(), _name_gated(player), gates, self._read_schedule
            ),
            checks=tuple(self._checks.values()),
            namespaces=self._given.objects.namespaces,
            targets=player.targets,
            verifies_wanted=self._given.verifies_wanted,
            compat=self._given.compat,
        )

    def _know_schedules(self) -> KnownSchedules:
        return KnownSchedules(
            schedules=tuple(self._schedules),
            namespaces=self._given.objects.namespaces,
            compat=self._given.compat,
        )

    def _read_schedule(self, schedule: ScheduleObject) -> ScheduleReading:
        return read_schedule(schedule, self._now, self._load, self._given.compat)

    def _reset_checks(self, player: _Player) -> None:
        """Have HealthChecks start anew with a deployment, and be healthy a while later."""
        if not isinstance(player.rollout, ReleaseRollout):
            return
        for key, check in self._checks.items():
            reset = find_reset(check, [player.rollout], self._given.objects.namespaces, self._now)
            if reset is not None:
                self._checks[key] = msgspec.structs.replace(check, status=reset)
                self._heals[key] = self._now + self._given.settles_after

    def _set_health(self, key: str, status: HealthStatus) -> None:
        check = self._checks[key]
        found = msgspec.structs.replace(
            check.status, status=status, last_change_time=self._now, message=None
        )
        self._checks[key] = msgspec.structs.replace(check, status=found)

    def _keep_gates(self, place: int) -> None:
        """Do for one schedule what its planner wants."""
        schedule = self._schedules[place]
        snapshot = ScheduleSnapshot(
            schedule=schedule,
            now=self._now,
            rollouts=tuple(map(_name_gated, self.players)),
            gates=tuple(self._gates.values()),
            namespaces=self._given.objects.namespaces,
            compat=self._given.compat,
        )
        plan = plan_schedule(snapshot, self._load)
        if plan.problem:
            self.problems.append(plan.problem)
        for action in plan.actions:
            self._carry_out(action)
        status = render_schedule_status(snapshot, plan, {})
        self._schedules[place] = msgspec.structs.replace(schedule, status=status)
        again = plan.requeue_after
        # Clocks do not differ here: a gate is written at the instant, before any Rollout decides.
        self._wakes[place] = None if again is None else self._now + again - AFTER_TRANSITION

    def _carry_out(self, action: GateAction) -> None:
        if isinstance(action, DeleteGate):
            self._gates.pop(action.head.key, None)
            return
        wanted = action.wanted
        known = self._gates.get(wanted.key) or ReleaseGate(
            head=ReleaseHead(
                namespace=wanted.namespace,
                name=wanted.name,
                uid=Uid(wanted.key),
                resource_version="",
            ),
            rollout=wanted.rollout,
        )
        self._gates[wanted.key] = msgspec.structs.replace(
            known,
            rollout=wanted.rollout,
            is_passing=wanted.is_passing,
            origin=wanted.origin,
        )


def _name_gated(player: _Player) -> GatedRollout:
    rollout = player.rollout
    return GatedRollout(
        namespace=rollout.head.namespace,
        name=rollout.head.name,
        labels=rollout.labels,
        is_terminating=rollout.head.is_terminating,
    )
