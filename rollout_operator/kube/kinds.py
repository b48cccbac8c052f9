"""Informers of kinds that a cluster may lack or a role may hide.

`OptionalInformer` follows a kind once it is there, `FollowedKind` whichever version is served. What
an absence means is left to callers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Generic, NoReturn

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import REFUSED_WATCHES
from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import Reader, Resource
from rollout_operator.kube.informer import Informer
from rollout_operator.kube.store import Cached, WatchedStore
from rollout_operator.model.names import ApiError, Denied, NotFound
from rollout_operator.model.objects import AnyWatched
from rollout_operator.telemetry.logs import log

# At first more often: what is installed with the operator may come a moment after it. Later on a
# definition is installed, or a role changed, by a person. To watch definitions instead would need a
# right in the whole cluster.
CHECK_INTERVAL: Final = REFUSED_WATCHES.most
# After an error that says nothing of the kind.
RETRY: Final = timedelta(seconds=1)

# A definition is installed, or a role changed, by a person who waits for it.
FOLLOW_CHECK_INTERVAL: Final = timedelta(seconds=10)


class OptionalInformer(Generic[Cached]):
    """Runs an informer for as long as there is something to follow."""

    def __init__(
        self, informer: Informer[Cached], client: Reader, resource: Resource, namespace: str
    ) -> None:
        self._informer: Informer[Cached] = informer
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._answered = asyncio.Event()
        self._error: ApiError | None = None
        # Whether the newest answer said of the kind why there is nothing to follow.
        self._is_refused = False
        self._refusals = 0

    @property
    def is_absent(self) -> bool:
        """Return whether the cluster does not, or no longer, have this kind."""
        return isinstance(self._error or self._informer.last_error, NotFound)

    @property
    def is_forbidden(self) -> bool:
        return isinstance(self._error, Denied)

    @property
    def lack(self) -> str | None:
        if self._informer.has_synced or self.is_absent:
            return None
        return str(self._error or self._informer.last_error or "no answer yet")

    @property
    def age(self) -> timedelta:
        """Return the age of the cache's newest proof of life; zero if there is no cache."""
        has_list = self._informer.has_synced and not self.is_absent
        return self._informer.age if has_list else timedelta(0)

    async def wait_answered(self) -> None:
        await self._answered.wait()

    async def run(self, clock: Clock) -> NoReturn:
        while not await self._is_there():
            wait = REFUSED_WATCHES.bound(self._refusals) if self._is_refused else RETRY
            await clock.sleep(wait)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run(), name=f"{self._resource.plural} informer")
            await self._informer.wait_synced()
            self._answered.set()
        raise AssertionError("an informer runs until it is cancelled")

    async def _is_there(self) -> bool:
        try:
            await self._client.fetch_page(self._resource, self._namespace, limit=1)
        except ApiError as error:
            self._record(error)
            return False
        self._error = None
        return True

    def _record(self, error: ApiError) -> None:
        self._is_refused = isinstance(error, NotFound | Denied)
        self._refusals += self._is_refused
        if self._answered.is_set() and not self._is_refused:
            log.debug("Kind not checked", kind=self._resource.kind, err=error)
            return  # it says nothing of the kind: what was known stays
        is_news = type(error) is not type(self._error)
        self._error = error
        if self._is_refused:
            self._answered.set()
        if is_news:
            write_log = log.info if isinstance(error, NotFound) else log.warn
            write_log("Kind is not followed", kind=self._resource.kind, err=error)


OnWatched = Callable[[AnyWatched | None, AnyWatched | None], None]


class KindSource(msgspec.Struct, frozen=True, kw_only=True):
    resources: Sequence[Resource]
    namespace: str
    client: Reader
    make_informer: Callable[[Resource], Informer[AnyWatched]]
    check: Callable[[], Awaitable[None]] | None = None
    """Called before a list; raises NotFound where the kind is absent for this process."""


class FollowedKind:
    """The objects of a kind in one namespace, for as long as `run` runs."""

    def __init__(self, source: KindSource, store: WatchedStore) -> None:
        self.store = store
        self._source = source
        self._informer: Informer[AnyWatched] | None = None
        self._resource: Resource | None = None
        self._error: ApiError | None = None
        self._callbacks: list[OnWatched] = []
        self._on_news: list[Callable[[], None]] = []

    @property
    def kind(self) -> str:
        return self._source.resources[0].kind

    @property
    def resource(self) -> Resource | None:
        return self._resource

    @property
    def is_absent(self) -> bool:
        return isinstance(self._error, NotFound)

    @property
    def is_forbidden(self) -> bool:
        return isinstance(self._error, Denied)

    @property
    def refusal(self) -> Denied | None:
        error = None if self._informer is None else self._informer.last_error
        return error if isinstance(error, Denied) else None

    @property
    def is_awaited(self) -> bool:
        """Return whether there has been neither a list nor an error yet."""
        informer = self._informer
        if informer is None:
            return self._error is None
        return not informer.has_synced and informer.last_error is None

    @property
    def lack(self) -> str | None:
        informer = self._informer
        if self.is_absent or (informer is not None and informer.has_synced):
            return None
        error = self._error or (informer and informer.last_error)
        return f"{self.kind}: {error or 'no answer yet'}"

    @property
    def age(self) -> timedelta:
        informer = self._informer
        return timedelta(0) if informer is None or not informer.has_synced else informer.age

    def on_change(self, callback: OnWatched) -> None:
        self._callbacks.append(callback)

    def on_news(self, callback: Callable[[], None]) -> None:
        """Call back when the kind becomes listable, or the reason why it is not changes."""
        self._on_news.append(callback)

    async def run(self, clock: Clock) -> NoReturn:
        while True:
            if (resource := await self._find_served()) is None:
                self._forget()
                is_known = isinstance(self._error, NotFound | Denied)
                await clock.sleep(FOLLOW_CHECK_INTERVAL if is_known else RETRY)
                continue
            informer = self._source.make_informer(resource)
            informer.on_change(self._notify)
            self._resource, self._informer = resource, informer
            log.info("Following a kind", kind=self.kind, version=resource.version)
            await race(informer=informer.run(), absence=_wait_absent(informer, clock))

    async def _find_served(self) -> Resource | None:
        """Return the first version that can be listed; None leaves the reason in `_error`."""
        for resource in self._source.resources:
            try:
                if self._source.check is not None:
                    await self._source.check()
                await self._source.client.fetch_page(resource, self._source.namespace, limit=1)
            except ApiError as error:
                self._record(error)
                if not isinstance(error, NotFound):
                    return None
            else:
                self._set_error(None)
                return resource
        return None

    def _record(self, error: ApiError) -> None:
        if type(error) is not type(self._error):
            write_log = log.info if isinstance(error, NotFound) else log.warn
            write_log("Kind is not followed", kind=self.kind, err=error)
        self._set_error(error)

    def _set_error(self, error: ApiError | None) -> None:
        is_news = type(error) is not type(self._error)
        self._error = error
        for callback in self._on_news if is_news else ():
            callback()

    def _forget(self) -> None:
        """Forget all objects, but only if the cluster says that the kind is absent."""
        if not self.is_absent or self._informer is None:
            return
        self._informer = self._resource = None
        for old, new in self.store.replace_all(()):
            self._notify(old, new)

    def _notify(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for callback in self._callbacks:
            callback(old, new)


async def _wait_absent(informer: Informer[AnyWatched], clock: Clock) -> None:
    """Wait until the cluster says that what is followed is not there any more."""
    while not isinstance(informer.last_error, NotFound):
        await clock.sleep(FOLLOW_CHECK_INTERVAL)
