"""The features of one namespace share a `Context`: its clients, caches, locks and records.

The namespaces of one process share a `Process`: clients, clock, election, and whether it is
stopping. Each feature takes its context whole and adds its own callbacks. Events are written in the
background, and nothing waits for them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, cast

import msgspec

from rollout_operator.aio.clock import Clock, refine_time
from rollout_operator.aio.queue import AT_ONCE, Recent, WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.flags import Config
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.worker import Attempts, Controller, Waker
from rollout_operator.guards.departed import GROUP, DepartedZones
from rollout_operator.guards.downscales import AnnotationTimes, Downscales
from rollout_operator.guards.grants import InFlight, OwnDeletes
from rollout_operator.guards.newcomers import SeenNewcomers
from rollout_operator.guards.tracker import DownscaleTimes, Tracker
from rollout_operator.guards.turns import Locks
from rollout_operator.kube.api import PODS, STATEFULSETS, ApiClient, Fence, Resource, no_fence
from rollout_operator.kube.election import Election
from rollout_operator.kube.events import EventSender
from rollout_operator.kube.informer import Collection, Informer, ObjectSource
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.scales import References
from rollout_operator.kube.store import AnyBudget, Cached, PodStore, StatefulSetStore, Store
from rollout_operator.model.budget import EventAction, EventRecord
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.description import ELECTION_PART
from rollout_operator.model.lease import Identity
from rollout_operator.model.names import GroupName, Throttled, TooManyRequests, Uid, Unreachable
from rollout_operator.model.objects import Group, HealthGate, OtherRollout, Pod, StatefulSet
from rollout_operator.model.outcome import Code, Plan, RecordRevision, Replacement, Verdict
from rollout_operator.model.scaling import Review, Scalable, ScaleZone
from rollout_operator.planning.events import (
    Choice,
    ReportedGroup,
    choose_budget_event,
    choose_delete_events,
    choose_finish_events,
    choose_revision_events,
    choose_wait_events,
    choose_zone_events,
    is_reported,
    next_wait_report,
    record_waits,
    render_held,
    render_refused_downscale,
    render_scaled,
)
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from rollout_operator.pods import PodClient, Sender
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import GroupState, GroupStates, Metrics, Subject
from rollout_operator.telemetry.states import Health

if TYPE_CHECKING:
    from rollout_operator.kube.nodes import FollowedNodes
    from rollout_operator.outbound import Outbound

FindOther: TypeAlias = Callable[[GroupName, Sequence[StatefulSet]], OtherRollout | None]
# Dozens of namespaces begin at the same time, and a page of pods is about 5 MB. One namespace lists
# its StatefulSets and its pods at once.
_PAGES: Final = 2
# The group that was used longest ago is forgotten first.
MOST_GROUPS: Final = 4096
_NOTHING: Final = ReportedGroup()
_Shared = TypeVar("_Shared")
# So many time-outs after a call was given up, the pod has handled it or never will.
_LATE_TIMEOUTS: Final = 2
# A watch that fails for this long, other than by the API server's own failure, calls for a restart.
_BROKEN_LIMIT: Final = timedelta(minutes=3)


class Feature:
    """Works by controllers of its own once this process acts."""

    controllers: Sequence[Controller[Any]] = ()

    @property
    def busy(self) -> int:
        """Return how many keys are being reconciled."""
        return sum(controller.busy for controller in self.controllers)

    def start(self, tasks: TaskStack) -> None:
        for controller in self.controllers:
            tasks.start(controller.name, controller.run())

    def close(self) -> None:
        """Begin nothing new."""
        for controller in self.controllers:
            controller.close()

    async def finish(self) -> None:
        """Wait until no key is being reconciled."""
        for controller in self.controllers:
            await controller.wait_idle()


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """Access to the cluster, to pods, time and random numbers."""

    open: Callable[[str, Priority, Fence], ApiClient]
    """Opens a client of the API server for one component; all share the rate limits of the process.

    The name says what it is for: `following`, `acting`, ... The priority is that of its reads. The
    fence is called before each of its writes.
    """
    clock: Clock
    rng: Callable[[], float]
    open_pods: Callable[[str], Sender]
    """Opens a client of the pods of a namespace, with its own connections."""
    identity: Identity
    open_outbound: "Callable[[timedelta], Outbound] | None" = None
    """Opens a client of servers that tenants name, with the time limit of a request; None for
    HTTP."""
    writes_events: bool = False


class Telemetry(msgspec.Struct, frozen=True):
    """Metrics, states and health of an operator, which exist before any client."""

    metrics: Metrics
    health: Health
    group_states: GroupStates

    @classmethod
    def begin(cls, clock: Clock) -> "Telemetry":
        """Return the telemetry of a new operator; needs a running loop."""
        return cls._make(Metrics(), Health(clock), clock)

    def for_namespace(self, namespace: str, clock: Clock) -> "Telemetry":
        """Return the telemetry of one of several namespaces, with its own health."""
        return self._make(
            self.metrics.for_namespace(namespace), Health(clock, is_whole=False), clock
        )

    @classmethod
    def _make(cls, metrics: Metrics, health: Health, clock: Clock) -> "Telemetry":
        return cls(metrics, health, GroupStates(metrics, clock))


class Process:
    """One running operator, whatever namespaces it watches."""

    def __init__(self, settings: Config, clients: Clients, telemetry: Telemetry) -> None:
        self.settings = settings
        self.namespace = settings.namespace
        self.clients = clients
        self.clock = clients.clock
        self.rng = clients.rng
        self.metrics = telemetry.metrics
        self.health = telemetry.health
        self.address = clients.identity.address
        """Where other replicas reach this process, `IP:port`; empty for nowhere."""
        self.pages = asyncio.Semaphore(_PAGES)
        """Held with each page of a list of StatefulSets or pods."""
        self._shared: dict[object, object] = {}
        self.stopping_since: timedelta | None = None
        """When the stop began, on the clock's `elapsed`."""
        self.election = Election(
            self.open_unfenced("election", Priority.ANSWER),
            namespace=self.namespace,
            name=settings.lease,
            me=clients.identity,
            clock=self.clock,
            metrics=self.metrics,
            times=settings.election_times,
            is_shadow=settings.is_shadow,
        )
        if settings.lease or settings.is_shadow:
            self.health.part(ELECTION_PART, describe=self._describe_election)

    @property
    def is_stopping(self) -> bool:
        return self.stopping_since is not None

    @property
    def drives_policies(self) -> bool:
        """Return whether it acts for MultiAZRollouts."""
        return self.settings.drives_policies and not self.settings.is_shadow

    @cached_property
    def nodes(self) -> "FollowedNodes":
        """Return the nodes of the cluster, which are followed from the first use on."""
        # Not before: most operators never need it.
        from rollout_operator.kube.nodes import FollowedNodes

        client = self.open("following nodes", Priority.LIST)
        return FollowedNodes(client, self.make_informer, self.clock)

    def share(self, build: Callable[["Process"], _Shared]) -> _Shared:
        """Return what all namespaces share, as it is built for the first that needs it."""
        if build not in self._shared:
            self._shared[build] = build(self)
        return cast(_Shared, self._shared[build])

    def open(self, name: str, reads: Priority) -> ApiClient:
        """Return a client whose writes are refused unless this process leads."""
        return self.clients.open(name, reads, self.election.check)

    def open_unfenced(self, name: str, reads: Priority) -> ApiClient:
        """Return a client that every replica may write with."""
        return self.clients.open(name, reads, no_fence)

    def make_informer(
        self, client: ObjectSource, collection: Collection[Cached]
    ) -> Informer[Cached]:
        return Informer(client, collection, self.metrics, self.clock, self.rng)

    def refine_time(self, client: ApiClient) -> datetime:
        """Return the API server's time, with the fractions of a second of our own clock."""
        return refine_time(client.server_time(), self.clock.now())

    def _describe_election(self) -> str:
        """Return which process acts: only its own page shows what it does."""
        where = "" if self.election.leader is None else "; what it does is on its own page"
        return f"acts: {self.election.text}{where}"


class ReportedGroups:
    """What Events have said of each group; that of the one used longest ago is forgotten first."""

    def __init__(self, record: Callable[[EventRecord], None], clock: Clock) -> None:
        self._record, self._clock = record, clock
        self._groups: Recent[GroupName, ReportedGroup] = Recent(MOST_GROUPS)

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group: GroupName) -> ReportedGroup:
        return self._groups.get(group, _NOTHING)

    def take(self, group: GroupName, choice: Choice) -> None:
        """Record Events, and what they say."""
        reported, events = choice
        self._groups.put(group, reported)
        for event in events:
            self._record(event)

    def on_step(self, group: Group, step: Replacement | RecordRevision) -> None:
        reported = self.get(group.name)
        match step:
            case Replacement():
                now = self._clock.elapsed()
                self.take(group.name, choose_delete_events(reported, group, step, now))
            case RecordRevision():
                self.take(group.name, choose_revision_events(reported, step))

    def forget(self, group: GroupName) -> None:
        self._groups.pop(group, None)


class Events:
    """Reports steps and decisions as Kubernetes Events; does nothing without a sender."""

    def __init__(self, context: "Context", sender: EventSender | None) -> None:
        self._context, self._sender, self._clock = context, sender, context.clock
        self.reported = ReportedGroups(self.report, context.clock)
        self._waiting: WorkQueue[GroupName] = WorkQueue()
        context.group_states.on_post(self.on_post)

    def start(self, tasks: TaskStack) -> None:
        if self._sender is not None:
            tasks.start("events", self._sender.run())
            tasks.start("events of waits", self._report_waits())

    async def flush(self) -> None:
        """Write the remaining Events within a moment, once the tasks have ended."""
        if self._sender is not None:
            await self._sender.flush()

    def on_step(self, group: Group, step: Replacement | RecordRevision) -> None:
        if self._sender is not None:
            self.reported.on_step(group, step)

    def on_scaled(self, action: ScaleZone) -> None:
        self.report(render_scaled(action))

    def on_post(self, subject: Subject, plan: Plan, state: GroupState) -> None:
        """Report the end of a rollout, or what the group waits for if it still does in a while."""
        if self._sender is None:
            return
        reported = record_waits(self.reported.get(plan.group), state.plan)
        choice: Choice = (reported, ())
        if subject is Subject.ROLLOUT:
            reported, zones = choose_zone_events(reported, plan.progress or ())
            for zone in zones:
                names = {"group": plan.group, "zone": zone.regarding.name}
                log.info("Zone is rolled out", **names, reason=Code.ROLLED_OUT, why=zone.note)
            reported, ends = choose_finish_events(reported, plan, self._clock.elapsed())
            choice = (reported, (*zones, *ends))
        self.reported.take(plan.group, choice)
        self._report_wait(state)

    def on_refusal(self, review: Review, verdict: Verdict) -> None:
        """Report a refusal, at an object that is in a group or under a budget.

        Anybody who reaches the port may send a review of any object.
        """
        sender = self._sender
        if sender is None or review.dry_run or not is_reported(verdict):
            return
        if review.subresource == "eviction":
            pod = self._context.pods.get(review.namespace, review.name)
            if isinstance(pod, Pod) and sender.admit(pod.uid, EventAction.REFUSE_EVICTION):
                sender.enqueue(render_held(pod, verdict))
        elif review.resource == "statefulsets" and isinstance(review.old, Scalable):
            sts = self._context.sets.get(review.namespace, review.name)
            if not isinstance(sts, StatefulSet) or sts.uid != review.old.uid:
                return
            if sender.admit(sts.uid, EventAction.REFUSE_DOWNSCALE):
                sender.enqueue(render_refused_downscale(sts, verdict, review.user))

    def on_budget(self, old: AnyBudget | None, new: AnyBudget | None) -> None:
        """Report a budget that cannot be obeyed, or can be again."""
        if self._sender is not None and self._context.is_leading:
            self.report(choose_budget_event(old, new))

    def report_budgets(self, budgets: Iterable[AnyBudget]) -> None:
        """Report the budgets that cannot be obeyed, once this process acts."""
        for budget in budgets:
            self.report(choose_budget_event(None, budget))

    def report(self, event: EventRecord | None) -> None:
        if self._sender is not None and event is not None:
            self._sender.record(event)

    async def _report_waits(self) -> NoReturn:
        while True:
            group = await self._waiting.take()
            state = self._context.group_states.find(group)
            if state is not None and self._context.is_leading:
                self._report_wait(state)
            self._waiting.done(group)

    def _report_wait(self, state: GroupState) -> None:
        plan = state.plan
        reported = self.reported.get(plan.group)
        wait = next_wait_report(reported, plan, self._clock.now() - state.since)
        if wait is None:
            return
        if wait:
            self._waiting.add_after(plan.group, wait)
            return
        members = self._context.sets.list_group(plan.group)
        self.reported.take(plan.group, choose_wait_events(reported, plan, members))


class Context:
    def __init__(self, settings: Config, process: Process, telemetry: Telemetry) -> None:
        self.settings = settings
        self.namespace = settings.namespace
        self.process = process
        self.clock = process.clock
        self.rng = process.rng
        self.metrics = telemetry.metrics
        self.health = telemetry.health
        self.group_states = telemetry.group_states
        self.late_calls = settings.pods_timeout * _LATE_TIMEOUTS
        """How long a call may still reach a pod after its caller has given up."""
        self.has_begun = False
        """Set once controllers run, and know the grants and downscales of an earlier process."""
        self.election = process.election
        self.sets = StatefulSetStore()
        self.pods = PodStore()
        self.locks = Locks()
        self.downscales = Downscales(self.clock, late_calls=self.late_calls)
        self.deletes = OwnDeletes(self.pods, self.clock)
        self.in_flight = InFlight(self.pods, self.deletes, self.clock)
        # A list of ten thousand pods delays no delete, and no live read.
        self.following = client = self.open("following", Priority.LIST)
        self.set_informer = self._follow(client, STATEFULSETS, decode_statefulset, self.sets)
        self.pod_informer = self._follow(client, PODS, decode_pod, self.pods)
        self.arrivals = SeenNewcomers(self.sets, self.pods, self.clock)
        self.departed = DepartedZones(
            self.sets,
            self.pods,
            self.clock,
            map_going=self.in_flight.map_going,
            now=partial(self.get_time, client),
            age=lambda: self.pod_informer.age,
            seen=lambda: self.pod_informer.version,
            listed_from=lambda: self.pod_informer.listed_from,
            find_newcomers=self.arrivals.get,
        )
        self._watch_changes()
        self.events = Events(self, self._make_event_sender())
        self.find_driver: Callable[[GroupName], str | None] = lambda group: None
        """Returns the MultiAZRollout that replaces the pods of a group."""
        self.find_other_rollout: FindOther = lambda group, sets: None
        """Returns the rollout of a group by another operator."""
        self.find_gates: Callable[[Group], Mapping[Uid, HealthGate]] = lambda group: {}
        """Returns what health checks say of the StatefulSets of a group."""

    @property
    def is_stopping(self) -> bool:
        return self.process.is_stopping

    @property
    def is_leading(self) -> bool:
        """Return whether this process decides, and knows all that it needs to."""
        return self.has_begun and self.election.may_act

    def open(self, name: str, reads: Priority) -> ApiClient:
        """Return a client whose writes are refused unless this process leads."""
        return self.process.open(name, reads)

    def open_unfenced(self, name: str, reads: Priority) -> ApiClient:
        """Return a client that every replica may write with."""
        return self.process.open_unfenced(name, reads)

    @property
    def age(self) -> timedelta:
        """Return the age of the caches of StatefulSets and pods."""
        return max(self.set_informer.age, self.pod_informer.age)

    async def wait_known(self) -> None:
        await self.set_informer.wait_synced()
        await self.pod_informer.wait_synced()

    def find_lack(self) -> str | None:
        """Return why StatefulSets or pods are not known yet."""
        return _describe_unsynced(self.set_informer) or _describe_unsynced(self.pod_informer)

    def on_stale(self, callback: Callable[[], None]) -> None:
        """Call back when these caches become too old to decide by."""
        self.set_informer.staleness.add(SNAPSHOT_LIMIT, callback)
        self.pod_informer.staleness.add(SNAPSHOT_LIMIT, callback)

    def wake_groups(self, waker: Waker) -> None:
        """Wake groups by changes of pods, and by what else they are decided on."""
        self.pod_informer.on_change(waker.on_pod)
        self.departed.on_change(GROUP, lambda name: waker.add(GroupName(name), AT_ONCE))
        # They wait for the caches now; else they would show their last state until a resync.
        self.on_stale(waker.wake_all)

    def refresh(self, cause: str) -> None:
        self.set_informer.refresh(cause)
        self.pod_informer.refresh(cause)

    def get_time(self, client: ApiClient) -> datetime:
        """Return the API server's time; before its first answer ours, which may be wrong."""
        return client.server_time() or self.clock.now()

    def make_observer(self, client: ApiClient) -> Observer:
        return Observer(
            namespace=self.namespace,
            reader=client,
            clock=self.clock,
            sets=self.sets,
            pods=self.pods,
            watches=(self.set_informer, self.pod_informer),
            in_flight=self.in_flight,
            now=partial(self.get_time, client),
            find_downscale=self.downscales.find_underway,
            find_newcomers=self.arrivals.get,
            find_driver=lambda group: self.find_driver(group),
            find_gates=lambda group: self.find_gates(group),
            find_departed=lambda group, live: self.departed.list_zones((GROUP, group), live),
        )

    def make_records(self, client: ApiClient) -> DownscaleTimes:
        if not self.settings.zone_tracker:
            return AnnotationTimes(client, self.downscales)
        return Tracker(
            client,
            self.downscales,
            namespace=self.namespace,
            name=self.settings.zone_tracker,
            now=partial(self.get_time, client),
        )

    def make_attempts(self) -> Attempts:
        return Attempts(self.clock, longest=self.settings.reconcile_interval, rng=self.rng)

    def make_references(self, reader: ApiClient) -> References:
        """Return the objects that zones mirror, which are read by `reader`."""
        return References(
            # Many objects that cannot be watched may take all tokens: all other reads go first.
            self.open("mirroring", Priority.LIST),
            self.namespace,
            reader=reader,
            reconcile_interval=self.settings.reconcile_interval,
            clock=self.clock,
            rng=self.rng,
        )

    def make_pod_client(self) -> PodClient:
        return PodClient(
            self.process.clients.open_pods(self.namespace),
            timeout=self.settings.pods_timeout,
            fence=self.election.check,
            metrics=self.metrics,
            clock=self.clock,
        )

    def make_informer(
        self, client: ObjectSource, collection: Collection[Cached]
    ) -> Informer[Cached]:
        return Informer(client, collection, self.metrics, self.clock, self.rng)

    def _make_event_sender(self) -> EventSender | None:
        """Return the writer of Events, unfenced: what this process has done stays true."""
        if self.settings.is_shadow or not self.process.clients.writes_events:
            return None
        client = self.open_unfenced("events", Priority.RECORD)
        return EventSender(
            client,
            instance=self.process.clients.identity.name,
            controller=self.settings.operator_name,
            now=partial(self.get_time, client),
            clock=self.clock,
            metrics=self.metrics,
        )

    def make_name(self) -> str:
        """Return a name for a writer of records that no other process of the namespace has."""
        return f"{self.rng():.16f}"[2:]

    def _follow(
        self,
        client: ApiClient,
        resource: Resource,
        decode: Callable[[bytes | msgspec.Raw], Cached],
        store: Store[Cached],
    ) -> Informer[Cached]:
        of: Collection[Cached] = Collection(
            resource=resource,
            namespace=self.namespace,
            decode=decode,
            store=store,
            slots=self.process.pages,
        )
        informer = self.make_informer(client, of)
        self.health.part(
            f"{resource.plural} watch",
            is_ready=partial(_describe_unsynced, informer),
            is_alive=partial(_describe_broken, informer),
            describe=partial(_describe_age, informer),
        )
        return informer

    def _watch_changes(self) -> None:
        """Connect records to changes; departures before arrivals are forgotten."""
        arrivals, departed = self.arrivals, self.departed
        self.set_informer.on_change(departed.on_set)
        self.pod_informer.on_change(departed.on_pod)
        self.set_informer.on_change(arrivals.on_set)
        self.pod_informer.on_change(arrivals.on_pod)
        self.sets.on_replaced(lambda: arrivals.on_list(self.set_informer.age))
        self.pods.on_replaced(lambda: arrivals.on_list(self.pod_informer.age))


def _describe_unsynced(informer: Informer[Cached]) -> str | None:
    if informer.has_synced:
        return None
    return f"not followed yet: {informer.last_error or 'no answer yet'}"


def _describe_age(informer: Informer[Cached]) -> str | None:
    """Return how old a cache may be, and why it is not newer."""
    if not informer.has_synced:
        return None
    age = f"proved live {informer.age.total_seconds():.0f} s ago"
    return age if informer.last_error is None else f"{age}: {informer.last_error}"


def _describe_broken(informer: Informer[Cached]) -> str | None:
    """Return what is wrong with a watch that a restart may mend, unless the server fails."""
    broken_for = informer.broken_for
    if broken_for is None or broken_for < _BROKEN_LIMIT:
        return None
    if isinstance(informer.last_error, Unreachable | TooManyRequests | Throttled):
        return None
    return f"not re-established for {broken_for.total_seconds():.0f} s: {informer.last_error}"
