"""What the namespaces of one process share: its clients, its clock, the election, and its end.

What belongs to one namespace stands in `context`, the order of start and stop in `fleet`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from rollout_operator.aio.clock import Clock, refine_time
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.flags import Config
from rollout_operator.controllers.worker import Workers
from rollout_operator.kube.api import ApiClient, Fence, no_fence
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.election import Election
from rollout_operator.model.description import ELECTION_PART
from rollout_operator.model.lease import Identity
from rollout_operator.pods.client import Sender
from rollout_operator.telemetry.health import Health
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupStates

if TYPE_CHECKING:
    from rollout_operator.controllers.releases.caches import WideChecks
    from rollout_operator.controllers.releases.schedules.observe import WideSchedules
    from rollout_operator.kube.cache.cluster import ClusterKinds
    from rollout_operator.kube.cache.followed import FollowedKind
    from rollout_operator.kube.cache.nodes import FollowedNodes
    from rollout_operator.model.releases.health import CheckFinding, HealthCheck
    from rollout_operator.model.releases.rollout import ReleaseRollout


# Dozens of namespaces begin at the same time, and a page of pods is about 5 MB. One namespace lists
# its StatefulSets and its pods at once.
PAGES: Final = 2


class Feature(ABC):
    """A part of the operator that works once this process acts, by workers of its own."""

    _workers: Workers[Any]
    """Set by each feature."""

    @property
    def busy(self) -> int:
        """Return how many keys are reconciled now."""
        return self._workers.busy

    @abstractmethod
    def start(self, tasks: TaskStack) -> None:
        """Begin to work."""

    def close(self) -> None:
        """Begin nothing new from now on."""
        self._workers.close()

    async def finish(self) -> None:
        """Wait until no key is reconciled."""
        await self._workers.wait_idle()


class NamespaceChecks(Protocol):
    """The HealthChecks of one namespace, for Rollouts of others as well."""

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        ...

    def find_stall(self, group: str) -> "CheckFinding | None":
        """Return why a rollout group of this namespace is held until a person acts."""
        ...

    def list_selecting(self, check: "HealthCheck") -> list["ReleaseRollout"]:
        """Return the Rollouts of this namespace that may select a check of another namespace."""
        ...

    def describe_wait(self, rollout: "ReleaseRollout") -> str:
        """Return what Flux has yet to do for a Rollout of this namespace."""
        ...

    def wake(self, rollouts: Sequence["ReleaseRollout"]) -> None:
        """Reconcile the checks that Rollouts of any namespace may select."""
        ...


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """The clients of an operator: to the cluster, to pods, time and random numbers."""

    open: Callable[[str, Priority, Fence], ApiClient]
    """Opens a client of the API server for one component; all share the rate limits of the process.

    The name says for what: `following`, `observing`, `acting`, `checking`, ... The priority is that
    of its reads. The fence is called before each of its writes.
    """
    clock: Clock
    rng: Callable[[], float]
    """Returns numbers in 0..1."""
    open_pods: Callable[[str], Sender]
    """Opens a client of the pods of a namespace, with connections of its own."""
    identity: Identity
    """The identity of this process among the replicas."""
    writes_events: bool = False
    """Whether it writes Kubernetes Events."""


class Telemetry(msgspec.Struct, frozen=True):
    """Metrics, states and health of an operator; they exist before any client is open."""

    metrics: Metrics
    health: Health
    group_states: GroupStates

    @classmethod
    def begin(cls, clock: Clock) -> "Telemetry":
        """Return the telemetry of an operator that has done nothing yet; needs a running loop."""
        return cls._make(Metrics(), Health(clock), clock)

    def for_namespace(self, namespace: str, clock: Clock) -> "Telemetry":
        """Return the telemetry of one of several namespaces, which says what it lacks by itself."""
        return self._make(
            self.metrics.for_namespace(namespace), Health(clock, is_whole=False), clock
        )

    @classmethod
    def _make(cls, metrics: Metrics, health: Health, clock: Clock) -> "Telemetry":
        return cls(metrics, health, GroupStates(metrics, clock))


class Process:
    """One running operator, whatever namespaces it watches."""

    def __init__(self, settings: Config, clients: Clients, telemetry: Telemetry) -> None:
        """`settings` name the namespace of the operator itself."""
        self.settings = settings
        self.namespace = settings.namespace
        self.clients = clients
        self.clock = clients.clock
        self.rng = clients.rng
        self.metrics = telemetry.metrics
        self.health = telemetry.health
        self.address = clients.identity.address
        """Where this process answers other replicas, `IP:port`; empty for nowhere."""
        self.pages = asyncio.Semaphore(PAGES)
        """Entered while a page of a list of StatefulSets or pods is held."""
        self.cluster: ClusterKinds | None = None
        """Kinds that are followed in the whole cluster, where all namespaces are watched."""
        self.followed_schedules: list[FollowedKind] = []
        """Schedules of releases, of each namespace and of the cluster."""
        self.wide_schedules: WideSchedules | None = None
        """Those of the cluster, as the Rollouts of all namespaces obey them."""
        self.health_checks: list[NamespaceChecks] = []
        """The HealthChecks of each namespace: a Rollout may select checks of several."""
        self.stopping_since: timedelta | None = None
        """Since when nothing new is begun, on the clock's `elapsed`."""
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
        """Return whether nothing new is begun any more."""
        return self.stopping_since is not None

    @property
    def drives_policies(self) -> bool:
        """Return whether it drives MultiAZRollouts; a shadow drives nothing."""
        return self.settings.drives_policies and not self.settings.is_shadow

    @cached_property
    def nodes(self) -> "FollowedNodes":
        """Return the nodes, which are the cluster's: all namespaces share them.

        `fleet` has them followed, from the first use on.
        """
        # Not before: most operators never need it.
        from rollout_operator.kube.cache.nodes import FollowedNodes

        client = self.open("following nodes", Priority.LIST)
        return FollowedNodes(
            client, lambda of: Informer(client, of, self.metrics, self.clock, self.rng), self.clock
        )

    @cached_property
    def wide_checks(self) -> "WideChecks":
        """Return the HealthChecks of all namespaces, which are followed like the nodes."""
        from rollout_operator.controllers.releases.caches import build_wide_checks

        client = self.open("following health of the cluster", Priority.LIST)
        return build_wide_checks(
            client, lambda of: Informer(client, of, self.metrics, self.clock, self.rng)
        )

    def open(self, name: str, reads: Priority) -> ApiClient:
        """Return the client of a component; it writes only where this process leads."""
        return self.clients.open(name, reads, self.election.check)

    def open_unfenced(self, name: str, reads: Priority) -> ApiClient:
        """Return the client of a component that writes in each replica."""
        return self.clients.open(name, reads, no_fence)

    def refine_time(self, client: ApiClient) -> datetime:
        """Return the API server's time, with the fractions of a second of our own clock."""
        return refine_time(client.server_time(), self.clock.now())

    def _describe_election(self) -> str:
        """Say which process acts, and that its own page alone shows what it does."""
        where = "" if self.election.leader is None else "; what it does is on its own page"
        return f"acts: {self.election.text}{where}"
