"""How a registry is called, as an ImageRepository and its Secrets say; no text has their values."""

import asyncio
import base64
import json
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from rollout_operator.controllers.releases.look_ups import read_access
from rollout_operator.kube.api import SECRETS
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.flux import ImageRepository
from rollout_operator.model.releases.reference import parse_repository
from tests.controllers.releases.bench import FakeReleaseApi
from tests.planning.releases.builders import head
from tests.world.pki import make_pki

IMAGE = parse_repository("registry.example/team/app")
HIDDEN = "s3cret"


def api_with(**data: str) -> FakeReleaseApi:
    """Return an API server with the Secret `s`."""
    api = FakeReleaseApi()
    body = api.add(SECRETS, "s", {})
    body["data"] = {
        key.replace("__", "."): base64.b64encode(value.encode()).decode()
        for key, value in data.items()
    }
    return api


def repository(**fields: str | bool) -> ImageRepository:
    return ImageRepository(head=head("app"), image=IMAGE, **fields)  # type: ignore[arg-type]


async def test_without_secrets_a_registry_is_read_without_credentials() -> None:
    """REL-38."""
    api = FakeReleaseApi()
    access = await read_access(api, repository(provider="generic", is_insecure=True))
    assert access.keyring.choose(IMAGE) is None
    assert (access.is_insecure, access.route.trust, access.route.proxy) == (True, None, None)
    assert api.calls == []


async def test_credentials_are_those_of_the_pull_secret() -> None:
    """REL-26, REL-38, RT-93: whatever the provider."""
    auth = base64.b64encode(f"amy:{HIDDEN}".encode()).decode()
    config = json.dumps({"auths": {"https://registry.example/v2/": {"auth": auth}}})
    api = api_with(__dockerconfigjson=config)
    access = await read_access(api, repository(pull_secret="s", provider="aws"))
    found = access.keyring.choose(IMAGE)
    assert found is not None
    assert (found.username, found.password) == ("amy", HIDDEN)


async def test_a_proxy_has_its_user_in_its_url() -> None:
    """RELB-29."""
    api = api_with(address="http://proxy.example:3128", username="amy", password="a/b@c")
    access = await read_access(api, repository(proxy="s"))
    assert access.route.proxy == "http://amy:a%2Fb%40c@proxy.example:3128"
    plain = await read_access(api_with(address="https://proxy.example"), repository(proxy="s"))
    assert plain.route.proxy == "https://proxy.example"


@pytest.mark.parametrize("key", ["ca__crt", "caFile"])
async def test_a_ca_is_trusted_beside_those_of_the_system(key: str, tmp_path: Path) -> None:
    """RELB-29: by either name that Flux knows."""
    ca = make_pki(tmp_path).ca.read_text()
    access = await read_access(api_with(**{key: ca}), repository(certificates="s"))
    trust = access.route.trust
    assert trust is not None
    assert trust.verify_mode is ssl.CERT_REQUIRED
    assert (
        trust.cert_store_stats()["x509_ca"]
        > ssl.create_default_context().cert_store_stats()["x509_ca"]
    )


@pytest.mark.parametrize(
    ("certificate", "key"), [("tls__crt", "tls__key"), ("certFile", "keyFile")]
)
async def test_a_client_certificate_is_shown_to_a_registry_that_wants_one(
    certificate: str, key: str, tmp_path: Path
) -> None:
    """RELB-29: by either name that Flux knows; the key stands in no file."""
    pki = make_pki(tmp_path)
    wanting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.ca)
    wanting.load_cert_chain(pki.cert, pki.key)
    wanting.verify_mode = ssl.CERT_REQUIRED
    shown: list[object] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown.append(writer.get_extra_info("peercert")["subject"])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=wanting)
    port = server.sockets[0].getsockname()[1]
    data = {"ca__crt": pki.ca, certificate: pki.cert, key: pki.key}
    api = api_with(**{name: path.read_text() for name, path in data.items()})
    trust = (await read_access(api, repository(certificates="s"))).route.trust
    async with server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        assert await reader.read() == b""
        writer.close()
    assert shown == [((("commonName", "test world"),),)]


async def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    """RELB-29: no registry is called for it."""
    pki = make_pki(tmp_path)
    key = serialization.load_pem_private_key(pki.key.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(HIDDEN.encode()),
    )
    api = api_with(tls__crt=pki.cert.read_text(), tls__key=locked.decode())
    with pytest.raises(InvalidInput, match="without a password"):
        await read_access(api, repository(certificates="s"))


@pytest.mark.parametrize(
    ("fields", "data", "problem"),
    [
        ({"provider": "aws"}, {}, "spec.provider: credentials of aws are not fetched here"),
        ({"pull_secret": "none"}, {}, "secret none: there is none"),
        ({"pull_secret": "s"}, {"__dockerconfigjson": HIDDEN}, "is no JSON of Docker's"),
        ({"certificates": "s"}, {"tls__crt": HIDDEN}, "tls.crt and tls.key are no certificate"),
        ({"certificates": "s"}, {"tls__key": HIDDEN}, "tls.crt and tls.key are no certificate"),
        ({"certificates": "s"}, {"ca__crt": HIDDEN}, "ca.crt holds no certificates"),
        ({"certificates": "s"}, {}, "ca.crt holds no certificates"),
        ({"proxy": "s"}, {"address": f"socks5://{HIDDEN}"}, "address is no URL of a proxy"),
        ({"proxy": "s"}, {}, "address is no URL of a proxy"),
    ],
)
async def test_what_a_person_must_change_is_named(
    fields: dict[str, str], data: dict[str, str], problem: str
) -> None:
    """RELB-29: and nothing out of a Secret is shown."""
    with pytest.raises(InvalidInput, match=problem) as caught:
        await read_access(api_with(**data), repository(**fields))
    assert HIDDEN not in str(caught.value)
    assert caught.value.__cause__ is None or HIDDEN not in str(caught.value.__cause__)


async def test_a_secret_that_cannot_be_read_shows_nothing() -> None:
    api = FakeReleaseApi()
    api.add(SECRETS, "s", {})["data"] = {".dockerconfigjson": f"{HIDDEN}!"}
    with pytest.raises(InvalidInput, match="its data cannot be read") as caught:
        await read_access(api, repository(pull_secret="s"))
    assert caught.value.__cause__ is None
