"""Decide by health checks which zone may be begun, and what to ask next.

`judge_group` says of each StatefulSet that is bound to a health check whether it may be begun, by
one snapshot and the recorded status alone, so that a live read decides as the cache does.
`plan_check` says what to record and to ask, and what the answers come to.

When the first outdated pod of a StatefulSet is seen, that is recorded, before any pod goes. A pod
counts as updated if it was created since then at the update revision; so a StatefulSet that changed
nothing has none. A zone is gated if another one has updated pods. It is under way once the gate has
let it begin, which is recorded too: a crashed pod that was created anew begins nothing.

A pod keeps its name, so that a look just after an update would count samples of the revision
before. A look counts only if its range begins after the last updated pod became available.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from rollout_operator.gates.model import (
    BASELINE,
    CURRENT,
    RANGE,
    TARGET_MATCHERS,
    Action,
    Answer,
    Check,
    CheckStatus,
    FlawedHealthCheck,
    GroupStatus,
    HealthCheck,
    NoData,
    Number,
    OnMisconfigured,
    QueryError,
    Result,
    SetStatus,
    Status,
    format_number,
)
from rollout_operator.model.decode.wire import clip
from rollout_operator.model.names import HEALTH_CHECK, LONGEST_NAME, Uid
from rollout_operator.model.objects import GateState, Group, HealthGate, Pod, StatefulSet
from rollout_operator.model.units import format_next_second, format_prometheus_duration
from rollout_operator.planning.readiness import (
    DownCause,
    Readiness,
    find_group_blocker,
    is_paused,
    measure_departed,
    measure_readiness,
    read_bypass,
)
from rollout_operator.planning.rollout import list_available
from rollout_operator.planning.wording import count, verb

FindCheck: TypeAlias = Callable[[str], HealthCheck | FlawedHealthCheck | None]
"""Returns the health check of a name."""

NO_KIND: Final = "the cluster does not have this kind"
"""Why none can be found."""

# Kubelets write whole seconds.
_WHOLE_SECOND: Final = timedelta(seconds=1)
_OK: Final = range(200, 300)
# A result counts until its successor is there: three queries of ten seconds, and a write.
_ASKING: Final = timedelta(seconds=40)
# Of a status. What is stored has 1.5 MiB with the spec, and with who manages which field.
_MOST_BYTES: Final = 1 << 20
# What a check of a group takes at most, but for its name, which is there twice.
_CHECK_BYTES: Final = 1500
_LONGEST_MESSAGE: Final = 300
# With the names of all pods.
_LONGEST_QUERY: Final = 512 << 10
# Of all questions: those beyond it come after some answers.
_MOST_FILLED: Final = 16 << 20
# Each look is a write of the status: whoever may write a spec may not have a hundred a second.
_SHORTEST: Final = timedelta(seconds=1)
# By how much the clock of another replica may be ahead.
_SKEW: Final = timedelta(minutes=1)
_EARLIEST: Final = datetime.fromtimestamp(0, UTC)
# What has a meaning in a regular expression.
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A check of a group that is due."""

    group: str
    check: Check
    at: datetime
    baseline_at: datetime
    since: datetime
    """Samples from before count for nothing."""
    current: str = ""
    """Query or, like `baseline`, empty where a URL is asked, or where it would be too long."""
    baseline: str = ""


class Answers(NamedTuple):
    """What came of a question; a part that was not asked is None."""

    current: Answer
    baseline: Answer | None = None
    success: Answer | None = None


class CheckPlan(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    """As it is to be recorded before anything is asked."""
    questions: tuple[Question, ...] = ()
    again: timedelta | None = None
    """When the next check is due."""


class Verdict(NamedTuple):
    """What the checks of a group come to; the first that holds gives the text."""

    state: GateState | None
    """None where all pass."""
    text: str = ""
    stable_text: str = ""
    query: str = ""


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet of a group, and what is recorded of its update revision."""

    readiness: Readiness
    outdated: tuple[Pod, ...]
    updated: tuple[Pod, ...]
    record: SetStatus | None
    stable_revision: str
    """What its pods ran before the rollout that was recorded last, of whichever revision."""

    @property
    def sts(self) -> StatefulSet:
        return self.readiness.sts

    @property
    def is_back(self) -> bool:
        """Return whether it goes back to what its pods ran when the rollout began."""
        return bool(self.stable_revision) and self.stable_revision == self.sts.update_revision

    @property
    def has_begun(self) -> bool:
        has_passed = self.record is not None and self.record.passed_at is not None
        # The first pod may be away for longer than the pass counts.
        stay = (DownCause.UNREADY, DownCause.SETTLING)
        is_away = self.readiness.missing or any(
            down.why not in stay for down in self.readiness.down
        )
        return has_passed and bool(self.updated or self.readiness.unreadable or is_away)


class _Survey(msgspec.Struct, frozen=True, kw_only=True):
    """A group as one health check sees it; for `plan_check` its members are in update order."""

    group: Group
    check: HealthCheck
    entry: GroupStatus
    members: tuple[_Member, ...]
    is_whole: bool

    @property
    def now(self) -> datetime:
        return self.group.now

    @property
    def since(self) -> datetime:
        """Return when the last updated pod became available, or the last zone left with its own."""
        updated = {pod.uid for member in self.members for pod in member.updated}
        readinesses = [
            replace(
                member.readiness,
                standing=tuple(pod for pod in member.readiness.standing if pod.uid in updated),
            )
            for member in self.members
        ]
        seen = max(list_available(readinesses, self.now), default=self.now)
        left_at = self.find_left()
        return (seen if left_at is None else max(seen, left_at)) + _WHOLE_SECOND

    @property
    def lets_one(self) -> bool:
        """Return whether a pass is recorded by which a zone is to begin, or under way."""
        waiting = (one for one in self.members if one.outdated and not is_paused(one.sts))
        return any(one.record is not None and one.record.passed_at is not None for one in waiting)

    def is_first(self, member: _Member) -> bool:
        has_other = any(other.updated for other in self.members if other is not member)
        return not has_other and not self.list_gone(member)

    def list_gone(self, member: _Member) -> Sequence[str]:
        """Return the StatefulSets that were begun in its rollout, and are not in the group now."""
        names = {each.sts.name for each in self.members}
        gone = (one for one in self.entry.stateful_sets if one.name not in names)
        return [
            one.name
            for one in gone
            if member.record is not None
            if one.passed_at is not None and one.passed_at >= member.record.seen_at
        ]

    def find_left(self) -> datetime | None:
        """Return when a zone with updated pods left last, now where that is not recorded yet.

        Once they are in no member, nobody knows when they came.
        """
        names, left_at = {each.sts.name for each in self.members}, self.entry.left_at
        gone = [one for one in self.entry.stateful_sets if one.name not in names]
        passes = [one.passed_at for one in gone if one.passed_at is not None]
        is_recorded = not passes or (left_at is not None and left_at > max(passes))
        return left_at if is_recorded else self.now

    def needs_look(self, member: _Member) -> bool:
        """Return whether checks decide on a StatefulSet with outdated pods."""
        if member.record is None or member.is_back or member.has_begun:
            return False
        if not self.is_first(member):
            return True
        return self.find_room(member) == 0 and bool(member.updated)

    def is_bound(self, member: _Member) -> bool:
        name, labels = self.check.head.name, member.sts.labels
        return find_name(member.sts) == name and self.check.selector.takes(labels)

    def is_target(self, member: _Member) -> bool:
        """Return whether a StatefulSet would go on if the checks passed."""
        is_free = is_paused(member.sts) or is_bypassed(member.sts, self.now)
        is_due = self.is_bound(member) and bool(member.outdated) and not is_free
        return is_due and self.needs_look(member)

    def find_room(self, member: _Member) -> int | None:
        """Return how many pods of the first zone may still go, None for any number."""
        if self.check.first_zone_pods is None:
            return None
        # Pods that came at the update revision before it was seen are asked about by no check. A
        # delete without an answer may have spared its pod: to repeat it takes no more room.
        readiness, updated = member.readiness, {pod.uid for pod in member.updated}
        unanswered = (
            down.pod
            for down in readiness.down
            if down.why is DownCause.UNANSWERED and down.pod.is_ready
        )
        others = sum(pod.uid not in updated for pod in (*readiness.standing, *unanswered))
        return max(self.check.first_zone_pods - (readiness.used - others), 0)


def judge_group(
    group: Group,
    find: FindCheck,
    absence: str = "",
    get_error: Callable[[str], str] = lambda name: "",
) -> Mapping[Uid, HealthGate]:
    """Return what health checks say of the StatefulSets of a group.

    `absence` is why none can be found, `get_error` returns why the status of one is not written.
    """
    gates: dict[Uid, HealthGate] = {}
    surveys: dict[str, _Survey] = {}
    if not any(
        pod.revision != zone.sts.update_revision for zone in group.zones for pod in zone.pods
    ):
        return gates
    for sts in (zone.sts for zone in group.zones):
        name = find_name(sts)
        is_free = is_bypassed(sts, group.now)
        if not name:
            continue
        found = find(name)
        problem = find_problem(sts, found, absence)
        if problem or not isinstance(found, HealthCheck):
            if not is_free:
                gates[sts.uid] = _judge_broken(found, problem)
            continue
        survey = surveys.get(name) or _survey(group, _renew_status(found, [group]))
        surveys[name] = survey
        member = next(each for each in survey.members if each.sts.uid == sts.uid)
        gate = None if is_free else _judge_member(survey, member, get_error(name))
        if member.has_begun:
            gate = HealthGate(state=GateState.BEGUN)
        if gate is not None:
            gates[sts.uid] = gate
    return gates


def judge_unread(group: Group, why: str) -> Mapping[Uid, HealthGate]:
    """Return that StatefulSets wait which are bound to health checks that are not known yet."""
    text = f"is not begun: its RolloutHealthCheck is not known yet: {why}"
    gate = HealthGate(state=GateState.UNKNOWN, text=text)
    bound = [zone.sts for zone in group.zones if find_name(zone.sts)]
    return {sts.uid: gate for sts in bound if not is_bypassed(sts, group.now)}


def plan_check(
    check: HealthCheck,
    groups: Sequence[Group],
    bound: Collection[str] = (),
    answers: Sequence[tuple[Question, Answers]] = (),
    guard: Callable[[str], AbstractContextManager[object, bool | None]] = nullcontext,
) -> CheckPlan:
    """Return what to record of the groups that are bound to a health check, and what to ask.

    The zones of `groups` are in update order.

    `bound` are the StatefulSets that are bound to it: of a group that is not known yet, as those of
    policies are not after a restart, what is recorded stays. `answers` came since then. `guard` is
    entered for each group, by name: of one whose error it keeps, what is recorded stays as well.
    """
    check = _renew_status(check, groups)
    status = check.status
    known = {group.name for group in groups}
    pending = {*bound} - {zone.sts.name for group in groups for zone in group.zones}
    entries = [
        entry
        for entry in status.groups
        if entry.group not in known and pending
        if not entry.stateful_sets or any(one.name in pending for one in entry.stateful_sets)
    ]
    questions: list[Question] = []
    times: list[timedelta] = []
    recorded = {entry.group: entry for entry in status.groups}
    left = _MOST_BYTES - sum(_measure(entry, check) for entry in entries)
    filled = 0
    for group in sorted(groups, key=lambda each: (each.name not in recorded, each.name)):
        is_new = group.name not in recorded
        entry, is_bound = recorded.get(group.name, GroupStatus(group=group.name)), not is_new
        with guard(group.name):
            own = [pair for pair in answers if pair[0].group == group.name]
            entry = _settle_all(_with_entry(check, entry), own, group)
            is_known = find_group_blocker(group) is None and bool(group.zones)
            if is_known:
                survey = _survey(group, _with_entry(check, entry))
                entry = _record(survey, is_new=is_new)
                is_bound = any(map(survey.is_bound, survey.members))
            if (size := _measure(entry, check)) > left:
                # Without a record its updated pods would count for nothing.
                is_bound &= not is_new
                entry = replace(entry, checks=())
            elif is_bound:
                left -= size
                survey = _survey(group, _with_entry(check, entry))
                for each, wait in _list_due(survey) if is_known else ():
                    if wait > timedelta(0):
                        times.append(wait)
                    elif filled <= _MOST_FILLED:
                        questions.append(_pose(survey, each))
                        filled += len(questions[-1].current) + len(questions[-1].baseline)
        entries += [entry] if is_bound else []
    return CheckPlan(
        status=replace(status, groups=tuple(sorted(entries, key=lambda entry: entry.group))),
        questions=tuple(questions),
        again=min(times, default=None),
    )


def recall_seen(check: HealthCheck, unwritten: Status) -> HealthCheck:
    """Return a health check that has recorded what was seen of rollouts, and could not be written.

    Zones that wait for no check go on meanwhile: seen later, their updated pods would not count.
    """
    entries: list[GroupStatus] = []
    for entry in check.status.groups:
        records = {record.name: record for record in entry.stateful_sets}
        for seen in unwritten.find(entry.group).stateful_sets:
            known = records.get(seen.name)
            is_same = known is not None and known.update_revision == seen.update_revision
            if known is None or (not is_same and known.seen_at < seen.seen_at):
                records[seen.name] = replace(seen, passed_at=None)
        entries.append(replace(entry, stateful_sets=tuple(records.values())))
    return replace(check, status=replace(check.status, groups=tuple(entries)))


def compose_success(check: Check, current: Number, baseline: Number) -> str:
    """Return the query by which the numbers pass or fail."""
    values = {CURRENT: current.value, BASELINE: baseline.value}
    query = check.success_query
    for placeholder, value in values.items():
        text = format_number(value)
        query = query.replace(placeholder, f"({text})" if text.startswith("-") else text)
    return query


def find_name(sts: StatefulSet) -> str:
    """Return the name of the health check that a StatefulSet is bound to; empty for none."""
    return sts.annotations.get(HEALTH_CHECK, "").strip()


def find_problem(
    sts: StatefulSet, found: HealthCheck | FlawedHealthCheck | None, absence: str = ""
) -> str:
    """Return why the health check that a StatefulSet names cannot be obeyed; empty if it can."""
    title = f'RolloutHealthCheck "{clip(find_name(sts), LONGEST_NAME)}"'
    if found is None:
        return f"{title} was not found{f': {absence}' if absence else ''}"
    if isinstance(found, FlawedHealthCheck):
        return f"{title} cannot be used: {found.problem}"
    if not found.selector.takes(sts.labels):
        return f"{title}: its selector does not match StatefulSet {sts.name}"
    return ""


def is_bypassed(sts: StatefulSet, now: datetime) -> bool:
    until = read_bypass(sts).until
    return until is not None and now < until


def judge_checks(check: HealthCheck, entry: GroupStatus, since: datetime, now: datetime) -> Verdict:
    """Return what the checks of a group come to now."""
    states = {one.name: one for one in entry.checks}
    verdicts = [
        _judge_check(each, states.get(each.name), since, now)._replace(
            query=each.shown_url or each.query
        )
        for each in check.checks
        if not each.disabled
    ]
    held = (one for one in verdicts if one.state is not None and one.state.holds)
    warned = (one for one in verdicts if one.state is GateState.WARNED)
    verdict = next(held, None) or next(warned, Verdict(None))
    if not verdict.text:
        return verdict
    prefix = f"RolloutHealthCheck {check.head.name}: "
    return verdict._replace(
        text=f"{prefix}{verdict.text}", stable_text=f"{prefix}{verdict.stable_text}"
    )


def _renew_status(check: HealthCheck, groups: Sequence[Group]) -> HealthCheck:
    """Return a health check whose status is about its spec, and about groups as they are now.

    What was counted of another spec says nothing of this one. What is recorded of a StatefulSet
    goes with it to another group: else its updated pods would count for nothing there. It stays
    as well while others wait for its pods.
    """
    is_old = check.status.observed_generation != check.head.generation
    before = {entry.group: entry for entry in check.status.groups}
    records = {one.name: one for entry in before.values() for one in entry.stateful_sets}
    late_names = {
        one.name for entry in before.values() if entry.late for one in entry.stateful_sets
    }
    members: dict[str, set[str]] = {
        group.name: {zone.sts.name for zone in group.zones} for group in groups
    }
    placed = {name for names in members.values() for name in names}
    departed: dict[str, set[str]] = {
        group.name: {zone.sts.name for zone in group.departed} for group in groups
    }
    entries: list[GroupStatus] = []
    for group in dict.fromkeys((*before, *members)):
        entry, own = before.get(group, GroupStatus(group=group)), members.get(group, set())
        stays = own | departed.get(group, set())
        kept = [one for one in entry.stateful_sets if one.name in stays or one.name not in placed]
        if any(one.passed_at is not None for one in entry.stateful_sets if one not in kept):
            entry = replace(entry, left_at=max(each.now for each in groups))
        come = sorted((own & records.keys()) - {one.name for one in kept})
        if is_old or come or len(kept) < len(entry.stateful_sets):
            sets = (*kept, *(records[name] for name in come))
            late = entry.late or not late_names.isdisjoint(come)
            checks = () if is_old else entry.checks
            entry = replace(entry, stateful_sets=sets, checks=checks, late=late)
        entries.append(entry)
    status = Status(
        observed_generation=check.head.generation,
        # One that all have left is none at rest.
        groups=tuple(one for one in entries if one.stateful_sets or before.get(one.group) == one),
    )
    return replace(check, status=status)


def _judge_broken(found: HealthCheck | FlawedHealthCheck | None, problem: str) -> HealthGate:
    state = GateState.IGNORED
    if found is not None and found.on_misconfigured is OnMisconfigured.PAUSE:
        state = GateState.BROKEN
    outcome = "is not begun" if state.holds else "is begun without a health check"
    return HealthGate(state=state, text=f"{outcome}: {problem}")


def _judge_member(survey: _Survey, member: _Member, error: str) -> HealthGate | None:
    if not member.outdated or member.is_back:
        return None
    name = survey.check.head.name
    reason = f"; the status was not written: {error}" if error else ""
    if member.record is None:
        text = (
            f"is not begun: the status of RolloutHealthCheck {name} does not show its rollout yet"
        )
        if not error and not survey.entry.stateful_sets and not _fits(survey):
            reason = "; it has no room for more groups until others have ended their rollouts"
        return HealthGate(state=GateState.UNKNOWN, text=f"{text}{reason}")
    if not survey.needs_look(member):
        room = survey.find_room(member) if survey.is_first(member) else None
        if room is None:
            return None
        most = survey.check.first_zone_pods or 0
        text = f"goes on once the first {count(most, 'pod')} {verb(most, 'is', 'are')} updated"
        return HealthGate(state=GateState.WAITS, text=text, room=room)
    if not any(each.updated for each in survey.members):
        [gone, *_] = survey.list_gone(member)
        text = f"is not begun: {gone}, which was begun before it, is not in the group any more"
        return HealthGate(state=GateState.FAILED, text=text)
    since = survey.since
    verdict = judge_checks(survey.check, survey.entry, since, survey.now)
    has_passed = verdict.state is None or not verdict.state.holds
    if has_passed and not survey.lets_one:
        # Begun without a record it would stop again after its first pod.
        text = f"is not begun: the status of RolloutHealthCheck {name} does not show its pass yet"
        return HealthGate(state=GateState.UNKNOWN, text=f"{text}{reason}")
    if verdict.state is None:
        return None
    if not verdict.state.holds:
        return HealthGate(
            state=verdict.state,
            text=f"is begun: {verdict.text}",
            stable_text=f"is begun: {verdict.stable_text}",
        )
    outcome = "is not begun"
    if survey.is_first(member):
        outcome = f"stops after {count(len(member.updated), 'updated pod')}"
    return HealthGate(
        state=verdict.state,
        text=f"{outcome}: {verdict.text}{reason}",
        stable_text=f"{outcome}: {verdict.stable_text}",
        query=verdict.query,
    )


def _judge_check(
    check: Check, state: CheckStatus | None, since: datetime, now: datetime
) -> Verdict:
    name = f'check "{check.name}"'
    if state is None or not _is_fresh(check, state, since):
        stable_text = f"{name} has not been evaluated since the last update"
        first = since + _get_range(check)
        if first <= now:
            return Verdict(GateState.WAITS, stable_text, stable_text)
        text = (
            f"{name} is evaluated at {format_next_second(first)}: until then its range begins "
            "before the last update"
        )
        return Verdict(GateState.WAITS, text, stable_text)
    if state.result is Result.PASS:
        return _judge_passed(check, state, now)
    # Numbers, and texts of servers, are others at each look.
    stable_text = f"{name}: {state.result}"
    done, most, action, noun = _count(check, state)
    if done < most:
        text = f"{state.message} ({done}/{most} {noun}s)"
        return Verdict(GateState.FAILING, _with_next(text, state, now), stable_text)
    text = f"{state.message} after {count(done, noun)}"
    match action:
        case Action.PAUSE:
            return Verdict(GateState.FAILED, _with_next(text, state, now), stable_text)
        case Action.WARN:
            return Verdict(GateState.WARNED, text, stable_text)
        case Action.DISABLED:
            return Verdict(None)


def _judge_passed(check: Check, state: CheckStatus, now: datetime) -> Verdict:
    needed = check.failure_policy.consecutive_successes
    if state.successes < needed:
        stable_text = f'check "{check.name}" has to pass {needed} times in a row'
        text = f"{stable_text} ({state.successes}/{needed})"
        return Verdict(GateState.WAITS, _with_next(text, state, now), stable_text)
    if state.next_at is not None and now < state.next_at + _ASKING:
        return Verdict(None)
    text = f'check "{check.name}" has passed too long ago, and is evaluated again'
    return Verdict(GateState.WAITS, text, text)


def _count(check: Check, state: CheckStatus) -> tuple[int, int, Action, str]:
    """Return how often a check did not pass, how often it may not, what follows, and a noun."""
    if state.result is Result.FAIL:
        failing = check.failure_policy
        most = failing.consecutive_failures
        return state.failures, most, failing.exceeded_action, "consecutive failure"
    attempts, policy = state.error_attempts, check.error_policy
    if state.result is Result.NO_DATA:
        attempts, policy = state.no_data_attempts, check.no_data_policy
    return attempts, policy.max_attempts, policy.exhausted_action, "attempt"


def _with_next(text: str, state: CheckStatus, now: datetime) -> str:
    # It is over while answers are awaited, zones are not whole or no status can be written.
    if state.next_at is None or state.next_at < now:
        return text
    return f"{text}; evaluated again at {format_next_second(state.next_at)}"


def _is_fresh(check: Check, state: CheckStatus, since: datetime) -> bool:
    """Return whether an evaluation counted no sample from before the last update."""
    at = state.evaluated_at
    return at is not None and at - _get_range(check) >= since


def _get_range(check: Check) -> timedelta:
    """Return how far back an evaluation looks: a URL answers for now."""
    return timedelta(0) if check.http else check.current_range


def _survey(group: Group, check: HealthCheck) -> _Survey:
    entry = _mark_departed(_read_entry(check, group), group)
    records = {record.name: record for record in entry.stateful_sets}
    members: list[_Member] = []
    for zone in group.zones:
        sts, record = zone.sts, records.get(zone.sts.name)
        stable = "" if record is None else record.stable_revision
        if record is not None and record.update_revision != sts.update_revision:
            record = None
        readiness = measure_readiness(zone, group.deletions, group.now)
        pods = [pod for _, pod in zone.list_pods(sts.ordinals)]
        # New pods of an upscale that have never been ready show nothing (D-67).
        used = [pod for pod in pods if pod not in readiness.newcomers]
        members.append(
            _Member(
                readiness=readiness,
                outdated=tuple(
                    pod
                    for pod in pods
                    if pod.revision != sts.update_revision and not pod.is_terminating
                ),
                updated=tuple(pod for pod in used if _is_updated(pod, record, is_late=entry.late)),
                record=record,
                stable_revision=stable,
            )
        )
    return _Survey(
        group=group,
        check=check,
        entry=entry,
        members=tuple(members),
        is_whole=all(
            readiness.is_whole
            for readiness in (*(member.readiness for member in members), *measure_departed(group))
        ),
    )


def _mark_departed(entry: GroupStatus, group: Group) -> GroupStatus:
    """Return an entry in which zones count as begun that left before it was seen that they are."""
    pods = {zone.sts.name: zone.own_pods for zone in group.departed}
    return replace(
        entry,
        stateful_sets=tuple(
            replace(one, passed_at=group.now)
            if one.passed_at is None
            and any(_is_updated(pod, one, is_late=entry.late) for pod in pods.get(one.name, ()))
            else one
            for one in entry.stateful_sets
        ),
    )


def _measure(entry: GroupStatus, check: HealthCheck) -> int:
    """Return how many bytes an entry of a status may come to have."""
    names = msgspec.json.encode([one.name for one in check.checks])
    size = len(msgspec.json.encode(replace(entry, checks=())))
    return size + (2 * len(names) + _CHECK_BYTES * len(check.checks)) * bool(entry.stateful_sets)


def _fits(survey: _Survey) -> bool:
    """Return whether the status has room for a group that it does not have."""
    taken = sum(_measure(entry, survey.check) for entry in survey.check.status.groups)
    return taken + _measure(_record(survey, is_new=True), survey.check) <= _MOST_BYTES


def _read_entry(check: HealthCheck, group: Group) -> GroupStatus:
    """Return what is recorded of a group, without what no replica can have written by now.

    Any client may have: a look in times to come would count for ever, and none would come before.
    Messages are shown to many.
    """
    latest, entry = group.now + _SKEW, check.status.find(group.name)
    waits = {
        one.name: max(
            one.error_policy.retry_interval,
            one.no_data_policy.retry_interval,
            one.failure_policy.reevaluation_interval,
        )
        for one in check.checks
    }

    def is_ours(time: datetime | None, wait: timedelta = timedelta(0)) -> bool:
        return time is None or _EARLIEST <= time <= latest + wait

    return replace(
        entry,
        stateful_sets=tuple(
            one for one in entry.stateful_sets if is_ours(one.seen_at) and is_ours(one.passed_at)
        ),
        left_at=entry.left_at if is_ours(entry.left_at) else None,
        checks=tuple(
            one
            for one in entry.checks
            if one.name in waits
            and one.message == _clip_message(one.message, one.name)
            and is_ours(one.evaluated_at)
            and is_ours(one.next_at, waits[one.name])
        ),
    )


def _clip_message(message: str, name: str) -> str:
    return clip(message, _LONGEST_MESSAGE + len(name))


def _is_updated(pod: Pod, record: SetStatus | None, *, is_late: bool) -> bool:
    if record is None or pod.revision != record.update_revision:
        return False
    return is_late or pod.created is None or pod.created >= record.seen_at


def _record(survey: _Survey, *, is_new: bool) -> GroupStatus:
    """Return the entry of a group with what its StatefulSets are at now.

    It has no StatefulSets where nothing is outdated: then a rollout has ended. One that `is_new` in
    mid-rollout may have been lost, and nobody knows which zones were updated since it began.
    """
    group, check = survey.group, survey.check
    names = {member.sts.name for member in survey.members}
    # One that is deleted and created anew, to change what cannot be changed, is in no group for a
    # moment.
    has_all = names.issuperset(record.name for record in survey.entry.stateful_sets)
    is_over = not any(member.outdated for member in survey.members)
    if is_over and has_all:
        return GroupStatus(group=group.name)
    # What goes back is known to have been at rest before.
    is_late = is_new or (survey.entry.late and not any(each.is_back for each in survey.members))
    left_at = survey.find_left() if survey.is_whole else survey.entry.left_at
    before = {
        # Its pass may be of before others left, or of when it was away itself: it may leave with
        # newer pods.
        one.name: replace(one, passed_at=survey.now)
        if one.name in names and one.passed_at and left_at and one.passed_at < left_at
        else one
        for one in survey.entry.stateful_sets
    }
    records = [
        _record_set(survey, member, before.get(member.sts.name), is_late=is_late)
        for member in survey.members
    ]
    gone = [record for record in before.values() if record.name not in names]
    kept = sorted([*filter(None, records), *gone], key=lambda record: record.name)
    if is_over and not is_late:
        # What is gone may be so for good: the next rollout is one of its own.
        at = {member.sts.name: member.sts.update_revision for member in survey.members}
        kept = [replace(one, stable_revision=at.get(one.name, one.stable_revision)) for one in kept]
    entry = replace(survey.entry, stateful_sets=tuple(kept), late=is_late, left_at=left_at)
    survey = _survey(group, _with_entry(check, entry))
    # One pass lets one zone begin: the next one is asked about with the updated pods of this one.
    going = [member for member in survey.members if member.outdated and not is_paused(member.sts)]
    marked = {
        member.sts.name: _mark(survey, member, is_next=member in going[:1])
        for member in survey.members
        if member.record is not None and (member.outdated or member.updated)
    }
    return replace(
        entry,
        stateful_sets=tuple(
            replace(record, passed_at=marked.get(record.name, record.passed_at))
            for record in entry.stateful_sets
        ),
    )


def _record_set(
    survey: _Survey, member: _Member, before: SetStatus | None, *, is_late: bool
) -> SetStatus | None:
    sts = member.sts
    if member.record is not None or not (member.outdated or is_late):
        return before
    ran = {pod.revision for pod in member.outdated}
    stable = ran.pop() if len(ran) == 1 else sts.current_revision if ran else ""
    return SetStatus(
        name=sts.name,
        update_revision=sts.update_revision,
        # API servers write whole seconds on pods.
        seen_at=survey.now.replace(microsecond=0),
        stable_revision=before.stable_revision if before is not None else stable or "",
    )


def _mark(survey: _Survey, member: _Member, *, is_next: bool) -> datetime | None:
    """Return when the gate of a StatefulSet let it begin, None if it has not.

    A zone whose crashed pod was created anew looks begun: it is not marked for another's turn.
    """
    assert member.record is not None, "checked by the caller"
    passed_at = member.record.passed_at
    if member.has_begun or member.is_back:
        return passed_at
    # A pod that cannot be read may be an updated one.
    is_known = not any(one.readiness.unreadable for one in survey.members)
    if not member.outdated:
        # With one pod, or all at once, it was never seen half updated: perhaps by a crash.
        is_first = is_known and survey.is_first(member)
        is_waived = is_first or is_bypassed(member.sts, survey.now)
    elif survey.needs_look(member):
        verdict = judge_checks(survey.check, survey.entry, survey.since, survey.now)
        has_passed = verdict.state is None or not verdict.state.holds
        # An updated pod that is down may fail what passes without it.
        if has_passed and is_next and (passed_at is not None or survey.is_whole):
            return passed_at or survey.now
        is_waived = is_bypassed(member.sts, survey.now)
    else:
        is_waived = is_known and is_next and survey.check.first_zone_pods is None
    return survey.now if member.updated and is_waived else None


def _list_due(survey: _Survey) -> Iterator[tuple[Check, timedelta]]:
    """Yield the checks that decide on the next zone, and in what time each is due."""
    if not survey.is_whole or not any(map(survey.is_target, survey.members)):
        return
    if not any(member.updated for member in survey.members):
        return  # those that could be asked about are gone
    states = {one.name: one for one in survey.entry.checks}
    for check in survey.check.checks:
        state = states.get(check.name)
        due = survey.since + _get_range(check)
        if state is not None and state.next_at is not None:
            due = state.next_at if _is_fresh(check, state, survey.since) else due
        if not check.disabled:
            yield check, due - survey.now


def _pose(survey: _Survey, check: Check) -> Question:
    now = survey.now
    question = Question(
        group=survey.group.name,
        check=check,
        at=now,
        baseline_at=min(member.record.seen_at for member in survey.members if member.record),
        since=survey.since,
    )
    if check.http:
        return question
    updated = [pod for member in survey.members for pod in member.updated]
    outdated = [pod for member in survey.members for pod in member.outdated]
    return replace(
        question,
        current=fill_query(check.query, updated, check.current_range),
        baseline=fill_query(check.query, outdated, check.baseline_range),
    )


def fill_query(query: str, pods: Sequence[Pod], span: timedelta) -> str:
    """Return a query for pods, empty where it would be too long: it may name all of them often."""
    matchers = _render_matchers(pods)
    if query.count(TARGET_MATCHERS) * len(matchers) > _LONGEST_QUERY:
        return ""
    return query.replace(TARGET_MATCHERS, matchers).replace(RANGE, format_prometheus_duration(span))


def _render_matchers(pods: Sequence[Pod]) -> str:
    names = "|".join(sorted(_SPECIAL.sub(r"\\\\\g<0>", pod.name) for pod in pods)) or "^$"
    return f'namespace="{pods[0].namespace}",pod=~"{names}"'


def _settle_all(
    check: HealthCheck, answers: Sequence[tuple[Question, Answers]], group: Group
) -> GroupStatus:
    """Return the entry of a group after the answers to its questions."""
    entry = _read_entry(check, group)
    states = {one.name: one for one in entry.checks}
    now = max([question.at for question, _ in answers] + [group.now])
    for question, found in answers:
        name = question.check.name
        states[name] = _settle(question, found, states.get(name), now)
    checks = tuple(states[each.name] for each in check.checks if each.name in states)
    return replace(entry, checks=checks)


def _settle(
    question: Question, found: Answers, before: CheckStatus | None, now: datetime
) -> CheckStatus:
    """Return a check after an evaluation; what was counted before an update begins anew."""
    check = question.check
    result, message = _read(check, found)
    counts = before
    if before is None or not _is_fresh(check, before, question.since):
        counts = CheckStatus(name=check.name)
    assert counts is not None, "just made"
    interval = check.failure_policy.reevaluation_interval
    match result:
        case Result.PASS | Result.FAIL:
            has_passed = result is Result.PASS
            counts = replace(
                counts,
                successes=counts.successes + 1 if has_passed else 0,
                failures=0 if has_passed else counts.failures + 1,
                error_attempts=0,
                no_data_attempts=0,
            )
        case Result.NO_DATA:
            interval = check.no_data_policy.retry_interval
            counts = replace(counts, no_data_attempts=counts.no_data_attempts + 1)
        case _:
            interval = check.error_policy.retry_interval
            counts = replace(counts, error_attempts=counts.error_attempts + 1)
    return replace(
        counts,
        result=result,
        message=_clip_message(message, check.name),
        current=_render_number(found.current),
        baseline=_render_number(found.baseline),
        evaluated_at=question.at,
        # An answer may have taken longer than the interval.
        next_at=now + max(interval, _SHORTEST),
    )


def _read(check: Check, found: Answers) -> tuple[Result, str]:
    """Return the result of an evaluation, and its sentence unless it passes."""
    name = f'check "{check.name}"'
    parts = {"current": found.current, "baseline": found.baseline, "success": found.success}
    for part, answer in parts.items():
        query = f"{name}: the URL" if check.http else f"{name}: the {part} query"
        if isinstance(answer, QueryError):
            return Result.ERROR, f"{query} has no answer: {answer.text}"
        if isinstance(answer, NoData):
            return Result.NO_DATA, f"{query} has no data"
    last = found.current if check.http else found.success
    value = last.value if isinstance(last, Number) else 0.0
    if check.http:
        has_passed, why = int(value) in _OK, f"{check.shown_url} answers {value:g}"
    else:
        numbers = [_render_short(answer) for answer in (found.current, found.baseline)]
        has_passed, why = value == 1, f"current {numbers[0]}, baseline {numbers[1]}"
    return (Result.PASS, "") if has_passed else (Result.FAIL, f"{name} fails: {why}")


def _render_number(answer: Answer | None) -> str:
    return format_number(answer.value) if isinstance(answer, Number) else ""


def _render_short(answer: Answer | None) -> str:
    return f"{answer.value:.6g}" if isinstance(answer, Number) else "unknown"


def _with_entry(check: HealthCheck, entry: GroupStatus) -> HealthCheck:
    """Return a health check that has recorded this alone: each group is planned by its own."""
    return replace(check, status=replace(check.status, groups=(entry,)))
