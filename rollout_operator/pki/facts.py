"""What stands in PEM: the facts that `planning.certificate` decides on, and the CA bundle.

Accepts what other versions wrote: RSA and EC keys in PKCS#1, SEC1 and PKCS#8, chains in `cert`,
several certificates in `ca`. Whether the time is right for them is not decided here.
"""

from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rollout_operator.model.errors import InvalidInput
from rollout_operator.pki.key_pair import KeyMaterial
from rollout_operator.planning.certificate import BrokenCertificate, UsableCertificate, Validity

Chain = Sequence[x509.Certificate]


def read_material(material: KeyMaterial) -> BrokenCertificate | UsableCertificate:
    """Return what the key pair holds; a problem names the key of the Secret, and no content."""
    try:
        return _read_usable(material)
    except InvalidInput as error:
        return BrokenCertificate(problem=str(error))


def read_validity(material: KeyMaterial) -> Validity:
    """Return the validity of a chain whose key fits. Raises InvalidInput: one part is not right."""
    chain = load_chain(material.cert, "cert")
    if not fits(chain[0], load_key(material.key, "key")):
        raise InvalidInput("key: does not belong to the certificate")
    return _validity(chain)


def trusted_bundle(material: KeyMaterial) -> bytes:
    """Return the PEM of all CAs that callers must trust, the newest first, each once.

    At most three: the next CA, whose key is there; the CA that has signed the leaf, and the CA
    before it. A certificate that another writer added to them vouches for nothing that is served
    here, and is not published (D-31).
    """
    old = _load_or_none(material.old_ca)
    cas = (
        find_signer(material.next_ca, material.next_ca_key),
        _load_root(material),
        next(filter(_is_ca, old), None),
    )
    bundle = dict.fromkeys(ca for ca in cas if ca is not None)
    return b"".join(ca.public_bytes(serialization.Encoding.PEM) for ca in bundle)


def choose_root(material: KeyMaterial) -> bytes:
    """Return the PEM of the CA that has signed the leaf, empty where none in `ca` has."""
    root = _load_root(material)
    return b"" if root is None else root.public_bytes(serialization.Encoding.PEM)


def _load_root(material: KeyMaterial) -> x509.Certificate | None:
    return _find_root(_load_or_none(material.cert), _load_or_none(material.ca))


def load_chain(pem: bytes, what: str) -> Chain:
    """Return the certificates in a PEM text, at least one. Raises InvalidInput naming `what`."""
    if not pem:
        raise InvalidInput(f"{what}: missing")
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{what}: not a certificate in PEM") from error


def is_trusted(chain: Chain, cas: Chain) -> bool:
    """Return whether a client that trusts these CAs trusts the first certificate of a chain."""
    return _find_root(chain, cas) is not None


def load_key(pem: bytes, what: str) -> PrivateKeyTypes:
    """Return the private key in a PEM text. Raises InvalidInput naming `what`."""
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
    """Return whether the key is that of the certificate."""
    try:
        return _public_bytes(cert.public_key()) == _public_bytes(key.public_key())
    except (ValueError, UnsupportedAlgorithm):
        return False


def find_signer(pem: bytes, key_pem: bytes) -> x509.Certificate | None:
    """Return the CA certificate in `pem` that the key belongs to, None where there is none."""
    try:
        key = load_key(key_pem, "ca-key")
    except InvalidInput:
        return None
    return next((ca for ca in _load_or_none(pem) if _is_ca(ca) and fits(ca, key)), None)


def read_leaf_name(pem: bytes) -> str:
    """Return the common name of the first certificate in a PEM text, empty where there is none."""
    try:
        subject = load_chain(pem, "cert")[0].subject
        names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (InvalidInput, ValueError):
        return ""
    return str(names[0].value) if len(names) == 1 else ""


def is_for_clients(pem: bytes) -> bool:
    """Return whether the first certificate in a PEM text may be shown to a server."""
    return _may_serve_as(load_chain(pem, "cert")[0], ExtendedKeyUsageOID.CLIENT_AUTH)


def _read_usable(material: KeyMaterial) -> UsableCertificate:
    validity = read_validity(material)
    chain = load_chain(material.cert, "cert")
    if not _may_serve_as(chain[0], ExtendedKeyUsageOID.SERVER_AUTH):
        raise InvalidInput("cert: not meant for servers")
    root = _find_root(chain, load_chain(material.ca, "ca"))
    if root is None:
        raise InvalidInput("cert: not signed by the certificate in ca")
    next_ca = find_signer(material.next_ca, material.next_ca_key)
    old = _load_or_none(material.old_ca)
    return UsableCertificate(
        names=_names(chain[0]),
        leaf=validity,
        ca=_validity([root]),
        may_sign=find_signer(material.ca, material.ca_key) is not None,
        next_ca=None if next_ca is None else _validity([next_ca]),
        old_ca=_leftover(material, old),
    )


def _leftover(material: KeyMaterial, old: Chain) -> Validity | None:
    """Return the validity of what stands in `old-ca`; what cannot be read is over already."""
    if old:
        return _validity(old)
    over = Validity(start=_EPOCH, end=_EPOCH)
    return over if material.old_ca else None


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _find_root(chain: Chain, cas: Chain) -> x509.Certificate | None:
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


def _validity(chain: Chain) -> Validity:
    return Validity(
        start=max(cert.not_valid_before_utc for cert in chain),
        end=min(cert.not_valid_after_utc for cert in chain),
    )


def _load_or_none(pem: bytes) -> Chain:
    try:
        return load_chain(pem, "ca")
    except InvalidInput:
        return ()


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
