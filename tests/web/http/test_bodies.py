"""Bodies of reviews over TLS: too large, too many, too slow, ambiguous."""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.web.webhooks import MAX_BODY, MAX_ON_LOOP
from tests.web.webhook_world import ALLOWED, PATH, Setting, WebhookWorld, body_of, post, serving

MILLISECOND = timedelta(milliseconds=1)
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def padded(size: int) -> bytes:
    """Return a review of so many bytes."""
    body = body_of()
    return body + b" " * (size - len(body))


def chunks_of(body: bytes, size: int = 10_000) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post(padded(MAX_BODY)), id="D-50 the largest"),
        pytest.param(CHUNKED + chunks_of(padded(MAX_BODY)) + b"0\r\n\r\n", id="D-50 in chunks"),
        pytest.param(post(padded(MAX_ON_LOOP + 1)), id="decoded beside the loop"),
    ],
)
async def test_large_reviews_are_read(world: WebhookWorld, request_bytes: bytes) -> None:
    line = await world.connect()
    for _ in range(2):
        assert (await line.send_request(request_bytes)).body == ALLOWED


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post(b"{", length=MAX_BODY + 1), id="SEC-04 one byte more, as announced"),
        pytest.param(post(b"{", length=100 << 20), id="SEC-04 100 MiB"),
        pytest.param(CHUNKED + chunks_of(padded(MAX_BODY + 1)), id="SEC-04 endless chunks"),
    ],
)
async def test_larger_ones_are_not(world: WebhookWorld, request_bytes: bytes) -> None:
    """D-50: 413, and the connection ends without the rest."""
    line = await world.connect()
    answer = await line.send_request(request_bytes)

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert answer.body == f"request body: more than {MAX_BODY} bytes\n".encode()
    assert await line.rest() == b""
    assert world.hook.reviewed == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            id="SEC-08 both length and chunks",
        ),
        pytest.param(
            HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            id="SEC-08 CL.TE",
        ),
        pytest.param(
            HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", id="SEC-04 two lengths"
        ),
        pytest.param(HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", id="the same two"),
        pytest.param(HEAD + b"Content-Length: -2\r\n\r\n{}", id="SEC-04 length below zero"),
        pytest.param(HEAD + b"Content-Length: 0x2\r\n\r\n{}", id="SEC-04 no decimal length"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            id="SEC-08 TE.TE in one line",
        ),
        pytest.param(
            HEAD
            + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            id="SEC-08 TE.TE in two lines",
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="SEC-08 blank"
        ),
        pytest.param(
            HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 2\n\n{}", id="SEC-08 LF only"
        ),
        pytest.param(CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", id="no chunk size"),
        pytest.param(
            CHUNKED + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 5000, id="SEC-04 endless trailers"
        ),
        pytest.param(HEAD + b"X: y\r\n" * 1000 + b"\r\n", id="SEC-08 1,000 headers"),
        pytest.param(HEAD + b"X: " + b"y" * (64 << 10) + b"\r\n\r\n", id="SEC-08 64 KiB header"),
        pytest.param(b"GARBAGE\r\n\r\n", id="SEC-13 garbage"),
        pytest.param(b"GET / HTTP/9.9.9\r\n\r\n", id="SEC-13 no version of HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\n: x\r\n\r\n", id="SEC-13 a header without name"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="SEC-02 HTTP/2"),
    ],
)
async def test_ambiguous_requests_end_the_connection(
    world: WebhookWorld, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """No verdict, no second request from what is left, and no stack trace."""
    line = await world.connect()
    line.writer.write(request_bytes + post(body_of()))

    answer = await line.rest()
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert answer.count(b"\r\nDate: ") == 1, "one answer"
    assert world.hook.reviewed == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert (await world.send_request(post(body_of()))).body == ALLOWED


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post(b"{", length=1000), id="SEC-05 small"),
        pytest.param(post(b"{", length=MAX_BODY), id="SEC-05 large"),
        pytest.param(CHUNKED + b"1\r\n{\r\n", id="SEC-05 chunks"),
    ],
)
async def test_slow_bodies_are_cut(request_bytes: bytes) -> None:
    async with serving(Setting(request_timeout=100 * MILLISECOND)) as world:
        line = await world.connect()
        answer = await line.send_request(request_bytes)

        assert (answer.status, answer.body) == (408, b"the body did not come in time\n")
        line.writer.write(b" " * 10)
        await line.rest()
        assert world.hook.reviewed == []


async def test_a_body_that_breaks_off(world: WebhookWorld) -> None:
    """SEC-04: the length lies, the connection ends before."""
    line = await world.connect()
    line.writer.write(post(b"{", length=1000))
    await line.close()

    assert (await world.send_request(post(body_of()))).body == ALLOWED
    assert len(world.hook.reviewed) == 1


async def test_those_that_go_away_leave_room(world: WebhookWorld) -> None:
    """D-68: the room of those that go away while they send or wait is released."""
    half = post(padded(MAX_BODY // 2), length=MAX_BODY)
    for _ in range(3):
        lines = [await world.connect() for _ in range(6)]
        for line in lines:
            line.writer.write(half)
        await asyncio.gather(*(line.close() for line in lines))

    assert (await world.send_request(post(padded(MAX_BODY)))).body == ALLOWED


async def test_the_body_of_a_hazard_gets_its_400_soon(world: WebhookWorld) -> None:
    """SEC-07 over the wire: the connection lives on."""
    line = await world.connect()
    for hazard in (b"[" * 10**6, b"9" * 5000, "{}".encode("utf-16")):
        answer = await line.send_request(post(hazard))

        assert answer.status == 400
        assert answer.body.startswith(b"Request could not be decoded: ")
