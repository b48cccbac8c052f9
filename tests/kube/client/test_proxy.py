"""Answers of servers behind the API server's proxy, which need not be the operator."""

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import SERVICES
from rollout_operator.kube.kubeconfig import Credential
from rollout_operator.model.names import ApiError, Denied
from tests.kube.client_bench import Bench, open_bench
from tests.kube.fake_api import FakeApi, reply

SERVICE = "/api/v1/namespaces/prod/services/a:80/proxy/status.json"
FAR = "Sun, 29 Nov 2099 18:00:00 GMT"


async def test_no_credential_is_replaced_where_another_server_refuses_it() -> None:
    loads: list[datetime] = []

    async def load() -> str:
        loads.append(datetime.now(UTC))
        return "new"

    async with FakeApi() as server:
        server.on("GET", SERVICE, reply(b"set\n", 401, Content_Type="text/plain"))
        credential = Credential("old", load, LoopClock())
        async with open_bench(server, credential=credential) as bench:
            with pytest.raises(Denied):
                await bench.client().fetch(SERVICES, "prod", "a:80", "proxy/status.json")

    assert (loads, len(server.requests)) == ([], 1)


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_the_servers_time_is_not_what_another_server_shows(bench: Bench, status: int) -> None:
    """SI-11: with a time of next year, a pod that has just become ready would be available."""
    answer = reply(b"{}", status, Content_Type="application/json", Date=FAR)
    bench.server.on("GET", SERVICE, answer)
    client = bench.client()

    with nullcontext() if status == 200 else pytest.raises(ApiError):
        await client.fetch(SERVICES, "prod", "a:80", "proxy/status.json")

    assert client.server_time() is None


@pytest.mark.parametrize("status", [401, 404, 429, 503, 511])
async def test_an_error_that_is_no_utf_8(bench: Bench, status: int) -> None:
    body = b'{"kind":"\xff","cluster_validation_error_message":"\xff"}'
    bench.server.on("GET", SERVICE, reply(body, status, Content_Type="application/json"))

    with pytest.raises(ApiError):
        await bench.client().fetch(SERVICES, "prod", "a:80", "proxy/status.json")
