"""Whom a credential is shown to, and whom never, whatever `WWW-Authenticate` says (RELB-29)."""

import base64
import json
from collections.abc import Mapping
from datetime import timedelta

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.aio.clock import LoopClock
from rollout_operator.model.releases import ReleaseMetadata
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.exchange import (
    Challenge,
    RegistryDenied,
    RegistryDistrusted,
    RegistryUnreachable,
    Route,
    parse_challenges,
)
from tests.examples import repeatable
from tests.oci.registries import NAME, FakeRegistry, Reader, access, open_reader, refuse, reply

ROBOT = {"username": "robot", "password": "hidden"}
BASIC = f"Basic {base64.b64encode(b'robot:hidden').decode()}"
SCOPE = f"repository:{NAME}:pull"

HUB = (
    'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
    'scope="repository:library/nginx:pull"'
)
OF_HUB = Challenge(
    "bearer",
    {
        "realm": "https://auth.docker.io/token",
        "service": "registry.docker.io",
        "scope": "repository:library/nginx:pull",
    },
)


async def read(
    reader: Reader, registry: FakeRegistry, entry: Mapping[str, object] | None = None
) -> ReleaseMetadata:
    return await reader.client.fetch_release(registry.image(), access(registry, entry))


def guard(registry: FakeRegistry, accepted: str, challenge: str) -> None:
    """Let the registry want what it accepts."""
    registry.push("1.0.0", {"config": {}})
    registry.guard = lambda request: (
        None
        if request.headers.get("Authorization") == accepted
        else refuse(401, "UNAUTHORIZED", WWW_Authenticate=challenge)
    )


def bearer(registry: FakeRegistry, **more: str) -> str:
    requested = {"realm": f"{registry.url}/token", "service": "it", **more}
    return "Bearer " + ",".join(f'{name}="{value}"' for name, value in requested.items())


def token(**answer: object) -> bytes:
    return json.dumps(answer).encode()


async def test_a_password_is_sent_when_it_is_requested(
    registry: FakeRegistry, reader: Reader
) -> None:
    """RELB-29: and then at once, as long as it is accepted."""
    guard(registry, BASIC, 'Basic realm="x"')
    await read(reader, registry, ROBOT)
    await read(reader, registry, ROBOT)

    assert [seen.shown for seen in registry.seen] == [None, BASIC, BASIC, BASIC]


async def test_without_a_pull_secret_nothing_is_sent(
    registry: FakeRegistry, reader: Reader
) -> None:
    """REL-38."""
    guard(registry, BASIC, 'Basic realm="x"')
    with pytest.raises(RegistryDenied) as caught:
        await read(reader, registry)
    assert str(caught.value) == (
        f"cannot read tag 1.0.0 of {NAME} in registry {registry.host}: it wants credentials, or "
        f"there is no such repository; name a pull secret with an entry for {registry.host} in the "
        "ImageRepository's spec.secretRef"
    )
    assert len(registry.seen) == 1


async def test_a_password_that_is_refused_is_tried_once(
    registry: FakeRegistry, reader: Reader
) -> None:
    """RELB-29: a registry that always answers 401 is called twice."""
    guard(registry, "never", 'Basic realm="x"')
    with pytest.raises(RegistryDenied) as caught:
        await read(reader, registry, ROBOT)
    assert f'it does not accept the pull secret\'s entry "{registry.host}"' in str(caught.value)
    assert len(registry.seen) == 2


@pytest.mark.parametrize("field", ["token", "access_token"])
@pytest.mark.parametrize("entry", [ROBOT, None])
async def test_a_token_is_requested_and_used_again(
    registry: FakeRegistry, reader: Reader, field: str, entry: Mapping[str, object] | None
) -> None:
    """RELB-29: with the password where there is one, and by the right to pull alone."""
    scope = f"repository:{NAME}:pull,push"
    guard(registry, "Bearer abc", bearer(registry, scope=scope))
    registry.at["/token"] = reply(200, token(**{field: "abc"}))
    await read(reader, registry, entry)
    await read(reader, registry, entry)

    (requested,) = (seen for seen in registry.seen if seen.path == "/token")
    assert requested.query == {"scope": SCOPE, "service": "it"}
    assert requested.shown == (BASIC if entry else None)


async def test_a_registry_may_know_the_repository_by_another_name(
    registry: FakeRegistry, reader: Reader
) -> None:
    """RELB-29: its scope is requested where that is nothing but to pull."""
    guard(registry, "Bearer abc", bearer(registry, scope="repository:mirror/team/app:pull"))
    registry.at["/token"] = reply(200, token(token="abc"))
    await read(reader, registry)

    assert registry.seen[1].query["scope"] == "repository:mirror/team/app:pull"


async def test_an_identity_token_gets_tokens(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-29: in the body of a POST, and in no URL."""
    guard(registry, "Bearer abc", bearer(registry))
    forms: list[Mapping[str, object]] = []

    async def answer(request: web.Request) -> web.Response:
        forms.append(dict(await request.post()))
        return web.json_response({"access_token": "abc"})

    registry.at["/token"] = answer
    await read(
        reader, registry, {"identitytoken": "hidden", "auth": base64.b64encode(b"0:").decode()}
    )

    assert forms == [{"scope": SCOPE, "service": "it", "grant_type": "refresh_token",
                      "client_id": "rollout-operator", "refresh_token": "hidden"}]  # fmt: skip
    assert registry.seen[1].shown is None


async def test_a_registry_token_is_one_already(registry: FakeRegistry, reader: Reader) -> None:
    guard(registry, "Bearer abc", bearer(registry))
    await read(reader, registry, {"registrytoken": "abc"})

    assert all(seen.path != "/token" for seen in registry.seen)


class Ahead:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = LoopClock().now
        self.at = timedelta(0)

    def elapsed(self) -> timedelta:
        return self.at


@pytest.mark.parametrize(
    ("life", "seconds", "requested"),
    [(300, 280, 1), (300, 295, 2), (None, 45, 1), (None, 55, 2), (5, 45, 1), (10**9, 3595, 2)],
)
async def test_a_token_is_used_until_it_ends(
    registry: FakeRegistry, life: int | None, seconds: int, requested: int
) -> None:
    """RELB-29: a minute where its server says less or nothing, and an hour at most."""
    clock = Ahead()
    reader = open_reader(clock=clock)
    guard(registry, "Bearer abc", bearer(registry))
    registry.at["/token"] = reply(200, token(token="abc", expires_in=life))
    await read(reader, registry)
    clock.at = timedelta(seconds=seconds)
    await read(reader, registry)
    await reader.sender.close()

    assert len([seen for seen in registry.seen if seen.path == "/token"]) == requested


@pytest.mark.parametrize(
    ("challenge", "answer", "problem"),
    [
        ('Bearer realm="http://localhost:1/token"', b"", "a token server without TLS"),
        ('Bearer realm="https://a:b@localhost/token"', b"", "no URL of a token server"),
        ('Bearer realm="file:///etc/passwd"', b"", "no URL of a token server"),
        ('Bearer realm="/token"', b"", "no URL of a token server"),
        ("Bearer", b"", "no URL of a token server"),
        ("", b"<html>", "no JSON object of a token"),
        ("", b"[]", "no JSON object of a token"),
        ("", b"{}", "answered with no token"),
        ("", token(token="a\r\nX: b"), "answered with no token"),
        ("", token(token="a b"), "answered with no token"),
        ("", token(token="a" * 40_000), "answered with no token"),
        ("", token(token="abc", x="y" * 70_000), "longer than 65536 bytes"),
    ],
)
async def test_a_token_server_that_lies(
    registry: FakeRegistry, reader: Reader, challenge: str, answer: bytes, problem: str
) -> None:
    """RELB-29: no password goes where it may be read, and no token into a header that it splits."""
    guard(registry, "never", challenge or bearer(registry))
    registry.at["/token"] = reply(200, answer)
    with pytest.raises(RegistryDistrusted) as caught:
        await read(reader, registry, ROBOT)
    assert problem in str(caught.value)
    assert "hidden" not in repr(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, RegistryDenied),
        (403, RegistryDenied),
        (302, RegistryDistrusted),
        (500, RegistryDistrusted),
    ],
)
async def test_a_token_server_that_refuses(
    registry: FakeRegistry, reader: Reader, status: int, kind: type[Exception]
) -> None:
    """RELB-29: its redirects are not followed."""
    guard(registry, "never", bearer(registry))
    registry.at["/token"] = reply(status, b"", Location=f"{registry.url}/elsewhere")
    with pytest.raises(kind):
        await read(reader, registry, ROBOT)
    assert [seen.path for seen in registry.seen if "manifests" not in seen.path] == ["/token"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_store_gets_no_credential(
    registry: FakeRegistry, reader: Reader, status: int
) -> None:
    """RELB-29: another port is another host, and what it wants is not given to it."""
    async with FakeRegistry() as store:
        guard(registry, BASIC, 'Basic realm="x"')
        digest = registry.push("1.0.0", {"config": {}})
        (found,) = {one.body for one in registry.stored.values()}
        store.at["/blob"] = reply(
            200, found, Content_Type="application/vnd.oci.image.manifest.v1+json"
        )
        registry.at[f"/v2/{NAME}/manifests/{digest}"] = reply(
            status, Location=f"{store.url}/blob?signature=hidden"
        )
        assert (await read(reader, registry, ROBOT)).digest == digest
        assert [seen.shown for seen in store.seen] == [None]
        store.at["/blob"] = reply(401, b"", WWW_Authenticate='Basic realm="x"')
        other = open_reader()
        with pytest.raises(RegistryDenied):
            await read(other, registry, ROBOT)
        await other.sender.close()
        assert [seen.shown for seen in store.seen] == [None, None]


async def test_a_redirect_within_the_registry_keeps_it(
    registry: FakeRegistry, reader: Reader
) -> None:
    guard(registry, BASIC, 'Basic realm="x"')
    digest = registry.push("1.0.0", {"config": {}})
    registry.push("moved", {"config": {}})
    registry.at[f"/v2/{NAME}/manifests/1.0.0"] = reply(307, b"", Location="moved")

    assert (await read(reader, registry, ROBOT)).digest == digest
    assert [seen.shown for seen in registry.seen] == [None, None, BASIC, BASIC, BASIC]


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://localhost:1/blob", "a redirect from TLS to a server without it"),
        ("", "a redirect to no URL of a server"),
        ("file:///etc/passwd", "a redirect to no URL of a server"),
        ("https://a:b@localhost/", "a redirect to no URL of a server"),
        ("https://[::1", "a redirect to no URL of a server"),
        ("https://localhost:99999/", "a redirect to no URL of a server"),
        ("1.0.0", "more than 5 redirects"),
    ],
)
async def test_a_redirect_that_leads_astray(
    registry: FakeRegistry, reader: Reader, location: str, problem: str
) -> None:
    """RELB-29: is refused by name, and after five there is an end."""
    registry.at[f"/v2/{NAME}/manifests/1.0.0"] = reply(307, b"", Location=location)
    with pytest.raises(RegistryDistrusted) as caught:
        await read(reader, registry)
    assert problem in str(caught.value)
    assert len(registry.seen) <= 6


async def test_a_registry_without_tls_is_read_where_that_is_said(reader: Reader) -> None:
    """RELB-29: `insecure` of the ImageRepository."""
    async with FakeRegistry(is_secure=False) as plain:
        digest = plain.push("1.0.0", {"config": {}})
        with pytest.raises(RegistryUnreachable, match="no TLS connection"):
            await read(reader, plain)
        assert plain.seen == []
        found = await reader.client.fetch_release(plain.image(), access(plain, is_insecure=True))
        assert found.digest == digest


async def test_insecure_accepts_no_bad_certificate(registry: FakeRegistry, reader: Reader) -> None:
    """RELB-29: neither that, nor a word without TLS to a server that has it."""
    registry.push("1.0.0", {"config": {}})
    stranger = RegistryAccess(is_insecure=True, route=Route())
    with pytest.raises(RegistryUnreachable, match="certificate not accepted"):
        await reader.client.fetch_release(registry.image(), stranger)
    assert registry.seen == []


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([HUB], [OF_HUB]),
        (["Basic"], [Challenge("basic")]),
        (["", " , "], []),
        (['BASIC Realm="a b"'], [Challenge("basic", {"realm": "a b"})]),
        ([f'Basic realm="x", {HUB}'], [Challenge("basic", {"realm": "x"}), OF_HUB]),
        (["Basic", HUB], [Challenge("basic"), OF_HUB]),
        (['Bearer realm = "a", scope=b'], [Challenge("bearer", {"realm": "a", "scope": "b"})]),
        ([r'Bearer realm="a\"b\\c"'], [Challenge("bearer", {"realm": r'a"b\c'})]),
        (['Bearer realm="a,b=c"'], [Challenge("bearer", {"realm": "a,b=c"})]),
        (['Bearer realm="a",realm="b"'], [Challenge("bearer", {"realm": "a"})]),
        (['Negotiate abc==, Basic realm="x"'],
         [Challenge("negotiate"), Challenge("abc"), Challenge("basic", {"realm": "x"})]),
        (['Bearer realm="never ends'], [Challenge("bearer")]),
        (["Basic"] * 20, [Challenge("basic")] * 8),
    ],
)  # fmt: skip
def test_challenges_are_read(headers: list[str], expected: list[Challenge]) -> None:
    found = parse_challenges(headers)
    # What is no challenge may leave rests, of schemes that no registry has.
    known = {"bearer", "basic"}
    assert [one for one in found if one.scheme in known] == [
        one for one in expected if one.scheme in known
    ]


@repeatable(500)
@given(st.lists(st.text(alphabet='Ba= ,"\\\t\u00e4', max_size=30), max_size=3))
def test_any_text_is_read_or_skipped(headers: list[str]) -> None:
    assert len(parse_challenges(headers)) <= 8


def test_a_long_header_takes_no_time() -> None:
    """SEC-16: only its beginning is read, and each byte of that once."""
    for text in ('a="' + "\\" * 10**6, "a " * 10**6, "=" * 10**6, 'a="b",' * 10**6):
        assert len(parse_challenges([text])) <= 8
