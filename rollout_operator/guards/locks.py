"""One lock per rollout group: a caller that reads a group and then acts on it holds it.

It makes a live read and what follows from it one step: a downscale is not granted between a
rollout's live read and its deletes, nor the other way round (D-25). It is held across reads and
deletes, never across a write that comes back as a review of our own.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from rollout_operator.model.names import GroupName, Uid


class Locks:
    """Locks by key, made at the first use and gone when no task holds or wants them."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Wait for the lock and hold it. The first waiter gets it first."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            yield

    @asynccontextmanager
    async def hold_all(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Wait for several locks, in the order of their keys, so that no two callers deadlock."""
        async with AsyncExitStack() as stack:
            for key in sorted({*keys}):
                await stack.enter_async_context(self.hold(key))
            yield


def group_lock(group: GroupName) -> str:
    """Return the key of a group's lock."""
    return f"group {group}"


def policy_lock(namespace: str, name: str) -> str:
    """Return the key of the lock of a MultiAZRollout."""
    return f"policy {namespace}/{name}"


def calls_lock(set_uid: Uid) -> str:
    """Return the key of the lock on calls to the pods of a set."""
    return f"calls {set_uid}"
