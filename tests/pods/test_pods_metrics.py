"""How calls to pods show in the metrics: METR-21, W-59."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.pods.client import MOST_PATHS, PodClient
from rollout_operator.pods.sender import HttpSender
from rollout_operator.telemetry.metrics import REQUEST_BUCKETS, Metrics
from tests.pods.one_call import confirm, fail
from tests.pods.pod_servers import PodServers, reset, status


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def client(metrics: Metrics) -> AsyncIterator[PodClient]:
    limit = timedelta(seconds=20)
    made = PodClient(HttpSender("prod"), timeout=limit, metrics=metrics, clock=LoopClock())
    yield made
    await made.close()


async def test_calls_are_measured(client: PodClient, metrics: Metrics) -> None:
    """METR-21: path, method and status; error where none came."""
    async with PodServers(status(204)) as pods:
        await confirm(client, pods.endpoint(path="a/b"))
        pods.answer = status(500)
        await fail(client, pods.endpoint(path="a/b"), "DELETE")
        pods.answer = reset
        await fail(client, pods.endpoint(path="a/b"))

    text = b"".join(metrics.render()).decode()
    name = "rollout_operator_pod_http_client_request_duration_seconds"
    counts = [line for line in text.splitlines() if line.startswith(f"{name}_count")]
    assert counts == [
        f'{name}_count{{path="/a/b",method="POST",status_code="204"}} 1',
        f'{name}_count{{path="/a/b",method="DELETE",status_code="500"}} 1',
        f'{name}_count{{path="/a/b",method="POST",status_code="error"}} 1',
    ]
    assert text.count(f'{name}_bucket{{path="/a/b",method="POST",status_code="204"') == (
        len(REQUEST_BUCKETS) + 1
    )


async def test_tenants_cannot_make_series_without_end(client: PodClient, metrics: Metrics) -> None:
    """W-59: the first paths have their own, the rest share one."""
    async with PodServers(status(200)) as pods:
        for number in range(MOST_PATHS + 5):
            await confirm(client, pods.endpoint(path=f"p{number}"))
        await confirm(client, pods.endpoint(path="p0"))

    samples = [
        (sample.labels["path"], sample.value)
        for family in metrics.pod_request_duration.collect()
        for sample in family.samples
        if sample.name.endswith("_count")
    ]
    assert samples == [
        ("/p0", 2.0),
        *((f"/p{number}", 1.0) for number in range(1, MOST_PATHS)),
        ("other", 5.0),
    ]
