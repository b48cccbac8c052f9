"""A sequence's side of the real control plane: requests as HTTP, in a namespace of its own."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import aiohttp
import msgspec
from rollout_lab.model.request import ApiAnswer, ApiRequest, Verb

from rollout_operator.kube.api import JsonObject
from rollout_operator.kube.client import Client
from tests.contract.hook_server import HookServer
from tests.contract.sides import Clients, Decide
from tests.world.api import NAMESPACES, PODS, STATEFULSETS, Api, ApiError, read_warning
from tests.world.plane import ControlPlane

LONG_LINE: Final = 2**20
"""Bytes that a line of a watch may have."""
METHODS: Final[Mapping[Verb, str]] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "discover": "GET",
}


class Lethe:
    """Makes the server forget its past, once for all the sequences that want it.

    Its store is compacted, and it is started anew, since its caches remember.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._awaited = 0
        self._over = asyncio.Event()

    def expect(self, sequences: int) -> None:
        """Wait for so many sequences before the server forgets."""
        self._awaited = sequences

    async def forget(self) -> None:
        """Record that a sequence wants it now, and wait until it is done."""
        await self.leave()
        await self._over.wait()

    async def leave(self) -> None:
        """Record that a sequence is there, or will not come any more."""
        self._awaited -= 1
        if self._awaited == 0:
            try:
                await self._compact()
                await self._plane.restart_apiserver()
            finally:
                self._over.set()

    async def _compact(self) -> None:
        async with self._plane.api() as api:
            newest = (await api.list(NAMESPACES))["metadata"]["resourceVersion"]
        url = f"http://127.0.0.1:{self._plane.etcd_port}/v3/kv/compaction"
        body = {"revision": newest, "physical": True}
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as came:
            came.raise_for_status()


@dataclass(kw_only=True)
class RealSide:
    """One namespace of the real API server."""

    plane: ControlPlane
    api: Api
    hooks: HookServer
    client: Client
    lethe: Lethe
    namespace: str
    of_cluster: list[str] = field(default_factory=list)
    """Paths of what was created outside of the namespace."""
    has_hooks: bool = False
    has_forgotten: bool = False

    async def call(self, request: ApiRequest) -> ApiAnswer:
        path = _path_of(request)
        async with self.api.session.request(
            METHODS[request.verb],
            path,
            params=dict(request.query),
            # As the operator's client writes it: a JSON patch tests what is written.
            data=None if request.body is None else json.dumps(request.body),
            headers={} if request.body is None else {"Content-Type": request.content_type},
        ) as came:
            answer = await _read(came)
        if not request.resource.is_namespaced and request.verb == "create" and answer.is_ok:
            self.of_cluster.append(f"{path}/{_name(answer)}")
        if self.has_hooks and request.verb != "get" and answer.is_ok:
            await self._settle(request, answer)
        return answer

    async def _settle(self, request: ApiRequest, answer: ApiAnswer) -> None:
        """Wait until the server's cache knows a write.

        A write begins with what the cache holds. Where that is old, admission has a round more.
        """
        metadata: Any = answer.body.get("metadata", {})
        version = metadata.get("resourceVersion")
        if version and request.resource.is_namespaced:
            path = request.resource.path(request.namespace)
            query = {"resourceVersion": version, "limit": "1"}
            await self.api.call("GET", path, query=query)

    @asynccontextmanager
    async def watch(
        self, request: ApiRequest
    ) -> AsyncIterator[AsyncIterator[JsonObject] | ApiAnswer]:
        query = {**request.query, "watch": "true"}
        path = _path_of(request)
        async with self.api.session.get(path, params=query, read_bufsize=LONG_LINE) as came:
            yield _lines(came) if came.status == 200 else await _read(came)

    def hook_url(self, path: str) -> tuple[str, str]:
        return f"https://localhost:{self.hooks.port}{path}", self.hooks.bundle

    def attend(self, path: str, decide: Decide) -> None:
        self.hooks.decisions[path] = decide
        self.has_hooks = True

    def clients(self) -> Clients:
        return self.client

    async def forget_past(self) -> None:
        """Let the server forget; other sequences wait here for the same."""
        self.has_forgotten = True
        await self.lethe.forget()

    def send_bookmarks(self) -> None:
        """Leave it to the server: it sends one some moments before a watch ends."""

    async def pause(self, span: timedelta) -> None:
        await asyncio.sleep(span.total_seconds())

    async def clear(self) -> None:
        """Remove what would disturb others.

        The namespace stays: the end of some hundreds would keep controllers busy for a minute.
        """
        for path in self.of_cluster:
            with suppress(ApiError):
                await self.api.call("DELETE", path)
        for resource, grace in ((STATEFULSETS, None), (PODS, timedelta(0))):
            with suppress(ApiError):
                await self.api.delete(
                    resource, self.namespace, grace=grace, propagation="Background"
                )


def _path_of(request: ApiRequest) -> str:
    return request.resource.path(request.namespace, request.name, request.subresource)


async def _read(came: aiohttp.ClientResponse) -> ApiAnswer:
    content = await came.read()
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        body = {"text": content.decode(errors="replace")}
    warnings = tuple(read_warning(text) for text in came.headers.getall("Warning", []))
    wait = int(came.headers.get("Retry-After", "0"))
    return ApiAnswer(status=came.status, body=body, warnings=warnings, retry_after=wait)


async def _lines(came: aiohttp.ClientResponse) -> AsyncIterator[JsonObject]:
    async for line in came.content:
        yield msgspec.json.decode(line, type=JsonObject)


def _name(answer: ApiAnswer) -> str:
    metadata = answer.body["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["name"])
