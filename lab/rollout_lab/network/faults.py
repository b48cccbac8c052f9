"""What may go wrong between a process and the world, and what becomes of it then.

A `Faults` decides on each occasion what becomes of it: of a call, an event of a watch, a list, a
request to a pod, a review. How that looks to the process is decided in `client` and `link`.
"""

from datetime import timedelta
from enum import Enum, StrEnum, unique
from typing import Final, Literal, Protocol

import msgspec

NO_TIME: Final = timedelta(0)


@unique
class Failure(StrEnum):
    """How something fails."""

    # Calls of the API server.

    CONNECT = "connect"
    """No connection: nothing was sent, and the process knows it."""
    THROTTLED = "throttled"
    """The process's own rate limiter would not send it in time: nothing was sent."""
    RESET_BEFORE = "reset_before"
    """The connection breaks before the request arrives; also of pods and reviews."""
    RESET_AFTER = "reset_after"
    """It is carried out, and the connection breaks before the answer; also of pods."""
    TIMEOUT = "timeout"
    """It is carried out, and no answer comes."""
    LATE = "late"
    """It is carried out only when the caller's time is over."""
    CUT_BODY = "cut_body"
    """It is carried out, and the answer breaks off in the middle."""
    CONFLICT = "conflict"
    """409; this and all that follow are not carried out, if they do not say otherwise."""
    GONE = "gone"
    """410; of a watch, an ERROR line in place of the event."""
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
    UNAUTHORIZED = "unauthorized"
    """401 of an API server that starts, or cannot look the token up."""

    # Requests to pods.

    REFUSED = "refused"
    SILENT = "silent"
    """The pod has acted, and never answers."""
    LOST = "lost"
    """The request never arrives, and nothing tells; also of reviews."""
    REDIRECT = "redirect"
    """307 of something before the pod, which never sees the request."""
    ERROR = "error"
    """500 of something before the pod, which never sees the request."""
    ERROR_AFTER = "error_after"
    """500, though the pod has acted."""

    # Events of a watch.

    DROP = "drop"
    """It never comes, on later streams neither, until the process lists again."""
    DUPLICATE = "duplicate"
    SPOIL = "spoil"
    """It comes as an object that cannot be decoded, whatever is between spoils it."""
    CUT = "cut"
    """The connection breaks before it."""

    # Calls of the API server, where a story wants it; never by chance.

    DENIED = "denied"
    """403 of a webhook."""


@unique
class CrashPoint(Enum):
    """Where in a call the process dies; before an event or a review there is but one place."""

    BEFORE_SEND = 1
    AFTER_COMMIT = 2
    """The API server has carried it out; the client will not read the answer."""
    AFTER_REPLY = 3
    """The answer is there, and the process gets no further than its next wait."""


@unique
class OccasionKind(StrEnum):
    CALL = "call"
    EVENT = "event"
    LIST = "list"
    """A list that an informer gets, which is a call as well."""
    POD_CALL = "pod_call"
    REVIEW = "review"


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is about to happen to a process, and may go wrong."""

    kind: OccasionKind
    actor: str
    """The process."""
    verb: str
    """Of an event its type, of a request to a pod the method, of a review its `Way`."""
    client: str = ""
    plural: str = ""
    subresource: str = ""
    name: str = ""
    """Empty for a bookmark."""
    number: int = 0
    """Of the calls of this life of the process, from 1; of an event, among those of its plural. A
    bookmark has the number of the event before it."""
    round: int = 0
    """How often the process has requested the same by now, from 1: verb, plural, name, all."""

    @property
    def is_write(self) -> bool:
        """Return whether it is a call that changes something where it succeeds."""
        return self.kind is OccasionKind.CALL and self.verb not in _READS

    @property
    def text(self) -> str:
        match self.kind:
            case OccasionKind.EVENT:
                return f"event {self.number} of {self.plural}: {self.verb} {self.name}".rstrip()
            case OccasionKind.POD_CALL:
                return f"{self.verb} {self.name}"
            case OccasionKind.REVIEW:
                return f"{self.verb} of a review"
            case OccasionKind.CALL | OccasionKind.LIST:
                path = (self.plural, self.name, self.subresource)
                return f"call {self.number}: {self.verb} {'/'.join(part for part in path if part)}"


_READS: Final = ("get", "list", "watch", "discover")
Way = Literal["question", "answer"]
"""Of a review: from the API server to a process, or back."""


class FaultOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an occasion. The delays come on top of the usual delays."""

    waits: timedelta = NO_TIME
    """For a token of the process's own rate limiter; takes nothing off the time of the call."""
    before: timedelta = NO_TIME
    """On the way there; of a LATE call, after the caller's time is over. All events that follow one
    wait as well."""
    takes: timedelta = NO_TIME
    """How long a pod has the request before it acts, whether or not its caller still waits."""
    after: timedelta = NO_TIME
    """On the way back."""
    freeze: timedelta = NO_TIME
    """Nothing of this kind of object comes for so long, no end either; then all that is due."""
    age: timedelta = NO_TIME
    """How old a list is."""
    fails: Failure | None = None
    crash: CrashPoint | None = None


AS_USUAL: Final = FaultOutcome()


class Faults(Protocol):
    """Decides what goes wrong, once on each occasion; an event that is sent again is none."""

    def decide(self, occasion: Occasion) -> FaultOutcome: ...


class NoFaults:
    """Nothing goes wrong."""

    def decide(self, occasion: Occasion) -> FaultOutcome:
        return AS_USUAL
