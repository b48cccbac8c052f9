"""The client on registries that are honest, hostile or want credentials: texts beside this file."""

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from rollout_operator.model.names import InvalidInput
from rollout_operator.outbound import AT_MOST, AT_MOST_PER_HOST
from rollout_operator.releases.model.releases import parse_repository
from rollout_operator.releases.registry import (
    RegistryDistrusted,
    RegistryError,
    RegistryUnreachable,
    decode_pull_secret,
    parse_challenges,
    parse_retry_after,
)
from tests.examples import repeatable
from tests.oci.registries import NAME, FakeRegistry, Reader, access, endless, hang, reply
from tests.oci.stage import RegistryStage
from tests.stories import check_stories, check_tables

HERE: Final = Path(__file__).parent
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PATH: Final = f"/v2/{NAME}/manifests/1.0.0"


test_story = check_stories(
    __file__, credentials=RegistryStage, hostile=RegistryStage, reads=RegistryStage
)


def secret(auths: Mapping[str, object]) -> Mapping[str, bytes]:
    """Return the data of a Secret of type `kubernetes.io/dockerconfigjson`."""
    return {".dockerconfigjson": json.dumps({"auths": auths}).encode()}


def show_key(case: str) -> str:
    """Return the key of the entry that is chosen for an image."""
    keys, _, image = case.rpartition("for ")
    keyring = decode_pull_secret(secret({key: {"registrytoken": "t"} for key in keys.split()}))
    chosen = keyring.choose(parse_repository(image))
    return chosen.key if chosen else "none"


def show_entry(case: str) -> str:
    text = re.sub(r"b64\((.*?)\)", lambda found: base64.b64encode(found[1].encode()).decode(), case)
    auths = {"ghcr.io": json.loads(text), "quay.io": {"registrytoken": "t"}}
    found: list[str] = []
    for data in (secret(auths), {".dockercfg": json.dumps(auths).encode()}):
        keyring = decode_pull_secret(data)
        assert keyring.choose(parse_repository("quay.io/app")) is not None
        assert keyring.choose(parse_repository("nginx")) is None
        assert "s3cret" not in f"{keyring!r} {keyring}"
        try:
            one = keyring.choose(parse_repository("ghcr.io/app"))
        except InvalidInput as error:
            shown, secrets = f"{error}", repr(error)
        else:
            names = ("username", "password", "identity_token", "registry_token")
            pairs = [(name, getattr(one, name, "")) for name in names]
            shown, secrets = " ".join(f"{name}={text}" for name, text in pairs if text), ""
        assert "hidden" not in secrets
        found.append(shown or "none")
    assert found[0] == found[1]
    return found[0]


def show_challenges(case: str) -> str:
    found = parse_challenges(case.split(" & "))
    # What is no challenge may leave rests, of schemes that no registry has.
    known = [one for one in found if one.scheme in ("bearer", "basic")]
    texts = [f"{one.scheme} {json.dumps(dict(one.parameters))}" for one in known]
    return "\n".join(texts) or "nothing"


def show_patience(case: str) -> str:
    """Return how long a registry is left alone."""
    count, _, text = case.rpartition("*")
    value = text.strip('"') * int(count or 1)
    return f"{parse_retry_after(CIMultiDict({'retry-after': value}), NOW)}"


test_case = check_tables(
    __file__,
    "tables",
    challenges=show_challenges,
    entries=show_entry,
    keys=show_key,
    patience=show_patience,
)


@pytest.mark.parametrize("data", [{}, {"token": b"x"}, secret({}), {".dockerconfigjson": b"{}"}])
def test_a_secret_without_credentials_means_none(data: Mapping[str, bytes]) -> None:
    """REL-38, RT-93: the registry is called without."""
    assert decode_pull_secret(data).choose(parse_repository("nginx")) is None


BROKEN: Final = [b"", b"hidden", b"[]", b"\xff", b"[" * 100_000, b"null"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *((".dockerconfigjson", text) for text in (*BROKEN, b'{"auths": "hidden"}')),
        *((".dockercfg", text) for text in BROKEN),
    ],
)
def test_a_broken_secret_is_named_by_its_key_alone(key: str, text: bytes) -> None:
    """RELB-29."""
    with pytest.raises(InvalidInput, match=rf"data\[{key}\] of the pull secret is no JSON") as at:
        decode_pull_secret({key: text})
    assert "hidden" not in repr(at.value)
    assert at.value.__context__ is None, "a traceback would show what was read"


@repeatable(300)
@given(
    st.dictionaries(
        st.text(alphabet="a.*?[]-^:/v12", max_size=20), st.just({"registrytoken": "t"}), max_size=4
    ),
    st.text("a./:", max_size=9),
)
def test_whatever_stands_in_a_secret_is_chosen_from_or_not(
    auths: Mapping[str, object], image: str
) -> None:
    """RELB-29: no key and no image breaks the choice."""
    try:
        repository = parse_repository(image)
    except InvalidInput:
        repository = parse_repository("a.a/a")
    found = decode_pull_secret(secret(auths)).choose(repository)
    assert found is None or found.key in auths


@repeatable(500)
@given(st.lists(st.text(alphabet='Ba= ,"\\\t\u00e4', max_size=30), max_size=3))
def test_any_text_is_read_or_skipped(headers: list[str]) -> None:
    assert len(parse_challenges(headers)) <= 8


def test_a_long_header_takes_no_time() -> None:
    """SEC-16: only its beginning is read, and each byte of that once."""
    for text in ('a="' + "\\" * 10**6, "a " * 10**6, "=" * 10**6, 'a="b",' * 10**6):
        assert len(parse_challenges([text])) <= 8


async def fail(reader: Reader, registry: FakeRegistry) -> RegistryError:
    """Read a release that cannot be read, and return why."""
    with pytest.raises(RegistryError) as caught:
        await reader.client.fetch_release(registry.image(), access(registry))
    return caught.value


async def test_a_registry_that_hangs_leaves_turns_to_others(
    registry: FakeRegistry, reader: Reader
) -> None:
    """RELB-30: some of its look-ups wait for each other, and no other registry waits for them."""
    assert AT_MOST_PER_HOST < AT_MOST
    started = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if len(registry.seen) == AT_MOST_PER_HOST:
            started.set()
        return await hang(request)

    registry.at[PATH] = answer
    async with FakeRegistry() as other, asyncio.TaskGroup() as tasks:
        other.push("1.0.0", {"config": {}})
        waiting = [tasks.create_task(fail(reader, registry)) for _ in range(AT_MOST + 1)]
        async with asyncio.timeout(15):
            found = await reader.client.fetch_release(other.image(), access(other))
            # Those of the first registry began before, and are sent by now.
            await started.wait()
        assert found.digest
        assert len(registry.seen) == AT_MOST_PER_HOST
        for task in waiting:
            task.cancel()


async def test_gigabytes_are_left_unread(registry: FakeRegistry, reader: Reader) -> None:
    """Of a stream without an end no more than the bound is taken, and its connection closed."""
    sent: list[int] = []
    digest = registry.push("1.0.0", {"config": {}})
    registry.at[f"/v2/{NAME}/manifests/{digest}"] = endless(sent)
    error = await fail(reader, registry)
    assert isinstance(error, RegistryDistrusted)
    assert "the answer is longer than 4194304 bytes" in str(error)
    # What is on its way in buffers of both sides comes on top.
    assert sent[0] < 32 * 1024 * 1024


async def test_more_headers_than_are_read_are_no_answer(
    registry: FakeRegistry, reader: Reader
) -> None:
    registry.at[PATH] = reply(200, b"{}", **{f"X_{n}": "x" for n in range(200)})
    assert "no valid HTTP answer" in str(await fail(reader, registry))


@pytest.mark.parametrize("host", ["nowhere.invalid", f"{'x' * 63}.invalid"])
async def test_a_host_that_is_not_there(registry: FakeRegistry, reader: Reader, host: str) -> None:
    """RELB-30: also at the end of a redirect."""
    registry.at[PATH] = reply(307, b"", Location=f"https://{host}/x")
    error = await fail(reader, registry)
    assert isinstance(error, RegistryUnreachable)
    assert "no connection" in str(error) or "no address is known" in str(error)


async def test_a_registry_without_tls_is_read_where_that_is_said(reader: Reader) -> None:
    """RELB-29: `insecure` of the ImageRepository."""
    async with FakeRegistry(is_secure=False) as plain:
        digest = plain.push("1.0.0", {"config": {}})
        assert "no TLS connection" in str(await fail(reader, plain))
        assert plain.seen == []
        found = await reader.client.fetch_release(plain.image(), access(plain, is_insecure=True))
        assert found.digest == digest


async def test_a_proxy_gets_what_is_to_go_through_it(
    registry: FakeRegistry, reader: Reader
) -> None:
    """RELB-29: one that refuses is named, and its password is not."""
    requested: list[str] = []

    def choose(url: str) -> str:
        requested.append(url)
        return "http://mallory:hidden@localhost:1"

    reader.exchange._choose_proxy = choose
    error = await fail(reader, registry)
    assert requested == [f"{registry.url}{PATH}"]
    assert registry.seen == []
    assert "no connection through the proxy" in str(error)
    assert "hidden" not in str(error)
