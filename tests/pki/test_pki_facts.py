"""What stands in PEM, and what we issue: TLS-01, TLS-02, TLS-04, TLS-11, DEP-17, W-11."""

from base64 import b64encode
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rollout_operator.model.names import InvalidInput
from rollout_operator.pki.certificates import (
    KeyMaterial,
    Pair,
    carry_out,
    issue_ca,
    issue_leaf,
    read_bundle,
    read_material,
    trusted_bundle,
)
from rollout_operator.planning.certificate import (
    BACKDATING,
    BrokenCertificate,
    CertificateStep,
    Decision,
    UsableCertificate,
    Validity,
)
from tests.fakes_clock import EPOCH
from tests.pki.certificates import HOST, WANTED, YEAR, Legacy, load

DAY = timedelta(days=1)


def step(kind: CertificateStep, material: KeyMaterial, *, trusts_old: bool = False) -> KeyMaterial:
    decision = Decision(step=kind, reason="", trusts_old=trusts_old)
    return carry_out(decision, material, WANTED, EPOCH)


def fresh() -> KeyMaterial:
    return step(CertificateStep.START_OVER, KeyMaterial())


def legacy(data: dict[str, bytes] | None = None) -> KeyMaterial:
    data = Legacy().data() if data is None else data
    return KeyMaterial(cert=data["cert"], key=data["key"], ca=data["ca"])


def test_what_a_leaf_is_made_of() -> None:
    """TLS-02, DEP-17, W-11: names, purposes, P-256, PKCS8, a start put back."""
    material = fresh()
    leaf, key = load(material.cert), serialization.load_pem_private_key(material.key, None)
    assert material.key.startswith(b"-----BEGIN PRIVATE")  # PKCS8: no kind of key between
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert leaf.subject.rfc4514_string() == "CN=rollout-operator,O=Grafana Labs"
    assert leaf.not_valid_before_utc == EPOCH - BACKDATING
    assert leaf.not_valid_after_utc == EPOCH + YEAR
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST, f"{HOST}.cluster.local"]
    purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {*purposes} == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign


def test_what_a_ca_is_made_of() -> None:
    """TLS-01, W-11: a CA by all signs, with a name and a serial of its own."""
    one, two = load(issue_ca(WANTED, EPOCH).cert), load(issue_ca(WANTED, EPOCH).cert)
    constraints = one.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.ca
    usage = one.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert usage.digital_signature
    assert one.not_valid_after_utc == EPOCH + WANTED.ca_life
    assert one.subject != two.subject
    assert one.serial_number != two.serial_number
    organisation = one.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [each.value for each in organisation] == ["Grafana Labs"]


def test_a_leaf_does_not_outlive_its_ca() -> None:
    ca = issue_ca(WANTED, EPOCH)
    now = EPOCH + WANTED.ca_life - DAY
    assert load(issue_leaf(ca, WANTED, now).cert).not_valid_after_utc == EPOCH + WANTED.ca_life


def test_the_identifiers_of_leaf_and_ca_agree() -> None:
    material = fresh()
    authority = load(material.cert).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    subject = load(material.ca).extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert authority.value.key_identifier == subject.value.digest


@pytest.mark.parametrize("key", [b"", b"garbage", issue_ca(WANTED, EPOCH).key])
def test_a_ca_without_its_key_signs_nothing(key: bytes) -> None:
    with pytest.raises(InvalidInput, match="ca-key: not the key of a ca certificate"):
        issue_leaf(Pair(cert=fresh().ca, key=key), WANTED, EPOCH)


def test_the_facts_of_what_we_wrote() -> None:
    assert read_material(fresh()) == UsableCertificate(
        names=WANTED.names,
        leaf=Validity(start=EPOCH - BACKDATING, end=EPOCH + YEAR),
        ca=Validity(start=EPOCH - BACKDATING, end=EPOCH + 5 * YEAR),
        may_sign=True,
    )


def test_the_facts_of_what_upstream_wrote() -> None:
    year = Validity(start=EPOCH, end=EPOCH + YEAR)
    assert read_material(legacy()) == UsableCertificate(names=(HOST,), leaf=year, ca=year)


def test_a_change_of_ca_step_by_step() -> None:
    """SI-19: the next CA comes first, and the bundle stays the same when it is put to use."""
    before = legacy()
    introduced = step(CertificateStep.INTRODUCE_CA, before)
    switched = step(CertificateStep.SWITCH_CA, introduced)
    dropped = step(CertificateStep.DROP_OLD_CA, switched)
    assert introduced.served == before.served
    assert trusted_bundle(introduced) == introduced.next_ca + before.ca
    assert trusted_bundle(switched) == trusted_bundle(introduced)
    assert trusted_bundle(dropped) == introduced.next_ca
    facts = [read_material(each) for each in (introduced, switched, dropped)]
    assert all(isinstance(each, UsableCertificate) for each in facts)
    assert [isinstance(each, UsableCertificate) and each.may_sign for each in facts] == [
        False,
        True,
        True,
    ]


def test_a_new_start_keeps_the_old_ca_where_others_may_serve_by_it() -> None:
    before = legacy()
    assert before.ca in trusted_bundle(step(CertificateStep.START_OVER, before, trusts_old=True))
    assert before.ca not in trusted_bundle(step(CertificateStep.START_OVER, before))


def test_a_bundle_holds_each_ca_once_and_nothing_unreadable() -> None:
    """An API server refuses the whole bundle for one bad part."""
    mine, old = fresh(), fresh().ca
    material = replace(mine, ca=b"a comment\n" + mine.ca, next_ca=b"garbage", old_ca=old)
    assert trusted_bundle(material) == mine.ca + old
    assert trusted_bundle(replace(material, old_ca=mine.ca)) == mine.ca
    assert trusted_bundle(KeyMaterial()) == b""


def test_d31_a_ca_that_signs_nothing_of_ours_is_not_published() -> None:
    """D-31: beside ours in `ca`, in `next-ca` without its key, as more than one in `old-ca`."""
    mine, old, planted = fresh(), fresh().ca, fresh().ca
    material = replace(
        mine, ca=planted + mine.ca + planted, next_ca=planted, old_ca=mine.cert + old + planted
    )
    assert trusted_bundle(material) == mine.ca + old
    introduced = step(CertificateStep.INTRODUCE_CA, material)
    assert step(CertificateStep.SWITCH_CA, introduced).old_ca == mine.ca
    assert step(CertificateStep.START_OVER, material, trusts_old=True).old_ca == mine.ca


def test_a_key_that_is_not_that_of_the_next_ca_makes_it_useless() -> None:
    introduced = step(CertificateStep.INTRODUCE_CA, fresh())
    spoilt = KeyMaterial(
        cert=introduced.cert,
        key=introduced.key,
        ca=introduced.ca,
        next_ca=introduced.next_ca,
        next_ca_key=introduced.key,
        old_ca=b"garbage",
    )
    facts = read_material(spoilt)
    assert isinstance(facts, UsableCertificate)
    assert facts.next_ca is None
    assert facts.old_ca is not None  # so that it is dropped
    assert facts.old_ca.end < EPOCH


def test_a_chain_ends_with_its_first_certificate() -> None:
    """TLS-11: any certificate of the chain past its end counts."""
    data = Legacy(ca_life=DAY).data()
    material = legacy({**data, "cert": data["cert"] + data["ca"]})
    facts = read_material(material)
    assert isinstance(facts, UsableCertificate)
    assert facts.leaf.end == EPOCH + DAY


def test_intermediates_lead_to_the_ca() -> None:
    """A person's own chain: leaf, intermediate, and only the root in `ca`."""
    root, middle, leaf = chain()
    assert isinstance(read_material(_with(leaf, leaf.cert + middle, root)), UsableCertificate)
    assert isinstance(read_material(_with(leaf, leaf.cert, root)), BrokenCertificate)
    assert isinstance(read_material(_with(leaf, leaf.cert + fresh().ca, root)), BrokenCertificate)


def _with(leaf: Pair, cert: bytes, ca: bytes) -> KeyMaterial:
    return KeyMaterial(cert=cert, key=leaf.key, ca=ca)


def chain() -> tuple[bytes, bytes, Pair]:
    """Return a root, an intermediate signed by it, and a leaf signed by that."""
    top, below = issue_ca(WANTED, EPOCH), issue_ca(WANTED, EPOCH)
    root, inner = load(top.cert), load(below.cert)
    key = serialization.load_pem_private_key(top.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    middle = (
        x509.CertificateBuilder()
        .subject_name(inner.subject)
        .issuer_name(root.subject)
        .public_key(inner.public_key())
        .serial_number(7)
        .not_valid_before(EPOCH)
        .not_valid_after(EPOCH + YEAR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    signed = middle.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return top.cert, signed, issue_leaf(below, WANTED, EPOCH)


def test_a_self_signed_certificate_is_its_own_ca() -> None:
    """The same certificate in `cert` and `ca`: clients that hold it accept it."""
    data = Legacy().data()
    assert isinstance(read_material(legacy({**data, "ca": data["cert"]})), UsableCertificate)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"cert": b""}, "cert: missing"),
        ({"cert": b"x"}, "cert: not a certificate in PEM"),
        ({"key": b""}, "key: missing"),
        ({"key": b"x"}, "key: not a private key in PEM"),
        ({"key": fresh().key}, "key: does not belong to the certificate"),
        ({"ca": b""}, "ca: missing"),
        ({"ca": b"x"}, "ca: not a certificate in PEM"),
        ({"ca": fresh().ca}, "cert: not signed by the certificate in ca"),
    ],
)
def test_problems_name_the_key_of_the_secret(change: dict[str, bytes], problem: str) -> None:
    assert read_material(legacy({**Legacy().data(), **change})) == BrokenCertificate(
        problem=problem
    )


def test_a_weak_key_reads_well_until_tls_refuses_it() -> None:
    """RSA of 1024 bits: a matter of TLS, which the manager checks as well."""
    weak = Legacy(key=rsa.generate_private_key(65537, 1024)).data()  # noqa: S505 (weak on purpose: TLS must refuse it)
    assert isinstance(read_material(legacy(weak)), UsableCertificate)


def test_a_bundle_that_has_signed_what_is_served() -> None:
    data = Legacy().data()
    facts = read_bundle(b64encode(data["ca"]).decode(), data["cert"])

    assert (facts.problem, facts.vouches) == ("", True)
    assert facts.ends == EPOCH + YEAR


def test_another_bundle_vouches_for_nothing() -> None:
    ours, other = Legacy().data(), Legacy().data()

    assert read_bundle(b64encode(other["ca"]).decode(), ours["cert"]).vouches is False
    both = b64encode(other["ca"] + ours["ca"]).decode()
    assert read_bundle(both, ours["cert"]).vouches is True


def test_nothing_is_claimed_where_the_served_certificate_is_not_known() -> None:
    ca = b64encode(Legacy().data()["ca"]).decode()

    assert read_bundle(ca).vouches is None
    assert read_bundle(ca, b"rubbish").vouches is None


def test_rubbish_is_a_problem_and_no_error() -> None:
    assert read_bundle("%%%").problem == "caBundle: not base64"
    assert read_bundle(b64encode(b"rubbish").decode()).problem == (
        "caBundle: not a certificate in PEM"
    )
