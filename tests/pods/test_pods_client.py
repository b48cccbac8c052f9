"""One call to a pod: the bytes that are sent, what is a success, and how hostile answers end.

POD-01, RATE-07, PREP-20, PREP-21, SEED-014, SEED-016, SEED-116, SI-21, SI-23, SEC-11, SEC-12, D-27.
"""

import asyncio
import gzip
import re
import socket
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from rollout_operator import __version__
from rollout_operator.pods import MOST_PATHS, Method, PodClient
from rollout_operator.telemetry.metrics import REQUEST_BUCKETS, Metrics
from tests.pods.conftest import LONG, opened
from tests.pods.one_call import confirm, count_calls, fail
from tests.pods.pod_servers import OK, Answer, PodServers, Seen, endless, hang, reply, reset, status

BROKEN = "POST zone-a-4: connection closed without an answer"
INVALID = "POST zone-a-4: no valid HTTP answer, or too long headers"
LATE = "POST zone-a-4: no answer within 200ms"
# Its head holds the time, here one of quotation marks, which a line of the log escapes.
BOMB = gzip.compress(bytes(10**6), mtime=0x22222222)


@pytest.mark.parametrize("call", ["prepare_all", "cancel_all", "fetch_answers"])
async def test_a_request_has_exactly_these_bytes(client: PodClient, call: str) -> None:
    """PREP-20, RATE-07, POD-01, SEED-014, SEED-016, SEED-116, D-27: address, `Host`, port, path.

    SEED-075, DELAY-12: whatever it is for.
    """
    async with PodServers(status(200)) as pods:
        await getattr(client, call)([pods.endpoint(4, path="a/b.c~d")])
    method = "DELETE" if call == "cancel_all" else "POST"
    lines = pods.seen[0].head.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert pods.seen[0].ip == "127.0.0.104"
    assert lines[0] == f"{method} /a/b.c~d HTTP/1.1"
    assert sorted(lines[1:]) == [
        "Accept-Encoding: identity",
        "Accept: */*",
        "Connection: close",
        "Content-Length: 0",
        "Content-Type: application/json",
        f"Host: zone-a-4.zone-a.prod.svc.cluster.local.:{pods.port}",
        f"User-Agent: rollout-operator/{__version__}",
        "X-Cluster: prod",
    ]


async def test_no_callback_is_called_once_it_is_closed(client: PodClient) -> None:
    """FP-35: even where no pod was called before, so that no session is left open."""
    async with PodServers(status(200)) as pods:
        await client.close()
        errors = await client.prepare_all([pods.endpoint()])
    assert len(errors) == 1
    assert pods.seen == []


async def test_an_address_of_version_6_is_called(client: PodClient) -> None:
    """D-27, FP-38: a cluster without IPv4."""
    arrived: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    try:
        server = await asyncio.start_server(serve, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    port = server.sockets[0].getsockname()[1]
    async with PodServers(hang) as pods:
        await confirm(client, replace(pods.endpoint(), ip="::1", port=port))
    server.close()
    await server.wait_closed()
    assert f"Host: zone-a-0.zone-a.prod.svc.cluster.local.:{port}\r\n".encode() in arrived[0]


@pytest.mark.parametrize(
    "code",
    [200, 201, 202, 204, 206, 299, 101, 300, 304, 400, 401, 404, 407, 429, 500, 503, 511, 599],
)
async def test_every_2xx_is_a_success_and_every_other_status_a_failure(
    client: PodClient, code: int
) -> None:
    """PREP-21: tried once."""
    headers = ("WWW-Authenticate: Basic", "Retry-After: 0", "Connection: upgrade", "Upgrade: h2c")
    async with PodServers(status(code, *headers)) as pods:
        errors = await client.prepare_all([pods.endpoint(4)])
    expected = [] if 200 <= code < 300 else [f"POST zone-a-4: HTTP status {code}"]
    assert [f"{error}" for error in errors] == expected
    assert len(pods.seen) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(client: PodClient, code: int) -> None:
    """SEC-11, SI-21: neither to another server nor to the same."""
    async with PodServers(status(200)) as elsewhere, PodServers(status(200)) as pods:
        pods.answer = status(code, f"Location: http://127.0.0.1:{elsewhere.port}/metadata")
        error = await fail(client, pods.endpoint(4))
        pods.answer = status(code, "Location: /other")
        await fail(client, pods.endpoint(4), "DELETE")
    assert f"{error}" == f"POST zone-a-4: HTTP status {code}"
    assert elsewhere.connections == 0
    assert [seen.method for seen in pods.seen] == ["POST", "DELETE"]


async def test_cookies_are_not_kept(client: PodClient) -> None:
    """SEC-11."""
    async with PodServers(status(200, "Set-Cookie: a=b; Path=/", "Set-Cookie: c=d")) as pods:
        await confirm(client, pods.endpoint())
        await confirm(client, pods.endpoint())
    assert [b"cookie" in seen.head.lower() for seen in pods.seen] == [False, False]
    assert pods.connections == 2


async def drip(seen: Seen) -> None:
    while True:
        await seen.send(b"H")
        await asyncio.sleep(0.02)


async def drip_headers(seen: Seen) -> None:
    await seen.send(b"HTTP/1.1 200 OK\r\n")
    await drip(seen)


def big_headers(number: int, length: int) -> bytes:
    lines = [b"x-%d: %s" % (at, b"v" * length) for at in range(number)]
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(hang, LATE, id="nothing at all"),
        pytest.param(drip_headers, LATE, id="headers that never end"),
        pytest.param(
            endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", []), LATE, id="interim answers only"
        ),
        pytest.param(reset, BROKEN, id="reset after the request"),
        pytest.param(reply(b""), BROKEN, id="closed after the request"),
        pytest.param(reply(b"HTTP/1.1 200"), BROKEN, id="closed within the status"),
        pytest.param(reply(b"HTTP/1.1 200 OK\r\nA: b"), BROKEN, id="closed within a header"),
        pytest.param(reply(b"<html>hello</html>\n\n"), INVALID, id="SEC-11 HTTP/0.9"),
        pytest.param(drip, INVALID, id="no protocol"),
        pytest.param(reply(b"\x16\x03\x01" + bytes(500)), INVALID, id="TLS"),
        pytest.param(reply(big_headers(1, 2**20)), INVALID, id="SEC-11 one header of 1 MiB"),
        pytest.param(reply(big_headers(128, 8000)), INVALID, id="SEC-11 128 headers of 8 kB"),
        pytest.param(reply(big_headers(2**16, 8)), INVALID, id="SEC-11 65536 headers"),
        pytest.param(reply(big_headers(65, 1)), INVALID, id="SEC-11 65 headers"),
        pytest.param(
            reply(b"HTTP/1.1 200 " + b"x" * 2**20 + b"\r\n\r\n"), INVALID, id="reason of 1 MiB"
        ),
    ],
)
async def test_what_is_no_answer_is_a_failure_in_time(
    client: PodClient, hasty: PodClient, answer: Answer, text: str
) -> None:
    """SEC-11: the words are ours."""
    async with PodServers(answer) as pods:
        error = await fail(hasty if text == LATE else client, pods.endpoint(4))
    assert f"{error}" == text


async def test_headers_of_a_usual_size_are_taken(client: PodClient) -> None:
    """SEC-11: the limits leave room for what meshes add."""
    async with PodServers(reply(big_headers(40, 1000))) as pods:
        await confirm(client, pods.endpoint())


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"Content-Length: 10485760\r\n", id="10 MiB"),
        pytest.param(b"", id="until the end"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", id="one chunk of 256 MiB"),
    ],
)
async def test_a_long_body_is_left_unread(client: PodClient, metrics: Metrics, head: bytes) -> None:
    """SEC-11: the status is all that counts, of a success and of a failure."""
    sent: list[int] = []
    async with PodServers(hang) as pods:
        pods.answer = endless(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", bytes(4096), sent)
        await confirm(client, pods.endpoint(4))
        await pods.reach(lambda: pods.active == 0)
        pods.answer = endless(b"HTTP/1.1 500 No\r\n" + head + b"\r\n", bytes(4096), sent)
        error = await fail(client, pods.endpoint(4))
        await pods.reach(lambda: pods.active == 0)
    assert f"{error}" == "POST zone-a-4: HTTP status 500"
    # A few reads of ours, and what the kernel holds at both ends.
    assert [count < 400_000 for count in sent] == [True, True]


async def test_a_silent_body_delays_no_failure(client: PodClient) -> None:
    """PREP-21: the failure must stop the others now."""

    async def answer(seen: Seen) -> None:
        await seen.send(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n")
        await hang(seen)

    async with PodServers(answer) as pods, asyncio.timeout(10):
        error = await fail(client, pods.endpoint(4))
    assert f"{error}" == "POST zone-a-4: HTTP status 500"


@pytest.mark.parametrize(
    ("body", "headers", "shown"),
    [
        pytest.param(b"not \x1b[31mnow\n", (), r"not \\x1b[31mnow\\n", id="control characters"),
        pytest.param("a\u202eb\xff".encode() + b"\xff", (), r"a\\u202ebÿ�", id="odd characters"),
        pytest.param(b"x" * 1000, (), "x" * 200, id="long"),
        pytest.param(b"\0" * 1000, (), r"\\x00" * 50, id="long when escaped"),
        pytest.param(BOMB, ("Content-Encoding: gzip",), r"\\x1f", id="gzip bomb"),
        pytest.param(b'"' * 1000, (), '"' * 200, id="quotes"),
    ],
)
async def test_of_a_body_only_the_beginning_is_logged(
    client: PodClient,
    lines: list[str],
    body: bytes,
    headers: tuple[str, ...],
    shown: str,
) -> None:
    """SI-23, SEC-11: 200 escaped characters at debug level, and none in the error."""
    async with PodServers(status(500, *headers, body=body)) as pods:
        error = await fail(client, pods.endpoint(4))
    (line,) = [line for line in lines if "Pod refused" in line]
    # The line quotes what it holds: a backslash and a quotation mark stand there as two characters.
    quoted = line.partition("body=")[2].strip().removeprefix('"').removesuffix('"')
    excerpt = re.sub(r'\\([\\"])', r"\1", quoted)
    assert excerpt.startswith(shown.replace(r"\\", "\\"))
    assert len(excerpt) <= 200
    assert excerpt.isprintable()
    assert f"{error}" == "POST zone-a-4: HTTP status 500"


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("answer", [reset, reply(b"")], ids=["reset", "closed"])
async def test_nothing_is_sent_twice(client: PodClient, answer: Answer, method: Method) -> None:
    """PREP-22: one attempt each. The library repeats a DELETE by itself."""
    async with PodServers(answer) as pods:
        await fail(client, pods.endpoint(4), method)
    assert pods.connections == 1


async def test_a_pod_that_does_not_listen_got_nothing(client: PodClient) -> None:
    """SI-10: without a connection nothing was sent."""
    async with PodServers(hang) as pods:
        endpoint = pods.endpoint(4)
    for method in ("POST", "DELETE"):
        error = await fail(client, endpoint, method)
        assert f"{error}" == f"{method} zone-a-4: no connection: connection refused"
        assert not error.may_arrive


async def test_a_pod_that_cannot_be_reached_got_nothing(hasty: PodClient) -> None:
    """The time covers connecting too: a full queue of connections answers as a lost node does."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            other = sockets.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        async with PodServers(hang) as pods:
            port = full.getsockname()[1]
            error = await fail(hasty, replace(pods.endpoint(4), ip="127.0.0.1", port=port))
    assert f"{error}" == LATE


async def test_no_name_is_looked_up(client: PodClient) -> None:
    """SEC-12: even where a name gets this far, and means the right server."""
    async with PodServers(status(200)) as pods:
        error = await fail(client, replace(pods.endpoint(4), ip="localhost"))
    assert f"{error}" == "POST zone-a-4: no connection"
    assert pods.connections == 0


async def test_proxies_and_netrc_of_the_environment_are_not_for_pods(
    monkeypatch: pytest.MonkeyPatch, metrics: Metrics, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """W-29, D-27, POD-01: no proxy and no credential, unlike earlier releases."""
    netrc = tmp_path_factory.mktemp("netrc") / "netrc"
    netrc.write_text("default login a password b\n")
    netrc.chmod(0o600)
    async with PodServers(status(500)) as proxy, PodServers(status(200)) as pods:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NETRC", str(netrc))
        async with opened(LONG, metrics) as client:
            await confirm(client, pods.endpoint())
    assert proxy.connections == 0
    assert b"authorization" not in pods.seen[0].head.lower()


@pytest.mark.parametrize(
    ("answer", "may_arrive"),
    [(status(500), False), (status(404), False), (status(504), True), (hang, True), (reset, True)],
    ids=["500", "404", "504 of a proxy", "no answer", "broken connection"],
)
async def test_si10_whether_a_pod_may_still_act(
    hasty: PodClient, client: PodClient, answer: Answer, may_arrive: bool
) -> None:
    """SI-10: what was answered is over, whatever the answer; a proxy speaks for itself only."""
    async with PodServers(answer) as pods:
        caller = hasty if answer is hang else client
        assert (await fail(caller, pods.endpoint(), "DELETE")).may_arrive is may_arrive


async def test_calls_are_measured(client: PodClient, metrics: Metrics) -> None:
    """METR-21: path, method and status; error where none came."""
    async with PodServers(status(204)) as pods:
        await confirm(client, pods.endpoint(path="a/b"))
        pods.answer = status(500)
        await fail(client, pods.endpoint(path="a/b"), "DELETE")
        pods.answer = reset
        await fail(client, pods.endpoint(path="a/b"))
    assert count_calls(metrics) == {
        ("/a/b", "POST", "204"): 1,
        ("/a/b", "DELETE", "500"): 1,
        ("/a/b", "POST", "error"): 1,
    }
    name = b"rollout_operator_pod_http_client_request_duration_seconds_bucket"
    series = name + b'{path="/a/b",method="POST",status_code="204"'
    assert b"".join(metrics.render()).count(series) == len(REQUEST_BUCKETS) + 1


async def test_tenants_cannot_make_series_without_end(client: PodClient, metrics: Metrics) -> None:
    """W-59: the first paths have their own, the rest share one."""
    async with PodServers(status(200)) as pods:
        for number in range(MOST_PATHS + 5):
            await confirm(client, pods.endpoint(path=f"p{number}"))
        await confirm(client, pods.endpoint(path="p0"))
    assert [(path, count) for (path, *_), count in count_calls(metrics).items()] == [
        ("/p0", 2),
        *((f"/p{number}", 1) for number in range(1, MOST_PATHS)),
        ("other", 5),
    ]
