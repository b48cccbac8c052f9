"""Certificates as PEM: read them, issue them, carry out a decision.

Decides what ours look like: P-256, random serials, valid from five minutes ago. Accepts what other
versions wrote: RSA and EC keys in PKCS#1, SEC1 and PKCS#8, chains in `cert`, several certificates
in `ca`. When to issue is decided in `planning.certificate`.

The operator has its questions answered in a process of its own: cryptography takes 9 MiB to import,
for some milliseconds at the start and once in months.
"""

import sys
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rollout_operator.model.names import InvalidInput
from rollout_operator.pki.material import Examined, KeyMaterial, Pair, Question, Refused
from rollout_operator.planning.certificate import (
    BACKDATING,
    LEAF_NAME,
    BrokenCertificate,
    CertificateStep,
    Decision,
    UsableCertificate,
    Validity,
    Wanted,
)

if TYPE_CHECKING:
    from rollout_operator.model.diagnosis import BundleFacts

_Chain = Sequence[x509.Certificate]
# What cryptography raises for what it cannot read, here or when a part is asked for: not all of it
# is a ValueError, and a TypeError is an encrypted key.
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
# No client follows more, and each may be compared with a Secret full of CAs.
_LONGEST_CHAIN: Final = 10


def main() -> None:
    """Answer the question on stdin on stdout."""
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    reply: Examined | Refused
    try:
        reply = answer(question)
    except InvalidInput as error:
        reply = Refused(str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(reply))


def answer(question: Question) -> Examined:
    """Raises InvalidInput where the material does not allow the step."""
    material, issue = question.material, question.issue
    if issue is not None:
        material = carry_out(issue.decision, material, issue.wanted, issue.now)
    facts = read_material(material)
    return Examined(
        material=material,
        facts=facts,
        leaf_name=read_leaf_name(material.cert),
        bundle=trusted_bundle(material),
        may_call=isinstance(facts, UsableCertificate) and is_for_clients(material.cert),
    )


def read_material(material: KeyMaterial) -> BrokenCertificate | UsableCertificate:
    """Return what the key pair holds; a problem names the key of the Secret, and no content."""
    try:
        return _read_usable(material)
    except InvalidInput as error:
        return BrokenCertificate(problem=str(error))


def read_validity(material: KeyMaterial) -> Validity:
    """Return the validity of a chain whose key fits. Raises InvalidInput: one part is not right."""
    return _validity(_load_pair(material))


def _load_pair(material: KeyMaterial) -> _Chain:
    chain = load_chain(material.cert, "cert")
    if not fits(chain[0], load_key(material.key, "key")):
        raise InvalidInput("key: does not belong to the certificate")
    return chain


def trusted_bundle(material: KeyMaterial) -> bytes:
    """Return the PEM of all CAs that callers must trust, the newest first, each once.

    At most three: the next CA, whose key is there; the CA that has signed the leaf, and the CA
    before it. A certificate that another writer added to them vouches for nothing that is served
    here, and is not published (D-31).
    """
    old = _load_or_none(material.old_ca)
    following = _find_signer(material.next_ca, material.next_ca_key)
    cas = (
        None if following is None else following.cert,
        _load_root(material),
        next(filter(_is_ca, old), None),
    )
    bundle = dict.fromkeys(ca for ca in cas if ca is not None)
    return b"".join(ca.public_bytes(serialization.Encoding.PEM) for ca in bundle)


def _choose_root(material: KeyMaterial) -> bytes:
    """Return the PEM of the CA that has signed the leaf, empty where none in `ca` has."""
    root = _load_root(material)
    return b"" if root is None else root.public_bytes(serialization.Encoding.PEM)


def _load_root(material: KeyMaterial) -> x509.Certificate | None:
    return _find_root(_load_or_none(material.cert), _load_or_none(material.ca))


def load_chain(pem: bytes, what: str) -> _Chain:
    if not pem:
        raise InvalidInput(f"{what}: missing")
    try:
        chain = x509.load_pem_x509_certificates(pem)
        for cert in chain:  # what all who use it ask for is read when it is asked for
            _ = cert.subject, cert.not_valid_before_utc, cert.not_valid_after_utc
    except _UNREADABLE as error:
        raise InvalidInput(f"{what}: not a certificate in PEM") from error
    return chain


def load_key(pem: bytes, what: str) -> PrivateKeyTypes:
    if not pem:
        raise InvalidInput(f"{what}: missing")
    try:
        # Checking an RSA key of 4096 bits for primes would stop the loop for 0.2 s. TLS does not
        # check either, and a writer of the Secret may break it in simpler ways.
        return serialization.load_pem_private_key(
            pem, password=None, unsafe_skip_rsa_key_validation=True
        )
    except _UNREADABLE:
        # The cause is left out: a parser may quote the key.
        raise InvalidInput(f"{what}: not a private key in PEM") from None


def fits(cert: x509.Certificate, key: PrivateKeyTypes) -> bool:
    try:
        return _public_bytes(cert.public_key()) == _public_bytes(key.public_key())
    except _UNREADABLE:
        return False


class _Signer(NamedTuple):
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _find_signer(pem: bytes, key_pem: bytes) -> _Signer | None:
    """Return the CA in `pem` that can sign with the key, None where there is none."""
    try:
        key = load_key(key_pem, "ca-key")
    except InvalidInput:
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    cas = (ca for ca in _load_or_none(pem) if _is_ca(ca) and fits(ca, key))
    return next((_Signer(ca, key) for ca in cas), None)


def read_leaf_name(pem: bytes) -> str:
    try:
        subject = load_chain(pem, "cert")[0].subject
        names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (InvalidInput, *_UNREADABLE):
        return ""
    return str(names[0].value) if len(names) == 1 else ""


def is_for_clients(pem: bytes) -> bool:
    return _may_serve_as(load_chain(pem, "cert")[0], ExtendedKeyUsageOID.CLIENT_AUTH)


def _read_usable(material: KeyMaterial) -> UsableCertificate:
    chain = _load_pair(material)
    if not _may_serve_as(chain[0], ExtendedKeyUsageOID.SERVER_AUTH):
        raise InvalidInput("cert: not meant for servers")
    root = _find_root(chain, load_chain(material.ca, "ca"))
    if root is None:
        raise InvalidInput("cert: not signed by the certificate in ca")
    signer = _find_signer(material.ca, material.ca_key)
    next_ca = _find_signer(material.next_ca, material.next_ca_key)
    old = _load_or_none(material.old_ca)
    return UsableCertificate(
        names=_names(chain[0]),
        leaf=_validity(chain),
        ca=_validity([root]),
        # Callers may trust no other CA of `ca` yet.
        may_sign=signer is not None and signer.cert == root,
        next_ca=None if next_ca is None else _validity([next_ca.cert]),
        old_ca=_validity(old) if old else _OVER if material.old_ca else None,
    )


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
# Of what is no certificate, so that it is dropped.
_OVER: Final = Validity(start=_EPOCH, end=_EPOCH)


def _find_root(chain: _Chain, cas: _Chain) -> x509.Certificate | None:
    """Return the trusted certificate in which the chain of issuers of the leaf ends."""
    for place, cert in enumerate(chain[:_LONGEST_CHAIN]):
        root = next((ca for ca in cas if cert == ca or _is_issued_by(cert, ca)), None)
        if root is not None:
            return root
        if place + 1 == len(chain) or not _is_issued_by(cert, chain[place + 1]):
            return None
    return None


def _is_issued_by(cert: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(issuer)
    except _UNREADABLE:
        return False
    return _is_ca(issuer)


def _is_ca(cert: x509.Certificate) -> bool:
    try:
        return cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except _UNREADABLE:
        return False


def _may_serve_as(leaf: x509.Certificate, purpose: x509.ObjectIdentifier) -> bool:
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except _UNREADABLE as error:
        raise InvalidInput("cert: extensions cannot be read") from error
    return not {purpose, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}.isdisjoint(usages)


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except _UNREADABLE:
        return ()
    return tuple(names.get_values_for_type(x509.DNSName))


def _validity(chain: _Chain) -> Validity:
    return Validity(
        start=max(cert.not_valid_before_utc for cert in chain),
        end=min(cert.not_valid_after_utc for cert in chain),
    )


def _load_or_none(pem: bytes) -> _Chain:
    try:
        return load_chain(pem, "ca")
    except InvalidInput:
        return ()


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def issue_ca(wanted: Wanted, now: datetime) -> Pair:
    """Return a new CA; its name is its own, so that two of them can be distinguished."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _subject(f"{LEAF_NAME} CA {serial % 2**32:08x}", wanted)
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    cert = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, serial_number=serial)
        .public_key(key.public_key())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(now + wanted.ca_life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_ca=True), critical=True)
        .add_extension(identity, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(cert, key)


def issue_leaf(ca: Pair, wanted: Wanted, now: datetime) -> Pair:
    """Return a new leaf with a new key, which does not outlive its CA.

    Raises InvalidInput where the CA cannot sign.
    """
    found = _find_signer(ca.cert, ca.key)
    if found is None:
        raise InvalidInput("ca-key: not the key of a ca certificate")
    signer, signer_key = found
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(name) for name in wanted.names]
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder(
            subject_name=_subject(LEAF_NAME, wanted), issuer_name=signer.subject
        )
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(min(now + wanted.expiration, signer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()),
            critical=False,
        )
    )
    return _pair(builder.sign(signer_key, hashes.SHA256()), key)


def carry_out(
    decision: Decision, material: KeyMaterial, wanted: Wanted, now: datetime
) -> KeyMaterial:
    """Return what the Secret shall hold after the step.

    Raises InvalidInput where the key pair does not allow the step.
    """
    match decision.step:
        case CertificateStep.KEEP | CertificateStep.LEAVE:
            return material
        case CertificateStep.ISSUE_LEAF:
            return _with_leaf(material, wanted, now)
        case CertificateStep.INTRODUCE_CA:
            pair = issue_ca(wanted, now)
            return replace(material, next_ca=pair.cert, next_ca_key=pair.key)
        case CertificateStep.SWITCH_CA:
            old = _choose_root(material)
            new = KeyMaterial(ca=material.next_ca, ca_key=material.next_ca_key, old_ca=old)
            return _with_leaf(new, wanted, now)
        case CertificateStep.DROP_OLD_CA:
            return replace(material, old_ca=b"")
        case CertificateStep.START_OVER:
            pair = issue_ca(wanted, now)
            old = _choose_root(material) if decision.trusts_old else b""
            fresh = KeyMaterial(ca=pair.cert, ca_key=pair.key, old_ca=old)
            return _with_leaf(fresh, wanted, now)
        case _:
            assert_never(decision.step)


def _with_leaf(material: KeyMaterial, wanted: Wanted, now: datetime) -> KeyMaterial:
    leaf = issue_leaf(Pair(cert=material.ca, key=material.ca_key), wanted, now)
    return replace(material, cert=leaf.cert, key=leaf.key)


def _subject(name: str, wanted: Wanted) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if wanted.organisation:
        organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, wanted.organisation)
        attributes.insert(0, organisation)
    return x509.Name(attributes)


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        cert=cert.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def read_bundle(bundle: str, certificate: bytes = b"") -> "BundleFacts":
    """Return what a `caBundle` holds, in base64 as it is written.

    `certificate` is the PEM of what the operator serves, empty where that is not known.
    """
    # A process that answers one question has no use for it.
    from rollout_operator.model.diagnosis import BundleFacts

    try:
        cas = load_chain(b64decode(bundle, validate=True), "caBundle")
    except Base64Error:
        return BundleFacts(problem="caBundle: not base64")
    except InvalidInput as error:
        return BundleFacts(problem=f"{error}")
    return BundleFacts(
        ends=max(ca.not_valid_after_utc for ca in cas),
        vouches=_vouches(cas, certificate) if certificate else None,
    )


def _vouches(cas: _Chain, certificate: bytes) -> bool | None:
    try:
        return _find_root(load_chain(certificate, "cert"), cas) is not None
    except InvalidInput:
        return None
