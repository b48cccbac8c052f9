"""The admin server on -server.port: probes, metrics, status page.

Plain HTTP on all addresses, read-only, and it shows nothing that a reader of the namespace could
not see. It is started first and stopped last, so that probes and scrapes always get an answer.
`show` says what the status page shows; until then the page says what is missing.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final

from aiohttp import hdrs, web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.aio.shared import Shared, join_pieces, keep_if_dear
from rollout_operator.model.description import Description
from rollout_operator.planning.wording import one_line
from rollout_operator.telemetry.exposition import CONTENT_TYPE, OPENMETRICS_TYPE
from rollout_operator.telemetry.health import Health
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.spans import tracing
from rollout_operator.web.http.cluster import ClusterRules, validate_cluster
from rollout_operator.web.http.connection import SERVER, WRITE_LIMIT, Connection, end_silence
from rollout_operator.web.http.listener import bind
from rollout_operator.web.http.metrics import measure
from rollout_operator.web.status.pages import Describe, StatusPages

# As many connections may wait for being accepted; the operating system's own limit comes first.
BACKLOG: Final = 128
# No client sends a body here.
MAX_BODY: Final = 1024
# Answers are made from memory: an answer that takes longer waits for its client.
STOP_LIMIT: Final = timedelta(seconds=1)
_NO_PROFILER: Final = """\
There is no Go profiler here: this operator runs on Python, and it has no profiling endpoint.

/metrics  time, memory and file descriptors of the process, lag of the event loop, queue
/livez    why the process should be restarted
/ready    what is missing
/status   what each rollout group waits for; /status.json for programs
/reasons  what the reasons mean, and what to do
"""


class AdminServer:
    """The HTTP server of one operator."""

    def __init__(
        self,
        port: int,
        metrics: Metrics,
        health: Health,
        cluster: ClusterRules,
    ) -> None:
        """Build the server; port 0 takes a free one.

        Raises ConfigError where `cluster` holds a bad pattern.
        """
        self._wanted_port = port
        self._metrics = metrics
        self._health = health
        self._namespace = cluster.namespace
        self._clock = LoopClock()
        self._scrapes = {
            content: Shared(partial(join_pieces, render), self._clock, keep_if_dear)
            for content, render in (
                (CONTENT_TYPE, metrics.render),
                (OPENMETRICS_TYPE, metrics.render_openmetrics),
            )
        }
        self._status = StatusPages(self._describe_start, self._clock)
        self._runner = web.AppRunner(
            self._build(cluster), shutdown_timeout=STOP_LIMIT.total_seconds()
        )
        self._listener: asyncio.Server | None = None
        self._also: list[asyncio.Server] = []

    @property
    def port(self) -> int:
        """Return the port that is listened on. Only between `start` and `stop`."""
        assert self._listener is not None, "start first"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def show(self, describe: Describe) -> None:
        """Let the status page show what `describe` returns, from now on."""
        self._status.show(describe)

    async def start(self, host: str = "") -> None:
        """Listen on `host`, or on all addresses; when this returns, requests are answered.

        Raises ConfigError for a bad port.
        """
        await self._runner.setup()
        self._listener = await self._listen(self._wanted_port, "-server.port", host)

    async def listen_also(self, port: int, variable: str) -> None:
        """Answer on one more port, on all addresses. Raises ConfigError that names `variable`."""
        self._also.append(await self._listen(port, variable))

    async def stop(self) -> None:
        """Stop listening, give requests under way a second, close all connections."""
        self._status.close()
        listeners = [server for server in (self._listener, *self._also) if server is not None]
        for listener in listeners:
            listener.close()
        await self._runner.cleanup()
        for listener in listeners:
            await listener.wait_closed()
        self._listener = None
        self._also.clear()

    async def _listen(self, port: int, flag: str, host: str = "") -> asyncio.Server:
        server = self._runner.server
        assert server is not None, "set up before"
        return await asyncio.get_running_loop().create_server(
            lambda: Connection(server), sock=bind(port, flag=flag, host=host), backlog=BACKLOG
        )

    def _build(self, cluster: ClusterRules) -> web.Application:
        app = web.Application(
            client_max_size=MAX_BODY,
            middlewares=[
                end_silence,
                measure(self._metrics, write_limit=WRITE_LIMIT),
                validate_cluster(cluster, self._metrics),
            ],
        )
        app.on_response_prepare.append(_add_headers)
        app.router.add_get("/metrics", self._answer_metrics)
        app.router.add_get("/ready", self._answer_ready)
        app.router.add_get("/livez", self._answer_livez)
        self._status.add_routes(app.router)
        for path in ("/debug/pprof", "/debug/pprof/{name:.*}"):
            app.router.add_get(path, _answer_profiler)
        return app

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        content = _choose_format(request.headers.get(hdrs.ACCEPT, ""))
        page = await self._scrapes[content].get()
        return web.Response(body=page, headers={hdrs.CONTENT_TYPE: content})

    async def _answer_ready(self, request: web.Request) -> web.Response:
        fine = "\n".join(["ready", *map(one_line, self._health.list_partial_lacks())])
        return _answer_health(fine, self._health.list_missing())

    async def _answer_livez(self, request: web.Request) -> web.Response:
        return _answer_health("alive", self._health.list_faults())

    async def _describe_start(self) -> Description:
        """Describe an operator that has nothing to show but its health so far."""
        operator = self._health.describe(is_acting=False)
        now = self._clock.now()
        return Description(namespace=self._namespace, now=now, operator=operator)


def _choose_format(accept: str) -> str:
    """Return OpenMetrics where it is accepted and has more to say: exemplars, of what is traced."""
    is_open = tracing.is_on and "application/openmetrics-text" in accept
    return OPENMETRICS_TYPE if is_open else CONTENT_TYPE


async def _answer_profiler(request: web.Request) -> web.Response:
    return web.Response(text=_NO_PROFILER)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.headers[hdrs.SERVER] = SERVER


def _answer_health(fine: str, complaints: tuple[str, ...]) -> web.Response:
    lines = [one_line(complaint) for complaint in complaints] or [fine]
    return web.Response(status=500 if complaints else 200, text="\n".join([*lines, ""]))
