"""One informer for the objects of all namespaces, and the share that a namespace has in it.

Decides what belongs to which namespace. For its callers a share is an informer of its own:
its store begins with a whole list, every change after that is reported once, and it is as old as
the cache of all namespaces is.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Generic, NoReturn, TypeAlias

from rollout_operator.kube.cache.collection import Collection, show_cache
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.retries import Staleness
from rollout_operator.kube.cache.store import Cached, Change, Store
from rollout_operator.model.errors import ApiError
from rollout_operator.model.objects import Unreadable
from rollout_operator.telemetry.logs import bind_keys
from rollout_operator.telemetry.metrics import Metrics


class NamespaceStores(Store[Cached]):
    """The objects of all namespaces, those of each in a store of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._stores: dict[str, Store[Cached]] = {}
        self._taken_over: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._stores.values()))

    @property
    def unreadable_count(self) -> int:
        """Return how many objects are known and could not be decoded."""
        return sum(store.unreadable_count for store in self._stores.values())

    def hand_over(self, namespace: str, store: Store[Cached]) -> Sequence[Change[Cached]]:
        """Keep the objects of a namespace in this store from now on. Return what changed in it."""
        cached = self._get_store(namespace).list_all()
        self._stores[namespace] = store
        self._taken_over.add(namespace)
        return store.replace_all(cached)

    def list_all(self) -> Sequence[Cached]:
        """Return the newest known version of each object."""
        return tuple(chain.from_iterable(store.list_all() for store in self._stores.values()))

    def get(self, namespace: str, name: str) -> Cached | None:
        """Return the cached object, None where it is not known."""
        store = self._stores.get(namespace)
        return None if store is None else store.get(namespace, name)

    def upsert(self, item: Cached) -> Sequence[Change[Cached]]:
        """Store an object unless a newer version is known. Return what changed."""
        return self._get_store(item.namespace).upsert(item)

    def remove(self, last: Cached) -> Sequence[Change[Cached]]:
        """Forget an object, given its last state. Return what changed."""
        return self._get_store(last.namespace).remove(last)

    def heal(self, broken: Unreadable, reread: Cached | None) -> Sequence[Change[Cached]]:
        """Replace an object that could not be decoded by what was read again; see `Store`."""
        return self._get_store(broken.namespace).heal(broken, reread)

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
    """The share that one namespace has in an informer of all namespaces."""

    def __init__(
        self,
        informer: Informer[Cached],
        stores: NamespaceStores[Cached],
        of: Collection[Cached],
        metrics: Metrics,
    ) -> None:
        """`of` names the namespace and its store; `run` has both filled."""
        self._informer: Informer[Cached] = informer
        self._stores: NamespaceStores[Cached] = stores
        self._of: Collection[Cached] = of
        show_cache(metrics, of, lambda: self.age)
        self._callbacks: list[Callable[[Cached | None, Cached | None], None]] = []
        self._joined = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        """Return whether the store has what there is, and a watch follows it."""
        return self._joined.is_set() and self._informer.has_synced

    @property
    def age(self) -> timedelta:
        """Return the time since the newest proof of life; see `Informer`."""
        return self._informer.age if self._joined.is_set() else timedelta.max

    @property
    def last_error(self) -> ApiError | None:
        """Return why the newest call failed, None where it worked."""
        return self._informer.last_error

    @property
    def broken_for(self) -> timedelta | None:
        """Return for how long every call has failed, None where the newest one worked."""
        return self._informer.broken_for

    @property
    def staleness(self) -> Staleness:
        """Return what calls back where the cache is too old."""
        return self._informer.staleness

    def on_change(self, callback: Callable[[Cached | None, Cached | None], None]) -> None:
        """Call back with (old, new) after each stored change that decides; None is absence."""
        self._callbacks.append(callback)

    async def wait_synced(self) -> None:
        """Wait until the store has what there is, and a watch follows it."""
        await self._joined.wait()
        await self._informer.wait_synced()

    def refresh(self, cause: str) -> bool:
        """List all namespaces again as soon as may be; see `Informer`."""
        return self._informer.refresh(cause)

    async def run(self) -> NoReturn:
        """Keep the share until cancelled."""
        changes = self._stores.hand_over(self._of.namespace, self._of.store)
        self._joined.set()
        # At once: no later change is reported before what it has changed.
        for old, new in changes:
            self.take(old, new)
        await asyncio.Event().wait()
        raise AssertionError("a share is kept until it is cancelled")

    def take(self, old: Cached | None, new: Cached | None) -> None:
        """Report a change of an object of this namespace, once its objects are handed over."""
        if not self._joined.is_set():
            return
        with bind_keys(namespace=self._of.namespace):
            for callback in self._callbacks:
                callback(old, new)


AnyInformer: TypeAlias = Informer[Cached] | NamespaceShare[Cached]
"""The informer of one namespace: its own, or a share in that of all."""
