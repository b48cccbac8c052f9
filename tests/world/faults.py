"""What can go wrong between the operator and the API server, and which requests it meets."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec

REASONS: Final = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule may read."""

    method: str
    path: str
    query: Mapping[str, str]

    @property
    def is_watch(self) -> bool:
        """Say whether it requests a stream of changes."""
        return self.method == "GET" and self.query.get("watch", "") in ("1", "true")

    @property
    def resource(self) -> str:
        """Return the plural, with its subresource: `pods`, `statefulsets/status`."""
        parts = self.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            rest = rest[2:]
        return "/".join([*rest[:1], *rest[2:]])

    @property
    def verb(self) -> str:
        """Return the verb as Kubernetes names it."""
        parts = self.path.strip("/").split("/")
        in_namespace = 2 if "namespaces" in parts[2:-2] else 0
        depth = len(parts) - (2 if parts[0] == "api" else 3) - in_namespace
        match self.method:
            case "GET" if self.is_watch:
                return "watch"
            case "GET":
                return "list" if depth == 1 else "get"
            case "POST":
                return "create"
            case "PUT":
                return "update"
            case "DELETE" if depth == 1:
                return "deletecollection"
        return self.method.lower()


class Delay(msgspec.Struct, frozen=True):
    """Forward after a time."""

    by: timedelta


class Answer(msgspec.Struct, frozen=True):
    """Answer with a Status of this code instead of forwarding."""

    code: int
    retry_after: timedelta | None = None


class Freeze(msgspec.Struct, frozen=True):
    """Hold the bytes of the answer back while the rule is in force, then let them flow."""


class Drop(msgspec.Struct, frozen=True):
    """Swallow the bytes of the answer for ever; the connection stays open."""


class Cut(msgspec.Struct, frozen=True):
    """Break the connection off."""


class Truncate(msgspec.Struct, frozen=True):
    """Break the connection off after so many bytes of the answer's body."""

    after: int


class Expire(msgspec.Struct, frozen=True):
    """Send an ERROR event with code 410 inside the watch stream and end it."""


class CommitLate(msgspec.Struct, frozen=True):
    """Break the connection at once, and forward the request only after a time."""

    after: timedelta


class NeverAnswer(msgspec.Struct, frozen=True):
    """Forward at once and keep the answer; the connection stays open."""


Effect = Delay | Answer | Freeze | Drop | Cut | Truncate | Expire | CommitLate | NeverAnswer
Predicate = Callable[[Request], bool]


@dataclass(slots=True, eq=False)
class Rule:
    """A predicate and what happens to requests that match."""

    predicate: Predicate
    effect: Effect
    times: int | None = None
    """How many requests it may still meet; None is no limit."""
    hits: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is removed."""


def watches(resource: str = "") -> Predicate:
    """Match watches, of one resource if it is named."""
    return lambda request: request.is_watch and resource in ("", request.resource)


def lists(resource: str = "") -> Predicate:
    """Match lists, of one resource if it is named."""
    return lambda request: request.verb == "list" and resource in ("", request.resource)


def verbs(verb: str, resource: str) -> Predicate:
    """Match one verb on one resource."""
    return lambda request: (request.verb, request.resource) == (verb, resource)


def stored(verb: str, resource: str) -> Predicate:
    """Match one verb on one resource, but for dry runs."""
    matches = verbs(verb, resource)
    return lambda request: matches(request) and "dryRun" not in request.query


def everything(request: Request) -> bool:
    """Match all requests."""
    return True


def status(code: int, message: str) -> dict[str, object]:
    """Return a refusal as the API server words it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(code, "Unknown"),
        "code": code,
    }


def expired() -> bytes:
    """Return the last line of a watch whose past is gone."""
    gone = status(410, "too old resource version: 1 (2)")
    return msgspec.json.encode({"type": "ERROR", "object": gone}) + b"\n"
