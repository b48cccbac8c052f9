"""The client of one process to the simulated API server: the Protocols of `kube.api`.

Decides what each call looks like to the API server, and how its answer looks to the operator, as
`kube.client` does for a real API server; and the same for HTTP to pods. Which events of a watch
come through is decided in `link`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, closing
from datetime import datetime, timedelta
from typing import Final, Protocol, cast

import msgspec
from msgspec.structs import replace

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.apiserver.store import Stream, StreamEvent
from rollout_lab.model.fields import children, metadata_of, uid_of
from rollout_lab.model.request import ApiAnswer, ApiRefusal, ApiRequest, Verb
from rollout_lab.network.faults import CrashPoint, Failure, FaultOutcome, Occasion, OccasionKind
from rollout_lab.network.link import DelayedWatch, Delivery, Expired, Link, Silent, wait_for_ever
from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import (
    DEFAULT_TIMEOUTS,
    Call,
    Fence,
    JsonObject,
    Resource,
    Timeouts,
    WatchEvent,
    no_fence,
)
from rollout_operator.kube.client import HttpRequest, Verbs
from rollout_operator.kube.connection import PageSizes
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
    Failure.DENIED: ApiRefusal(403, "Forbidden", 'admission webhook "x" denied the request: no'),
    Failure.UNAUTHORIZED: ApiRefusal(401, "Unauthorized", "Unauthorized"),
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
_BREAKS: Final = frozenset({Failure.RESET_BEFORE, Failure.RESET_AFTER})
_UNANSWERED: Final = frozenset({Failure.TIMEOUT, Failure.LATE})


class _Reply(msgspec.Struct, frozen=True):
    """An answer that is back, with the time at which it was given."""

    answer: ApiAnswer
    date: datetime


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


class _SimulatedExchange:
    """Requests of one client of a process. Implements `kube.client.Exchange`."""

    def __init__(
        self,
        api: SimulatedApi,
        link: Link,
        *,
        name: str,
        limits: RateLimiter,
        reads: Priority,
        fence: Fence,
    ) -> None:
        self.api = api
        self.link = link
        self._name = name
        self._limits = limits
        self._reads = reads
        self._fence = fence
        self._items: dict[str, tuple[object, msgspec.Raw]] = {}
        """By UID: the newest version that was listed, and how it was sent."""
        self._watches: dict[tuple[Resource, str, str, str], DelayedWatch] = {}

    async def admit(self, call: Call, within: timedelta) -> None:
        await self.link.stay_alive()
        await self._limits.admit(call, self._reads, within)

    async def send(self, request: HttpRequest) -> bytes:
        call = request.call
        await self._admit(request)
        if call.is_write:
            self._fence(call.text)
        occasion = self.link.number_call(call, self._name)
        outcome = self.link.faults.decide(occasion)
        sent, age = self._render(request), self._choose_age(occasion, request)
        answer = await self._travel(request, outcome, lambda: self._carry_out(sent, age))
        if outcome.fails is Failure.CUT_BODY:
            if call.is_write:
                return b""
            raise Unreachable.of(call.text, "no answer: Response payload is not completed")
        if call.verb != "list":
            return _encode(answer.body)
        if not metadata_of(answer.body).get("continue"):
            delayed = self._watches.get(_key_of(request))
            if delayed is not None:
                delayed.relist()
        items = [self._encode_item(item) for item in children(answer.body, "items")]
        return _encode({**answer.body, "items": items})

    @asynccontextmanager
    async def follow(self, request: HttpRequest) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Open a watch; its events come as late as those of all watches of this collection."""
        call, silence = request.call, request.silence
        if silence is None:
            raise TypeError(f"{call.text} is no watch")
        has_state = bool(request.query.get("sendInitialEvents"))
        if has_state and not self.api.has_state_streams:
            raise _refuse_state(call)
        opening = Opening(self.api)
        try:
            stream = await self._open(request, opening)
            key = _key_of(request)
            if key not in self._watches:
                self._watches[key] = DelayedWatch(self.link, call.resource.plural)
            delayed = self._watches[key]
            if has_state:
                delayed.relist()
            with closing(delayed.open(stream)) as delivery:
                async with aclosing(read_events(call, delivery, silence)) as events:
                    yield events
        finally:
            opening.close()

    async def _open(self, request: HttpRequest, opening: Opening) -> Stream:
        await self._admit(request)
        outcome = self.link.faults.decide(self.link.number_call(request.call, self._name))
        sent = self._render(request)
        await self._travel(request, outcome, lambda: opening.open(sent))
        if outcome.fails is Failure.CUT_BODY or opening.stream is None:
            raise Unreachable.of(request.call.text, "no watch event: the stream was cut")
        return opening.stream

    async def _admit(self, request: HttpRequest) -> None:
        await self.link.stay_alive()
        if not request.has_turn:
            within = min(request.within, request.sent_within or request.within)
            await self.admit(request.call, within)

    def _render(self, request: HttpRequest) -> ApiRequest:
        call, query = request.call, request.query
        if call.verb == "list":
            limit = min(int(query["limit"]), self.api.largest_page)
            query = {**query, "limit": f"{limit}"}
        return ApiRequest(
            verb=cast(Verb, call.verb),
            resource=call.resource,
            namespace=call.namespace,
            name=call.name,
            subresource=call.subresource,
            query=query,
            body=request.body,
            content_type=request.content_type,
            user=self.link.actor,
        )

    def _choose_age(self, call: Occasion, request: HttpRequest) -> timedelta:
        """Return how old the answer is to be: other reads than lists always show the newest."""
        is_first_page = call.verb == "list" and not request.query.get("continue")
        if self._name != FOLLOWING or not is_first_page:
            return timedelta(0)
        return self.link.faults.decide(replace(call, kind=OccasionKind.LIST)).age

    async def _carry_out(self, request: ApiRequest, age: timedelta) -> ApiAnswer:
        revision = self.api.history.revision_at(self.api.elapsed() - age) if age else 0
        if revision:
            query = {
                **request.query,
                "resourceVersion": f"{revision}",
                "resourceVersionMatch": "Exact",
            }
            answer = await self.api.call(replace(request, query=query))
            # No replica shows what the API server itself has forgotten.
            if answer.status != 410:
                return answer
        return await self.api.call(request)

    def _encode_item(self, item: JsonObject) -> msgspec.Raw:
        """Return an object of a list as JSON; most have not changed since the last list."""
        uid, version = uid_of(item), metadata_of(item).get("resourceVersion")
        known = self._items.get(uid)
        if known is None or known[0] != version:
            known = version, msgspec.Raw(_encode(item))
            if uid:
                self._items[uid] = known
        return known[1]

    async def _travel(
        self,
        request: HttpRequest,
        outcome: FaultOutcome,
        carry_out: Callable[[], Awaitable[ApiAnswer]],
    ) -> ApiAnswer:
        """Make a call and return its answer, a success; never, where the process dies meanwhile.

        `carry_out` is what the API server does with it once it is there. Raises the errors of
        `model.names` that the real client raises.
        """
        link, call = self.link, request.call
        if outcome.crash is CrashPoint.BEFORE_SEND:
            link.crash()
        await link.stay_alive()
        await self._wait_for_turn(request, outcome)
        if outcome.fails is Failure.CONNECT:
            raise Unreachable.of(call.text, "no answer: Cannot connect to host")
        reply, message = await self._hand_over(request, outcome, carry_out)
        await link.stay_alive()
        if reply is None:
            # A write may have been carried out, or will be.
            if call.is_write:
                text = f"cannot tell whether {call.text} succeeded: no answer: {message}"
                raise UnknownOutcome(text, call=call.text)
            raise Unreachable.of(call.text, f"no answer: {message}")
        link.clock.record(reply.date.replace(microsecond=0))  # as the header has it
        if outcome.crash is CrashPoint.AFTER_REPLY:
            asyncio.get_running_loop().call_soon(link.crash)
        answer = reply.answer
        if answer.is_ok:
            return answer
        retry_after = f"{answer.retry_after}" if answer.retry_after else ""
        raise error_of(call, answer.status, read_status(_raw(answer)), retry_after)

    async def _wait_for_turn(self, request: HttpRequest, outcome: FaultOutcome) -> None:
        """Wait as the process's own rate limiter makes it. Raises Throttled, without waiting."""
        within = min(request.within, request.sent_within or request.within)
        if outcome.fails is Failure.THROTTLED or outcome.waits > within:
            due = max(outcome.waits, within)
            text = (
                f"client-side rate limiter: the next token is due in {due.total_seconds():.3f}s,"
                f" the deadline in {within.total_seconds():.3f}s"
            )
            raise Throttled(text, call=request.call.text)
        if outcome.waits:
            await asyncio.sleep(outcome.waits.total_seconds())
            await self.link.stay_alive()

    async def _hand_over(
        self,
        request: HttpRequest,
        outcome: FaultOutcome,
        carry_out: Callable[[], Awaitable[ApiAnswer]],
    ) -> tuple[_Reply | None, str]:
        """Return the answer, or None and what is known of its absence."""
        link, seconds = self.link, request.within.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                reply = await link.run_to_end(self._carry(request, outcome, carry_out))
                if reply is None and outcome.fails not in _BREAKS:
                    await wait_for_ever()
        except TimeoutError:
            return None, f"timed out after {seconds:g}s"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if link.is_dead and task is not None and not task.cancelling():
                # What became of the request: a dead process never hears of it.
                await link.stay_alive()
            raise
        return reply, "Server disconnected"

    async def _carry(
        self,
        request: HttpRequest,
        outcome: FaultOutcome,
        carry_out: Callable[[], Awaitable[ApiAnswer]],
    ) -> _Reply | None:
        """Carry a request there and its answer back; None where no answer comes."""
        link, fails = self.link, outcome.fails
        late = request.within if fails is Failure.LATE else timedelta(0)
        await asyncio.sleep((late + outcome.before).total_seconds() + link.latency())
        if fails is Failure.RESET_BEFORE or not link.may_arrive():
            return None
        refusal = _REFUSALS.get(fails) if fails is not None else None
        if refusal is None or fails in _COMMITTED:
            answer = await carry_out()
        reply = _Reply(answer if refusal is None else refusal.answer(), self.api.now())
        if outcome.crash is CrashPoint.AFTER_COMMIT:
            link.crash()
        if fails in _UNANSWERED or fails is Failure.RESET_AFTER:
            return None
        await asyncio.sleep(outcome.after.total_seconds() + link.latency())
        return None if link.is_cut else reply


def _raw(answer: ApiAnswer) -> bytes:
    """Return the body as it came: the answer to a path that is not served is plain text."""
    text = answer.body.get("text")
    return text.encode() if isinstance(text, str) else _encode(answer.body)


def _key_of(request: HttpRequest) -> tuple[Resource, str, str, str]:
    call, query = request.call, request.query
    selectors = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return (call.resource, call.namespace, *selectors)


def _refuse_state(call: Call) -> Refused:
    why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
    return Refused.of(call.text, why, status=422, reason="Invalid")


class SimulatedClient(Verbs):
    """The client of one process: the operator's own, but for what is below its verbs.

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
        exchange = _SimulatedExchange(api, link, name=name, limits=limits, reads=reads, fence=fence)
        super().__init__(exchange, PageSizes(LoopClock()), timeouts)
        self._clock = link.clock

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows now, by its answers to this process."""
        return self._clock.now()


_INSTEAD: Final = {Failure.REDIRECT: 307, Failure.ERROR: 500}


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

    async def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True

    async def send(
        self, method: str, endpoint: Endpoint, *, reads_body: bool = False
    ) -> tuple[int, bytes]:
        """Return the status and the body that a pod answers; a redirect is not followed.

        Raises OSError where the connection is refused or breaks. Never returns where pods are out
        of reach, where no server answers, and once the link is dead: the caller sets a limit.
        """
        if self._is_closed:
            raise ConnectionAbortedError("this client is closed")
        link = self._link
        kind = OccasionKind.POD_CALL
        occasion = Occasion(kind=kind, actor=link.actor, verb=method, name=endpoint.pod)
        outcome = link.faults.decide(occasion)
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
        self, method: str, endpoint: Endpoint, outcome: FaultOutcome
    ) -> tuple[int, bytes]:
        fails = outcome.fails
        if fails is Failure.REFUSED:
            raise ConnectionRefusedError("Connect call failed")
        if fails is Failure.RESET_BEFORE:
            raise ConnectionResetError("Connection reset by peer")
        if fails is Failure.LOST:
            await wait_for_ever()
        if fails in _INSTEAD:
            return _INSTEAD[fails], b""
        answer = await self._endpoints.serve(method, endpoint, self._link.actor, outcome.takes)
        if fails is Failure.RESET_AFTER:
            raise ConnectionResetError("Connection reset by peer")
        if fails is Failure.SILENT:
            await wait_for_ever()
        return (500, b"") if fails is Failure.ERROR_AFTER else answer
