"""What goes wrong with lists and watches, on virtual time (LI-02..04, LI-11, FP-05..13, W-22)."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.kube.api import WatchEvent
from rollout_operator.kube.store import FAILED_RESUMES, Failures, Retry, RetryCause, WentBack
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    Gone,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Uid,
    Unreachable,
)
from rollout_operator.model.outcome import Severity
from tests.kube.informer_rig import after, make, played, running
from tests.kube.scripted_watch import SILENCE, Listing, Step, Wait, added, bookmark, page, pod
from tests.virtual_time import in_virtual_time

GONE = Gone("watch pods in namespace prod: too old resource version", status=410)
CUT = Unreachable("watch pods in namespace prod: connection reset")
DOWN = Unreachable("list pods in namespace prod: connection refused")
DENIED = Denied("list pods in namespace prod: forbidden", status=403)
TOO_LARGE = Unreachable("watch pods in namespace prod: too large resource version", status=504)
MISSING = NotFound("no such kind")

# 410


@pytest.mark.parametrize(
    ("lists", "watches", "gone_at"),
    [
        pytest.param([[page(10)], [page(50)]], [[GONE]], 0, id="LI-04 410 as HTTP status"),
        pytest.param([[page(10)], [page(50)]], [[Wait(5), GONE]], 5, id="LI-04 as ERROR event"),
        pytest.param([[page(10, next_token="t"), GONE], [page(50)]], [], 0, id="LI-04 in a page"),
    ],
)
@in_virtual_time
async def test_gone_in_any_form_lists_again_at_once(
    lists: list[Listing], watches: list[list[Step]], gone_at: float
) -> None:
    rig = await played(6, lists, watches, rng=1.0)
    assert rig.has_synced()
    assert rig.lists == 2
    assert rig.api.lists[1].at - gone_at < 0.05
    assert rig.requested[-2:] == ["list", "watch 50"]
    assert rig.restarts("gone") == 1


@pytest.mark.parametrize(
    ("lists", "watches"),
    [
        pytest.param([[page(10 + n)] for n in range(1_000)], [[GONE]] * 1_000, id="watches"),
        pytest.param([[page(10 + n, next_token="t"), GONE] for n in range(1_000)], [], id="lists"),
    ],
)
@in_virtual_time
async def test_fp10_gone_again_and_again_is_no_hot_loop(
    lists: list[Listing], watches: list[list[Step]]
) -> None:
    """FP-10: 300 s at an average of 5 s a turn, and a few quick ones at first."""
    rig = await played(300, lists, watches)
    assert 40 < rig.lists < 80
    assert rig.has_synced() is False
    assert rig.last_error() is GONE


@pytest.mark.parametrize(
    ("verb", "lists", "watches", "times"),
    [
        pytest.param(
            "list",
            [[page(10)], [page(60)], [page(110)]],
            [[GONE], [Wait(5), bookmark(70), Wait(1), GONE]],
            [0, 0, 6],
            id="gone after a healthy stream",
        ),
        pytest.param(
            # 0.1 s and 0.2 s after the first two, and 0.1 s again after the last.
            "watch",
            [[page(10)]],
            [[CUT], [CUT], [Wait(15)], [Wait(1), CUT]],
            [0, 0.1, 0.3, 15.3, 16.4],
            id="a cut after an orderly end",
        ),
    ],
)
@in_virtual_time
async def test_what_follows_a_success_counts_as_the_first_failure_again(
    verb: str, lists: list[Listing], watches: list[list[Step]], times: list[float]
) -> None:
    rig = await played(20, lists, watches, rng=1.0)
    assert [round(call.at, 2) for call in rig.api.calls if call.verb == verb] == times


# Gaps


@in_virtual_time
async def test_fp08_what_went_during_a_gap_is_reported_as_removed() -> None:
    owned = [pod(f"a-{n}", n + 1, owner="A") for n in range(3)]
    after_gap = page(50, owned[0], pod("a-2", 40, owner="A"))
    rig = await played(1, [[page(10, *owned)], [after_gap]], [[GONE]])
    assert rig.reported[3:] == ["a-1@2>"], "a-2 changed its version only"
    assert {item.name for item in rig.store.list_by_owner(Uid("A"))} == {"a-0", "a-2"}
    assert rig.sample("cached_objects") == 2


@in_virtual_time
async def test_fp07_recreated_under_the_same_name_during_a_gap() -> None:
    old, new = pod("a-0", 1, uid="one"), pod("a-0", 40, uid="two")
    rig = await played(1, [[page(10, old)], [page(50, new)]], [[GONE]])
    assert rig.reported[1:] == ["a-0@1>", ">a-0@40"]


@in_virtual_time
async def test_a_list_that_breaks_off_loses_nothing() -> None:
    items = [pod("a-0", 1), pod("a-1", 2)]
    half = page(50, items[0], next_token="t")
    lists: list[Listing] = [[page(10, *items)], [half, DOWN], [page(60, *items)]]
    rig = make(lists, [[Wait(0.01), GONE]], rng=1.0)
    async with running(rig):
        await after(0.05)
        assert rig.lists == 2, "the second one broke off"
        assert rig.names == {"a-0", "a-1"}
        assert rig.has_synced()
        await after(5)
    assert len(rig.reported) == 2


# Silence and ends


@in_virtual_time
async def test_li03_a_silent_stream_is_resumed_and_proven_within_a_minute() -> None:
    silent = Unreachable("watch pods in namespace prod: silent for 45s")
    first: list[Step] = [Wait(1), bookmark(11), Wait(44), silent]
    rig = make([[page(10)]], [first, [Wait(8), bookmark(12), Wait(2)]], rng=1.0)
    ages = []
    async with running(rig):
        for second in range(1, 60):
            await after(second)
            ages.append(rig.age)
    assert max(ages) <= 60
    assert rig.requested[:3] == ["list", "watch 10", "watch 11"]
    assert rig.api.watches[1].lasts == timedelta(seconds=10), "an early end means an early bookmark"
    assert rig.lists == 1


@in_virtual_time
async def test_li03_a_stream_that_its_client_forgets_is_cut() -> None:
    rig = await played(58, [[page(10)]], [SILENCE, SILENCE])
    assert rig.api.watches[1].at <= 56, rig.last_error()
    assert rig.restarts("unreachable") == 1


@in_virtual_time
async def test_li11_a_stream_that_ends_when_requested_is_a_proof_and_costs_no_list() -> None:
    """LI-11: an idle server may have no bookmark to send; three requests in two minutes."""
    rig = make([[page(10)]], [[Wait(40)]] * 4)
    async with running(rig):
        await after(39)
        assert rig.age == 39
        await after(41)
        assert rig.age <= 1
        await after(119)
    assert rig.requested == ["list", *["watch 10"] * 3]
    assert rig.restarts("closed") == 2


@in_virtual_time
async def test_a_watch_is_live_while_it_brings_changes_or_is_resumed_without_a_pause() -> None:
    rig = make([[page(5)], [page(20)]], [[Wait(5), GONE], [Wait(5), CUT], SILENCE])
    turns: list[tuple[float, bool]] = []
    liveness = rig.informer.liveness
    liveness.on_change(
        lambda: turns.append((round(asyncio.get_running_loop().time(), 2), liveness.is_live))
    )
    async with running(rig):
        await after(20)
    assert turns == [(0, True), (10, False), (10.1, True)]


@in_virtual_time
@pytest.mark.parametrize(
    ("lists", "watches", "at"),
    [
        pytest.param([[CUT], [DENIED]], [], 0.05, id="list"),
        pytest.param([[page(5)]], [[Wait(5)], [DENIED]], 5, id="watch"),
        pytest.param(
            [[page(5)], [DENIED]], [*[[Wait(40)]] * 6, [MISSING]], 240, id="no list between"
        ),
    ],
)
async def test_some_errors_end_a_collection(
    lists: list[Listing], watches: list[list[Step]], at: float
) -> None:
    rig = make(lists, watches, ends_on=lambda error: error in (DENIED, MISSING))
    with pytest.raises((Denied, NotFound)):
        await rig.informer.run()
    assert round(asyncio.get_running_loop().time(), 2) == at
    assert not rig.informer.liveness.is_live


@in_virtual_time
async def test_fp09_a_stream_that_ends_early_proves_nothing_and_is_resumed() -> None:
    """Something between us and the server may have ended it; it is not suspected."""
    rig = make([[page(10)]], [[Wait(20)], [Wait(40)]])
    async with running(rig):
        await after(21)
        assert rig.age == 21
    assert rig.requested == ["list", "watch 10", "watch 10"]


@in_virtual_time
async def test_fp10_streams_that_end_at_once_are_no_hot_loop() -> None:
    rig = await played(300, [[page(10 + n)] for n in range(500)], [[bookmark(9_999)], []] * 500)
    assert len(rig.api.watches) < 80


# Failures


@in_virtual_time
async def test_w22_an_api_server_that_is_down_at_first_is_called_with_bounded_backoff() -> None:
    """LI-11: ten seconds at most between attempts, five on average."""
    rig = make([[DOWN]] * 200 + [[page(10, pod("a-0", 1))]])
    async with running(rig):
        await after(300)
        assert not rig.has_synced()
        assert rig.last_error() is DOWN
        assert (rig.broken_for() or timedelta(0)) >= timedelta(seconds=299)
        assert 55 <= rig.lists <= 80
        gaps = [b.at - a.at for a, b in zip(rig.api.lists, rig.api.lists[1:], strict=False)]
        assert max(gaps) <= 10
        await rig.informer.wait_synced()
        assert rig.last_error() is None
        assert rig.broken_for() is None
        assert rig.names == {"a-0"}


@in_virtual_time
async def test_a_cache_that_turns_stale_is_reported_once_after_each_proof_of_life() -> None:
    """LI-03: a controller that rests on it shows within seconds that it cannot."""
    reported: list[float] = []
    rig = make([[page(10)], *[[DOWN]] * 40, [page(11)]], [[CUT], [CUT], [CUT], *[[Wait(40)]] * 9])
    rig.informer.staleness.add(timedelta(seconds=60), lambda: reported.append(rig.age))
    async with running(rig):
        await after(160)
        assert len(reported) == 1
        assert 60 < reported[0] <= 71
        await after(400)
        assert rig.age <= 41
    assert len(reported) == 1


@in_virtual_time
async def test_w22_denied_is_tried_rarely_and_reported_loudly(lines: list[str]) -> None:
    rig = await played(600, [[DENIED]] * 100 + [[page(10)]], rng=1.0)
    assert rig.last_error() is DENIED
    assert "list pods in namespace prod" in str(rig.last_error())
    assert rig.lists <= 30
    assert rig.restarts("denied") == rig.lists
    reported = [line for line in lines if "Watch interrupted" in line]
    assert 3 <= len(reported) <= 6, "not once per attempt"
    assert all(line.startswith("level=error") for line in reported)


def busy(**requested: float) -> TooManyRequests:
    return TooManyRequests("busy", retry_after=timedelta(**requested))


FIRST_FAILURES = pytest.mark.parametrize(
    ("error", "cause", "seconds", "severity"),
    [
        pytest.param(GONE, RetryCause.GONE, 0, Severity.INFO, id="LI-04 gone"),
        pytest.param(DOWN, RetryCause.UNREACHABLE, 0.1, Severity.WARN, id="FP-13 unreachable"),
        pytest.param(WentBack("x"), RetryCause.WENT_BACK, 2.1, Severity.WARN, id="FP-05 older"),
        pytest.param(Throttled("x"), RetryCause.THROTTLED, 0.1, Severity.WARN, id="own limiter"),
        pytest.param(busy(), RetryCause.THROTTLED, 0.1, Severity.WARN, id="FP-12 429"),
        pytest.param(
            busy(seconds=7), RetryCause.THROTTLED, 7.1, Severity.WARN, id="FP-12 as the server says"
        ),
        pytest.param(busy(days=1), RetryCause.THROTTLED, 30.1, Severity.WARN, id="FP-12 bounded"),
        pytest.param(DENIED, RetryCause.DENIED, 1, Severity.ERROR, id="W-22 denied"),
        pytest.param(MISSING, RetryCause.REFUSED, 1, Severity.ERROR, id="W-22 404"),
        pytest.param(Refused("x"), RetryCause.REFUSED, 1, Severity.ERROR, id="refused"),
        pytest.param(Conflict("x"), RetryCause.REFUSED, 1, Severity.ERROR, id="conflict"),
    ],
)


@FIRST_FAILURES
@in_virtual_time
async def test_how_long_each_failure_waits(
    error: ApiError, cause: RetryCause, seconds: float, severity: Severity
) -> None:
    rig = make([[error], [page(10)]], rng=1.0)
    async with running(rig):
        await rig.informer.wait_synced()
    assert rig.api.lists[1].at == pytest.approx(seconds, abs=0.01)
    assert rig.restarts(cause) == 1
    retry = Failures().next(error, 1.0, has_list=True)
    assert (retry.cause, retry.severity) == (cause, severity)
    assert retry.delay == timedelta(seconds=seconds)
    assert retry.needs_list is isinstance(error, Gone)


@pytest.mark.parametrize(
    ("error", "seconds"), [(DOWN, 10), (GONE, 10), (DENIED, 30), (WentBack("x"), 12)]
)
def test_li11_every_row_of_failures_reaches_its_bound(error: ApiError, seconds: int) -> None:
    failures = Failures()
    delays = [failures.next(error, 1.0, has_list=False).delay for _ in range(20)]
    assert delays[-1] == max(delays) == timedelta(seconds=seconds)
    assert delays == sorted(delays)


def test_fp10_three_failed_resumes_need_a_list_and_a_list_starts_anew() -> None:
    failures = Failures()

    def resume() -> Retry:
        return failures.next(DOWN, 0.5, has_list=True)

    assert [resume().needs_list for _ in range(FAILED_RESUMES)] == [False, False, True]
    failures.record_list()
    assert not resume().needs_list
    assert failures.in_row == 4, "a list alone ends no row: the next delay is longer"


def test_the_log_says_the_first_failures_of_a_list_and_then_one_in_ten() -> None:
    failures = Failures()
    rows = [failures.next(DOWN, 0.5, has_list=False) for _ in range(30)]
    assert [number for number, row in enumerate(rows, 1) if row.is_news] == [1, 2, 3, 10, 20, 30]
    assert all(row.needs_list for row in rows)


@in_virtual_time
async def test_fp13_a_cut_stream_resumes_where_it_was() -> None:
    rig = make([[page(10)]], [[Wait(3), added(pod("a-0", 12)), Wait(2), CUT]], rng=1.0)
    async with running(rig):
        await after(6)
        assert rig.last_error() is None, "the next one works"
    assert rig.requested == ["list", "watch 10", "watch 12"]
    assert [round(call.at, 1) for call in rig.api.watches] == [0, 5.1]


@in_virtual_time
async def test_fp10_a_version_that_stays_unknown_lists_after_three_resumes() -> None:
    rig = await played(5, [[page(10)], [page(10)]], [[TOO_LARGE]] * 3)
    assert rig.requested == ["list", *["watch 10"] * 3, "list", "watch 10"]


@in_virtual_time
async def test_fp10_watches_that_always_fail_do_not_list_each_time() -> None:
    rig = make([[page(10 + n)] for n in range(500)], [[CUT]] * 500)
    async with running(rig):
        await after(300)
        assert rig.age < 60, "at least the lists keep it fresh"
    assert rig.lists < 30


SURPRISE = WatchEvent(type="SURPRISE", object=pod("a-1", 20))
NO_VERSION = WatchEvent(type="BOOKMARK", object=msgspec.Raw(b'{"metadata":{}}'))


@pytest.mark.parametrize("event", [SURPRISE, NO_VERSION], ids=["FP-13 type", "FP-13 bookmark"])
@in_virtual_time
async def test_a_stream_that_makes_no_sense_is_resumed_from_before_it(event: WatchEvent) -> None:
    rig = await played(2.2, [[page(10)]], [[Wait(2), bookmark(11), event, *SILENCE]])
    assert rig.requested == ["list", "watch 10", "watch 11"]
    assert rig.restarts("unreachable") == 1


@in_virtual_time
async def test_fp13_a_list_without_a_version_is_not_taken() -> None:
    rig = await played(5, [[page("", pod("a-0", 1))], [page(10, pod("a-1", 2))]])
    assert rig.names == {"a-1"}
    assert ">a-0@1" not in rig.reported
