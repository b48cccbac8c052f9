"""Kinds that a cluster may lack or a role may hide, followed once there is something to follow.

What an absence means is left to callers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Generic, NoReturn, TypeAlias

from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import REFUSED_WATCHES
from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import Resource
from rollout_operator.kube.informer import Collection, Informer, ObjectSource
from rollout_operator.kube.store import Cached, Store
from rollout_operator.model.names import ApiError, Denied, NotFound
from rollout_operator.model.objects import AnyWatched
from rollout_operator.telemetry.logs import log

# After an error that says nothing of the kind.
RETRY: Final = timedelta(seconds=1)
# Of a kind that comes and goes: a person installs a definition, or changes a role, and waits.
FOLLOW_CHECK_INTERVAL: Final = timedelta(seconds=10)


class FollowedKind(Generic[Cached]):
    """The objects of a kind, for as long as `run` runs.

    A kind that comes and goes takes its objects with it. Of any other they stay in the store.
    """

    def __init__(
        self,
        client: ObjectSource,
        collection: Collection[Cached],
        make_informer: Callable[[ObjectSource, Collection[Cached]], Informer[Cached]],
        *,
        versions: Sequence[Resource] = (),
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`versions` are those of a kind that comes and goes: the first that is served is followed.

        `check` is called before a list; it raises NotFound where this process has none of the kind.
        """
        self._client = client
        self._collection: Collection[Cached] = collection
        self._create_informer: Callable[[ObjectSource, Collection[Cached]], Informer[Cached]] = (
            make_informer
        )
        self._may_go = bool(versions)
        self._versions = versions or (collection.resource,)
        self._check = check
        self._informer: Informer[Cached] | None = None
        self._resource: Resource | None = None
        self._error: ApiError | None = None
        self._is_wanted = False
        self._is_doubted = False
        """Whether a denial does not count until it is given again."""
        self._asked = asyncio.Event()
        self._answered = asyncio.Event()
        self._served = asyncio.Event()
        self._callbacks: list[Callable[[Cached | None, Cached | None], None]] = []
        self._on_news: list[Callable[[], None]] = []
        if not self._may_go:  # its metrics exist before it does
            self._informer = self._make_informer(collection)

    @property
    def kind(self) -> str:
        return self._collection.resource.kind

    @property
    def store(self) -> Store[Cached]:
        return self._collection.store

    @property
    def resource(self) -> Resource | None:
        """Return the version that is followed."""
        return self._resource

    @property
    def is_absent(self) -> bool:
        """Return whether the cluster does not, or no longer, have this kind."""
        return isinstance(self._error or self.watch_error, NotFound)

    @property
    def is_forbidden(self) -> bool:
        error = self._error
        return isinstance(error, Denied) and error.is_by_role and not self._is_doubted

    @property
    def watch_error(self) -> ApiError | None:
        return None if self._informer is None else self._informer.last_error

    @property
    def is_awaited(self) -> bool:
        """Return whether there has been neither a list nor an error yet."""
        return not self._has_synced and (self._error or self.watch_error) is None

    @property
    def lack(self) -> str | None:
        if self._has_synced or self.is_absent:
            return None
        return str(self._error or self.watch_error or "no answer yet")

    @property
    def named_lack(self) -> str | None:
        return None if (lack := self.lack) is None else f"{self.kind}: {lack}"

    @property
    def age(self) -> timedelta:
        """Return the age of the cache's newest proof of life; zero if there is no cache."""
        informer = self._informer
        if informer is None or not informer.has_synced or self.is_absent:
            return timedelta(0)
        return informer.age

    @property
    def _has_synced(self) -> bool:
        return self._informer is not None and self._informer.has_synced

    def on_change(self, callback: Callable[[Cached | None, Cached | None], None]) -> None:
        self._callbacks.append(callback)

    def on_news(self, callback: Callable[[], None]) -> None:
        """Call back when the kind becomes listable, or the reason why it is not changes."""
        self._on_news.append(callback)

    def refresh(self, cause: str) -> None:
        if self._informer is not None:
            self._informer.refresh(cause)

    def doubt_denial(self) -> None:
        """Ask again at once where the kind was denied, for callers who see that others are not.

        Until its role is bound, or for a moment after an API server has started, a process is
        denied everything.
        """
        if isinstance(self._error, Denied):
            self._is_doubted = True
            self._answered.clear()
            self._asked.set()

    async def wait_answered(self) -> None:
        """Wait until all objects are known, or why there are none."""
        await self._answered.wait()
        if self._served.is_set():
            await self.wait_synced()

    async def wait_synced(self) -> None:
        await self._served.wait()
        if self._informer is not None:
            await self._informer.wait_synced()

    async def run(self, clock: Clock) -> NoReturn:
        self._is_wanted = True
        while True:
            self._resource = resource = await self._wait_served(clock)
            self._served.set()
            self._answered.set()
            if self._informer is not None and not self._may_go:
                await self._informer.run()  # until cancelled
            collection = replace(self._collection, resource=resource)
            self._informer = informer = self._make_informer(collection)
            log.info("Following a kind", kind=self.kind, version=resource.version)
            await race(informer=informer.run(), absence=_wait_absent(informer, clock))

    def _make_informer(self, collection: Collection[Cached]) -> Informer[Cached]:
        informer = self._create_informer(self._client, collection)
        informer.on_change(self._notify)
        informer.shown_age = lambda: self._find_shown_age(informer)
        return informer

    def _find_shown_age(self, informer: Informer[Cached]) -> timedelta:
        """Return the age of what is decided by: where there is nothing to know, nothing is old."""
        return informer.age if self._is_wanted and not self.is_absent else timedelta(0)

    async def _wait_served(self, clock: Clock) -> Resource:
        passes = 1
        while (resource := await self._find_served()) is None:
            wait = RETRY
            if isinstance(self._error, NotFound | Denied) and not self._is_doubted:
                self._answered.set()
                # Soon at first: what is installed with the operator may come a moment after it.
                # To watch definitions instead would need a right in the whole cluster.
                wait = REFUSED_WATCHES.bound(passes)
                wait = min(wait, FOLLOW_CHECK_INTERVAL) if self._may_go else wait
            await race(asked=self._asked.wait(), due=clock.sleep(wait))
            passes += 1
        return resource

    async def _find_served(self) -> Resource | None:
        """Return the first version that can be listed; None leaves the reason in `_error`."""
        self._asked.clear()
        absence: NotFound | None = None
        for resource in self._versions:
            try:
                if self._check is not None:
                    await self._check()
                await self._client.fetch_page(resource, self._collection.namespace, limit=1)
            except NotFound as error:
                absence = error  # of this version: the next may be served
            except ApiError as error:
                self._record(error)
                return None
            else:
                self._set_error(None)
                return resource
        if absence is not None:
            self._record(absence)
            if self._may_go:
                self._forget()
        return None

    def _record(self, error: ApiError) -> None:
        is_refusal = isinstance(error, NotFound | Denied)
        if is_refusal and not self._asked.is_set():
            self._is_doubted = False
        if isinstance(self._error, NotFound | Denied) and not is_refusal:
            log.debug("Kind not checked", kind=self.kind, err=error)
            return  # it says nothing of the kind: what was known stays
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
        self._informer = self._resource = None
        for old, new in self.store.replace_all(()):
            self._notify(old, new)

    def _notify(self, old: Cached | None, new: Cached | None) -> None:
        for callback in self._callbacks:
            callback(old, new)


WatchedKind: TypeAlias = FollowedKind[AnyWatched]
OnWatched = Callable[[AnyWatched | None, AnyWatched | None], None]


async def _wait_absent(informer: Informer[Cached], clock: Clock) -> None:
    """Wait until the cluster says that what is followed is not there any more."""
    while not isinstance(informer.last_error, NotFound):
        await clock.sleep(FOLLOW_CHECK_INTERVAL)
