"""SI-22: what only the process that holds the Lease may do."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from rollout_lab.model.history import Called

from rollout_operator.kube.api import SECRETS, JsonObject
from rollout_operator.model.lease import LEASE_DURATION, RENEW_DEADLINE
from tests.judge.book import Book
from tests.judge.promises import Violation

WRITES: Final = frozenset({"create", "update", "patch", "delete"})
LATE: Final = frozenset({"slow", "late", "lost"})
LONGEST_WAY: Final = timedelta(minutes=2)
# As far as the clocks of two processes may run apart in a schedule: four times and a half.
FASTEST: Final = 2.0


def list_broken(book: Book) -> Iterator[Violation]:
    """Yield writes that were sent while another process held the Lease, or none did."""
    if not book.leases:
        return
    slack = _slack(book)
    for call in book.own_calls:
        is_shared = call.request.resource == SECRETS or not call.request.resource.is_namespaced
        if call.request.verb not in WRITES or is_shared:
            continue
        if _was_late(book, call):
            continue
        holders = _collect_holders(book, call.begun - slack, call.begun)
        if call.actor not in holders:
            request = call.request
            text = f"{request.verb} {request.resource.plural}/{request.name} by {call.actor}"
            others = ", ".join(sorted(holders)) or "no process"
            yield Violation(invariant="SI-22", at=call.at, text=f"{text}; the lease is of {others}")


def _was_late(book: Book, call: Called) -> bool:
    """Return whether a write was sent long before it arrived: by a process that has ended, even."""
    if book.runs.find(call.actor, call.begun) is None:
        return True
    request = call.request
    named = f"{request.verb} {request.resource.plural}/{request.name}"
    faults = book.list_faults(call.actor, call.begun - LONGEST_WAY, call.begun)
    return any(fault.kind in LATE and named in fault.text for fault in faults)


def _slack(book: Book) -> timedelta:
    """Return for how long two may act at once, by clocks that run at different rates."""
    if not any(fault.kind == "clock_rate" for fault in book.faults):
        return timedelta(0)
    return RENEW_DEADLINE / book.promises.slowest_clock - LEASE_DURATION / FASTEST


def _collect_holders(book: Book, begin: timedelta, end: timedelta) -> set[str]:
    """Return the names of the processes that held the Lease in a span, empty for none."""
    before = [commit.after for commit in book.leases if commit.at <= begin][-1:]
    within = [commit.after for commit in book.leases if begin < commit.at <= end]
    return {_read_holder(lease) for lease in (before or [None]) + within}


def _read_holder(lease: JsonObject | None) -> str:
    spec = None if lease is None else lease.get("spec")
    holder = spec.get("holderIdentity") if isinstance(spec, dict) else None
    return f"{holder or ''}".rpartition("_")[0]
