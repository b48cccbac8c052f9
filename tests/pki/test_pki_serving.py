"""TLS as it is served: TLS-22, SEC-01, SEC-14, DEP-24, D-30."""

import asyncio
import os
import ssl
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from rollout_operator.model.names import InvalidInput
from rollout_operator.pki.certificates import KeyMaterial, Pair, carry_out, issue_ca, issue_leaf
from rollout_operator.pki.serving import ServingCertificate, server_context
from rollout_operator.planning.certificate import CertificateStep, Decision
from tests.pki.certificates import HOST, WANTED, Legacy, client_context, load, shake_hands

FRESH = Decision(step=CertificateStep.START_OVER, reason="there is no secret")


def fresh() -> KeyMaterial:
    """Return material that is valid on this machine now: TLS knows no other clock."""
    return carry_out(FRESH, KeyMaterial(), WANTED, datetime.now(UTC))


def test_a_client_verifies_what_is_served() -> None:
    material = fresh()
    for host in WANTED.names:
        peer = shake_hands(server_context(material.served), client_context(material.ca), host)
        assert peer.version == "TLSv1.3"


def test_a_client_refuses_another_name_and_another_ca() -> None:
    material = fresh()
    server = server_context(material.served)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(material.ca), "other.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(fresh().ca))


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())]
)
def test_foreign_keys_are_served(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
    data = Legacy(key=key).data()
    peer = shake_hands(server_context(Pair(cert=data["cert"], key=data["key"])), client_context())
    assert peer.cert


def test_http_1_1_is_the_only_protocol() -> None:
    server, client = server_context(fresh().served), client_context()
    client.set_alpn_protocols(["h2", "http/1.1"])
    assert shake_hands(server, client).protocol == "http/1.1"
    client.set_alpn_protocols(["h2"])
    assert shake_hands(server, client).protocol is None


def limited(version: ssl.TLSVersion, suites: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    client = client_context()
    client.minimum_version = version
    client.maximum_version = version
    client.set_ciphers(suites)
    return client


@pytest.mark.parametrize("suite", ["ECDHE+AESGCM", "ECDHE+CHACHA20"])
def test_tls_1_2_with_good_suites(suite: str) -> None:
    server = server_context(fresh().served)
    assert shake_hands(server, limited(ssl.TLSVersion.TLSv1_2, suite)).version == "TLSv1.2"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("version", "suites"),
    [
        pytest.param("TLSv1", "ALL:@SECLEVEL=0", id="TLS 1.0"),
        pytest.param("TLSv1_1", "ALL:@SECLEVEL=0", id="TLS 1.1"),
        pytest.param("TLSv1_2", "ECDHE+AES:!AESGCM:!AESCCM:@SECLEVEL=0", id="CBC"),
        pytest.param("TLSv1_2", "kRSA:@SECLEVEL=0", id="no forward secrecy"),
        pytest.param("TLSv1_2", "DHE:@SECLEVEL=0", id="finite fields"),
        pytest.param("TLSv1_2", "aNULL:eNULL:@SECLEVEL=0", id="anonymous, or without encryption"),
    ],
)
def test_weak_tls_is_refused(version: str, suites: str) -> None:
    """SEC-01: whatever the key would allow."""
    data = Legacy().data()
    server = server_context(Pair(cert=data["cert"], key=data["key"]))
    with pytest.raises(ssl.SSLError):
        shake_hands(server, limited(ssl.TLSVersion[version], suites))


def test_no_tickets_no_compression_no_renegotiation() -> None:
    context = server_context(fresh().served)
    wanted = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    assert context.options & wanted == wanted
    assert context.num_tickets == 0


def test_clients_show_a_certificate_where_requested() -> None:
    """A client CA: who shows none is refused, who has one of it is served."""
    material, now = fresh(), datetime.now(UTC)
    ca = issue_ca(WANTED, now)
    server = server_context(material.served, ca.cert)
    stranger, friend = client_context(material.ca), client_context(material.ca)
    show(friend, issue_leaf(ca, WANTED, now))
    assert shake_hands(server, friend).cert
    with pytest.raises(ssl.SSLError):
        shake_hands(server, stranger)


def show(client: ssl.SSLContext, pair: Pair) -> None:
    """Let a client show a certificate."""
    descriptor = os.memfd_create("client")
    os.write(descriptor, pair.cert + pair.key)
    client.load_cert_chain(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)


def test_a_bad_client_ca_is_reported() -> None:
    with pytest.raises(InvalidInput, match="client ca: not a certificate in PEM"):
        server_context(fresh().served, b"garbage")


@pytest.mark.parametrize(
    "pair",
    [
        Pair(cert=b"", key=b""),
        Pair(cert=b"garbage", key=b"garbage"),
        Pair(cert=fresh().cert, key=fresh().key),
    ],
)
def test_what_tls_refuses_is_reported_without_keys(pair: Pair) -> None:
    """SEC-14: neither the text nor the cause holds key material."""
    with pytest.raises(InvalidInput, match="certificate and key: refused by tls: ") as raised:
        server_context(pair)
    assert raised.value.__cause__ is None
    assert "PRIVATE" not in str(raised.value)


def test_keys_touch_no_path_and_no_descriptor_stays() -> None:
    """DEP-24: an anonymous file in memory, closed when the key is loaded."""
    before = set(os.listdir("/proc/self/fd"))
    contexts = [server_context(fresh().served) for _ in range(3)]
    with pytest.raises(InvalidInput):
        server_context(Pair(cert=b"x", key=b"y"))
    assert set(os.listdir("/proc/self/fd")) == before
    assert len(contexts) == 3


@pytest.mark.parametrize("part", [fresh(), fresh().served, issue_ca(WANTED, datetime.now(UTC))])
def test_no_text_of_material_shows_a_key(part: KeyMaterial | Pair) -> None:
    """SEC-14: repr, str and f-string alike, also inside of containers and errors."""
    texts = [repr(part), str(part), f"{part}", f"{[part]}", repr(ValueError(part))]
    assert "PRIVATE" not in "".join(texts)
    assert part.key.splitlines()[1].decode() not in "".join(texts)
    assert all(len(text) < 100 for text in texts)


@pytest.mark.parametrize("content", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----"])
def test_sec03_clients_are_never_left_unchecked_by_a_file_without_a_certificate(
    content: bytes,
) -> None:
    with pytest.raises(InvalidInput, match="client ca: not a certificate in PEM"):
        ServingCertificate(content)


def test_a_swap_that_fails_changes_nothing() -> None:
    serving = ServingCertificate()
    serving.swap(fresh())
    before = serving.current
    with pytest.raises(InvalidInput):
        serving.swap(KeyMaterial(cert=b"x", key=b"y"))
    with pytest.raises(InvalidInput):
        serving.check(KeyMaterial())
    assert serving.current is before


async def test_a_swap_counts_from_the_next_connection_on() -> None:
    """W-11, over real sockets: an open connection goes on, a new one gets the new leaf."""
    serving = ServingCertificate()
    old, new = fresh(), fresh()
    serving.swap(old)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(serving.current)
        while line := await reader.readline():
            writer.write(line)
        writer.close()
        await writer.wait_closed()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener:
        first = await connect(port, old.ca)
        serving.swap(new)
        second = await connect(port, new.ca)
        assert await echo(first) == b"hello\n"
        assert await echo(second) == b"hello\n"
        assert peer(first) == load(old.cert).serial_number
        assert peer(second) == load(new.cert).serial_number
        for _, writer in (first, second):
            writer.close()
            await writer.wait_closed()


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int, ca: bytes) -> Stream:
    context = client_context(ca)
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)


async def echo(stream: Stream) -> bytes:
    reader, writer = stream
    writer.write(b"hello\n")
    return await reader.readline()


def peer(stream: Stream) -> int:
    shown = stream[1].get_extra_info("peercert")["serialNumber"]
    return int(shown, 16)
