"""No answer of either port tells which versions it was made with (SEC-13)."""

import re

import pytest

from rollout_operator.web.http.bodies import MAX_BODY
from rollout_operator.web.http.cluster import ClusterRules
from tests.web import admin_world, webhook_world
from tests.web.webhook_world import PATH, Setting, body_of, post

STRICT = ClusterRules(namespace="prod", enabled=True, excluded_paths=("other",))
CLOSE = b"Host: x\r\nConnection: close\r\n"
MALFORMED = (
    pytest.param(b"GARBAGE\r\n\r\n", id="garbage"),
    pytest.param(b"GET / HTTP/9.9.9\r\n\r\n", id="no version of HTTP"),
    pytest.param(b"GET / HTTP/1.1\r\n: x\r\n\r\n", id="a header without name"),
    pytest.param(b"GET / HTTP/1.1\r\nX: " + b"y" * 10_000 + b"\r\n\r\n", id="a long header"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
    pytest.param(
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", id="two ways"
    ),
)


def tells_nothing(answer: bytes, status: int | None) -> None:
    head = answer.partition(b"\r\n\r\n")[0]
    assert status is None or head.split(b" ")[1] == b"%d" % status
    assert re.findall(rb"(?im)^server: *(.*?)\r?$", head) == [b"rollout-operator"]
    assert not re.search(rb"(?i)python|aiohttp", answer)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"GET /livez HTTP/1.1\r\n" + CLOSE + b"\r\n", 200, id="good"),
        pytest.param(b"HEAD /metrics HTTP/1.1\r\n" + CLOSE + b"\r\n", 200, id="HEAD"),
        pytest.param(b"GET /nothing HTTP/1.1\r\n" + CLOSE + b"\r\n", 404, id="no such path"),
        pytest.param(b"POST /metrics HTTP/1.1\r\n" + CLOSE + b"\r\n", 405, id="another method"),
        pytest.param(
            b"GET /livez HTTP/1.1\r\nExpect: x\r\n" + CLOSE + b"\r\n", 417, id="an expectation"
        ),
        pytest.param(b"GET /ready HTTP/1.1\r\n" + CLOSE + b"\r\n", 500, id="not ready"),
        *((*one.values, 400) for one in MALFORMED),
    ],
)
async def test_answers_of_the_admin_port(request_bytes: bytes, status: int) -> None:
    async with admin_world.serving() as world:
        tells_nothing(await world.send(request_bytes), status)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(post(body_of(), "Connection: close"), 200, id="good"),
        pytest.param(post(b"{}", "Connection: close"), 400, id="no review"),
        pytest.param(post(b"{}", "Connection: close", path="/x"), 404, id="no such path"),
        pytest.param(post(b"{}", length=MAX_BODY + 1), 413, id="too large"),
        pytest.param(post(b"{", "Connection: close", length=1000), 408, id="too slow"),
        pytest.param(b"GET %b HTTP/1.1\r\n" % PATH.encode() + CLOSE + b"\r\n", 405, id="GET"),
        pytest.param(
            post(b"{}", "Connection: close").replace(b"application/json", b"text/plain"),
            400,
            id="another type",
        ),
        *((*one.values, 400) for one in MALFORMED),
    ],
)
async def test_answers_of_the_webhook_port(request_bytes: bytes, status: int) -> None:
    setting = Setting(request_timeout=300 * webhook_world.MILLISECOND)
    async with webhook_world.serving(setting) as world:
        line = await world.connect()
        line.writer.write(request_bytes)
        tells_nothing(await line.rest(), status)


async def test_answers_to_those_who_want_another_cluster() -> None:
    async with webhook_world.serving(Setting(cluster=STRICT)) as world:
        line = await world.connect()
        line.writer.write(post(body_of(), "Connection: close"))
        tells_nothing(await line.rest(), 511)
    async with admin_world.serving(STRICT) as world:
        tells_nothing(await world.send(b"GET /x HTTP/1.1\r\n" + CLOSE + b"\r\n"), 511)
