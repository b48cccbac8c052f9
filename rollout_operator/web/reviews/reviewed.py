"""Which namespaces of a cluster this process watches because a review has named them.

Others are found by the objects in them; these may hold a Deployment that is not to be scaled down.
Every client that reaches the port may name a namespace, also a namespace that never was. So many
are believed at a time, and a namespace that has proven to hold something counts no more. Where that
many are empty, another namespace is watched once the API server shows something in it, as long as
not too many are read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import PODS, STATEFULSETS, Reader
from rollout_operator.model.errors import ApiError
from rollout_operator.telemetry.logs import log

# Namespaces in which nothing has been seen, and which are watched all the same.
MOST_UNPROVEN: Final = 64
# A request for each kind, in all this time: a client that makes up names has no more of our tokens.
PAUSE: Final = timedelta(seconds=1)
# The review waits for it.
ANSWER_WITHIN: Final = timedelta(seconds=1)
# A namespace in which nothing was is not read again so soon.
EMPTY_LASTS: Final = timedelta(seconds=30)
MOST_EMPTY: Final = 256


class ReviewedNamespaces:
    """Watches namespaces of which a review is the first sign. For one event loop."""

    def __init__(
        self,
        reader: Reader,
        clock: Clock,
        *,
        begin: Callable[[str], None],
        is_empty: Callable[[str], bool],
    ) -> None:
        """`begin` watches a namespace; `is_empty` says that nothing has been seen in it."""
        self._reader = reader
        self._clock = clock
        self._begin = begin
        self._is_empty = is_empty
        self._unproven: set[str] = set()
        self._empty: OrderedDict[str, timedelta] = OrderedDict()
        """When nothing was found, by namespace."""
        self._next_at = timedelta(0)

    async def add(self, namespace: str) -> None:
        """Watch a namespace, if it is believed."""
        self._unproven = {*filter(self._is_empty, self._unproven)}
        if len(self._unproven) < MOST_UNPROVEN:
            self._unproven.add(namespace)
            self._begin(namespace)
        elif self._may_read(namespace) and await self._holds_anything(namespace):
            self._begin(namespace)

    def _may_read(self, namespace: str) -> bool:
        now, empty_at = self._clock.elapsed(), self._empty.get(namespace)
        if now < self._next_at or (empty_at is not None and now - empty_at < EMPTY_LASTS):
            return False
        self._next_at = now + PAUSE
        return True

    async def _holds_anything(self, namespace: str) -> bool:
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                for resource in (STATEFULSETS, PODS):
                    page = await self._reader.fetch_page(resource, namespace, limit=1)
                    if page.items:
                        return True
        except (ApiError, TimeoutError) as error:
            log.debug("Namespace of a review not read", namespace=namespace, err=error)
            return False
        self._empty[namespace] = self._clock.elapsed()
        self._empty.move_to_end(namespace)
        if len(self._empty) > MOST_EMPTY:
            self._empty.popitem(last=False)
        return False
