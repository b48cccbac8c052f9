"""A scripted API server for clients that list and watch, on virtual time.

`ScriptedApi` plays lists and streams in the order of its script.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from rollout_operator.kube.api import Page, Resource, WatchEvent
from rollout_operator.model.names import ApiError, NotFound, Refused

NAMESPACE = "prod"


class Wait(msgspec.Struct, frozen=True):
    """A step of a stream: nothing comes for so many seconds."""

    seconds: float


Step = WatchEvent | Wait | ApiError
"""An error ends the stream with it; the end of the steps ends the stream in order."""

SILENCE: Sequence[Step] = (Wait(10_000_000),)
"""A stream that neither says anything nor ends."""

Listing = Sequence[Page | ApiError]
"""The pages of one list. An error ends it."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A list page or a watch that was requested, and when."""

    verb: str
    at: float
    selector: str = ""
    limit: int = 0
    token: str = ""
    version: str | None = None
    lasts: timedelta = timedelta(0)


class ScriptedApi:
    """`LiveReader` and `Watcher` of `kube.api` that play a script.

    Past the end of its script a list fails the test, and a watch stays silent. A watch that starts
    with an error fails before its head.
    """

    def __init__(
        self, lists: Iterable[Listing] = (), watches: Iterable[Sequence[Step]] = ()
    ) -> None:
        self._pages: deque[Page | ApiError] = deque(page for pages in lists for page in pages)
        self._watches = deque(watches)
        self.calls: list[Call] = []
        self.field_selectors: list[str] = []
        """One for each call."""
        self.open_watches = 0
        self.states: deque[Sequence[Step]] = deque()
        """Streams that begin with all objects; where there is none they are refused, as of old."""
        self.streamed = 0
        """How often such a stream was requested."""
        self.pauses: dict[str, float] = {}
        """How many seconds a page takes, by its field selector."""
        self.turns: deque[float | ApiError] = deque()
        """How many seconds each token takes that is waited for; past the end they are there."""
        self.taken: list[bool] = []
        """One for each page: whether its token had been taken before."""

    @property
    def lists(self) -> list[Call]:
        """Return the calls for first pages."""
        return [call for call in self.calls if call.verb == "list" and not call.token]

    @property
    def watches(self) -> list[Call]:
        """Return the calls for streams."""
        return [call for call in self.calls if call.verb == "watch"]

    async def wait_turn(self, resource: Resource, namespace: str) -> None:
        turn = self.turns.popleft() if self.turns else 0
        if isinstance(turn, ApiError):
            raise turn
        if turn:
            await asyncio.sleep(turn)

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *rest: object, **how: object
    ) -> bytes:
        raise NotFound(f"get {resource.path(namespace, name)}: not in this script")

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str,
        *,
        selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        token: str = "",
        resource_version: str | None = None,
        has_turn: bool = False,
    ) -> Page:
        assert namespace == (NAMESPACE if resource.is_namespaced else "")
        self.field_selectors.append(field_selector)
        self.taken.append(has_turn)
        self._record("list", selector=selector, limit=limit, token=token, version=resource_version)
        await asyncio.sleep(self.pauses.get(field_selector, 0))
        assert self._pages, "a list more than the script has"
        page = self._pages.popleft()
        if isinstance(page, ApiError):
            raise page
        return page

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        namespace: str,
        *,
        resource_version: str,
        selector: str = "",
        field_selector: str = "",
        lasts: timedelta,
        has_state: bool = False,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if has_state:
            async with self._play_state(resource_version) as events:
                yield events
            return
        assert namespace == (NAMESPACE if resource.is_namespaced else "")
        self.field_selectors.append(field_selector)
        self._record("watch", selector=selector, version=resource_version, lasts=lasts)
        await asyncio.sleep(0)
        steps = deque(self._watches.popleft() if self._watches else SILENCE)
        if steps and isinstance(steps[0], ApiError):
            raise steps[0]
        self.open_watches += 1
        try:
            yield _play(steps)
        finally:
            self.open_watches -= 1

    @asynccontextmanager
    async def _play_state(self, version: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        assert not version
        self.streamed += 1
        if not self.states:
            raise Refused("watch: sendInitialEvents: Forbidden", status=422)
        self.open_watches += 1
        try:
            yield _play(self.states.popleft())
        finally:
            self.open_watches -= 1

    def _record(
        self,
        verb: str,
        *,
        selector: str,
        version: str | None,
        limit: int = 0,
        token: str = "",
        lasts: timedelta = timedelta(0),
    ) -> None:
        at = asyncio.get_running_loop().time()
        self.calls.append(
            Call(
                verb=verb,
                at=at,
                selector=selector,
                limit=limit,
                token=token,
                version=version,
                lasts=lasts,
            )
        )


async def _play(steps: Iterable[Step]) -> AsyncIterator[WatchEvent]:
    for step in steps:
        match step:
            case Wait(seconds=seconds):
                await asyncio.sleep(seconds)
            case WatchEvent():
                yield step
            case ApiError():
                raise step


def pod(
    name: str, version: object, *, uid: str = "", owner: str = "", ready: bool = True
) -> msgspec.Raw:
    """Return a pod as JSON; its UID is `uid-<name>` unless given."""
    return as_raw(pod_tree(name, version, uid=uid, owner=owner, ready=ready))


def pod_tree(
    name: str, version: object, *, uid: str = "", owner: str = "", ready: bool = True
) -> dict[str, object]:
    """Return a pod as a tree of JSON values."""
    owners = [{"kind": "StatefulSet", "name": "a", "uid": owner, "controller": True}]
    return {
        "metadata": {
            "namespace": NAMESPACE,
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {"controller-revision-hash": "a-1"},
            "ownerReferences": owners if owner else [],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "c", "ready": ready, "state": {"running": {}}}],
        },
    }


def broken_pod(name: str, version: object, *, uid: str = "") -> msgspec.Raw:
    """Return a pod whose phase is a number."""
    return as_raw({**pod_tree(name, version, uid=uid), "status": {"phase": 7}})


def as_raw(tree: Mapping[str, object]) -> msgspec.Raw:
    """Return a tree as JSON."""
    return msgspec.Raw(json.dumps(tree).encode())


def page(version: object, *items: msgspec.Raw, next_token: str = "") -> Page:
    """Return a page of a list."""
    return Page(items=items, resource_version=str(version), next_token=next_token)


def added(item: msgspec.Raw) -> WatchEvent:
    """Return an ADDED event."""
    return WatchEvent(type="ADDED", object=item)


def modified(item: msgspec.Raw) -> WatchEvent:
    """Return a MODIFIED event."""
    return WatchEvent(type="MODIFIED", object=item)


def deleted(item: msgspec.Raw) -> WatchEvent:
    """Return a DELETED event."""
    return WatchEvent(type="DELETED", object=item)


def bookmark(version: object) -> WatchEvent:
    """Return a BOOKMARK event."""
    tree = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
    return WatchEvent(type="BOOKMARK", object=as_raw(tree))
