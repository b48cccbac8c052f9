"""Secrets as an operator left them, and the ways in which they go bad."""

from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.pki.certificates import issue_ca, issue_leaf
from rollout_operator.planning.certificate import Wanted
from tests.pki.certificates import Legacy
from tests.system.hooked import HOST

DAY: Final = timedelta(days=1)
WANTED: Final = Wanted(names=(HOST,), organisation="", expiration=30 * DAY, ca_life=365 * DAY)


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
