"""Secrets as an operator left them, and the ways in which they go bad."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec.structs import replace

from rollout_operator.pki.certificates import Pair, issue_ca, issue_leaf
from rollout_operator.planning.certificate import Wanted
from tests.pki.certificates import PKCS8, Legacy
from tests.system.hooked import HOST

DAY: Final = timedelta(days=1)
WANTED: Final = Wanted(names=(HOST,), organisation="", expiration=30 * DAY, ca_life=365 * DAY)
Data = Mapping[str, bytes]


def made(
    *, at: datetime | None = None, ca_life: timedelta = WANTED.ca_life, **changes: object
) -> dict[str, bytes]:
    """Return the data of a Secret of ours; `changes` are fields of `Wanted`, `at` is its birth."""
    at = at or datetime.now(UTC)
    wanted = replace(WANTED, ca_life=ca_life, **changes)
    ca = issue_ca(wanted, at)
    leaf = issue_leaf(ca, wanted, at)
    return {"ca": ca.cert, "ca-key": ca.key, "cert": leaf.cert, "key": leaf.key}


def legacy(**changes: object) -> dict[str, bytes]:
    """Return the data of a Secret as upstream writes it: RSA in PKCS#1, and no key of the CA."""
    start = datetime.now(UTC).replace(microsecond=0) - DAY
    return Legacy(start=start, names=(HOST,), **changes).data()  # type: ignore[arg-type]


def _other_leaf() -> bytes:
    stranger = Pair(cert=(other := made())["ca"], key=other["ca-key"])
    return issue_leaf(stranger, WANTED, datetime.now(UTC)).cert


# What each makes of good data is refused by clients, or by TLS itself.
BROKEN: Final[Mapping[str, Callable[[Data], Data]]] = {
    "empty": lambda data: {},
    "only what is not ours": lambda data: {"note": b"mine"},
    "no key": lambda data: {name: data[name] for name in data if name != "key"},
    "no certificate": lambda data: {name: data[name] for name in data if name != "cert"},
    "no ca": lambda data: {name: data[name] for name in data if name != "ca"},
    "another key": lambda data: {**data, "key": made()["key"]},
    "another ca": lambda data: {**data, "ca": made()["ca"]},
    "a leaf of strangers": lambda data: {**data, "cert": _other_leaf()},
    "zeros": lambda data: {**data, "cert": bytes(2000), "key": bytes(2000)},
    "a cut certificate": lambda data: {**data, "cert": data["cert"][:200]},
    "a cut ca": lambda data: {**data, "ca": data["ca"][:200]},
    "a key that is none": lambda data: {**data, "key": data["ca"]},
    "another name": lambda data: made(names=("elsewhere.svc",)),
    "expired": lambda data: made(at=datetime.now(UTC) - 40 * DAY),
    "ca expired": lambda data: made(at=datetime.now(UTC) - 40 * DAY, ca_life=31 * DAY),
    "not valid yet": lambda data: made(at=datetime.now(UTC) + DAY),
    "for clients only": lambda data: legacy(usage=ExtendedKeyUsageOID.CLIENT_AUTH),
    "for another name, by others": lambda data: Legacy(
        start=datetime.now(UTC).replace(microsecond=0) - DAY, format=PKCS8
    ).data(),
}
