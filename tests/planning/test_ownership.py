"""Whose the certificate's Secret is, and what follows for it: D-30, D-31, LI-13."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.planning.certificate import (
    BrokenCertificate,
    CertificateStep,
    Marks,
    UsableCertificate,
    Validity,
    Wanted,
    plan_secret,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)
WANTED = Wanted(names=("a.svc",), organisation="", expiration=30 * DAY, ca_life=365 * DAY)
GOOD = UsableCertificate(
    names=("a.svc",),
    leaf=Validity(start=NOW - DAY, end=NOW + 29 * DAY),
    ca=Validity(start=NOW - DAY, end=NOW + 300 * DAY),
    may_sign=True,
)
EXPIRED = replace(GOOD, leaf=Validity(start=NOW - 40 * DAY, end=NOW - 10 * DAY))
BAD = BrokenCertificate(problem="key: missing")
ISSUED = Marks(leaf_name="rollout-operator")
FOREIGN = Marks(leaf_name="etcd.example")


@pytest.mark.parametrize(
    ("marks", "facts", "step"),
    [
        pytest.param(
            ISSUED, GOOD, CertificateStep.KEEP, id="D-30 with a leaf of ours or grafana's: used"
        ),
        pytest.param(ISSUED, BAD, CertificateStep.START_OVER, id="the same, spoilt: healed"),
        pytest.param(ISSUED, EXPIRED, CertificateStep.ISSUE_LEAF, id="the same, expired: renewed"),
        pytest.param(
            Marks(is_labelled=True), BAD, CertificateStep.START_OVER, id="LI-13 labelled: healed"
        ),
        pytest.param(
            Marks(is_empty=True), BAD, CertificateStep.START_OVER, id="empty or absent: filled"
        ),
        pytest.param(
            Marks(is_known=True), BAD, CertificateStep.START_OVER, id="LI-13 served from: healed"
        ),
        pytest.param(Marks(), BAD, CertificateStep.LEAVE, id="D-31 any other data: left alone"),
        pytest.param(
            FOREIGN, GOOD, CertificateStep.LEAVE, id="D-31 a good certificate of others: left alone"
        ),
        pytest.param(
            FOREIGN, EXPIRED, CertificateStep.LEAVE, id="D-31 an expired one of others: left alone"
        ),
        pytest.param(
            replace(FOREIGN, is_labelled=True),
            GOOD,
            CertificateStep.START_OVER,
            id="D-31 over ours: replaced",
        ),
        pytest.param(
            replace(FOREIGN, is_known=True),
            GOOD,
            CertificateStep.START_OVER,
            id="D-31 under our eyes: replaced",
        ),
    ],
)
def test_whose_it_is_decides_what_is_done(
    marks: Marks, facts: BrokenCertificate | UsableCertificate, step: CertificateStep
) -> None:
    decision = plan_secret(marks, facts, WANTED, NOW)
    assert decision.step is step
    assert decision.may_serve is (step is CertificateStep.KEEP)
    assert not decision.trusts_old, "D-31: no CA of others is published"


def test_what_is_left_alone_says_how_to_go_on() -> None:
    reason = plan_secret(FOREIGN, GOOD, WANTED, NOW).reason
    assert "grafana.com/rollout-operator-certificate" in reason
    assert "-server-tls.self-signed-cert.secret-name" in reason
    assert "Nothing is written" in reason
    assert "etcd.example" not in reason, "SEC-14: nothing of what is in it"


@pytest.mark.parametrize(
    ("facts", "step", "may_serve"),
    [
        pytest.param(GOOD, CertificateStep.KEEP, True, id="good: used"),
        pytest.param(EXPIRED, CertificateStep.LEAVE, False, id="expired: only a person can help"),
        pytest.param(BAD, CertificateStep.LEAVE, False, id="spoilt: only a person can help"),
        pytest.param(
            replace(GOOD, leaf=Validity(start=NOW - 25 * DAY, end=NOW + 5 * DAY)),
            CertificateStep.LEAVE,
            True,
            id="due: served until its end",
        ),
    ],
)
def test_an_immutable_secret_is_used_and_never_written(
    facts: BrokenCertificate | UsableCertificate, step: CertificateStep, may_serve: bool
) -> None:
    """LI-13: the API server would refuse it each time."""
    decision = plan_secret(replace(ISSUED, is_immutable=True), facts, WANTED, NOW)
    assert (decision.step, decision.may_serve) == (step, may_serve)
    assert ("immutable" in decision.reason) is (step is CertificateStep.LEAVE)
