"""Since when Flux has failed with what its objects want.

Flux tries again and again, and each attempt begins with `Ready` unknown: so the time of that
condition is never older than the last attempt. How long a failure lasts is known only across
attempts. It ends with success, and it is another failure once Flux attempts another generation or
revision, or was requested to look again.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.planning.releases.kstatus.fields import ApiObject

# With these reasons Flux has given up until the next interval, and says what is wrong.
_FAILURES: Final = frozenset(
    {"ArtifactFailed", "BuildFailed", "HealthCheckFailed", "PruneFailed", "ReconciliationFailed"}
)
# Flux writes whole seconds, rounded down: what failed after a deployment shall not seem older.
_RESOLUTION: Final = timedelta(seconds=1)


class FluxFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure of an object of Flux, however often it was attempted."""

    since: datetime
    text: str
    attempt: tuple[object, ...]
    """What distinguishes it from another failure."""


def track_failure(
    tree: Mapping[str, object], before: FluxFailure | None, now: datetime
) -> FluxFailure | None:
    """Return the failure that goes on, or begins; None where there is none."""
    read = ApiObject(tree)
    ready = read.find_condition("Ready")
    if ready is None or not read.group.endswith(".toolkit.fluxcd.io"):
        return None
    attempt = (
        read.find_int("metadata", "generation"),
        read.get_text("status", "lastAttemptedRevision"),
        read.get_text("status", "lastHandledReconcileAt"),
    )
    earlier = before if before is not None and before.attempt == attempt else None
    if ready.status == "Unknown":
        return earlier
    if ready.status != "False" or ready.reason not in _FAILURES:
        return None
    since = now if ready.since is None else min(ready.since + _RESOLUTION, now)
    return FluxFailure(
        since=since if earlier is None else earlier.since,
        text=f"{ready.reason}: {ready.message.strip()}",
        attempt=attempt,
    )


def has_lasted(failure: FluxFailure | None, now: datetime, grace: timedelta) -> bool:
    """Return whether a failure counts: it may pass by itself before that."""
    return failure is not None and now - failure.since >= grace


def next_read(failures: Iterable[FluxFailure], now: datetime, grace: timedelta) -> timedelta | None:
    """Return after what time one of them counts, None where there is none that may."""
    waits = [
        grace - (now - failure.since) for failure in failures if not has_lasted(failure, now, grace)
    ]
    return min(waits, default=None)
