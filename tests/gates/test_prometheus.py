"""What is asked of Prometheus, with which credentials, and what its answers mean."""

import asyncio
import json
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
from tests.model.cases import attempt, split_texts
from tests.oci.registries import Answer, FakeRegistry, endless, hang, issue_tls, reply
from tests.stories import check_tables

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


@asynccontextmanager
async def opened(
    fetch: FetchSecret, limit: timedelta = LIMIT, allowed: AllowedUrls = ANY, **how: Any
) -> AsyncIterator[Asker]:
    outbound = Outbound(limit, **how)
    try:
        yield Asker(outbound, fetch, allowed)
    finally:
        await outbound.close()


async def ask(server: FakeRegistry, data: Mapping[str, str] | None = None, path: str = "") -> str:
    check = make_check(f"{server.url}{path}", None if data is None else "read")
    async with opened(keep(data)) as asker:
        return show(await asker.ask(check, QUERY, AT))


def show(answer: object) -> str:
    return f"{answer.value}" if isinstance(answer, Number) else f"{answer}"


async def show_answer(text: str, server: FakeRegistry) -> str:
    """Return what an answer to a query means, or one to a `probe`, which has no credential."""
    name, _, texts = text.removeprefix("probe ").partition(" ")
    server.at["/api/v1/query"] = server.at["/ready"] = ANSWERS[name](*split_texts(texts))
    limit = SHORT if name in ("hangs", "trickles") else LIMIT
    async with opened(keep({"token": "abc"}), limit) as asker:
        if not text.startswith("probe "):
            return show(await asker.ask(make_check(server.url), QUERY, AT))
        found = await asker.probe(make_check(server.url, "read"), f"{server.url}/ready")
    assert [(one.method, one.path, one.shown) for one in server.seen] == [("GET", "/ready", None)]
    return show(found)


async def show_credentials(text: str, server: FakeRegistry) -> str:
    *echo, texts = text.rpartition(" > ")[::2]
    server.at["/api/v1/query"] = fails("401", "denied", echo[0]) if echo[0] else vector("1")

    check = make_check(server.url, "read")
    pairs = None if texts == "absent" else dict(one.split("=", 1) for one in split_texts(texts))
    async with opened(keep(pairs)) as asker:
        found = show(await asker.ask(check, QUERY, AT))
    sent = [
        f"{name}: {seen.headers[name]}"
        for seen in server.seen
        for name in ("Authorization", "X-Scope-OrgID")
        if name in seen.headers
    ]
    return "; ".join([*sent, *["nothing is sent"] * (not server.seen), found])


def show_url(text: str) -> str:
    *patterns, url = split_texts(text)

    def check() -> str:
        return f"{AllowedUrls(configure(*patterns)).check(url, 'prod')}"

    return attempt(check)


test_case = check_tables(__file__, answers=show_answer, credentials=show_credentials)
test_url = check_tables(__file__, urls=show_url)


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


async def test_a_url_is_judged_for_the_namespace_of_the_health_check() -> None:
    async with opened(keep(None), allowed=AllowedUrls(configure())) as asker:
        answer = await asker.probe(make_check("http://prometheus"), "http://a.b.c/")

    assert isinstance(answer, QueryError)
    assert "such as http://prometheus.prod.svc:9090" in answer.text


async def test_a_host_that_has_no_other_form_is_called_as_it_is_written() -> None:
    async with opened(keep(None)) as asker:
        answer = await asker.probe(make_check("http://prometheus"), "http://xn--a.invalid/")

    assert answer == QueryError("no address is known for its name")


async def test_a_query_that_is_too_long_is_not_sent(server: FakeRegistry) -> None:
    async with opened(keep(None)) as asker:
        answer = await asker.ask(make_check(server.url), "", AT)

    assert answer == QueryError("with the names of all pods it is longer than 512 KiB")
    assert server.seen == []


async def test_servers_that_hang_leave_turns_for_the_others(server: FakeRegistry) -> None:
    server.at["/ready"] = reply()
    async with opened(keep(None), at_most=AT_MOST) as asker, AsyncExitStack() as stack:
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

    assert answer == Number(200)


async def test_a_name_may_not_lead_to_the_machine_itself(server: FakeRegistry) -> None:
    """SEC-10"""
    async with opened(keep(None), may_be_own=False) as asker:
        answer = await asker.ask(make_check(server.url), QUERY, AT)

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
    async with opened(keep(None), may_be_own=False) as asker:
        answer = await asker.probe(make_check("http://a"), "http://a.dev/")

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
    check, urls = make_check(server.url), [f"http://slow-{at}.invalid/" for at in range(AT_MOST)]
    async with opened(keep(None), at_most=AT_MOST) as asker:
        tasks = [asyncio.create_task(asker.probe(check, url)) for url in urls]
        await begun.wait()
        try:
            async with asyncio.timeout(SHORT.total_seconds()):
                assert await loop.getaddrinfo("localhost", 80)
        finally:
            is_over.set()
            await asyncio.gather(*tasks)


async def test_a_secret_is_read_once_for_all_questions_of_some_seconds(
    server: FakeRegistry,
) -> None:
    server.at["/api/v1/query"] = vector("1")
    fetch, reads = keep({"token": "abc"}), 0

    async def count(namespace: str, name: str) -> bytes:
        nonlocal reads
        reads += 1
        return await fetch(namespace, name)

    check = make_check(server.url, "read")
    async with opened(count) as asker:
        await asyncio.gather(*(asker.ask(check, QUERY, AT) for _ in range(6)))
        assert reads == 1
        await asyncio.sleep(10)
        assert await asker.ask(check, QUERY, AT) == Number(1)
        assert reads == 2


async def test_a_question_is_sent_as_prometheus_takes_it(server: FakeRegistry) -> None:
    forms: list[dict[str, str]] = []

    async def note(request: web.Request) -> web.StreamResponse:
        forms.append({key: str(value) for key, value in (await request.post()).items()})
        return await vector("1")(request)

    server.at["/prometheus/api/v1/query"] = note

    assert await ask(server, path="/prometheus/") == "1.0"
    assert forms == [{"query": QUERY, "time": "1767323045.678"}]
    assert server.paths() == ["POST /prometheus/api/v1/query"]
