"""Play Rollouts ahead: what the planners of schedules and releases decide at each moment to come.

Nothing is decided here but when to look again, and what is taken for granted of others. Flux runs
a tag, and a HealthCheck that waits is healthy, a given span later. What failed stays so, people do
nothing, and no version is announced that is not known yet.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.described.forecasts import RolloutForecast
from rollout_operator.model.names import Uid
from rollout_operator.model.releases.health import HealthStatus
from rollout_operator.model.releases.objects import ReleaseObjects
from rollout_operator.model.releases.plan import (
    ApplyTag,
    FluxTarget,
    PolicyReading,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
)
from rollout_operator.model.releases.rollout import (
    OURS,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseHead,
    ReleaseRollout,
)
from rollout_operator.model.releases.schedule import (
    DeleteGate,
    GateAction,
    GatedRollout,
    ScheduleObject,
    ScheduleSnapshot,
)
from rollout_operator.planning.forecasts.record import ForecastRecord
from rollout_operator.planning.releases.checks.record import find_reset
from rollout_operator.planning.releases.intents import drop_intents
from rollout_operator.planning.releases.plan import plan_release
from rollout_operator.planning.releases.schedules.gates import AFTER_TRANSITION, plan_schedule
from rollout_operator.planning.releases.schedules.holds import (
    KnownSchedules,
    ScheduleReading,
    list_holds,
    read_schedule,
)
from rollout_operator.planning.releases.schedules.hours import LoadZone
from rollout_operator.planning.releases.schedules.status import render_schedule_status


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
