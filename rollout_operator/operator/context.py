"""What the parts of one running operator share, and where it comes from.

Words only: the parts are composed in `operator.engine`, `operator.scaling` and `operator.reviews`.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.observe import Observer
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.guards.downscales.reservations import Downscales
from rollout_operator.guards.downscales.times import Records
from rollout_operator.guards.locks import Locks
from rollout_operator.kube.api import ApiClient
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.pods.client import Sender
from rollout_operator.telemetry.health import Health
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupStates

# So many time-outs after a call was given up, the pod has handled it or never will.
LATE_TIMEOUTS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Where an operator gets everything from that is not its own: the world, time and chance."""

    open: Callable[[str, Priority], ApiClient]
    """Opens a client of the API server for one component; all share the rate limits of the process.

    The name says for what: `following`, `looking`, `acting`, `checking`, ... The priority is that
    of its reads.
    """
    clock: Clock
    rng: Callable[[], float]
    """Returns numbers in 0..1."""
    open_pods: Callable[[], Sender]
    """Opens a client of pods, with connections of its own."""

    def tell_time(self, client: ApiClient) -> datetime:
        """Return the API server's time, which each client knows by the answers to all of them.

        Ours before the first answer: it may be wrong, and may jump.
        """
        return client.server_time() or self.clock.now()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine reads of the configuration."""

    namespace: str
    reconcile_interval: timedelta
    """The longest wait after a failure."""
    client_qps: float = 0.0
    """Requests a second that the API clients may send to one API group; 0 or less: any number."""
    zone_tracker: str = ""
    """Name of the ConfigMap with the times of downscales; empty where annotations hold them."""
    pods_timeout: timedelta = timedelta(seconds=5)
    """Of one call to a pod."""
    cluster_domain: str = "cluster.local."

    @property
    def late_calls(self) -> timedelta:
        """Return after what time no call reaches a pod any more whose caller has given up."""
        return self.pods_timeout * LATE_TIMEOUTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What rollouts, counts and reviews all work with."""

    settings: EngineSettings
    clients: Clients
    sets: StatefulSetStore
    pods: PodStore
    locks: Locks
    downscales: Downscales
    catalog: BudgetCatalog
    gate: Arbiter
    metrics: Metrics
    health: Health
    group_states: GroupStates
    make_observer: Callable[[ApiClient], Observer]
    make_records: Callable[[ApiClient], Records]

    @property
    def namespace(self) -> str:
        """Return the only namespace that is looked after."""
        return self.settings.namespace


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What an operator tells of itself; it is there before any client is open."""

    metrics: Metrics
    health: Health
    group_states: GroupStates

    @classmethod
    def begin(cls, clock: Clock) -> "Telemetry":
        """Return that of an operator that has done nothing yet; needs a running loop."""
        metrics = Metrics()
        return cls(metrics, Health(clock), GroupStates(metrics, clock))


class ReviewServing(Protocol):
    """What serves reviews, where that is asked for."""

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        """Serve reviews; the caches must be filled. Raises ConfigError and ApiError."""
        ...

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Take note of a changed set."""
        ...

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Take note of a changed pod."""
        ...

    def stopping(self) -> None:
        """Begin no new downscale from now on."""
        ...

    async def drain(self, limit: timedelta) -> None:
        """Answer the reviews in flight, at most for `limit`, and end."""
        ...
