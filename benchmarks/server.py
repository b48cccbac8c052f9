"""A fake API server as a process of its own: lists in pages, watches with bookmarks, over TLS.

Everything is encoded before the first request, so that the one who asks is what is measured. It
knows one namespace's worth of pods and StatefulSets and answers for every namespace alike; what is
asked for by name is answered in `single`. Started by `processes.open_server`.
"""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum, unique
from typing import Final

import msgspec
from aiohttp import web

from benchmarks.objects import (
    BUDGETS,
    BUDGETS_VERSION,
    LIST_VERSION,
    OBJECT_VERSION,
    ZONE_PODS,
    Place,
    encode_budget,
    encode_pod,
    encode_set,
    list_places,
)
from benchmarks.releases_objects import encode_releases, list_roots, name_release
from benchmarks.single import COUNTS_PATH, Replicas, Single, selects

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


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What is special about the sets and pods."""

    labels: Mapping[str, str] = {}
    """Of each set, besides those that all have."""
    annotations: Mapping[str, str] = {}
    zone_pods: int = ZONE_PODS
    addresses: tuple[str, ...] = ()
    """Of the pods, by ordinal; empty for addresses that nobody has."""
    budgeted: tuple[int, ...] = ()
    """Groups under a disruption budget of one pod each."""
    unready: tuple[str, ...] = ()
    """Names of pods."""
    releases: int = 0
    """Rollouts, each with what it depends on, and with nothing to do."""


# Of a state that is streamed, objects in one write: this server is not to be what is measured.
STEP: Final = 50


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What the server serves."""

    port: int
    cert: str
    key: str
    pods: int
    feed: Feed = Feed.NONE
    events: int = 0
    """After that many, the first pod is deleted: that is how a reader knows the end."""
    events_per_s: float = 0.0
    """0 for as fast as they are read."""
    traits: Traits = Traits()


class World:
    """All answers, encoded."""

    def __init__(self, spec: Spec) -> None:
        sets = [places for places in list_places(spec.pods, spec.traits.zone_pods) if places]
        places = [place for places in sets for place in places]
        self._spec = spec
        self._places = {"pods": places, "statefulsets": [places[0] for places in sets]}
        self._objects = {
            "pods": [self._encode_pod(number, place) for number, place in enumerate(places)],
            "statefulsets": [self._encode_set(places) for places in sets],
        }
        self._objects[BUDGETS] = [encode_budget(group) for group in spec.traits.budgeted]
        self._by_name = {
            (plural, _name(plural, place)): one
            for plural, places in self._places.items()
            for place, one in zip(places, self._objects[plural], strict=True)
        }
        for plural, released in encode_releases(spec.traits.releases).items():
            self._objects[plural] = list(released)
            self._by_name |= {(plural, name_release(n)): one for n, one in enumerate(released)}
        self._pages = {
            (plural, start): self._encode_page(plural, start, PAGE)
            for plural, objects in self._objects.items()
            for start in range(0, max(len(objects), 1), PAGE)
        }
        self._first = next(iter(self._objects["pods"]), b"")
        self._lines = [] if spec.feed is Feed.NONE else _prepare(places[:EVENT_PODS], spec.feed)

    def page(self, plural: str, start: int, limit: int) -> bytes:
        """Return a page of a list."""
        page = self._pages.get((plural, start)) if limit == PAGE else None
        return page or self._encode_page(plural, start, limit)

    def list_all(self, plural: str) -> Sequence[bytes]:
        """Return all objects."""
        return self._objects.get(plural, ())

    def select(self, plural: str, selector: str) -> bytes:
        """Return all that a selector takes, as one page."""
        pairs = zip(self._places.get(plural, ()), self._objects.get(plural, ()), strict=True)
        found = [one for place, one in pairs if selects(selector, _labels(place))]
        return _encode_list(found, {"resourceVersion": f"{LIST_VERSION}"})

    def find(self, plural: str, name: str) -> bytes | None:
        """Return one object, None where there is none."""
        return self._by_name.get((plural, name))

    async def feed(self) -> AsyncIterator[bytes]:
        """Yield the lines of events, each newer than the one before."""
        version = LIST_VERSION
        for number in range(self._spec.events):
            version += 1
            head, tail = self._lines[number % len(self._lines)]
            if self._spec.events_per_s:
                await asyncio.sleep(1 / self._spec.events_per_s)
            yield b"%b%d%b" % (head, version, tail)
        if self._lines:
            last = self._first.replace(b"%d" % OBJECT_VERSION, b"%d" % (version + 1), 1)
            yield _line("DELETED", last)

    def _encode_page(self, plural: str, start: int, limit: int) -> bytes:
        objects = self._objects.get(plural, [])
        end = start + limit if limit else len(objects)
        metadata: dict[str, object] = {"resourceVersion": f"{LIST_VERSION}"}
        if end < len(objects):
            metadata |= {"continue": f"{end}", "remainingItemCount": len(objects) - end}
        return _encode_list(objects[start:end], metadata)

    def _encode_pod(self, number: int, place: Place) -> bytes:
        addresses = self._spec.traits.addresses
        ip = addresses[place.ordinal % len(addresses)] if addresses else ""
        is_ready = place.pod_name not in self._spec.traits.unready
        return encode_pod(place, OBJECT_VERSION + number, is_ready=is_ready, ip=ip)

    def _encode_set(self, places: list[Place]) -> bytes:
        traits = self._spec.traits
        return encode_set(places[0], len(places), traits.labels, traits.annotations)


def _encode_list(objects: list[bytes], metadata: Mapping[str, object]) -> bytes:
    body = {"metadata": metadata, "items": [msgspec.Raw(one) for one in objects]}
    return msgspec.json.encode(body)


def _name(plural: str, place: Place) -> str:
    return place.pod_name if plural == "pods" else place.set_name


def _labels(place: Place) -> Mapping[str, str]:
    return {"name": place.set_name, "rollout-group": f"store-{place.group}"}


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
        if selector := query.get("labelSelector"):
            page = self._world.select(plural, selector)
        else:
            start, limit = int(query.get("continue", "0")), int(query.get("limit", "0"))
            page = self._world.page(plural, start, limit)
        return web.Response(body=page, content_type="application/json")

    async def _send_state(self, response: web.StreamResponse, plural: str) -> None:
        """Send all objects, and the word that these are all."""
        bodies = self._world.list_all(plural)
        for start in range(0, len(bodies), STEP):
            lines = (_line("ADDED", body) for body in bodies[start : start + STEP])
            await response.write(b"".join(lines))
        marks = {"k8s.io/initial-events-end": "true"}
        head = {"resourceVersion": f"{LIST_VERSION}", "annotations": marks}
        await response.write(_line("BOOKMARK", msgspec.json.encode({"metadata": head})))

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if request.query.get("sendInitialEvents"):
            await self._send_state(response, plural)
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
    world, counts = World(spec), Replicas()
    handlers, single = Handlers(world), Single(world.find)
    app = web.Application(middlewares=[counts.count])
    app.router.add_get(COUNTS_PATH, counts.answer)
    for root in ("/api/v1", "/apis/apps/v1", f"/apis/{BUDGETS_VERSION}", *list_roots()):
        collection = f"{root}/namespaces/{{namespace}}/{{plural}}"
        app.router.add_get(collection, handlers.answer)
        single.add_routes(app.router, collection)
    app.router.add_get("/apis/admissionregistration.k8s.io/v1/{plural}", handlers.answer)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(spec.cert, spec.key)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", spec.port, ssl_context=context).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=Spec)))
