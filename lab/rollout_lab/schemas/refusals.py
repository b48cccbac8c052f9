"""Refusals that any kind may meet, worded as the real API server words them.

Decides status, reason and message; when to refuse is decided where it is found out. What the real
server refuses and no client in the lab sends is no refusal here: it is NotModelled (`expect`).
"""

import json
from collections.abc import Container
from typing import Final

import msgspec

from rollout_lab.model.request import ApiAnswer, ApiRefusal, ApiRequest, NotModelled
from rollout_operator.kube.api import JsonObject, Resource

MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_INCONSISTENT: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


class ContinueExpired(ApiRefusal):
    """The versions that a list was begun at are forgotten; brings a token to go on regardless."""

    def __init__(self, token: str) -> None:
        super().__init__(410, "Expired", _INCONSISTENT)
        self.token = token

    def answer(self) -> ApiAnswer:
        """Return it as it goes over the wire."""
        answer = super().answer()
        answer.body["metadata"] = {"continue": self.token}
        return answer


class NoPage(ApiRefusal):
    """No server has the API group: answered by the HTTP server itself, in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    def answer(self) -> ApiAnswer:
        """Return it as it goes over the wire."""
        return ApiAnswer(status=404, body={"text": "404 page not found\n"})


class BadField(NotModelled):
    """A value that the real server would refuse in words of its own."""

    def __init__(self, field: str, value: object) -> None:
        self.field = field
        self.value = json.dumps(value, default=str)
        super().__init__(f"the simulation does not model the refusal of {field}: {self.value}")


def expect(is_valid: bool, field: str, value: object) -> None:
    """Raise BadField for a value that the real server would refuse."""
    if not is_valid:
        raise BadField(field, value)


def expect_one_of(known: Container[object], field: str, value: object) -> None:
    """Raise NotModelled for a value that is none of those which are known."""
    expect(value in known, field, value)


def expect_counts(holder: JsonObject, *keys: str) -> None:
    """Raise NotModelled for a number below zero."""
    for key in keys:
        value = holder.get(key)
        expect(not isinstance(value, int) or value >= 0, key, value)


def qualified(resource: Resource) -> str:
    """Return a resource as messages name it: `statefulsets.apps`, `pods`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def invalid(kind: str, name: str, field: str, value: object, why: str) -> ApiRefusal:
    """Return the refusal for one field that is malformed, or may not change."""
    found = f"Invalid value: {msgspec.json.encode(value).decode()}: {why}"
    causes: list[JsonObject] = [{"reason": "FieldValueInvalid", "message": found, "field": field}]
    return ApiRefusal(
        422, "Invalid", f'{kind} "{name}" is invalid: {field}: {found}', causes=causes
    )


def check_not_negative(kind: str, name: str, field: str, value: object) -> None:
    """Raise Refusal (422) for a number below zero."""
    if isinstance(value, int) and value < 0:
        raise invalid(kind, name, field, value, "must be greater than or equal to 0")


def not_found(resource: Resource, name: str) -> ApiRefusal:
    """Return the refusal for an object that does not exist."""
    return ApiRefusal(404, "NotFound", f'{qualified(resource)} "{name}" not found')


def no_namespace(name: str) -> ApiRefusal:
    """Return the refusal for a creation in a namespace that does not exist."""
    return ApiRefusal(404, "NotFound", f'namespaces "{name}" not found')


def no_resource() -> ApiRefusal:
    """Return the refusal for a path that leads nowhere."""
    return ApiRefusal(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiRefusal:
    """Return the refusal for a name that is taken."""
    return ApiRefusal(409, "AlreadyExists", f'{qualified(resource)} "{name}" already exists')


def conflict(target: str, name: str, why: str) -> ApiRefusal:
    """Return the refusal for a write that rests on another state of the object."""
    return ApiRefusal(409, "Conflict", f'Operation cannot be fulfilled on {target} "{name}": {why}')


def bad_request(message: str) -> ApiRefusal:
    """Return the refusal for a request that cannot be understood."""
    return ApiRefusal(400, "BadRequest", message)


def timed_out() -> ApiRefusal:
    """Return the refusal of a request that took longer than the server lets it."""
    text = "Timeout: request did not complete within requested timeout - context deadline exceeded"
    return ApiRefusal(504, "Timeout", text)


def refuse_list() -> ApiRefusal:
    """Return the refusal for a list at a version that is forgotten."""
    return ApiRefusal(410, "Expired", "The resourceVersion for the provided list is too old.")


def refuse_watch(wanted: int, oldest: int) -> ApiRefusal:
    """Return the refusal for a watch from a version that is forgotten."""
    return ApiRefusal(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def forbidden(request: ApiRequest) -> ApiRefusal:
    """Return the refusal for what the caller's role does not allow."""
    resource, name = request.resource, request.name
    plural = resource.plural + (f"/{request.subresource}" if request.subresource else "")
    scope = (
        f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    )
    target = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    message = (
        f'{target} is forbidden: User "{request.user}" cannot {request.verb} resource "{plural}" '
        f'in API group "{resource.group}" {scope}'
    )
    return ApiRefusal(403, "Forbidden", message)
