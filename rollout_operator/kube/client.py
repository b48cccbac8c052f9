"""Call the API server for one component: reads, watches, writes.

`_Exchange` sends one request: limited in rate and time, measured, with failures translated. It
repeats a request once after a 401, which did nothing, and once after the connection of a read
broke, since a load balancer may have closed it while it was idle. Backing off is left to callers.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import (
    CORE_GROUP,
    CORE_VERSIONS,
    DEFAULT_TIMEOUTS,
    DISCOVER,
    DRY_RUN,
    Call,
    Fence,
    JsonObject,
    Page,
    Precondition,
    Resource,
    Served,
    Timeouts,
    WatchEvent,
    apply_query,
    delete_options,
    discovery_call,
    no_fence,
    page_query,
    watch_query,
    without_managed_fields,
)
from rollout_operator.kube.connection import NotRepeated, PageSizes, Transport
from rollout_operator.kube.rate_limit import Priority, RateLimiter, name_bucket
from rollout_operator.kube.responses import (
    CLUSTER_MISMATCH,
    LARGE,
    MAX_ERROR_BODY,
    Splitter,
    cut_deep,
    decode_event,
    decode_group,
    decode_resources,
    error_of,
    excerpt,
    level,
    level_large,
    mismatch_error,
    read_mismatch,
    read_status,
)
from rollout_operator.model.names import ApiError, Throttled, UnknownOutcome, Unreachable
from rollout_operator.model.units import Confidential
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.spans import get_trace_keys, tracing

# The API server is in the same cluster or not reachable: waiting longer does not bring it nearer.
_CONNECT_LIMIT: Final = timedelta(seconds=5)
_SHORTEST: Final = timedelta(milliseconds=1)
# 500 pods of 10 kB are 5 MB. For a moment both the pieces of an answer and the whole are held: of
# this that is 64 MiB, where a container has 200.
MAX_BODY: Final = 32 * 1024 * 1024

# Raised before the first byte of a request is sent: no connection, no TLS, no way through a proxy.
_NOTHING_SENT: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
)
# What OpenSSL finds where the answer to its first message is none of TLS.
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})
# By OpenSSL's X509_V_ERR codes: what is wrong with the certificate of a server, and what helps.
_OF_NAMES: Final = frozenset({62, 64})
_DISTRUST: Final = (
    ({9}, ("is not valid yet", "correct the clock of this machine")),
    ({10}, ("has expired", "have it renewed, or correct the clock of this machine")),
    (
        {7, 18, 19, 20, 21},
        (
            "is signed by an authority that is not trusted",
            "see that the CA that is given, such as certificate-authority of a kubeconfig, is that"
            " of this server",
        ),
    ),
    (
        _OF_NAMES,
        (
            "is made out for other names",
            "call it by a name that it has, or give one as tls-server-name of a kubeconfig",
        ),
    ),
)
_LOST: Final = (aiohttp.ClientError, TimeoutError, OSError)


_ANY_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"


class _TooLong(Unreachable):
    """The answer is longer than is kept in memory: request less."""


class _ConnectionBroke(Unreachable):
    """The connection of a read ended before any of the answer: it may have been closed before."""


class HttpRequest(Confidential, msgspec.Struct, frozen=True, kw_only=True):
    call: Call
    query: Mapping[str, str] = {}
    body: JsonObject | Sequence[JsonObject] | None = None
    content_type: str = _JSON
    within: timedelta
    """How long it may take, answer included (of a stream: its head); as long again for a token."""
    sent_within: timedelta | None = None
    """How long it may wait for a token and a connection, if that is shorter; must be positive."""
    has_turn: bool = False
    silence: timedelta | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    content_type: str
    retry_after: str
    body: bytes = b""
    stream: aiohttp.ClientResponse | None = None


@dataclass(slots=True)
class _Exchange:
    """Requests of one component. Every method raises classes of `model.names` only."""

    transport: Transport
    limits: RateLimiter
    metrics: Metrics
    reads: Priority
    fence: Fence = no_fence

    async def send(self, request: HttpRequest) -> bytes:
        """Return the body of a successful answer; of a write it may be cut."""
        return (await self._succeed(request)).body

    @asynccontextmanager
    async def follow(self, request: HttpRequest) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Open a watch; leaving the context closes the connection."""
        stream = (await self._succeed(request)).stream
        if stream is None or request.silence is None:
            raise TypeError(f"{request.call.text} is no watch")
        try:
            async with aclosing(_events(request.call, stream, request.silence)) as events:
                yield events
        finally:
            stream.close()

    async def admit(self, call: Call, within: timedelta) -> None:
        """Wait for the token of a call. Raises Throttled where that would take too long."""
        try:
            await self.limits.admit(call, self.reads, within)
        except Throttled:
            self.metrics.api_rate_limited.labels(name_bucket(call)).inc()
            raise

    async def _succeed(self, request: HttpRequest) -> _Answer:
        credential = self.transport.credential
        shown = credential.value if credential else ""
        began = self.transport.clock.elapsed()
        answer = await self._attempt(request)
        if answer.status == 401 and credential is not None and not request.call.is_proxied:
            await credential.replace_refused(shown)
            left = request.sent_within
            if left is not None:
                left -= self.transport.clock.elapsed() - began
            if left is None or left > timedelta(0):
                answer = await self._attempt(replace(request, has_turn=False, sent_within=left))
        if not 200 <= answer.status < 300:
            raise self._failure(request.call, answer)
        if not request.call.is_write and answer.content_type != "application/json":
            if answer.stream is not None:
                answer.stream.close()
            content = f"content type {excerpt(answer.content_type)!r}"
            problem = f"not an answer of an API server: {content}"
            raise Unreachable.of(request.call.text, problem)
        return answer

    async def _attempt(self, request: HttpRequest) -> _Answer:
        """Send once, twice where the connection of a read breaks; both together within its time.

        Raises Throttled and NotElected, and Unreachable or UnknownOutcome for a lost answer.
        """
        began = self.transport.clock.elapsed()
        try:
            return await self._send_once(request)
        except _ConnectionBroke:
            left = request.within - (self.transport.clock.elapsed() - began)
            # Watches take no token: their caller waits before it opens one again.
            if request.call.is_stream or left <= timedelta(0):
                raise
        return await self._send_once(replace(request, has_turn=False, within=left))

    async def _send_once(self, request: HttpRequest) -> _Answer:
        call = request.call
        with tracing.spans.begin_within(f"{call.verb} {call.resource.plural}".rstrip()) as span:
            if span.is_recorded:
                span.set_attributes({"http.request.method": call.method, "url.path": call.path})
            began = self.transport.clock.elapsed()
            if not request.has_turn:
                await self.admit(call, min(request.within, request.sent_within or request.within))
            until_sent = self.fence(call.text) if call.is_write else None
            limits = [] if until_sent is None else [until_sent]
            if request.sent_within is not None:
                limits.append(request.sent_within - (self.transport.clock.elapsed() - began))
            answer = await self._exchange(request, _choose_connect_limit(*limits))
            if span.is_recorded:
                span.set_attributes({"http.response.status_code": answer.status})
        return answer

    async def _exchange(self, request: HttpRequest, connect: timedelta) -> _Answer:
        call, clock = request.call, self.transport.clock
        limit = request.within.total_seconds()
        start, status = clock.elapsed(), "error"
        try:
            async with asyncio.timeout(limit):
                response = await self._send(request, connect.total_seconds())
                if not call.is_proxied:
                    self.transport.server_clock.record_header(response.headers.get("Date", ""))
                answer = await _receive(request, response)
            status = f"{answer.status}"
            return answer
        except _LOST as error:
            raise _translate(call, error, f"timed out after {limit:.3g}s") from error
        finally:
            labels = (_describe(call), call.method, status)
            duration = (clock.elapsed() - start).total_seconds()
            self.metrics.api_request_duration.labels(*labels).observe(
                duration, dict(get_trace_keys())
            )

    async def _send(self, request: HttpRequest, connect: float) -> aiohttp.ClientResponse:
        silence = request.silence.total_seconds() if request.silence else None
        transport = self.transport
        headers = {**transport.headers, "Content-Type": request.content_type}
        if transport.credential is not None:
            headers["Authorization"] = await transport.credential.show_current()
        query = f"?{urlencode(request.query)}" if request.query else ""
        return await transport.session.request(
            request.call.method,
            f"{transport.host}{request.call.path}{query}",
            headers=headers,
            data=None if request.body is None else msgspec.json.encode(request.body),
            proxy=transport.proxy,
            server_hostname=transport.server_name,
            timeout=aiohttp.ClientTimeout(
                total=None, connect=connect, sock_connect=connect, sock_read=silence
            ),
        )

    def _failure(self, call: Call, answer: _Answer) -> ApiError:
        if answer.status == CLUSTER_MISMATCH:
            mismatch = read_mismatch(answer.content_type, answer.body)
            if mismatch is not None:
                error, route = mismatch_error(call, mismatch), mismatch.route
                labels = (route, "http", self.transport.namespace)
                self.metrics.client_invalid_cluster.labels(*labels).inc()
                log.warn(
                    "Server belongs to another cluster", call=call.text, route=route, err=error
                )
                return error
        status = read_status(answer.body)
        return error_of(
            call, answer.status, status, answer.retry_after, log_in=self.transport.log_in
        )


def _choose_connect_limit(*limits: timedelta) -> timedelta:
    """Return how long a connection may take: the right or the reason to write may end meanwhile.

    Always above zero, which aiohttp takes for no limit.
    """
    return max(min((_CONNECT_LIMIT, *limits)), _SHORTEST)


def _translate(call: Call, error: Exception, timed_out: str = "timed out") -> ApiError:
    """Return Unreachable or UnknownOutcome for a lost connection or answer."""
    why = excerpt(_render_loss(error)) or (
        timed_out if isinstance(error, TimeoutError) else type(error).__name__
    )
    if call.is_write and not isinstance(error, _NOTHING_SENT):
        text = f"cannot tell whether {call.text} succeeded: no answer: {why}"
        return UnknownOutcome(text, call=call.text)
    lost = _ConnectionBroke if isinstance(error, NotRepeated) else Unreachable
    return lost.of(call.text, f"no answer: {why}")


def _render_loss(error: Exception) -> str:
    """Return the text of an error, in our own words if no connection was made."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _render_distrust(error)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        # Such as `[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)`.
        reason = getattr(error.os_error, "reason", "")
        what = f"{reason or error.os_error}".lower().replace("_", " ")
        hint = "; it may serve http:// there" if reason in _NOT_TLS else ""
        return f"no TLS with {error.host}:{error.port}: {what}{hint}"
    if not isinstance(error, aiohttp.ClientConnectorError):
        return f"{error}"
    # For a name that is not known, the number is not one of the system's.
    number = error.errno or 0
    why = os.strerror(number) if number > 0 else error.strerror
    return f"Cannot connect to host {error.host}:{error.port}: {why}"


def _render_distrust(error: aiohttp.ClientConnectorCertificateError) -> str:
    """Say why a server's certificate is not accepted, and what to do."""
    cause = error.certificate_error
    code = getattr(cause, "verify_code", None)
    why = f"{getattr(cause, 'verify_message', None) or cause}"
    problem, remedy = next((told for codes, told in _DISTRUST if code in codes), (why, ""))
    text = f"the certificate of {error.host}:{error.port}"
    if not remedy:
        return f"{text} is not accepted: {why}"
    # The name that is wanted, and those that there are.
    detail = f" ({why})" if code in _OF_NAMES else ""
    return f"{text} {problem}{detail}; {remedy}"


def _describe(call: Call) -> str:
    """Return the label of a request in metrics: its kind and shape.

    Names are unbounded, and so are discovered groups, which people name in annotations.
    """
    of = call.resource
    if call.verb == DISCOVER:
        return "discovery of resources" if of.version else "discovery of a group"
    shape = "object" if call.name else "collection"
    below = f" {call.subresource} subresource" if call.subresource else ""
    return f"{of.group or CORE_GROUP}/{of.version}/{of.plural} {shape}{below}"


async def _receive(request: HttpRequest, response: aiohttp.ClientResponse) -> _Answer:
    call = request.call
    answer = _Answer(
        status=response.status,
        content_type=response.content_type,
        retry_after=response.headers.get("Retry-After", ""),
    )
    if call.is_stream and response.ok:
        return replace(answer, stream=response)
    try:
        return replace(answer, body=await _read_response(call, response))
    except _LOST:
        # What was done is shown by the status; of a read only the body is of use.
        if response.ok and not call.is_write:
            raise
        return answer
    finally:
        response.release()


async def _read_response(call: Call, response: aiohttp.ClientResponse) -> bytes:
    limit = MAX_BODY if response.ok else MAX_ERROR_BODY
    chunks: list[bytes] = []
    length = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        length += len(chunk)
        if length > limit:
            if response.ok and not call.is_write:
                raise _TooLong.of(call.text, f"longer than {limit} bytes")
            break
    return b"".join(chunks)[:limit]


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")
    next_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_LIST: Final = msgspec.json.Decoder(_List)


class Exchange(Protocol):
    """Sends requests of one component. Every method raises classes of `model.names` only."""

    def follow(
        self, request: HttpRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Open a watch; leaving the context closes the connection."""
        ...

    async def send(self, request: HttpRequest) -> bytes:
        """Return the body of a successful answer; of a write it may be cut."""
        ...

    async def admit(self, call: Call, within: timedelta) -> None:
        """Wait for the token of a call. Raises Throttled where that would take too long."""
        ...


class Verbs:
    """What `api` has: each method makes a request, and reads the answer to it."""

    def __init__(self, exchange: Exchange, page_sizes: PageSizes, timeouts: Timeouts) -> None:
        self._sender = exchange
        self._page_sizes = page_sizes
        self._timeouts = timeouts

    async def wait_turn(self, resource: Resource, namespace: str) -> None:
        call = Call("list", resource, namespace)
        await self._sender.admit(call, self._timeouts.page)

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        call = Call("patch", resource, namespace, name)
        await self._sender.admit(call, self._timeouts.write)

    async def fetch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        call = Call("get", resource, namespace, name, subresource)
        request = HttpRequest(call=call, within=self._timeouts.read, has_turn=has_turn)
        return await level(await self._sender.send(request))

    async def fetch_group(self, group: str) -> Sequence[str]:
        if not group:
            return CORE_VERSIONS
        call = discovery_call(group)
        return decode_group(call, await self._discover(call))

    async def fetch_resources(self, group: str, version: str) -> Sequence[Served]:
        call = discovery_call(group, version)
        return decode_resources(call, await self._discover(call))

    async def _discover(self, call: Call) -> bytes:
        return await self._sender.send(HttpRequest(call=call, within=self._timeouts.read))

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str,
        *,
        selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        token: str = "",
        resource_version: str | None = None,
        has_turn: bool = False,
    ) -> Page:
        call = Call("list", resource, namespace)
        size = self._page_sizes.choose(call, limit)
        query = page_query(
            selector, field_selector, limit=size, token=token, version=resource_version
        )
        request = HttpRequest(call=call, query=query, within=self._timeouts.page, has_turn=has_turn)
        try:
            return await _decode_page(call, await self._sender.send(request))
        except _TooLong as error:
            problem = self._page_sizes.halve(call, size)
            raise Unreachable.of(call.text, problem) from error

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        namespace: str,
        *,
        resource_version: str,
        selector: str = "",
        field_selector: str = "",
        lasts: timedelta,
        has_state: bool = False,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Open a watch; see `api.Watcher`. Leaving the context closes the connection."""
        lasts = min(lasts, self._timeouts.watch)
        query = watch_query(
            selector, field_selector, version=resource_version, lasts=lasts, has_state=has_state
        )
        call = Call("watch", resource, namespace)
        silence = lasts + self._timeouts.silence
        request = HttpRequest(call=call, query=query, within=self._timeouts.read, silence=silence)
        async with self._sender.follow(request) as events:
            yield events

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        precondition: Precondition,
        sent_within: timedelta | None = None,
    ) -> None:
        call = Call("delete", resource, namespace, name)
        request = HttpRequest(
            call=call,
            body=delete_options(precondition),
            within=self._timeouts.write,
            sent_within=sent_within,
        )
        await self._sender.send(request)

    async def replace_status(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> None:
        call = Call("update", resource, namespace, name, "status")
        await self._sender.send(self._put(call, body))

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        call = Call("create", resource, namespace)
        return await self._write(HttpRequest(call=call, body=body, within=self._timeouts.write))

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes:
        call = Call("update", resource, namespace, name)
        return await self._write(self._put(call, body))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        call = Call("patch", resource, namespace, name, subresource)
        return await self._write(self._patch(call, patch, has_turn=has_turn))

    async def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: JsonObject,
        *,
        manager: str,
        is_forced: bool = False,
        is_trial: bool = False,
    ) -> bytes:
        request = HttpRequest(
            call=Call("patch", resource, namespace, name),
            query=apply_query(manager, is_forced=is_forced, is_trial=is_trial),
            body=body,
            content_type=_APPLY_PATCH,
            within=self._timeouts.write,
        )
        return await self._write(request)

    async def try_write(
        self,
        verb: str,
        resource: Resource,
        namespace: str,
        body: JsonObject,
        name: str = "",
        subresource: str = "",
    ) -> None:
        request = HttpRequest(
            call=Call(verb, resource, namespace, name, subresource),
            query=DRY_RUN,
            body=body,
            content_type=_MERGE_PATCH if verb == "patch" else _JSON,
            within=self._timeouts.write,
        )
        await self._sender.send(request)

    def _patch(
        self, call: Call, patch: JsonObject | Sequence[JsonObject], *, has_turn: bool = False
    ) -> HttpRequest:
        return HttpRequest(
            call=call,
            body=patch if isinstance(patch, dict) else list(patch),
            content_type=_MERGE_PATCH if isinstance(patch, dict) else _JSON_PATCH,
            within=self._timeouts.write,
            has_turn=has_turn,
        )

    def _put(self, call: Call, body: JsonObject) -> HttpRequest:
        body = without_managed_fields(body)
        return HttpRequest(call=call, body=body, within=self._timeouts.write)

    async def _write(self, request: HttpRequest) -> bytes:
        body = await level(await self._sender.send(request))
        try:
            _ANY_OBJECT.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # An answer that was cut, or that a proxy made up.
            call = request.call.text
            text = f"cannot tell what {call} wrote: the answer is no object: {error}"
            raise UnknownOutcome(text, call=call) from error
        return body


class Client(Verbs):
    """The API of one component, over the transport and the rate limits that all share.

    Implements all Protocols of `api`. Cheap to make; the transport is closed by its opener.
    """

    def __init__(
        self,
        transport: Transport,
        limits: RateLimiter,
        metrics: Metrics,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        reads: Priority = Priority.READ,
        fence: Fence = no_fence,
    ) -> None:
        exchange = _Exchange(transport, limits, metrics, reads, fence)
        super().__init__(exchange, transport.page_sizes, timeouts)
        self._server_clock = transport.server_clock

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows now, up to a second too early.

        Taken from its answers and the time since, whatever our own clock shows; None before the
        first answer.
        """
        return self._server_clock.now()


async def _decode_page(call: Call, body: bytes) -> Page:
    try:
        try:
            page = _LIST.decode(body)
        except RecursionError:
            page = _LIST.decode(await cut_deep(body))
    except msgspec.MsgspecError as error:
        raise Unreachable.of(call.text, f"the answer is no list: {error}") from error
    return Page(
        items=[await level_large(item) for item in page.items or ()],
        resource_version=page.metadata.resource_version,
        next_token=page.metadata.next_token,
    )


async def _events(
    call: Call, response: aiohttp.ClientResponse, silence: timedelta
) -> AsyncGenerator[WatchEvent, None]:
    splitter = Splitter()
    while chunk := await _read(call, response, silence):
        try:
            lines = splitter.feed(chunk)
        except ValueError as error:
            raise Unreachable.of(call.text, f"{error}") from error
        for line in lines:
            yield await _decode_line(line, call)
    for line in splitter.finish():
        yield await _decode_line(line, call)


async def _decode_line(line: bytes, call: Call) -> WatchEvent:
    if len(line) > LARGE:
        line = await level(line)
    try:
        return decode_event(line, call)
    except RecursionError:
        return decode_event(await cut_deep(line), call)


async def _read(call: Call, response: aiohttp.ClientResponse, silence: timedelta) -> bytes:
    """Return what has arrived, empty at the end that the server made."""
    try:
        return await response.content.readany()
    except aiohttp.SocketTimeoutError as error:
        seconds = silence.total_seconds()
        raise Unreachable.of(call.text, f"silent for {seconds:g}s") from error
    except _LOST as error:
        raise _translate(call, error) from error
