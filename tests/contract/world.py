"""The words in which sequences are written: calls, watches and hooks, each of them recorded.

    @sequence()
    async def a_patch_without_change_keeps_the_version(world: World) -> None:
        await world.create(CONFIG_MAPS, config_map("a"))
        await world.patch(CONFIG_MAPS, "a", {"data": {"key": "value"}})

A target is a name, or name and subresource as in `a/scale`. Queries are given as in the URL.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec
from rollout_lab.model.request import MERGE_PATCH, ApiAnswer, ApiRequest, Body, Verb

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.model.names import ApiError
from tests.contract.reviews import Rounds, write_configuration
from tests.contract.sides import CONFIG_MAPS, Clients, Hook, HookKind, Side
from tests.contract.transcript import Transcript

WAIT_LIMIT: Final = timedelta(seconds=30)
POLL: Final = timedelta(milliseconds=20)


class World:
    """One side as a sequence sees it; `transcript` holds what it answered."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.namespace = side.namespace
        self.transcript = Transcript(side.namespace)
        self._rounds = Rounds()
        self._is_quiet = False

    # Calls

    async def create(
        self, resource: Resource, body: Body, target: str = "", **query: str
    ) -> ApiAnswer:
        """POST an object, or something to a subresource of `target`."""
        return await self._send("create", resource, target, body=body, query=query)

    async def make(self, resource: Resource, body: JsonObject) -> ApiAnswer:
        """POST an object that the sequence only needs to be there: it must succeed, unrecorded."""
        with self.quietly():
            made = await self.create(resource, body)
        assert made.is_ok, made.message
        return made

    async def get(self, resource: Resource, target: str, **query: str) -> ApiAnswer:
        return await self._send("get", resource, target, query=query)

    async def list(self, resource: Resource, **query: str) -> ApiAnswer:
        return await self._send("list", resource, "", query=query)

    async def update(self, resource: Resource, target: str, body: Body, **query: str) -> ApiAnswer:
        return await self._send("update", resource, target, body=body, query=query)

    async def patch(
        self, resource: Resource, target: str, body: Body, kind: str = MERGE_PATCH, **query: str
    ) -> ApiAnswer:
        request = self._request("patch", resource, target, body=body, query=query, kind=kind)
        return await self.send(request)

    async def delete(
        self, resource: Resource, target: str, body: Body = None, **query: str
    ) -> ApiAnswer:
        """DELETE an object, with `body` as options."""
        return await self._send("delete", resource, target, body=body, query=query)

    async def send(self, request: ApiRequest) -> ApiAnswer:
        """Send any request, and record it with the rounds of admission that it went through."""
        answer = await self.side.call(request)
        if not self._is_quiet:
            self.transcript.add(_step(_describe(request), answer, self._rounds.take()))
        return answer

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Record nothing in this block: it only prepares, or waits."""
        before, self._is_quiet = self._is_quiet, True
        try:
            yield
        finally:
            self._is_quiet = before

    @contextmanager
    def elsewhere(self, namespace: str) -> Iterator[None]:
        """Send calls to another namespace in this block."""
        before, self.namespace = self.namespace, namespace
        try:
            yield
        finally:
            self.namespace = before

    def record(self, what: str, **found: Any) -> None:
        """Record something that the sequence itself found out."""
        self.transcript.add({"did": what, **found})

    # Watches

    async def events(self, resource: Resource, until: str = "", **query: str) -> None:
        """Watch a collection until the object `until` shows up, or to its end; record all."""
        async with self.watch(resource, **query) as watch:
            await watch.until(until)

    @asynccontextmanager
    async def watch(self, resource: Resource, **query: str) -> AsyncIterator["Watch"]:
        """Open a watch on a collection, to be read while it is open."""
        request = self._request("watch", resource, "", query=query)
        async with self.side.watch(request) as opened:
            yield Watch(self, _describe(request), opened)

    # Others

    async def until(
        self, resource: Resource, target: str, holds: Callable[[ApiAnswer], bool]
    ) -> None:
        """Read again and again, unrecorded, until what is answered satisfies `holds`."""
        with self.quietly():
            async with asyncio.timeout(WAIT_LIMIT.total_seconds()):
                while not holds(await self.get(resource, target)):
                    await self.side.pause(POLL)

    async def until_gone(self, resource: Resource, target: str) -> None:
        await self.until(resource, target, lambda answer: answer.status == 404)

    async def register(self, kind: HookKind, *hooks: Hook, name: str = "hooks") -> None:
        """Write a configuration of webhooks and wait until the server calls them."""
        configuration = self.unique(name)
        body = write_configuration(self.side, kind, configuration, hooks)
        for hook in hooks:
            path = f"/{configuration}/{hook.name}"
            self.side.attend(path, self._rounds.recording(kind, hook, name))
        self.side.attend(f"/{configuration}/probe", _deny_probe)
        with self.quietly():
            written = await self.create(body.resource, body.object)
            assert written.is_ok, written.message
            async with asyncio.timeout(WAIT_LIMIT.total_seconds()):
                while (await self.create(CONFIG_MAPS, body.probe, dryRun="All")).is_ok:
                    await self.side.pause(POLL)
        self._rounds.take()

    def unique(self, name: str) -> str:
        """Return the name of something that belongs to the cluster."""
        return f"{name}-{self.namespace}"

    @property
    def clients(self) -> Clients:
        return self.side.clients()

    async def attempt(self, what: str, call: Awaitable[object]) -> None:
        """Carry out a call through the client and record its error's class, or its result."""
        try:
            result = await call
        except ApiError as error:
            kind = type(error).__name__
            self.record(what, error=kind, text=str(error), status=error.status, reason=error.reason)
        else:
            shown = msgspec.json.decode(result) if isinstance(result, bytes) else result
            self.record(what, result=shown)

    def _request(
        self,
        verb: Verb,
        resource: Resource,
        target: str,
        *,
        query: dict[str, str],
        body: Body = None,
        kind: str = "application/json",
    ) -> ApiRequest:
        name, _, subresource = target.partition("/")
        return ApiRequest(
            verb=verb,
            resource=resource,
            namespace=self.namespace if resource.is_namespaced else "",
            name=name,
            subresource=subresource,
            query=query,
            body=body,
            content_type=kind,
        )

    async def _send(
        self,
        verb: Verb,
        resource: Resource,
        target: str,
        *,
        query: dict[str, str],
        body: Body = None,
    ) -> ApiAnswer:
        return await self.send(self._request(verb, resource, target, query=query, body=body))


class Watch:
    """One open watch of a sequence, or the refusal to open it."""

    def __init__(
        self, world: World, did: str, opened: AsyncIterator[JsonObject] | ApiAnswer
    ) -> None:
        self._world = world
        self._did = did
        self._opened = opened

    async def until(self, name: str = "") -> list[JsonObject]:
        """Record the events up to that of object `name`, or all to the end; return them.

        Several bookmarks in a row are one: their number depends on when they are sent.
        """
        events: list[JsonObject] = []
        if isinstance(self._opened, ApiAnswer):
            self._world.transcript.add(_step(self._did, self._opened, []))
            return events
        async with asyncio.timeout(WAIT_LIMIT.total_seconds()):
            async for event in self._opened:
                if not (event["type"] == "BOOKMARK" and events and events[-1] == _short(event)):
                    events.append(_short(event))
                if name and _name_of(event) == name:
                    break
        self._world.record(f"{self._did} until {name or 'its end'}", events=events)
        return events


def _short(event: JsonObject) -> JsonObject:
    """Return an event as recorded; of a bookmark only that its object has a version.

    And whether it says that all objects there were have been sent.
    """
    if event["type"] != "BOOKMARK":
        return event
    obj: Any = event["object"]
    has_version = str(obj["metadata"]["resourceVersion"]).isdigit()
    marks = (
        {"annotations": annotations} if (annotations := obj["metadata"].get("annotations")) else {}
    )
    return {"type": "BOOKMARK", "kind": obj["kind"], "has version": has_version, **marks}


def _name_of(event: JsonObject) -> str:
    obj: Any = event["object"]
    return str(obj.get("metadata", {}).get("name", ""))


def _describe(request: ApiRequest) -> str:
    target = "/".join(
        part for part in (request.resource.plural, request.name, request.subresource) if part
    )
    shown = {
        key: "<token>" if key == "continue" else "<version>" if key == "resourceVersion"
        and value not in ("", "0") else value
        for key, value in request.query.items()
    }  # fmt: skip
    return f"{request.verb} {target} {shown or ''}".rstrip()


def _step(did: str, answer: ApiAnswer, rounds: list[JsonObject]) -> JsonObject:
    step: JsonObject = {"did": did, "status": answer.status, "body": answer.body}
    if answer.warnings:
        step["warnings"] = list(answer.warnings)
    if answer.retry_after:
        step["retry after"] = answer.retry_after
    if rounds:
        step["rounds"] = list(rounds)
    return step


async def _deny_probe(_review: JsonObject) -> JsonObject:
    return {"allowed": False}
