"""The context of controllers above a client of a few dictionaries; tests fill its caches."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, cast

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.config.checks import read_config
from rollout_operator.controllers.context import Clients, Context, Process, Telemetry
from rollout_operator.kube.api import ApiClient
from rollout_operator.kube.informer import Collection, Informer, ObjectSource
from rollout_operator.kube.store import Cached, Change
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.wire import decode_or_salvage
from rollout_operator.model.lease import Identity
from rollout_operator.model.names import ApiError
from rollout_operator.model.objects import AnyPod, AnySet
from rollout_operator.pods import Sender
from tests.controllers.fake_client import FakeClient


class FedInformer(Informer[Cached]):
    """What it was fed last is of this very moment, unless a test says otherwise."""

    refreshed: list[str]
    fed_age = timedelta(0)
    error: ApiError | None = None

    @property
    def age(self) -> timedelta:
        return self.fed_age

    @property
    def has_synced(self) -> bool:
        return self.error is None

    @property
    def last_error(self) -> ApiError | None:
        return self.error

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

    def feed(self, client: FakeClient) -> None:
        """Show in the caches what this API server holds, and tell of changes."""
        for informer, objects in zip(
            (self.set_informer, self.pod_informer), _read(client), strict=True
        ):
            cast(FedInformer[Any], informer).feed(objects)

    def sync(self, client: FakeClient) -> Sequence[Change[AnyPod]]:
        """Bring the caches up to date, and tell nobody; return how pods have changed."""
        sets, pods = _read(client)
        self.sets.replace_all(sets)
        return self.pods.replace_all(pods)

    def make_informer(
        self, client: ObjectSource, collection: Collection[Cached]
    ) -> FedInformer[Cached]:
        informer = FedInformer(client, collection, None, self.clock, self.rng)
        informer.refreshed = self.refreshed
        return informer


def _read(client: FakeClient) -> tuple[Sequence[AnySet], Sequence[AnyPod]]:
    found = defaultdict[str, list[bytes]](list)
    for (plural, _), one in client.objects.items():
        found[plural].append(msgspec.json.encode(one))
    return [*map(_decode_set, found["statefulsets"])], [*map(_decode_pod, found["pods"])]


# Caches follow every second of hours in which nothing changes.
@lru_cache(1024)
def _decode_set(raw: bytes) -> AnySet:
    return decode_or_salvage("StatefulSet", decode_statefulset, msgspec.Raw(raw))


@lru_cache(1024)
def _decode_pod(raw: bytes) -> AnyPod:
    return decode_or_salvage("Pod", decode_pod, msgspec.Raw(raw))
