"""Which clients may call where client certificates are requested: SEC-03, over real TLS.

The context is that of the operator's own serving, with the client CA of an API server.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rollout_operator.pki.certificates import Pair
from rollout_operator.pki.serving import server_context
from rollout_operator.web.webhooks import ServerOptions
from tests.web.webhook_world import ALLOWED, Line, Setting, WebhookWorld, body_of, post, serving
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


Issue = Callable[[Path, Authority], Path]
"""Makes the file of a client."""


class Client:
    """A client that sends its request together with the end of its handshake."""

    def __init__(self, line: Line, context: ssl.SSLContext) -> None:
        self._line = line
        self._inward, self._outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._inward, self._outward, server_hostname="localhost")

    async def send_request(self) -> bytes:
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


async def send_request(world: WebhookWorld, client: Path | None) -> bytes:
    """Return what a client with this certificate gets."""
    if client is not None:
        world.client_context.load_cert_chain(client)
    return await Client(await world.dial(), world.client_context).send_request()


def ours(folder: Path, authority: Authority) -> Path:
    return authority.issue(folder, _named(NAME))


def named(*names: str) -> Issue:
    return lambda folder, authority: authority.issue(folder, _named(*names))


def of_another_ca(folder: Path, authority: Authority) -> Path:
    """Return one of a CA of the same name: that is not its signature."""
    return Authority().issue(folder, _named(NAME))


def of_the_ca_that_serves(folder: Path, authority: Authority) -> Path:
    """Return one of the CA that we are trusted by, which is not one that we trust."""
    pki = make_pki(folder)
    both = folder / "both.pem"
    both.write_bytes(pki.cert.read_bytes() + pki.key.read_bytes())
    return both


def expired(folder: Path, authority: Authority) -> Path:
    return authority.issue(folder, _named(NAME), ENDED)


@pytest.mark.parametrize(
    ("issue", "client_name", "is_answered"),
    [
        pytest.param(ours, NAME, True, id="the right one"),
        pytest.param(named("any"), "", True, id="any name where none is required"),
        pytest.param(None, NAME, False, id="none"),
        pytest.param(None, "", False, id="none, and no name required"),
        pytest.param(of_another_ca, NAME, False, id="of a CA of the same name"),
        pytest.param(of_another_ca, "", False, id="the same, and no name required"),
        pytest.param(of_the_ca_that_serves, "", False, id="of the CA that serves"),
        pytest.param(expired, NAME, False, id="an expired one"),
        pytest.param(named(), NAME, False, id="only the organisation has the name"),
        pytest.param(named("kubelet"), NAME, False, id="another name"),
        pytest.param(named(f"{NAME}.evil"), NAME, False, id="a longer name"),
        pytest.param(named(NAME[:-1]), NAME, False, id="a shorter name"),
        pytest.param(named(NAME.upper()), NAME, False, id="the name in capitals"),
    ],
)
async def test_sec03_which_clients_are_answered(
    tmp_path: Path, issue: Issue | None, client_name: str, is_answered: bool
) -> None:
    """SEC-03: others are cut before anything of a request is read that came with the handshake."""
    authority = Authority()
    async with guarded(tmp_path, authority, client_name=client_name) as world:
        answer = await send_request(world, None if issue is None else issue(tmp_path, authority))
        assert answer.endswith(ALLOWED) == is_answered
        if not is_answered:
            assert answer == b""
            assert world.hook.reviewed == []
            assert world.series("request_duration_seconds_count") == []
            good = await send_request(world, ours(tmp_path, authority))
            assert good.endswith(ALLOWED), "the server goes on"


async def test_clients_turned_away_are_reported(tmp_path: Path, lines: list[str]) -> None:
    """SEC-03: a wrong `-server-tls.client-name` must be found by readers of the log."""
    authority = Authority()
    async with guarded(tmp_path, authority, client_name=NAME) as world:
        await send_request(world, authority.issue(tmp_path, _named("kubelet")))
    (line,) = [line for line in lines if "client of another name" in line]
    assert "level=info" in line
    assert "peer=::ffff:127.0.0.1" in line
