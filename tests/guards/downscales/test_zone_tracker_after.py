"""What becomes of a record in the zone tracker: kept where it happened, else given back."""

from typing import Final

import pytest

from rollout_operator.guards.downscales.times import RecordedTimes
from rollout_operator.model.errors import Conflict, NotFound
from rollout_operator.model.tracker import TrackerEntry, format_entry
from tests.fakes_clock import EPOCH
from tests.guards.tracker_bench import HOUR, NAME, SECOND, TrackerBench, entry, member

A, B = (member(letter) for letter in "ab")
NOW: Final = format_entry("2026-01-02T03:04:05Z")
LATER: Final = format_entry("2026-01-02T03:04:35Z")
PATCH: Final = f"patch configmaps/{NAME}"


@pytest.mark.parametrize("before", [None, entry()], ids=["there was none", "of an hour ago"])
async def test_what_did_not_happen_is_given_back(before: str | None) -> None:
    """LI-05: other zones need not wait for it; foreign entries stay."""
    data = {} if before is None else {"zone-a": before}
    bench = TrackerBench({**data, "zone-b": entry()})
    assert await bench.grant(A, B) is None
    assert bench.data["zone-a"] == NOW
    await bench.tracker.give_back(A, TrackerEntry(NOW, before))
    assert bench.data == {**data, "zone-b": entry()}


@pytest.mark.parametrize("held", [LATER, None], ids=["another one", "none"])
async def test_si11_only_what_is_ours_is_given_back(held: str | None) -> None:
    bench = TrackerBench({} if held is None else {"zone-a": held})
    await bench.tracker.give_back(A, TrackerEntry(NOW, entry()))
    assert bench.data == ({} if held is None else {"zone-a": held})
    del bench.client.objects["configmaps", NAME]
    await bench.tracker.give_back(A, TrackerEntry(NOW, entry()))
    assert not [call for call in bench.client.calls if not call.startswith("get")]


async def test_giving_back_is_not_put_over_what_came_meanwhile() -> None:
    bench = TrackerBench({"zone-a": NOW})
    bench.client.before = lambda call: (
        bench.set("zone-a", LATER) if call.startswith("patch") else None
    )
    with pytest.raises(Conflict):
        await bench.tracker.give_back(A, TrackerEntry(NOW, None))
    assert bench.data == {"zone-a": LATER}


@pytest.mark.parametrize(
    ("held", "after"),
    [
        pytest.param(None, LATER, id="none"),
        pytest.param(NOW, LATER, id="an earlier one"),
        pytest.param("garbage", LATER, id="one that cannot be read"),
        pytest.param(LATER, LATER, id="the same"),
        pytest.param(entry(-HOUR), entry(-HOUR), id="a later one"),
    ],
)
async def test_si11_what_has_happened_is_kept(held: str | None, after: str) -> None:
    """SI-11, D-24: of what was asked again the later time counts."""
    bench = TrackerBench({} if held is None else {"zone-a": held})
    await bench.tracker.keep(A, EPOCH + 30 * SECOND)
    assert bench.data == {"zone-a": after}
    assert (PATCH in bench.client.calls) is (held != after)


async def test_zone03_no_map_is_made_for_one_zone_of_a_group() -> None:
    """The next look finds none, and lets all zones wait from then on."""
    bench = TrackerBench()
    await bench.tracker.keep(A, EPOCH)
    assert bench.client.objects == {}


async def test_a_downscale_that_is_granted_again_gives_back_what_was_there_at_first() -> None:
    """LI-05: of two that did not happen the second does not leave the time of the first."""
    bench = TrackerBench({"zone-a": entry()})
    assert await bench.grant(A, B) is None
    bench.clock.jump(30 * SECOND)
    bench.claim(A)
    assert await bench.grant(A, B) is None
    claim = bench.downscales.get(A.uid)
    assert claim is not None
    assert claim.entry == TrackerEntry(LATER, entry())


async def test_not_found_while_it_is_written_is_looked_up_again() -> None:
    bench = TrackerBench({})
    bench.fail(PATCH, NotFound("gone"), times=1)
    assert (
        await bench.tracker.record(bench.granting(member("a", group=None), (), RecordedTimes()))
        is None
    )
    assert bench.data == {"zone-a": NOW}


def test_what_is_owed_to_the_tracker_is_taken_over_by_the_next_claim() -> None:
    """LI-05: asked again before the former entry is back."""
    bench, entry_of_old = TrackerBench({}), TrackerEntry(NOW, entry())
    claim = bench.claim(A)
    claim.entry = entry_of_old
    bench.downscales.close(claim, owed=())
    assert bench.downscales.find_entry(A.uid) == entry_of_old
    assert bench.downscales.list_sets() == [A.uid]

    again = bench.claim(A)

    assert again.entry == entry_of_old
    assert bench.downscales.find_entry(A.uid) is None


@pytest.mark.parametrize("how", ["claimed again", "closed", "given back"])
def test_si11_nothing_is_owed_for_what_has_happened_or_was_given_back(how: str) -> None:
    """SI-11: the next one has to record its own."""
    ledger = (bench := TrackerBench({})).downscales
    claim = bench.claim(A)
    claim.entry = TrackerEntry(NOW, None)
    if how != "given back":
        ledger.note_persisted(claim, EPOCH)
    if how == "claimed again":
        assert bench.claim(A).entry is None
        return
    ledger.close(claim, owed=())
    if how == "given back":
        ledger.note_given_back(A.uid)
        assert not ledger.remembers(A.uid)
    assert ledger.find_entry(A.uid) is None
