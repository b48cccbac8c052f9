"""Issue CAs and leaves, and compute what the Secret shall hold after a decision about it.

Decides what our certificates look like: P-256, random serials, starts put back by five minutes.
When something is issued is `planning.certificate`'s decision.
"""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rollout_operator.model.errors import InvalidInput
from rollout_operator.pki.facts import choose_root, find_signer, load_key
from rollout_operator.pki.key_pair import KeyMaterial, Pair
from rollout_operator.planning.certificate import BACKDATING, CertificateStep, Decision, Wanted
from rollout_operator.planning.ownership import LEAF_NAME


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
    signer, signer_key = _signer(ca)
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
        .add_extension(_authority_of(signer_key), critical=False)
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
            return _switched(material, wanted, now)
        case CertificateStep.DROP_OLD_CA:
            return replace(material, old_ca=b"")
        case CertificateStep.START_OVER:
            pair = issue_ca(wanted, now)
            old = choose_root(material) if decision.trusts_old else b""
            fresh = KeyMaterial(ca=pair.cert, ca_key=pair.key, old_ca=old)
            return _with_leaf(fresh, wanted, now)
        case _:
            assert_never(decision.step)


def _with_leaf(material: KeyMaterial, wanted: Wanted, now: datetime) -> KeyMaterial:
    leaf = issue_leaf(Pair(cert=material.ca, key=material.ca_key), wanted, now)
    return replace(material, cert=leaf.cert, key=leaf.key)


def _switched(material: KeyMaterial, wanted: Wanted, now: datetime) -> KeyMaterial:
    old = choose_root(material)
    new = KeyMaterial(ca=material.next_ca, ca_key=material.next_ca_key, old_ca=old)
    return _with_leaf(new, wanted, now)


def _signer(ca: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    cert = find_signer(ca.cert, ca.key)
    if cert is None:
        raise InvalidInput("ca-key: not the key of a ca certificate")
    key = load_key(ca.key, "ca-key")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput("ca-key: not an elliptic curve key")
    return cert, key


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


def _authority_of(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        cert=cert.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
