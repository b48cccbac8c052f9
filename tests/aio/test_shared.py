"""Many callers at a time cost as much as a single caller."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from rollout_operator.aio.shared import Shared, join_pieces, keep_a_second, keep_if_dear
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
