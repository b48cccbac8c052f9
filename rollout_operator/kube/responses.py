"""Decode answers of the API server: errors, lines of a watch, discovery.

An error becomes the class of `model.names` that says what the caller should do. Its text is read
only where the API offers nothing better: authoriser and admission both answer 403 with reason
Forbidden, and only the sentence tells them apart. Pure, except for `KindCatalog`, which remembers
the kinds that API servers have.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import DISCOVER, Call, Discoverer, Resource, Served, WatchEvent
from rollout_operator.model.decode.wire import cut_in_steps
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    Gone,
    NotFound,
    Refused,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)

# A Status is a few hundred bytes; a longer answer is a page of some proxy.
MAX_ERROR_BODY: Final = 64 * 1024
MAX_EXCERPT: Final = 300
# Longer than any back-off of ours: a server that says an hour must not stop our requests for an
# hour.
_MAX_RETRY_AFTER: Final = timedelta(seconds=60)

CLUSTER_MISMATCH: Final = 511
"""HTTP status of a server that checks our `X-Cluster` header and finds another name."""

_BY_ROLE: Final = re.compile(r'forbidden: User ".*" cannot \S+ (?:resource|path) ', re.DOTALL)
_BY_WEBHOOK: Final = re.compile(r'admission webhook ".*" denied the request', re.DOTALL)
_WEBHOOK_FAILED: Final = "failed calling webhook"
# A proxy may echo our request; neither a credential nor the userinfo of a URL may be shown.
_SECRETS: Final = re.compile(r"(?i)((?:bearer|basic)\s+)[^\s\"',}]+|(//)[^\s/@]+(?=@)")
_UNAUTHORIZED: Final = "the API server does not accept these credentials"
_TOO_OLD: Final = frozenset({"Expired", "Gone"})
_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"


# An object in etcd is 1.5 MiB by default; ten times that in one line is no watch.
_MAX_LINE: Final = 16 * 1024 * 1024

_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})

_ANYTHING: Final = msgspec.json.Decoder(msgspec.Raw)
# Python 3.11 counts frames and levels together: a caller may decode so much deeper in its stack,
# and no field that is read lies deeper in a body.
_HEADROOM: Final = 200
_OPEN: Final = b"[" * _HEADROOM
_CLOSE: Final = b"]" * _HEADROOM
# Cutting so many bytes at once takes 20 ms at most, were they all brackets.
LARGE: Final = 64 * 1024

# A kind may be installed at any time; a kind that is missing is a typing error more often.
_MISSING_LASTS: Final = timedelta(minutes=1)
# What is there stays there, or is missed by its users.
_FOUND_LASTS: Final = timedelta(minutes=10)
# All waiters for a group that could not be read share one failure.
_FAILURE_LASTS: Final = timedelta(seconds=5)


class _RefusalCause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct):
    causes: list[_RefusalCause] | None = None
    retryAfterSeconds: int = 0


class Status(msgspec.Struct):
    """The API's own description of a failure, as far as we read it."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class _ClusterMismatch(msgspec.Struct):
    cluster_validation_error_message: str
    route: str = ""


_STATUS: Final = msgspec.json.Decoder(Status)
_MISMATCH: Final = msgspec.json.Decoder(_ClusterMismatch)


def read_status(body: bytes) -> Status:
    """Return the Status in the body of an answer; another body becomes its message."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        status = Status()
    return status if status.kind == "Status" else Status(message=body.decode("utf-8", "replace"))


def read_mismatch(content_type: str, body: bytes) -> _ClusterMismatch | None:
    """Return what a server with status 511 objects to, None where it is no such answer."""
    if content_type != "application/json":
        return None
    try:
        return _MISMATCH.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def mismatch_error(call: Call, mismatch: _ClusterMismatch) -> Denied:
    """Return the error for a server that is not of our cluster: nothing was done."""
    message = excerpt(mismatch.cluster_validation_error_message)
    problem = f"request rejected by the server: {message}"
    return Denied.of(call.text, problem, status=CLUSTER_MISMATCH)


def parse_retry_after(header: str, status: Status) -> timedelta | None:
    """Return how long the server wants us to wait, at most a minute; None where it does not say."""
    seconds = status.details.retryAfterSeconds if status.details else 0
    # Only the form in seconds: the API server never sends a date.
    if header.isascii() and header.isdigit() and len(header) < 10:
        seconds = int(header)
    return min(timedelta(seconds=seconds), _MAX_RETRY_AFTER) if seconds > 0 else None


def error_of(
    call: Call, code: int, status: Status, retry_after: str = "", *, log_in: str = ""
) -> ApiError:
    """Return the error for an answer that is not a success.

    `code` is the HTTP status, or that of the Status in an ERROR line; `retry_after` the header;
    `log_in` what helps where the credentials are refused.
    """
    reason = _reason(status)
    problem = _render_cause(code, status)
    if code == 429 and not _is_denial(call, status):
        refused = TooManyRequests.of(call.text, problem, status=code, reason=reason)
        refused.retry_after = parse_retry_after(retry_after, status)
        return refused
    kind = _class_of(call, code, status)
    if code == 401:
        problem = "; ".join(filter(None, (problem, _UNAUTHORIZED, log_in)))
    if kind is Denied and code == 403:
        role = "Role" if call.resource.is_namespaced else "ClusterRole"
        verb = "get" if call.verb == DISCOVER else call.verb
        problem = f"{problem}; grant verb {verb} on {_granted(call)} in its {role}"
    return kind.of(call.text, problem, status=code, reason=reason)


def excerpt(text: str) -> str:
    """Return text fit for an error: one printable line, cut, without credentials."""
    hidden = _SECRETS.sub(r"\1\2<redacted>", text)
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in hidden[: MAX_EXCERPT + 1]
    )
    return shown if len(shown) <= MAX_EXCERPT else f"{shown[: MAX_EXCERPT - 3]}..."


def _class_of(call: Call, code: int, status: Status) -> type[ApiError]:
    if _is_denial(call, status):
        return Refused
    if status.reason in _TOO_OLD:
        return Gone
    match code:
        case 401:
            return Denied
        case 403:
            return Refused if call.is_write and not _BY_ROLE.search(status.message) else Denied
        # Without a Status it is the 404 of a proxy, which knows nothing of the object.
        case 404 if status.kind or not call.name:
            return NotFound
        case 409:
            return Conflict
        case 422 if call.verb == "patch" and status.kind and _is_other_object(status):
            return Conflict
        case 410:
            return Gone
        case 400 | 405 | 406 | 413 | 415 | 422:
            return Refused
        case _:
            return UnknownOutcome if call.is_write else Unreachable


def _is_denial(call: Call, status: Status) -> bool:
    """Return whether admission stopped a write, before the store: nothing was changed.

    A webhook chooses the code of its denial freely, also a code with another meaning elsewhere.
    """
    if not call.is_write or not status.kind:
        return False
    return bool(_BY_WEBHOOK.search(status.message)) or _WEBHOOK_FAILED in status.message


def _is_other_object(status: Status) -> bool:
    """Return whether a patch did not find the object that it was made for.

    A `test` of a JSON patch failed, or a path is not there: an object that does not pass validation
    names its fields as causes. Or the field is the UID, which a merge patch gives as precondition.
    """
    causes = (status.details.causes if status.details else None) or ()
    return not causes or any(cause.field == "metadata.uid" for cause in causes)


def _reason(status: Status) -> str:
    causes = (status.details.causes if status.details else None) or ()
    if any(cause.reason == _VERSION_TOO_LARGE for cause in causes):
        return _VERSION_TOO_LARGE
    return excerpt(status.reason)


def _render_cause(code: int, status: Status) -> str:
    message = excerpt(status.message.strip()) or "no message"
    return f"{code} {excerpt(status.reason)}: {message}" if status.reason else f"{code}: {message}"


def _granted(call: Call) -> str:
    if call.verb == DISCOVER:
        return f'non-resource URL "{call.path}"'
    plural = f"{call.resource.plural}/{call.subresource}".rstrip("/")
    return f'"{plural}" in API group "{call.resource.group}"'


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LINE: Final = msgspec.json.Decoder(_Line)


class Splitter:
    """Lines of one stream. Bytes of an unfinished line are kept until its end arrives."""

    def __init__(self, *, limit: int = _MAX_LINE) -> None:
        self._parts: list[bytes] = []
        self._length = 0
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, blank lines left out.

        Raises ValueError where a line is longer than the limit.
        """
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            self._keep(end)
            lines.append(self._take())
        self._keep(rest)
        return [line for line in lines if line.strip()]

    def finish(self) -> list[bytes]:
        """Return the last line where the stream ended without its line feed."""
        line = self._take()
        return [line] if line.strip() else []

    def _keep(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > self._limit:
            raise ValueError(f"a line is longer than {self._limit} bytes")
        if part:
            self._parts.append(part)

    def _take(self) -> bytes:
        line = b"".join(self._parts)
        self._parts.clear()
        self._length = 0
        return line


def decode_event(line: bytes, call: Call) -> WatchEvent:
    """Return the event of one line.

    Raises what an HTTP answer with the same Status would raise for an ERROR line (Gone for code
    410), and Unreachable for a line that is no event, e.g. because the stream was cut within it.
    RecursionError passes through: an object may nest more deeply than can be decoded.
    """
    try:
        event = _LINE.decode(line)
    except msgspec.MsgspecError as error:
        raise _garbage(call, f"{error}", line) from error
    if event.type in _TYPES:
        return WatchEvent(type=event.type, object=event.object)
    if event.type != "ERROR":
        raise _garbage(call, f"type {excerpt(event.type)!r} is unknown", line)
    try:
        status = _STATUS.decode(event.object)
    except msgspec.MsgspecError as error:
        raise _garbage(call, f"{error}", line) from error
    raise error_of(call, status.code, status)


def _garbage(call: Call, problem: str, line: bytes) -> Unreachable:
    text = excerpt(line.decode("utf-8", "replace"))
    return Unreachable.of(call.text, f"no watch event: {problem}: {text}")


async def level(body: bytes) -> bytes:
    """Return JSON that nests no deeper than any later decoder goes, however deep its stack is.

    A later cut gives no turns: 1.2 MB of brackets would hold the event loop for 0.3 s.
    What is no JSON is returned as it is.
    """
    try:
        _ANYTHING.decode(b"".join((_OPEN, body, _CLOSE)))
    except RecursionError:
        return await cut_deep(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # what it is instead is for the caller to say
    return body


async def level_large(item: msgspec.Raw) -> msgspec.Raw:
    """Level an object that takes long to cut: hardly any is as large."""
    if memoryview(item).nbytes <= LARGE:
        return item
    return msgspec.Raw(await level(bytes(item)))


async def cut_deep(body: bytes) -> bytes:
    """Cut what nests too deeply, in turns with everything else on the event loop."""
    steps = cut_in_steps(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            cut: bytes = end.value
            return cut
        await asyncio.sleep(0)


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]
    preferredVersion: _Version | None = None


class _Kind(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _Resources(msgspec.Struct):
    resources: list[_Kind] | None = None


_Shape = TypeVar("_Shape")

_GROUP: Final = msgspec.json.Decoder(_Group)
_RESOURCES: Final = msgspec.json.Decoder(_Resources)


def decode_group(call: Call, body: bytes) -> Sequence[str]:
    group = _read(call, body, _GROUP)
    preferred = [group.preferredVersion] if group.preferredVersion else []
    return tuple(dict.fromkeys(version.version for version in (*preferred, *group.versions)))


def decode_resources(call: Call, body: bytes) -> Sequence[Served]:
    listed = _read(call, body, _RESOURCES).resources or ()
    below: dict[str, set[str]] = defaultdict(set)
    for entry in listed:
        plural, _, subresource = entry.name.partition("/")
        if subresource:
            below[plural].add(subresource)
    group, version = call.resource.group, call.resource.version
    return tuple(
        Served(
            resource=Resource(group, version, entry.name, entry.kind, entry.namespaced),
            subresources=frozenset(below[entry.name]),
        )
        for entry in listed
        if "/" not in entry.name
    )


def _read(call: Call, body: bytes, decoder: "msgspec.json.Decoder[_Shape]") -> _Shape:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreachable.of(call.text, f"the answer is no discovery: {error}") from error


class _GroupState(msgspec.Struct):
    """What is known of one API group."""

    kinds: Mapping[str, Served] = {}
    read_at: timedelta | None = None
    is_doubted: bool = False
    error: ApiError | None = None
    failed_at: timedelta = timedelta(0)
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class KindCatalog:
    """The kinds of those API groups that callers need.

    A group is read again when it is used and was last read ten minutes ago, and at most once a
    minute where a kind is missing in it or doubted.
    """

    def __init__(self, api: Discoverer, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._groups: dict[str, _GroupState] = {}

    async def find(self, group: str, kind: str) -> Served | None:
        """Return a kind in the version that the API server prefers; None where there is none.

        A kind that has a `scale` goes before a kind that has none. Raises ApiError where nothing is
        known yet, and InvalidInput where no group can have such a name.
        """
        state = self._groups.setdefault(group, _GroupState())
        # A call that waits for a group that hangs delays no call for another group.
        async with state.lock:
            if self._is_due(state, kind):
                await self._refresh(group, state, kind)
        return state.kinds.get(kind)

    def doubt(self, group: str) -> None:
        """Record that a kind of a group was not found: read the group again, if not just done."""
        if group in self._groups:
            self._groups[group].is_doubted = True

    def keep(self, groups: frozenset[str]) -> None:
        for group in self._groups.keys() - groups:
            del self._groups[group]

    def _is_due(self, state: _GroupState, kind: str) -> bool:
        if state.read_at is None:
            return True
        is_sure = kind in state.kinds and not state.is_doubted
        lasts = _FOUND_LASTS if is_sure else _MISSING_LASTS
        return self._clock.elapsed() - state.read_at >= lasts

    async def _refresh(self, group: str, state: _GroupState, kind: str) -> None:
        now = self._clock.elapsed()
        if state.error is None or now - state.failed_at >= _FAILURE_LASTS:
            state.error = None
            try:
                state.kinds = await self._fetch_kinds(group)
                state.read_at, state.is_doubted = self._clock.elapsed(), False
            except ApiError as error:
                state.error, state.failed_at = error, self._clock.elapsed()
        # What was found before is still the best guess, and its users find out.
        if state.error is not None and kind not in state.kinds:
            raise state.error.with_traceback(None)

    async def _fetch_kinds(self, group: str) -> Mapping[str, Served]:
        kinds: dict[str, Served] = {}
        try:
            versions = await self._api.fetch_group(group)
        except NotFound:
            return kinds
        for version in versions:
            try:
                listed = await self._api.fetch_resources(group, version)
            except NotFound:
                continue
            for entry in listed:
                before = kinds.get(entry.resource.kind)
                if before is None or _has_scale(entry) > _has_scale(before):
                    kinds[entry.resource.kind] = entry
        return kinds


def _has_scale(served: Served) -> bool:
    return "scale" in served.subresources
