"""The end of the webhook server, and its whole life on the loop of production."""

import asyncio
from datetime import timedelta

import uvloop

from tests.web.webhook_world import (
    ALLOWED,
    MILLISECOND,
    Gate,
    Setting,
    WebhookWorld,
    body_of,
    ends,
    limited,
    post,
    serving,
)

SECOND = timedelta(seconds=1)


async def test_draining_answers_what_was_requested() -> None:
    """W-21: idle connections close, reviews in flight are answered, and nothing new comes in."""
    async with serving() as world:
        gate = Gate()
        idle, busy = await world.connect(), await world.connect()
        assert (await idle.send_request(post(body_of()))).body == ALLOWED
        await world.hold(busy, gate)
        silent = await world.dial()
        async with asyncio.TaskGroup() as tasks:
            draining = tasks.create_task(world.server.drain(10 * SECOND))
            assert await ends(idle)
            assert await ends(silent)
            assert not world.server.is_serving
            assert not draining.done()
            gate.opened.set()
            answer = await busy.read()

        assert (answer.body, answer.headers["connection"]) == (ALLOWED, "close")
        assert await ends(busy)


async def test_dep94_leaving_ends_a_connection_with_its_answer() -> None:
    """DEP-94: none is closed while a client may use it, and new ones get their one answer."""
    async with serving() as world:
        before = await world.connect()
        assert (await before.send_request(post(body_of()))).body == ALLOWED
        world.server.leave()
        for line in (before, await world.connect()):
            answer = await line.send_request(post(body_of()))
            assert (answer.body, answer.headers["connection"]) == (ALLOWED, "close")
            assert await ends(line)
        assert world.server.is_serving


async def test_draining_waits_for_a_body_on_its_way() -> None:
    """W-21: a request that has begun is answered."""
    async with serving() as world:
        line = await world.connect()
        body = body_of()
        # The second head comes with the first request, and has been read when that is answered.
        answer = await line.send_request(post(body) + post(body[:-1], length=len(body)))
        assert answer.body == (await world.send_request(post(body))).body == ALLOWED
        idle = await world.connect()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(world.server.drain(10 * SECOND))
            assert await ends(idle)
            line.writer.write(body[-1:])
            assert (await line.read()).body == ALLOWED


async def test_draining_has_a_limit() -> None:
    """W-21: a review that lasts is cancelled, and the process can end."""
    async with serving() as world:
        gate, line = Gate(), await world.connect()
        await world.hold(line, gate)
        async with asyncio.timeout(10):
            await world.server.drain(10 * MILLISECOND)

        assert await ends(line)


async def test_stopping_twice_and_before_starting() -> None:
    world = WebhookWorld(Setting())
    await world.server.stop()
    await world.server.start()
    assert world.server.is_serving
    await world.server.stop()
    await world.server.stop()
    assert not world.server.is_serving


def test_the_loop_of_production() -> None:
    """The same on uvloop: reviews, silent floods, slow heads, draining."""

    async def story() -> None:
        setting = limited(connections=8, handshake=SECOND, head=100 * MILLISECOND)
        async with serving(setting) as world:
            good = await world.connect()
            assert (await good.send_request(post(body_of()))).body == ALLOWED
            silent = [await world.dial() for _ in range(40)]
            assert (await good.send_request(post(body_of()))).body == ALLOWED
            assert all(await asyncio.gather(*(ends(line) for line in silent[:30])))
            slow = await world.connect()
            slow.writer.write(b"POST")
            assert await ends(slow)
            odd = await world.connect()
            odd.writer.write(b"\n\n\0")
            assert (await odd.rest()).startswith(b"HTTP/1.0 400 ")
            await world.server.drain(SECOND)
            assert await ends(good)

    uvloop.run(story())
