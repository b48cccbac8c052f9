"""Watches at the simulated API server: streams of events, in the order of the writes.

Decides what an open watch is sent and how it ends: in order, or with an ERROR that its version is
forgotten. What becomes of an event on the way to a client is `lab.network.client`'s part.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from rollout_lab.apiserver.lists import NOT_OLDER, check_reached, parse_version
from rollout_lab.apiserver.selection import Selection, read_selection
from rollout_lab.apiserver.store import Collection, ObjectStore, collection_of, versioned
from rollout_lab.model.fields import text
from rollout_lab.model.history import Commit
from rollout_lab.model.request import ApiRefusal, ApiRequest, api_version_of
from rollout_lab.schemas.refusals import expect, refuse_watch
from rollout_operator.kube.api import JsonObject, Resource

# A watch that does not say how long it may last is ended after one to two times this.
DEFAULT_LENGTH: Final = timedelta(minutes=30)
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})

_encode: Final = msgspec.json.Encoder().encode


class StreamEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: JsonObject
    body: bytes
    """The object as JSON: encoded once, and shared by all streams."""
    revision: int
    is_state: bool = False
    """Whether it is a part of what a stream begins with, or says that this was all."""


class Stream:
    """One open watch, to be read by one reader."""

    def __init__(self, selection: Selection, *, has_bookmarks: bool = False) -> None:
        self.on_event: Callable[[], None] | None = None
        """Called when there is something to pop, and when the stream has ended."""
        self.is_closed = False
        """Whether it has ended; events may still wait to be popped."""
        self.selection = selection
        self.has_bookmarks = has_bookmarks
        self.after = 0
        """Writes up to this revision are not for this stream."""
        self._events: deque[StreamEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next event once it is there. Raises StopAsyncIteration at the end."""
        while not self._events:
            if self.is_closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    def pop(self) -> StreamEvent | None:
        """Return the next event, None where none is there."""
        return self._events.popleft() if self._events else None

    def push(self, event: StreamEvent) -> None:
        """Add an event at the end. After the end of the stream it is lost."""
        if not self.is_closed:
            self._events.append(event)
            self._wake()

    def fail(self, refusal: ApiRefusal) -> None:
        """End the stream with an ERROR that carries a Status."""
        body = refusal.answer().body
        self.push(StreamEvent("ERROR", body, _encode(body), 0))
        self.close()

    def close(self) -> None:
        """End the stream in order: what was sent can still be read."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def close_after(self, span: timedelta) -> None:
        """End the stream in order after a while."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(span.total_seconds(), self.close)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self.on_event is not None:
            self.on_event()


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a watch begins."""

    revision: int
    """Writes after this revision are sent."""
    has_state: bool
    """Whether the objects that exist come first, as ADDED."""
    has_end: bool = False
    """Whether a bookmark marks the end of these."""


class Streams:
    """All open watches of one API server."""

    def __init__(self, store: ObjectStore, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._open: dict[Collection, list[tuple[str, Stream]]] = {}
        self._kinds: dict[Collection, Resource] = {}
        self._bodies: dict[tuple[int, bool], tuple[JsonObject, bytes]] = {}
        store.listeners.append(self._notify)

    def open(self, request: ApiRequest) -> Stream:
        """Open a watch.

        From a forgotten version it fails as from a watch cache: by an ERROR in the stream.
        """
        resource, query = request.resource, request.query
        has_bookmarks = query.get("allowWatchBookmarks", "") in _TRUE
        stream = Stream(read_selection(resource, query), has_bookmarks=has_bookmarks)
        length = self._read_length(query)
        try:
            start = _read_start(self._store, query, has_bookmarks)
        except ApiRefusal as refusal:
            stream.fail(refusal)
            return stream
        self._begin(stream, request, start)
        stream.close_after(length)
        collection = collection_of(resource)
        self._open[collection] = [*self._living(collection), (request.namespace, stream)]
        return stream

    def send_bookmarks(self) -> None:
        """Send all open watches that want bookmarks the version that they have reached."""
        for collection in list(self._open):
            for _, stream in self._living(collection):
                if stream.has_bookmarks:
                    stream.push(self._bookmark(collection, {}))

    def forget_bodies(self) -> None:
        """Drop the encoded versions that no watch can request any more."""
        self._bodies.clear()

    def _begin(self, stream: Stream, request: ApiRequest, start: _Start) -> None:
        """Put into a new stream what it begins with."""
        self._kinds[collection_of(request.resource)] = request.resource
        if start.has_state:
            for obj in self._store.list(request.resource, request.namespace):
                if stream.selection.takes(obj):
                    stream.push(
                        StreamEvent("ADDED", obj, _encode(obj), _revision_of(obj), is_state=True)
                    )
        else:
            for commit in self._store.commits_since(request.resource, start.revision):
                self._send(commit, request.namespace, stream)
        if start.has_end:
            marks: JsonObject = {"annotations": {INITIAL_EVENTS_END: "true"}}
            end = self._bookmark(collection_of(request.resource), marks)
            stream.push(replace(end, is_state=True))
        stream.after = start.revision

    def _notify(self, commit: Commit) -> None:
        collection = collection_of(commit.resource)
        if collection in self._open:
            for namespace, stream in self._living(collection):
                if commit.revision > stream.after:
                    self._send(commit, namespace, stream)

    def _living(self, collection: Collection) -> Sequence[tuple[str, Stream]]:
        streams = self._open[collection] = [
            opened for opened in self._open.get(collection, ()) if not opened[1].is_closed
        ]
        return tuple(streams)

    def _send(self, commit: Commit, namespace: str, stream: Stream) -> None:
        """Send what a write is to one watch: an object that it no longer takes is gone for it."""
        if namespace and commit.namespace != namespace:
            return
        before, after, takes = commit.before, commit.after, stream.selection.takes
        was_taken = before is not None and takes(before)
        if after is not None and takes(after):
            kind, is_last = "MODIFIED" if was_taken else "ADDED", False
        elif was_taken:
            kind, is_last = "DELETED", True
        else:
            return
        obj, body = self._encoded(commit, is_last)
        stream.push(StreamEvent(kind, obj, body, commit.revision))

    def _encoded(self, commit: Commit, is_last: bool) -> tuple[JsonObject, bytes]:
        """Return the new version, or the last version under the revision of the write."""
        key = (commit.revision, is_last)
        found = self._bodies.get(key)
        if found is None:
            obj = commit.before if is_last else commit.after
            assert obj is not None
            if is_last:
                obj = versioned(obj, commit.revision)
            found = self._bodies[key] = (obj, _encode(obj))
        return found

    def _bookmark(self, collection: Collection, marks: JsonObject) -> StreamEvent:
        resource, revision = self._kinds[collection], self._store.revision
        obj: JsonObject = {
            "kind": resource.kind,
            "apiVersion": api_version_of(resource),
            "metadata": {"resourceVersion": str(revision), **marks},
        }
        return StreamEvent("BOOKMARK", obj, _encode(obj), revision)

    def _read_length(self, query: Mapping[str, str]) -> timedelta:
        wanted = query.get("timeoutSeconds", "")
        expect(not wanted or wanted.isdigit(), "timeoutSeconds", wanted)
        if wanted and int(wanted):
            return timedelta(seconds=int(wanted))
        return DEFAULT_LENGTH * (1 + self._rng.random())


def _read_start(store: ObjectStore, query: Mapping[str, str], has_bookmarks: bool) -> _Start:
    wanted, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    initial = query.get("sendInitialEvents")
    _check_options(match, initial)
    version = parse_version(wanted)
    # A watch from nowhere is a list that goes on, also for clients that do not know of it.
    wants_state = initial in _TRUE if initial is not None else not version
    if wants_state:
        check_reached(store, version)
        return _Start(revision=store.revision, has_state=True, has_end=has_bookmarks)
    if not version:
        return _Start(revision=store.revision, has_state=False)
    if version < store.compacted:
        raise refuse_watch(version, store.compacted)
    return _Start(revision=version, has_state=False)


def _check_options(match: str, initial: str | None) -> None:
    expect(match == (NOT_OLDER if initial is not None else ""), "a watch", (match, initial))


def _revision_of(obj: JsonObject) -> int:
    return int(text(obj, "metadata", "resourceVersion"))
