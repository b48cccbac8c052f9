"""One operator that is kept running: whatever ends its process, another life begins after a while.

As the kubelet does it for a Deployment of one replica. A life that ends with an error of its own is
begun again by the process itself.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from rollout_operator.lab.model.history import Lived, Record
from rollout_operator.lab.world import Sandbox

NAME: Final = "operator-1"
BACK_AFTER: Final = timedelta(seconds=1)


class Keeper:
    """Begins the lives of one process of the operator; `process` is the same in all of them."""

    def __init__(
        self,
        sandbox: Sandbox,
        args: Sequence[str] = (),
        *,
        has_webhooks: bool = False,
        name: str = NAME,
    ) -> None:
        self.process = sandbox.process(name, args=args, webhooks=has_webhooks)
        self.has_to_stop = False
        self._back_after = BACK_AFTER
        self._is_hasty = False
        self._wake = asyncio.Event()
        sandbox.history.listeners.append(self._listen)

    async def run(self) -> None:
        """Keep one life after the other going until cancelled."""
        while True:
            self._wake.clear()
            self.process.start()
            while self.process.is_running:
                await self._wake.wait()
                self._wake.clear()
                await self._stop_if_told()
            await self._pause()

    def crash(self, back_after: timedelta = BACK_AFTER) -> None:
        """End the present life without any clean-up."""
        if self.process.is_running:
            self._back_after = back_after
            self.process.crash()

    def terminate(self, back_after: timedelta = BACK_AFTER) -> None:
        """Tell the present life to stop in order."""
        if self.process.is_running and not self.has_to_stop:
            self._back_after = back_after
            self.has_to_stop = True
            self._wake.set()

    def hurry(self) -> None:
        """Make no more pause between lives: all is healed."""
        self._is_hasty = True
        self._wake.set()

    async def _stop_if_told(self) -> None:
        if self.has_to_stop:
            await self.process.stop()
            self.has_to_stop = False

    async def _pause(self) -> None:
        if not self._is_hasty:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._back_after.total_seconds()):
                    await self._wake.wait()
        self._back_after = BACK_AFTER

    def _listen(self, record: Record) -> None:
        is_ours = isinstance(record, Lived) and record.actor == self.process.name
        if is_ours and not self.process.is_running:
            self._wake.set()
