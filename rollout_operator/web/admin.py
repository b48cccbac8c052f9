"""The admin server on -server.port: probes, metrics, and the status page.

Plain HTTP and read-only; it shows nothing that a reader of the namespace could not see. All
requests within a second share one description, and each rendering is made once. The page needs
nothing from elsewhere: style and script are in it, and its policy names them by their hashes.
Without the script it reloads every few seconds. Browsers that stay get server-sent events, and only
what has changed: a bounded number of them, each at its own moment of a second, so that together
they never hold the loop for long.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from heapq import heapify, heappop, heappush
from http import HTTPStatus
from importlib.resources import files
from typing import Final

import msgspec
from aiohttp import hdrs, web

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.aio.tasks import Shared, join_pieces, keep_if_dear
from rollout_operator.model.description import SCHEMA_VERSION, Description
from rollout_operator.model.outcome import Code
from rollout_operator.planning.cards import Form, Moment
from rollout_operator.planning.text import render_description
from rollout_operator.planning.wording import one_line
from rollout_operator.telemetry.exposition import CONTENT_TYPE, OPENMETRICS_TYPE
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.spans import tracing
from rollout_operator.telemetry.states import Health
from rollout_operator.web.cards import (
    POD_ICONS,
    Fragment,
    SectionRenderer,
    escape,
    gather,
    render_icon,
    render_prose,
    render_remedy,
    render_time,
)
from rollout_operator.web.connection import (
    SERVER,
    WRITE_LIMIT,
    Connection,
    Crowd,
    bind,
    end_silence,
    write_pieces,
)
from rollout_operator.web.middleware import ClusterRules, measure, validate_cluster

_RELOAD_SECONDS: Final = 5
# Characters; lines of text take longer to make than as much HTML.
_TEXT_PIECE: Final = 1 << 12
# Each in a square of 16, drawn with the colour of the text beside it.
_ICONS: Final = {
    "done": '<path d="M3 8.5l3.5 3.5L13 4.5"/>',
    "moving": '<path d="M4 3l8 5-8 5z" class="f"/>',
    "scaling": '<path d="M8 2v12M4.5 5.5L8 2l3.5 3.5M4.5 10.5L8 14l3.5-3.5"/>',
    "waiting": '<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 2"/>',
    "held": '<path d="M8 1.5L15 14H1z"/><path d="M8 6v4M8 11.8v.4"/>',
    "turn": '<path d="M2 8h11M9 4l4 4-4 4"/>',
    "ready": '<path d="M3 8.5l3.5 3.5L13 4.5"/>',
    "starting": '<circle cx="8" cy="8" r="5.5"/><path d="M8 2.5a5.5 5.5 0 010 11z" class="f"/>',
    "unready": '<path d="M8 2.5v7M8 12.8v.4"/>',
    "going": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "missing": '<path d="M4 8h8"/>',
    "unknown": '<path d="M5.5 6a2.5 2.5 0 115 0c0 2-2.5 2-2.5 4M8 12.8v.4"/>',
}
_FAVICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='3' fill='%230b6bcb'/%3E"
    "%3Cpath d='M4 4h8M4 8h8M4 12h5' stroke='white' stroke-width='2'/%3E%3C/svg%3E"
)
MOST_CLIENTS: Final = 256
# Those and all others. With the connections to the webhooks it is within the 1024 descriptors that
# a process may have where nobody allows more.
_MOST_CONNECTIONS: Final = 384
_INTERVAL: Final = timedelta(seconds=1)
# So many clients are served each second: more of them have their turn more seldom.
_CLIENTS_A_SECOND: Final = 50
# Proxies cut what is silent for a minute or less; the page warns of a lost connection after 25 s.
HEARTBEAT: Final = timedelta(seconds=10)
# How long a browser waits until it connects again, also where it found no place.
_RETRY: Final = timedelta(seconds=3)
_RETRY_AFTER: Final = timedelta(seconds=10)
_PLACES: Final = MOST_CLIENTS.bit_length() - 1
_Describe = Callable[[], Awaitable[Description]]
# Where grafana/rollout-operator has its page. Relative: a proxy may have put a path before ours.
_ELSEWHERE: Final = {"/ui": "status", "/ui/status": "../status"}
_HTML: Final = "text/html"
_JSON: Final = "application/json"
# As many connections may wait for being accepted; the operating system's own limit comes first.
_BACKLOG: Final = 128
# No client sends a body here.
_MAX_BODY: Final = 1024
# Answers are made from memory: an answer that takes longer waits for its client.
_STOP_LIMIT: Final = timedelta(seconds=1)
_NO_PROFILER: Final = """\
There is no Go profiler here: this operator runs on Python, and it has no profiling endpoint.

/metrics  time, memory and file descriptors of the process, lag of the event loop, queue
/livez    why the process should be restarted
/ready    what is missing
/status   what each rollout group waits for; /status.json for programs
/reasons  what the reasons mean, and what to do
"""


class AdminServer:
    def __init__(
        self,
        port: int,
        metrics: Metrics,
        health: Health,
        cluster: ClusterRules,
    ) -> None:
        """Port 0 takes a free one. Raises ConfigError where `cluster` holds a bad pattern."""
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
        self._status = _StatusPages(self._describe_start, self._clock)
        self._runner = web.AppRunner(
            self._build(cluster), shutdown_timeout=_STOP_LIMIT.total_seconds()
        )
        self._crowd = Crowd(_MOST_CONNECTIONS)
        self._listener: asyncio.Server | None = None
        self._also: list[asyncio.Server] = []

    @property
    def port(self) -> int:
        """Return the port, between `start` and `stop`."""
        assert self._listener is not None, "start first"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def show(self, describe: _Describe) -> None:
        """Have the status page show what `describe` returns."""
        self._status.show(describe)

    async def start(self, host: str = "") -> None:
        """Listen on `host`, or on all addresses. Raises ConfigError for a bad port."""
        await self._runner.setup()
        self._listener = await self._listen(self._wanted_port, "-server.port", host)

    async def listen_also(self, port: int, variable: str) -> None:
        """Listen on one more port. Raises ConfigError that names `variable`."""
        self._also.append(await self._listen(port, variable))

    async def stop(self) -> None:
        """Give requests in flight a second, then close all connections."""
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
            lambda: Connection(server, crowd=self._crowd),
            sock=bind(port, flag=flag, host=host),
            backlog=_BACKLOG,
        )

    def _build(self, cluster: ClusterRules) -> web.Application:
        app = web.Application(
            client_max_size=_MAX_BODY,
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
        """Describe an operator that has only its health to show."""
        operator = self._health.describe(is_acting=False)
        now = self._clock.now()
        return Description(namespace=self._namespace, now=now, operator=operator)


@cache
def read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


@cache
def make_policy() -> str:
    """Return the Content-Security-Policy of every page."""
    style, script = (
        f"sha256-{b64encode(sha256(read_asset(name).encode()).digest()).decode()}"
        for name in ("page.css", "page.js")
    )
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{style}'",
            f"script-src '{script}'",
            "connect-src 'self'",
            "img-src data:",  # the icon in the tab
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def list_page(namespace: str, now: datetime, sections: Iterable[str]) -> Iterator[bytes]:
    yield _render_head(namespace, now).encode()
    yield from gather(sections)
    yield _render_foot().encode()


def _render_head(namespace: str, now: datetime) -> str:
    name = escape(namespace)
    reload = f'<noscript><meta http-equiv="refresh" content="{_RELOAD_SECONDS}"></noscript>'
    return (
        f"{_begin_document(f'{namespace} - rollout-operator', reload)}"
        f'<body data-now="{int(now.timestamp() * 1000)}">{_render_icons()}'
        f'<header class="top"><h1><span>rollout-operator</span> <b>{name}</b></h1>'
        f'<p id="link" class="link" role="status"><span id="link-text">'
        f"as of {render_time(Moment(now, Form.AT))}</span></p></header>{_render_legend()}<main>"
        f'<div id="live" data-name="{name}">'
    )


def _render_foot() -> str:
    links = " ".join(
        f'<a href="{path}">{word}</a>'
        for path, word in (
            ("status.json", "JSON"),
            ("status.schema.json", "schema"),
            ("reasons", "all reasons"),
            ("metrics", "metrics"),
        )
    )
    return (
        f"</div></main><footer><span>rollout-operator {__version__}</span>"
        f"<nav>{links}</nav></footer><script>{read_asset('page.js')}</script></body></html>\n"
    )


def _render_legend() -> str:
    cells = "".join(
        f"<li>{_render_cell(icon, 'new')}{state}</li>" for state, icon in POD_ICONS.items()
    )
    return (
        f'<aside class="legend" aria-label="Legend"><ul>{cells}'
        f"<li>{_render_cell('ready', 'new')}filled: update revision</li>"
        f"<li>{_render_cell('ready', 'old')}hollow: older revision</li>"
        "</ul></aside>"
    )


def _render_cell(icon: str, age: str) -> str:
    return f'<span class="cell {icon} {age}">{render_icon(icon)}</span>'


def _begin_document(title: str, extra: str) -> str:
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'{extra}<title>{escape(title)}</title><link rel="icon" href="{_FAVICON}">'
        f"<style>{read_asset('page.css')}</style></head>"
    )


@cache
def _render_icons() -> str:
    symbols = "".join(
        f'<symbol id="i-{name}" viewBox="0 0 16 16">{shape}</symbol>'
        for name, shape in _ICONS.items()
    )
    return f'<svg class="icons" aria-hidden="true">{symbols}</svg>'


def list_document(description: Description) -> Iterator[bytes]:
    """Yield the JSON in pieces: a thousand groups take longer to encode than the loop may stall."""
    for number, field in enumerate(msgspec.structs.fields(Description)):
        value = getattr(description, field.name)
        if value is msgspec.UNSET:
            continue
        yield b"%s%s:" % (b"," if number else b"{", msgspec.json.encode(field.encode_name))
        if not isinstance(value, tuple):
            yield msgspec.json.encode(value)
            continue
        yield b"["
        for position, element in enumerate(value):
            yield (b"," if position else b"") + msgspec.json.encode(element)
        yield b"]"
    yield b"}\n"


@cache
def render_schema() -> bytes:
    return render_schema_of(Description, f"rollout-operator /status.json, version {SCHEMA_VERSION}")


def render_schema_of(kind: type[msgspec.Struct], title: str) -> bytes:
    schema = msgspec.json.schema(kind)
    # Reasons are added without a new version: a program must not refuse an unknown reason.
    schema["$defs"][Code.__name__] = {"title": Code.__name__, "type": "string"}
    titled = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
    }
    return msgspec.json.format(msgspec.json.encode(titled), indent=2) + b"\n"


class EventStreams:
    """The server-sent events of one server. Use from one event loop only."""

    def __init__(
        self, get: Callable[[], Awaitable[Fragment]], *, write_limit: timedelta = WRITE_LIMIT
    ) -> None:
        """`get` returns what a page shows now; a client has `write_limit` to take a piece."""
        self._get = get
        self._write_limit = write_limit
        self._free = list(range(MOST_CLIENTS))
        heapify(self._free)
        self._closing = asyncio.Event()

    @property
    def clients(self) -> int:
        return MOST_CLIENTS - len(self._free)

    def close(self) -> None:
        self._closing.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send news until the client leaves or the server stops; 503 when all places are taken."""
        if not self._free or self._closing.is_set():
            return web.Response(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                text="too many live pages: load /status again\n",
                headers={hdrs.RETRY_AFTER: f"{_RETRY_AFTER.total_seconds():.0f}"},
            )
        place = heappop(self._free)
        try:
            return await self._stream(request, place)
        finally:
            heappush(self._free, place)

    async def _stream(self, request: web.Request, place: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream"})
        # nginx would gather what is sent.
        response.headers["X-Accel-Buffering"] = "no"
        transport = request.transport
        if request.method == hdrs.METH_HEAD or transport is None:
            return response
        transport.set_write_buffer_limits(high=0)
        client = _Client(response, transport, self._write_limit)
        try:
            await response.prepare(request)
            await client.send(b"retry: %d\n\n" % (_RETRY // timedelta(milliseconds=1)))
            while not transport.is_closing() and not self._closing.is_set():
                if not client.is_behind():
                    await client.update(await self._get())
                await self._wait(_measure_wait(place, self._choose_interval()))
        except TimeoutError:
            transport.abort()
        except ConnectionError:
            return response  # the client has gone; the server sees the same and cleans up
        return response

    def _choose_interval(self) -> float:
        return max(_INTERVAL.total_seconds(), self.clients / _CLIENTS_A_SECOND)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return


class _Client:
    def __init__(
        self, response: web.StreamResponse, transport: asyncio.WriteTransport, limit: timedelta
    ) -> None:
        self._response = response
        self._transport = transport
        self._limit = limit.total_seconds()
        self._seen: Fragment | None = None
        self._sent = 0.0

    def is_behind(self) -> bool:
        """Return whether the client has yet to take bytes. Raises TimeoutError after a while."""
        if not self._transport.get_write_buffer_size():
            return False
        if _now() - self._sent > self._limit:
            raise TimeoutError
        return True

    async def update(self, fragment: Fragment) -> None:
        """Send what has changed, and now and then a sign of life."""
        if self._seen is None or fragment.number != self._seen.number:
            news = fragment.render_news(self._seen)
            self._seen = fragment
            await self.send(news)
        elif _now() - self._sent >= HEARTBEAT.total_seconds():
            await self.send(b"event: alive\ndata: 1\n\n")

    async def send(self, data: bytes) -> None:
        self._sent = _now()
        async with asyncio.timeout(self._limit):
            await write_pieces(self._response, data, len(data))


def _measure_wait(place: int, interval: float) -> float:
    """Return the seconds until the next turn of a place: neighbours are half a round apart."""
    turn = int(f"{place:0{_PLACES}b}"[::-1], 2) / MOST_CLIENTS * interval
    wait = (turn - _now()) % interval
    return wait if wait > interval / 2 else wait + interval


def _now() -> float:
    return asyncio.get_running_loop().time()


@cache
def _render_reasons() -> bytes:
    head = f"{_begin_document('Reasons - rollout-operator', '')}<body><main>"
    return f"{head}{''.join(_list_codes())}</main></body></html>\n".encode()


@cache
def _render_plain_reasons() -> bytes:
    return "".join(f"{line}\n" for code in Code for line in _list_lines(code)).encode()


def _list_codes() -> Iterator[str]:
    yield (
        '<header class="top"><h1><span>rollout-operator</span> <b>Reasons</b></h1>'
        '<p><a href="status">status</a></p></header><div class="card"><dl class="code-list">'
    )
    for code in Code:
        to_do = render_remedy(code.remedy)
        yield (
            f'<dt id="{code}"><a class="code" href="#{code}">{code}</a></dt>'
            f"<dd>{render_prose(code.meaning)}{to_do}</dd>"
        )
    yield "</dl></div>"


def _list_lines(code: Code) -> Iterator[str]:
    yield f"{code}"
    yield f"    {code.meaning}"
    if code.remedy:
        yield f"    To do: {code.remedy}"


class _StatusPages:
    def __init__(self, describe: _Describe, clock: Clock) -> None:
        """`describe` is called at most once a second, and only for a request."""
        self._clock = clock
        self._describe = describe
        self._sections = SectionRenderer()
        self._renderings = Shared(self._begin, clock)
        self._streams = EventStreams(self._get_fragment)

    def show(self, describe: _Describe) -> None:
        self._describe = describe
        self._renderings = Shared(self._begin, self._clock)

    def close(self) -> None:
        self._streams.close()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        for path in ("/", "/status"):
            router.add_get(path, self._answer_status)
        for path, target in _ELSEWHERE.items():
            router.add_get(path, partial(_lead_to, target))
        router.add_get("/status.json", self._answer_document)
        router.add_get("/status.schema.json", _answer_schema)
        router.add_get("/status/events", self._streams.answer)
        router.add_get("/reasons", _answer_reasons)

    async def _begin(self) -> "_Renderings":
        return _Renderings(await self._describe(), self._sections, self._clock)

    async def _get_fragment(self) -> Fragment:
        return await (await self._renderings.get()).fragment.get()

    async def _answer_status(self, request: web.Request) -> web.Response:
        renderings = await self._renderings.get()
        if _wants_html(request):
            return _make_page(await renderings.page.get())
        return _make_text(await renderings.text.get())

    async def _answer_document(self, request: web.Request) -> web.Response:
        body = await (await self._renderings.get()).document.get()
        return web.Response(body=body, content_type=_JSON)


class _Renderings:
    """One description, and its renderings so far."""

    def __init__(self, description: Description, sections: SectionRenderer, clock: Clock) -> None:
        self._description = description
        self.fragment = Shared(partial(sections.render, description), clock)
        self.page = Shared(self._make_page, clock)
        self.text = Shared(partial(join_pieces, self._list_text), clock)
        list_all = partial(list_document, description)
        self.document = Shared(partial(join_pieces, list_all), clock)

    async def _make_page(self) -> bytes:
        description, sections = self._description, (await self.fragment.get()).sections
        return await join_pieces(
            lambda: list_page(description.namespace, description.now, sections.values())
        )

    def _list_text(self) -> Iterator[bytes]:
        return gather((f"{line}\n" for line in render_description(self._description)), _TEXT_PIECE)


def _wants_html(request: web.Request) -> bool:
    """Return whether the client is a browser, which names HTML in `Accept`."""
    for choice in request.headers.get(hdrs.ACCEPT, "").split(","):
        kind, *parameters = (part.strip().lower() for part in choice.split(";"))
        if kind == _HTML and "q=0" not in parameters:
            return True
    return False


async def _lead_to(target: str, request: web.Request) -> web.Response:
    return web.Response(status=302, headers={hdrs.LOCATION: target})


async def _answer_schema(request: web.Request) -> web.Response:
    return web.Response(body=render_schema(), content_type=_JSON)


async def _answer_reasons(request: web.Request) -> web.Response:
    if _wants_html(request):
        return _make_page(_render_reasons())
    return _make_text(_render_plain_reasons())


def _make_page(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type=_HTML, charset="utf-8")
    response.headers[hdrs.VARY] = hdrs.ACCEPT
    response.headers["Content-Security-Policy"] = make_policy()
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


def _make_text(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type="text/plain", charset="utf-8")
    response.headers[hdrs.VARY] = hdrs.ACCEPT
    return response


def _choose_format(accept: str) -> str:
    """Return OpenMetrics where it is accepted and traces give it exemplars."""
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
