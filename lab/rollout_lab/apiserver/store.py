"""The store of the simulated API server: one order of all writes, read by lists and watches.

Decides revisions, and what a collection held at an earlier revision. Which writes are allowed is
decided before. What it holds is never changed: a write replaces.
"""

import asyncio
import base64
import binascii
import random
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from rollout_lab.model.fields import metadata_of, name_of, namespace_of, text
from rollout_lab.model.history import Commit, History
from rollout_lab.model.request import ApiRefusal, ApiRequest, api_version_of, not_modelled
from rollout_lab.schemas.metadata import (
    ContinueExpired,
    bad_request,
    expect,
    expect_one_of,
    labels_of,
    refuse_list,
    refuse_watch,
)
from rollout_operator.kube.api import JsonObject, Resource

Collection = tuple[str, str]
"""Group and plural: all versions of a group share one collection."""

# As in a real cluster nothing has version 0, and the first write comes after the server's own.
FIRST_REVISION: Final = 1


class ObjectKey(msgspec.Struct, frozen=True):
    resource: Resource
    namespace: str
    name: str


class By(msgspec.Struct, frozen=True):
    """Who writes, and by which request; 0 for what the API server does by itself."""

    actor: str
    call: int = 0


def collection_of(resource: Resource) -> Collection:
    """Return the collection that holds the objects of a kind."""
    return resource.group, resource.plural


def versioned(obj: JsonObject, revision: int) -> JsonObject:
    """Return an object with another resourceVersion; all but the path to it is shared."""
    return {**obj, "metadata": {**metadata_of(obj), "resourceVersion": str(revision)}}


class ObjectStore:
    """All objects of one world. Never change what it returns."""

    def __init__(self, history: History, elapsed: Callable[[], timedelta]) -> None:
        self.revision = FIRST_REVISION
        self.compacted = FIRST_REVISION
        """Nothing older can be read or watched."""
        self.listeners: list[Callable[[Commit], None]] = []
        self._history = history
        self._elapsed = elapsed
        self._objects: dict[Collection, dict[tuple[str, str], JsonObject]] = defaultdict(dict)
        self._log: dict[Collection, list[Commit]] = defaultdict(list)

    def get(self, place: ObjectKey) -> JsonObject | None:
        """Return the newest version of an object, None where it does not exist."""
        held = self._objects.get(collection_of(place.resource))
        return None if held is None else held.get((place.namespace, place.name))

    def count(self, resource: Resource) -> int:
        """Return how many objects of a kind there are."""
        return len(self._objects.get(collection_of(resource), ()))

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]:
        """Return the objects of a namespace by name; of all namespaces where it is empty."""
        return _sorted(self._objects.get(collection_of(resource), {}), namespace)

    def list_at(self, resource: Resource, namespace: str, revision: int) -> Sequence[JsonObject]:
        """Return what `list` returned when `revision` was the newest.

        `revision` is at least `compacted`.
        """
        held = dict(self._objects.get(collection_of(resource), {}))
        for commit in reversed(self.commits_since(resource, revision)):
            if commit.before is None:
                held.pop((commit.namespace, commit.name), None)
            else:
                held[commit.namespace, commit.name] = commit.before
        return _sorted(held, namespace)

    def commits_since(self, resource: Resource, revision: int) -> Sequence[Commit]:
        """Return the writes of a kind after `revision`, oldest first."""
        log = self._log.get(collection_of(resource), [])
        first = len(log)
        while first and log[first - 1].revision > revision:
            first -= 1
        return log[first:]

    def write(self, place: ObjectKey, obj: JsonObject, by: By) -> JsonObject:
        """Store the newest version of an object and return it with its resourceVersion."""
        stored = versioned(obj, self.revision + 1)
        self._commit(place, stored, by)
        return stored

    def remove(self, place: ObjectKey, by: By) -> JsonObject:
        """Take an object away; return its last version under the revision of the removal."""
        last = self.get(place)
        assert last is not None, f"{place} does not exist"
        self._commit(place, None, by)
        return versioned(last, self.revision)

    def plant(self, place: ObjectKey, obj: JsonObject) -> None:
        """Put an object there that was there before the world began: no write, no record."""
        key = (place.namespace, place.name)
        self._objects[collection_of(place.resource)][key] = versioned(obj, FIRST_REVISION)

    def compact(self) -> None:
        """Forget all versions but the newest."""
        self.compacted = self.revision
        self._log.clear()

    def _commit(self, place: ObjectKey, after: JsonObject | None, by: By) -> None:
        collection = collection_of(place.resource)
        held, key = self._objects[collection], (place.namespace, place.name)
        before = held.get(key)
        if after is None:
            del held[key]
        else:
            held[key] = after
        self.revision += 1
        commit = Commit(
            at=self._elapsed(),
            revision=self.revision,
            actor=by.actor,
            resource=place.resource,
            namespace=place.namespace,
            name=place.name,
            before=before,
            after=after,
            call=by.call,
        )
        self._log[collection].append(commit)
        self._history.add(commit)
        for listener in self.listeners:
            listener(commit)


def _sorted(held: Mapping[tuple[str, str], JsonObject], namespace: str) -> Sequence[JsonObject]:
    """Return objects in the order of the keys of the real store, where a slash ends a namespace."""
    if namespace:
        return [held[key] for key in sorted(key for key in held if key[0] == namespace)]
    return [held[key] for key in sorted(held, key=lambda key: f"{key[0]}/{key[1]}")]


_OF_ALL: Final = frozenset({"metadata.name", "metadata.namespace"})
_OF_PODS: Final = frozenset({"spec.nodeName", "status.phase"})
_WORD: Final = r"[^\s=!(),<>]+"
# One requirement up to the comma that ends it; only a set holds commas of its own.
_LABELS: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_WORD})\s*"
    rf"(?:(?P<sign>==?|!=)\s*(?P<value>{_WORD})?|(?P<set>in|notin)\s*\((?P<values>[^()=!<>]*)\))?"
    r"\s*(?:,(?=.)|$)"
)
_FIELD: Final = re.compile(r"(?P<field>[^=!\\]+)(?P<sign>!=|==|=)(?P<value>[^\\]*)")


class Requirement(msgspec.Struct, frozen=True):
    """One condition: the value is among `values`, or is not. None stands for no value at all."""

    key: str
    values: frozenset[str | None]
    is_among: bool

    def holds(self, value: str | None) -> bool:
        return (value in self.values) is self.is_among


class Selection(msgspec.Struct, frozen=True):
    """What a query selects; by default everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.labels or self.fields)

    def takes(self, obj: JsonObject) -> bool:
        if self.fields:
            for field in self.fields:
                if not field.holds(text(obj, *field.key.split("."))):
                    return False
        if self.labels:
            labels = labels_of(obj)
            return all(label.holds(labels.get(label.key)) for label in self.labels)
        return True


def read_selection(resource: Resource, query: Mapping[str, str]) -> Selection:
    """Return what a query selects. Raises NotModelled."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not (labels or fields):
        return _EVERYTHING
    return Selection(_parse_labels(labels), _parse_fields(resource.kind, fields))


@lru_cache(maxsize=512)
def _parse_labels(selector: str) -> tuple[Requirement, ...]:
    return tuple(_read_labels(selector))


def _read_labels(selector: str) -> Iterator[Requirement]:
    at = 0
    while at < len(selector):
        match = _LABELS.match(selector, at)
        if match is None or (match["absent"] and (match["sign"] or match["set"])):
            not_modelled(f"the label selector {selector!r}")
        at = match.end()
        key = match["key"]
        if match["sign"]:
            yield Requirement(key, frozenset({match["value"] or ""}), match["sign"] != "!=")
        elif match["set"]:
            values = frozenset(value.strip() for value in match["values"].split(","))
            yield Requirement(key, values, match["set"] == "in")
        else:
            yield Requirement(key, frozenset({None}), bool(match["absent"]))


@lru_cache(maxsize=512)
def _parse_fields(kind: str, selector: str) -> tuple[Requirement, ...]:
    known = _OF_ALL | _OF_PODS if kind == "Pod" else _OF_ALL
    found = []
    for term in sorted(part for part in selector.split(",") if part):
        match = _FIELD.fullmatch(term)
        if match is None or match["field"] not in known:
            not_modelled(f"the field selector {selector!r} of {kind}")
        values = frozenset({match["value"]})
        found.append(Requirement(match["field"], values, match["sign"] != "!="))
    return tuple(found)


_EVERYTHING: Final = Selection()


EXACT: Final = "Exact"
NOT_OLDER: Final = "NotOlderThan"
_MATCHES: Final = ("", EXACT, NOT_OLDER)
_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 (of a list: not secret)
# Lists of custom resources are written as they are, and say also what is empty.
_CUSTOM: Final = frozenset({"rollout-operator.grafana.com"})
# A token that goes on with whatever is there now.
_NEWEST: Final = -1


class _Token(msgspec.Struct):
    """Where a list goes on, in the form in which the real server writes it."""

    v: str = ""
    rv: int = 0
    start: str = ""


class _Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the objects is requested."""

    revision: int
    start: str = ""
    """The first key that may come."""
    limit: int = 0
    """0: all of them."""


_TOKEN: Final = msgspec.json.Decoder(_Token)


def render_list(store: ObjectStore, request: ApiRequest) -> JsonObject:
    """Return a list as the real server answers it. Raises Refusal (400, 410)."""
    resource, query = request.resource, request.query
    selection = read_selection(resource, query)
    cut = _read_cut(store, query)
    namespace = request.namespace
    if cut.revision == store.revision:
        held: Sequence[JsonObject] = store.list(resource, namespace)
    else:
        held = store.list_at(resource, namespace, cut.revision)
    if cut.start:
        held = [obj for obj in held if _key(obj, namespace) >= cut.start]
    taken = held if selection.is_empty else [obj for obj in held if selection.takes(obj)]
    metadata: JsonObject = {"resourceVersion": str(cut.revision)}
    if 0 < cut.limit < len(taken):
        rest = len(taken) - cut.limit
        taken = taken[: cut.limit]
        start = _key(taken[-1], namespace) + "\0"
        metadata["continue"] = _write_token(cut.revision, start)
        if selection.is_empty:
            metadata["remainingItemCount"] = rest
    if is_custom := resource.group in _CUSTOM:
        metadata.setdefault("continue", "")
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": api_version_of(resource),
        "metadata": metadata,
        "items": [obj if is_custom else _item(obj) for obj in taken],
    }


def parse_version(text: str) -> int:
    """Return a resourceVersion of a query as a number, 0 for none. Raises NotModelled."""
    expect(not text or (text.isascii() and text.isdigit()), "resourceVersion", text)
    return int(text or "0")


def check_reached(store: ObjectStore, revision: int) -> None:
    """Raise NotModelled where the server has not come to a version yet."""
    expect(revision <= store.revision, "resourceVersion", revision)


def _read_cut(store: ObjectStore, query: Mapping[str, str]) -> _Cut:
    _check_options(query)
    limit = _parse_limit(query.get("limit", ""))
    wanted, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if token := query.get("continue", ""):
        return _read_token(store, token, wanted, limit)
    version = parse_version(wanted)
    check_reached(store, version)
    # A limit makes an old version exact; at version 0 the watch cache answers, which knows none.
    if match == EXACT or (not match and limit and version):
        if version < store.compacted:
            raise refuse_list()
        return _Cut(revision=version, limit=limit)
    return _Cut(revision=store.revision, limit=0 if wanted == "0" else limit)


def _check_options(query: Mapping[str, str]) -> None:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    expect_one_of(_MATCHES, "resourceVersionMatch", match)
    is_possible = not match or (version and not query.get("continue"))
    expect(bool(is_possible) and not (match == EXACT and version == "0"), "a list", query)
    if "sendInitialEvents" in query:
        not_modelled("sendInitialEvents of a list")


def _parse_limit(text: str) -> int:
    expect(not text or text.isdigit(), "limit", text)
    return int(text or "0")


def _read_token(store: ObjectStore, text: str, wanted: str, limit: int) -> _Cut:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = _TOKEN.decode(raw)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        # What exactly is wrong is said in words of Go's decoders: no client reads it.
        why = f"invalid continue token: continue key is not valid: {error}"
        raise bad_request(why) from None
    expect(token.v == _TOKEN_VERSION and bool(token.rv and token.start), "continue", text)
    expect_one_of(("", "0"), "resourceVersion of a next page", wanted)
    if token.rv == _NEWEST:
        return _Cut(revision=store.revision, start=token.start, limit=limit)
    if token.rv < store.compacted:
        raise ContinueExpired(_write_token(_NEWEST, token.start))
    check_reached(store, token.rv)
    return _Cut(revision=token.rv, start=token.start, limit=limit)


def _write_token(revision: int, start: str) -> str:
    raw = msgspec.json.encode(_Token(v=_TOKEN_VERSION, rv=revision, start=start))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _key(obj: JsonObject, namespace: str) -> str:
    return name_of(obj) if namespace else f"{namespace_of(obj)}/{name_of(obj)}"


def _item(obj: JsonObject) -> JsonObject:
    """Return an object as items of a list are written: without what the list says for all."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


# A watch that does not say how long it may last is ended after one to two times this.
DEFAULT_LENGTH: Final = timedelta(minutes=30)
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})

_encode: Final = msgspec.json.Encoder().encode


class StreamEvent(msgspec.Struct, frozen=True):
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
    _check_watch_options(match, initial)
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


def _check_watch_options(match: str, initial: str | None) -> None:
    expect(match == (NOT_OLDER if initial is not None else ""), "a watch", (match, initial))


def _revision_of(obj: JsonObject) -> int:
    return int(text(obj, "metadata", "resourceVersion"))
