"""The copy of a group in a simulated world: how it begins, what happens to it, when it rests.

What pods do is decided in `times`, what people do in `people`, what is reported of it
all in `report`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from rollout_lab.controllers.members import is_running_and_ready, restored_revisions
from rollout_lab.model.fields import child, children, is_terminating, name_of, text, uid_of
from rollout_lab.model.history import Commit, History, Record
from rollout_lab.model.request import ApiRequest, NotModelled
from rollout_lab.nodes.pods import is_cordoned, node_of
from rollout_lab.process import SYNC_LIMIT, SimulatedProcess
from rollout_lab.schemas.kinds import NODES
from rollout_lab.simulate.dump import Dump
from rollout_lab.simulate.flags import LONGEST_RUN, LONGEST_SPAN, SimulateSettings
from rollout_lab.simulate.objects import WEBHOOKS, read_delay
from rollout_lab.simulate.people import People, Places, drop_repeats
from rollout_lab.simulate.policies import read_next_batch
from rollout_lab.simulate.times import PodTimes, choose_behaviour
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MULTI_AZ_ROLLOUTS,
    PODS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.description import Description
from rollout_operator.model.names import OperatorError
from rollout_operator.model.outcome import Code
from rollout_operator.model.policy import WatchedPolicy

OPERATOR: Final = "operator"
RESTORER: Final = "the input"
# Longer than the operator's own resync, after which nothing new would happen.
QUIET: Final = timedelta(minutes=10)
# Waits that end by themselves, perhaps hours later: something follows.
_TIMED: Final = frozenset({Code.ZONE_DOWNSCALED_LATELY, Code.DELAYED_BY_PODS})
# After which a policy has been looked at again.
_RESYNC: Final = timedelta(minutes=1)
# Until kubelets have had their look at pods that they would start.
_KUBELETS_SEE_IT: Final = timedelta(milliseconds=45)


class NotPlayed(OperatorError):
    """The simulation itself has failed; the text says at what."""


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is enough: a world that never rests is left after it."""

    span: timedelta = LONGEST_RUN
    records: int = 100_000
    """What a week at rest has, and more: a world in turmoil is left sooner."""
    records_per_pod: int = 500
    """Ten times what the replacement of a pod takes."""
    watch: Callable[[Record], None] | None = None
    """Is given each record at once, so that a person can be told how far it has come."""


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened."""

    history: History
    description: Description
    """How the operator describes the namespace in the end."""
    ended_at: timedelta
    """When the operator was told to stop."""
    moved_at: timedelta
    """When something has moved for the last time."""
    is_cut: bool
    """Whether it still moved when the simulation ended."""
    undone: tuple[str, ...] = ()
    """What of the changes was not done then, a sentence each."""


def play(
    dump: Dump,
    settings: SimulateSettings,
    times: PodTimes,
    epoch: datetime,
    limits: RunLimits | None = None,
) -> Play:
    """Run the operator on a copy until nothing moves any more. Raises NotPlayed."""
    choose = choose_behaviour(dump, times)
    limit = limits or RunLimits(span=settings.until or LONGEST_RUN)

    async def begin() -> Play:
        sandbox = Sandbox(seed=settings.seed, choose=choose, namespace=dump.namespace, epoch=epoch)
        with sandbox.listening():
            return await _Run(sandbox, dump, settings, times, limit).run()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        try:
            return runner.run(begin())
        except NotModelled as error:
            raise NotPlayed(str(error)) from None


class _Run:
    def __init__(
        self,
        sandbox: Sandbox,
        dump: Dump,
        settings: SimulateSettings,
        times: PodTimes,
        limits: RunLimits,
    ) -> None:
        self._sandbox = sandbox
        self._dump = dump
        self._settings = settings
        self._times = times
        self._limits = limits
        available = timedelta(seconds=max(sts.decoded.min_ready_seconds for sts in dump.sets))
        delays = map(read_delay, dump.others_of(ZONE_BUDGETS))
        deadlines = [policy.policy.progress_deadline for policy in dump.policies if policy.policy]
        self._quiet = max(
            QUIET,
            3 * times.slowest + available,
            QUIET + max(delays, default=timedelta(0)),
            # Whether a batch has stalled is told by then.
            min(max(deadlines, default=timedelta(0)) + _RESYNC, LONGEST_SPAN),
        )
        self._moved_at = timedelta(0)
        self._left = limits.records + limits.records_per_pod * len(dump.names().pods)
        self._is_over = asyncio.Event()
        self._error: BaseException | None = None
        """What went wrong in a step of the world, where no task waits for it."""

    async def run(self) -> Play:
        """Let the changes happen, and return how it went once all is at rest, or over."""
        asyncio.get_running_loop().set_exception_handler(self._fail)
        self._restore()
        try:
            return await self._live()
        except ExceptionGroup as errors:
            raise _first_of(errors) from None

    async def _live(self) -> Play:
        places = self._place_pods()
        async with self._sandbox as sandbox, asyncio.TaskGroup() as tasks:
            await self._register()
            await self._keep_waiting()
            process = sandbox.process(OPERATOR, args=self._list_flags(), webhooks=True)
            process.start()
            await self._wait_ready(process)
            sandbox.history.listeners.append(self._watch)
            if self._limits.watch is not None:
                sandbox.history.listeners.append(self._limits.watch)
            people = People(
                sandbox=sandbox,
                names=self._dump.names(),
                operator=process,
                places=places,
                begin=tasks.create_task,
            )
            await self._make(people)
            is_cut = await self._rest(process)
            undone = people.stop()
            ended_at, description = sandbox.elapsed(), await process.describe()
            await process.stop()
            await process.link.ground()
        return Play(
            history=History(records=list(drop_repeats(sandbox.history.records))),
            description=description,
            ended_at=ended_at,
            moved_at=self._moved_at,
            is_cut=is_cut,
            undone=undone,
        )

    def _restore(self) -> None:
        """Put everything into the store, as it was before any process there reads."""
        put = self._sandbox.api.put
        for sts in self._dump.sets:
            for revision in restored_revisions(sts.obj, is_seen=sts.is_seen):
                put(_with_uid(revision), actor=RESTORER)
            put(sts.obj, actor=RESTORER)
        for pod in self._dump.pods:
            put(pod.obj, actor=RESTORER)
        for other in self._dump.others:
            put(other, actor=RESTORER)

    def _list_flags(self) -> Sequence[str]:
        """Return the flags that the objects of the input call for."""
        trackers = [name_of(other) for other in self._dump.others_of(CONFIG_MAPS)]
        names = [f"-zone-tracker.config-map-name={name}" for name in trackers[:1]]
        tracking = ["-use-zone-tracker=true", *names] if names else []
        return [*tracking, *(["-multi-az-rollouts.enabled"] if self._dump.obeys else [])]

    def _list_policies(self) -> Iterator[WatchedPolicy]:
        for rollout in self._sandbox.api.list(MULTI_AZ_ROLLOUTS, self._dump.namespace):
            yield decode_watched_policy(msgspec.json.encode(rollout))

    def _place_pods(self) -> Places:
        cluster = self._sandbox.cluster
        homes = {pod.decoded.name: node for pod in self._dump.pods if (node := node_of(pod.obj))}
        places = Places(homes=homes, say=self._sandbox.say, retry=cluster.retry_unscheduled)
        places.cordon(
            [name_of(other) for other in self._dump.others_of(NODES) if is_cordoned(other)]
        )
        cluster.place_by(places.choose)
        return places

    async def _register(self) -> None:
        """Register those of the operator's webhooks of which the input does not tell."""
        for body in self._dump.list_untold_hooks() if self._settings.webhooks else ():
            [resource] = [kind for kind in WEBHOOKS if kind.kind == body["kind"]]
            request = ApiRequest(verb="create", resource=resource, body=body, user=RESTORER)
            await self._sandbox.call(request)

    async def _keep_waiting(self) -> None:
        """Let pods wait on for what they wait for: a kubelet takes up all that wait, as new pods.

        An image that cannot be pulled is none that is being pulled.
        """
        waiting = [pod for pod in self._times.stuck if pod.decoded.phase in ("", "Pending")]
        if waiting:
            await self._sleep(_KUBELETS_SEE_IT)
        for each in waiting:
            self._sandbox.api.put(each.obj, actor=RESTORER)

    async def _wait_ready(self, process: SimulatedProcess) -> None:
        try:
            async with asyncio.timeout(SYNC_LIMIT.total_seconds()):
                await process.wait_ready()
        except TimeoutError:
            raise NotPlayed("the operator does not become ready") from None

    async def _make(self, people: People) -> None:
        for at, change in self._settings.changes:
            await self._sleep(at - self._sandbox.elapsed())
            self._moved_at = self._sandbox.elapsed()
            await people.apply(change)

    async def _rest(self, process: SimulatedProcess) -> bool:
        """Wait until nothing has moved for a while, and nothing waits for its time any more.

        Return whether it was cut off before.
        """
        while (rest := self._compute_rest(process)) > timedelta(0):
            left = self._limits.span - self._sandbox.elapsed()
            if left <= timedelta(0) or self._is_over.is_set():
                return True
            await self._sleep(min(rest, left))
        return False

    def _compute_rest(self, process: SimulatedProcess) -> timedelta:
        """Return after which time it may be at rest; zero or less: it is."""
        rest = self._moved_at + self._quiet - self._sandbox.elapsed()
        waits = [wait.code for entry in process.entries() for wait in entry.plan.waits]
        is_timed = _TIMED.intersection(waits) or self._is_in_pause()
        return max(rest, QUIET) if is_timed else rest

    def _is_in_pause(self) -> bool:
        """Return whether the next batch of a policy has its time."""
        now = self._sandbox.clock().now()
        return any(read_next_batch(policy) > now for policy in self._list_policies())

    async def _sleep(self, span: timedelta) -> None:
        """Let the world go on for a while, unless it is over. Raises NotPlayed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(span.total_seconds(), 0)):
                await self._is_over.wait()
        if self._error is not None:
            raise NotPlayed(f"the simulation has failed: {self._error}") from None

    def _watch(self, record: Record) -> None:
        if isinstance(record, Commit) and _is_move(record):
            self._moved_at = record.at
        self._left -= 1
        if self._left < 0:
            self._is_over.set()

    def _fail(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._error is None:
            self._error = context.get("exception") or RuntimeError(str(context.get("message")))
        self._is_over.set()


def _first_of(errors: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of tasks, and of their tasks."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first


def _with_uid(revision: JsonObject) -> JsonObject:
    """Return a revision with a UID of its own, as it was not copied; any other will do."""
    head = child(revision, "metadata")
    return {**revision, "metadata": {**head, "uid": f"restored-{text(head, 'name')}"}}


def _is_move(commit: Commit) -> bool:
    """Return whether a write is more than bookkeeping."""
    if commit.resource not in (PODS, STATEFULSETS):
        return False
    before, after = commit.before, commit.after
    return (
        before is None
        or after is None
        or _stable_text(commit.resource, before) != _stable_text(commit.resource, after)
    )


def _stable_text(resource: Resource, obj: JsonObject) -> tuple[object, ...]:
    if resource == PODS:
        states = [child(state, "state") for state in children(obj, "status", "containerStatuses")]
        problems = [text(state, "waiting", "reason") for state in states]
        return (uid_of(obj), is_terminating(obj), is_running_and_ready(obj), problems)
    status = child(obj, "status")
    revisions = (text(status, "updateRevision"), text(status, "currentRevision"))
    return (child(obj, "metadata").get("generation"), *revisions, is_terminating(obj))
