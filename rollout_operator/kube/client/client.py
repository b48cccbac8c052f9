"""Call the API server on behalf of one component: reads, watches, writes.

Decides what each call looks like and how long it may take. How it is sent, measured and translated
is `exchange`'s part; what a line of a watch means is decided in `watch_stream`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

import aiohttp
import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import (
    Fence,
    JsonObject,
    Page,
    Precondition,
    Resource,
    Served,
    WatchEvent,
    no_fence,
)
from rollout_operator.kube.call import (
    CORE_VERSIONS,
    DEFAULT_TIMEOUTS,
    DRY_RUN,
    Call,
    Timeouts,
    apply_query,
    delete_options,
    discovery_call,
    object_call,
    page_query,
    proxy_call,
    watch_query,
    without_managed_fields,
)
from rollout_operator.kube.client.discovery import decode_group, decode_resources
from rollout_operator.kube.client.exchange import Exchange, HttpRequest, TooLong, translated
from rollout_operator.kube.client.levels import LARGE, cut_deep, level, level_large
from rollout_operator.kube.client.rate_limit import Priority, RateLimiter
from rollout_operator.kube.client.watch_stream import Splitter, decode_event
from rollout_operator.kube.connection.transport import Transport
from rollout_operator.model.downscale import Target
from rollout_operator.model.errors import UnknownOutcome, Unreachable
from rollout_operator.telemetry.metrics import Metrics


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")
    next_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_LIST: Final = msgspec.json.Decoder(_List)
_ANY_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

_MERGE_PATCH: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"


class Client:
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
        """Make the client of a component; `reads` says how urgent its reads are."""
        self._exchange = Exchange(transport, limits, metrics, reads, fence)
        self._page_sizes = transport.page_sizes
        self._server_clock = transport.server_clock
        self._timeouts = timeouts

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows now, up to a second too early.

        Taken from its answers and the time since, whatever our own clock shows; None before the
        first answer.
        """
        return self._server_clock.now()

    async def wait_turn(self, resource: Resource, namespace: str) -> None:
        """Wait for the token of the next read; see `api.LiveReader`."""
        call = Call(verb="list", resource=resource, namespace=namespace)
        await self._exchange.admit(call, self._timeouts.page)

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        """Wait for the token of a patch; see `api.TimedPatcher`."""
        call = object_call("patch", resource, namespace, name)
        await self._exchange.admit(call, self._timeouts.write)

    async def fetch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        """Return one object, or its subresource, as JSON; see `api.Reader`."""
        call = object_call("get", resource, namespace, name, subresource)
        request = HttpRequest(call=call, within=self._timeouts.read, has_turn=has_turn)
        return await level(await self._exchange.send(request))

    async def fetch_group(self, group: str) -> Sequence[str]:
        """Return the versions of an API group; see `api.Discoverer`."""
        if not group:
            return CORE_VERSIONS
        call = discovery_call(group)
        return decode_group(call, await self._discover(call))

    async def fetch_resources(self, group: str, version: str) -> Sequence[Served]:
        """Return the kinds of a version of an API group; see `api.Discoverer`."""
        call = discovery_call(group, version)
        return decode_resources(call, await self._discover(call))

    async def _discover(self, call: Call) -> bytes:
        return await self._exchange.send(HttpRequest(call=call, within=self._timeouts.read))

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
        """Return one page of a list; see `api.Reader`.

        Each item shares the memory of the whole page: decode it and let it go. The page has fewer
        than `limit` objects where so many were too long before; raises Unreachable where they are
        now.
        """
        call = Call(verb="list", resource=resource, namespace=namespace)
        size = self._page_sizes.choose(call, limit)
        query = page_query(
            selector, field_selector, limit=size, token=token, version=resource_version
        )
        request = HttpRequest(call=call, query=query, within=self._timeouts.page, has_turn=has_turn)
        try:
            return await _decode_page(call, await self._exchange.send(request))
        except TooLong as error:
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
        call = Call(verb="watch", resource=resource, namespace=namespace)
        silence = lasts + self._timeouts.silence
        request = HttpRequest(call=call, query=query, within=self._timeouts.read, silence=silence)
        response = await self._exchange.open(request)
        try:
            async with aclosing(_events(call, response, silence)) as events:
                yield events
        finally:
            response.close()

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        precondition: Precondition,
        sent_within: timedelta | None = None,
    ) -> None:
        """Delete one object; see `api.Writer`."""
        call = object_call("delete", resource, namespace, name)
        request = HttpRequest(
            call=call,
            body=delete_options(precondition),
            within=self._timeouts.write,
            sent_within=sent_within,
        )
        await self._exchange.send(request)

    async def replace_status(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> None:
        """PUT an object on its `status` subresource; see `api.Writer`."""
        call = object_call("update", resource, namespace, name, "status")
        await self._exchange.send(self._put(call, body))

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        """POST a new object and return it; see `api.Writer`."""
        call = Call(verb="create", resource=resource, namespace=namespace)
        return await self._write(HttpRequest(call=call, body=body, within=self._timeouts.write))

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes:
        """PUT a whole object and return it; see `api.Writer`."""
        call = object_call("update", resource, namespace, name)
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
        """PATCH an object, or its subresource, and return it; see `api.Writer`."""
        call = object_call("patch", resource, namespace, name, subresource)
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
        """Apply fields of an object as a field manager; see `api.Applier`."""
        request = HttpRequest(
            call=object_call("patch", resource, namespace, name),
            query=apply_query(manager, is_forced=is_forced, is_trial=is_trial),
            body=body,
            content_type=_APPLY_PATCH,
            within=self._timeouts.write,
        )
        return await self._write(request)

    async def try_create(
        self,
        resource: Resource,
        namespace: str,
        body: JsonObject,
        name: str = "",
        subresource: str = "",
    ) -> None:
        """POST an object that is not stored; see `api.DryRunner`."""
        call = object_call("create", resource, namespace, name, subresource)
        request = HttpRequest(call=call, query=DRY_RUN, body=body, within=self._timeouts.write)
        await self._exchange.send(request)

    async def try_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject,
        subresource: str = "",
    ) -> None:
        """PATCH an object without storing the change; see `api.DryRunner`."""
        call = object_call("patch", resource, namespace, name, subresource)
        await self._exchange.send(replace(self._patch(call, patch), query=DRY_RUN))

    async def probe_pod(self, namespace: str, pod: str, target: Target) -> int:
        """Return the status by which a pod answers a GET; see `api.PodProxy`."""
        call = proxy_call(namespace, pod, target)
        request = HttpRequest(call=call, within=self._timeouts.read, is_probe=True)
        return await self._exchange.probe(request)

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
        """Return the object as it was written."""
        body = await level(await self._exchange.send(request))
        try:
            _ANY_OBJECT.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # An answer that was cut, or that a proxy made up.
            call = request.call.text
            text = f"cannot tell what {call} wrote: the answer is no object: {error}"
            raise UnknownOutcome(text, call=call) from error
        return body


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
    with translated(call):
        try:
            return await response.content.readany()
        except aiohttp.SocketTimeoutError as error:
            seconds = silence.total_seconds()
            raise Unreachable.of(call.text, f"silent for {seconds:g}s") from error
