"""The context of all features of one namespace: its clients, caches, locks and records.

Each feature (`rollout`, `scaling`, `budgets`, `reviews`) takes it whole and adds its own callbacks;
the order of start and stop is decided in `engine`.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from rollout_operator.config.flags import Config
from rollout_operator.controllers.observe import Observer
from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.budgets.own_deletes import OwnDeletes
from rollout_operator.guards.departed import DepartedZones, group_scope
from rollout_operator.guards.downscales.newcomers import SeenNewcomers
from rollout_operator.guards.downscales.reservations import Downscales
from rollout_operator.guards.downscales.times import AnnotationTimes, DownscaleTimes
from rollout_operator.guards.downscales.zone_tracker import Tracker
from rollout_operator.guards.locks import Locks
from rollout_operator.kube.api import PODS, STATEFULSETS, ApiClient, Resource
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.shares import AnyInformer
from rollout_operator.kube.cache.store import Cached, PodStore, StatefulSetStore, Store
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.events import EventSender
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.errors import Throttled, TooManyRequests, Unreachable
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.operator.events import Events
from rollout_operator.operator.process import Process, Telemetry
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT
from rollout_operator.pods.client import PodClient

if TYPE_CHECKING:
    from rollout_operator.kube.cache.cluster import ClusterKind, ClusterKinds

# So many time-outs after a call was given up, the pod has handled it or never will.
LATE_TIMEOUTS: Final = 2
# A watch that fails for this long, other than by the API server's own failure, calls for a restart.
BROKEN_LIMIT: Final = timedelta(minutes=3)


class Context:
    """The clients, caches, locks and records of one namespace."""

    def __init__(self, settings: Config, process: Process, telemetry: Telemetry) -> None:
        """`settings` name the namespace, `telemetry` takes its metrics and states."""
        self.settings = settings
        self.namespace = settings.namespace
        self.process = process
        self.clock = process.clock
        self.rng = process.rng
        self.metrics = telemetry.metrics
        self.health = telemetry.health
        self.group_states = telemetry.group_states
        self.late_calls = settings.pods_timeout * LATE_TIMEOUTS
        """After what time no call reaches a pod any more whose caller has given up."""
        self.has_begun = False
        """Whether the downscales and grants of an earlier process are known, and controllers
        run."""
        self.election = process.election
        self.sets = StatefulSetStore()
        self.pods = PodStore()
        self.locks = Locks()
        self.downscales = Downscales(self.clock, late_calls=self.late_calls)
        self.deletes = OwnDeletes(self.pods, self.clock)
        self.in_flight = InFlight(self.pods, self.deletes, self.clock)
        # A list of ten thousand pods delays no delete, and no live read.
        self.following = client = self.open("following", Priority.LIST)
        self.set_informer = self._follow_sets(client)
        self.pod_informer = self._follow_pods(client)
        self.arrivals = SeenNewcomers(self.sets, self.pods, self.clock)
        self.departed = DepartedZones(
            self.sets,
            self.pods,
            self.clock,
            map_going=self.in_flight.map_going,
            now=partial(self.get_time, client),
            age=lambda: self.pod_informer.age,
            find_newcomers=self.arrivals.get,
        )
        self._watch_changes()
        self.events = Events(
            self._make_event_sender() if process.clients.writes_events else None,
            sets=self.sets,
            pods=self.pods,
            find_state=self.group_states.find,
            clock=self.clock,
            is_acting=lambda: self.is_leading,
        )
        self.group_states.on_post(self.events.on_post)
        self.find_driver: Callable[[GroupName], str | None] = lambda group: None
        """Returns the MultiAZRollout that replaces the pods of a group, see `model.group.Group`."""

    @property
    def is_stopping(self) -> bool:
        """Return whether nothing new is begun any more."""
        return self.process.is_stopping

    @property
    def is_leading(self) -> bool:
        """Return whether this process decides, and knows all that it needs for that."""
        return self.has_begun and self.election.may_act

    def open(self, name: str, reads: Priority) -> ApiClient:
        """Return the client of a component; it writes only where this process leads."""
        return self.process.open(name, reads)

    def open_unfenced(self, name: str, reads: Priority) -> ApiClient:
        """Return the client of a component that writes in each replica."""
        return self.process.open_unfenced(name, reads)

    @property
    def age(self) -> timedelta:
        """Return how old the caches of sets and pods may be."""
        return max(self.set_informer.age, self.pod_informer.age)

    async def wait_known(self) -> None:
        """Wait until sets and pods are known."""
        await self.set_informer.wait_synced()
        await self.pod_informer.wait_synced()

    def find_lack(self) -> str | None:
        """Say why sets or pods are not known yet, None where they are."""
        return _describe_unsynced(self.set_informer) or _describe_unsynced(self.pod_informer)

    def on_stale(self, callback: Callable[[], None]) -> None:
        """Call back when the caches of sets or pods become too old to decide by."""
        self.set_informer.staleness.add(SNAPSHOT_LIMIT, callback)
        self.pod_informer.staleness.add(SNAPSHOT_LIMIT, callback)

    def refresh(self, cause: str) -> None:
        """List sets and pods anew."""
        self.set_informer.refresh(cause)
        self.pod_informer.refresh(cause)

    def get_time(self, client: ApiClient) -> datetime:
        """Return the API server's time, which each client knows by the answers to all clients.

        Ours before the first answer: it may be wrong, and may jump.
        """
        return client.server_time() or self.clock.now()

    def make_observer(self, client: ApiClient) -> Observer:
        """Return an observer of groups, with live reads by this client."""
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
            find_departed=lambda group, live: self.departed.list_zones(group_scope(group), live),
        )

    def make_records(self, client: ApiClient) -> DownscaleTimes:
        """Return the records of the times of downscales, read and written by this client."""
        if not self.settings.zone_tracker:
            return AnnotationTimes(client, self.downscales)
        return Tracker(
            client,
            self.downscales,
            namespace=self.namespace,
            name=self.settings.zone_tracker,
            now=partial(self.get_time, client),
        )

    def make_pod_client(self) -> PodClient:
        """Return a client of pods with connections of its own."""
        return PodClient(
            self.process.clients.open_pods(self.namespace),
            timeout=self.settings.pods_timeout,
            fence=self.election.check,
            metrics=self.metrics,
            clock=self.clock,
        )

    def make_informer(self, client: ApiClient, collection: Collection[Cached]) -> Informer[Cached]:
        """Return an informer of a collection by this client."""
        return Informer(client, collection, self.metrics, self.clock, self.rng)

    def share_informer(
        self,
        client: ApiClient,
        collection: Collection[Cached],
        choose: "Callable[[ClusterKinds], ClusterKind[Cached]]",
    ) -> AnyInformer[Cached]:
        """Return an informer of a collection: a share in the informer of all namespaces.

        Else this client follows it. `choose` returns the kind.
        """
        cluster = self.process.cluster
        share = None if cluster is None else choose(cluster).find_share(collection, self.metrics)
        return share or self.make_informer(client, collection)

    def _make_event_sender(self) -> EventSender | None:
        """Return the writer of Events; None in shadow mode, which writes nothing.

        Unfenced: the deeds of this process stay true when it no longer acts.
        """
        if self.settings.is_shadow:
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
        """Return a name for a writer of records: no two processes of a namespace have the same."""
        return f"{self.rng():.16f}"[2:]

    def _follow_sets(self, client: ApiClient) -> AnyInformer[StatefulSet | Unreadable]:
        of = self._collect(STATEFULSETS, decode_statefulset, self.sets)
        return self._report(of, self.share_informer(client, of, lambda cluster: cluster.sets))

    def _follow_pods(self, client: ApiClient) -> AnyInformer[Pod | Unreadable]:
        """Return an informer of pods: those of this namespace alone, wherever others are.

        A cluster has any number of pods in namespaces that are not watched, and each list and
        change of theirs would be read here.
        """
        of = self._collect(PODS, decode_pod, self.pods)
        return self._report(of, self.make_informer(client, of))

    def _collect(
        self,
        resource: Resource,
        decode: Callable[[bytes | msgspec.Raw], Cached],
        store: Store[Cached],
    ) -> Collection[Cached]:
        return Collection(
            resource=resource,
            namespace=self.namespace,
            decode=decode,
            store=store,
            slots=self.process.pages,
        )

    def _report(self, of: Collection[Cached], informer: AnyInformer[Cached]) -> AnyInformer[Cached]:
        self.health.part(
            f"{of.resource.plural} watch",
            is_ready=partial(_describe_unsynced, informer),
            is_alive=partial(_describe_broken, informer),
            describe=partial(_describe_age, informer),
        )
        return informer

    def _watch_changes(self) -> None:
        """Keep in memory what comes and goes; what departs before what it has had is forgotten."""
        arrivals, departed = self.arrivals, self.departed
        self.set_informer.on_change(departed.on_set)
        self.pod_informer.on_change(departed.on_pod)
        self.set_informer.on_change(arrivals.on_set)
        self.pod_informer.on_change(arrivals.on_pod)
        self.sets.on_replaced(lambda: arrivals.on_list(self.set_informer.age))
        self.pods.on_replaced(lambda: arrivals.on_list(self.pod_informer.age))


def _describe_unsynced(informer: AnyInformer[Cached]) -> str | None:
    if informer.has_synced:
        return None
    return f"not followed yet: {informer.last_error or 'no answer yet'}"


def _describe_age(informer: AnyInformer[Cached]) -> str | None:
    """Say how old a cache may be, and why it is not newer."""
    if not informer.has_synced:
        return None
    age = f"proved live {informer.age.total_seconds():.0f} s ago"
    return age if informer.last_error is None else f"{age}: {informer.last_error}"


def _describe_broken(informer: AnyInformer[Cached]) -> str | None:
    """Say what is wrong with a watch that a restart may mend, unless the server fails."""
    broken_for = informer.broken_for
    if broken_for is None or broken_for < BROKEN_LIMIT:
        return None
    if isinstance(informer.last_error, Unreachable | TooManyRequests | Throttled):
        return None
    return f"not re-established for {broken_for.total_seconds():.0f} s: {informer.last_error}"
