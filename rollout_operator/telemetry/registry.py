"""The last plan of each group: remembered for pages, shown as a gauge, logged when it changes.

A reason is written to the log when it is new for its zone, when its text is another, or when it has
become more severe, so that a group which waits for an hour says so once, and the last line about a
zone is always what holds it now.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code, Plan, Reason, Severity
from rollout_operator.model.reasons.urgency import find_leading
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import WAIT_CODES, Metrics
from rollout_operator.telemetry.spans import tracing

# A reason whose numbers change with each event is written at most this often per zone.
QUIET: Final = timedelta(seconds=1)
# A reason that passes by in every rollout is worth a line only when it stays: a zone whose only pod
# is replaced owns none for a moment.
PATIENCE: Final = {Code.PODS_MISSING: timedelta(seconds=30)}

# Severities are strings, which are ordered by their letters.
_LOUDNESS: Final = {severity: place for place, severity in enumerate(Severity)}
_FAULT: Final = "Group is held by a fault"
_MESSAGES: Final = {
    Code.UP_TO_DATE: "Group is up to date",
    Code.BACKING_OFF: "Group waits after an error",
    Code.SHADOW_MODE: "Group would move",
    Code.WRONG_STRATEGY: _FAULT,
    Code.REVISION_EMPTY: _FAULT,
    Code.OBJECT_UNREADABLE: _FAULT,
    Code.PODS_MISSING: _FAULT,
}

_Key = tuple[Code, str]


class Subject(StrEnum):
    """A part of a group that is decided on its own, in the order in which pages show them."""

    ROLLOUT = "rollout"
    SCALING = "scaling"


_NOT_ROLLOUT: Final = tuple(each for each in Subject if each is not Subject.ROLLOUT)


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one group now."""

    plan: Plan
    since: datetime
    """Since when the leading reason, `model.reasons.urgency`, is the same for the same zone."""
    looked: datetime
    """When the plan was made."""
    is_underway: bool = False
    """Whether it is being carried out, which may take long."""


class _Logged(msgspec.Struct):
    """What the log says about one group: the reasons that stand, and when each was written."""

    reasons: dict[_Key, Reason] = {}
    times: dict[_Key, timedelta] = {}
    begun: dict[_Key, timedelta] = {}
    """Since when a reason holds that is written only when it stays."""

    def covers(self, key: _Key, reason: Reason) -> bool:
        """Return whether the log says this already, and no less loudly."""
        stands = self.reasons.get(key)
        if stands is None or _stable_text(stands) != _stable_text(reason):
            return False
        return _LOUDNESS[stands.severity] >= _LOUDNESS[reason.severity]

    def wait_before(self, key: _Key, now: timedelta) -> timedelta:
        """Return how long a reason that is new must still wait; zero or less means write it."""
        if key in self.times:
            return QUIET
        return PATIENCE.get(key[0], timedelta(0)) - (now - self.begun.get(key, now))


class GroupStates:
    """The last plan per group. Must be used from one event loop."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._entries: dict[GroupName, GroupState] = {}
        self._plans: dict[GroupName, dict[Subject, Plan]] = {}
        self._underway: dict[GroupName, GroupState] = {}
        self._logged: dict[GroupName, _Logged] = {}
        self._callbacks: list[Callable[[Subject, Plan, GroupState], None]] = []

    def on_post(self, callback: Callable[[Subject, Plan, GroupState], None]) -> None:
        """Call back with each plan that is posted, and with what is known of its group by then."""
        self._callbacks.append(callback)

    def post(self, plan: Plan, subject: Subject = Subject.ROLLOUT) -> timedelta | None:
        """Take `plan` as what is known of one subject of its group now.

        Returns after how long to post again where the log still lacks a reason, which changed too
        soon after it was last written or has not stayed long enough; else None.
        """
        tracing.spans.get_current().record_reasons((*plan.waits, *plan.problems))
        plans = self._plans.setdefault(plan.group, {})
        plans[subject] = plan
        posted, plan = plan, merge_plans([plans[each] for each in Subject if each in plans])
        now = self._clock.now()
        before = self._entries.get(plan.group)
        holds_still = before is not None and _leading(before.plan) == _leading(plan)
        since = before.since if before is not None and holds_still else now
        state = self._entries[plan.group] = GroupState(plan=plan, since=since, looked=now)
        self._metrics.show_blockers(plan.group, (reason.code for reason in plan.waits))
        self._metrics.progress.show_state(plan.group, since)
        if subject is Subject.ROLLOUT:
            self._show_progress(plan)
        for callback in self._callbacks:
            callback(subject, posted, state)
        return self._log_news(plan)

    @contextmanager
    def carrying_out(self, plan: Plan) -> Iterator[None]:
        """Have pages show, inside the block, that `plan` is being carried out.

        A live read waits for its turn and for the API server, and what was posted last may be over
        by then. Pods are counted as the plan saw them. What holds the group, and the log, wait for
        what comes of it: a budget that refuses the same pods again and again never stops holding,
        and an alert that waits for an hour of it must not begin anew.
        """
        if plan.actions:
            self._show_progress(plan)
            now = self._clock.now()
            state = GroupState(plan=plan, since=now, looked=now, is_underway=True)
            self._underway[plan.group] = state
        try:
            yield
        finally:
            self._underway.pop(plan.group, None)

    def forget(self, group: GroupName) -> None:
        """Drop what is known of a group that no longer exists; an unknown name is fine."""
        self._entries.pop(group, None)
        self._plans.pop(group, None)
        self._logged.pop(group, None)

    def find(self, group: GroupName) -> GroupState | None:
        """Return what is known of a group, None where nothing is."""
        return self._entries.get(group)

    def find_newest(self, group: GroupName) -> GroupState | None:
        """Return the same, by the plan that is being carried out where there is one.

        What was posted before it may be over: its waits would contradict the pods beside them.
        """
        underway, state = self._underway.get(group), self._entries.get(group)
        if underway is None:
            return state
        plans = self._plans.get(group, {})
        plan = merge_plans(
            [underway.plan, *(plans[each] for each in _NOT_ROLLOUT if each in plans)]
        )
        is_same = state is not None and _leading(state.plan) == _leading(plan)
        since = state.since if state is not None and is_same else underway.since
        return replace(underway, plan=plan, since=since)

    def entries(self) -> tuple[GroupState, ...]:
        """Return all groups in the order of their names."""
        return tuple(entry for _, entry in sorted(self._entries.items()))

    def _show_progress(self, plan: Plan) -> None:
        if plan.progress is not None:
            self._metrics.progress.show_zones(plan.group, plan.progress, self._clock.now())

    def _log_news(self, plan: Plan) -> timedelta | None:
        """Write what is new; return when to try again with what was held back."""
        logged = self._logged.setdefault(plan.group, _Logged())
        now = self._clock.elapsed()
        logged.times = {key: at for key, at in logged.times.items() if now - at < QUIET}
        current = _gather(plan)
        # What no longer holds is new when it comes back.
        logged.reasons = {key: reason for key, reason in logged.reasons.items() if key in current}
        logged.begun = {key: logged.begun.get(key, now) for key in current if key[0] in PATIENCE}
        waits: list[timedelta] = []
        for key, reason in current.items():
            if logged.covers(key, reason):
                continue
            wait = logged.wait_before(key, now)
            if wait > timedelta(0):
                waits.append(wait)
                continue
            logged.reasons[key] = reason
            logged.times[key] = now
            _write(plan.group, reason)
        return min(waits, default=None)


def merge_plans(plans: Sequence[Plan]) -> Plan:
    """Return the plans of all subjects of a group as one; with a wait of any, it is not at rest."""
    first = plans[0]
    if len(plans) == 1:
        return first
    waits = tuple(wait for plan in plans for wait in plan.waits)
    held = tuple(wait for wait in waits if wait.code is not Code.UP_TO_DATE)
    problems = tuple(problem for plan in plans for problem in plan.problems)
    return dataclasses.replace(first, waits=held or waits, problems=problems)


def _gather(plan: Plan) -> dict[_Key, Reason]:
    """Return one reason per code and zone, the texts of several joined under the most severe."""
    reasons: dict[_Key, list[Reason]] = {}
    for reason in (*plan.waits, *plan.problems):
        reasons.setdefault(_key(reason), []).append(reason)
    return {key: _join(same) for key, same in reasons.items()}


def _join(same: list[Reason]) -> Reason:
    if len(same) == 1:
        return same[0]
    texts = dict.fromkeys(reason.text for reason in same)
    gists = dict.fromkeys(_stable_text(reason) for reason in same)
    loudest = max((reason.severity for reason in same), key=_LOUDNESS.__getitem__)
    return replace(same[0], text="; ".join(texts), stable_text="; ".join(gists), severity=loudest)


def _stable_text(reason: Reason) -> str:
    return reason.stable_text or reason.text


def _leading(plan: Plan) -> _Key | None:
    leading = find_leading(plan.waits)
    return None if leading is None else _key(leading)


def _key(reason: Reason) -> _Key:
    return (reason.code, reason.zone)


def _write(group: GroupName, reason: Reason) -> None:
    zone = {"zone": reason.zone} if reason.zone else {}
    write = log.at(reason.severity)
    write(_message(reason.code), group=group, **zone, reason=reason.code, why=reason.text)


def _message(code: Code) -> str:
    return _MESSAGES.get(code, "Group waits" if code in WAIT_CODES else "Group has an odd setting")
