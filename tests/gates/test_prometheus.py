"""What is asked of Prometheus, with which credentials, and what its answers mean."""

import asyncio
import json
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import DER_cert_to_PEM_cert
from typing import Any, Final

import pytest
from aiohttp import web

from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import Config
from rollout_operator.gates.model import HealthCheck, Number, QueryError, decode_health_check
from rollout_operator.gates.prometheus import AT_MOST, LIMIT, AllowedUrls, Asker, FetchSecret
from rollout_operator.model.names import NotFound
from rollout_operator.outbound import Outbound
from tests.gates.trees import health_check_tree
from tests.goldens import Golden
from tests.model.cases import attempt, split_texts
from tests.oci.registries import Answer, FakeRegistry, endless, hang, issue_tls, reply
from tests.stories import Story, read_stories

HERE: Final = Path(__file__).parent
AT: Final = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
QUERY: Final = "sum(up)"
# For servers that would take longer.
SHORT: Final = timedelta(seconds=3)


def configure(*patterns: str) -> Config:
    urls = f"-health-checks.allowed-urls={','.join(patterns)}"
    return replace(read_config(["-kubernetes.namespace=prod", urls]), watched=("prod", "dev"))


ANY: Final = AllowedUrls(configure("*"))


def keep(data: Mapping[str, str] | None) -> FetchSecret:
    """Return how a Secret with this data is read, or one that is not there."""

    async def fetch(namespace: str, name: str) -> bytes:
        if data is None:
            raise NotFound(f"secrets {namespace}/{name} is not there")
        encoded = {
            key: b64encode(value.encode(errors="surrogateescape")).decode()
            for key, value in data.items()
        }
        return json.dumps({"data": encoded}).encode()

    return fetch


def success(kind: str, result: object, **more: object) -> Answer:
    data = {"resultType": kind, "result": result}
    return reply(body=json.dumps({"status": "success", "data": data, **more}).encode())


async def trickle(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


def vector(*values: str) -> Answer:
    return success("vector", [{"metric": {}, "value": [1, value]} for value in values])


def histogram() -> Answer:
    buckets = {"count": "2", "sum": "3", "buckets": [[0, "0", "1", "2"]]}
    return success("vector", [{"metric": {}, "histogram": [1, buckets]}])


def sends(status: str, *body: str) -> Answer:
    return reply(int(status), "".join(body).encode())


def fails(status: str, kind: str, error: str) -> Answer:
    body = {"status": "error", "errorType": kind, "error": error}
    return reply(int(status), json.dumps(body).encode())


ANSWERS: Final[dict[str, Callable[..., Answer]]] = {
    "scalar": lambda value: success("scalar", [1, value]),
    "vector": vector,
    "histogram": histogram,
    "warned": lambda: success("scalar", [1, "5"], warnings=["a store is gone"], infos=["x"]),
    "typed": lambda kind, result: success(kind, json.loads(result)),
    "sends": sends,
    "fails": fails,
    "redirects": lambda: reply(302, Location="http://localhost:1/"),
    "hangs": lambda: hang,
    "trickles": lambda: trickle,
    "endless": lambda: endless([]),
    "gzip": lambda: reply(body=b"\x1f\x8b", Content_Encoding="gzip"),
    "headers": lambda: reply(body=b"{}", X="x" * 40000),
}


@pytest.fixture
async def server() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry(is_secure=False) as server:
        yield server


def make_check(url: str, secret: str | None = None) -> HealthCheck:
    tree = health_check_tree(prometheusURL=url, secretRef=secret and {"name": secret})
    found = decode_health_check(json.dumps(tree).encode())
    assert isinstance(found, HealthCheck)
    return found


async def ask(
    server: FakeRegistry,
    data: Mapping[str, str] | None = None,
    path: str = "",
    limit: timedelta = LIMIT,
) -> str:
    outbound = Outbound(limit)
    asker = Asker(outbound, keep(data), ANY)
    secret = None if data is None else "read"
    try:
        answer = await asker.ask(make_check(f"{server.url}{path}", secret), QUERY, AT)
    finally:
        await outbound.close()
    return show(answer)


def show(answer: object) -> str:
    return f"{answer.value}" if isinstance(answer, Number) else f"{answer}"


@pytest.mark.parametrize("story", read_stories(HERE / "answers.txt"))
async def test_answer(story: Story, golden: Golden, server: FakeRegistry) -> None:
    [text] = story.commands
    name, _, texts = text.partition(" ")
    server.at["/api/v1/query"] = ANSWERS[name](*split_texts(texts))

    limit = SHORT if name in ("hangs", "trickles") else LIMIT
    story.check(await ask(server, limit=limit), golden)


@pytest.mark.parametrize("story", read_stories(HERE / "credentials.txt"))
async def test_credentials(story: Story, golden: Golden, server: FakeRegistry) -> None:
    [text] = story.commands
    *echo, texts = text.rpartition(" > ")[::2]
    server.at["/api/v1/query"] = fails("401", "denied", echo[0]) if echo[0] else vector("1")

    found = await ask(server, dict(pair.split("=", 1) for pair in split_texts(texts)))
    sent = [
        f"{name}: {seen.headers[name]}"
        for seen in server.seen
        for name in ("Authorization", "X-Scope-OrgID")
        if name in seen.headers
    ]
    story.check("; ".join([*sent, found]), golden)


async def test_the_ca_of_the_secret_is_trusted_as_well() -> None:
    [ca] = issue_tls()[1].get_ca_certs(binary_form=True)
    pem = DER_cert_to_PEM_cert(ca)
    async with FakeRegistry() as server:
        server.at["/api/v1/query"] = vector("1")

        assert "certificate not accepted" in await ask(server)
        assert await ask(server, {"ca.crt": f"# Zertifikat für Köln\n{pem}"}) == "1.0"


async def test_the_ca_of_a_secret_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    [ca] = issue_tls()[1].get_ca_certs(binary_form=True)
    async with FakeRegistry() as server:
        server.at["/api/v1/query"] = vector("1")
        data = {"ca.crt": f"# once\n{DER_cert_to_PEM_cert(ca)}"}
        assert await ask(server, data) == "1.0"
        read = ssl.SSLContext.load_verify_locations
        texts: list[object] = []

        def note(context: ssl.SSLContext, *args: Any, **more: Any) -> None:
            texts.append(more.get("cadata"))
            read(context, *args, **more)

        monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", note)

        assert await ask(server, data) == "1.0"
        assert texts == []


async def test_bytes_that_are_no_text_are_not_sent(server: FakeRegistry) -> None:
    found = await ask(server, {"token": "\udcff"})

    assert "token is no single line of ASCII" in found
    assert server.seen == []


async def test_a_url_is_judged_for_the_namespace_of_the_health_check() -> None:
    asker = Asker(Outbound(LIMIT), keep(None), AllowedUrls(configure()))

    answer = await asker.probe(make_check("http://prometheus"), "http://a.b.c/")

    assert isinstance(answer, QueryError)
    assert "such as http://prometheus.prod.svc:9090" in answer.text


async def test_a_host_that_has_no_other_form_is_called_as_it_is_written() -> None:
    outbound = Outbound(LIMIT)
    asker = Asker(outbound, keep(None), ANY)

    answer = await asker.probe(make_check("http://prometheus"), "http://xn--a.invalid/")
    await outbound.close()

    assert answer == QueryError("no address is known for its name")


async def test_a_query_that_is_too_long_is_not_sent(server: FakeRegistry) -> None:
    asker = Asker(Outbound(LIMIT), keep(None), ANY)

    answer = await asker.ask(make_check(server.url), "", AT)

    assert answer == QueryError("with the names of all pods it is longer than 512 KiB")
    assert server.seen == []


async def test_servers_that_hang_leave_turns_for_the_others(server: FakeRegistry) -> None:
    server.at["/ready"] = reply()
    outbound = Outbound(LIMIT, at_most=AT_MOST)
    asker = Asker(outbound, keep(None), ANY)
    async with AsyncExitStack() as stack:
        for _ in range(6):
            other = await stack.enter_async_context(FakeRegistry(is_secure=False))
            other.at["/ready"] = hang
            for _ in range(2):
                task = asyncio.create_task(
                    asker.probe(make_check(server.url), f"{other.url}/ready")
                )
                stack.callback(task.cancel)
        await asyncio.sleep(0)

        async with asyncio.timeout(SHORT.total_seconds()):
            answer = await asker.probe(make_check(server.url), f"{server.url}/ready")

    await outbound.close()
    assert answer == Number(200)


async def test_a_name_may_not_lead_to_the_machine_itself(server: FakeRegistry) -> None:
    """SEC-10"""
    outbound = Outbound(LIMIT, may_be_own=False)

    answer = await Asker(outbound, keep(None), ANY).ask(make_check(server.url), QUERY, AT)
    await outbound.close()

    assert answer == QueryError("its name leads to an address of the machine")
    assert server.seen == []


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "::1", "::", "::ffff:127.0.0.1", "fe80::1", "fd00:ec2::254"],
)
async def test_no_address_of_the_machine_is_called(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-10"""
    found = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args: [found])
    outbound = Outbound(LIMIT, may_be_own=False)

    answer = await Asker(outbound, keep(None), ANY).probe(make_check("http://a"), "http://a.dev/")
    await outbound.close()

    assert answer == QueryError("its name leads to an address of the machine")


async def test_names_that_hang_hold_up_no_others(
    server: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, is_over, begun = socket.getaddrinfo, threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang_for_some(host: str, *args: Any, **more: Any) -> Any:
        if host.startswith("slow"):
            loop.call_soon_threadsafe(begun.set)
            is_over.wait(30)
        return look_up(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", hang_for_some)
    outbound = Outbound(LIMIT, at_most=AT_MOST)
    asker, check = Asker(outbound, keep(None), ANY), make_check(server.url)
    urls = [f"http://slow-{number}.invalid/" for number in range(AT_MOST)]
    tasks = [asyncio.create_task(asker.probe(check, url)) for url in urls]
    await begun.wait()
    try:
        async with asyncio.timeout(SHORT.total_seconds()):
            assert await loop.getaddrinfo("localhost", 80)
    finally:
        is_over.set()
        await asyncio.gather(*tasks)
        await outbound.close()


async def test_a_secret_is_read_once_for_all_questions_of_some_seconds(
    server: FakeRegistry,
) -> None:
    server.at["/api/v1/query"] = vector("1")
    fetch, reads = keep({"token": "abc"}), 0

    async def count(namespace: str, name: str) -> bytes:
        nonlocal reads
        reads += 1
        return await fetch(namespace, name)

    outbound = Outbound(LIMIT)
    asker, check = Asker(outbound, count, ANY), make_check(server.url, "read")

    await asyncio.gather(*(asker.ask(check, QUERY, AT) for _ in range(6)))
    assert reads == 1
    await asyncio.sleep(10)
    assert await asker.ask(check, QUERY, AT) == Number(1)
    assert reads == 2
    await outbound.close()


async def test_a_secret_that_is_not_there_stops_the_question(server: FakeRegistry) -> None:
    asker = Asker(Outbound(LIMIT), keep(None), ANY)

    answer = await asker.ask(make_check(server.url, "read"), QUERY, AT)

    assert answer == QueryError("Secret read: secrets prod/read is not there")
    assert server.seen == []


@pytest.mark.parametrize("story", read_stories(HERE / "urls.txt"))
def test_url(story: Story, golden: Golden) -> None:
    [text] = story.commands
    *patterns, url = split_texts(text)

    def check() -> str:
        return f"{AllowedUrls(configure(*patterns)).check(url, 'prod')}"

    story.check(attempt(check), golden)


async def test_a_question_is_sent_as_prometheus_takes_it(server: FakeRegistry) -> None:
    forms: list[dict[str, str]] = []

    async def note(request: web.Request) -> web.StreamResponse:
        forms.append({key: str(value) for key, value in (await request.post()).items()})
        return await vector("1")(request)

    server.at["/prometheus/api/v1/query"] = note

    assert await ask(server, path="/prometheus/") == "1.0"
    assert forms == [{"query": QUERY, "time": "1767323045.678"}]
    assert server.paths() == ["POST /prometheus/api/v1/query"]


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (reply(204), "204"),
        (reply(503), "503"),
        pytest.param(reply(302, Location="/"), "302", id="redirects are not followed"),
        pytest.param(endless([]), "200", id="its body is left unread"),
        (hang, "QueryError(text='no answer within 3s')"),
    ],
)
async def test_a_probe_shows_the_status_and_no_credential(
    answer: Answer, seen: str, server: FakeRegistry
) -> None:
    server.at["/ready"] = answer
    outbound = Outbound(SHORT if answer is hang else LIMIT)
    asker = Asker(outbound, keep({"token": "abc"}), ANY)

    found = await asker.probe(make_check(server.url, "read"), f"{server.url}/ready")
    await outbound.close()

    assert show(found) == seen
    assert [(one.method, one.path, one.shown) for one in server.seen] == [("GET", "/ready", None)]
