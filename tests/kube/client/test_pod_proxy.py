"""Calling pods through the API server: which answers are the pod's, and which the API server's."""

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import SERVICES
from rollout_operator.kube.client import MAX_BODY
from rollout_operator.kube.kubeconfig import Credential
from rollout_operator.model.names import ApiError, Denied, NotFound, Refused, Unreachable
from rollout_operator.model.objects import Target
from tests.kube.client_bench import POD_LIST, Bench, open_bench
from tests.kube.fake_api import Answer, FakeApi, cut, refuse, reply

TARGET = Target(port=80, path="ingester/prepare-shutdown", service="a")
PATH = f"{POD_LIST}/a-0:80/proxy/ingester/prepare-shutdown"
SERVICE = "/api/v1/namespaces/prod/services/a:80/proxy/status.json"
FAR = "Sun, 29 Nov 2099 18:00:00 GMT"


def page(status: int, body: bytes = b"set\n") -> Answer:
    """Answer as a program does, and not the API server."""
    return reply(body, status, Content_Type="text/plain")


@pytest.mark.parametrize("status", [200, 204, 400, 401, 403, 404, 405, 500, 502, 503])
async def test_a_status_of_the_pod_is_returned(bench: Bench, status: int) -> None:
    bench.server.on("GET", PATH, page(status))

    assert await bench.client().probe_pod("prod", "a-0", TARGET) == status
    assert [request.method for request in bench.server.requests] == ["GET"]


async def test_https_is_a_part_of_the_name(bench: Bench) -> None:
    bench.server.on("GET", f"{POD_LIST}/https:a-0:443/proxy/x", page(200))

    target = Target(port=443, path="x", service="a", scheme="https")
    assert await bench.client().probe_pod("prod", "a-0", target) == 200


@pytest.mark.parametrize(
    ("answer", "kind", "status"),
    [
        (refuse(503, "ServiceUnavailable", "connection refused"), Unreachable, 503),
        (refuse(504, "Timeout", "context deadline exceeded"), Unreachable, 504),
        (refuse(404, "NotFound", 'pods "a-0" not found'), NotFound, 404),
        (refuse(400, "BadRequest", "address not allowed"), Refused, 400),
        (
            refuse(403, "Forbidden", 'forbidden: User "x" cannot get resource "pods/proxy" in'),
            Denied,
            403,
        ),
        (cut(), Unreachable, 0),
    ],
)
async def test_what_the_api_server_says_itself_is_raised(
    bench: Bench, answer: Answer, kind: type[ApiError], status: int
) -> None:
    bench.server.on("GET", PATH, answer)
    with pytest.raises(kind) as caught:
        await bench.client().probe_pod("prod", "a-0", TARGET)

    assert caught.value.status == status


async def test_the_body_of_a_success_is_not_read(bench: Bench) -> None:
    """It may be longer than is kept in memory, and may not come."""

    async def begin(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": f"{2 * MAX_BODY}"})
        await response.prepare(request)
        await response.write(b"x")
        return response

    bench.server.on("GET", PATH, begin)

    assert await bench.client().probe_pod("prod", "a-0", TARGET) == 200


async def test_no_credential_is_replaced_where_a_pod_refuses_it() -> None:
    loads: list[datetime] = []

    async def load() -> str:
        loads.append(datetime.now(UTC))
        return "new"

    async with FakeApi() as server:
        server.on("GET", PATH, page(401))
        credential = Credential("old", load, LoopClock())
        async with open_bench(server, credential=credential) as bench:
            assert await bench.client().probe_pod("prod", "a-0", TARGET) == 401
            server.on("GET", SERVICE, page(401))
            with pytest.raises(Denied):
                await bench.client().fetch(SERVICES, "prod", "a:80", "proxy/status.json")

    assert (loads, len(server.requests)) == ([], 2)


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_the_servers_time_is_not_what_another_server_shows(bench: Bench, status: int) -> None:
    """SI-11: with a time of next year, a pod that has just become ready would be available."""
    answer = reply(b"{}", status, Content_Type="application/json", Date=FAR)
    for path in (PATH, SERVICE):
        bench.server.on("GET", path, answer)
    client = bench.client()

    assert await client.probe_pod("prod", "a-0", TARGET) == status
    with nullcontext() if status == 200 else pytest.raises(ApiError):
        await client.fetch(SERVICES, "prod", "a:80", "proxy/status.json")

    assert client.server_time() is None


@pytest.mark.parametrize("status", [401, 404, 429, 503, 511])
async def test_an_error_that_is_no_utf_8(bench: Bench, status: int) -> None:
    body = b'{"kind":"\xff","cluster_validation_error_message":"\xff"}'
    for path in (PATH, SERVICE):
        bench.server.on("GET", path, reply(body, status, Content_Type="application/json"))

    assert await bench.client().probe_pod("prod", "a-0", TARGET) == status
    with pytest.raises(ApiError):
        await bench.client().fetch(SERVICES, "prod", "a:80", "proxy/status.json")
