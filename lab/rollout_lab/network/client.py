"""The client of one process to the simulated API server: the Protocols of `kube.api`.

Decides what each call looks like to the API server, and how its answer looks to the operator, as
`kube.client` does for a real API server; and the same for HTTP to pods. Which events of a watch
come through is decided in `link`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn, Protocol, cast

import msgspec
from msgspec.structs import replace

from rollout_lab.apiserver.api import SimulatedApi, read_resources, read_versions
from rollout_lab.apiserver.store import Stream, StreamEvent
from rollout_lab.model.fields import metadata_of, uid_of
from rollout_lab.model.request import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    ApiAnswer,
    ApiRefusal,
    ApiRequest,
    Body,
    Verb,
)
from rollout_lab.network.faults import (
    CrashPoint,
    Failure,
    FaultDecision,
    PodCallOutcome,
    PodFailure,
    SentCall,
)
from rollout_lab.network.link import DelayedWatch, Delivery, Expired, Link, Silent, wait_for_ever
from rollout_operator.kube.api import (
    CORE_VERSIONS,
    DEFAULT_TIMEOUTS,
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
    object_call,
    page_query,
    watch_query,
)
from rollout_operator.kube.rate_limit import Priority, RateLimiter
from rollout_operator.kube.responses import Status, error_of, read_status
from rollout_operator.model.names import Refused, Throttled, UnknownOutcome, Unreachable
from rollout_operator.model.objects import Endpoint

RETRY_AFTER: Final = 2

_REFUSALS: Final[Mapping[Failure, ApiRefusal]] = {
    Failure.CONFLICT: ApiRefusal(
        409,
        "Conflict",
        "Operation cannot be fulfilled: the object has been modified; please apply your changes"
        " to the latest version and try again",
    ),
    Failure.GONE: ApiRefusal(
        410, "Expired", "The resourceVersion for the provided watch is too old."
    ),
    Failure.TOO_MANY: ApiRefusal(
        429, "TooManyRequests", "The server has received too many requests and has asked us to wait"
    ),
    Failure.TOO_MANY_RETRY: ApiRefusal(
        429,
        "TooManyRequests",
        "The server has received too many requests and has asked us to wait",
        retry_after=RETRY_AFTER,
    ),
    Failure.INTERNAL: ApiRefusal(500, "InternalError", "Internal error occurred: no leader"),
    Failure.UNAVAILABLE: ApiRefusal(
        503, "ServiceUnavailable", "The server is currently unable to serve the request"
    ),
    Failure.GATEWAY_TIMEOUT: ApiRefusal(504, "Timeout", "Timeout: request did not complete"),
    Failure.GATEWAY_TIMEOUT_COMMITTED: ApiRefusal(
        504, "Timeout", "Timeout: request did not complete"
    ),
}
_COMMITTED: Final = frozenset({Failure.GATEWAY_TIMEOUT_COMMITTED})
_UNANSWERED: Final = frozenset({Failure.TIMEOUT, Failure.LATE})


class SimulatedCall(msgspec.Struct, frozen=True, kw_only=True):
    call: Call
    carry_out: Callable[[], Awaitable[ApiAnswer]]
    """What the API server does with it once it is there."""
    now: Callable[[], datetime]
    """The API server's clock."""
    within: timedelta
    """How long it may take, answer included."""
    sent_within: timedelta | None = None
    """How long it may wait for its turn, where that is shorter."""


class _Reply(msgspec.Struct, frozen=True):
    """An answer that is back, with the time at which it was given."""

    answer: ApiAnswer
    date: datetime


async def travel(simulated_call: SimulatedCall, link: Link, outcome: FaultDecision) -> ApiAnswer:
    """Make a call and return its answer, a success; never, where the process dies meanwhile.

    Raises the errors of `model.names` that the real client raises.
    """
    if outcome.crash is CrashPoint.BEFORE_SEND:
        link.crash()
    await link.stay_alive()
    await _wait_for_turn(simulated_call, link, outcome)
    if outcome.fails is Failure.CONNECT:
        raise Unreachable.of(simulated_call.call.text, "no answer: Cannot connect to host")
    reply, message = await _send(simulated_call, link, outcome)
    await link.stay_alive()
    if reply is None:
        _raise_lost(simulated_call.call, message)
    link.clock.record(reply.date.replace(microsecond=0))  # as the header has it
    if outcome.crash is CrashPoint.AFTER_REPLY:
        asyncio.get_running_loop().call_soon(link.crash)
    answer = reply.answer
    if answer.is_ok:
        return answer
    retry_after = f"{answer.retry_after}" if answer.retry_after else ""
    status = read_status(_raw(answer))
    raise error_of(simulated_call.call, answer.status, status, retry_after)


def _raw(answer: ApiAnswer) -> bytes:
    """Return the body as it came: the answer to a path that is not served is plain text."""
    text = answer.body.get("text")
    return text.encode() if isinstance(text, str) else msgspec.json.encode(answer.body)


def _raise_lost(call: Call, message: str) -> NoReturn:
    """Raise what no answer means: a write may have been carried out, or will be."""
    if call.is_write:
        text = f"cannot tell whether {call.text} succeeded: no answer: {message}"
        raise UnknownOutcome(text, call=call.text)
    raise Unreachable.of(call.text, f"no answer: {message}")


async def _wait_for_turn(simulated_call: SimulatedCall, link: Link, outcome: FaultDecision) -> None:
    """Wait as the process's own rate limiter makes it. Raises Throttled, without waiting."""
    within = min(simulated_call.within, simulated_call.sent_within or simulated_call.within)
    if outcome.fails is Failure.THROTTLED or outcome.waits > within:
        due = max(outcome.waits, within)
        text = (
            f"client-side rate limiter: the next token is due in {due.total_seconds():.3f}s,"
            f" the deadline in {within.total_seconds():.3f}s"
        )
        raise Throttled(text, call=simulated_call.call.text)
    if outcome.waits:
        await asyncio.sleep(outcome.waits.total_seconds())
        await link.stay_alive()


async def _send(
    simulated_call: SimulatedCall, link: Link, outcome: FaultDecision
) -> tuple[_Reply | None, str]:
    """Return the answer, or None and what is known of its absence."""
    seconds = simulated_call.within.total_seconds()
    try:
        async with asyncio.timeout(seconds):
            reply = await link.run_to_end(_carry(simulated_call, link, outcome))
            if reply is None and not _breaks(outcome):
                await wait_for_ever()
    except TimeoutError:
        return None, f"timed out after {seconds:g}s"
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if link.is_dead and task is not None and not task.cancelling():
            await link.stay_alive()  # what became of the request: a dead process never hears of it
        raise
    return reply, "Server disconnected"


def _breaks(outcome: FaultDecision) -> bool:
    return outcome.fails in (Failure.RESET_BEFORE, Failure.RESET_AFTER)


async def _carry(
    simulated_call: SimulatedCall, link: Link, outcome: FaultDecision
) -> _Reply | None:
    """Carry a request there and its answer back; None where no answer comes."""
    late = simulated_call.within if outcome.fails is Failure.LATE else timedelta(0)
    await asyncio.sleep((late + outcome.before).total_seconds() + link.latency())
    if outcome.fails is Failure.RESET_BEFORE or not link.may_arrive():
        return None
    answer = await _answer(simulated_call, outcome)
    reply = _Reply(answer, simulated_call.now())
    if outcome.crash is CrashPoint.AFTER_COMMIT:
        link.crash()
    if outcome.fails in _UNANSWERED or outcome.fails is Failure.RESET_AFTER:
        return None
    await asyncio.sleep(outcome.after.total_seconds() + link.latency())
    return None if link.is_cut else reply


async def _answer(simulated_call: SimulatedCall, outcome: FaultDecision) -> ApiAnswer:
    """Return what the API server answers, or what a fault lets it answer instead."""
    refusal = _REFUSALS.get(outcome.fails) if outcome.fails is not None else None
    if refusal is not None and outcome.fails not in _COMMITTED:
        return refusal.answer()
    answer = await simulated_call.carry_out()
    return refusal.answer() if refusal is not None else answer


class Opening:
    """A watch that is requested: a client that gives up before it is opened leaves none open."""

    def __init__(self, api: SimulatedApi) -> None:
        self._api = api
        self._is_closed = False
        self.stream: Stream | None = None

    async def open(self, request: ApiRequest) -> ApiAnswer:
        """Open it, as the API server does."""
        try:
            self.stream = self._api.open_watch(request)
        except ApiRefusal as refusal:
            return refusal.answer()
        if self._is_closed:
            self.stream.close()
        return ApiAnswer(status=200, body={})

    def close(self) -> None:
        """Need it no more."""
        self._is_closed = True
        if self.stream is not None:
            self.stream.close()


async def read_events(
    call: Call, delivery: Delivery, silence: timedelta
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the events of a watch. Raises as `kube.api.Watcher.watch` says of its iterator."""
    while (event := await _next_event(call, delivery, silence)) is not None:
        if event.type == "ERROR":
            status = read_status(event.body)
            raise error_of(call, status.code, status)
        yield WatchEvent(type=event.type, object=msgspec.Raw(event.body))


async def _next_event(call: Call, delivery: Delivery, silence: timedelta) -> StreamEvent | None:
    seconds = silence.total_seconds()
    try:
        return await delivery.next_event(seconds)
    except Silent as error:
        raise Unreachable.of(call.text, f"silent for {seconds:g}s") from error
    except ConnectionResetError as error:
        raise Unreachable.of(call.text, f"no answer: {error}") from error
    except Expired as error:
        message = "The resourceVersion for the provided watch is too old."
        status = Status(kind="Status", message=message, reason="Expired", code=410)
        raise error_of(call, 410, status) from error


FOLLOWING: Final = "following"
"""Name of the client through which informers look: only their lists may be of the past."""

_encode: Final = msgspec.json.Encoder().encode


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    call: Call
    within: timedelta
    query: Mapping[str, str] = {}
    body: Body = None
    content_type: str = "application/json"
    sent_within: timedelta | None = None
    has_turn: bool = False

    def render(self, user: str) -> ApiRequest:
        """Return it as the API server takes it."""
        call = self.call
        return ApiRequest(
            verb=cast(Verb, call.verb),
            resource=call.resource,
            namespace=call.namespace,
            name=call.name,
            subresource=call.subresource,
            query=self.query,
            body=self.body,
            content_type=self.content_type,
            user=user,
        )


def _refuse_state(call: Call) -> Refused:
    why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
    return Refused.of(call.text, why, status=422, reason="Invalid")


class SimulatedClient:
    """Reader, Watcher and Writer of one process. Raises as those say, and nothing else.

    No call returns any more once the link is dead.
    """

    def __init__(
        self,
        api: SimulatedApi,
        link: Link,
        *,
        name: str,
        limits: RateLimiter,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        reads: Priority = Priority.READ,
        fence: Fence = no_fence,
    ) -> None:
        """Open a client; `name` says what for: following, looking, acting, reviewing."""
        self._api = api
        self._link = link
        self._name = name
        self._limits = limits
        self._reads = reads
        self._timeouts = timeouts
        self._fence = fence
        self._items: dict[str, tuple[object, msgspec.Raw]] = {}
        """By UID: the newest version that was listed, and how it was sent."""
        self._watches: dict[tuple[Resource, str, str, str], DelayedWatch] = {}

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows now, up to a second too early.

        By its answers to this process; None before the first.
        """
        return self._link.clock.now()

    async def wait_turn(self, resource: Resource, namespace: str) -> None:
        """Wait for the token of the next read; see `kube.api.LiveReader`."""
        call = Call(verb="list", resource=resource, namespace=namespace)
        await self._admit(_Sent(call=call, within=self._timeouts.page))

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        """Wait for the token of a patch; see `kube.api.TimedPatcher`."""
        call = object_call("patch", resource, namespace, name)
        await self._admit(_Sent(call=call, within=self._timeouts.write))

    async def fetch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        """Return one object, or its subresource, as JSON; see `kube.api.Reader`."""
        call = object_call("get", resource, namespace, name, subresource)
        sent = _Sent(call=call, within=self._timeouts.read, has_turn=has_turn)
        return _encode(await self._read(sent))

    async def fetch_group(self, group: str) -> Sequence[str]:
        """Return the versions of an API group; see `kube.api.Discoverer`."""
        if not group:
            return CORE_VERSIONS
        sent = _Sent(call=discovery_call(group), within=self._timeouts.read)
        return read_versions(await self._read(sent))

    async def fetch_resources(self, group: str, version: str) -> Sequence[Served]:
        """Return the kinds of a version of an API group; see `kube.api.Discoverer`."""
        sent = _Sent(call=discovery_call(group, version), within=self._timeouts.read)
        return read_resources(await self._read(sent), sent.call.resource)

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
        """Return one page of a list; see `kube.api.Reader`."""
        limit = min(limit, self._api.largest_page)
        query = page_query(
            selector, field_selector, limit=limit, token=token, version=resource_version
        )
        call = Call(verb="list", resource=resource, namespace=namespace)
        sent = _Sent(call=call, query=query, within=self._timeouts.page, has_turn=has_turn)
        page = self._read_page(await self._read(sent))
        if not page.next_token:
            delayed = self._watches.get((resource, namespace, selector, field_selector))
            if delayed is not None:
                delayed.relist()
        return page

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
        """Open a watch; see `kube.api.Watcher`. Leaving the context closes the connection."""
        lasts = min(lasts, self._timeouts.watch)
        query = watch_query(
            selector, field_selector, version=resource_version, lasts=lasts, has_state=has_state
        )
        call = Call(verb="watch", resource=resource, namespace=namespace)
        if has_state and not self._api.has_state_streams:
            raise _refuse_state(call)
        opening = Opening(self._api)
        try:
            sent = _Sent(call=call, query=query, within=self._timeouts.read)
            stream = await self._open(sent, opening)
            delayed = self._get_watch(resource, namespace, selector, field_selector)
            if has_state:
                delayed.relist()
            silence = lasts + self._timeouts.silence
            with closing(delayed.open(stream)) as delivery:
                async with aclosing(read_events(call, delivery, silence)) as events:
                    yield events
        finally:
            opening.close()

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        precondition: Precondition,
        sent_within: timedelta | None = None,
    ) -> None:
        """Delete one object; see `kube.api.Writer`."""
        call = Call(verb="delete", resource=resource, namespace=namespace, name=name)
        body = delete_options(precondition)
        sent = _Sent(call=call, within=self._timeouts.write, body=body, sent_within=sent_within)
        await self._fetch_object(sent)

    async def replace_status(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> None:
        """PUT an object on its `status` subresource; see `kube.api.Writer`."""
        call = object_call("update", resource, namespace, name, "status")
        await self._fetch_object(_Sent(call=call, within=self._timeouts.write, body=body))

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        """POST a new object and return it; see `kube.api.Writer`."""
        call = Call(verb="create", resource=resource, namespace=namespace)
        return await self._write(call, body)

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes:
        """PUT a whole object and return it; see `kube.api.Writer`."""
        call = Call(verb="update", resource=resource, namespace=namespace, name=name)
        return await self._write(call, body)

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
        """PATCH an object, or its subresource, and return it; see `kube.api.Writer`."""
        call = object_call("patch", resource, namespace, name, subresource)
        form = MERGE_PATCH if isinstance(patch, dict) else JSON_PATCH
        return await self._write(call, patch, content_type=form, has_turn=has_turn)

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
        """Apply fields of an object as a field manager; see `kube.api.Applier`."""
        call = object_call("patch", resource, namespace, name)
        query = apply_query(manager, is_forced=is_forced, is_trial=is_trial)
        return await self._write(call, body, query=query, content_type=APPLY_PATCH)

    async def _read(self, sent: _Sent) -> JsonObject:
        body = await self._fetch_object(sent)
        if body is None:
            problem = "no answer: Response payload is not completed"
            raise Unreachable.of(sent.call.text, problem)
        return body

    async def _write(self, call: Call, body: Body, **how: Any) -> bytes:
        """Return the object as it was written; `how` are fields of `_Sent`."""
        sent = _Sent(call=call, within=self._timeouts.write, body=body, **how)
        written = await self._fetch_object(sent)
        if written is None:
            text = f"cannot tell what {call.text} wrote: the answer is no object: it was cut"
            raise UnknownOutcome(text, call=call.text)
        return _encode(written)

    async def _fetch_object(self, sent: _Sent) -> JsonObject | None:
        """Return what a successful answer holds, None where it broke off."""
        await self._admit(sent)
        if sent.call.is_write:
            self._fence(sent.call.text)
        sent_call = self._link.number_call(sent.call, self._name)
        outcome = self._link.faults.on_call(sent_call)
        request = sent.render(self._link.actor)
        age = self._choose_age(sent_call, sent)
        answer = await self._travel(sent, outcome, lambda: self._carry_out(request, age))
        return None if outcome.fails is Failure.CUT_BODY else answer.body

    async def _admit(self, sent: _Sent) -> None:
        """Wait for a token of the process, as `kube.client` does. Raises Throttled."""
        await self._link.stay_alive()
        if not sent.has_turn:
            within = min(sent.within, sent.sent_within or sent.within)
            await self._limits.admit(sent.call, self._reads, within)

    async def _open(self, sent: _Sent, opening: Opening) -> Stream:
        await self._admit(sent)
        outcome = self._link.faults.on_call(self._link.number_call(sent.call, self._name))
        request = sent.render(self._link.actor)
        await self._travel(sent, outcome, lambda: opening.open(request))
        if outcome.fails is Failure.CUT_BODY or opening.stream is None:
            raise Unreachable.of(sent.call.text, "no watch event: the stream was cut")
        return opening.stream

    async def _travel(
        self, sent: _Sent, outcome: FaultDecision, carry_out: Callable[[], Awaitable[ApiAnswer]]
    ) -> ApiAnswer:
        simulated_call = SimulatedCall(
            call=sent.call,
            carry_out=carry_out,
            now=self._api.now,
            within=sent.within,
            sent_within=sent.sent_within,
        )
        return await travel(simulated_call, self._link, outcome)

    def _choose_age(self, sent_call: SentCall, sent: _Sent) -> timedelta:
        """Return how old the answer is to be: other reads than lists always show the newest."""
        is_first_page = sent_call.verb == "list" and not sent.query.get("continue")
        if self._name != FOLLOWING or not is_first_page:
            return timedelta(0)
        return self._link.faults.on_list(sent_call)

    async def _carry_out(self, request: ApiRequest, age: timedelta) -> ApiAnswer:
        revision = self._api.history.revision_at(self._api.elapsed() - age) if age else 0
        if revision:
            query = {
                **request.query,
                "resourceVersion": f"{revision}",
                "resourceVersionMatch": "Exact",
            }
            answer = await self._api.call(replace(request, query=query))
            # No replica shows what the API server itself has forgotten.
            if answer.status != 410:
                return answer
        return await self._api.call(request)

    def _read_page(self, body: JsonObject) -> Page:
        metadata, items = body["metadata"], body["items"]
        assert isinstance(metadata, dict), "a list of the API server has metadata"
        assert isinstance(items, list), "a list of the API server has items"
        return Page(
            items=[self._encode_item(item) for item in items],
            resource_version=metadata["resourceVersion"],
            next_token=metadata.get("continue", ""),
        )

    def _encode_item(self, item: JsonObject) -> msgspec.Raw:
        """Return an object of a list as JSON; most have not changed since the last list."""
        uid, version = uid_of(item), metadata_of(item).get("resourceVersion")
        known = self._items.get(uid)
        if known is None or known[0] != version:
            known = version, msgspec.Raw(_encode(item))
            if uid:
                self._items[uid] = known
        return known[1]

    def _get_watch(
        self, resource: Resource, namespace: str, selector: str, field_selector: str
    ) -> DelayedWatch:
        key = (resource, namespace, selector, field_selector)
        if key not in self._watches:
            self._watches[key] = DelayedWatch(self._link, resource.plural)
        return self._watches[key]


_INSTEAD: Final = {PodFailure.REDIRECT: 307, PodFailure.ERROR: 500}


class Endpoints(Protocol):
    """The pods that listen; see `lab.nodes.pods.PodEndpoints`."""

    async def serve(
        self, method: str, endpoint: Endpoint, actor: str, takes: timedelta
    ) -> tuple[int, bytes]: ...


class SimulatedPodClient:
    """Sends requests to pods, for one process."""

    def __init__(self, link: Link, endpoints: Endpoints) -> None:
        self._link = link
        self._endpoints = endpoints
        self._is_closed = False

    async def send(self, method: str, endpoint: Endpoint) -> int:
        """Return the status that a pod answers, of a redirect its own; it is not followed.

        Raises OSError where the connection is refused or breaks. Never returns where pods are out
        of reach, where no server answers, and once the link is dead: the caller sets a limit.
        """
        status, _ = await self._send(method, endpoint)
        return status

    async def post(self, endpoint: Endpoint) -> tuple[int, bytes]:
        """POST, and return the status and the body that a pod answers; see `send`."""
        return await self._send("POST", endpoint)

    async def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True

    async def _send(self, method: str, endpoint: Endpoint) -> tuple[int, bytes]:
        if self._is_closed:
            raise ConnectionAbortedError("this client is closed")
        link = self._link
        outcome = link.faults.on_pod_call(link.actor, method, endpoint.pod)
        if outcome.crash is CrashPoint.BEFORE_SEND:
            link.crash()
        await link.stay_alive()
        await asyncio.sleep(outcome.before.total_seconds() + link.latency())
        await self._cross()
        answer = await self._post(method, endpoint, outcome)
        if outcome.crash is CrashPoint.AFTER_COMMIT:
            link.crash()
        await asyncio.sleep(outcome.after.total_seconds() + link.latency())
        await self._cross()
        if outcome.crash is CrashPoint.AFTER_REPLY:
            asyncio.get_running_loop().call_soon(link.crash)
        return answer

    async def _cross(self) -> None:
        """Go on where there is a way, else never."""
        if self._link.cut_pods or self._link.is_dead:
            await wait_for_ever()

    async def _post(
        self, method: str, endpoint: Endpoint, outcome: PodCallOutcome
    ) -> tuple[int, bytes]:
        fails = outcome.fails
        if fails is PodFailure.REFUSED:
            raise ConnectionRefusedError("Connect call failed")
        if fails is PodFailure.RESET_BEFORE:
            raise ConnectionResetError("Connection reset by peer")
        if fails is PodFailure.LOST:
            await wait_for_ever()
        if fails in _INSTEAD:
            return _INSTEAD[fails], b""
        answer = await self._endpoints.serve(method, endpoint, self._link.actor, outcome.takes)
        if fails is PodFailure.RESET_AFTER:
            raise ConnectionResetError("Connection reset by peer")
        if fails is PodFailure.SILENT:
            await wait_for_ever()
        return (500, b"") if fails is PodFailure.ERROR_AFTER else answer
