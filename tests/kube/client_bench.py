"""A client on a scripted server: set-up and calls that several tests make."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.kube.api import (
    DEFAULT_TIMEOUTS,
    PODS,
    Fence,
    JsonObject,
    Precondition,
    Timeouts,
    WatchEvent,
    no_fence,
)
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Transport, open_transport
from rollout_operator.kube.kubeconfig import Credential
from rollout_operator.kube.lean import new_configuration
from rollout_operator.kube.rate_limit import Priority, RateLimiter
from rollout_operator.model.names import Uid
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.fake_api import FakeApi
from tests.samples import read_samples

POD = "/api/v1/namespaces/prod/pods/a-0"
POD_LIST = "/api/v1/namespaces/prod/pods"
SET = "/apis/apps/v1/namespaces/prod/statefulsets/a"
SET_LIST = "/apis/apps/v1/namespaces/prod/statefulsets"
SET_STATUS = "/apis/apps/v1/namespaces/prod/statefulsets/a/status"
THIS = Precondition(uid=Uid("u-1"), resource_version="7")
# A watch of one second may be silent for half a second; a busy machine takes a while to connect.
SHORT = Timeouts(
    read=timedelta(milliseconds=500),
    write=timedelta(milliseconds=500),
    page=timedelta(milliseconds=500),
    silence=timedelta(milliseconds=-500),
)


@dataclass
class Bench:
    """A server, one transport to it, and clients over that."""

    server: FakeApi
    transport: Transport
    metrics: Metrics = field(default_factory=Metrics)

    def client(
        self,
        limits: RateLimiter | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        fence: Fence = no_fence,
    ) -> Client:
        unlimited = RateLimiter(0, 0)
        return Client(
            self.transport, limits or unlimited, self.metrics, timeouts, Priority.READ, fence
        )

    def watch(
        self, seconds: float = 5, *, version: str = "5", timeouts: Timeouts = DEFAULT_TIMEOUTS,
        **options: Any,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:  # fmt: skip
        """Open a watch of pods with a client of its own."""
        lasts = timedelta(seconds=seconds)
        client = self.client(timeouts=timeouts)
        return client.watch(PODS, "prod", resource_version=version, lasts=lasts, **options)

    def measured(self) -> dict[tuple[str, ...], float]:
        """Return how many requests were measured, by path, method and status."""
        name = "kubernetes_api_client_request_duration_seconds_count"
        return read_samples(self.metrics, name)


@asynccontextmanager
async def open_bench(
    server: FakeApi,
    url: str = "",
    credential: Credential | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Bench]:
    """Open a transport to `url`, the server's own where it is empty."""
    configuration = new_configuration()
    configuration.host = url or server.url
    transport = open_transport(configuration, credential, "ops", clock or LoopClock(), {})
    try:
        yield Bench(server, transport)
    finally:
        await transport.close()


async def read_watch(client: Client) -> list[WatchEvent]:
    lasts = timedelta(seconds=1)
    async with client.watch(PODS, "prod", resource_version="5", lasts=lasts) as events:
        return [event async for event in events]


def pods(count: int, version: str = "100", token: str = "") -> JsonObject:
    """Return a page of a pod list."""
    metadata = {"resourceVersion": version, "continue": token}
    items = [{"metadata": {"name": f"a-{number}"}} for number in range(count)]
    return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}


def event(kind: str, version: int) -> bytes:
    """Return a line of a watch."""
    item = {"metadata": {"resourceVersion": f"{version}"}}
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"
