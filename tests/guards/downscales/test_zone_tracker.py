"""The zone tracker: ZONE-01 to ZONE-10, T-08, W-15, W-16, DEP-34, SI-11."""

from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from rollout_operator.guards.downscales.zone_tracker import ATTEMPTS
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    Refused,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.model.tracker import TimesSource, TrackerEntry, format_entry
from rollout_operator.planning.downscales.spacing import Blocker
from rollout_operator.telemetry import logs
from tests.builders import sts
from tests.fakes_clock import EPOCH
from tests.guards.tracker_bench import FRESH, HOUR, NAME, SECOND, TrackerBench, entry, member

A, B, C = (member(letter) for letter in "abc")
NOBODY: Final = Uid("")
NOW: Final = format_entry("2026-01-02T03:04:05Z")
LATER: Final = format_entry("2026-01-02T03:04:35Z")
PATCH: Final = f"patch configmaps/{NAME}"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    written: list[str] = []
    logs.configure(write=lambda line: written.append(line.decode()))
    yield written
    logs.configure()


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
    """ZONE-02, ZONE-03: nobody knows what was before, so nobody may go at once."""
    bench = TrackerBench()
    seen = await bench.tracker.look([member(letter) for letter in letters], but=NOBODY)

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
    await bench.tracker.look([A, *broken], but=NOBODY)
    assert set(bench.data) == {"zone-a", "zone-x"}


async def test_zone04_a_zone_without_an_entry_was_never_scaled_down() -> None:
    bench = TrackerBench({"zone-b": entry()})
    assert await bench.tracker.read([A, B, C]) == {B.uid: EPOCH - HOUR}
    assert set(bench.data) == {"zone-b"}, "reading writes nothing"


async def test_zone01_annotations_mean_nothing() -> None:
    """ZONE-01: also one that cannot be read."""
    bench = TrackerBench({})
    annotated = sts("b", annotations={"grafana.com/last-downscale": "yesterday"})
    assert await bench.tracker.read([A, annotated]) == {}


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(0, 0), (2, 1)],
    ids=["we know of a later one", "the map knows of a later one"],
)
async def test_of_what_is_remembered_and_what_is_written_the_later_one_counts(
    hours: int, expected: int
) -> None:
    """SI-11: before a time is recorded, and after a restart."""
    bench = TrackerBench({"zone-b": entry()})
    bench.remember("b", EPOCH - hours * HOUR)
    bench.remember("c", EPOCH)
    assert await bench.tracker.read([A, B, C]) == {B.uid: EPOCH - expected * HOUR, C.uid: EPOCH}


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
    ],
)
async def test_what_cannot_be_read_is_told_by_name(text: str, words: str) -> None:
    bench = TrackerBench({"zone-b": text})
    with pytest.raises(InvalidInput) as caught:
        await bench.tracker.read([A, B])
    assert str(caught.value).startswith(words)


async def test_d18_what_another_group_has_broken_delays_nobody() -> None:
    """D-18, LI-09: neither does what is no entry at all."""
    bench = TrackerBench({"other": "garbage", "README": "", "zone-b": entry()})
    assert await bench.tracker.read([A, B]) == {B.uid: EPOCH - HOUR}


async def test_prep19_the_own_time_does_not_matter() -> None:
    """PREP-19: only recording would mend it."""
    bench = TrackerBench({"zone-a": format_entry("soon"), "zone-b": entry()})
    assert (await bench.tracker.look([A, B], but=A.uid)).times == {B.uid: EPOCH - HOUR}


@pytest.mark.parametrize("call", ["get configmaps", "post configmaps"])
async def test_zone05_a_map_that_cannot_be_read_or_made_is_an_error(call: str) -> None:
    bench = TrackerBench()
    bench.fail(call, Denied("grant verb get", status=403))
    with pytest.raises(Denied, match="grant verb get"):
        await bench.tracker.read([A])


async def test_a_map_that_is_none_is_told() -> None:
    bench = TrackerBench({})
    bench.put({"zone-a": 5})
    with pytest.raises(InvalidInput, match=r"loading zones failed\. ConfigMap zones: not a Config"):
        await bench.tracker.read([A])


async def test_who_creates_it_first_wins() -> None:
    """ZONE-03: two groups at once, or two processes."""
    bench = TrackerBench()
    bench.client.before = lambda call: (
        bench.put({"zone-b": entry()}) if call.startswith("post") else None
    )
    assert await bench.tracker.read([A, B]) == {B.uid: EPOCH - HOUR}


async def test_one_that_is_created_and_deleted_at_once_is_a_conflict() -> None:
    bench = TrackerBench()
    bench.fail("post", Conflict("exists"))
    with pytest.raises(Conflict, match="exists"):
        await bench.tracker.read([A])


async def test_w16_the_own_entry_is_written_and_nothing_else() -> None:
    """W-16, ZONE-09: foreign entries, labels and annotations stay, also with other fields."""
    bench = TrackerBench({"zone-b": entry(), "other": "garbage"})
    bench.put(bench.data, binaryData={"x": "AAE="})
    before = bench.others

    assert await bench.grant(A, B) is None

    assert bench.data == {"zone-a": NOW, "zone-b": entry(), "other": "garbage"}
    assert bench.others == before
    claim = bench.downscales.get(A.uid)
    assert claim is not None
    assert claim.entry == TrackerEntry(NOW, None)


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
async def test_who_writes_another_entry_meanwhile_stands_not_in_the_way(alone: bool) -> None:
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


async def test_somebody_who_writes_all_the_time_ends_it() -> None:
    """LI-06: the request is refused in the end, and may be sent again."""
    bench = TrackerBench({})
    bench.fail(PATCH, Conflict("changed"))
    with pytest.raises(Conflict, match="changed"):
        await bench.grant(A, B)
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
    """W-15, SI-11, D-25: both look, both find that they may; the second one is judged again."""
    one, other = member("a", wait="1h" if wait else ""), member("b", wait=wait)
    bench, second = TrackerBench({"zone-b": entry(10 * HOUR)}), TrackerBench()
    second.client, second.tracker = bench.client, bench.another()
    seen = await bench.tracker.look([one, other], but=one.uid)
    assert await second.grant(other, one) is None

    answer = await bench.tracker.record(bench.granting(one, (other,), seen))
    assert answer == Blocker(code, words)

    assert bench.data == {"zone-b": NOW}


async def test_what_this_process_has_rounded_up_itself_is_no_other_downscale() -> None:
    """SI-11: it knew of the downscale of zone b before it was recorded, to the microsecond."""
    bench = TrackerBench({})
    bench.remember("b", EPOCH - 0.6 * SECOND)
    seen = await bench.tracker.look([A, B], but=A.uid)
    await bench.tracker.keep(B, EPOCH - 0.6 * SECOND)
    assert await bench.tracker.record(bench.granting(A, (B,), seen)) is None


async def test_a_map_that_is_deleted_meanwhile_is_made_anew() -> None:
    """ZONE-03: and then the other zone counts as just gone."""
    bench = TrackerBench({})
    one, other = member("a", wait="1h"), member("b")
    seen = await bench.tracker.look([one, other], but=one.uid)
    del bench.client.objects["configmaps", NAME]
    refusal = await bench.tracker.record(bench.granting(one, (other,), seen))
    assert refusal is not None
    assert refusal.code is Code.ZONE_DOWNSCALED_LATELY
    assert bench.data == {"zone-a": FRESH, "zone-b": FRESH}


async def test_dep34_a_role_without_patch_will_do(lines: list[str]) -> None:
    """DEP-34, RBAC-05: get, update, create; told once, and nothing of others is lost."""
    bench = TrackerBench({"zone-b": entry()})
    bench.fail(PATCH, Denied("grant verb patch", status=403))
    before = bench.others

    for _ in range(2):
        assert await bench.grant(A, B) is None

    assert bench.data == {"zone-a": NOW, "zone-b": entry()}
    assert bench.others == before
    told = [line for line in lines if "written as a whole" in line]
    assert len(told) == 1
    assert "level=warn" in told[0]
    assert "grant verb patch" in told[0]


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


async def test_dep34_a_role_without_any_write_is_told_with_the_rule_that_is_missing() -> None:
    bench = TrackerBench({})

    def before(call: str) -> None:
        verb = call.split()[0]
        if verb in {"patch", "put"}:
            raise Denied(f"grant verb {verb}", status=403)

    bench.client.before = before
    with pytest.raises(Denied, match="grant verb patch"):
        await bench.grant(A, B)


@pytest.mark.parametrize("error", [UnknownOutcome("?"), Unreachable("x"), Refused("immutable")])
async def test_after_an_error_it_is_known_what_may_be_there(error: ApiError) -> None:
    """SI-18: it is given back later, if it came to be."""
    bench = TrackerBench({"zone-a": entry()})
    bench.fail(PATCH, error)
    with pytest.raises(type(error)):
        await bench.grant(A, B)
    claim = bench.downscales.get(A.uid)
    assert claim is not None
    assert claim.entry == TrackerEntry(NOW, entry())
