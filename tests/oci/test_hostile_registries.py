"""Registries that hang, lie, send gigabytes, or request patience (RELB-30)."""

import asyncio
import gzip
import json
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from multidict import CIMultiDict

from rollout_operator.oci.client import RESULTS, parse_retry_after
from rollout_operator.oci.exchange import (
    AT_MOST,
    AT_MOST_PER_HOST,
    RegistryBusy,
    RegistryDenied,
    RegistryDistrusted,
    RegistryError,
    RegistryExchange,
    RegistryUnreachable,
    ReleaseNotFound,
)
from tests.oci.registries import (
    CONFIG,
    INDEX,
    MANIFEST,
    NAME,
    Answer,
    FakeRegistry,
    Reader,
    access,
    endless,
    hang,
    open_reader,
    refuse,
    reply,
)

SHORT = timedelta(milliseconds=300)
HEAD_PATH = f"/v2/{NAME}/manifests/1.0.0"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def fail(
    reader: Reader, registry: FakeRegistry, entry: Mapping[str, object] | None = None
) -> RegistryError:
    """Read a release that cannot be read, and return why."""
    with pytest.raises(RegistryError) as caught:
        await reader.client.fetch_release(registry.image(), access(registry, entry))
    assert str(caught.value).startswith(f"cannot read tag 1.0.0 of {NAME} in registry ")
    assert "\n" not in str(caught.value)
    return caught.value


def push(registry: FakeRegistry, **more: object) -> str:
    """Keep an image, and return the path of its manifest by digest."""
    return f"/v2/{NAME}/manifests/{registry.push('1.0.0', {'config': {}, **more})}"


async def break_off(request: web.Request) -> web.StreamResponse:
    """Promise more than is sent."""
    response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": MANIFEST})
    await response.prepare(request)
    await response.write(b"{}")
    assert request.transport is not None
    request.transport.abort()
    return response


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def trickle(request: web.Request) -> web.StreamResponse:
    """Send a byte now and then, for ever."""
    response = web.StreamResponse(headers={"Content-Type": MANIFEST})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("answer", [hang, trickle])
async def test_a_registry_that_hangs(registry: FakeRegistry, answer: Answer) -> None:
    """A request has its time, however much comes meanwhile."""
    registry.at[push(registry)] = answer
    reader = open_reader(SHORT)
    error = await fail(reader, registry)
    await reader.sender.close()

    assert isinstance(error, RegistryUnreachable)
    assert "no answer within 300ms; it is called again later" in str(error)
    assert reader.results == ["unreachable"]


async def test_all_of_a_look_up_has_its_time(registry: FakeRegistry) -> None:
    """Also where each of its requests is in time."""
    registry.at[push(registry)] = hang
    reader = open_reader(total=SHORT)
    error = await fail(reader, registry)
    await reader.sender.close()

    assert "it took longer than 300ms" in str(error)


async def test_a_registry_that_hangs_leaves_turns_to_others(registry: FakeRegistry) -> None:
    """RELB-30: some of its look-ups wait for each other, and no other registry waits for them."""
    assert AT_MOST_PER_HOST < AT_MOST
    reader = open_reader()
    started = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if len(registry.seen) == AT_MOST_PER_HOST:
            started.set()
        return await hang(request)

    registry.at[HEAD_PATH] = answer
    async with FakeRegistry() as other, asyncio.TaskGroup() as tasks:
        push(other)
        waiting = [tasks.create_task(fail(reader, registry)) for _ in range(AT_MOST + 1)]
        async with asyncio.timeout(15):
            found = await reader.client.fetch_release(other.image(), access(other))
            # Those of the first registry began before, and are sent by now.
            await started.wait()
        assert found.digest
        assert len(registry.seen) == AT_MOST_PER_HOST
        for task in waiting:
            task.cancel()
    await reader.sender.close()


async def test_gigabytes_are_left_unread(registry: FakeRegistry, reader: Reader) -> None:
    """Of a stream without an end no more than the bound is taken, and its connection closed."""
    sent: list[int] = []
    registry.at[push(registry)] = endless(sent)
    error = await fail(reader, registry)

    assert isinstance(error, RegistryDistrusted)
    assert "the answer is longer than 4194304 bytes" in str(error)
    # What is on its way in buffers of both sides comes on top.
    assert sent[0] < 32 * 1024 * 1024


async def test_a_length_that_is_too_long_is_believed(
    registry: FakeRegistry, reader: Reader
) -> None:
    registry.at[push(registry)] = reply(200, b" " * (4 * 1024 * 1024 + 1))
    assert "longer than 4194304 bytes" in str(await fail(reader, registry))


async def test_an_error_of_gigabytes_is_cut(registry: FakeRegistry, reader: Reader) -> None:
    registry.at[push(registry)] = reply(500, b'{"errors": [{"code": "' + b"A" * 10**7)
    error = await fail(reader, registry)
    assert str(error).endswith(": it answered with HTTP status 500; it is called again later")


async def test_what_is_compressed_is_refused(registry: FakeRegistry, reader: Reader) -> None:
    """A thousand bytes may be a million."""
    bomb = gzip.compress(bytes(10**7))
    registry.at[push(registry)] = reply(200, bomb, Content_Encoding="gzip")
    assert "compressed, which was not requested" in str(await fail(reader, registry))
    assert registry.seen[-1].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (break_off, "the answer broke off"),
        (reset, "the connection broke"),
        (reply(200, b"{}", **{f"X_{n}": "x" for n in range(200)}), "no valid HTTP answer"),
        (reply(200, b"{}", X="x" * 40_000), "no valid HTTP answer"),
    ],
)
async def test_an_answer_that_is_none(
    registry: FakeRegistry, reader: Reader, answer: Answer, problem: str
) -> None:
    registry.at[push(registry)] = answer
    error = await fail(reader, registry)
    assert isinstance(error, RegistryUnreachable)
    assert problem in str(error)


@pytest.mark.parametrize("what", ["manifest", "platform", "config"])
async def test_another_content_than_was_named_is_refused(
    registry: FakeRegistry, reader: Reader, what: str
) -> None:
    """RELB-30: by its digest, for each thing that is fetched, and nothing of it is kept."""
    blob = registry.push_blob({"config": {"Labels": {}}})
    child = registry.push("x", {"config": {"mediaType": CONFIG, "digest": blob}})
    index = {"manifests": [{"mediaType": MANIFEST, "digest": child}]}
    top = registry.push("1.0.0", index, INDEX)
    digest = {"manifest": top, "platform": child, "config": blob}[what]
    (path,) = (path for path in registry.stored if path.endswith(digest))
    registry.at[path] = reply(200, json.dumps({"config": {}}).encode(), Content_Type=MANIFEST)

    for _ in range(2):
        error = await fail(reader, registry)
        assert isinstance(error, RegistryDistrusted)
        assert f"what it sent as {digest} is something else" in str(error)


async def test_a_digest_beside_the_content_is_verified_too(
    registry: FakeRegistry, reader: Reader
) -> None:
    """Where no HEAD has shown it before."""
    body = b'{"config": {}}'
    wrong = f"sha512:{'0' * 128}"

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD":
            return refuse(405, "UNSUPPORTED")
        headers = {"Docker-Content-Digest": wrong, "Content-Type": MANIFEST}
        return web.Response(body=body, headers=headers)

    registry.at[HEAD_PATH] = answer
    assert f"what it sent as {wrong} is something else" in str(await fail(reader, registry))


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (403, RegistryDenied, "HTTP status 403"),
        (404, ReleaseNotFound, "there is no such tag or repository"),
        (429, RegistryBusy, "too many requests (HTTP status 429)"),
        (500, RegistryUnreachable, "it answered with HTTP status 500"),
        (503, RegistryUnreachable, "it answered with HTTP status 503"),
        (418, RegistryUnreachable, "it answered with HTTP status 418"),
    ],
)
async def test_a_status_says_what_to_do(
    registry: FakeRegistry, reader: Reader, status: int, kind: type[RegistryError], words: str
) -> None:
    """The patience that a registry requests is kept."""
    registry.at[HEAD_PATH] = reply(status, b"", Retry_After="17")
    error = await fail(reader, registry)

    assert type(error) is kind
    assert words in str(error)
    has_wait = kind in {RegistryBusy, RegistryUnreachable}
    assert error.retry_after == (timedelta(seconds=17) if has_wait else None)
    assert reader.results == [RESULTS[kind]]


async def test_of_an_error_only_its_code_is_shown(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-29: its message may repeat what was sent."""
    path = push(registry)

    async def answer(request: web.Request) -> web.Response:
        return refuse(500, "UNKNOWN")

    registry.at[path] = answer
    error = await fail(reader, registry)
    assert "HTTP status 500, UNKNOWN" in str(error)
    assert "hidden" not in str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17", timedelta(seconds=17)),
        ("0", None),
        ("-1", None),
        ("", None),
        ("soon", None),
        ("9" * 5000, timedelta(hours=1)),
        ("7200", timedelta(hours=1)),
        ("Fri, 02 Jan 2026 03:04:35 GMT", timedelta(seconds=30)),
        ("Fri, 02 Jan 2026 03:04:35", timedelta(seconds=30)),
        ("Fri, 02 Jan 2025 03:04:35 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", timedelta(hours=1)),
    ],
)
def test_patience_is_bounded(text: str, expected: timedelta | None) -> None:
    """RELB-30: in seconds or as a date, for an hour at most."""
    assert parse_retry_after(CIMultiDict({"retry-after": text}), NOW) == expected


@pytest.mark.parametrize(
    "answer", [hang, reset, break_off, reply(200, b"<"), reply(500), reply(401)]
)
async def test_no_credential_is_in_a_log_or_a_traceback(
    registry: FakeRegistry, lines: list[str], answer: Answer
) -> None:
    """RELB-29: whatever goes wrong; the library's errors hold all that was sent."""
    path = push(registry)
    shown = "Basic bWFsbG9yeTpoaWRkZW4="
    registry.guard = lambda request: (
        None
        if request.headers.get("Authorization") == shown
        else refuse(401, "UNAUTHORIZED", WWW_Authenticate="Basic")
    )
    registry.at[path] = answer
    reader = open_reader(SHORT)
    error = await fail(reader, registry, {"username": "mallory", "password": "hidden"})
    await reader.sender.close()

    assert registry.seen[-1].shown == shown
    known = [error, *_list_causes(error)]
    shown_text = "".join([*lines, *traceback.format_exception(error), *map(repr, known)])
    for secret in ("hidden", "mallory", "bWFsbG9yeTpoaWRkZW4"):
        assert secret not in shown_text
    assert {type(one).__module__.partition(".")[0] for one in known} == {"rollout_operator"}


def _list_causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    for one in (error.__cause__, error.__context__):
        if one is not None and one not in found:
            found += [one, *_list_causes(one)]
    return found


async def test_nothing_is_requested_once_it_is_closed(
    registry: FakeRegistry, reader: Reader
) -> None:
    await reader.sender.close()
    assert "the operator is stopping" in str(await fail(reader, registry))
    assert registry.seen == []


@pytest.mark.parametrize("host", ["localhost:1", "nowhere.invalid", f"{'x' * 63}.invalid"])
async def test_a_host_that_is_not_there(registry: FakeRegistry, reader: Reader, host: str) -> None:
    """RELB-30: also at the end of a redirect."""
    registry.at[HEAD_PATH] = reply(307, b"", Location=f"https://{host}/x")
    error = await fail(reader, registry)
    assert isinstance(error, RegistryUnreachable)
    assert "no connection" in str(error) or "no address is known" in str(error)


async def test_a_proxy_gets_what_is_to_go_through_it(reader: Reader) -> None:
    """RELB-29: one that refuses is named, and its password is not."""
    requested: list[str] = []

    def choose(url: str) -> str:
        requested.append(url)
        return "http://mallory:hidden@localhost:1"

    exchange = RegistryExchange(reader.sender, reader.client._clock, choose)
    reader.client._exchange = exchange
    async with FakeRegistry() as registry:
        error = await fail(reader, registry)
        assert requested == [f"{registry.url}/v2/{NAME}/manifests/1.0.0"]
        assert registry.seen == []
    assert "no connection through the proxy" in str(error)
    assert "hidden" not in str(error)
