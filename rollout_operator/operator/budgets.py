"""Composition of disruption budgets: the watched ones, the gate, and what takes grants back.

Always there, also without webhooks: a rollout asks the gate as evictions do. It costs one watch
where the kind is installed, and nothing for pods that no budget selects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.budgets.controller import (
    DisruptionContext,
    DisruptionController,
    PodKey,
)
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.budgets.pod_records import Recorder
from rollout_operator.guards.budgets.request import ArbiterContext
from rollout_operator.kube.api import ZONE_BUDGETS, ApiClient
from rollout_operator.kube.cache.budgets import AnyBudget, BudgetStore
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.optional import OptionalInformer
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.decode.budget import decode_budget
from rollout_operator.model.disruption import DisruptionSource
from rollout_operator.model.downscale import Underway
from rollout_operator.model.group import Newcomers
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.operator.context import Clients, EngineSettings, Telemetry

# Pods whose grants are looked after at a time; each mostly waits for the API server.
WORKERS: Final = 4
BUG_BACKOFF: Final = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=15))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What budgets need of the rest of an operator."""

    settings: EngineSettings
    clients: Clients
    telemetry: Telemetry
    sets: StatefulSetStore
    pods: PodStore
    pending: InFlight
    make_observer: Callable[[ApiClient], Observer]
    find_downscale: Callable[[GroupName], Underway | None]
    find_newcomers: Callable[[Uid], Newcomers | None]
    age: Callable[[], timedelta]
    """Of the caches of sets and pods."""


class BudgetParts:
    """Watched budgets, the gate before them, and the controller behind them."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        metrics, clients = around.telemetry.metrics, around.clients
        # Evictions wait for grants, and so do deletes: neither waits for the looks of others.
        self._granting, counting = (
            clients.open(name, Priority.ANSWER) for name in ("granting", "counting")
        )
        self._taking_back = clients.open("taking back grants", Priority.TAKE_BACK)
        self.catalog = BudgetCatalog(metrics)
        self._follow = self._build_informer(clients.open("following budgets", Priority.LIST))
        # No two processes of a namespace may have the same name.
        name = f"{clients.rng():.16f}"[2:]
        self._recorder = Recorder(self._granting, clients.clock, name)
        self.gate = Arbiter(
            ArbiterContext(
                budgets=self.catalog,
                find_lack=self._find_lack,
                sets=around.sets,
                pods=around.pods,
                reader=around.make_observer(counting),
                pending=around.pending,
                recorder=self._recorder,
                find_downscale=around.find_downscale,
                find_newcomers=around.find_newcomers,
                age=lambda: max(around.age(), self._follow.age),
                now=partial(clients.tell_time, self._granting),
                clock=clients.clock,
                metrics=metrics,
            )
        )
        around.telemetry.health.part(
            f"{ZONE_BUDGETS.plural} watch", is_ready=self._describe_unknown
        )
        self._queue: WorkQueue[PodKey] = WorkQueue()
        self._workers = self._build_workers(name)
        around.pending.on_change(lambda pod: self._queue.add((pod.namespace, pod.name)))

    def on_budget(self, callback: Callable[[], None]) -> None:
        """Call back whenever a budget came, changed or went."""
        self._informer.on_change(lambda old, new: callback())

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Look after a pod that may go: the callback for its informer."""
        for one in (old, new):
            if isinstance(one, Pod) and (one.disruption or self._around.pending.get(one.uid)):
                self._queue.add((one.namespace, one.name))

    def follow(self, tasks: TaskStack) -> None:
        """Begin to follow budgets."""
        tasks.start("budget informer", self._follow.run(self._around.clients.clock))

    async def wait_known(self) -> None:
        """Wait until the budgets are known, or that there can be none."""
        await self._follow.wait_answered()

    def start(self, tasks: TaskStack) -> None:
        """Begin to take back what was granted and does not happen."""
        tasks.start("disruption workers", self._workers.run())
        tasks.start("withdrawals of grants", self.gate.run())

    def stopping(self) -> None:
        """Begin nothing new from now on."""
        self._queue.close()

    async def finish(self) -> None:
        """Wait until no grant is looked at."""
        await self._workers.wait_idle()

    def _describe_unknown(self) -> str | None:
        lack = None if self._follow.is_forbidden else self._follow.lack
        return None if lack is None else f"not followed yet: {lack}"

    def _find_lack(self, engine: DisruptionSource) -> str | None:
        # A role of an earlier release does not show budgets: rollouts go on as they did under it,
        # evictions are only asked about where somebody wants them to be judged.
        if engine is DisruptionSource.ROLLOUT and self._follow.is_forbidden:
            return None
        return self._follow.lack

    def _build_informer(self, client: ApiClient) -> OptionalInformer[AnyBudget]:
        clients, namespace = self._around.clients, self._around.settings.namespace
        collection = Collection(
            resource=ZONE_BUDGETS, namespace=namespace, decode=decode_budget, store=BudgetStore()
        )
        metrics = self._around.telemetry.metrics
        self._informer = Informer(client, collection, metrics, clients.clock, clients.rng)
        self._informer.on_change(self.catalog.on_change)
        return OptionalInformer(self._informer, client, ZONE_BUDGETS, namespace)

    def _build_workers(self, name: str) -> Workers[PodKey]:
        around = self._around
        controller = DisruptionController(
            DisruptionContext(
                pods=around.pods,
                pending=around.pending,
                recorder=Recorder(self._taking_back, around.clients.clock, name),
                client=self._taking_back,
                clock=around.clients.clock,
                metrics=around.telemetry.metrics.disruptions,
            )
        )
        return Workers(
            self._queue,
            controller.reconcile,
            count=WORKERS,
            backoff=BUG_BACKOFF,
            rng=around.clients.rng,
        )
