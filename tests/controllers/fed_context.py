"""The context of controllers above a client of a few dictionaries; tests fill its caches."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, cast

from rollout_operator.aio.clock import Clock
from rollout_operator.config.checks import read_config
from rollout_operator.controllers.context import Clients, Context, Process, Telemetry
from rollout_operator.kube.api import ApiClient
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.store import Cached
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.lease import Identity
from rollout_operator.pods import Sender


class FedInformer(Informer[Cached]):
    """What it was fed last is of this very moment."""

    refreshed: list[str]

    @property
    def age(self) -> timedelta:
        return timedelta(0)

    def feed(self, objects: Iterable[Cached]) -> None:
        self._notify(self._of.store.replace_all(objects))

    def refresh(self, cause: str) -> bool:
        self.refreshed.append(cause)
        return True


class FedContext(Context):
    def __init__(
        self,
        client: object,
        clock: Clock,
        pods: Sender | None = None,
        *args: str,
        writes_events: bool = False,
    ) -> None:
        """Stand for a process with these flags that calls `pods`."""
        self.refreshed: list[str] = []
        clients = Clients(
            open=lambda name, reads, fence: cast(ApiClient, client),
            open_pods=lambda namespace: cast(Sender, pods),
            clock=clock,
            rng=lambda: 1.0,
            identity=Identity(name="one", life="1"),
            writes_events=writes_events,
        )
        telemetry = Telemetry.begin(clock)
        config = read_config(
            ["-kubernetes.namespace=test", "-leader-election.enabled=false", *args]
        )
        super().__init__(config, Process(config, clients, telemetry), telemetry)

    def get_time(self, client: ApiClient) -> datetime:
        return self.clock.now()

    def feed(self, sets: Iterable[bytes], pods: Iterable[bytes]) -> None:
        """Show these in the caches, and tell of changes."""
        for informer, objects in (
            (self.set_informer, map(decode_statefulset, sets)),
            (self.pod_informer, map(decode_pod, pods)),
        ):
            cast(FedInformer[Any], informer).feed(objects)

    def make_informer(
        self, client: ApiClient, collection: Collection[Cached]
    ) -> FedInformer[Cached]:
        informer = FedInformer(client, collection, None, self.clock, self.rng)
        informer.refreshed = self.refreshed
        return informer
