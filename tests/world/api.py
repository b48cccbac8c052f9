"""A small API client for tests: JSON dictionaries in and out, over TLS with the test CA.

It shares no code with the operator, so that a mistake there cannot hide itself here.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Final, Self

import aiohttp
import msgspec

Json = dict[str, Any]
Items = list[Json]

CALL_LIMIT: Final = timedelta(seconds=30)
# Pause before a broken watch is opened again, as while the API server restarts.
REOPEN_PAUSE: Final = timedelta(milliseconds=50)
GONE: Final = 410

PATCH_TYPES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Resource(msgspec.Struct, frozen=True):
    """A kind as the API's paths name it."""

    api_version: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object or its subresource."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        scope = f"namespaces/{namespace}" if self.is_namespaced and namespace else ""
        parts = (root + self.api_version, scope, self.plural, name, subresource)
        return "/".join(part for part in parts if part)


PODS: Final = Resource("v1", "pods")
STATEFULSETS: Final = Resource("apps/v1", "statefulsets")
DEPLOYMENTS: Final = Resource("apps/v1", "deployments")
REPLICASETS: Final = Resource("apps/v1", "replicasets")
NAMESPACES: Final = Resource("v1", "namespaces", is_namespaced=False)
SERVICE_ACCOUNTS: Final = Resource("v1", "serviceaccounts")
SERVICES: Final = Resource("v1", "services")
SECRETS: Final = Resource("v1", "secrets")
CONFIG_MAPS: Final = Resource("v1", "configmaps")
BUDGETS: Final = Resource("policy/v1", "poddisruptionbudgets")
LEASES: Final = Resource("coordination.k8s.io/v1", "leases")
EVENTS: Final = Resource("events.k8s.io/v1", "events")
NETWORK_POLICIES: Final = Resource("networking.k8s.io/v1", "networkpolicies")
ROLES: Final = Resource("rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io/v1", "rolebindings")
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io/v1", "clusterroles", is_namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io/v1", "clusterrolebindings", is_namespaced=False
)

MUTATING_HOOKS: Final = Resource(
    "admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", is_namespaced=False
)
VALIDATING_HOOKS: Final = Resource(
    "admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", is_namespaced=False
)


class ApiError(Exception):
    """The API server refused; `status` is the HTTP code, `reason` the machine's word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, refusals included."""

    status: int
    body: Json
    warnings: tuple[str, ...] = ()
    """Texts of the `Warning` headers, as kubectl shows them."""

    @property
    def message(self) -> str:
        """Return what a refusal says; empty where an object came back."""
        return str(self.body.get("message", "")) if self.status >= 400 else ""


class Event(msgspec.Struct, frozen=True):
    """One line of a watch, or an object of the list before it (as ADDED)."""

    type: str
    object: Json


class Relisted(Event, frozen=True, kw_only=True):
    """All objects were listed anew (the watch was too old): what is not here is gone."""

    items: Sequence[Json]


class Api:
    """Calls with one identity. Use as `async with Api(...) as api`.

    What the server refuses raises ApiError, but for `exchange`; all may raise aiohttp.ClientError.
    """

    def __init__(self, url: str, token: str, context: ssl.SSLContext) -> None:
        self.url = url
        self.token = token
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}", "Accept": "application/json"},
            connector=aiohttp.TCPConnector(ssl=self._context, limit=0),
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """Return the open connection pool, for calls that this class has no method for."""
        if self._session is None:
            raise RuntimeError("use `async with Api(...)`")
        return self._session

    async def call(self, method: str, path: str, **how: Any) -> Json:
        """Send one request and return the decoded answer; `how` as `_send` takes it."""
        async with self._send(method, path, **how) as came:
            content = await came.read()
            if came.status >= 400:
                raise _error(came.status, content)
            return _decode(content)

    async def exchange(self, method: str, path: str, **how: Any) -> Answer:
        """Send one request and return what came back, also refusals."""
        async with self._send(method, path, **how) as came:
            content = await came.read()
            texts = [read_warning(text) for text in came.headers.getall("Warning", [])]
            return Answer(status=came.status, body=_status_or(content), warnings=tuple(texts))

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self.session.request(
            method,
            path,
            params=query,
            data=None if body is None else msgspec.json.encode(body),
            headers={} if body is None else {"Content-Type": content_type},
            timeout=aiohttp.ClientTimeout(total=CALL_LIMIT.total_seconds()),
        )

    async def get(
        self, resource: Resource, namespace: str, name: str, subresource: str = ""
    ) -> Json:
        return await self.call("GET", resource.path(namespace, name, subresource))

    async def list(
        self, resource: Resource, namespace: str = "", *, query: Mapping[str, str] | None = None
    ) -> Json:
        """Return the whole list object, `items` and `metadata`."""
        return await self.call("GET", resource.path(namespace), query=query)

    async def items(self, resource: Resource, namespace: str = "", labels: str = "") -> Items:
        listed = await self.list(resource, namespace, query={"labelSelector": labels})
        found: Items = listed["items"]
        return found

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: Mapping[str, object],
        name: str = "",
        subresource: str = "",
    ) -> Json:
        """Create an object, or post to a subresource of `name`."""
        return await self.call("POST", resource.path(namespace, name, subresource), body=body)

    async def replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Mapping[str, object],
        subresource: str = "",
    ) -> Json:
        return await self.call("PUT", resource.path(namespace, name, subresource), body=body)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: object,
        *,
        subresource: str = "",
        kind: str = "merge",
    ) -> Json:
        """Patch an object; `kind` is merge, strategic, json or apply."""
        query = {"fieldManager": "test-world", "force": "true"} if kind == "apply" else None
        return await self.call(
            "PATCH",
            resource.path(namespace, name, subresource),
            body=patch,
            query=query,
            content_type=PATCH_TYPES[kind],
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str = "",
        *,
        grace: timedelta | None = None,
        uid: str = "",
        version: str = "",
        propagation: str = "",
    ) -> Json:
        """Delete an object, or with no name the whole collection."""
        preconditions = {
            key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value
        }
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace is not None:
            options["gracePeriodSeconds"] = int(grace.total_seconds())
        if propagation:
            options["propagationPolicy"] = propagation
        return await self.call("DELETE", resource.path(namespace, name), body=options)

    async def _watch(
        self, resource: Resource, namespace: str, version: str
    ) -> AsyncIterator[Event]:
        """Yield the events of a watch until the server ends it, with bookmarks. Raises ApiError."""
        requested = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        async with self.session.get(
            resource.path(namespace),
            params=requested,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CALL_LIMIT.total_seconds()),
        ) as response:
            if response.status >= 400:
                raise _error(response.status, await response.read())
            async for line in read_lines(response):
                event = _decode(line)
                if event["type"] == "ERROR":
                    raise _error(int(event["object"].get("code", 500)), line, event["object"])
                yield Event(event["type"], event["object"])

    async def follow(self, resource: Resource, namespace: str = "") -> AsyncIterator[Event]:
        """Yield the list as ADDED events, then its changes for ever, through restarts.

        When the past is gone a `Relisted` event carries all objects. Bookmarks are swallowed.
        """
        listed = await self._relist(resource, namespace)
        for item in listed["items"]:
            yield Event("ADDED", item)
        version: str = listed["metadata"]["resourceVersion"]
        while True:
            try:
                async for event in self._watch(resource, namespace, version):
                    version = event.object["metadata"]["resourceVersion"]
                    if event.type != "BOOKMARK":
                        yield event
            except ApiError as refused:
                if refused.status == GONE:
                    listed = await self._relist(resource, namespace)
                    version = listed["metadata"]["resourceVersion"]
                    yield Relisted("RELISTED", {}, items=listed["items"])
                    continue
                if refused.status < 429:
                    raise
            except aiohttp.ClientError:
                pass  # the server is away: the next turn tries again from the same version
            await asyncio.sleep(REOPEN_PAUSE.total_seconds())

    async def _relist(self, resource: Resource, namespace: str) -> Json:
        while True:
            try:
                return await self.list(resource, namespace)
            except aiohttp.ClientError:
                pass
            except ApiError as refused:
                # 401 and 403 appear for a moment while a restarted server reads its own roles.
                if refused.status not in (401, 403, 429) and refused.status < 500:
                    raise
            await asyncio.sleep(REOPEN_PAUSE.total_seconds())


async def read_lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield what comes, line by line."""
    # Not readline(): a pod with managed fields may be longer than its limit.
    rest = bytearray()
    async for chunk in response.content.iter_any():
        rest += chunk
        *lines, tail = bytes(rest).split(b"\n")
        rest = bytearray(tail)
        for line in filter(None, lines):
            yield line


def _decode(content: bytes) -> Json:
    decoded: Json = msgspec.json.decode(content) if content else {}
    return decoded


def _error(status: int, content: bytes, decoded: Json | None = None) -> ApiError:
    if decoded is None:
        decoded = _status_or(content)
    return ApiError(status, str(decoded.get("reason", "")), str(decoded.get("message", "")))


def _status_or(content: bytes) -> Json:
    """Return the JSON of an answer; what is none, such as a proxy's page, becomes a message."""
    try:
        decoded: Json = json.loads(content)
    except ValueError:
        return {"message": content.decode(errors="replace")[:500]}
    return decoded


def read_warning(header: str) -> str:
    """Return the text of a `Warning` header: `299 - "text"`, quoted as RFC 7234 has it."""
    quoted = header.partition('"')[2].rpartition('"')[0]
    return re.sub(r"\\(.)", r"\1", quoted)
