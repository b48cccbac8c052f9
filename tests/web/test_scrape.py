"""Many who scrape at a time cost as much as one."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from rollout_operator.web.admin import Scrapes
from tests.fakes_clock import FakeClock
from tests.virtual_time import in_virtual_time
from tests.web.admin_world import serving

MILLISECOND = timedelta(milliseconds=1)


class Page:
    """Metrics whose page of three pieces takes a time to make."""

    def __init__(self, takes: timedelta = 30 * MILLISECOND) -> None:
        self.clock = FakeClock()
        self.takes = takes
        self.begun = 0
        self.at_once = 0
        self.breaks = False
        self.scrapes = Scrapes(self.render, self.clock)

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
async def test_those_who_ask_at_a_time_share_one_page() -> None:
    page = Page()
    pages = await asyncio.gather(*(page.scrapes.get() for _ in range(30)))

    assert page.begun == 1
    assert set(pages) == {b"1/0 1/1 1/2 "}
    assert all(one is pages[0] for one in pages), "one copy in memory"


@in_virtual_time
async def test_who_comes_in_the_middle_shares_it_too() -> None:
    page = Page()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(page.scrapes.get())
        await asyncio.sleep(0)
        second = tasks.create_task(page.scrapes.get())
    assert first.result() is second.result()


@pytest.mark.parametrize(
    ("takes", "kept"),
    [
        pytest.param(30 * MILLISECOND, 270 * MILLISECOND, id="a tenth of the loop"),
        pytest.param(600 * MILLISECOND, 1000 * MILLISECOND, id="a second at most"),
        pytest.param(timedelta(0), timedelta(0), id="what costs nothing is always new"),
    ],
)
@in_virtual_time
async def test_a_page_is_kept_for_as_long_as_it_is_dear(takes: timedelta, kept: timedelta) -> None:
    page = Page(takes)
    first = await page.scrapes.get()
    if kept:
        page.clock.jump(kept - MILLISECOND)
        assert await page.scrapes.get() is first
        page.clock.jump(MILLISECOND)
    assert (await page.scrapes.get()).startswith(b"2/")


@in_virtual_time
async def test_where_the_one_who_makes_it_goes_another_does() -> None:
    page = Page()
    async with asyncio.TaskGroup() as tasks:
        maker = tasks.create_task(page.scrapes.get())
        await asyncio.sleep(0)
        waiting = [tasks.create_task(page.scrapes.get()) for _ in range(3)]
        await asyncio.sleep(0)
        maker.cancel()
    assert page.begun == 2
    assert {one.result() for one in waiting} == {b"2/0 2/1 2/2 "}


@in_virtual_time
async def test_a_page_that_cannot_be_made_is_tried_again() -> None:
    page = Page()
    page.breaks = True
    broken = await asyncio.gather(*(page.scrapes.get() for _ in range(2)), return_exceptions=True)
    assert [str(one) for one in broken] == ["broken"] * 2
    page.breaks = False
    assert await page.scrapes.get() == b"3/0 3/1 3/2 "


async def test_parallel_scrapes_over_http_are_one() -> None:
    async with serving() as world:
        begun = []

        def read() -> float:
            begun.append(1)
            return 0.0

        world.metrics.watch_age("pods", read)
        pages = await asyncio.gather(*(world.get("/metrics") for _ in range(30)))

        assert {status for status, _ in pages} == {200}
        assert len(begun) < 30
