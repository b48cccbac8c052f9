"""Informers of kinds that a cluster may lack or a role may hide, or that namespaces share.

`OptionalInformer` follows a kind once it is there, `FollowedKind` whichever version is served, and
`ClusterKind` follows a kind once for all namespaces, each of which has a `NamespaceShare`. What
an absence means is left to callers.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Final, Generic, NoReturn, TypeAlias

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import REFUSED_WATCHES
from rollout_operator.aio.tasks import race
from rollout_operator.kube.api import Reader, Resource
from rollout_operator.kube.informer import Collection, Informer, show_cache
from rollout_operator.kube.store import AnyBudget, Cached, Change, Staleness, Store, WatchedStore
from rollout_operator.model.names import ApiError, Denied, NotFound
from rollout_operator.model.objects import AnyWatched, StatefulSet, Unreadable
from rollout_operator.model.policy import WatchedPolicy
from rollout_operator.telemetry.logs import bind_keys, log
from rollout_operator.telemetry.metrics import Metrics

# At first more often: what is installed with the operator may come a moment after it. Later on a
# definition is installed, or a role changed, by a person. To watch definitions instead would need a
# right in the whole cluster.
CHECK_INTERVAL: Final = REFUSED_WATCHES.most
# After an error that says nothing of the kind.
RETRY: Final = timedelta(seconds=1)

# A definition is installed, or a role changed, by a person who waits for it.
FOLLOW_CHECK_INTERVAL: Final = timedelta(seconds=10)


class _NamespaceStores(Store[Cached]):
    """The objects of all namespaces, those of each in a store of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._stores: dict[str, Store[Cached]] = {}
        self._taken_over: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._stores.values()))

    @property
    def unreadable_count(self) -> int:
        return sum(store.unreadable_count for store in self._stores.values())

    def hand_over(self, namespace: str, store: Store[Cached]) -> Sequence[Change[Cached]]:
        """Keep the objects of a namespace in this store from now on. Return what changed in it."""
        cached = self._get_store(namespace).list_all()
        self._stores[namespace] = store
        self._taken_over.add(namespace)
        return store.replace_all(cached)

    def list_all(self) -> Sequence[Cached]:
        return tuple(chain.from_iterable(store.list_all() for store in self._stores.values()))

    def get(self, namespace: str, name: str) -> Cached | None:
        store = self._stores.get(namespace)
        return None if store is None else store.get(namespace, name)

    def upsert(self, item: Cached) -> Sequence[Change[Cached]]:
        return self._get_store(item.namespace).upsert(item)

    def remove(self, last: Cached) -> Sequence[Change[Cached]]:
        return self._get_store(last.namespace).remove(last)

    def replace_all(self, items: Iterable[Cached]) -> Sequence[Change[Cached]]:
        """Make these the whole content, also of what was handed over. Return what changed."""
        shares: defaultdict[str, list[Cached]] = defaultdict(list)
        for item in items:
            shares[item.namespace].append(item)
        changes: list[Change[Cached]] = []
        for namespace in dict.fromkeys((*self._stores, *shares)):
            changes += self._get_store(namespace).replace_all(shares.get(namespace, ()))
        self._stores = {
            namespace: store
            for namespace, store in self._stores.items()
            if namespace in shares or namespace in self._taken_over
        }
        for callback in self._on_replaced:
            callback()
        return changes

    def _get_store(self, namespace: str) -> Store[Cached]:
        store = self._stores.get(namespace)
        if store is None:
            store = self._stores[namespace] = Store()
        return store


class NamespaceShare(Generic[Cached]):
    def __init__(
        self,
        informer: Informer[Cached],
        stores: _NamespaceStores[Cached],
        of: Collection[Cached],
        metrics: Metrics,
    ) -> None:
        """`of` names the namespace and its store; `run` has both filled."""
        self._informer: Informer[Cached] = informer
        self._stores: _NamespaceStores[Cached] = stores
        self._of: Collection[Cached] = of
        show_cache(metrics, of, lambda: self.age)
        self._callbacks: list[Callable[[Cached | None, Cached | None], None]] = []
        self._joined = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        return self._joined.is_set() and self._informer.has_synced

    @property
    def version(self) -> str:
        return self._informer.version

    @property
    def listed_from(self) -> str | None:
        return self._informer.listed_from

    @property
    def age(self) -> timedelta:
        return self._informer.age if self._joined.is_set() else timedelta.max

    @property
    def last_error(self) -> ApiError | None:
        return self._informer.last_error

    @property
    def broken_for(self) -> timedelta | None:
        return self._informer.broken_for

    @property
    def staleness(self) -> Staleness:
        return self._informer.staleness

    def on_change(self, callback: Callable[[Cached | None, Cached | None], None]) -> None:
        self._callbacks.append(callback)

    async def wait_synced(self) -> None:
        await self._joined.wait()
        await self._informer.wait_synced()

    def refresh(self, cause: str) -> bool:
        return self._informer.refresh(cause)

    async def run(self) -> NoReturn:
        changes = self._stores.hand_over(self._of.namespace, self._of.store)
        self._joined.set()
        # At once: no later change is reported before what it has changed.
        for old, new in changes:
            self.take(old, new)
        await asyncio.Event().wait()
        raise AssertionError("a share is kept until it is cancelled")

    def take(self, old: Cached | None, new: Cached | None) -> None:
        """Report a change of an object of this namespace after the hand-over."""
        if not self._joined.is_set():
            return
        with bind_keys(namespace=self._of.namespace):
            for callback in self._callbacks:
                callback(old, new)


AnyInformer: TypeAlias = Informer[Cached] | NamespaceShare[Cached]
"""The informer of one namespace: its own, or a share in that of all."""


class OptionalInformer(Generic[Cached]):
    """Runs an informer for as long as there is something to follow."""

    def __init__(
        self, informer: AnyInformer[Cached], client: Reader, resource: Resource, namespace: str
    ) -> None:
        self._informer: AnyInformer[Cached] = informer
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


class ClusterKind(Generic[Cached]):
    """The objects of a kind in all namespaces, as far as they may be listed."""

    def __init__(
        self,
        make_informer: Callable[[Store[Cached]], Informer[Cached]],
        client: Reader,
        resource: Resource,
    ) -> None:
        """`make_informer` returns what fills a store with the objects of all namespaces."""
        self._stores: _NamespaceStores[Cached] = _NamespaceStores()
        self.informer: Informer[Cached] = make_informer(self._stores)
        self.follow: OptionalInformer[Cached] = OptionalInformer(
            self.informer, client, resource, ""
        )
        self._shares: dict[str, NamespaceShare[Cached]] = {}
        self.informer.on_change(self._report)

    def find_share(self, of: Collection[Cached], metrics: Metrics) -> NamespaceShare[Cached] | None:
        """Return the share of a namespace; None if it must follow its objects itself."""
        if self.follow.lack is not None:
            return None
        share = self._shares[of.namespace] = NamespaceShare(
            self.informer, self._stores, of, metrics
        )
        return share

    def _report(self, old: Cached | None, new: Cached | None) -> None:
        last = old if new is None else new
        share = None if last is None else self._shares.get(last.namespace)
        if share is not None:
            share.take(old, new)


class ClusterKinds(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds by which namespaces are discovered, so they are followed in the whole cluster."""

    sets: ClusterKind[StatefulSet | Unreadable]
    budgets: ClusterKind[AnyBudget]
    policies: ClusterKind[WatchedPolicy | Unreadable]
