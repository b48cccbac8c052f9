"""The admin server over a real socket."""

import asyncio
import socket
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime

import pytest

from rollout_operator.model.description import Description
from rollout_operator.model.names import ConfigError
from rollout_operator.telemetry.metrics import PIECE
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.middleware import ClusterRules
from tests.recorded_spans import recorded
from tests.web.admin_world import World, serving


async def test_ready_follows_health(admin: World) -> None:
    """DEP-13, SEED-062, W-22: 500 with what is missing, then 200, then 500 at once on stop."""
    missing = ["first list not in: cannot list pods in namespace x"]
    assert await admin.get("/ready") == (500, "operator: starting\n")

    admin.health.part("pods", is_ready=lambda: missing[0] if missing else None)
    assert await admin.get("/ready") == (500, f"pods: {missing[0]}\n")

    missing.clear()
    assert await admin.get("/ready") == (200, "ready\n")

    admin.health.stopping()
    assert await admin.get("/ready") == (500, "operator: stopping\n")


async def test_mt70_another_port_answers_as_well(admin: World) -> None:
    """MAZ-63."""
    with socket.create_server(("", 0)) as taken:
        with pytest.raises(ConfigError, match=r"^METRICS_PORT: port \d+ is in use$"):
            await admin.server.listen_also(taken.getsockname()[1], "METRICS_PORT")
        port = taken.getsockname()[1]

    await admin.server.listen_also(port, "METRICS_PORT")

    async with admin.client.get(f"http://127.0.0.1:{port}/metrics") as response:
        assert response.status == 200


async def test_livez_says_faults(admin: World) -> None:
    """LI-14: a died task turns liveness red, and the body says which."""
    assert await admin.get("/livez") == (200, "alive\n")

    admin.health.part("tasks", is_alive=lambda: "ended: pod informer")
    admin.health.part("loop", is_alive=lambda: "two\nlines")
    assert await admin.get("/livez") == (500, "tasks: ended: pod informer\nloop: two\\nlines\n")


async def test_metrics(admin: World) -> None:
    """SEED-063, DEP-13."""
    admin.metrics.begin_group("ingester")
    async with admin.client.get(admin.url("/metrics")) as response:
        text = await response.text()

    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'rollout_operator_group_reconciles_total{rollout_group="ingester"} 0\n' in text


async def test_dep71_openmetrics_is_answered_where_requests_are_traced(admin: World) -> None:
    """DEP-69, DEP-71: without traces it would say nothing more, and its bounds read otherwise."""
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"
    url = admin.url("/metrics")
    for is_traced in (False, True):
        with recorded() if is_traced else nullcontext():
            async with admin.client.get(url, headers={"Accept": accept}) as response:
                text = await response.text()
            async with admin.client.get(url) as plain:
                assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        kind = "application/openmetrics-text" if is_traced else "text/plain"
        assert response.content_type == kind
        assert text.endswith("# EOF\n") is is_traced


async def test_a_scrape_leaves_turns_to_others(admin: World) -> None:
    """D-51: what is read between two turns is bounded, and what others remove there is no error."""
    turn = 0
    reads: Counter[int] = Counter()

    def read() -> float:
        reads[turn] += 1
        return 1

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            admin.metrics.forget_group(f"group-{turn}")
            await asyncio.sleep(0)

    for number in range(3 * PIECE):
        admin.metrics.watch_age(f"kind-{number}", read)
    for number in range(100):
        admin.metrics.begin_group(f"group-{number}")
    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(take_turns())
        status, text = await admin.get("/metrics")
        other.cancel()

    assert status == 200
    assert 'watch_age_seconds{kind="kind-1499"} 1\n' in text
    assert sum(reads.values()) == 3 * PIECE
    # One sample more, since only the sample after a piece shows that it is full.
    assert max(reads.values()) <= PIECE + 1


@pytest.mark.parametrize(
    "path",
    ["/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=5"],
)
async def test_profiler_paths_answer_with_words(admin: World, path: str) -> None:
    """DEP-13: not 404, readable, names what there is instead. SEC-15: no heap contents."""
    status, text = await admin.get(path)

    assert status == 200
    assert text.startswith("There is no Go profiler here")
    assert "/metrics" in text


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/readyz", "/admission/no-downscale"])
async def test_other_paths_do_not_exist(admin: World, path: str) -> None:
    """DEP-13, HTTP-01."""
    assert await admin.get(path) == (404, "not found\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_the_server_is_read_only(admin: World, method: str) -> None:
    async with admin.client.request(method, admin.url("/ready"), data=b"x" * 100) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET,HEAD"


async def test_head_is_a_get_without_body(admin: World) -> None:
    async with admin.client.head(admin.url("/metrics")) as response:
        assert response.status == 200
        assert await response.read() == b""


@pytest.mark.parametrize("path", ["/", "/status", "/ready", "/nothing"])
async def test_answers_are_neither_guessed_nor_kept(admin: World, path: str) -> None:
    """Status text may quote what tenants wrote: no browser may take it for a page."""
    async with admin.client.get(admin.url(path)) as response:
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Content-Type"].startswith("text/plain")


async def test_parallel_scrapes_are_one(admin: World) -> None:
    begun = []

    def read() -> float:
        begun.append(1)
        return 0.0

    admin.metrics.watch_age("pods", read)
    pages = await asyncio.gather(*(admin.get("/metrics") for _ in range(30)))

    assert {status for status, _ in pages} == {200}
    assert len(begun) < 30


async def test_the_status_page_shows_what_it_is_given(admin: World) -> None:
    """Once the operator exists; before, only what is missing."""

    async def describe() -> Description:
        return Description(namespace="other", now=datetime(2026, 1, 2, tzinfo=UTC))

    before = await admin.get("/status.json")
    admin.server.show(describe)
    after = await admin.get("/status.json")

    assert '"namespace":"prod"' in before[1]
    assert '"namespace":"other"' in after[1]


async def test_both_address_families_are_served(admin: World) -> None:
    """DEP-13: all addresses."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with admin.client.get(f"http://[::1]:{admin.server.port}/livez") as response:
        assert response.status == 200


async def test_a_port_in_use_is_a_configuration_error(admin: World) -> None:
    """HTTP-04, DEP-08: fatal at start, and the text names flag and port."""
    other = AdminServer(
        admin.server.port, admin.metrics, admin.health, ClusterRules(namespace="prod")
    )
    with pytest.raises(ConfigError, match=f"^-server.port: port {admin.server.port} is in use$"):
        await other.start()
    await other.stop()


async def test_an_impossible_port_is_a_configuration_error(admin: World) -> None:
    other = AdminServer(65536, admin.metrics, admin.health, ClusterRules(namespace="prod"))
    with pytest.raises(ConfigError, match=r"^-server.port: 65536 is not within 0 and 65535$"):
        await other.start()
    await other.stop()


async def test_stop_frees_the_port_and_closes_idle_connections() -> None:
    async with serving() as admin:
        port = admin.server.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await admin.server.stop()
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
