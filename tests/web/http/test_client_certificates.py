"""Which clients may call where client certificates are requested: SEC-03, over real TLS.

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

from rollout_operator.pki.certificates import Pair
from rollout_operator.pki.serving import server_context
from rollout_operator.web.webhooks import ServerOptions
from tests.web.served import ALLOWED, ServedWebhooks, body_of, post, serving
from tests.world.pki import make_pki

NAME: Final = "kube-apiserver"
NOW: Final = datetime.now(UTC)
DAY: Final = timedelta(days=1)
PEM: Final = serialization.Encoding.PEM


class Authority:
    """A CA of clients; all have the same name."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _build(["client CA"], self._key, NOW + DAY)
        cert = builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())
        self.pem = cert.public_bytes(PEM)

    def issue(self, names: list[str], until: datetime = NOW + DAY) -> bytes:
        """Return a client's certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = _build(names, key, until).sign(self._key, hashes.SHA256())
        plain = serialization.NoEncryption()
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain)
        return cert.public_bytes(PEM) + private


def _name(names: list[str]) -> x509.Name:
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, NAME)
    common = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    return x509.Name([organisation, *common])


def _build(
    names: list[str], key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=_name(["client CA"]), subject_name=_name(names), public_key=key.public_key(),
        serial_number=x509.random_serial_number(), not_valid_before=NOW - 2 * DAY,
        not_valid_after=until,
    )  # fmt: skip


class Guarded:
    """A server that wants certificates of a CA, of a name, and its clients."""

    def __init__(self, served: ServedWebhooks, folder: Path) -> None:
        self.served, self.folder = served, folder
        self.authority, self.pki = Authority(), make_pki(folder)
        self.pair = Pair(cert=self.pki.cert.read_bytes(), key=self.pki.key.read_bytes())
        served.server_context = server_context(self.pair, self.authority.pem)

    async def send_request(self, shown: bytes | None) -> bytes:
        """Send a request together with the end of the handshake; return what comes back."""
        context = ssl.create_default_context(cafile=str(self.pki.ca))
        if shown is not None:
            (self.folder / "client.pem").write_bytes(shown)
            context.load_cert_chain(self.folder / "client.pem")
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(inward, outward, server_hostname="localhost")
        line = await self.served.dial()
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.writer.write(outward.read())
                inward.write(await line.reader.read(1 << 16))
        tls.write(post(body_of()))
        line.writer.write(outward.read())
        answer = b""
        while ALLOWED not in answer:
            try:
                part = await line.reader.read(1 << 16)
            except ConnectionError:
                break
            if not part:
                break
            inward.write(part)
            try:
                answer += tls.read(1 << 16)
            except ssl.SSLError:  # no whole record yet, or a refusal
                continue
        return answer


@asynccontextmanager
async def guarded(folder: Path, client_name: str = NAME) -> AsyncIterator[Guarded]:
    async with serving(options=ServerOptions(client_name=client_name)) as served:
        yield Guarded(served, folder)


@pytest.mark.parametrize("wanted", [NAME, ""], ids=["by name", "of any name"])
@pytest.mark.parametrize(
    ("names", "is_answered"),
    [
        pytest.param([NAME], True, id="the right one"),
        pytest.param([], False, id="only the organisation has the name"),
        pytest.param(["kubelet"], False, id="another name"),
        pytest.param([f"{NAME}.evil"], False, id="a longer name"),
        pytest.param([NAME[:-1]], False, id="a shorter name"),
        pytest.param([NAME.upper()], False, id="the name in capitals"),
    ],
)
async def test_sec03_which_names_are_answered(
    tmp_path: Path, names: list[str], is_answered: bool, wanted: str
) -> None:
    async with guarded(tmp_path, wanted) as server:
        answer = await server.send_request(server.authority.issue(names))
        assert answer.endswith(ALLOWED) if is_answered or not wanted else answer == b""


@pytest.mark.parametrize("wanted", [NAME, ""], ids=["by name", "of any name"])
async def test_sec03_others_are_cut_before_anything_is_read_of_their_request(
    tmp_path: Path, wanted: str, lines: list[str]
) -> None:
    """SEC-03: which has come with the handshake. A wrong name must be found in the log."""
    async with guarded(tmp_path, wanted) as server:
        shown = [
            None,
            Authority().issue([NAME]),
            server.pair.cert + server.pair.key,
            server.authority.issue([NAME], NOW - timedelta(minutes=1)),
            *[server.authority.issue(["kubelet"])] * bool(wanted),
        ]
        assert {await server.send_request(one) for one in shown} == {b""}
        assert server.served.hook.reviewed == []
        assert server.served.series("request_duration_seconds_count") == []
        good = await server.send_request(server.authority.issue([NAME]))
        assert good.endswith(ALLOWED), "the server goes on"
    reported = [line for line in lines if "client of another name" in line]
    assert ["level=info" in line for line in reported] == [True] * bool(wanted)
