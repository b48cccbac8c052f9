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
from dataclasses import KW_ONLY, dataclass, field
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


@dataclass(slots=True)
class ReviewedNamespaces:
    """Watches namespaces of which a review is the first sign. For one event loop."""

    reader: Reader
    clock: Clock
    _: KW_ONLY
    begin: Callable[[str], None]
    """Watches a namespace."""
    is_empty: Callable[[str], bool]
    """Says that nothing has been seen in a namespace."""
    _unproven: set[str] = field(default_factory=set, init=False)
    _empty: OrderedDict[str, timedelta] = field(default_factory=OrderedDict, init=False)
    """When nothing was found, by namespace."""
    _next_at: timedelta = field(default=timedelta(0), init=False)

    async def add(self, namespace: str) -> None:
        """Watch a namespace, if it is believed."""
        self._unproven = {*filter(self.is_empty, self._unproven)}
        if len(self._unproven) < MOST_UNPROVEN:
            self._unproven.add(namespace)
            self.begin(namespace)
        elif self._may_read(namespace) and await self._holds_anything(namespace):
            self.begin(namespace)

    def _may_read(self, namespace: str) -> bool:
        now, empty_at = self.clock.elapsed(), self._empty.get(namespace)
        if now < self._next_at or (empty_at is not None and now - empty_at < EMPTY_LASTS):
            return False
        self._next_at = now + PAUSE
        return True

    async def _holds_anything(self, namespace: str) -> bool:
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                for resource in (STATEFULSETS, PODS):
                    page = await self.reader.fetch_page(resource, namespace, limit=1)
                    if page.items:
                        return True
        except (ApiError, TimeoutError) as error:
            log.debug("Namespace of a review not read", namespace=namespace, err=error)
            return False
        self._empty[namespace] = self.clock.elapsed()
        self._empty.move_to_end(namespace)
        if len(self._empty) > MOST_EMPTY:
            self._empty.popitem(last=False)
        return False
