"""Certificates as PEM and in the Secret: read them, issue them, carry out a decision.

Decides what ours look like: P-256, random serials, valid from five minutes ago. Accepts what other
versions wrote: RSA and EC keys in PKCS#1, SEC1 and PKCS#8, chains in `cert`, several certificates
in `ca`. When to issue is decided in `planning.certificate`. Of a Secret, labels, annotations, type
and data that is not ours are kept.
"""

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol, assert_never

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rollout_operator.kube.api import SECRETS, JsonObject, Resource
from rollout_operator.model.diagnosis import BundleFacts
from rollout_operator.model.names import (
    CERTIFICATE_LABEL,
    Denied,
    InvalidInput,
    NotFound,
    Unreachable,
)
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

# The first three are those of every version of the Secret; a reader that does not know the others
# leaves them alone.
_SECRET_KEYS: Final[Mapping[str, str]] = {
    "ca": "ca",
    "cert": "cert",
    "key": "key",
    "ca_key": "ca-key",
    "next_ca": "next-ca",
    "next_ca_key": "next-ca-key",
    "old_ca": "old-ca",
}
"""Field of `KeyMaterial` → key in the data of the Secret."""
_MADE_BY_US: Final = "true"
# The type of a Secret that names none.
_PLAIN: Final = "Opaque"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pair:
    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({_fingerprint(self.cert)})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyMaterial:
    """Everything that serving needs, and what renewing needs later. Empty where absent."""

    cert: bytes = b""
    """The leaf first, then further certificates of its chain."""
    key: bytes = b""
    ca: bytes = b""
    ca_key: bytes = b""
    next_ca: bytes = b""
    next_ca_key: bytes = b""
    old_ca: bytes = b""

    @property
    def served(self) -> Pair:
        return Pair(cert=self.cert, key=self.key)

    def __repr__(self) -> str:
        return f"Material(cert={_fingerprint(self.cert)}, ca={_fingerprint(self.ca)})"


def _fingerprint(pem: bytes) -> str:
    """Return a short text that is the same for the same PEM, for logs."""
    return hashlib.sha256(pem).hexdigest()[:12] if pem else "none"


_Chain = Sequence[x509.Certificate]


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
    cas = (
        _find_signer(material.next_ca, material.next_ca_key),
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
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{what}: not a certificate in PEM") from error


def load_key(pem: bytes, what: str) -> PrivateKeyTypes:
    if not pem:
        raise InvalidInput(f"{what}: missing")
    try:
        # Checking an RSA key of 4096 bits for primes would stop the loop for 0.2 s. TLS does not
        # check either, and a writer of the Secret may break it in simpler ways.
        return serialization.load_pem_private_key(
            pem, password=None, unsafe_skip_rsa_key_validation=True
        )
    # TypeError is an encrypted key.
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The cause is left out: a parser may quote the key.
        raise InvalidInput(f"{what}: not a private key in PEM") from None


def fits(cert: x509.Certificate, key: PrivateKeyTypes) -> bool:
    try:
        return _public_bytes(cert.public_key()) == _public_bytes(key.public_key())
    except (ValueError, UnsupportedAlgorithm):
        return False


def _find_signer(pem: bytes, key_pem: bytes) -> x509.Certificate | None:
    """Return the CA certificate in `pem` that the key belongs to, None where there is none."""
    try:
        key = load_key(key_pem, "ca-key")
    except InvalidInput:
        return None
    return next((ca for ca in _load_or_none(pem) if _is_ca(ca) and fits(ca, key)), None)


def read_leaf_name(pem: bytes) -> str:
    try:
        subject = load_chain(pem, "cert")[0].subject
        names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (InvalidInput, ValueError):
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
    next_ca = _find_signer(material.next_ca, material.next_ca_key)
    old = _load_or_none(material.old_ca)
    return UsableCertificate(
        names=_names(chain[0]),
        leaf=_validity(chain),
        ca=_validity([root]),
        may_sign=_find_signer(material.ca, material.ca_key) is not None,
        next_ca=None if next_ca is None else _validity([next_ca]),
        old_ca=_validity(old) if old else _OVER if material.old_ca else None,
    )


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
# Of what is no certificate, so that it is dropped.
_OVER: Final = Validity(start=_EPOCH, end=_EPOCH)


def _find_root(chain: _Chain, cas: _Chain) -> x509.Certificate | None:
    """Return the trusted certificate in which the chain of issuers of the leaf ends."""
    for place, cert in enumerate(chain):
        root = next((ca for ca in cas if cert == ca or _is_issued_by(cert, ca)), None)
        if root is not None:
            return root
        if place + 1 == len(chain) or not _is_issued_by(cert, chain[place + 1]):
            return None
    return None


def _is_issued_by(cert: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return _is_ca(issuer)


def _is_ca(cert: x509.Certificate) -> bool:
    try:
        return cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False


def _may_serve_as(leaf: x509.Certificate, purpose: x509.ObjectIdentifier) -> bool:
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except (ValueError, x509.DuplicateExtension) as error:
        raise InvalidInput("cert: extensions cannot be read") from error
    return not {purpose, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}.isdisjoint(usages)


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
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


def _signer(ca: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    cert = _find_signer(ca.cert, ca.key)
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


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        cert=cert.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def read_bundle(bundle: str, certificate: bytes = b"") -> BundleFacts:
    """Return what a `caBundle` holds, in base64 as it is written.

    `certificate` is the PEM of what the operator serves, empty where that is not known.
    """
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


class _SecretApi(Protocol):
    """The part of the API client that the Secret needs; errors as in `kube.api`."""

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes: ...

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes: ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    material: KeyMaterial
    problem: str = ""
    """Why its data is no key pair at all, empty where it may be."""
    body: JsonObject = field(default_factory=dict, repr=False)
    """The whole object; empty where there is none."""

    @property
    def uid(self) -> str:
        return str(_part(self.body, "metadata").get("uid") or "")

    @property
    def is_labelled(self) -> bool:
        labels = _part(_part(self.body, "metadata"), "labels")
        return labels.get(CERTIFICATE_LABEL) == _MADE_BY_US

    @property
    def is_empty(self) -> bool:
        """Return whether it is absent, or has no data and its type does not demand certain data."""
        data = self.body.get("data") or {}
        is_plain = (self.body.get("type") or _PLAIN) == _PLAIN
        return is_plain and isinstance(data, dict) and not any(data.values())

    @property
    def is_immutable(self) -> bool:
        return self.body.get("immutable") is True


class SecretStore:
    def __init__(self, api: _SecretApi, *, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    def __str__(self) -> str:
        return f"secret {self._namespace}/{self._name}"

    async def fetch(self) -> Stored:
        try:
            raw = await self._api.fetch(SECRETS, self._namespace, self._name)
        except NotFound:
            return Stored(material=KeyMaterial(), problem="there is no secret")
        return self._decode(raw)

    async def write(self, before: Stored, material: KeyMaterial) -> None:
        """Store `material` in place of what was read before.

        Raises Conflict or NotFound where another client was faster, UnknownOutcome without
        an answer: read again. Else as `kube.api.Writer.create`.
        """
        if not before.body:
            await self._create(material)
            return
        kept = _part(before.body, "data")
        others = {key: kept[key] for key in kept if key not in _SECRET_KEYS.values()}
        head = _part(before.body, "metadata")
        labels = {**_part(head, "labels"), CERTIFICATE_LABEL: _MADE_BY_US}
        body = {
            **before.body,
            "metadata": {**head, "labels": labels},
            "data": {**others, **_encode(material)},
        }
        await self._api.replace(SECRETS, self._namespace, self._name, body)

    async def _create(self, material: KeyMaterial) -> None:
        try:
            await self._api.create(SECRETS, self._namespace, self._fresh(material))
        except Denied as error:
            if error.status != 403:
                raise
            # The shipped Role has no right to create, since the Secret is shipped too.
            command = f"kubectl create secret generic {self._name} --namespace {self._namespace}"
            text = f"{self} does not exist: create it empty ({command}), or let this do it: {error}"
            raise Denied(text, call=error.call, status=error.status, reason=error.reason) from error

    def _fresh(self, material: KeyMaterial) -> JsonObject:
        return {
            "apiVersion": SECRETS.version,
            "kind": SECRETS.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {CERTIFICATE_LABEL: _MADE_BY_US},
            },
            "data": _encode(material),
        }

    def _decode(self, raw: bytes) -> Stored:
        try:
            body = msgspec.json.decode(raw, type=dict[str, object])
        except (msgspec.MsgspecError, RecursionError):
            # Not chained: a decoder may quote what it has read.
            raise Unreachable(f"cannot read {self}: the answer is no object") from None
        data = body.get("data") or {}
        if not isinstance(data, dict):
            return Stored(material=KeyMaterial(), problem="data: not an object", body=body)
        try:
            material = KeyMaterial(
                **{name: _value(data, key) for name, key in _SECRET_KEYS.items()}
            )
            return Stored(material=material, body=body)
        except _NotBase64 as error:
            return Stored(material=KeyMaterial(), problem=str(error), body=body)


class _NotBase64(Exception):
    """A value of the Secret's data is not what the API promises."""


def _part(body: JsonObject, key: str) -> JsonObject:
    part = body.get(key)
    return part if isinstance(part, dict) else {}


def _value(data: Mapping[str, object], key: str) -> bytes:
    text = data.get(key) or ""
    try:
        return b64decode(text if isinstance(text, str) else "?", validate=True)
    except (Base64Error, ValueError):
        raise _NotBase64(f"data.{key}: not base64") from None


def _encode(material: KeyMaterial) -> dict[str, str]:
    values = {key: getattr(material, name) for name, key in _SECRET_KEYS.items()}
    return {key: b64encode(value).decode() for key, value in values.items() if value}
