"""Call pods over HTTP: prepare them, cancel that, and read since when they are ready.

Decides how long a call may take, how many run at a time and what counts as success. What may be
called is decided in `planning.requests`; what a failure means is left to `guards` and
`controllers`.

A pod is a stranger: redirects are not followed, cookies not kept, bodies not unpacked, and requests
show nothing of us but our namespace and the trace (SEC-11, SEC-12).
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import run_all
from rollout_operator.model.decode.objects import LONGEST_BODY, decode_pod_answer
from rollout_operator.model.names import CLUSTER_HEADER, NotElected, OperatorError, Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.scaling import PodAnswer
from rollout_operator.model.units import format_duration
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.spans import Attribute, tracing

Method = Literal["POST", "DELETE"]

# Of one review or one conversation with a zone, so that it leaves room for others (PREP-20).
AT_MOST_PER_REVIEW: Final = 32
# Tenants choose the paths: a value of a label for each would let them fill our memory (W-59).
MOST_PATHS: Final = 20
_OTHER_PATH: Final = "other"

_LOST: Final = (aiohttp.ClientError, TimeoutError, OSError)
# Without a connection the pod has never got the call.
_NEVER_SENT: Final = (aiohttp.ClientConnectorError, ConnectionRefusedError)
# Of a proxy before the pod that has given up: the pod may still be at it.
_NOT_OF_THE_POD: Final = frozenset({502, 504})


# Reading pauses at twice this much of a body; most are closed unread once their head is there.
_READ_BUFFER: Final = 32 * 1024
# Servers send about ten headers, meshes add as many; together at most 128 KiB are taken.
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 2 * 1024
_LONGEST_EXCERPT: Final = 200


class PodError(OperatorError):
    """A pod did not confirm a call. The text names the call, the pod and its answer.

    The pod may have acted on the call all the same.
    """

    def __init__(self, text: str, *, may_arrive: bool = False) -> None:
        """`may_arrive`: the pod has not answered, and may still get the call."""
        super().__init__(text)
        self.may_arrive = may_arrive


class _ConnectionBroken(aiohttp.ClientError):
    """The connection broke after the request was sent: it must not be sent a second time."""


class Sender(Protocol):
    """The way to pods: sends one request, once."""

    async def send(
        self, method: Method, endpoint: Endpoint, *, reads_body: bool = False
    ) -> tuple[int, bytes]:
        """Return the HTTP status, and the body of a 2xx if it is wanted.

        Raises aiohttp.ClientError, OSError and TimeoutError. Waits without a limit of its own, and
        gives up where it is cancelled. Of a body at most one byte more is read than
        `model.decode.objects.LONGEST_BODY`.
        """
        ...

    async def close(self) -> None: ...


def _fail(method: Method, endpoint: Endpoint, problem: str, *, may_arrive: bool) -> PodError:
    return PodError(f"{method} {endpoint.pod}: {problem}", may_arrive=may_arrive)


class PodClient:
    """All calls of one process to pods: at most `at_most` at a time, each within `timeout`.

    Waiting for its turn takes nothing off the time of a call.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        timeout: timedelta,
        fence: Callable[[str], object] = lambda call: None,
        metrics: Metrics,
        clock: Clock,
        at_most: int = 64,
    ) -> None:
        self._sender = sender
        self._timeout = timeout
        self._fence = fence
        self._metrics = metrics
        self._clock = clock
        self._turns = asyncio.Semaphore(at_most)
        self._paths: set[str] = set()

    async def prepare_all(self, endpoints: Sequence[Endpoint]) -> list[PodError]:
        """POST to all in this order until one fails; return no errors where all have confirmed.

        The first failure cancels the calls under way and begins no more, so that the errors are
        those of the calls that failed by themselves. Any 2xx confirms.
        """
        failures: list[PodError] = []

        async def prepare(endpoint: Endpoint) -> None:
            await self._call("POST", endpoint)

        try:
            await _call_each("prepare", endpoints, prepare)
        except* PodError as group:
            failures += [error for error in group.exceptions if isinstance(error, PodError)]
        return failures

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        """DELETE at all, once each, whatever becomes of the others; return those that failed."""
        failures: dict[Uid, PodError] = {}

        async def cancel(endpoint: Endpoint) -> None:
            try:
                await self._call("DELETE", endpoint)
            except PodError as error:
                failures[endpoint.uid] = error

        await _call_each("cancel", endpoints, cancel)
        return failures

    async def fetch_answers(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodAnswer]:
        """POST to all, once each, whatever becomes of the others; return what each has answered.

        Each endpoint has an answer, without a time where no good answer came within the limit
        (W-20). The times of the requests are this machine's.
        """
        answers: dict[Uid, PodAnswer] = {}

        async def fetch(endpoint: Endpoint) -> None:
            answers[endpoint.uid] = await self._fetch_answer(endpoint)

        await _call_each("fetch", endpoints, fetch)
        return answers

    async def close(self) -> None:
        await self._sender.close()

    async def _call(self, method: Method, endpoint: Endpoint) -> None:
        async with self._turns:
            status, _ = await self._attempt(method, endpoint)
        if not is_success(status):
            may_arrive = status in _NOT_OF_THE_POD
            raise _fail(method, endpoint, f"HTTP status {status}", may_arrive=may_arrive)

    async def _fetch_answer(self, endpoint: Endpoint) -> PodAnswer:
        async with self._turns:
            called_at = self._clock.now()
            try:
                status, body = await self._attempt("POST", endpoint, reads_body=True)
            except PodError as error:
                return PodAnswer(
                    called_at=called_at, since=None, problem=str(error), is_lost=error.may_arrive
                )
        return decode_pod_answer(endpoint.pod, status, body, called_at)

    async def _attempt(
        self, method: Method, endpoint: Endpoint, *, reads_body: bool = False
    ) -> tuple[int, bytes]:
        """Send once. Raises PodError where no answer comes, or none that can be read.

        Nothing is sent by a process that may not act: another process calls pods by now.
        """
        try:
            self._fence("call pods")
        except NotElected as error:
            raise _fail(method, endpoint, f"{error}", may_arrive=False) from error
        status, start = 0, self._clock.elapsed()
        with tracing.spans.begin_within("call pod") as span:
            try:
                async with asyncio.timeout(self._timeout.total_seconds()) as limit:
                    status, body = await self._sender.send(method, endpoint, reads_body=reads_body)
            except _LOST as error:
                problem = (
                    f"no answer within {format_duration(self._timeout)}"
                    if limit.expired()
                    else describe(error)
                )
                may_arrive = not isinstance(error, _NEVER_SENT)
                raise _fail(method, endpoint, problem, may_arrive=may_arrive) from error
            finally:
                duration = (self._clock.elapsed() - start).total_seconds()
                labels = (self._path_label(endpoint.path), method, f"{status or 'error'}")
                self._metrics.pod_request_duration.labels(*labels).observe(
                    duration, dict(span.log_keys)
                )
                if span.is_recorded:
                    span.set_attributes(_describe_call(method, endpoint, status))
        return status, body

    def _path_label(self, path: str) -> str:
        if len(self._paths) < MOST_PATHS:
            self._paths.add(path)
        return f"/{path}" if path in self._paths else _OTHER_PATH


def describe(error: Exception) -> str:
    """Return what went wrong in words of our own: those of aiohttp quote what the pod sent."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = error.certificate_error
        message = why.verify_message if isinstance(why, ssl.SSLCertVerificationError) else ""
        return f"certificate not accepted: {message}" if message else "certificate not accepted"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "no TLS connection"
    if isinstance(error, aiohttp.ClientConnectorError):
        code = error.os_error.errno
        return f"no connection: {os.strerror(code).lower()}" if code else "no connection"
    if isinstance(error, aiohttp.ClientResponseError):
        return "no valid HTTP answer, or too long headers"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, _ConnectionBroken):
        return "connection closed without an answer"
    return f"no answer: {type(error).__name__}"


def _describe_call(method: Method, endpoint: Endpoint, status: int) -> Mapping[str, Attribute]:
    attributes: dict[str, Attribute] = {
        "pod": endpoint.pod,
        "http.request.method": method,
        "url.path": f"/{endpoint.path}",
    }
    return {**attributes, "http.response.status_code": status} if status else attributes


def is_success(status: int) -> bool:
    return 200 <= status < 300


async def _call_each(
    name: str, endpoints: Sequence[Endpoint], call: Callable[[Endpoint], Awaitable[None]]
) -> None:
    """Call all in this order, some at a time; the first error cancels the others."""
    waiting = iter(endpoints)

    async def work() -> None:
        for endpoint in waiting:
            await call(endpoint)

    workers = min(len(endpoints), AT_MOST_PER_REVIEW)
    await run_all([work() for _ in range(workers)], name=name)


class HttpSender:
    """Sends over one session, which the first call opens."""

    def __init__(self, namespace: str, *, trust: ssl.SSLContext | None = None) -> None:
        """`trust` judges the certificates of pods; None trusts the CAs of the system."""
        self._namespace = namespace
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def send(
        self, method: Method, endpoint: Endpoint, *, reads_body: bool = False
    ) -> tuple[int, bytes]:
        async with self._open(method, endpoint) as response:
            is_read = reads_body and is_success(response.status)
            return response.status, await _read(response) if is_read else b""

    @asynccontextmanager
    async def _open(
        self, method: Method, endpoint: Endpoint
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = render_url(endpoint)
        # A query may hold secrets.
        log.debug("Calling pod", pod=endpoint.pod, method=method, url=url.partition("?")[0])
        if self._is_closed:
            raise aiohttp.ClientConnectionError("the operator is stopping")
        if self._session is None:
            self._session = _open_session(self._namespace)
        if self._trust is None and endpoint.scheme == "https":
            self._trust = ssl.create_default_context()
        async with self._session.request(
            method,
            # As it was written: what is escaped in it stays so, and what is not, too.
            URL(url, encoded=True),
            headers={"Host": endpoint.authority, **tracing.spans.make_headers()},
            allow_redirects=False,
            server_hostname=endpoint.host.removesuffix("."),
            ssl=self._trust or True,
        ) as response:
            if not is_success(response.status):
                log.debug("Pod refused", pod=endpoint.pod, body=_excerpt(response))
            try:
                yield response
            finally:
                # Released, it would be read to its end in the background to use the connection
                # again.
                response.close()

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()


def render_url(endpoint: Endpoint) -> str:
    """Return where to connect: the address itself, so that no name decides where we connect."""
    host = f"[{endpoint.ip}]" if ":" in endpoint.ip else endpoint.ip
    query = f"?{endpoint.query}" if endpoint.query else ""
    return f"{endpoint.scheme}://{host}:{endpoint.port}/{endpoint.path}{query}"


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while piece := await response.content.read(LONGEST_BODY + 1 - len(body)):
        body += piece
    return bytes(body)


def _excerpt(response: aiohttp.ClientResponse) -> str:
    """Return the beginning of a body on one printable line, as far as it came with the head.

    Waiting for more would let a pod that never ends delay what its refusal must stop.
    """
    if response.content.exception() is not None:
        return ""
    text = response.content.read_nowait(_LONGEST_EXCERPT).decode("utf-8", "replace")
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    return escaped[:_LONGEST_EXCERPT]


def _open_session(namespace: str) -> aiohttp.ClientSession:
    """Return a session without limits of its own in number and time; needs a running loop."""
    connector = aiohttp.TCPConnector(
        resolver=NoResolver(), use_dns_cache=False, force_close=True, limit=0
    )
    return make_session(
        namespace,
        connector,
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER,
        max_headers=_MOST_HEADERS,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
        middlewares=(_send_once,),
    )


def make_session(
    namespace: str, connector: aiohttp.BaseConnector, **limits: Any
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        headers={
            "User-Agent": f"rollout-operator/{__version__}",
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            CLUSTER_HEADER: namespace,
        },
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        **limits,
    )


class NoResolver(AbstractResolver):
    """Looks nothing up: no address needs it, and a name has slipped past all checks."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> NoReturn:
        raise OSError(f"{host!r} is no address")

    async def close(self) -> None:
        pass


async def _send_once(
    request: aiohttp.ClientRequest,
    send: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]],
) -> aiohttp.ClientResponse:
    """Hide a broken connection from aiohttp, which would send a DELETE a second time."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _ConnectionBroken from error
