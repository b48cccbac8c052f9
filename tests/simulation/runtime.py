"""What a run stands on: virtual time, random sources, the operator's log, a supervised process.

As the kubelet does it for a Deployment of one replica: whatever ends the process, another begins
after a while. One that ends with an error of its own is begun again by the process itself.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.history import History, Lived, Record, Said
from rollout_lab.world import Sandbox

from rollout_operator.telemetry import logs
from tests.judge.promises import Violation
from tests.virtual_time import elapsed as now


def split(seed: int, what: str) -> random.Random:
    """Return a chance of its own: what one part draws changes nothing for another."""
    return random.Random(f"{seed} {what}")


DEFECT: Final = "BUG"
_STACK: Final = b" stack="


class LogRecorder(msgspec.Struct):
    """Takes all lines of a run."""

    listens: bool
    """Whether the lines from level info on go into the history."""
    history: History | None = None
    defects: list[Violation] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the log instead of stderr."""
        logs.configure(level="info" if self.listens else "error", write=self._take)
        try:
            yield
        finally:
            logs.configure()

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if _STACK in line:
            self.defects.append(Violation(invariant=DEFECT, at=now(), text=text))
        if self.listens and self.history is not None:
            # Its own time is the machine's, not that of the world.
            level, _, message = text.partition(" ")
            said = f"{level} {message.partition(' ')[2]}"
            self.history.add(Said(at=now(), actor="operator-1", text=said))


NAME: Final = "operator-1"
BACK_AFTER: Final = timedelta(seconds=1)


class Supervisor:
    """Starts one process of the operator again and again; `process` is the same each time."""

    def __init__(
        self,
        sandbox: Sandbox,
        args: Sequence[str] = (),
        *,
        has_webhooks: bool = False,
        elects: bool = False,
        name: str = NAME,
        back_after: timedelta = BACK_AFTER,
    ) -> None:
        self.process = sandbox.process(name, args=args, webhooks=has_webhooks, elects=elects)
        self.has_to_stop = False
        self._usual_pause = self._back_after = back_after
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
                await self._stop_if_requested()
            await self._pause()

    def crash(self, back_after: timedelta = BACK_AFTER) -> None:
        """End the present life without any clean-up."""
        if self.process.is_running:
            self._back_after = back_after
            self.process.crash()

    def terminate(self, back_after: timedelta = BACK_AFTER) -> None:
        if self.process.is_running and not self.has_to_stop:
            self._back_after = back_after
            self.has_to_stop = True
            self._wake.set()

    def hurry(self) -> None:
        """Make no more pause before it starts again: all is healed."""
        self._is_hasty = True
        self._wake.set()

    async def _stop_if_requested(self) -> None:
        if self.has_to_stop:
            await self.process.stop()
            self.has_to_stop = False

    async def _pause(self) -> None:
        if not self._is_hasty:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._back_after.total_seconds()):
                    await self._wake.wait()
        self._back_after = self._usual_pause

    def _listen(self, record: Record) -> None:
        is_ours = isinstance(record, Lived) and record.actor == self.process.name
        if is_ours and not self.process.is_running:
            self._wake.set()


Patient = Callable[[], Supervisor]
"""Finds the process that is struck and comes back: of several replicas the one that acts."""


def find_acting(replicas: Sequence[Supervisor]) -> Supervisor:
    """Return the replica that acts, the first while none does."""
    return next((one for one in replicas if one.process.acts), replicas[0])
