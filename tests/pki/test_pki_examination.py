"""What `doctor` learns of a `caBundle`."""

from base64 import b64encode

from rollout_operator.pki.certificates import read_bundle
from tests.fakes_clock import EPOCH
from tests.pki.certificates import YEAR, Legacy


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
