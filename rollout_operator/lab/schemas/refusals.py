"""Refusals that any kind may meet, worded as the real API server words them.

Decides status, reason and message; when to refuse is decided where it is found out.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.lab.model.request import ApiAnswer, ApiRefusal, ApiRequest

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
    """Nobody serves the API group: answered by the HTTP server itself, in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    def answer(self) -> ApiAnswer:
        """Return it as it goes over the wire."""
        return ApiAnswer(status=404, body={"text": "404 page not found\n"})


def qualified(resource: Resource, subresource: str = "") -> str:
    """Return a resource as messages name it: `statefulsets.apps`, `pods`."""
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return f"{plural}.{resource.group}" if resource.group else plural


def not_found(resource: Resource, name: str) -> ApiRefusal:
    """Return the refusal for an object that does not exist."""
    return ApiRefusal(404, "NotFound", f'{qualified(resource)} "{name}" not found')


def no_namespace(name: str) -> ApiRefusal:
    """Return the refusal for a creation in a namespace that does not exist."""
    return ApiRefusal(404, "NotFound", f'namespaces "{name}" not found')


def no_resource() -> ApiRefusal:
    """Return the refusal for a path that leads nowhere."""
    return ApiRefusal(404, "NotFound", "the server could not find the requested resource")


def no_method() -> ApiRefusal:
    """Return the refusal for a verb that a path does not know."""
    text = "the server does not allow this method on the requested resource"
    return ApiRefusal(405, "MethodNotAllowed", text)


def already_exists(resource: Resource, name: str) -> ApiRefusal:
    """Return the refusal for a name that is taken."""
    return ApiRefusal(409, "AlreadyExists", f'{qualified(resource)} "{name}" already exists')


def name_not_generated(resource: Resource, name: str) -> ApiRefusal:
    """Return the refusal where every name that was made up is taken."""
    text = "already exists, the server was not able to generate a unique name for the object"
    message = f'{qualified(resource)} "{name}" {text}'
    return ApiRefusal(409, "AlreadyExists", message, retry_after=1)


def conflict(target: str, name: str, why: str) -> ApiRefusal:
    """Return the refusal for a write that rests on another state of the object."""
    return ApiRefusal(409, "Conflict", f'Operation cannot be fulfilled on {target} "{name}": {why}')


def bad_request(message: str) -> ApiRefusal:
    """Return the refusal for a request that cannot be understood."""
    return ApiRefusal(400, "BadRequest", message)


def unknown_format() -> ApiRefusal:
    """Return the refusal for a body that is no JSON."""
    known = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    text = "the body of the request was in an unknown format - accepted media types include:"
    return ApiRefusal(415, "UnsupportedMediaType", f"{text} {known}")


def unexpected(message: str) -> ApiRefusal:
    """Return the answer to what the real server meets with a plain error: 500 without a reason."""
    return ApiRefusal(500, "", message)


def timed_out() -> ApiRefusal:
    """Return the refusal of a request that took longer than the server lets it."""
    text = "Timeout: request did not complete within requested timeout - context deadline exceeded"
    return ApiRefusal(504, "Timeout", text)


def version_too_large(asked: int, newest: int) -> ApiRefusal:
    """Return the refusal for a version that the server has not reached."""
    message = f"Timeout: Too large resource version: {asked}, current: {newest}"
    causes: list[JsonObject] = [
        {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    ]
    return ApiRefusal(504, "Timeout", message, causes=causes, retry_after=1)


def list_expired() -> ApiRefusal:
    """Return the refusal for a list at a version that is forgotten."""
    return ApiRefusal(410, "Expired", "The resourceVersion for the provided list is too old.")


def watch_expired(asked: int, oldest: int) -> ApiRefusal:
    """Return the refusal for a watch from a version that is forgotten."""
    return ApiRefusal(410, "Expired", f"too old resource version: {asked} ({oldest})")


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
