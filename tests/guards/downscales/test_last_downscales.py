"""D-66: what was seen counts until the store shows it, and not a moment longer."""

from datetime import timedelta

import pytest

from rollout_operator.guards.downscales.last_downscales import LastDownscales
from rollout_operator.model.names import Uid
from tests.fakes_clock import EPOCH

A = Uid("uid-a")
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("version", "is_seen"),
    [
        pytest.param("9", True, id="a cache of before the record"),
        pytest.param("10", False, id="the record itself"),
        pytest.param("11", False, id="what came after it"),
    ],
)
def test_d66_memory_counts_for_views_of_before_the_record(version: str, is_seen: bool) -> None:
    """D-66, SI-11: a stale cache that shows no record is no person who removed it."""
    last = LastDownscales()
    last.note(A, EPOCH)
    assert last.list_unshown({A: version}) == {A: EPOCH}, "nothing is recorded yet"
    last.note_shown(A, EPOCH, "10")
    assert last.list_unshown({A: version}) == ({A: EPOCH} if is_seen else {})
    assert last.times == {A: EPOCH}


def test_si11_the_next_downscale_is_bridged_anew() -> None:
    last = LastDownscales()
    last.note(A, EPOCH)
    last.note_shown(A, EPOCH, "10")
    last.note(A, EPOCH + SECOND)
    assert last.list_unshown({A: "11"}) == {A: EPOCH + SECOND}
    last.note_shown(A, EPOCH, "12")
    assert last.list_unshown({A: "13"}) == {A: EPOCH + SECOND}, "that was the record of the first"


def test_si11_no_time_moves_back_and_a_set_that_is_gone_has_none() -> None:
    last = LastDownscales()
    last.note(A, EPOCH + SECOND)
    last.note(A, EPOCH)
    assert last.times == {A: EPOCH + SECOND}
    last.forget(A)
    last.note_shown(A, EPOCH, "10")
    assert last.list_unshown({A: "1"}) == last.times == {}
