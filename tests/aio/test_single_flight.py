"""One call serves all who wait for it, and none whose question it may be too old for (D-20)."""

import asyncio
from collections.abc import Awaitable

import pytest

from rollout_operator.aio.single_flight import SingleFlight


class Rig:
    """Calls whose answers are their numbers; each answers when the test lets it."""

    def __init__(self) -> None:
        self.flights: SingleFlight[str, int] = SingleFlight()
        self.calls: list[asyncio.Future[None]] = []

    async def call(self) -> int:
        self.calls.append(asyncio.get_running_loop().create_future())
        number = len(self.calls)
        await self.calls[-1]
        return number

    def send_request(
        self, tasks: asyncio.TaskGroup, *, key: str = "a", least: int = 99
    ) -> asyncio.Task[int]:
        """Call; an answer that was underway before is taken from `least` on."""
        requested = self.flights.share(key, self.call, lambda number: number >= least)
        return tasks.create_task(requested)

    async def answer(self) -> None:
        """Answer the call in flight, once all callers wait for it."""
        await settle()
        self.calls[-1].set_result(None)
        await settle()


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_all_callers_before_the_answer_that_accept_it_share_one_call() -> None:
    rig = Rig()
    async with asyncio.TaskGroup() as tasks:
        requested = [rig.send_request(tasks, least=1) for _ in range(60)]
        await rig.answer()
    assert [task.result() for task in requested] == [1] * 60
    assert len(rig.calls) == 1


async def test_a_caller_after_the_call_began_that_needs_more_shares_the_next_one() -> None:
    """Whatever the next answer is: it began after they came."""
    rig = Rig()
    async with asyncio.TaskGroup() as tasks:
        first = rig.send_request(tasks)
        await settle()
        later = [rig.send_request(tasks) for _ in range(60)]
        await rig.answer()
        await rig.answer()
    assert first.result() == 1
    assert [task.result() for task in later] == [2] * 60
    assert len(rig.calls) == 2


async def test_keys_do_not_wait_for_each_other() -> None:
    rig = Rig()
    async with asyncio.TaskGroup() as tasks:
        requested = [rig.send_request(tasks, key=key) for key in ("a", "b")]
        await settle()
        for call in rig.calls:
            call.set_result(None)
    assert [task.result() for task in requested] == [1, 2]


@pytest.mark.parametrize("least", [1, 99])
async def test_a_caller_that_gives_up_takes_no_other_with_it(least: int) -> None:
    """One of those who waited calls anew, for all."""
    rig = Rig()
    async with asyncio.TaskGroup() as tasks:
        first = rig.send_request(tasks)
        await settle()
        later = [rig.send_request(tasks, least=least) for _ in range(3)]
        await settle()
        later[0].cancel()
        first.cancel()
        await settle()
        assert len(rig.calls) == 2
        await rig.answer()
    assert [task.result() for task in later[1:]] == [2, 2]
    assert len(rig.calls) == 2


async def test_nothing_is_kept_after_the_answer() -> None:
    rig = Rig()
    for number in (1, 2):
        async with asyncio.TaskGroup() as tasks:
            requested = rig.send_request(tasks, least=0)
            await rig.answer()
        assert requested.result() == number


async def test_an_error_is_that_of_its_caller() -> None:
    rig = Rig()

    async def fail() -> int:
        await rig.call()
        raise ValueError("broken")

    async with asyncio.TaskGroup() as tasks:
        failing = tasks.create_task(_error_of(rig.flights.share("a", fail, lambda number: True)))
        await settle()
        other = rig.send_request(tasks)
        await rig.answer()
        await rig.answer()
    assert failing.result() == "broken"
    assert other.result() == 2


async def _error_of(requested: Awaitable[int]) -> str:
    with pytest.raises(ValueError, match="broken") as caught:
        await requested
    return str(caught.value)
