"""Prometheus itself, built from source like the control plane, without its service discoveries.

`python -m tests.world.prometheus` builds it beforehand. Marked `controlplane` is what needs it.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from tests.world.childproc import Child, free_ports, start_program, wait_served
from tests.world.gobuild import GoProgram

PROMETHEUS: Final = GoProgram(
    title="Prometheus (three to four minutes on two cores)",
    sources=Path(__file__).parent.parent / "prometheus",
    parts=("prometheus",),
    package="github.com/prometheus/prometheus/cmd/prometheus",
    tags="remove_all_sd",
)


@asynccontextmanager
async def serving_metrics(page: Callable[[str], Awaitable[str]]) -> AsyncIterator[str]:
    """Serve the metrics of all pods, each below a path of its own, and yield host and port."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=await page(request.match_info["pod"]))

    app = web.Application()
    app.router.add_get("/{pod}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scraping(
    folder: Path, place: str, namespace: str, pods: Iterable[str], interval: str = "200ms"
) -> AsyncIterator[str]:
    """Scrape pods of a namespace where their metrics are served, and yield the URL."""
    (port,) = free_ports(1)
    settings, log = folder / "prometheus.yaml", folder / "prometheus.log"
    scrapes = [
        {
            "targets": [place],
            "labels": {"__metrics_path__": f"/{pod}", "namespace": namespace, "pod": pod},
        }
        for pod in pods
    ]
    job = {"job_name": "pods", "scrape_interval": interval, "scrape_timeout": interval}
    settings.write_text(json.dumps({"scrape_configs": [{**job, "static_configs": scrapes}]}))
    command: list[str | Path] = [
        PROMETHEUS.locate(),
        f"--config.file={settings}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    child = Child("prometheus", start_program(command, log, {}), log)
    try:
        await asyncio.to_thread(wait_served, f"http://127.0.0.1:{port}/-/ready", child)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.kill()


if __name__ == "__main__":
    sys.stdout.write(f"{PROMETHEUS.locate()}\n")
