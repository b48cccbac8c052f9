"""What an informer follows: how objects are read, where they are kept and what is counted."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Final, Generic, Protocol

import msgspec

from rollout_operator.kube.api import LiveReader, Page, Reader, Resource, Watcher
from rollout_operator.kube.cache.retries import RetryCause
from rollout_operator.kube.cache.store import Cached, Store
from rollout_operator.kube.call import Call
from rollout_operator.model.decode.broken import salvage
from rollout_operator.model.decode.objects import Bookmark, decode_bookmark
from rollout_operator.model.errors import ApiError, DecodeError, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.families import Counter
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# At 10 µs a pod a step stays near 1 ms, so that reviews and probes are answered in between.
STEP: Final = 100
# A page is held in memory as a whole: about 5 MB of pods.
PAGE_LIMIT: Final = 500
# Idle streams prove themselves every 40 s or so; in step with no other stream.
WATCH_LASTS: Final = timedelta(seconds=40)
# Whatever a watch has failed to bring is found after this long, and the end of a stream: within
# five minutes (LI-02). Of 5,000 pods it takes a twentieth of a second.
RELIST: Final = timedelta(minutes=4)
EVENT_TYPES: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_UNSHOWN: Final = Counter("unshown", "What no scrape reads.", ("kind", "outcome"), registry=None)


class ObjectSource(LiveReader, Watcher, Protocol):
    """The requests of an informer to the API server."""


class Collection(msgspec.Struct, Generic[Cached], frozen=True, kw_only=True):
    """The objects of a kind, all or some of them."""

    resource: Resource
    namespace: str
    """Empty where the kind belongs to the cluster, or is followed in all namespaces."""
    decode: Callable[[bytes | msgspec.Raw], Cached]
    store: Store[Cached]
    selector: str = ""
    field_selector: str = ""
    slots: AbstractAsyncContextManager[object] = msgspec.field(default_factory=nullcontext)
    """Entered for as long as a page of the list is held; shared with others by a semaphore."""
    watch_lasts: timedelta = WATCH_LASTS
    """For so long a connection that died may go unseen."""
    relist: timedelta = RELIST
    ends_on: Callable[[ApiError], bool] = lambda error: False
    """Returns whether a list or a watch that fails so is not to be tried again."""

    @property
    def label(self) -> str:
        """Return what metrics call it: several parts of one kind may be followed side by side."""
        return f"{self.resource.kind} {self.field_selector}".rstrip()

    @property
    def keys(self) -> dict[str, object]:
        """Return what log lines call it."""
        keys: dict[str, object] = {"kind": self.resource.kind}
        if self.namespace:
            keys["namespace"] = self.namespace
        if self.field_selector:
            keys["field_selector"] = self.field_selector
        return keys

    def text(self, verb: str) -> str:
        """Return a call as people read it."""
        return Call(verb=verb, resource=self.resource, namespace=self.namespace).text

    async def fetch_page(self, api: LiveReader, *, token: str = "", has_turn: bool = False) -> Page:
        """Return one page of the list of all objects. Raises as `Reader.fetch_page`."""
        return await api.fetch_page(
            self.resource,
            self.namespace,
            selector=self.selector,
            field_selector=self.field_selector,
            limit=PAGE_LIMIT,
            token=token,
            has_turn=has_turn,
        )

    async def fetch_object(self, api: Reader, namespace: str, name: str) -> Page:
        """Return the list of one object, empty where it is gone or no longer selected.

        Not the object by itself: that needs the verb `get`, and what is followed needs list and
        watch only. Raises as `Reader.fetch_page`.
        """
        return await api.fetch_page(
            self.resource,
            self.namespace,
            selector=self.selector,
            field_selector=self.field_selector or self._select_object(namespace, name),
            limit=1,
        )

    def _select_object(self, namespace: str, name: str) -> str:
        is_of_all = namespace != self.namespace
        return f"metadata.name={name}" + (f",metadata.namespace={namespace}" if is_of_all else "")

    def read_bookmark(self, raw: msgspec.Raw) -> Bookmark:
        """Return what a bookmark of a stream says. Raises Unreachable where that is nothing."""
        try:
            return decode_bookmark(raw)
        except DecodeError as error:
            raise Unreachable(f"{self.text('watch')}: {error}") from error

    def read(self, raw: msgspec.Raw) -> Cached:
        """Return the slim object, `Unreadable` where it cannot be decoded."""
        try:
            return self.decode(raw)
        except DecodeError as error:
            lost = salvage(self.resource.kind, raw, error)
            if self.store.get(lost.namespace, lost.name) != lost:
                log.error("Unreadable object", reason=Code.OBJECT_UNREADABLE, err=error)
            return lost

    def read_known(self, raw: msgspec.Raw) -> Cached:
        """Return the slim object; the stored object where that is equal, to save memory."""
        item = self.read(raw)
        cached = self.store.get(item.namespace, item.name)
        return cached if cached is not None and cached == item else item


def show_cache(metrics: Metrics, of: Collection[Cached], age: Callable[[], timedelta]) -> None:
    """Show at each scrape how much is stored, and how old it is; infinitely at the longest span."""
    store = of.store
    metrics.cached_objects.labels(kind=of.label).set_function(lambda: len(store))
    metrics.unreadable_objects.labels(kind=of.label).set_function(lambda: store.unreadable_count)
    metrics.watch_age(of.label, lambda: _in_seconds(age()))


def _in_seconds(age: timedelta) -> float:
    return float("inf") if age == timedelta.max else age.total_seconds()


class WatchMeters:
    """What an informer counts, by the kind that it follows: every outcome exists at zero."""

    def __init__(self, metrics: Metrics | None, kind: str) -> None:
        restarts = _UNSHOWN if metrics is None else metrics.watch_restarts
        events = _UNSHOWN if metrics is None else metrics.watch_events
        self.restarts = {cause: restarts.labels(kind, cause) for cause in RetryCause}
        self.events = {type: events.labels(kind, type) for type in EVENT_TYPES}
