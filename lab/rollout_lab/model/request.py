"""Requests to the simulated API server, and its answers, as HTTP would carry them.

A request names what the path, the query and the body of the real call would say, so that the same
sequence can be sent to a real API server.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NoReturn, Protocol

import msgspec

from rollout_lab.model.fields import children, text
from rollout_operator.kube.api import JsonObject, Resource

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "discover"]
"""To discover is to read the versions of a group or, where a version is given, its kinds."""

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

Body = JsonObject | Sequence[JsonObject] | None


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the API server."""

    verb: Verb
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = {}
    """As in the URL: `resourceVersion`, `limit`, `continue`, `labelSelector`, `dryRun`, ..."""
    body: Body = None
    content_type: str = "application/json"
    """Of a patch: which of the kinds it is."""
    user: str = "client"

    @property
    def is_dry_run(self) -> bool:
        """Return whether nothing of it may be kept, as its query or its DeleteOptions say."""
        if self.query.get("dryRun") == "All":
            return True
        if not isinstance(self.body, dict):
            return False
        options = self.body
        if self.subresource == "eviction":
            inner = self.body.get("deleteOptions")
            options = inner if isinstance(inner, dict) else {}
        elif self.verb != "delete":
            return False
        return options.get("dryRun") == ["All"]


def create(
    resource: Resource, body: JsonObject, namespace: str = "", user: str = "client"
) -> ApiRequest:
    """Return the request that creates an object, in a namespace where its kind has any."""
    place = namespace if resource.is_namespaced else ""
    return ApiRequest(verb="create", resource=resource, namespace=place, body=body, user=user)


def patch(
    resource: Resource,
    name: str,
    body: JsonObject,
    namespace: str = "",
    user: str = "client",
    *,
    subresource: str = "",
    kind: str = MERGE_PATCH,
) -> ApiRequest:
    """Return the request that changes an object, or a subresource of it."""
    return ApiRequest(
        verb="patch",
        resource=resource,
        namespace=namespace if resource.is_namespaced else "",
        name=name,
        subresource=subresource,
        body=body,
        content_type=kind,
        user=user,
    )


class ApiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: an object, a list, or a `Status` for a refusal."""

    status: int
    body: JsonObject
    warnings: tuple[str, ...] = ()
    retry_after: int = 0
    """Seconds of the `Retry-After` header; 0 where there is none."""

    @property
    def is_ok(self) -> bool:
        """Return whether it is no refusal."""
        return self.status < 400

    @property
    def reason(self) -> str:
        """Return the machine's word of a refusal, such as `Conflict`; empty where it is none."""
        return "" if self.is_ok else str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """Return what a refusal says; empty where it is none."""
        return "" if self.is_ok else str(self.body.get("message", ""))

    @property
    def explanation(self) -> str:
        """Return what a refusal says, then its causes: of an eviction the budget is named there."""
        whole = self.message
        for cause in () if self.is_ok else children(self.body, "details", "causes"):
            why = text(cause, "message")
            whole = whole if why in whole else f"{whole} {why}"
        return whole


class ApiRefusal(Exception):
    """The API server will not do it: becomes an Answer with a `Status`."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: Sequence[JsonObject] = (),
        retry_after: int = 0,
        details: JsonObject | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.retry_after = retry_after
        self.details = details or {}
        """Further details, beside causes and hint: what a webhook has said passes as it is."""

    def answer(self) -> ApiAnswer:
        """Return it as it goes over the wire."""
        details: JsonObject = {**self.details}
        if self.causes:
            details["causes"] = list(self.causes)
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.status,
        }
        if self.reason:
            body["reason"] = self.reason
        if details:
            body["details"] = details
        return ApiAnswer(status=self.status, body=body, retry_after=self.retry_after)


class NotModelled(Exception):
    """The simulated world does not know how the real world behaves here: never a silent guess."""


def api_version_of(resource: Resource) -> str:
    """Return `apiVersion` of the objects of a kind."""
    return f"{resource.group}/{resource.version}" if resource.group else resource.version


def not_modelled(what: str) -> NoReturn:
    """Raise NotModelled that names what was requested."""
    raise NotModelled(f"the simulation does not model {what}")


class ApiServer(Protocol):
    """What the cluster's own controllers, scheduler and kubelets need of the API server."""

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        """Return the newest version of an object, None where it does not exist."""

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]:
        """Return the objects of a namespace by name; of all where it is empty."""

    def put(self, obj: JsonObject, *, actor: str) -> None:
        """Store a whole object as it is."""

    def call_now(self, request: ApiRequest) -> ApiAnswer:
        """Answer at once."""

    def now(self) -> datetime:
        """Return what the server's clock shows."""
