"""What is written down of one Rollout while it is played: deployments, and what held each of them.

Reasons, texts and remedies are those that every outlet shows of a Rollout. What is judged here is
whether time alone may end a wait, or only an act of people.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from rollout_operator.model.described.forecasts import (
    Arrival,
    HoldForecast,
    HoldingGate,
    RolloutForecast,
    VersionForecast,
)
from rollout_operator.model.described.releases import GateDescription, ReleaseDescription
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.objects import ReleaseObjects
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.model.releases.status import BakeStatus, HistoryEntry, ReleaseStatus
from rollout_operator.planning.description.releases.gates import name_schedule
from rollout_operator.planning.description.releases.rollouts import describe_release
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.gates import GatesCode
from rollout_operator.planning.releases.health import BlockedCode
from rollout_operator.planning.releases.schedules.hours import LoadZone, get_time_zone
from rollout_operator.planning.releases.schedules.status import READY

# Schedules that are closed in turns hold a version by turns, each day of the span.
MOST_HOLDS: Final = 5
_UTC: Final = "UTC"
_RESTING: Final = frozenset({BlockedCode.MANUAL, GatesCode.NO_CANDIDATES})
_TIMED: Final = frozenset({conditions.WRITING, BakeStatus.IN_PROGRESS})


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
    kinds = (conditions.DEPLOYMENT_BLOCKED, conditions.GATES_PASSING, conditions.READY)
    for condition in map(rollout.status.find_condition, kinds):
        if condition is not None and (
            condition.reason in _RESTING or condition.type == conditions.READY
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
