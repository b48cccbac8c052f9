"""A fake API server as a process of its own: lists in pages, watches with bookmarks, over TLS.

Everything is encoded before the first request, so that the one who asks is what is measured. It
knows one namespace's worth of pods and StatefulSets and answers for every namespace alike; nothing
can be written. Started by `processes.open_server`.
"""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from enum import StrEnum, unique
from typing import Final

import msgspec
from aiohttp import web

from benchmarks.objects import (
    LIST_VERSION,
    OBJECT_VERSION,
    Place,
    encode_pod,
    encode_set,
    list_places,
)

# What the operator asks for, and what is therefore prepared.
PAGE: Final = 500
# When a real API server sends a bookmark: this long before the end that was asked for.
BOOKMARK_SECONDS: Final = 2.0
# Events of so many pods are prepared; the versions in them are put in when they are sent.
EVENT_PODS: Final = 200
_VERSION_MARK: Final = 9_999_999_999


@unique
class Feed(StrEnum):
    """What the first watch of pods brings."""

    NONE = "none"
    DECIDING = "deciding"
    """Pods that become unready and ready in turn."""
    OTHER = "other"
    """Pods of which nothing changes that a rollout looks at."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What the server serves."""

    port: int
    cert: str
    key: str
    pods: int
    feed: Feed = Feed.NONE
    events: int = 0
    """After that many, the first pod is deleted: that is how a reader knows the end."""


class World:
    """All answers, encoded."""

    def __init__(self, spec: Spec) -> None:
        sets = list_places(spec.pods)
        places = [place for places in sets for place in places]
        self._spec = spec
        self._objects = {
            "pods": [
                encode_pod(place, OBJECT_VERSION + number) for number, place in enumerate(places)
            ],
            "statefulsets": [encode_set(places[0], len(places)) for places in sets if places],
        }
        self._pages = {
            (plural, start): self._encode_page(plural, start, PAGE)
            for plural, objects in self._objects.items()
            for start in range(0, max(len(objects), 1), PAGE)
        }
        self._first = self._objects["pods"][0]
        self._lines = [] if spec.feed is Feed.NONE else _prepare(places[:EVENT_PODS], spec.feed)

    def page(self, plural: str, start: int, limit: int) -> bytes:
        """Return a page of a list."""
        page = self._pages.get((plural, start)) if limit == PAGE else None
        return page or self._encode_page(plural, start, limit)

    async def feed(self) -> AsyncIterator[bytes]:
        """Yield the lines of events, each newer than the one before."""
        version = LIST_VERSION
        for number in range(self._spec.events):
            version += 1
            head, tail = self._lines[number % len(self._lines)]
            yield b"%b%d%b" % (head, version, tail)
        if self._lines:
            last = self._first.replace(b"%d" % OBJECT_VERSION, b"%d" % (version + 1), 1)
            yield _line("DELETED", last)

    def _encode_page(self, plural: str, start: int, limit: int) -> bytes:
        objects = self._objects[plural]
        end = start + limit if limit else len(objects)
        metadata: dict[str, object] = {"resourceVersion": f"{LIST_VERSION}"}
        if end < len(objects):
            metadata |= {"continue": f"{end}", "remainingItemCount": len(objects) - end}
        body = {"metadata": metadata, "items": [msgspec.Raw(one) for one in objects[start:end]]}
        return msgspec.json.encode(body)


def _prepare(places: list[Place], feed: Feed) -> list[tuple[bytes, bytes]]:
    """Return the two halves of each line, around its version: all pods once, then all again."""
    first = feed is not Feed.DECIDING
    states = [(place, is_ready) for is_ready in (first, True) for place in places]
    mark = b"%d" % _VERSION_MARK
    lines = []
    for place, is_ready in states:
        head, _, tail = _line(
            "MODIFIED", encode_pod(place, _VERSION_MARK, is_ready=is_ready)
        ).partition(mark)
        lines.append((head, tail))
    return lines


def _line(kind: str, item: bytes) -> bytes:
    return msgspec.json.encode({"type": kind, "object": msgspec.Raw(item)}) + b"\n"


class Handlers:
    """Answers of the HTTP server."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        plural, query = request.match_info["plural"], request.query
        if query.get("watch"):
            return await self._watch(request, plural)
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "0"))
        page = self._world.page(plural, start, limit)
        return web.Response(body=page, content_type="application/json")

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seen = request.query.get("resourceVersion", "")
        if plural == "pods" and seen == f"{LIST_VERSION}":
            async for line in self._world.feed():
                # One write each, as an API server does it.
                await response.write(line)
        lasts = float(request.query.get("timeoutSeconds", "3600"))
        await asyncio.sleep(max(lasts - BOOKMARK_SECONDS, 0))
        bookmark = msgspec.json.encode({"metadata": {"resourceVersion": seen}})
        await response.write(_line("BOOKMARK", bookmark))
        await asyncio.sleep(min(BOOKMARK_SECONDS, lasts))
        await response.write_eof()
        return response


async def serve(spec: Spec) -> None:
    """Serve until cancelled."""
    handlers = Handlers(World(spec))
    app = web.Application()
    for root in ("/api/v1", "/apis/apps/v1"):
        app.router.add_get(f"{root}/namespaces/{{namespace}}/{{plural}}", handlers.answer)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(spec.cert, spec.key)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", spec.port, ssl_context=context).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=Spec)))
