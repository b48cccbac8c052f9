"""One call to one pod, as the product makes it: as the only one of a downscale."""

from rollout_operator.model.objects import Endpoint
from rollout_operator.pods import Method, PodClient, PodError
from rollout_operator.telemetry.metrics import Metrics
from tests.samples import read_samples


async def confirm(client: PodClient, endpoint: Endpoint, method: Method = "POST") -> None:
    """Call a pod, which must confirm."""
    assert await _call(client, endpoint, method) == []


async def fail(client: PodClient, endpoint: Endpoint, method: Method = "POST") -> PodError:
    """Call a pod, which must not confirm, and return what is reported of it."""
    (error,) = await _call(client, endpoint, method)
    return error


async def _call(client: PodClient, endpoint: Endpoint, method: Method) -> list[PodError]:
    if method == "POST":
        return await client.prepare_all([endpoint])
    failures = await client.cancel_all([endpoint])
    assert set(failures) <= {endpoint.uid}
    return [*failures.values()]


def count_calls(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Return how many calls were measured, by path, method and status, in their order."""
    return read_samples(metrics, "pod_http_client_request_duration_seconds_count")
