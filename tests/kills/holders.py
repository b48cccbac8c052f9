"""Which process holds the Lease, as its watch reports: every holder, and since when."""

import asyncio
import time
from datetime import timedelta
from typing import Final

from tests.world.api import LEASES, Api
from tests.world.manifests import LEASE

# Twice what a takeover may last: a test that waits longer says what it has seen.
TAKEOVER_LIMIT: Final = timedelta(seconds=60)


class Holders:
    """Follows the Lease of one namespace for as long as `run` runs."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._moved = asyncio.Condition()
        self.terms: list[tuple[float, str]] = []
        """When, on the monotonic clock, which holder was seen first; empty: released."""

    @property
    def now(self) -> str:
        """Return the holder of the moment, empty where there is none."""
        return self.terms[-1][1] if self.terms else ""

    async def run(self) -> None:
        """Follow until cancelled."""
        async for event in self._api.follow(LEASES, self._namespace):
            if event.type == "DELETED" or event.object["metadata"]["name"] != LEASE:
                continue
            holder = event.object["spec"].get("holderIdentity") or ""
            if not self.terms or holder != self.now:
                async with self._moved:
                    self.terms.append((time.monotonic(), holder))
                    self._moved.notify_all()

    async def wait_after(self, former: str, since: float) -> timedelta:
        """Wait until another process than the `former` holder has the Lease; return how long.

        `since` is a moment on the monotonic clock. Raises TimeoutError with all holders.
        """

        def find() -> float | None:
            later = (at for at, holder in self.terms if at >= since and holder not in ("", former))
            return next(later, None)

        try:
            async with asyncio.timeout(TAKEOVER_LIMIT.total_seconds()), self._moved:
                await self._moved.wait_for(lambda: find() is not None)
        except TimeoutError as late:
            text = f"no other process than {former} since {since:.1f}: {self.terms[-5:]}"
            raise TimeoutError(text) from late
        return timedelta(seconds=(find() or since) - since)
