"""What may go wrong between a process and the world: the words for it.

Says which kinds of trouble there are. Which call or event meets it is decided in `random_faults` or
`planned_faults`; how it then looks to the process, in `client`, `delayed_watches` and `pod_client`.
"""

from datetime import timedelta
from enum import Enum, StrEnum, unique
from typing import Final, Literal, Protocol

import msgspec

NO_TIME: Final = timedelta(0)


@unique
class Failure(StrEnum):
    """How a call of the API server fails."""

    CONNECT = "connect"
    """No connection: nothing was sent, and the process knows it."""
    THROTTLED = "throttled"
    """The process's own rate limiter would not send it in time: nothing was sent."""
    RESET_BEFORE = "reset_before"
    """The connection breaks before the request arrives."""
    RESET_AFTER = "reset_after"
    """It is carried out, and the connection breaks before the answer."""
    TIMEOUT = "timeout"
    """It is carried out, and no answer comes."""
    LATE = "late"
    """It is carried out only when the caller's time is over."""
    CUT_BODY = "cut_body"
    """It is carried out, and the answer breaks off in the middle."""
    CONFLICT = "conflict"
    """409; this and all that follow are not carried out, if they do not say otherwise."""
    GONE = "gone"
    """410"""
    TOO_MANY = "too_many"
    """429"""
    TOO_MANY_RETRY = "too_many_retry"
    """429 with `Retry-After`"""
    INTERNAL = "internal"
    """500"""
    UNAVAILABLE = "unavailable"
    """503"""
    GATEWAY_TIMEOUT = "gateway_timeout"
    """504"""
    GATEWAY_TIMEOUT_COMMITTED = "gateway_timeout_committed"
    """504 of a request that is carried out all the same."""


@unique
class PodFailure(StrEnum):
    """How an HTTP request to a pod fails."""

    REFUSED = "refused"
    RESET_BEFORE = "reset_before"
    """The connection breaks before the pod has the request."""
    RESET_AFTER = "reset_after"
    """The pod has acted, and the connection breaks."""
    SILENT = "silent"
    """The pod has acted, and never answers."""
    LOST = "lost"
    """The request never arrives, and nothing tells."""
    REDIRECT = "redirect"
    """307 of something before the pod, which never sees the request."""
    ERROR = "error"
    """500 of something before the pod, which never sees the request."""
    ERROR_AFTER = "error_after"
    """500, though the pod has acted."""


@unique
class CrashPoint(Enum):
    """Where in a call the process dies."""

    BEFORE_SEND = 1
    AFTER_COMMIT = 2
    """The API server has carried it out; the client will not read the answer."""
    AFTER_REPLY = 3
    """The answer is there, and the process gets no further than its next wait."""


class SentCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a process is about to make."""

    number: int
    """Of the calls of this life of the process, from 1."""
    actor: str
    client: str
    verb: str
    plural: str
    subresource: str
    name: str
    round: int
    """How often the process has requested the same by now, from 1: verb, plural, name, all."""

    @property
    def is_write(self) -> bool:
        """Return whether it changes something where it succeeds."""
        return self.verb not in ("get", "list", "watch", "discover")

    @property
    def text(self) -> str:
        target = "/".join(part for part in (self.plural, self.name, self.subresource) if part)
        return f"call {self.number}: {self.verb} {target}"


class FaultDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a call. The delays come on top of the usual delays."""

    waits: timedelta = NO_TIME
    """For a token of the process's own rate limiter; takes nothing off the time of the call."""
    before: timedelta = NO_TIME
    """On the way to the API server; of a LATE call, after the caller's time is over."""
    after: timedelta = NO_TIME
    """On the way back."""
    fails: Failure | None = None
    crash: CrashPoint | None = None


class EventOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an event of a watch, and of the stream that carries it."""

    delay: timedelta = NO_TIME
    """How long after the API server had it the process gets it; all that follow wait as well."""
    drop: bool = False
    """It never comes, on later streams neither, until the process lists again."""
    duplicate: bool = False
    spoil: bool = False
    """It comes as an object that cannot be decoded, whatever is between spoils it."""
    freeze: timedelta = NO_TIME
    """Nothing of this kind of object comes for so long, no end either; then all that is due."""
    cut: bool = False
    """The connection breaks before it."""
    gone: bool = False
    """Instead of it comes an ERROR line with code 410."""
    crash: bool = False
    """The process dies before it."""


class PodCallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a request to a pod. The delays come on top of the usual delays."""

    before: timedelta = NO_TIME
    takes: timedelta = NO_TIME
    """How long the pod has the request before it acts, whether or not its caller still waits."""
    after: timedelta = NO_TIME
    fails: PodFailure | None = None
    crash: CrashPoint | None = None


class ReviewOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a question of admission on its way to a process, or of the answer."""

    delay: timedelta = NO_TIME
    """On top of the usual delay."""
    reset: bool = False
    """The connection breaks."""
    lost: bool = False
    """It never arrives, and nothing tells."""
    crash: bool = False
    """The process dies at this moment."""


Way = Literal["question", "answer"]


class Faults(Protocol):
    """Decides what goes wrong, once for each call, event, review and pod request."""

    def on_call(self, sent_call: SentCall) -> FaultDecision: ...

    def on_event(self, actor: str, plural: str, type: str, name: str, number: int) -> EventOutcome:
        """Return what becomes of an event that the API server sends for the first time.

        `number` is that among the events of this plural in this life of the process, from 1. A
        bookmark has no name, and the number of the event before it.
        """
        ...

    def on_list(self, sent_call: SentCall) -> timedelta:
        """Return how old the list is that an informer gets; zero for the newest state."""
        ...

    def on_pod_call(self, actor: str, method: str, pod: str) -> PodCallOutcome: ...

    def on_review(self, actor: str, way: Way) -> ReviewOutcome:
        """Return what becomes of a question of admission to a process, or of its answer."""
        ...


OUTCOME: Final = FaultDecision()
EVENT_OUTCOME: Final = EventOutcome()
POD_CALL_OUTCOME: Final = PodCallOutcome()
REVIEW_OUTCOME: Final = ReviewOutcome()


class NoFaults:
    """Nothing goes wrong."""

    def on_call(self, sent_call: SentCall) -> FaultDecision:
        return OUTCOME

    def on_event(self, actor: str, plural: str, type: str, name: str, number: int) -> EventOutcome:
        return EVENT_OUTCOME

    def on_list(self, sent_call: SentCall) -> timedelta:
        return NO_TIME

    def on_pod_call(self, actor: str, method: str, pod: str) -> PodCallOutcome:
        return POD_CALL_OUTCOME

    def on_review(self, actor: str, way: Way) -> ReviewOutcome:
        return REVIEW_OUTCOME
