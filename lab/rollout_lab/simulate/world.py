"""The copy of a group in a simulated world: how it begins, what happens to it, when it rests.

What people may request is decided in `changes`, what pods do in `times`, what is reported of it all
in `report`. A new pod gets the node that the pod of its name had, another node where that is
cordoned, and none where there is no room.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from rollout_lab.controllers.members import is_running_and_ready, restored_revisions
from rollout_lab.drains import EVICTION, Draining, evict
from rollout_lab.model.fields import child, children, is_terminating, name_of, text, uid_of
from rollout_lab.model.history import Called, Commit, History, Record, Reviewed
from rollout_lab.model.request import (
    STRATEGIC_PATCH,
    ApiAnswer,
    ApiRequest,
    NotModelled,
    create,
    patch,
)
from rollout_lab.nodes.kubelet import SCHEDULER
from rollout_lab.nodes.pods import is_cordoned, node_of
from rollout_lab.process import RESTART_PAUSE, SYNC_LIMIT, SimulatedProcess
from rollout_lab.schemas.kinds import NODES, REPLICA_TEMPLATES
from rollout_lab.simulate.changes import (
    Change,
    Cordon,
    DeletePod,
    EvictPod,
    KillOperator,
    Names,
    NewImage,
    NewTemplate,
    NoRoom,
    Pause,
    PodFails,
    PodRecovers,
    ScaleChange,
    map_declared,
)
from rollout_lab.simulate.dump import Dump
from rollout_lab.simulate.flags import LONGEST_RUN, LONGEST_SPAN, SimulateSettings
from rollout_lab.simulate.gates import DeclaredGates, DeclareGate, measure_patience
from rollout_lab.simulate.objects import WEBHOOKS, read_delay
from rollout_lab.simulate.policies import PolicyEdit, read_next_batch, render_edit
from rollout_lab.simulate.times import CHANGE_MARK, CRASHES, PodTimes, choose_behaviour
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MULTI_AZ_ROLLOUTS,
    PODS,
    ROLLOUT_HEALTH_CHECKS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.description import Description
from rollout_operator.model.names import PAUSED, OperatorError
from rollout_operator.model.outcome import Code
from rollout_operator.model.policy import WatchedPolicy
from rollout_operator.planning.readiness import read_soak

_PLACE: Final = re.compile(r"; (?:\d+ evictions? ahead|the next eviction in line)$")
# Where pods go whose node is not known, or is cordoned: nothing is known of other nodes.
ELSEWHERE: Final = "another-node"


class Places(msgspec.Struct, kw_only=True):
    """Which node each new pod gets."""

    homes: Mapping[str, str]
    """The node of each pod of the input."""
    say: Callable[[str, str], None]
    """Has the readers of the story know what has happened, and to whom."""
    retry: Callable[[], None]
    """Has the scheduler try again for pods that wait."""
    _cordoned: set[str] = set()
    _missing: int = 0
    _waiting: set[str] = set()

    def cordon(self, nodes: Collection[str]) -> None:
        """Place no pod on these nodes any more."""
        self._cordoned.update(nodes)

    def limit(self, pods: int) -> None:
        """Place so many pods nowhere; those that wait already count."""
        self._missing = pods
        self._waiting.clear()
        self.retry()

    def choose(self, pod: JsonObject) -> str | None:
        """Return the node that a pod gets, None where it waits."""
        name = name_of(pod)
        if name in self._waiting:
            return None
        if len(self._waiting) < self._missing:
            self._waiting.add(name)
            self.say(SCHEDULER, f"no room for {name}: it waits for a node")
            return None
        home = self.homes.get(name, ELSEWHERE)
        return ELSEWHERE if home in self._cordoned else home


def drop_repeats(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records without evictions that are refused once more for the same reason.

    Of a pod that is down, its state in parentheses changes, and with it the place in the line.
    """
    last: dict[str, tuple[int, str]] = {}
    repeated: set[int] = set()
    for record in records:
        if isinstance(record, Called) and record.request.subresource == EVICTION:
            reason = (record.status, record.message.partition(" (")[0])
            if record.status >= 400 and last.get(record.request.name) == reason:
                repeated.add(record.number)
            last[record.request.name] = reason
    for record in records:
        match record:
            case Called(number=call) | Reviewed(call=call) if call in repeated:
                pass
            case Reviewed():
                # How many are ahead differs for pods that are refused together.
                yield replace(record, message=_PLACE.sub("", record.message))
            case _:
                yield record


PERSON: Final = "you"


@dataclass(slots=True, kw_only=True)
class People:
    """Those who change things."""

    sandbox: Sandbox
    names: Names
    operator: SimulatedProcess
    places: Places
    gates: DeclaredGates
    begin: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    """Starts what goes on beside later changes; the caller is its parent."""
    _begun: list[asyncio.Task[None]] = field(default_factory=list)
    _drains: list[Draining] = field(default_factory=list)
    _refused: list[str] = field(default_factory=list)
    """A sentence for each change that the API server refused."""
    _marks: int = 0

    async def apply(self, change: Change) -> None:
        """Let one change happen now; what is refused is part of the story."""
        self.sandbox.say(PERSON, change.text)
        for answer in await self._carry_out(change):
            if not answer.is_ok:
                self._refused.append(f"{change.text} was refused: {answer.explanation}")

    async def _carry_out(self, change: Change) -> Sequence[ApiAnswer]:
        """Do what it says; return what the API server answers, where it was called."""
        match change.deed:
            case NewTemplate(zones=zones, is_bad=is_bad):
                self._marks += 1
                mark = f"{CRASHES if is_bad else ''}{self._marks}"
                return await self._send(_mark(zone, mark) for zone in self.names.expand(zones))
            case NewImage(image=image, zones=zones):
                return await self._send(
                    self._change_image(zone, image) for zone in self.names.expand(zones)
                )
            case ScaleChange(zone=zone, replicas=replicas):
                resource = STATEFULSETS if zone in self.names.zones else REPLICA_TEMPLATES
                count: JsonObject = {"spec": {"replicas": replicas}}
                return await self._send([patch(resource, zone, count, subresource="scale")])
            case Pause(zone=zone, is_paused=is_paused) if self.names.is_policy(zone):
                return await self._send([render_edit(PolicyEdit(zone, "paused", is_paused))])
            case Pause(zone=zone, is_paused=is_paused):
                annotations = {PAUSED: "true" if is_paused else None}
                body: JsonObject = {"metadata": {"annotations": annotations}}
                zones = self.names.expand([zone])
                return await self._send(patch(STATEFULSETS, name, body) for name in zones)
            case PolicyEdit() as edit:
                return await self._send([render_edit(edit)])
            case DeletePod(pod=pod):
                return await self._send([ApiRequest(verb="delete", resource=PODS, name=pod)])
            case EvictPod(pod=pod):
                return [await evict(self.sandbox, pod, PERSON)]
            case Cordon() as cordon:
                self._cordon(change, cordon)
            case DeclareGate() as deed:
                self.gates.declare(deed)
            case NoRoom(pods=pods):
                self.places.limit(pods)
            case KillOperator():
                self._begun.append(self.begin(self._kill_operator()))
            case PodFails(pod=pod):
                self._disturb(pod, is_well=False)
            case PodRecovers(pod=pod):
                self._disturb(pod, is_well=True)
            case _:
                assert_never(change.deed)
        return ()

    def stop(self) -> tuple[str, ...]:
        """End what still goes on; return what is not done then."""
        for task in self._begun:
            task.cancel()
        rest = (line for drain in self._drains for line in drain.describe_rest())
        return (*self._refused, *rest)

    def _cordon(self, change: Change, cordon: Cordon) -> None:
        nodes = self.names.list_nodes(cordon)
        self.places.cordon(nodes)
        if cordon.is_drain:
            drain = Draining(sandbox=self.sandbox, what=change.text, nodes=nodes, actor=PERSON)
            self._drains.append(drain)
            self._begun.append(self.begin(drain.run()))

    async def _kill_operator(self) -> None:
        self.operator.crash("killed by you")
        await asyncio.sleep(RESTART_PAUSE.total_seconds())
        self.sandbox.say(self.operator.name, "is started again by the kubelet")
        self.operator.start()

    async def _send(self, requests: Iterable[ApiRequest]) -> list[ApiAnswer]:
        return [
            await self.sandbox.api.call(
                replace(request, namespace=self.sandbox.namespace, user=PERSON)
            )
            for request in requests
        ]

    def _change_image(self, zone: str, image: str) -> ApiRequest:
        sts = self.sandbox.api.get(STATEFULSETS, self.sandbox.namespace, zone) or {}
        first = text(children(sts, "spec", "template", "spec", "containers")[0], "name")
        spec = {"containers": [{"name": first, "image": image}]}
        # What crashed did so with another image.
        head = {"annotations": {CHANGE_MARK: None}}
        body: JsonObject = {"spec": {"template": {"metadata": head, "spec": spec}}}
        return patch(STATEFULSETS, zone, body, kind=STRATEGIC_PATCH)

    def _disturb(self, pod: str, *, is_well: bool) -> None:
        cluster = self.sandbox.cluster
        found = self.sandbox.api.get(PODS, self.sandbox.namespace, pod) or {}
        if is_well and text(found, "status", "phase") == "Pending":
            self.sandbox.say(PERSON, f"{pod} has not started at that time: nothing is done")
            return
        try:
            if is_well:
                cluster.mend_pod(pod)
            else:
                cluster.fail_pod(pod)
        except LookupError:
            self.sandbox.say(PERSON, f"{pod} is not there at that time: nothing is done")


def _mark(zone: str, mark: str) -> ApiRequest:
    """Return the request that makes a new revision, as `kubectl rollout restart` does."""
    head = {"annotations": {CHANGE_MARK: mark}}
    return patch(STATEFULSETS, zone, {"spec": {"template": {"metadata": head}}})


OPERATOR: Final = "operator"
RESTORER: Final = "the input"
# Longer than the operator's own resync, after which nothing new would happen.
QUIET: Final = timedelta(minutes=10)
# Waits that end by themselves, perhaps hours later: something follows.
_TIMED: Final = frozenset({Code.ZONE_DOWNSCALED_LATELY, Code.DELAYED_BY_PODS, Code.ZONE_LEFT_SHORT})
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
        gates = DeclaredGates(map_declared(settings.changes))
        sandbox = Sandbox(
            seed=settings.seed,
            choose=choose,
            namespace=dump.namespace,
            epoch=epoch,
            asker=gates,
        )
        with sandbox.listening():
            return await _Run(sandbox, gates, dump, settings, times, limit).run()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        try:
            return runner.run(begin())
        except NotModelled as error:
            raise NotPlayed(str(error)) from None


class _Run:
    def __init__(
        self,
        sandbox: Sandbox,
        gates: DeclaredGates,
        dump: Dump,
        settings: SimulateSettings,
        times: PodTimes,
        limits: RunLimits,
    ) -> None:
        self._sandbox = sandbox
        self._gates = gates
        self._dump = dump
        self._settings = settings
        self._times = times
        self._limits = limits
        available = timedelta(seconds=max(sts.decoded.min_ready_seconds for sts in dump.sets))
        delays = [*map(read_delay, dump.others_of(ZONE_BUDGETS))]
        delays += [read_soak(sts.decoded).span for sts in dump.sets]
        delays.append(measure_patience(dump.others_of(ROLLOUT_HEALTH_CHECKS), limits.span))
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
                gates=self._gates,
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
            for revision in restored_revisions(sts.obj, is_seen=sts.is_seen, images=sts.images):
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
            await self._sandbox.call(create(resource, body, user=RESTORER))

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
