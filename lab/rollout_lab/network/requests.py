"""One call of the API server over a link: there, carried out, and back, or what goes wrong with it.

Decides when a call arrives, whether an answer comes back in time, and which error it becomes: the
same as over the real network, and in the same words. Which calls there are is `client`'s part. Once
a request has arrived it is carried out, whatever becomes of the process that sent it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, NoReturn

import msgspec

from rollout_lab.model.request import ApiAnswer, ApiRefusal
from rollout_lab.network.faults import CrashPoint, Failure, FaultDecision
from rollout_lab.network.link import Link, wait_for_ever
from rollout_operator.kube.api import Call
from rollout_operator.kube.responses import error_of, read_status
from rollout_operator.model.names import Throttled, UnknownOutcome, Unreachable

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
    """A call that is to be made."""

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
