"""Failures, limits, credentials and measurements of single requests.

RATE-01 to RATE-07, METR-14, METR-20, METR-22, FP-10 to FP-16, SI-18, SEC-14, DEP-11, DEP-20.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.kubeconfig import Credential, token_file
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    Gone,
    NotFound,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from tests.kube.client_bench import (
    BARE_WRITES,
    DELETE,
    FETCH,
    FETCH_PAGE,
    POD,
    POD_LIST,
    READS,
    SHORT,
    UPDATE,
    WATCH,
    WRITES,
    Bench,
    Use,
    open_bench,
    pods,
)
from tests.kube.fake_api import Answer, FakeApi, cut, refuse, reply, stream


def hold(until: asyncio.Event) -> Answer:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await until.wait()
        return web.json_response({})

    return answer


def lost(use: Use) -> type[ApiError]:
    return UnknownOutcome if use in WRITES else Unreachable


every_use = pytest.mark.parametrize("use", [*READS, *WRITES], ids=str)
every_write = pytest.mark.parametrize("use", WRITES, ids=str)


@every_use
@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        pytest.param(404, "NotFound", NotFound, id="404"),
        pytest.param(409, "Conflict", Conflict, id="FP-11 409"),
        pytest.param(410, "Expired", Gone, id="FP-10 410"),
        pytest.param(429, "TooManyRequests", TooManyRequests, id="FP-12 429"),
    ],
)
async def test_an_answer_becomes_its_error_after_one_request(
    bench: Bench, use: Use, code: int, reason: str, kind: type[ApiError]
) -> None:
    bench.server.on(use.method, use.path, refuse(code, reason, "because", Retry_After="3"))
    with pytest.raises(kind, match=f"{code} {reason}: because") as caught:
        await use.run(bench.client())
    assert len(bench.server.requests) == 1
    assert caught.value.status == code
    if isinstance(caught.value, TooManyRequests):
        assert caught.value.retry_after == timedelta(seconds=3)


@every_use
async def test_fp_14_an_answer_that_does_not_come_in_time(bench: Bench, use: Use) -> None:
    answers = asyncio.Event()
    bench.server.on(use.method, use.path, hold(answers))
    with pytest.raises(lost(use), match=r"no answer: timed out after 0\.5s") as caught:
        await use.run(bench.client(timeouts=SHORT))
    assert (caught.value.status, len(bench.server.requests)) == (0, 1)
    assert {key[1:] for key in bench.measured()} == {(use.method, "error")}
    answers.set()


@every_write
@pytest.mark.parametrize("warm_up", [0, 1], ids=["new connection", "kept connection"])
async def test_fp_13_a_write_whose_connection_breaks_is_sent_once(
    bench: Bench, use: Use, warm_up: int
) -> None:
    """aiohttp repeats a DELETE or PUT by itself: a committed delete would look like a 404."""
    bench.server.on(use.method, use.path, *[reply({})] * warm_up, cut())
    client = bench.client()
    for _ in range(warm_up):
        await use.run(client)
    with pytest.raises(UnknownOutcome, match=r"cannot tell whether .* succeeded: no answer"):
        await use.run(client)
    assert len(bench.server.requests) == warm_up + 1


@pytest.mark.parametrize("use", READS, ids=str)
async def test_fp_13_a_read_whose_connection_breaks(bench: Bench, use: Use) -> None:
    bench.server.on(use.method, use.path, cut())
    with pytest.raises(Unreachable, match=f"cannot {'get' if use is FETCH else ''}"):
        await use.run(bench.client())


HEAD = "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n"


@pytest.mark.parametrize("use", [FETCH, FETCH_PAGE], ids=str)
async def test_fp_13_half_an_object_is_none(bench: Bench, use: Use) -> None:
    bench.server.on(use.method, use.path, cut(HEAD.format(200).encode() + b'{"items":[]}'))
    with pytest.raises(Unreachable):
        await use.run(bench.client())


@pytest.mark.parametrize("use", BARE_WRITES, ids=str)
async def test_a_write_has_succeeded_once_its_status_says_so(bench: Bench, use: Use) -> None:
    bench.server.on(use.method, use.path, cut(HEAD.format(200).encode() + b"{"))
    await use.run(bench.client())


@every_write
async def test_a_write_has_failed_as_its_status_says_without_the_body(
    bench: Bench, use: Use
) -> None:
    bench.server.on(use.method, use.path, cut(HEAD.format(409).encode() + b"{"))
    with pytest.raises(Conflict):
        await use.run(bench.client())


@every_use
async def test_a_server_that_is_not_there_is_unreachable_for_writes_too(use: Use) -> None:
    async with FakeApi() as server:
        gone = server.url
    async with open_bench(server, gone) as bench:
        with pytest.raises(
            Unreachable, match=r"Cannot connect to host 127\.0\.0\.1:\d+: Connection refused$"
        ):
            await use.run(bench.client())
        assert {key[2] for key in bench.measured()} == {"error"}


@every_use
@pytest.mark.parametrize("code", [301, 303, 307])
async def test_sec_14_redirects_are_not_followed(bench: Bench, use: Use, code: int) -> None:
    bench.server.on(use.method, use.path, reply({}, code, Location="/elsewhere"))
    with pytest.raises(lost(use), match=f"redirect, HTTP status {code}"):
        await use.run(bench.client())
    assert [request.path for request in bench.server.requests] == [use.path]


@pytest.mark.parametrize("use", READS, ids=str)
async def test_a_page_of_a_proxy_is_no_answer(bench: Bench, use: Use) -> None:
    bench.server.on(use.method, use.path, reply(b"<html>", 200, Content_Type="text/html"))
    with pytest.raises(Unreachable, match="not an answer of an API server: content type 'text/"):
        await use.run(bench.client())


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"items":[]}', b'{"metadata":{"resourceVersion":3}}', b"\xff"],
    ids=["cut", "array", "no metadata", "version is a number", "no text"],
)
async def test_fp_13_a_list_that_is_none(bench: Bench, body: bytes) -> None:
    bench.server.on("GET", POD_LIST, reply(body))
    with pytest.raises(Unreachable, match="cannot list pods in namespace prod: the answer is no"):
        await FETCH_PAGE.run(bench.client())


async def test_a_long_page_of_an_error_is_cut(bench: Bench) -> None:
    bench.server.on("GET", POD, reply(b"<p>\n" * 1_000_000, 502, Content_Type="text/html"))
    with pytest.raises(Unreachable) as caught:
        await FETCH.run(bench.client())
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


async def test_an_answer_without_measure_is_cut_off(bench: Bench) -> None:
    chunk = b" " * 1_000_000

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield chunk

    bench.server.on("GET", POD, stream(endless()))
    with pytest.raises(Unreachable, match="longer than 33554432 bytes"):
        await FETCH.run(bench.client())


async def test_cancelling_a_call_passes_through(bench: Bench) -> None:
    answers, requested = asyncio.Event(), asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        requested.set()
        await answers.wait()
        return web.json_response({})

    bench.server.on("DELETE", POD, answer)
    call = asyncio.ensure_future(DELETE.run(bench.client()))
    await requested.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    answers.set()


async def test_metr_20_requests_are_measured_by_shape_method_and_status(bench: Bench) -> None:
    """METR-53: without namespaces and names."""
    bench.server.on("GET", POD, reply({}), refuse(404, "NotFound", ""))
    bench.server.on("GET", POD_LIST, reply(pods(1)))
    bench.server.on("PUT", UPDATE.path, reply({}, 201))
    client = bench.client()
    await FETCH.run(client)
    with pytest.raises(NotFound):
        await FETCH.run(client)
    await FETCH_PAGE.run(client)
    await UPDATE.run(client)
    assert bench.measured() == {
        ("core/v1/pods object", "GET", "200"): 1,
        ("core/v1/pods object", "GET", "404"): 1,
        ("core/v1/pods collection", "GET", "200"): 1,
        ("apps/v1/statefulsets object status subresource", "PUT", "201"): 1,
    }


# --- identity ----------------------------------------------------------------------------------


async def test_rate_07_a_server_of_another_cluster_is_reported_and_counted(
    bench: Bench, lines: list[str]
) -> None:
    body = {"cluster_validation_error_message": 'wrong label "ops"', "route": "api_pods"}
    bench.server.on("DELETE", POD, reply(json.dumps(body).encode(), 511))
    with pytest.raises(Denied, match='request rejected by the server: wrong label "ops"'):
        await DELETE.run(bench.client())
    counted = bench.metrics.client_invalid_cluster.labels("api_pods", "http", "ops")  # METR-14
    assert counted._value.get() == 1
    assert "another cluster" in lines[0]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


@every_use
async def test_dep_11_a_refused_token_is_read_again_at_once(token: Path, use: Use) -> None:
    good = stream([]) if use is WATCH else reply(pods(0))
    async with (
        FakeApi() as server,
        open_bench(server, credential=token_file(token, LoopClock())) as bench,
    ):
        server.on(use.method, use.path, refuse(401, "Unauthorized", "Unauthorized"), good)
        await asyncio.to_thread(token.write_text, "second")
        await use.run(bench.client())
    shown = [request.headers["authorization"] for request in server.requests]
    assert shown == ["Bearer first", "Bearer second"]


@every_use
async def test_sec_14_a_token_refused_twice_is_denied_and_never_shown(
    token: Path, use: Use, lines: list[str]
) -> None:
    async with (
        FakeApi() as server,
        open_bench(server, credential=token_file(token, LoopClock())) as bench,
    ):
        server.on(use.method, use.path, refuse(401, "Unauthorized", "got Bearer first"))
        with pytest.raises(Denied) as caught:
            await use.run(bench.client())
    assert len(server.requests) == 2
    assert "first" not in f"{caught.value!r}"
    assert "first" not in "".join(lines)


async def test_neither_netrc_nor_proxies_are_looked_up_for_a_call(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp would look both up for each request, in threads; a netrc would break every call."""
    netrc = tmp_path / "netrc"
    await asyncio.to_thread(netrc.write_text, "default login me password pw\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    bench.server.on("GET", POD, reply({}))
    await FETCH.run(bench.client())
    assert "authorization" not in bench.server.requests[0].headers


async def test_many_refused_calls_load_the_credential_once() -> None:
    loads = 0

    async def load() -> str:
        nonlocal loads
        loads += 1
        return "Bearer second"

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        is_good = request.headers["authorization"] == "Bearer second"
        return web.json_response({}, status=200 if is_good else 401)

    credential = Credential("Bearer first", load, LoopClock(), reread_every=timedelta(hours=1))
    async with FakeApi() as server, open_bench(server, credential=credential) as bench:
        server.on("GET", POD, answer)
        client = bench.client()
        await asyncio.gather(*[FETCH.run(client) for _ in range(20)])
    assert loads == 1
