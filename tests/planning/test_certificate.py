"""What the certificate Secret needs next: certificate.txt, and names and lives."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import ConfigError
from rollout_operator.planning.certificate import (
    BACKDATING,
    OVERLAP,
    BrokenCertificate,
    CertificateStep,
    Marks,
    UsableCertificate,
    Validity,
    Wanted,
    choose_ca_life,
    choose_names,
    plan_certificate,
    plan_secret,
)
from tests.stories import check_tables

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
DUE = START + 60 * DAY - 2 * OVERLAP
BROKEN = BrokenCertificate(problem="key: missing")
BASES: dict[str, UsableCertificate | BrokenCertificate] = {
    "held": HELD,
    "foreign": FOREIGN,
    "pending": replace(FOREIGN, next_ca=valid(365, start=DUE)),
    "switched": replace(HELD, old_ca=valid(200)),
    "broken": BROKEN,
}
MARKS: dict[str, dict[str, Any]] = {
    "alien": {"leaf_name": "etcd.example"},
    "empty": {"is_empty": True},
    "immutable": {"is_immutable": True},
    "issued": {"leaf_name": "rollout-operator"},
    "known": {"is_known": True},
    "labelled": {"is_labelled": True},
    "unmarked": {},
}


def read_held(words: list[str]) -> UsableCertificate | BrokenCertificate:
    """Return what is held: `365@89` is valid for so many days since day 89, `names` a list."""
    [base] = [BASES[word] for word in words if word in BASES]
    fields: dict[str, Any] = {}
    for name, is_given, value in (word.partition("=") for word in words):
        match name:
            case "names":
                fields["names"] = tuple(filter(None, value.split(",")))
            case "published":
                fields["next_published_for"] = float(value) * SECOND
            case _ if is_given:
                days, _, start = value.partition("@")
                fields[name] = valid(float(days), start=START + float(start or 0) * DAY)
    return replace(base, **fields)


def read_time(words: list[str]) -> datetime:
    now = DUE if "due" in words else START
    for word in words:
        if word != "due":
            now += float(word[:-1]) * (DAY if word.endswith("d") else SECOND)
    return now


def show(text: str) -> str:
    word, *rest = text.split()
    if word == "names":
        return " ".join(choose_names(*rest))
    held, when = (part.split() for part in text.split("; "))
    facts, now = read_held(held), read_time(when)
    marks = [MARKS[word] for word in held if word in MARKS]
    given = {key: value for one in marks for key, value in one.items()}
    decision = (
        plan_secret(Marks(**given), facts, WANTED, now)
        if marks
        else plan_certificate(facts, WANTED, now)
    )
    shown = [f"{decision.step}: {decision.reason}"]
    shown += ["not served"] * (not decision.may_serve)
    shown += ["its CA stays published"] * decision.trusts_old
    if decision.requeue_at is not None:
        shown.append(f"again {decision.requeue_at:%j %T}")
    return "; ".join(shown)


test_case = check_tables(__file__, certificate=show)


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


@pytest.mark.parametrize("name", ["", "ö.svc", "a b.svc", "a\n.svc"])
def test_a_name_that_no_certificate_holds(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^-server-tls\.self-signed-cert\.dns-name: "):
        choose_names(name, "cluster.local.")


def test_a_ca_outlives_its_leaves() -> None:
    assert choose_ca_life(365 * DAY) == 5 * 365 * DAY
    assert choose_ca_life(DAY) == 365 * DAY
