"""Turn what the API server answered into the error class that says what the caller should do.

Pure: status, headers and body in, an error of `model.errors` out. Time-outs and broken connections,
where there is no answer, are translated in `exchange`.

Texts are read only where the API offers nothing better: both the authoriser and admission
answer 403 with reason Forbidden, and only the sentence says which of them it was.
"""

import re
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.kube.call import DISCOVER, Call
from rollout_operator.model.errors import (
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
MAX_RETRY_AFTER: Final = timedelta(seconds=60)

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


class RefusalCause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct):
    causes: list[RefusalCause] | None = None
    retryAfterSeconds: int = 0


class Status(msgspec.Struct):
    """The API's own description of a failure, as far as we read it."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


class ClusterMismatch(msgspec.Struct):
    """Body of an answer with status 511."""

    cluster_validation_error_message: str
    route: str = ""


_STATUS: Final = msgspec.json.Decoder(Status)
_MISMATCH: Final = msgspec.json.Decoder(ClusterMismatch)


def read_status(body: bytes) -> Status:
    """Return the Status in the body of an answer; another body becomes its message."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        status = Status()
    return status if status.kind == "Status" else Status(message=body.decode("utf-8", "replace"))


def read_mismatch(content_type: str, body: bytes) -> ClusterMismatch | None:
    """Return what a server with status 511 objects to, None where it is no such answer."""
    if content_type != "application/json":
        return None
    try:
        return _MISMATCH.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None


def mismatch_error(call: Call, mismatch: ClusterMismatch) -> Denied:
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
    return min(timedelta(seconds=seconds), MAX_RETRY_AFTER) if seconds > 0 else None


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
    """Return the class; the caller has already taken out 429."""
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
    """Return the reason; for a version that the server has not reached, the more exact cause."""
    causes = (status.details.causes if status.details else None) or ()
    if any(cause.reason == _VERSION_TOO_LARGE for cause in causes):
        return _VERSION_TOO_LARGE
    return excerpt(status.reason)


def _render_cause(code: int, status: Status) -> str:
    message = excerpt(status.message.strip()) or "no message"
    return f"{code} {excerpt(status.reason)}: {message}" if status.reason else f"{code}: {message}"


def _granted(call: Call) -> str:
    """Return the resource as a rule of a Role names it."""
    if call.verb == DISCOVER:
        return f'non-resource URL "{call.path}"'
    plural = f"{call.resource.plural}/{call.subresource}".rstrip("/")
    return f'"{plural}" in API group "{call.resource.group}"'
