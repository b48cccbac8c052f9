"""Who may ask at all where client certificates are asked for: SEC-03, over real TLS.

The context is that of the operator's own serving, with the client CA of an API server.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rollout_operator.pki.key_pair import Pair
from rollout_operator.pki.serving import server_context
from rollout_operator.telemetry import logs
from rollout_operator.web.webhooks import ServerOptions
from tests.web.webhook_world import (
    ALLOWED,
    Line,
    Setting,
    WebhookWorld,
    body_of,
    post,
    serving,
)
from tests.world.pki import make_pki

NAME: Final = "kube-apiserver"
DAY: Final = timedelta(days=1)
NOW: Final = datetime.now(UTC)
ENDED: Final = NOW - timedelta(minutes=1)


class Authority:
    """A CA of clients."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("client CA")
        builder = _builder(self._name, self._name, self._key, NOW + DAY)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        cert = builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())
        self.pem = cert.public_bytes(serialization.Encoding.PEM)

    def issue(self, folder: Path, subject: x509.Name, until: datetime = NOW + DAY) -> Path:
        """Write a client's certificate and key into one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = _builder(subject, self._name, key, until).sign(self._key, hashes.SHA256())
        path = folder / "client.pem"
        path.write_bytes(
            cert.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path


def _named(*names: str) -> x509.Name:
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, NAME)
    common = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    return x509.Name([organisation, *common])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 2 * DAY)
        .not_valid_after(until)
    )


@asynccontextmanager
async def guarded(
    folder: Path, authority: Authority, *, client_name: str = ""
) -> AsyncIterator[WebhookWorld]:
    """Run a server that wants certificates of `authority`."""
    pki = make_pki(folder)
    pair = Pair(cert=pki.cert.read_bytes(), key=pki.key.read_bytes())
    async with serving(Setting(options=ServerOptions(client_name=client_name))) as world:
        world.server_context = server_context(pair, authority.pem)
        world.client_context = ssl.create_default_context(cafile=str(pki.ca))
        yield world


class Client:
    """A client that sends its request together with the end of its handshake."""

    def __init__(self, line: Line, context: ssl.SSLContext) -> None:
        self._line = line
        self._inward, self._outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._inward, self._outward, server_hostname="localhost")

    async def ask(self) -> bytes:
        """Return the answer, or what came before the server ended the connection."""
        while not self._is_greeted():
            self._line.writer.write(self._outward.read())
            self._inward.write(await self._line.reader.read(1 << 16))
        self._tls.write(post(body_of()))
        self._line.writer.write(self._outward.read())
        answer = b""
        while ALLOWED not in answer:
            try:
                part = await self._line.reader.read(1 << 16)
            except ConnectionError:
                break
            if not part:
                break
            self._inward.write(part)
            answer += self._read()
        return answer

    def _read(self) -> bytes:
        try:
            return self._tls.read(1 << 16)
        except ssl.SSLError:  # no whole record yet, or a refusal
            return b""

    def _is_greeted(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


async def ask(world: WebhookWorld, client: Path | None) -> bytes:
    """Return what a client with this certificate gets."""
    if client is not None:
        world.client_context.load_cert_chain(client)
    return await Client(await world.dial(), world.client_context).ask()


def assert_is_refused(world: WebhookWorld, answer: bytes) -> None:
    assert answer == b""
    assert world.hook.asked == []
    assert world.series("request_duration_seconds_count") == [], "nothing of it was read"


async def test_the_right_certificate_is_answered(tmp_path: Path) -> None:
    """SEC-03."""
    authority = Authority()
    async with guarded(tmp_path, authority, client_name=NAME) as world:
        answer = await ask(world, authority.issue(tmp_path, _named(NAME)))
        assert answer.endswith(ALLOWED)
        assert len(world.hook.asked) == 1


async def test_any_name_of_the_ca_is_answered_where_none_is_asked_for(tmp_path: Path) -> None:
    """SEC-03: `-server-tls.client-ca-file` alone."""
    authority = Authority()
    async with guarded(tmp_path, authority) as world:
        answer = await ask(world, authority.issue(tmp_path, _named("anybody")))
        assert answer.endswith(ALLOWED)


@pytest.mark.parametrize("client_name", [NAME, ""])
async def test_without_a_certificate(tmp_path: Path, client_name: str) -> None:
    """SEC-03."""
    async with guarded(tmp_path, Authority(), client_name=client_name) as world:
        assert_is_refused(world, await ask(world, None))


@pytest.mark.parametrize("client_name", [NAME, ""])
async def test_of_a_ca_of_the_same_name(tmp_path: Path, client_name: str) -> None:
    """SEC-03: the name of an issuer is not its signature."""
    async with guarded(tmp_path, Authority(), client_name=client_name) as world:
        assert_is_refused(world, await ask(world, Authority().issue(tmp_path, _named(NAME))))


async def test_of_the_ca_that_serves(tmp_path: Path) -> None:
    """SEC-03: who trusts us is not whom we trust."""
    async with guarded(tmp_path, Authority()) as world:
        pki = make_pki(tmp_path)
        both = tmp_path / "both.pem"
        both.write_bytes(pki.cert.read_bytes() + pki.key.read_bytes())
        assert_is_refused(world, await ask(world, both))


async def test_an_expired_one(tmp_path: Path) -> None:
    """SEC-03."""
    authority = Authority()
    async with guarded(tmp_path, authority, client_name=NAME) as world:
        expired = authority.issue(tmp_path, _named(NAME), ENDED)
        assert_is_refused(world, await ask(world, expired))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([], id="only the organisation has it"),
        pytest.param(["kubelet"], id="another"),
        pytest.param([f"{NAME}.evil"], id="longer"),
        pytest.param([NAME[:-1]], id="shorter"),
        pytest.param([NAME.upper()], id="in capitals"),
    ],
)
async def test_of_another_name(tmp_path: Path, names: list[str]) -> None:
    """SEC-03: cut before anything of the request is read, though it came with the handshake."""
    authority = Authority()
    async with guarded(tmp_path, authority, client_name=NAME) as world:
        assert_is_refused(world, await ask(world, authority.issue(tmp_path, _named(*names))))
        good = await ask(world, authority.issue(tmp_path, _named(NAME)))
        assert good.endswith(ALLOWED), "the server goes on"


async def test_who_was_turned_away_is_told(tmp_path: Path) -> None:
    """SEC-03: a wrong `-server-tls.client-name` must be found by whoever reads the log."""
    written: list[str] = []
    logs.configure(write=lambda line: written.append(line.decode()))
    authority = Authority()
    try:
        async with guarded(tmp_path, authority, client_name=NAME) as world:
            await ask(world, authority.issue(tmp_path, _named("kubelet")))
    finally:
        logs.configure()
    (line,) = [line for line in written if "client of another name" in line]
    assert "level=info" in line
    assert "peer=::ffff:127.0.0.1" in line
