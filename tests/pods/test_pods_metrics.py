"""How calls to pods show in the metrics: METR-21, W-59."""

from rollout_operator.pods.client import MOST_PATHS, PodClient
from rollout_operator.telemetry.metrics import REQUEST_BUCKETS, Metrics
from tests.pods.one_call import confirm, count_calls, fail
from tests.pods.pod_servers import PodServers, reset, status


async def test_calls_are_measured(client: PodClient, metrics: Metrics) -> None:
    """METR-21: path, method and status; error where none came."""
    async with PodServers(status(204)) as pods:
        await confirm(client, pods.endpoint(path="a/b"))
        pods.answer = status(500)
        await fail(client, pods.endpoint(path="a/b"), "DELETE")
        pods.answer = reset
        await fail(client, pods.endpoint(path="a/b"))
    assert count_calls(metrics) == {
        ("/a/b", "POST", "204"): 1,
        ("/a/b", "DELETE", "500"): 1,
        ("/a/b", "POST", "error"): 1,
    }
    name = b"rollout_operator_pod_http_client_request_duration_seconds_bucket"
    series = name + b'{path="/a/b",method="POST",status_code="204"'
    assert b"".join(metrics.render()).count(series) == len(REQUEST_BUCKETS) + 1


async def test_tenants_cannot_make_series_without_end(client: PodClient, metrics: Metrics) -> None:
    """W-59: the first paths have their own, the rest share one."""
    async with PodServers(status(200)) as pods:
        for number in range(MOST_PATHS + 5):
            await confirm(client, pods.endpoint(path=f"p{number}"))
        await confirm(client, pods.endpoint(path="p0"))
    assert [(path, count) for (path, *_), count in count_calls(metrics).items()] == [
        ("/p0", 2),
        *((f"/p{number}", 1) for number in range(1, MOST_PATHS)),
        ("other", 5),
    ]
