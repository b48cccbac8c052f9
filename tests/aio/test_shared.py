"""Many callers at a time cost as much as a single caller."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import pytest

from rollout_operator.aio.tasks import (
    Shared,
    SingleFlight,
    join_pieces,
    keep_a_second,
    keep_if_dear,
)
from tests.fakes_clock import FakeClock
from tests.virtual_time import in_virtual_time

MILLISECOND = timedelta(milliseconds=1)


class Page:
    """A page of three pieces that takes a time to make."""

    def __init__(
        self,
        takes: timedelta = 30 * MILLISECOND,
        keep: Callable[[timedelta], timedelta] = keep_if_dear,
    ) -> None:
        self.clock = FakeClock()
        self.takes = takes
        self.begun = 0
        self.at_once = 0
        self.breaks = False
        self.shared = Shared(lambda: join_pieces(self.render), self.clock, keep)

    def render(self) -> Iterator[bytes]:
        self.begun += 1
        self.at_once += 1
        assert self.at_once == 1
        try:
            for piece in range(3):
                self.clock.jump(self.takes / 3)
                if self.breaks:
                    raise ValueError("broken")
                yield b"%d/%d " % (self.begun, piece)
        finally:
            self.at_once -= 1


@in_virtual_time
async def test_requests_at_a_time_share_one_page() -> None:
    page = Page()
    pages = await asyncio.gather(*(page.shared.get() for _ in range(30)))

    assert page.begun == 1
    assert set(pages) == {b"1/0 1/1 1/2 "}
    assert all(one is pages[0] for one in pages), "one copy in memory"


@in_virtual_time
async def test_a_caller_in_the_middle_shares_it_too() -> None:
    page = Page()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(page.shared.get())
        await asyncio.sleep(0)
        second = tasks.create_task(page.shared.get())
    assert first.result() is second.result()


@pytest.mark.parametrize(
    ("keep", "takes", "kept"),
    [
        pytest.param(keep_if_dear, 30, 270, id="a tenth of the loop"),
        pytest.param(keep_if_dear, 600, 1000, id="a second at most"),
        pytest.param(keep_if_dear, 0, 0, id="what costs nothing is always new"),
        pytest.param(keep_a_second, 0, 1000, id="a second, where that is wanted"),
        pytest.param(keep_a_second, 30, 5970, id="more for what is dear: by its cost"),
        pytest.param(keep_a_second, 3000, 10000, id="not for ever"),
    ],
)
@in_virtual_time
async def test_a_page_is_kept_for_a_time(
    keep: Callable[[timedelta], timedelta], takes: int, kept: int
) -> None:
    page = Page(takes * MILLISECOND, keep)
    first = await page.shared.get()
    if kept:
        page.clock.jump((kept - 1) * MILLISECOND)
        assert await page.shared.get() is first
        page.clock.jump(MILLISECOND)
    assert (await page.shared.get()).startswith(b"2/")


@in_virtual_time
async def test_where_its_maker_goes_another_makes_it() -> None:
    page = Page()
    async with asyncio.TaskGroup() as tasks:
        maker = tasks.create_task(page.shared.get())
        await asyncio.sleep(0)
        waiting = [tasks.create_task(page.shared.get()) for _ in range(3)]
        await asyncio.sleep(0)
        maker.cancel()
    assert page.begun == 2
    assert {one.result() for one in waiting} == {b"2/0 2/1 2/2 "}


@in_virtual_time
async def test_a_page_that_cannot_be_made_is_tried_again() -> None:
    page = Page()
    page.breaks = True
    broken = await asyncio.gather(*(page.shared.get() for _ in range(2)), return_exceptions=True)
    assert [str(one) for one in broken] == ["broken"] * 2
    page.breaks = False
    assert await page.shared.get() == b"3/0 3/1 3/2 "


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
