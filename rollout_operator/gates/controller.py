"""Evaluate health checks for the groups that are bound to them, and keep the status of each.

What to record and to ask is decided in `plan`, by the caches and the status as it was written last.
All of one health check is recorded by one worker, so that no write overtakes another. Each of its
groups is asked by a worker of its own, so that none waits for answers about another. A rollout
reads the status, and only that: what was asked and not recorded has not happened. So a new process
goes on where the last one was.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Protocol, TypeAlias

import msgspec

from rollout_operator.aio.queue import AT_ONCE
from rollout_operator.aio.tasks import TaskStack, gather_all, race
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.worker import (
    Controller,
    GuardedStep,
    NewestObjects,
    Reconciles,
    Result,
    StatusWriter,
)
from rollout_operator.gates.metrics import GateMetrics
from rollout_operator.gates.model import (
    KIND,
    Answer,
    FlawedHealthCheck,
    HealthCheck,
    Number,
    Status,
    read_watched,
    watch_health_check,
)
from rollout_operator.gates.plan import (
    NO_KIND,
    Answers,
    Question,
    compose_success,
    find_name,
    is_bypassed,
    judge_group,
    judge_unread,
    plan_check,
    recall_seen,
)
from rollout_operator.kube.api import ROLLOUT_HEALTH_CHECKS
from rollout_operator.kube.informer import Collection
from rollout_operator.kube.kinds import FollowedKind
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import WatchedStore
from rollout_operator.model.budget import EventAction, EventKind, EventRecord
from rollout_operator.model.names import HEALTH_CHECK_BYPASS, NotFound, Refused, Uid
from rollout_operator.model.objects import (
    AnyPod,
    AnySet,
    AnyWatched,
    GateState,
    Group,
    HealthGate,
    StatefulSet,
    WatchedHead,
    WatchedObject,
)
from rollout_operator.model.outcome import Severity
from rollout_operator.planning.events import (
    BLOCKED_BY_HEALTH_CHECK,
    HEALTH_CHECK_BYPASSED,
    HEALTH_CHECK_MISCONFIGURED,
    HEALTH_CHECK_WARN,
    regard,
)
from rollout_operator.planning.readiness import (
    SNAPSHOT_LIMIT,
    STALE_SNAPSHOT,
    is_paused,
    order_zones,
)
from rollout_operator.telemetry.logs import log

_WORKERS: Final = 16
# Each mostly waits for a server that somebody else runs.
_ASKERS: Final = 64
# What pods do, and what is answered, within this time is regarded together: hundreds of groups may
# have one health check.
_TOGETHER: Final = timedelta(seconds=1)
_REMEDY: Final = "apply that of this release"
# Bound StatefulSets are looked at this often when nothing happens.
_RESYNC: Final = timedelta(seconds=60)

_EVENTS: Final = {
    GateState.FAILING: BLOCKED_BY_HEALTH_CHECK,
    GateState.FAILED: BLOCKED_BY_HEALTH_CHECK,
    GateState.BROKEN: HEALTH_CHECK_MISCONFIGURED,
    GateState.IGNORED: HEALTH_CHECK_MISCONFIGURED,
    GateState.WARNED: HEALTH_CHECK_WARN,
}


_Answered: TypeAlias = Sequence[tuple[Question, Answers]]


class Asks(Protocol):
    """The way to Prometheus, and to the URLs of checks."""

    async def ask(self, check: HealthCheck, query: str, at: datetime) -> Answer: ...

    async def probe(self, check: HealthCheck, url: str) -> Answer: ...


class GroupSource(msgspec.Struct, frozen=True, kw_only=True):
    """The groups by label, and those of policies."""

    observe: Callable[[str], Iterator[Group]]
    """Yields at least those of which a StatefulSet is bound to a health check."""
    wake: Callable[[str], None]
    """Has at least those planned anew."""


class _Due(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a group."""

    check: HealthCheck
    questions: tuple[Question, ...]


class HealthCheckController(Feature):
    """The health checks of one namespace; without the kind there are none."""

    def __init__(self, context: Context, asker: Asks, groups: GroupSource) -> None:
        self._context, self._asker, self._groups = context, asker, groups
        namespace = context.namespace
        following = context.open("following health checks", Priority.LIST)
        recording = context.open("recording health checks", Priority.ANSWER)
        self._is_closed = asyncio.Event()
        self._store = WatchedStore()
        collection = Collection(
            resource=ROLLOUT_HEALTH_CHECKS,
            namespace=namespace,
            decode=watch_health_check,
            store=self._store,
        )
        self._kind = FollowedKind(following, collection, context.make_informer)
        self._newest = NewestObjects(self._store.get, namespace, recording, watch_health_check)
        self._writer = StatusWriter(recording, ROLLOUT_HEALTH_CHECKS, self._newest)
        self._metrics = GateMetrics(context.metrics.registry)
        self._reports = _Reports(context.events.report, self._metrics)
        self._reconciles = Reconciles(
            kind=KIND,
            attempts=context.make_attempts(),
            once=self._observe_and_record,
            name_keys=lambda name: {"health_check": f"{namespace}/{name}"},
        )
        self.controller = Controller(
            "reconcile rollout health check",
            self._reconciles.reconcile,
            workers=_WORKERS,
            rng=context.rng,
        )
        self._asking = Controller(
            "ask for rollout health checks",
            self._ask_group,
            workers=_ASKERS,
            rng=context.rng,
        )
        self.controllers = (self.controller, self._asking)
        self._due: dict[tuple[str, str], _Due] = {}
        """By health check and group."""
        self._answers: dict[str, list[tuple[WatchedHead, _Answered]]] = defaultdict(list)
        """By health check, with what it was then; until they are recorded."""
        self._unwritten: dict[str, Status] = {}
        """By health check, the last one if it could not be written."""
        self._kind.on_change(self._on_check)
        self._kind.on_news(self._wake_all_rollouts)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)

    def follow(self, tasks: TaskStack) -> None:
        tasks.start("health check informer", self._follow())

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kind.run(self._context.clock), name="health checks")
            await self._kind.wait_answered()
            for name in _list_names(self._context.sets.list_all()):
                if self._find(name) is None:
                    self._groups.wake(name)  # no object comes that would do so

    def start(self, tasks: TaskStack) -> None:
        self.wake_all()
        super().start(tasks)

    def close(self) -> None:
        self._is_closed.set()
        super().close()

    def judge(self, group: Group) -> Mapping[Uid, HealthGate]:
        """Return what health checks say of the StatefulSets of a group."""
        absence = ""
        if self._kind.is_absent or self._kind.is_forbidden:
            absence = NO_KIND
            if self._kind.is_forbidden:
                absence = "the operator may not list objects of this kind"
        elif (lack := self._find_lack()) is not None:
            return judge_unread(group, lack)
        return judge_group(group, self._find, absence, self._reconciles.get_error)

    def describe(self) -> Iterator[HealthCheck | FlawedHealthCheck]:
        for watched in sorted(self._store.list_all(), key=lambda each: each.name):
            if (found := self._find(watched.name)) is not None:
                yield found

    def _find_lack(self) -> str | None:
        stale = STALE_SNAPSHOT if self._kind.age > SNAPSHOT_LIMIT else None
        return None if self._kind.is_forbidden else self._kind.lack or stale

    def _find(self, name: str) -> HealthCheck | FlawedHealthCheck | None:
        newest = self._newest.get(name)
        return None if newest is None else read_watched(newest)

    def _on_check(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        span = AT_ONCE
        if new is None:
            self._metrics.count_configuration("deleted")
        elif old is None or read_watched(old).head.generation != read_watched(new).head.generation:
            is_valid = isinstance(read_watched(new), HealthCheck)
            self._metrics.count_configuration("updated" if is_valid else "invalid")
        else:
            # Any client may write a status, as often as it likes.
            span = _TOGETHER
        for name in {version.name for version in (old, new) if version is not None}:
            self._wake(name, span)
            self._groups.wake(name)

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        # What is not recorded yet of a rollout holds it.
        span = _TOGETHER if _pick_news(old) == _pick_news(new) else AT_ONCE
        for version in (old, new):
            if version is not None:
                self._wake_bound(version, span)

    def _on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        for owner in {version.owner_uid for version in (old, new) if version is not None}:
            sts = None if owner is None else self._context.sets.get_by_uid(owner)
            if sts is not None:
                self._wake_bound(sts, _TOGETHER)

    def _wake_bound(self, sts: AnySet, span: timedelta) -> None:
        """Wake the health checks of a StatefulSet and of its group within a span."""
        members = () if sts.group is None else self._context.sets.list_group(sts.group)
        for name in _list_names((*members, sts)):
            self._wake(name, span)

    def _wake(self, name: str, span: timedelta) -> None:
        if span:
            self.controller.add_within(name, span)
        else:
            self.controller.add(name)

    def wake_all(self) -> None:
        for name in _list_names(self._context.sets.list_all()):
            self.controller.add(name)

    def _list_bound(self, name: str) -> set[str]:
        """Return the StatefulSets that are bound to a health check."""
        sets = self._context.sets.list_all()
        return {sts.name for sts in sets if isinstance(sts, StatefulSet) and find_name(sts) == name}

    def _wake_all_rollouts(self) -> None:
        for name in _list_names(self._context.sets.list_all()):
            self._groups.wake(name)

    def _observe(self, name: str) -> list[Group]:
        """Return the groups of which a StatefulSet is bound to a health check."""
        return [
            group
            for group in self._groups.observe(name)
            if any(find_name(zone.sts) == name for zone in group.zones)
        ]

    async def _observe_and_record(self, name: str) -> timedelta | None:
        if self._find_lack() is not None:
            # Of policies no update order is known: zones that were begun go first.
            return _TOGETHER
        watched = await self._newest.settle(ROLLOUT_HEALTH_CHECKS, name)
        check = None if watched is None else read_watched(watched)
        groups, found = self._observe(name), self._answers.pop(name, [])
        unwritten = self._unwritten.pop(name, None)
        if not isinstance(check, HealthCheck) or not isinstance(watched, WatchedObject):
            self._report(name, groups, _GroupSteps())
            return _RESYNC if groups else None
        # What was asked may not be what it says now.
        answers = [pair for head, pairs in found if head == check.head for pair in pairs]
        steps = _GroupSteps()
        base = check if unwritten is None else recall_seen(check, unwritten)
        plan = plan_check(base, groups, self._list_bound(name), answers, steps.enter)
        if plan.status != check.status:
            self._unwritten[name] = plan.status
            check, watched = await self._write(watched, plan.status)
            del self._unwritten[name]
            self._count(check, [question for question, _ in answers])
        for group, questions in groupby(plan.questions, key=lambda each: each.group):
            before = self._due.get((name, group))
            if before is None or before.check.head != check.head:
                self._due[name, group] = _Due(check=check, questions=(*questions,))
                self._asking.add((name, group))
        self._report(name, groups, steps)
        again = plan.again or _RESYNC
        if errors := steps.list_errors():
            self.controller.add_after(name, again)
            raise ExceptionGroup("some groups were left out", errors)
        if check.status != plan.status:
            # It would be written each second: what was dropped is missed at once.
            call = f"record all of the status of {ROLLOUT_HEALTH_CHECKS.plural}/{name}"
            raise Refused.of(call, f"its CustomResourceDefinition drops fields of it: {_REMEDY}")
        return again

    async def _ask_group(self, key: tuple[str, str]) -> Result:
        """Ask what is due of a group, and have it recorded."""
        name, _ = key
        if (due := self._due.get(key)) is None:
            return Result()
        found = await self._ask_all(due.check, due.questions)
        if not found:
            return Result()  # it is stopping
        self._answers[name].append((due.check.head, found))
        if self._due[key] is due:
            del self._due[key]
        is_last = all(other != name for other, _ in self._due)
        self._wake(name, AT_ONCE if is_last else _TOGETHER)
        return Result()

    async def _write(
        self, watched: WatchedObject, status: Status
    ) -> tuple[HealthCheck, WatchedObject]:
        """Write a status, and return the health check that results."""
        try:
            written = await self._writer.write(watched, status)
        except NotFound as error:
            await self._newest.read_back(ROLLOUT_HEALTH_CHECKS, watched.name)
            why = f"its CustomResourceDefinition has no status: {_REMEDY}"
            raise Refused.of(error.call, why, status=error.status) from error
        finally:
            # They show why it was not written, too.
            self._groups.wake(watched.name)
        check = read_watched(written)
        assert isinstance(check, HealthCheck), "its spec is as it was"
        return check, written

    async def _ask_all(
        self, check: HealthCheck, questions: Sequence[Question]
    ) -> Sequence[tuple[Question, Answers]]:
        """Return what came of questions; nothing where the process is to stop before.

        Servers may take longer than a process has to stop, and to release its Lease.
        """
        answers: list[tuple[Question, Answers]] = []

        async def ask() -> None:
            answers.extend(await gather_all(self._ask(check, each) for each in questions))

        await race(asked=ask(), closed=self._is_closed.wait())
        return answers

    async def _ask(self, check: HealthCheck, question: Question) -> tuple[Question, Answers]:
        """Return what came of a question; what follows from no number is not asked."""
        own = question.check
        if own.http:
            probe = self._asker.probe(check, own.http)
            return question, Answers(await self._time(question, "current", probe))
        current, baseline = await gather_all(
            self._time(question, part, self._asker.ask(check, query, at))
            for part, query, at in (
                ("current", question.current, question.at),
                ("baseline", question.baseline, question.baseline_at),
            )
        )
        if not isinstance(current, Number) or not isinstance(baseline, Number):
            return question, Answers(current, baseline)
        query = compose_success(own, current, baseline)
        success = await self._time(question, "success", self._asker.ask(check, query, question.at))
        return question, Answers(current, baseline, success)

    async def _time(self, question: Question, part: str, asking: Awaitable[Answer]) -> Answer:
        clock = self._context.clock
        begun = clock.elapsed()
        answer = await asking
        took = clock.elapsed() - begun
        self._metrics.record_query(question.group, question.check.name, part, took)
        return answer

    def _count(self, check: HealthCheck, questions: Sequence[Question]) -> None:
        for question in questions:
            for state in check.status.find(question.group).checks:
                if state.name == question.check.name and state.result is not None:
                    self._metrics.count_evaluation(question.group, state.name, state.result)

    def _report(self, name: str, groups: Sequence[Group], steps: "_GroupSteps") -> None:
        found = self._find(name)
        checks = {one.name for one in found.checks} if isinstance(found, HealthCheck) else set()
        judged: list[tuple[Group, Mapping[Uid, HealthGate]]] = []
        for group in groups:
            with steps.enter(group.name):
                judged.append((group, self.judge(group)))
        self._reports.on_groups(name, checks, judged)


class _GroupSteps:
    """One step for each group: a bug in that of one group stops no other."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, GuardedStep]] = []

    def enter(self, group: str) -> GuardedStep:
        self._steps.append((group, GuardedStep()))
        return self._steps[-1][1]

    def list_errors(self) -> list[Exception]:
        for group, step in self._steps:
            if step.error is not None:
                step.error.add_note(f"of group {group}")
        return [step.error for _, step in self._steps if step.error is not None]


class _Reports:
    """Writes Events and metrics, each Event once for as long as it stays true."""

    def __init__(self, record: Callable[[EventRecord], None], metrics: GateMetrics) -> None:
        self._record, self._metrics = record, metrics
        self._said: dict[Uid, tuple[str, str]] = {}
        """By StatefulSet, the reason of its last Event, and what makes it another one."""
        self._groups: dict[str, tuple[set[str], set[str]]] = {}
        """By health check, with the names of its checks."""

    def on_groups(
        self,
        name: str,
        checks: set[str],
        judged: Sequence[tuple[Group, Mapping[Uid, HealthGate]]],
    ) -> None:
        for group, gates in judged:
            waiting = {
                zone.sts.uid: zone.sts
                for zone in order_zones(group.zones)
                if find_name(zone.sts) and not is_paused(zone.sts)
                if any(pod.revision != zone.sts.update_revision for pod in zone.own_pods)
            }
            # Of the zones that wait, the next one says enough.
            held = [uid for uid in waiting if uid in gates and gates[uid].state.holds]
            for uid in [zone.sts.uid for zone in order_zones(group.zones)]:
                sts = None if uid in held[1:] else waiting.get(uid)
                self._report(uid, sts, gates.get(uid), group.now)
            states = {gates[uid].state for uid in waiting if uid in gates}
            self._metrics.show_group(
                group.name,
                is_blocked=any(state.holds for state in states),
                is_misconfigured=bool(states & {GateState.IGNORED, GateState.BROKEN}),
            )
        self._groups.pop(name, None)
        if judged:
            self._groups[name] = {group.name for group, _ in judged}, checks
        kept: dict[str, set[str]] = {}
        for groups, names in self._groups.values():
            for each in groups:
                kept[each] = kept.get(each, set()) | names
        self._metrics.keep(kept)

    def _report(
        self, uid: Uid, sts: StatefulSet | None, gate: HealthGate | None, now: datetime
    ) -> None:
        """Report what holds a StatefulSet with outdated pods, or should."""
        if sts is None:
            self._said.pop(uid, None)
            return
        reason = "" if gate is None else _EVENTS.get(gate.state, "")
        text = f"{sts.name} {gate.text}" if gate is not None else ""
        said = (reason, (gate.stable_text or gate.text) if gate is not None else "")
        if is_bypassed(sts, now):
            until = sts.annotations[HEALTH_CHECK_BYPASS]
            reason, said = HEALTH_CHECK_BYPASSED, (HEALTH_CHECK_BYPASSED, until)
            text = f"{sts.name} is begun without its RolloutHealthCheck until {until}"
        if not reason or self._said.get(uid) == said:
            return
        self._said[uid] = said
        log.warn("Health check", statefulset=sts.name, reason=reason, why=text)
        self._record(
            EventRecord(
                regarding=regard(EventKind.STATEFULSET, sts),
                action=EventAction.WAIT
                if reason == BLOCKED_BY_HEALTH_CHECK
                else EventAction.ROLL_OUT,
                reason=reason,
                note=text,
                severity=Severity.WARN,
            )
        )


def _pick_news(sts: AnySet | None) -> object:
    """Return what of a StatefulSet begins or ends a rollout, or decides who goes on."""
    if not isinstance(sts, StatefulSet):
        return sts
    return sts.uid, sts.update_revision, sts.labels, sts.annotations


def _list_names(sets: Iterable[AnySet]) -> set[str]:
    """Return the health checks that StatefulSets are bound to."""
    return {find_name(sts) for sts in sets if isinstance(sts, StatefulSet)} - {""}
