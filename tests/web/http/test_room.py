"""How fast large bodies must come, and how they share the memory that there is (D-50, D-68)."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any, cast

import pytest
from aiohttp import web

from rollout_operator.model.decode.wire import SMALL
from rollout_operator.model.scaling import Review
from rollout_operator.web.webhooks import (
    LEAST,
    LEAST_CROWDED,
    MAX_BODIES,
    MAX_BODY,
    MAX_WAITING,
    Bodies,
    Rejected,
)
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.web.webhook_world import body_of

pytestmark = pytest.mark.thorough

SECOND = timedelta(seconds=1)
LIMIT = 9 * SECOND
PART = 1 << 15
SLOW = (408, f"the body comes with less than {LEAST} bytes/s")
LATE = (408, "the body did not come in time")
MANY = (429, "too many large requests at a time; try again")


class Hand(Executor):
    """A thread that works when the test wants."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def work(self) -> None:
        """Do what has been requested."""
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()


class Soon(Hand):
    """A thread that works at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self.work()
        return future


class Upload:
    """A request whose body comes at a pace, in parts: what is read of aiohttp's request."""

    def __init__(self, body: bytes, per_s: float, *, announced: int | None = -1) -> None:
        self.content_length = len(body) if announced == -1 else announced
        self.can_read_body = True
        self.content = self
        self.per_s = per_s
        self.left = memoryview(body)
        self.comes_at: float | None = None

    def as_request(self) -> web.BaseRequest:
        return cast(web.BaseRequest, self)

    def is_eof(self) -> bool:
        return False

    def at_eof(self) -> bool:
        return not self.left

    def read_nowait(self) -> bytes:
        raise AssertionError("never whole at once")

    async def readany(self) -> bytes:
        size = PART if self.per_s >= PART else 1024
        now = asyncio.get_running_loop().time()
        # What is waited for in two steps does not begin anew.
        if self.comes_at is None:
            self.comes_at = now + (size / self.per_s if self.per_s else 3600)
        await asyncio.sleep(self.comes_at - now)
        self.comes_at = None
        part, self.left = self.left[:size], self.left[size:]
        return bytes(part)


class Stalling(Upload):
    """Comes at a pace up to a size, and then no more."""

    def __init__(self, body: bytes, per_s: float, *, until: int) -> None:
        super().__init__(body, per_s)
        self.stop = len(body) - until

    async def readany(self) -> bytes:
        if len(self.left) <= self.stop:
            self.per_s = 0
        return await super().readany()


def padded(size: int) -> bytes:
    body = body_of()
    return body + b" " * (size - len(body))


def make_bodies(thread: Executor | None = None) -> Bodies:
    return Bodies(VirtualClock(), thread or Soon())


async def read(bodies: Bodies, upload: Upload) -> tuple[int, str]:
    """Return 200, or the status and the text of the rejection."""
    until = VirtualClock().elapsed() + LIMIT
    try:
        review = await bodies.read(upload.as_request(), until)
    except Rejected as error:
        return error.status, str(error)
    assert isinstance(review, Review)
    return 200, ""


@pytest.mark.parametrize(
    ("upload", "expected", "after"),
    [
        pytest.param(Upload(padded(MAX_BODY), 10.0), SLOW, 1.0, id="D-68 a drip of a large one"),
        pytest.param(Upload(padded(MAX_BODY), LEAST - 1000), SLOW, 1.0, id="D-68 not quite"),
        pytest.param(Upload(padded(4 * LEAST), LEAST + 2000), (200, ""), 3.8, id="D-68 just fast"),
        pytest.param(
            Upload(padded(20 * LEAST), LEAST * 1.5), LATE, 9.0, id="fast, and not in time"
        ),
        pytest.param(Upload(padded(LEAST), 8192), (200, ""), 8.0, id="D-68 a small one has time"),
        pytest.param(Upload(padded(LEAST), 1024), LATE, 9.0, id="a small one that is late"),
        pytest.param(
            Upload(padded(LEAST), 8192, announced=None), (200, ""), 8.0, id="in chunks, small"
        ),
        pytest.param(
            Upload(padded(4 * LEAST), LEAST / 2 + 1, announced=None), SLOW, 2.0, id="D-68 in chunks"
        ),
        pytest.param(
            Stalling(padded(MAX_BODY), 1 << 22, until=3 * LEAST), SLOW, 4.0, id="D-68 stalls"
        ),
    ],
)
@in_virtual_time
async def test_d68_a_large_body_must_come_at_a_pace(
    upload: Upload, expected: tuple[int, str], after: float
) -> None:
    bodies = make_bodies()
    begin = VirtualClock().elapsed()
    assert await read(bodies, upload) == expected
    lasted = (VirtualClock().elapsed() - begin).total_seconds()
    assert after <= lasted <= after + 1
    assert bodies.room.used == 0


@in_virtual_time
async def test_d68_room_is_charged_by_what_has_arrived() -> None:
    """Not by what is announced; the first 64 KiB are free."""
    bodies = make_bodies()
    async with asyncio.TaskGroup() as tasks:
        reads = [
            tasks.create_task(read(bodies, Upload(padded(MAX_BODY), LEAST - 1000)))
            for _ in range(20)
        ]
        fast = Stalling(padded(MAX_BODY), 1 << 22, until=5 * PART)
        stalling = tasks.create_task(read(bodies, fast))
        await asyncio.sleep(0.5)
        assert bodies.room.used == 5 * PART
        assert not bodies.room.is_crowded
    assert {one.result() for one in [*reads, stalling]} == {SLOW}


@in_virtual_time
async def test_d68_room_is_taken_until_the_thread_is_through() -> None:
    """The caller has gone, its task is cancelled: the bytes are still in memory."""
    thread = Hand()
    bodies = make_bodies(thread)
    async with asyncio.TaskGroup() as tasks:
        requested = tasks.create_task(read(bodies, Upload(padded(MAX_BODY), 1 << 24)))
        await asyncio.sleep(2)
        assert len(thread.jobs) == 1
        requested.cancel()
        await asyncio.sleep(1)
        assert bodies.room.used == MAX_BODY
        thread.work()
        await asyncio.sleep(1)
    assert bodies.room.used == 0


@in_virtual_time
async def test_d68_bodies_that_fill_the_room_together_all_become_whole() -> None:
    """Each has half of what it needs: one goes on at a time, and none is sent away."""
    bodies, most = make_bodies(), 0
    async with asyncio.TaskGroup() as tasks:
        reads = [
            tasks.create_task(read(bodies, Upload(padded(MAX_BODY), 1 << 24))) for _ in range(8)
        ]
        while not all(one.done() for one in reads):
            most = max(most, bodies.room.used)
            await asyncio.sleep(0.001)
    assert [one.result() for one in reads] == [(200, "")] * 8
    assert MAX_BODIES - MAX_BODY < most <= MAX_BODIES
    assert bodies.room.used == 0


@pytest.mark.parametrize("pace", [LEAST + 2000, LEAST_CROWDED / 2], ids=["a drip", "half fast"])
@pytest.mark.parametrize("count", [2, 40])
@in_virtual_time
async def test_d68_a_large_body_does_not_stand_in_line_behind_slow_ones(
    count: int, pace: float
) -> None:
    """They sent megabytes fast, and then just enough: where others wait, that is too slow."""

    class Slowing(Upload):
        async def readany(self) -> bytes:
            if len(self.left) < 2 * PART or bodies.room.is_crowded:
                self.per_s = pace
            return await super().readany()

    bodies = make_bodies()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(read(bodies, Slowing(padded(MAX_BODY), 1 << 23)))
        await asyncio.sleep(1.5)
        begin = VirtualClock().elapsed()
        assert await read(bodies, Upload(padded(2 * SMALL), 1 << 23)) == (200, "")
        assert VirtualClock().elapsed() - begin < 3 * SECOND


@in_virtual_time
async def test_d50_too_many_that_wait_are_sent_away() -> None:
    """Each that waits costs memory as well. Small ones are not held up."""
    thread = Hand()
    bodies = make_bodies(thread)
    async with asyncio.TaskGroup() as tasks:
        reads = [
            tasks.create_task(read(bodies, Upload(padded(MAX_BODY), 1 << 27)))
            for _ in range(1 + MAX_WAITING + 5)
        ]
        await asyncio.sleep(2)
        sent_away = [one.result() for one in reads if one.done()]
        assert set(sent_away) == {MANY}
        assert len(sent_away) == 5
        assert await read(bodies, Upload(body_of(), 1 << 20)) == (200, "")
        while not all(one.done() for one in reads):
            thread.work()
            await asyncio.sleep(0.01)
    assert bodies.room.used == 0
    assert sum(one.result() == (200, "") for one in reads) == len(reads) - 5


@in_virtual_time
async def test_d50_a_body_that_waits_in_vain_is_refused_to_be_tried_again() -> None:
    bodies = make_bodies(Hand())  # it never works
    async with asyncio.TaskGroup() as tasks:
        holding = [
            tasks.create_task(read(bodies, Upload(padded(MAX_BODY), 1 << 24))) for _ in range(2)
        ]
        await asyncio.sleep(1)
        assert await read(bodies, Upload(padded(MAX_BODY), 1 << 24)) == MANY
        for one in holding:
            one.cancel()


@in_virtual_time
async def test_a_review_in_parts_is_the_same_review() -> None:
    """What is copied into memory of its own comes out as it went in."""
    annotations = {f"note-{number}": "x" * 100 for number in range(3000)}
    body = body_of(object={**json.loads(body_of())["request"]["object"], "notes": annotations})
    bodies = make_bodies()
    review = await bodies.read(Upload(body, 1 << 23).as_request(), LIMIT)
    small = await bodies.read(Upload(body_of(), 1 << 23).as_request(), LIMIT)
    assert review == small
