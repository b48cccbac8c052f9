"""One token bucket per API group for the whole process (RATE-01 to RATE-04, T-12, D-65): stories.

Callers are shown with the second in which they got their token: `delete/DELETE` has a priority.
"""

import asyncio
import gc
from collections.abc import Coroutine
from datetime import timedelta
from itertools import groupby
from typing import Final

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, Call, discovery_call
from rollout_operator.kube.rate_limit import Priority, RateLimiter, choose_priority, name_bucket
from rollout_operator.model.names import Throttled
from tests import stories
from tests.stories import check_stories
from tests.virtual_time import elapsed, in_virtual_time

APPS: Final = "apps"


class LimitStage(stories.Steps):
    """Callers of the buckets of one process."""

    def __init__(self) -> None:
        self.limits = RateLimiter(1, 1)
        self.served: list[tuple[float, str]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.stack.push_async_callback(self.do_end)

    def look(self) -> list[str]:
        served, self.served = self.served, []
        return [
            f"{at:g} {' '.join(name for _, name in same)}"
            for at, same in groupby(served, lambda one: one[0])
        ]

    async def do_limits(self, qps: str, burst: str) -> None:
        self.limits = RateLimiter(float(qps), int(burst))

    async def do_join(self, *names: str) -> None:
        """Have callers wait, one behind the other."""
        for name in names:
            await self._begin(name, self._take(name))

    async def do_calls(self, *names: str) -> None:
        """Have calls of controllers wait: `get/LIST` is a read of one that lists."""
        for name in names:
            await self._begin(name, self._admit(name))

    async def _begin(self, name: str, work: Coroutine[object, object, None]) -> None:
        self.tasks[name] = asyncio.ensure_future(work)
        await self.settle()

    async def _take(self, name: str) -> None:
        short, _, priority = name.partition("/")
        await self.limits.take(APPS, Priority[priority or "READ"])
        self.served.append((round(elapsed().total_seconds(), 2), short))

    async def _admit(self, name: str) -> None:
        verb, _, reads = name.partition("/")
        call = Call(verb, PODS, "prod", "a-0")
        await self.limits.admit(call, Priority[reads], timedelta(minutes=1))
        self.served.append((round(elapsed().total_seconds(), 2), name))

    async def do_leave(self, name: str, after: str = "0") -> None:
        """Cancel a caller, at once or just before others run at a second."""
        asyncio.get_running_loop().call_later(float(after), self.tasks[name].cancel)
        await self.settle()

    async def do_take(self, within: str, priority: str = "READ", group: str = APPS) -> str:
        began = elapsed()
        try:
            limit = timedelta(seconds=float(within))
            await self.limits.take(group, Priority[priority], limit)
        except Throttled as error:
            text = str(error).partition('group "')[2].replace('"', "")
            return f"{text}; waited {(elapsed() - began).total_seconds():g}s"
        return f"taken after {(elapsed() - began).total_seconds():.4g}s"

    async def do_begin(self, within: str, priority: str) -> None:
        """Have a caller with a deadline wait; `result` is what came of it."""
        self.late = asyncio.ensure_future(self.do_take(within, priority))
        await self.settle()

    async def do_result(self) -> str:
        return f"{await self.late} until {elapsed().total_seconds():.4g}s"

    async def do_line(self) -> str:
        return self.limits.describe_line() or "no line"

    async def do_end(self) -> None:
        """Wait for all."""
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def do_flood(self, priority: str, each: str, rounds: str) -> None:
        """Have so many callers come at once, again as soon as all of them are served."""
        await self._begin("flood", self._flood(Priority[priority], int(each), int(rounds)))

    async def _flood(self, priority: Priority, each: int, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.gather(*(self.limits.take(APPS, priority) for _ in range(each)))

    async def do_insist(self, clients: str, seconds: str) -> str:
        """Have clients give up after 100 ms and come again; say how many tokens flow."""
        taken = 0

        async def insist() -> None:
            nonlocal taken
            while elapsed().total_seconds() < float(seconds):
                try:
                    async with asyncio.timeout(0.1):
                        await self.limits.take(APPS, within=timedelta(milliseconds=90))
                except Throttled:
                    await asyncio.sleep(0.001)
                except TimeoutError:
                    pass
                else:
                    taken += 1

        await asyncio.gather(*(insist() for _ in range(int(clients))))
        return f"{taken} taken"

    async def do_bucket(self, group: str, version: str = "") -> str:
        """Discover a group of which an annotation names the name."""
        call = discovery_call(group, version) if version else discovery_call(group)
        try:
            await self.limits.admit(call, Priority.READ, timedelta(0))
        except Throttled as error:
            return f"{error.call}: {str(error).partition('group ')[2].partition(':')[0]}"
        return "taken"

    async def do_name(self, verb: str, reads: str = "READ") -> str:
        """Show bucket and priority of a call."""
        call = Call(verb, STATEFULSETS, "prod", "a", "scale")
        return f"{name_bucket(call)} {choose_priority(call, Priority[reads]).name}"


test_story = in_virtual_time(check_stories(__file__, rate_limit=LimitStage))


@in_virtual_time
async def test_full_buckets_do_not_pile_up() -> None:
    """A bucket that is full is as good as a new one; one that is not is kept."""
    limits = RateLimiter(1, 2)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(300):
        await limits.take(f"g{number}.example.com", within=timedelta(0))
        await asyncio.sleep(10)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    await limits.take("kept", within=timedelta(0))
    await limits.take("kept", within=timedelta(0))
    await limits.take("other", within=timedelta(0))
    with pytest.raises(Throttled):
        await limits.take("kept", within=timedelta(0))
