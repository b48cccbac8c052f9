"""Entries of the zone tracker that are to be restored: LI-05, SI-11."""

from typing import Final

import pytest

from rollout_operator.model.scaling import TrackerEntry, format_entry
from tests.fakes_clock import EPOCH
from tests.guards.tracker_bench import TrackerBench, entry, member

A: Final = member("a")
NOW: Final = format_entry("2026-01-02T03:04:05Z")


def test_what_the_tracker_still_lacks_is_taken_over_by_the_next_reservation() -> None:
    """LI-05: sent again before the former entry is back."""
    bench, entry_of_old = TrackerBench({}), TrackerEntry(NOW, entry())
    reservation = bench.reservation(A)
    reservation.entry = entry_of_old
    bench.downscales.close(reservation, un_prepare=())
    assert bench.downscales.find_entry(A.uid) == entry_of_old
    assert bench.downscales.list_sets() == [A.uid]

    again = bench.reservation(A)

    assert again.entry == entry_of_old
    assert bench.downscales.find_entry(A.uid) is None


@pytest.mark.parametrize("how", ["reserved again", "closed", "restored"])
def test_si11_nothing_is_to_do_for_what_has_happened_or_was_released(how: str) -> None:
    """SI-11: the next has to record its own."""
    ledger = (bench := TrackerBench({})).downscales
    reservation = bench.reservation(A)
    reservation.entry = TrackerEntry(NOW, None)
    if how != "restored":
        ledger.record_persisted(reservation, EPOCH)
    if how == "reserved again":
        assert bench.reservation(A).entry is None
        return
    ledger.close(reservation, un_prepare=())
    if how == "restored":
        ledger.record_restored(A.uid)
        assert not ledger.remembers(A.uid)
    assert ledger.find_entry(A.uid) is None
