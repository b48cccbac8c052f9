"""Certificates as other versions and other people write them, and the checks of a client."""

import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rollout_operator.pki.material import Pair
from rollout_operator.planning.certificate import Wanted
from tests.fakes_clock import EPOCH

HOST = "rollout-operator.prod.svc"
YEAR = timedelta(days=365)
WANTED = Wanted(
    names=(HOST, f"{HOST}.cluster.local"),
    organisation="Grafana Labs",
    expiration=YEAR,
    ca_life=5 * YEAR,
)

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
PKCS1 = serialization.PrivateFormat.TraditionalOpenSSL
PKCS8 = serialization.PrivateFormat.PKCS8

# Making RSA keys takes a tenth of a second each.
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Legacy(msgspec.Struct, frozen=True, kw_only=True):
    """A Secret as upstream writes it: one CA without its key, no common name in it."""

    start: datetime = EPOCH
    life: timedelta = YEAR
    ca_life: timedelta = YEAR
    names: Sequence[str] = (HOST,)
    other_names: bytes = b""
    """In DER, instead of these."""
    key: Key = RSA_KEY
    format: serialization.PrivateFormat = PKCS1
    signer: Key | None = None
    """The key of the CA, which is then in the Secret as well."""
    is_ca: bool = True
    """Whether what signs says that it may."""
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH
    issued_to: str = "rollout-operator"

    def data(self) -> dict[str, bytes]:
        ca_key = self.signer or ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Grafana Labs")])
        ca = (
            self._builder(issuer, issuer, self.ca_life)
            .public_key(ca_key.public_key())
            .add_extension(x509.BasicConstraints(ca=self.is_ca, path_length=None), critical=True)
            .sign(ca_key, hashes.SHA256())
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.issued_to)])
        names = [x509.DNSName(name) for name in self.names]
        leaf = (
            self._builder(subject, issuer, self.life)
            .public_key(self.key.public_key())
            .add_extension(
                x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, self.other_names)
                if self.other_names
                else x509.SubjectAlternativeName(names),
                critical=False,
            )
            .add_extension(x509.ExtendedKeyUsage([self.usage]), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        plain = serialization.NoEncryption()
        made = {
            "ca": ca.public_bytes(pem),
            "cert": leaf.public_bytes(pem),
            "key": self.key.private_bytes(pem, self.format, plain),
        }
        if self.signer is not None:
            made["ca-key"] = self.signer.private_bytes(pem, self.format, plain)
        return made

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, life: timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .serial_number(2022)
            .not_valid_before(self.start)
            .not_valid_after(self.start + life)
        )


def edit(pem: bytes, old: bytes, new: bytes) -> bytes:
    """Return the certificate with other bytes in its DER, of which the signature knows nothing."""
    der = load(pem).public_bytes(serialization.Encoding.DER)
    assert der.count(old) == 1
    return ssl.DER_cert_to_PEM_cert(der.replace(old, new)).encode()


def load(pem: bytes) -> x509.Certificate:
    """Return the first certificate of a PEM text."""
    return x509.load_pem_x509_certificates(pem)[0]


def verify(
    cert: bytes, bundle: bytes, now: datetime, *, host: str = HOST, lax: bool = True
) -> None:
    """Check a served chain as a client does that trusts `bundle`; raises where it would refuse.

    Lax is what an API server is: it does not request key identifiers.
    """
    builder = verification.PolicyBuilder().time(now)
    if lax:
        anything, either = (
            verification.ExtensionPolicy.permit_all(),
            verification.Criticality.AGNOSTIC,
        )
        builder = builder.extension_policies(
            ca_policy=anything.require_present(x509.BasicConstraints, either, None),
            ee_policy=anything.require_present(x509.SubjectAlternativeName, either, None),
        )
    store = verification.Store(x509.load_pem_x509_certificates(bundle))
    leaf, *others = x509.load_pem_x509_certificates(cert)
    builder.store(store).build_server_verifier(x509.DNSName(host)).verify(leaf, others)


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client learnt from a handshake."""

    cert: bytes
    """DER of the leaf."""
    version: str | None
    suite: str
    protocol: str | None


def client_context(bundle: bytes = b"", shown: Pair | None = None) -> ssl.SSLContext:
    """Return a client that trusts `bundle`, or anything where it is empty, and shows a leaf."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if bundle:
        context.load_verify_locations(cadata=bundle.decode())
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if shown is not None:
        with TemporaryDirectory() as folder:
            both = Path(folder) / "client.pem"
            both.write_bytes(shown.cert + shown.key)
            context.load_cert_chain(both)
    return context


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = HOST) -> Peer:
    """Run a handshake in memory. Raises ssl.SSLError where either side refuses."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname=host)
    theirs = server.wrap_bio(up, down, server_side=True)
    pending = [ours, theirs]
    for _ in range(10):
        pending = [side for side in pending if not _is_done(side)]
        if not pending:
            break
    assert not pending, "the handshake does not come to an end"
    cert, cipher = ours.getpeercert(binary_form=True), ours.cipher()
    assert cert is not None
    assert cipher is not None
    _read_on(ours)
    return Peer(
        cert=cert, version=ours.version(), suite=cipher[0], protocol=ours.selected_alpn_protocol()
    )


def _is_done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _read_on(side: ssl.SSLObject) -> None:
    """Take what the server sent after the handshake, such as a refusal in TLS 1.3, or a ticket."""
    try:
        side.read(1)
    except ssl.SSLWantReadError:
        return
