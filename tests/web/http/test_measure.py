"""Request metrics over a real socket."""

import asyncio
from datetime import timedelta

import pytest
from aiohttp import web

from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.middleware import measure, name_route
from tests.web.admin_world import CLOSE, World, listening


async def test_requests_are_measured(admin: World) -> None:
    """METR-10 to METR-13, METR-51, METR-52."""
    for path in ("/ready", "/metrics", "/debug/pprof/heap", "/livez", "/nothing", "/"):
        await admin.get(path)

    shown = admin.series("request_duration_seconds_count")
    prefix = "rollout_operator_request_duration_seconds_count"
    assert shown == [
        f'{prefix}{{method="GET",route="{route}",status_code="{status}",ws="false"}} 1'
        for route, status in [
            ("ready", 500), ("metrics", 200), ("debug_pprof", 200), ("livez", 200),
            ("other", 404), ("root", 200),
        ]
    ]  # fmt: skip
    assert {line.rsplit(" ", 1)[1] for line in admin.series("inflight_requests")} == {"0"}


async def test_requests_at_work_are_counted() -> None:
    """METR-13; and a handler that breaks is counted as 500, as the client sees it."""
    metrics = Metrics()
    requested, go = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        requested.set()
        await go.wait()
        raise ValueError("broken")

    app = web.Application(middlewares=[measure(metrics, write_limit=timedelta(seconds=5))])
    app.router.add_get("/slow", answer)
    async with listening(app) as port, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(send_request(port, "/slow"))
        await requested.wait()
        inflight = 'rollout_operator_inflight_requests{method="GET",route="slow"} '
        assert f"{inflight}1\n" in b"".join(metrics.render()).decode()
        go.set()
        assert (await waiting).startswith(b"HTTP/1.1 500 ")

    text = b"".join(metrics.render()).decode()
    assert f"{inflight}0\n" in text
    assert (
        'duration_seconds_count{method="GET",route="slow",status_code="500",ws="false"} 1' in text
    )


@pytest.mark.parametrize(
    ("template", "name"),
    [
        pytest.param("/metrics", "metrics", id="METR-51 metrics"),
        pytest.param("/debug/pprof/{name}", "debug_pprof", id="METR-51 variables do not show"),
        pytest.param("/admission/no-downscale", "admission_no_downscale", id="METR-51 admission"),
        pytest.param("/A--b/{x}/C", "a_b_c", id="METR-51 runs collapse, lower case"),
        pytest.param("/", "root", id="the root has a name"),
    ],
)
def test_route_names(template: str, name: str) -> None:
    assert name_route(template) == name


async def send_request(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n{CLOSE}".encode())
    answer = await reader.read()
    writer.close()
    return answer
