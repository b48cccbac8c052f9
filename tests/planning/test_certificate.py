"""What the certificate Secret needs next: section 13, W-11, SI-19, LI-13, DEP-17, D-30."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import ConfigError
from rollout_operator.planning.certificate import (
    BACKDATING,
    OVERLAP,
    BrokenCertificate,
    CertificateStep,
    Decision,
    UsableCertificate,
    Validity,
    Wanted,
    choose_ca_life,
    choose_names,
    plan_certificate,
)
from tests.planning.tables import read_table

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
HOST = "op.prod.svc"
LIFE = 90 * DAY
WANTED = Wanted(
    names=(HOST, f"{HOST}.cluster.local"), organisation="o", expiration=LIFE, ca_life=365 * DAY
)


def valid(days: float, *, start: datetime = START) -> Validity:
    """Return the validity of what was issued at `start` for so many days."""
    return Validity(start=start - BACKDATING, end=start + days * DAY)


HELD = UsableCertificate(names=(HOST,), leaf=valid(90), ca=valid(365), may_sign=True)
FOREIGN = replace(HELD, ca=valid(90), may_sign=False)
# Two overlaps before a third of its life is left: then its successor is served in time.
FOREIGN_DUE = START + 60 * DAY - 2 * OVERLAP
NEXT = valid(365, start=FOREIGN_DUE)
PENDING = replace(FOREIGN, next_ca=NEXT)
SWITCHED = replace(HELD, old_ca=valid(200))

BASES = {"held": HELD, "foreign": FOREIGN, "pending": PENDING, "switched": SWITCHED}


def read_case(text: str) -> tuple[UsableCertificate, datetime]:
    """Return what is held and the time: `held ca=120; day 60 -1s`, `foreign; due`.

    Numbers are days of validity, `names` are divided by commas; `due` is when a foreign one is.
    """
    words, when = text.split("; ")
    base, *changes = words.split()
    fields: dict[str, object] = {}
    for name, _, value in (change.partition("=") for change in changes):
        is_list = name == "names"
        names = tuple(filter(None, value.split(",")))
        fields[name] = names if is_list else valid(float(value))
    now = FOREIGN_DUE if when.startswith("due") else START + float(when.split()[1]) * DAY
    now -= SECOND if when.endswith(" -1s") else timedelta(0)
    return replace(BASES[base], **fields), now


STEPS = """
SEED-096 a good one is kept
  held; day 0 | keep: the certificate is good until 2026-04-01T00:00:00Z
W-11 before two thirds: kept
  held; day 60 -1s | keep: the certificate is good until 2026-04-01T00:00:00Z
W-11 two thirds of life, back-dating not counted: renewed under the kept CA
  held; day 60
  | issue_leaf: the certificate ends at 2026-04-01T00:00:00Z: a third of its life is left
a leaf that lasts longer than wanted: a third of what is wanted
  held leaf=365 ca=999; day 335 -1s | keep: the certificate is good until 2027-01-01T00:00:00Z
W-11 and not earlier
  held leaf=365 ca=999; day 335
  | issue_leaf: the certificate ends at 2027-01-01T00:00:00Z: a third of its life is left
TLS-11 foreign: reused
  foreign; due -1s | keep: the certificate is good until 2026-04-01T00:00:00Z
DEP-17 foreign and due: our next CA is published first
  foreign; due | introduce_ca: the certificate ends at 2026-04-01T00:00:00Z, and its ca has no key
a CA that would cut its leaves short: the next one
  held ca=120; day 60
  | introduce_ca: the certificate ends at 2026-04-01T00:00:00Z, and its ca ends at
    2026-05-01T00:00:00Z
LI-13 a change of CA begins early enough to be over before a third is left
  held ca=100; due
  | introduce_ca: the certificate ends at 2026-04-01T00:00:00Z, and its ca ends at
    2026-04-11T00:00:00Z
a CA that ends before its leaf decides
  held ca=40; day 10
  | introduce_ca: the certificate ends at 2026-04-01T00:00:00Z, and its ca ends at
    2026-02-10T00:00:00Z
a wildcard is a name
  held names=*.prod.SVC; day 0 | keep: the certificate is good until 2026-04-01T00:00:00Z
TLS-12 another name: a leaf at once
  held names=*.svc,prod.svc,xop.prod.svc; day 0
  | issue_leaf: the certificate is for *.svc, prod.svc, xop.prod.svc, not for op.prod.svc
no name
  held names=; day 0 | issue_leaf: the certificate is for no name, not for op.prod.svc
SEED-101 past its end: a leaf at once
  held; day 90
  | issue_leaf: the certificate is not valid now, but from 2025-12-31T23:55:00Z to
    2026-04-01T00:00:00Z
the old CA stays for a day
  switched; day 1 -1s | keep: the certificate is good until 2026-04-01T00:00:00Z
the old CA goes
  switched; day 1 | drop_old_ca: no server needs the old ca any more
it has ended
  switched old_ca=0; day 0 | drop_old_ca: no server needs the old ca any more
"""


@pytest.mark.parametrize(("case", "expected"), read_table(STEPS, read_case))
def test_next_step(case: tuple[UsableCertificate, datetime], expected: list[str]) -> None:
    held, now = case
    decision = plan_certificate(held, WANTED, now)
    assert [f"{decision.step}: {decision.reason}"] == expected


def test_fp33_a_leaf_that_is_not_valid_yet_is_replaced_at_once() -> None:
    held = replace(HELD, leaf=valid(90, start=START + DAY))

    assert plan_certificate(held, WANTED, START).step is CertificateStep.ISSUE_LEAF


@pytest.mark.parametrize(
    ("published", "after", "step"),
    [
        pytest.param(None, OVERLAP, CertificateStep.KEEP, id="SI-19 not published: waits"),
        pytest.param(
            OVERLAP - SECOND, OVERLAP, CertificateStep.KEEP, id="SI-19 not for long enough: waits"
        ),
        pytest.param(OVERLAP, OVERLAP, CertificateStep.SWITCH_CA, id="published for the overlap"),
        pytest.param(
            None,
            18.75 * DAY + 2 * OVERLAP - SECOND,
            CertificateStep.KEEP,
            id="more than an eighth of life is left: waits",
        ),
        pytest.param(
            None,
            18.75 * DAY + 2 * OVERLAP,
            CertificateStep.SWITCH_CA,
            id="LI-13 an eighth of life is left: switches anyway",
        ),
    ],
)
def test_the_next_ca_is_published_before_it_is_used(
    published: timedelta | None, after: timedelta, step: CertificateStep
) -> None:
    held = replace(PENDING, next_published_for=published)

    assert plan_certificate(held, WANTED, FOREIGN_DUE + after).step == step


def test_a_foreign_secret_near_its_end_still_gets_its_overlap() -> None:
    """SI-19: within the last eighth, the next CA waits for being published, but not for ever."""
    now = START + 89 * DAY
    held = replace(FOREIGN, next_ca=valid(365, start=now))

    assert plan_certificate(held, WANTED, now + OVERLAP).step == CertificateStep.KEEP
    assert plan_certificate(held, WANTED, now + 5 * OVERLAP).step == CertificateStep.SWITCH_CA


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param(HELD, START + 60 * DAY, id="until it is due"),
        pytest.param(SWITCHED, START + DAY, id="until the old CA goes"),
        pytest.param(
            replace(PENDING, next_published_for=30 * SECOND),
            FOREIGN_DUE + OVERLAP,
            id="until the overlap is over",
        ),
        pytest.param(PENDING, FOREIGN_DUE + 45 * SECOND, id="soon, to see it published"),
    ],
)
def test_it_says_when_to_reconcile_again(held: UsableCertificate, expected: datetime) -> None:
    now = FOREIGN_DUE + 30 * SECOND if held.next_ca else START

    assert plan_certificate(held, WANTED, now).requeue_at == expected


@pytest.mark.parametrize(
    ("facts", "now", "trusts_old"),
    [
        pytest.param(BrokenCertificate(problem="key: missing"), START, False, id="TLS-11 broken"),
        pytest.param(replace(FOREIGN, names=("x",)), START, True, id="foreign, another name"),
        pytest.param(FOREIGN, START + 90 * DAY, False, id="SEED-101 foreign and past its end"),
        pytest.param(
            replace(HELD, leaf=valid(400), ca=valid(80)), START + 80 * DAY, False, id="CA ended"
        ),
        pytest.param(
            replace(HELD, ca=valid(90.5)), START + 90 * DAY, True, id="CA with no life to give"
        ),
    ],
)
def test_starts_over(
    facts: BrokenCertificate | UsableCertificate, now: datetime, trusts_old: bool
) -> None:
    """W-11: what no client accepts is replaced at once; other replicas may serve by a good CA."""
    decision = plan_certificate(facts, WANTED, now)

    assert decision.step == CertificateStep.START_OVER
    assert not decision.may_serve
    assert decision.trusts_old == trusts_old


def test_a_problem_is_the_reason() -> None:
    assert plan_certificate(BrokenCertificate(problem="key: missing"), WANTED, START) == Decision(
        step=CertificateStep.START_OVER, reason="key: missing", may_serve=False
    )


def test_a_published_next_ca_is_better_than_starting_over() -> None:
    decision = plan_certificate(PENDING, WANTED, START + 90 * DAY)

    assert decision.step == CertificateStep.SWITCH_CA
    assert not decision.may_serve


def test_a_next_ca_without_life_to_give_is_made_anew() -> None:
    """Left behind by us, found again after a year of another version."""
    held = replace(PENDING, next_ca=valid(80))

    assert plan_certificate(held, WANTED, FOREIGN_DUE).step == CertificateStep.INTRODUCE_CA


@pytest.mark.parametrize("seconds", [10, 60, 3600])
def test_a_change_of_ca_fits_into_short_lives(seconds: int) -> None:
    """SI-19, LI-13: with a life of seconds, the overlap ends before a third of it is left."""
    life = seconds * SECOND
    wanted = replace(WANTED, expiration=life, ca_life=life)
    held = replace(
        FOREIGN,
        leaf=Validity(start=START - BACKDATING, end=START + life),
        ca=Validity(start=START - BACKDATING, end=START + life),
    )
    overlap = min(OVERLAP, life / 12)
    due = plan_certificate(held, wanted, START).requeue_at
    assert due is not None
    pending = replace(
        held, next_ca=Validity(start=due - BACKDATING, end=due + life), next_published_for=overlap
    )

    assert plan_certificate(held, wanted, due).step == CertificateStep.INTRODUCE_CA
    assert plan_certificate(pending, wanted, due + overlap).step == CertificateStep.SWITCH_CA
    assert due + overlap < START + life * 2 / 3


@pytest.mark.parametrize(
    ("dns_name", "domain", "names"),
    [
        ("op.prod.svc", "cluster.local.", ("op.prod.svc", "op.prod.svc.cluster.local")),
        ("op.prod.svc", "cluster.local", ("op.prod.svc", "op.prod.svc.cluster.local")),
        ("op.example.org", "cluster.local.", ("op.example.org",)),
        ("op.prod.svc", ".", ("op.prod.svc",)),
    ],
)
def test_names(dns_name: str, domain: str, names: tuple[str, ...]) -> None:
    """DEP-17: the flag's name first, then the long form of a Service's name."""
    assert choose_names(dns_name, domain) == names


@pytest.mark.parametrize("name", ["", "ö.svc", "a b.svc", "a\n.svc"])
def test_a_name_that_no_certificate_holds(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^-server-tls\.self-signed-cert\.dns-name: "):
        choose_names(name, "cluster.local.")


def test_a_ca_outlives_its_leaves() -> None:
    assert choose_ca_life(365 * DAY) == 5 * 365 * DAY
    assert choose_ca_life(DAY) == 365 * DAY
