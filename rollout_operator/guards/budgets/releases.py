"""Withdraw the records of grants that nothing will come of.

Mostly the request waits for it: then its answer says that nothing is left. A client that hangs up,
or an answer that was not there in time, leaves a record that this process knows was written and
that no answer reported. It is withdrawn in the background, so that others need not wait until the
pod is proven untouched (LI-09). What cannot be withdrawn soon stays in doubt: whether the pod is
untouched is found out by the controller of disruptions.
"""

import asyncio
from datetime import timedelta
from typing import Final

from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.budgets.pod_records import Recorder
from rollout_operator.guards.budgets.request import Grant
from rollout_operator.telemetry.logs import log

# As long as an answer may take: others who wait for this grant to be settled wait no longer.
LIMIT: Final = timedelta(seconds=4)


class Withdrawals:
    """Withdraws grants, in the background for as long as `run` runs."""

    def __init__(self, pending: InFlight, recorder: Recorder) -> None:
        self._pending = pending
        self._recorder = recorder
        self._abandoned: asyncio.Queue[Grant] | None = None

    async def withdraw(self, grant: Grant) -> None:
        """Leave nothing behind of a grant of which no answer has told, or none will be used."""
        if await self._recorder.withdraw(grant):
            self._pending.release(grant)
        else:
            self._pending.doubt(grant)

    def abandon(self, grant: Grant) -> None:
        """Nothing waits for a grant any more whose record was answered; a settled one is fine."""
        if not self._pending.is_open(grant):
            return
        if self._abandoned is None or not grant.record:
            self._pending.give_up(grant)
        else:
            self._abandoned.put_nowait(grant)

    async def run(self) -> None:
        """Withdraw what is abandoned until cancelled; the rest stays in doubt then."""
        queue: asyncio.Queue[Grant] = asyncio.Queue()
        self._abandoned = queue
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    grant = await queue.get()
                    work = self._withdraw_soon(grant)
                    tasks.create_task(work, name=f"withdrawal of {grant.pod.name}")
        finally:
            self._abandoned = None
            while not queue.empty():
                self._pending.give_up(queue.get_nowait())

    async def _withdraw_soon(self, grant: Grant) -> None:
        try:
            async with asyncio.timeout(LIMIT.total_seconds()):
                await self.withdraw(grant)
        except TimeoutError:
            log.debug("Record of a disruption was not withdrawn in time", pod=grant.pod.name)
        finally:
            self._pending.give_up(grant)
