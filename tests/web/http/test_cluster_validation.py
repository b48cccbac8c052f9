"""Cluster validation over a real socket, on the admin server and on stand-ins for webhooks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from msgspec.structs import replace
from multidict import CIMultiDict

from rollout_operator.model.names import ConfigError
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.middleware import MAX_LABELS, ClusterRules, validate_cluster
from tests.web.admin_world import serving

HARD = ClusterRules(namespace="prod", enabled=True)
SOFT = replace(HARD, soft=True)
ADMISSION = (
    "/admission/no-downscale",
    "/admission/prepare-downscale",
    "/admission/pod-eviction",
    "/admission/zpdb-validation",
)


class Server:
    """A server of a few paths behind the middleware."""

    def __init__(self, port: int, metrics: Metrics, client: ClientSession) -> None:
        self._port = port
        self._client = client
        self.metrics = metrics

    async def send_request(
        self, path: str = "/shop/item", *labels: str, agent: str = "test"
    ) -> tuple[int, str, str]:
        """Return status, content type and body."""
        headers = CIMultiDict([("User-Agent", agent), *(("X-Cluster", label) for label in labels)])
        url = f"http://127.0.0.1:{self._port}{path}"
        async with self._client.get(url, headers=headers) as response:
            return response.status, response.headers["Content-Type"], await response.text()

    async def status(self, path: str = "/shop/item", *labels: str, agent: str = "test") -> int:
        return (await self.send_request(path, *labels, agent=agent))[0]

    def counted(self) -> list[str]:
        """Return the label sets and values of the counter."""
        body = b"".join(self.metrics.render())
        start = "rollout_operator_server_invalid_cluster_validation_label_requests_total"
        return [
            line.removeprefix(start)
            for line in body.decode().splitlines()
            if line.startswith(f"{start}{{")
        ]


@asynccontextmanager
async def guarded(rules: ClusterRules) -> AsyncIterator[Server]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="fine")

    metrics = Metrics()
    app = web.Application(middlewares=[validate_cluster(rules, metrics)])
    for path in (*ADMISSION, "/shop/item", "/statusz"):
        app.router.add_get(path, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with ClientSession() as client:
            yield Server(runner.addresses[0][1], metrics, client)
    finally:
        await runner.cleanup()


def rejection(what: str, route: str = "shop_item") -> str:
    """Return the body of CLUS-01."""
    error = f"rejected request with {what} - it should be one of [prod]"
    return f'{{"cluster_validation_error_message":"{error}","route":"{route}"}}'


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        pytest.param([], "empty cluster validation label", id="CLUS-01 no header"),
        pytest.param([""], "empty cluster validation label", id="CLUS-01 empty header"),
        pytest.param(["dev"], r"wrong cluster validation label \"dev\"", id="CLUS-01 wrong"),
        pytest.param(["Prod"], r"wrong cluster validation label \"Prod\"", id="CLUS-01 case"),
        pytest.param(
            ["prod", "prod"],
            r"wrong cluster validation label \"prod, prod\"",
            id="CLUS-01 not exactly one",
        ),
    ],
)
async def test_hard_validation_rejects(labels: list[str], what: str) -> None:
    async with guarded(HARD) as server:
        assert await server.send_request("/shop/item", *labels) == (
            511,
            "application/json",
            rejection(what),
        )


async def test_the_right_label_passes() -> None:
    async with guarded(HARD) as server:
        assert await server.send_request("/shop/item", "prod") == (
            200,
            "text/plain; charset=utf-8",
            "fine",
        )
        assert server.counted() == []


async def test_off_by_default() -> None:
    """FLAG-22."""
    async with guarded(ClusterRules(namespace="prod")) as server:
        assert await server.status("/shop/item", "dev") == 200
        assert server.counted() == []


@pytest.mark.parametrize(
    ("rules", "status", "rejected"),
    [
        pytest.param(HARD, 511, "true", id="CLUS-01 hard"),
        pytest.param(SOFT, 200, "false", id="CLUS-01 soft"),
    ],
)
async def test_violations_are_counted_and_logged(
    rules: ClusterRules, status: int, rejected: str, lines: list[str]
) -> None:
    """METR-15: method holds the route."""
    async with guarded(rules) as server:
        assert await server.status("/shop/item", "dev") == status
        assert await server.status("/shop/item", "dev") == status
        assert server.counted() == [
            '{protocol="http",method="shop_item",cluster_validation_label="prod",'
            'request_cluster_validation_label="dev"} 2'
        ]
    assert len(lines) == 2
    assert f"route=shop_item label=dev peer=127.0.0.1 rejected={rejected} err=" in lines[0]


async def test_unknown_paths_are_rejected_before_they_are_not_found() -> None:
    async with guarded(HARD) as server:
        _, _, body = await server.send_request("/nothing")
        assert body == rejection("empty cluster validation label", "other")


@pytest.mark.parametrize("path", ADMISSION)
async def test_all_admission_routes_are_exempt_by_default(path: str) -> None:
    """CLUS-03, W-30, DEP-20: the API server never sends the header."""
    async with guarded(HARD) as server:
        assert await server.status(path) == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/admission/pod-eviction", 200, id="CLUS-02 named"),
        pytest.param("/shop/item", 200, id="CLUS-02 named with a slash"),
        pytest.param("/admission/no-downscale", 511, id="CLUS-02 replaced"),
        pytest.param("/statusz", 200, id="our own stay exempt"),
    ],
)
async def test_given_exclusions_replace_only_the_admission_routes(path: str, status: int) -> None:
    rules = replace(HARD, excluded_paths=("admission/pod-eviction", "/shop/item"))
    async with guarded(rules) as server:
        assert await server.status(path) == status


@pytest.mark.parametrize(
    "path",
    [
        "/", "/status", "/status.json", "/status.schema.json", "/reasons", "/ready", "/livez",
        "/metrics", "/debug/pprof/", "/debug/pprof/heap", "/ui", "/ui/status",
    ],
)  # fmt: skip
async def test_our_own_pages_are_exempt(path: str) -> None:
    """CLUS-02, DEP-20: probes, Prometheus and people send no header."""
    rules = replace(HARD, excluded_paths=("something-else",))
    async with serving(rules) as world:
        status, _ = await world.get(path)
        assert status == (500 if path == "/ready" else 200)
        assert (await world.get("/nothing"))[0] == 511
        assert 'status_code="511"' in world.series("request_duration_seconds_count")[-1]


@pytest.mark.parametrize(
    ("pattern", "agent", "status"),
    [
        pytest.param("kube-probe/.*", "kube-probe/1.36", 200, id="CLUS-02 matches"),
        pytest.param("probe", "kube-probe/1.36", 200, id="CLUS-02 anywhere in it"),
        pytest.param("^probe", "kube-probe/1.36", 511, id="CLUS-02 anchored by the user"),
        pytest.param("a|b", "curl", 511, id="CLUS-02 other"),
        pytest.param("(a*)*$x", "a" * 4000, 511, id="SEC-16 in linear time"),
    ],
)
async def test_user_agents(pattern: str, agent: str, status: int) -> None:
    async with guarded(replace(HARD, excluded_user_agents=("absent", pattern))) as server:
        assert await server.status(agent=agent) == status


def test_a_bad_pattern_is_a_configuration_error() -> None:
    """D-41: the dialect is RE2's; the text names flag and pattern."""
    flag = "-server.cluster-validation.http.excluded-user-agents"
    with pytest.raises(ConfigError, match=rf"^{flag}: \(\?=x\): invalid"):
        validate_cluster(replace(HARD, excluded_user_agents=("(?=x)",)), Metrics())


async def test_senders_cannot_flood_the_metric() -> None:
    """SEC-13: labels are few and short."""
    async with guarded(SOFT) as server:
        await server.status("/shop/item", "x" * 64)
        for number in range(MAX_LABELS + 10):
            await server.status("/shop/item", f"cluster-{number}")
        await server.status("/shop/item", "cluster-0")

        assert len(server.counted()) == MAX_LABELS + 1
        assert not any("x" * 64 in line for line in server.counted())
        assert any(line.endswith('"other"} 11') for line in server.counted())
        assert any(line.endswith('"cluster-0"} 2') for line in server.counted())


async def test_bytes_that_are_not_text_do_no_harm(lines: list[str]) -> None:
    """SEC-13: neither answer, log nor metrics break."""
    async with serving(replace(HARD, excluded_user_agents=("absent",))) as world:
        answer = await world.send(
            b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"X-Cluster: a\xff\xfe\r\nUser-Agent: \xff\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 511 ")
        assert "a\N{REPLACEMENT CHARACTER}" in answer.decode()
        assert (await world.get("/metrics"))[0] == 200
    assert len(lines) == 1


async def test_many_at_once_are_judged_each() -> None:
    async with guarded(HARD) as server:
        labels = ["prod", "dev"] * 20
        answers = await asyncio.gather(*(server.status("/shop/item", label) for label in labels))
        assert answers == [200, 511] * 20
