"""The zone tracker: ZONE-01 to ZONE-10, T-08, W-15, W-16, DEP-34, SI-11."""

import re
from collections.abc import Mapping
from typing import Final

import pytest

from rollout_operator.guards.downscales import GroupTimes
from rollout_operator.guards.tracker import ATTEMPTS
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    Refused,
    Uid,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import TimesSource, TrackerEntry, format_entry
from rollout_operator.planning.downscales import Blocker
from tests.builders import sts
from tests.fakes_clock import EPOCH
from tests.guards.tracker_bench import FRESH, HOUR, NAME, SECOND, TrackerBench, entry, member

A, B, C = (member(letter) for letter in "abc")
NO_UID: Final = Uid("")
NOW: Final = format_entry("2026-01-02T03:04:05Z")
LATER: Final = format_entry("2026-01-02T03:04:35Z")
PATCH: Final = f"patch configmaps/{NAME}"


@pytest.mark.parametrize(
    ("letters", "data"),
    [
        pytest.param(
            "abc", {f"zone-{letter}": FRESH for letter in "abc"}, id="T-08 ZONE-03 three entries"
        ),
        pytest.param("", {}, id="T-08 ZONE-03 no entries"),
    ],
)
async def test_without_a_map_all_zones_count_as_just_gone(
    letters: str, data: Mapping[str, str]
) -> None:
    """ZONE-02, ZONE-03: it is unknown what was before, so no zone may go at once."""
    bench = TrackerBench()
    seen = await bench.tracker.fetch_times([member(letter) for letter in letters], but=NO_UID)

    assert bench.data == data
    assert set(seen.times) == {Uid(f"uid-{letter}") for letter in letters}
    assert set(seen.times.values()) <= {EPOCH + SECOND}
    assert bench.tracker.source is TimesSource.TRACKER


async def test_a_zone_that_cannot_be_read_gets_its_entry_too() -> None:
    """ZONE-03: it is of the group; one without a name has no place."""
    broken = [
        Unreadable(
            kind="StatefulSet", namespace="test", uid=Uid(name), name=name, resource_version="1",
            error="bad",
        )
        for name in ("zone-x", "")
    ]  # fmt: skip
    bench = TrackerBench()
    await bench.tracker.fetch_times([A, *broken], but=NO_UID)
    assert set(bench.data) == {"zone-a", "zone-x"}


@pytest.mark.parametrize(
    ("data", "remembered", "expected"),
    [
        pytest.param({"zone-b": entry()}, {}, {"b": 1}, id="ZONE-04 no entry: never scaled down"),
        pytest.param({"zone-b": entry()}, {"b": 0, "c": 0}, {"b": 0, "c": 0}, id="SI-11 ours"),
        pytest.param({"zone-b": entry()}, {"b": 2, "c": 0}, {"b": 1, "c": 0}, id="SI-11 its"),
        pytest.param(
            {"other": "garbage", "README": "", "zone-b": entry()}, {}, {"b": 1},
            id="D-18 LI-09 what another group has broken delays no zone",
        ),
    ],
)  # fmt: skip
async def test_the_later_one_of_what_is_written_and_remembered_counts(
    data: Mapping[str, str], remembered: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    """ZONE-01: annotations mean nothing, and reading writes nothing."""
    bench = TrackerBench(data)
    for letter, hours in remembered.items():
        bench.remember(letter, EPOCH - hours * HOUR)
    annotated = sts("d", annotations={"grafana.com/last-downscale": "yesterday"})
    found = await bench.tracker.read([A, B, C, annotated])
    assert found == {Uid(f"uid-{one}"): EPOCH - hours * HOUR for one, hours in expected.items()}
    assert bench.data == data


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("soon", "loading zones failed. ConfigMap zones: data.zone-b: ", id="ZONE-05"),
        pytest.param(
            format_entry("soon"),
            "parsing parsing downscale timestamps from the zone ConfigMap failed."
            " statefulset zone-b: entry in ConfigMap zones: ",
            id="ZONE-06",
        ),
        pytest.param("{}", "parsing parsing downscale timestamps", id="ZONE-06 no time"),
        pytest.param(5, "loading zones failed. ConfigMap zones: not a Config", id="no ConfigMap"),
    ],
)
async def test_what_cannot_be_read_is_reported_by_name(text: object, words: str) -> None:
    bench = TrackerBench({})
    bench.put({"zone-b": text})
    with pytest.raises(InvalidInput) as caught:
        await bench.tracker.read([A, B])
    assert str(caught.value).startswith(words)


async def test_prep19_the_own_time_does_not_matter() -> None:
    """PREP-19: only recording would mend it."""
    bench = TrackerBench({"zone-a": format_entry("soon"), "zone-b": entry()})
    assert (await bench.tracker.fetch_times([A, B], but=A.uid)).times == {B.uid: EPOCH - HOUR}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("get configmaps", Denied("grant verb get", status=403)),
        ("post configmaps", Denied("grant verb create", status=403)),
        pytest.param("post", Conflict("exists"), id="it is created and deleted at once"),
    ],
)
async def test_zone05_a_map_that_cannot_be_read_or_made_is_an_error(
    call: str, error: ApiError
) -> None:
    bench = TrackerBench()
    bench.fail(call, error)
    with pytest.raises(type(error), match=str(error)):
        await bench.tracker.read([A])


async def test_the_first_to_create_it_wins() -> None:
    """ZONE-03: two groups at once, or two processes."""
    bench = TrackerBench()
    bench.client.before = lambda call: (
        bench.put({"zone-b": entry()}) if call.startswith("post") else None
    )
    assert await bench.tracker.read([A, B]) == {B.uid: EPOCH - HOUR}


async def test_w16_the_own_entry_is_written_and_nothing_else() -> None:
    """W-16, ZONE-09: foreign entries, labels and annotations stay, also with other fields."""
    bench = TrackerBench({"zone-b": entry(), "other": "garbage"})
    bench.put(bench.data, binaryData={"x": "AAE="})
    before = bench.others

    assert await bench.grant(A, B) is None

    assert bench.data == {"zone-a": NOW, "zone-b": entry(), "other": "garbage"}
    assert bench.others == before
    reservation = bench.downscales.get(A.uid)
    assert reservation is not None
    assert reservation.entry == TrackerEntry(NOW, None)


async def test_t08_a_zone_that_is_set_again_is_refreshed() -> None:
    """T-08: unknown at first, then with the time of the second downscale."""
    bench = TrackerBench({})
    assert await bench.grant(A, B) is None
    bench.clock.jump(30 * SECOND)
    assert await bench.grant(A, B) is None
    assert bench.data == {"zone-a": LATER}


async def test_zone10_a_set_without_a_group_records_its_own_entry_alone() -> None:
    """ZONE-10, W-16: into what there is, whatever its own entry was, and where there is nothing."""
    alone = member("a", group=None)
    for data in ({"zone-a": "garbage", "zone-b": entry()}, None):
        bench = TrackerBench(data)
        assert await bench.grant(alone) is None
        assert bench.data == {**(data or {}), "zone-a": NOW}


@pytest.mark.parametrize("alone", [True, False])
async def test_a_write_of_another_entry_meanwhile_stands_not_in_the_way(alone: bool) -> None:
    """W-16: other groups write into the same object."""
    bench = TrackerBench({"zone-b": entry()})
    times = iter(range(ATTEMPTS - 1))

    def overtake(call: str) -> None:
        if call == PATCH and next(times, None) is not None:
            bench.set("other", f"{len(bench.client.calls)}")

    bench.client.before = overtake
    others = () if alone else (B,)
    assert await bench.grant(member("a", group=None) if alone else A, *others) is None
    assert bench.data["zone-a"] == NOW
    assert "other" in bench.data
    assert bench.client.calls.count(PATCH) == ATTEMPTS


@pytest.mark.parametrize(
    ("wait", "code", "words"),
    [
        pytest.param(
            "2h", Code.ZONE_DOWNSCALED_LATELY,
            "statefulset zone-b was downscaled at 2026-01-02 03:04:05 +0000 UTC and is labelled to"
            " wait 2h0m0s between zone downscales",
            id="T-08 ZONE-07 other zone now, label 2h, own zone 1h",
        ),
        pytest.param(
            "", Code.CHANGED_MEANWHILE, "statefulset zone-b was scaled down meanwhile; try again",
            id="D-25 whatever the wait",
        ),
    ],
)  # fmt: skip
async def test_w15_two_processes_do_not_let_two_zones_go(wait: str, code: Code, words: str) -> None:
    """W-15, SI-11, D-25: both read, both find that they may; the second one is judged again."""
    one, other = member("a", wait="1h" if wait else ""), member("b", wait=wait)
    bench, second = TrackerBench({"zone-b": entry(10 * HOUR)}), TrackerBench()
    second.client, second.tracker = bench.client, bench.another()
    seen = await bench.tracker.fetch_times([one, other], but=one.uid)
    assert await second.grant(other, one) is None

    answer = await bench.tracker.record(bench.granting(one, (other,), seen))
    assert answer == Blocker(code, words)

    assert bench.data == {"zone-b": NOW}


async def test_what_this_process_has_rounded_up_itself_is_no_other_downscale() -> None:
    """SI-11: it knew of the downscale of zone b before it was recorded, to the microsecond."""
    bench = TrackerBench({})
    bench.remember("b", EPOCH - 0.6 * SECOND)
    seen = await bench.tracker.fetch_times([A, B], but=A.uid)
    await bench.tracker.keep(B, EPOCH - 0.6 * SECOND)
    assert await bench.tracker.record(bench.granting(A, (B,), seen)) is None


async def test_a_map_that_is_deleted_meanwhile_is_made_anew() -> None:
    """ZONE-03: and then the other zone counts as just gone."""
    bench = TrackerBench({})
    one, other = member("a", wait="1h"), member("b")
    seen = await bench.tracker.fetch_times([one, other], but=one.uid)
    del bench.client.objects["configmaps", NAME]
    refusal = await bench.tracker.record(bench.granting(one, (other,), seen))
    assert refusal is not None
    assert refusal.code is Code.ZONE_DOWNSCALED_LATELY
    assert bench.data == {"zone-a": FRESH, "zone-b": FRESH}


async def test_dep34_a_role_without_patch_will_do(lines: list[str]) -> None:
    """DEP-34, RBAC-05: get, update, create; reported once, and nothing of others is lost."""
    bench = TrackerBench({"zone-b": entry()})
    bench.fail(PATCH, Denied("grant verb patch", status=403))
    before = bench.others

    for _ in range(2):
        assert await bench.grant(A, B) is None

    assert bench.data == {"zone-a": NOW, "zone-b": entry()}
    assert bench.others == before
    called = [line for line in lines if "written as a whole" in line]
    assert len(called) == 1
    assert "level=warn" in called[0]
    assert "grant verb patch" in called[0]


async def test_the_whole_map_is_not_put_back_over_what_came_meanwhile() -> None:
    """W-16: a PUT carries the version as well."""
    bench = TrackerBench({"zone-b": entry()})
    changes = iter([("other", "1")])

    def before(call: str) -> None:
        if call == PATCH:
            for change in changes:
                bench.set(*change)
            raise Denied("no", status=403)

    bench.client.before = before
    assert await bench.grant(A, B) is None
    assert bench.data == {"zone-a": NOW, "zone-b": entry(), "other": "1"}


@pytest.mark.parametrize(
    ("call", "error", "patches"),
    [
        (PATCH, UnknownOutcome("?"), 1),
        (PATCH, Unreachable("x"), 1),
        (PATCH, Refused("immutable"), 1),
        pytest.param(("patch", "put"), Denied("grant verb patch"), 1, id="DEP-34 no verb at all"),
        pytest.param(PATCH, Conflict("changed"), ATTEMPTS, id="LI-06 changed all the time"),
    ],
)
async def test_after_an_error_it_is_known_what_may_be_there(
    call: str | tuple[str, ...], error: ApiError, patches: int
) -> None:
    """SI-18: it is restored later, if it came to be."""
    bench = TrackerBench({"zone-a": entry()})
    bench.fail(call, error)
    with pytest.raises(type(error), match=re.escape(str(error))):
        await bench.grant(A, B)
    assert bench.client.calls.count(PATCH) == patches
    reservation = bench.downscales.get(A.uid)
    assert reservation is not None
    assert reservation.entry == TrackerEntry(NOW, entry())


# What becomes of a record: kept where it happened, else restored


@pytest.mark.parametrize(
    ("held", "before", "after"),
    [
        pytest.param(NOW, None, None, id="LI-05 there was none"),
        pytest.param(NOW, entry(), entry(), id="LI-05 one of an hour ago comes back"),
        pytest.param(LATER, entry(), LATER, id="SI-11 another one stays"),
        pytest.param(None, entry(), None, id="SI-11 none stays none"),
    ],
)
async def test_what_did_not_happen_is_released(
    held: str | None, before: str | None, after: str | None
) -> None:
    """LI-05, SI-11: only what is ours; other zones need not wait for it, foreign entries stay."""
    data = {} if held is None else {"zone-a": held}
    bench = TrackerBench({**data, "zone-b": entry()})
    await bench.tracker.restore(A, TrackerEntry(NOW, before))
    assert bench.data == {**({} if after is None else {"zone-a": after}), "zone-b": entry()}
    assert (PATCH in bench.client.calls) is (held != after)
    del bench.client.objects["configmaps", NAME]
    await bench.tracker.restore(A, TrackerEntry(NOW, before))
    assert bench.client.objects == {}


async def test_a_restore_is_not_put_over_what_came_meanwhile() -> None:
    bench = TrackerBench({"zone-a": NOW})
    bench.client.before = lambda call: (
        bench.set("zone-a", LATER) if call.startswith("patch") else None
    )
    with pytest.raises(Conflict):
        await bench.tracker.restore(A, TrackerEntry(NOW, None))
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
    """SI-11, D-24: of repeated requests the later time counts."""
    bench = TrackerBench({} if held is None else {"zone-a": held})
    await bench.tracker.keep(A, EPOCH + 30 * SECOND)
    assert bench.data == {"zone-a": after}
    assert (PATCH in bench.client.calls) is (held != after)


async def test_zone03_no_map_is_made_for_one_zone_of_a_group() -> None:
    """The next read finds none, and lets all zones wait from then on."""
    bench = TrackerBench()
    await bench.tracker.keep(A, EPOCH)
    assert bench.client.objects == {}


async def test_a_downscale_that_is_granted_again_restores_what_was_there_at_first() -> None:
    """LI-05: of two that did not happen the second does not leave the time of the first."""
    bench = TrackerBench({"zone-a": entry()})
    assert await bench.grant(A, B) is None
    bench.clock.jump(30 * SECOND)
    bench.reservation(A)
    assert await bench.grant(A, B) is None
    reservation = bench.downscales.get(A.uid)
    assert reservation is not None
    assert reservation.entry == TrackerEntry(LATER, entry())


async def test_not_found_while_it_is_written_is_looked_up_again() -> None:
    bench = TrackerBench({})
    bench.fail(PATCH, NotFound("gone"), times=1)
    assert (
        await bench.tracker.record(bench.granting(member("a", group=None), (), GroupTimes()))
        is None
    )
    assert bench.data == {"zone-a": NOW}
