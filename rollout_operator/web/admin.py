"""The admin server on -server.port: probes, metrics, status page.

Plain HTTP on all addresses, read-only, and it shows nothing that a reader of the namespace could
not see. It is started first and stopped last, so that probes and scrapes always get an answer. The
sentences of the status page are those of `planning.wording`; it is text, not HTML: nothing in it
can be mark-up, and what could steer a terminal is escaped.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from aiohttp import hdrs, web

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.model.names import GroupName
from rollout_operator.planning.wording import explain, explain_actions, one_line
from rollout_operator.telemetry.exposition import CONTENT_TYPE
from rollout_operator.telemetry.health import Health
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import GroupState, GroupStates, PlanUnderway
from rollout_operator.web.http.cluster import ClusterRules, validate_cluster
from rollout_operator.web.http.connection import SERVER, WRITE_LIMIT, Connection, end_silence
from rollout_operator.web.http.listener import bind
from rollout_operator.web.http.metrics import measure

# As many connections may wait for being accepted; the operating system's own limit comes first.
BACKLOG: Final = 128
# Nobody sends a body here.
MAX_BODY: Final = 1024
# Answers are made from memory: one that takes longer waits for a client.
STOP_LIMIT: Final = timedelta(seconds=1)
# A page of metrics is given out for nine times as long as it took to make: that is a tenth of the
# loop. Not for a fixed time: a small page is made in milliseconds, and who asks again wants news.
KEEP_FACTOR: Final = 9
KEEP_LIMIT: Final = timedelta(seconds=1)

_NO_PROFILER: Final = """\
There is no Go profiler here: this operator runs on Python, and it has no profiling endpoint.

/metrics  time, memory and file descriptors of the process, lag of the event loop, queue
/livez    why the process should be restarted
/ready    what is missing
/status   what each rollout group waits for
"""


class AdminServer:
    """The HTTP server of one operator."""

    def __init__(
        self,
        port: int,
        metrics: Metrics,
        health: Health,
        cluster: ClusterRules,
        group_states: GroupStates,
    ) -> None:
        """Build the server; port 0 takes a free one.

        Raises ConfigError where `cluster` holds a bad pattern.
        """
        self._wanted_port = port
        self._metrics = metrics
        self._scrapes = Scrapes(metrics.render, LoopClock())
        self._health = health
        self._group_states = group_states
        self._runner = web.AppRunner(
            self._build(cluster), shutdown_timeout=STOP_LIMIT.total_seconds()
        )
        self._listener: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on. Only between `start` and `stop`."""
        assert self._listener is not None, "start first"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str = "") -> None:
        """Listen on `host`, or on all addresses; when this returns, requests are answered.

        Raises ConfigError for a bad port.
        """
        await self._runner.setup()
        server = self._runner.server
        assert server is not None, "set up just now"
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: Connection(server),
            sock=bind(self._wanted_port, flag="-server.port", host=host),
            backlog=BACKLOG,
        )

    async def stop(self) -> None:
        """Stop listening, give requests under way a second, close all connections."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
        if self._listener is not None:
            await self._listener.wait_closed()
            self._listener = None

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
        for path in ("/", "/status"):
            app.router.add_get(path, self._answer_status)
        for path in ("/debug/pprof", "/debug/pprof/{name:.*}"):
            app.router.add_get(path, _answer_profiler)
        return app

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        page = await self._scrapes.get()
        return web.Response(body=page, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    async def _answer_ready(self, request: web.Request) -> web.Response:
        return _answer_health("ready", self._health.list_missing())

    async def _answer_livez(self, request: web.Request) -> web.Response:
        return _answer_health("alive", self._health.list_faults())

    async def _answer_status(self, request: web.Request) -> web.Response:
        return web.Response(text=render_status(self._health, self._group_states))


class Scrapes:
    """Gives out the page that `render` makes of pieces, made once for all who ask meanwhile.

    It stays on the loop, in pieces of two milliseconds: families are read while they change there,
    and a thread that makes text of them would hold up the loop just as long, by Python's lock.
    """

    def __init__(self, render: Callable[[], Iterable[bytes]], clock: Clock) -> None:
        self._render = render
        self._clock = clock
        self._page = b""
        self._until: timedelta | None = None
        self._underway: asyncio.Future[bytes] | None = None

    async def get(self) -> bytes:
        """Return a page that was begun at most a second, and its own making, ago."""
        while self._underway is not None:
            underway = self._underway
            await asyncio.wait([underway])
            if not underway.cancelled():
                return underway.result()
        if self._until is not None and self._clock.elapsed() < self._until:
            return self._page
        return await self._make()

    async def _make(self) -> bytes:
        self._underway = underway = asyncio.get_running_loop().create_future()
        begin = self._clock.elapsed()
        pieces = []
        try:
            for piece in self._render():
                pieces.append(piece)
                # A thousand groups take 0.2 s: reconciles and probes do not wait for so long.
                await asyncio.sleep(0)
            self._page = b"".join(pieces)
            underway.set_result(self._page)
        finally:
            self._underway = None
            underway.cancel()  # where it was not made: then the next of those who wait makes it
        end = self._clock.elapsed()
        self._until = end + min((end - begin) * KEEP_FACTOR, KEEP_LIMIT)
        return self._page


def render_status(health: Health, group_states: GroupStates) -> str:
    """Return the page."""
    return "".join(f"{one_line(line)}\n" for line in _list_lines(health, group_states))


def _list_lines(health: Health, group_states: GroupStates) -> Iterator[str]:
    yield f"rollout-operator {__version__}"
    missing = health.list_missing()
    yield "ready" if not missing else "not ready"
    yield from (f"  {line}" for line in (*missing, *health.list_descriptions()))
    entries = {entry.plan.group: entry for entry in group_states.entries()}
    underway = group_states.list_underway()
    groups = sorted({*entries, *underway})
    yield f"{len(groups)} rollout group{'' if len(groups) == 1 else 's'}"
    for group in groups:
        yield ""
        yield from _list_group(group, entries.get(group), underway.get(group))


def _list_group(
    group: GroupName, entry: GroupState | None, underway: PlanUnderway | None
) -> Iterator[str]:
    yield f'group "{group}"{" (failed)" if entry is not None and entry.plan.failed else ""}'
    before = ""
    if underway is not None:
        yield f"  underway since {_second(underway.since)}, not done yet:"
        yield from (f"  {sentence}" for sentence in explain_actions(underway.plan))
        before = "before that "
    if entry is not None:
        looked, since = _second(entry.looked), _second(entry.since)
        yield f"  {before}looked at {looked}, in this state since {since}"
        yield from (f"  {sentence}" for sentence in explain(entry.plan))


def _second(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


async def _answer_profiler(request: web.Request) -> web.Response:
    return web.Response(text=_NO_PROFILER)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    response.headers[hdrs.SERVER] = SERVER


def _answer_health(fine: str, complaints: tuple[str, ...]) -> web.Response:
    lines = [one_line(complaint) for complaint in complaints] or [fine]
    return web.Response(status=500 if complaints else 200, text="\n".join([*lines, ""]))
