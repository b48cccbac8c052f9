"""What goes wrong with lists and watches, on virtual time (LI-02..04, LI-11, FP-05..13, W-22)."""

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.kube.api import WatchEvent
from rollout_operator.kube.cache.retries import RetryCause
from rollout_operator.model.errors import (
    ApiError,
    Denied,
    Gone,
    NotFound,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.names import Uid
from tests.kube.informer_rig import after, captured_log, make, running
from tests.kube.scripted_watch import (
    SILENCE,
    Listing,
    Step,
    Wait,
    added,
    bookmark,
    page,
    pod,
    virtual,
)

GONE = Gone("watch pods in namespace prod: too old resource version", status=410)
CUT = Unreachable("watch pods in namespace prod: connection reset")
DOWN = Unreachable("list pods in namespace prod: connection refused")
DENIED = Denied("list pods in namespace prod: forbidden", status=403)


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Return the lines of the log, as they come."""
    with captured_log() as caught:
        yield caught


# 410


@pytest.mark.parametrize(
    ("lists", "watches"),
    [
        pytest.param([[page(10)], [page(50)]], [[GONE]], id="LI-04 410 as HTTP status"),
        pytest.param([[page(10)], [page(50)]], [[Wait(5), GONE]], id="LI-04 410 as ERROR event"),
        pytest.param(
            [[page(10, next_token="t"), GONE], [page(50)]], [], id="LI-04 410 in mid-pagination"
        ),
    ],
)
def test_gone_in_any_form_lists_again_at_once(
    lists: list[Listing], watches: list[list[Step]]
) -> None:
    @virtual
    async def main() -> None:
        rig = make(lists, watches, rng=1.0)
        async with running(rig):
            await after(6)
            assert rig.has_synced()
        assert len(rig.api.lists) == 2
        gone_at = 5 if watches and watches[0] != [GONE] else 0
        assert rig.api.lists[1].at - gone_at < 0.05
        assert rig.api.lists[1].token == ""
        assert rig.api.watches[-1].version == "50"
        assert rig.sample("watch_restarts_total", cause="gone") == 1

    main()


@virtual
async def test_fp10_gone_again_and_again_is_no_hot_loop() -> None:
    rig = make([[page(10 + n)] for n in range(1_000)], [[GONE]] * 1_000)
    async with running(rig):
        await after(300)
    # 300 s at an average of 5 s a turn, and a few quick ones at first.
    assert 40 < len(rig.api.lists) < 80


@virtual
async def test_fp10_gone_in_every_pagination_is_no_hot_loop() -> None:
    rig = make([[page(10 + n, next_token="t"), GONE] for n in range(1_000)])
    async with running(rig):
        await after(300)
        assert not rig.has_synced()
        assert rig.last_error() is GONE
    assert 40 < len(rig.api.lists) < 80


@virtual
async def test_gone_after_a_healthy_stream_counts_as_the_first_again() -> None:
    healthy: list[Step] = [Wait(5), bookmark(70), Wait(1), GONE]
    rig = make([[page(10)], [page(60)], [page(110)]], [[GONE], healthy], rng=1.0)
    async with running(rig):
        await after(8)
    assert [round(call.at, 2) for call in rig.api.lists] == [0, 0, 6]


@virtual
async def test_a_cut_after_an_orderly_end_is_a_first_failure_again() -> None:
    rig = make([[page(10)]], [[CUT], [CUT], [Wait(15)], [Wait(1), CUT]], rng=1.0)
    async with running(rig):
        await after(20)
    # 0.1 s and 0.2 s after the first two, and 0.1 s again after the last.
    assert [round(call.at, 2) for call in rig.api.watches] == [0, 0.1, 0.3, 15.3, 16.4]


# Gaps


@virtual
async def test_fp08_what_went_during_a_gap_is_told_as_removed() -> None:
    owned = [pod(f"a-{n}", n + 1, owner="A") for n in range(3)]
    rig = make([[page(10, *owned)], [page(50, owned[0], pod("a-2", 40, owner="A"))]], [[GONE]])
    async with running(rig):
        await after(1)
        assert rig.told[3:] == [("a-1@2", "")], "a-2 changed its version only"
        assert {view.name for view in rig.store.list_by_owner(Uid("A"))} == {"a-0", "a-2"}
        assert rig.sample("cached_objects") == 2


@virtual
async def test_fp07_recreated_under_the_same_name_during_a_gap() -> None:
    old, new = pod("a-0", 1, uid="one"), pod("a-0", 40, uid="two")
    rig = make([[page(10, old)], [page(50, new)]], [[GONE]])
    async with running(rig):
        await after(1)
    assert rig.told[1:] == [("a-0@1", ""), ("", "a-0@40")]


@virtual
async def test_a_list_that_breaks_off_loses_nothing() -> None:
    items = [pod("a-0", 1), pod("a-1", 2)]
    half = page(50, items[0], next_token="t")
    rig = make(
        [[page(10, *items)], [half, DOWN], [page(60, *items)]], [[Wait(0.01), GONE]], rng=1.0
    )
    async with running(rig):
        await after(0.05)
        assert len(rig.api.lists) == 2, "the second one broke off"
        assert rig.names == {"a-0", "a-1"}
        assert rig.has_synced()
        await after(5)
    assert len(rig.told) == 2


# Silence


@virtual
async def test_li03_a_silent_stream_is_resumed_and_proven_within_a_minute() -> None:
    silent = Unreachable("watch pods in namespace prod: silent for 45s")
    rig = make(
        [[page(10)]],
        [[Wait(1), bookmark(11), Wait(44), silent], [Wait(8), bookmark(12), Wait(2)]],
        rng=1.0,
    )
    ages = []
    async with running(rig):
        for second in range(1, 60):
            await after(second)
            ages.append(rig.informer.age)
    assert max(ages) <= timedelta(seconds=60)
    assert [call.version for call in rig.api.watches[:2]] == ["10", "11"]
    assert rig.api.watches[1].lasts == timedelta(seconds=10), "an early end means an early bookmark"
    assert len(rig.api.lists) == 1


@virtual
async def test_li03_a_stream_that_its_client_forgets_is_cut() -> None:
    rig = make([[page(10)]], [SILENCE, SILENCE])
    async with running(rig):
        await after(58)
        error = rig.last_error()
        assert rig.api.watches[1].at <= 56, error
        assert rig.sample("watch_restarts_total", cause="unreachable") == 1


@virtual
async def test_li11_a_stream_that_ends_when_asked_is_a_proof_and_costs_no_list() -> None:
    """LI-11: an idle server may have no bookmark to send; three requests in two minutes."""
    rig = make([[page(10)]], [[Wait(40)]] * 4)
    async with running(rig):
        await after(39)
        assert rig.informer.age == timedelta(seconds=39)
        await after(41)
        assert rig.informer.age <= timedelta(seconds=1)
        await after(119)
        assert len(rig.api.lists) == 1
        assert len(rig.api.watches) == 3
        assert rig.sample("watch_restarts_total", cause="closed") == 2


@virtual
async def test_fp09_a_stream_that_ends_early_proves_nothing() -> None:
    """Something between us and the server may have ended it."""
    rig = make([[page(10)]], [[Wait(20)], [Wait(40)]])
    async with running(rig):
        await after(21)
        assert rig.informer.age == timedelta(seconds=21)


@virtual
async def test_a_stream_that_ends_early_is_resumed_and_not_suspected() -> None:
    rig = make([[page(10)]], [[Wait(15)], [Wait(15)]])
    async with running(rig):
        await after(16)
        assert len(rig.api.watches) == 2
        assert len(rig.api.lists) == 1


@virtual
async def test_fp10_streams_that_end_at_once_are_no_hot_loop() -> None:
    rig = make([[page(10 + n)] for n in range(500)], [[bookmark(9_999)], []] * 500)
    async with running(rig):
        await after(300)
    assert len(rig.api.watches) < 80


# Failures


@virtual
async def test_w22_an_api_server_that_is_down_at_first_is_asked_with_bounded_backoff() -> None:
    """LI-11: ten seconds at most between attempts, five on average."""
    rig = make([[DOWN]] * 200 + [[page(10, pod("a-0", 1))]])
    async with running(rig):
        await after(300)
        assert not rig.has_synced()
        assert rig.last_error() is DOWN
        assert (rig.broken_for() or timedelta(0)) >= timedelta(seconds=299)
        assert 55 <= len(rig.api.lists) <= 80
        gaps = [b.at - a.at for a, b in zip(rig.api.lists, rig.api.lists[1:], strict=False)]
        assert max(gaps) <= 10
        await rig.informer.wait_synced()
        assert rig.last_error() is None
        assert rig.broken_for() is None
        assert rig.names == {"a-0"}


@virtual
async def test_w22_denied_is_asked_rarely_and_told_loudly(lines: list[str]) -> None:
    rig = make([[DENIED]] * 100 + [[page(10)]], rng=1.0)
    async with running(rig):
        await after(600)
        assert rig.last_error() is DENIED
        assert "list pods in namespace prod" in str(rig.last_error())
    assert len(rig.api.lists) <= 30
    assert rig.sample("watch_restarts_total", cause="denied") == len(rig.api.lists)
    told = [line for line in lines if "Watch interrupted" in line]
    assert 3 <= len(told) <= 6, "not once per attempt"
    assert all(line.startswith("level=error") for line in told)


@pytest.mark.parametrize(
    ("error", "cause", "seconds"),
    [
        pytest.param(DOWN, RetryCause.UNREACHABLE, 0.1, id="FP-13 unreachable"),
        pytest.param(Throttled("own limiter"), RetryCause.THROTTLED, 0.1, id="own limiter"),
        pytest.param(TooManyRequests("busy"), RetryCause.THROTTLED, 0.1, id="FP-12 429"),
        pytest.param(
            TooManyRequests("busy", retry_after=timedelta(seconds=7)),
            RetryCause.THROTTLED,
            7.1,
            id="FP-12 429 with Retry-After",
        ),
        pytest.param(
            TooManyRequests("busy", retry_after=timedelta(days=1)),
            RetryCause.THROTTLED,
            30.1,
            id="FP-12 Retry-After is bounded",
        ),
        pytest.param(DENIED, RetryCause.DENIED, 1, id="W-22 denied"),
        pytest.param(NotFound("no such kind"), RetryCause.REFUSED, 1, id="W-22 404"),
    ],
)
def test_how_long_each_failure_waits(error: ApiError, cause: RetryCause, seconds: float) -> None:
    @virtual
    async def main() -> None:
        rig = make([[error], [page(10)]], rng=1.0)
        async with running(rig):
            await rig.informer.wait_synced()
        assert rig.api.lists[1].at == pytest.approx(seconds, abs=0.01)
        assert rig.sample("watch_restarts_total", cause=cause) == 1

    main()


@virtual
async def test_fp13_a_cut_stream_resumes_where_it_was() -> None:
    rig = make([[page(10)]], [[Wait(3), added(pod("a-0", 12)), Wait(2), CUT]], rng=1.0)
    async with running(rig):
        await after(6)
        assert rig.last_error() is None, "the next one works"
    assert [(call.version, round(call.at, 1)) for call in rig.api.watches] == [
        ("10", 0),
        ("12", 5.1),
    ]
    assert len(rig.api.lists) == 1


@virtual
async def test_fp10_a_version_that_stays_unknown_lists_after_three_resumes() -> None:
    too_large = Unreachable("watch pods in namespace prod: too large resource version", status=504)
    rig = make([[page(10)], [page(10)]], [[too_large]] * 3)
    async with running(rig):
        await after(5)
    assert [call.verb for call in rig.api.calls] == ["list", *["watch"] * 3, "list", "watch"]


@virtual
async def test_fp10_watches_that_always_fail_do_not_list_each_time() -> None:
    rig = make([[page(10 + n)] for n in range(500)], [[CUT]] * 500)
    async with running(rig):
        await after(300)
        assert rig.informer.age < timedelta(seconds=60), "at least the lists keep it fresh"
    assert len(rig.api.lists) < 30


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(WatchEvent(type="SURPRISE", object=pod("a-1", 20)), id="FP-13 unknown type"),
        pytest.param(
            WatchEvent(type="BOOKMARK", object=msgspec.Raw(b'{"metadata":{}}')),
            id="FP-13 bookmark without version",
        ),
    ],
)
def test_a_stream_that_makes_no_sense_is_resumed_from_before_it(event: WatchEvent) -> None:
    @virtual
    async def main() -> None:
        rig = make([[page(10)]], [[Wait(2), bookmark(11), event, *SILENCE]])
        async with running(rig):
            await after(2.2)
            assert [call.version for call in rig.api.watches] == ["10", "11"]
            assert rig.sample("watch_restarts_total", cause="unreachable") == 1

    main()


@virtual
async def test_fp13_a_list_without_a_version_is_not_taken() -> None:
    rig = make([[page("", pod("a-0", 1))], [page(10, pod("a-1", 2))]])
    async with running(rig):
        await rig.informer.wait_synced()
        assert rig.names == {"a-1"}


# Going back


@virtual
async def test_fp05_a_lagging_server_is_asked_again(lines: list[str]) -> None:
    rig = make([[page(90, pod("a-0", 80))], [page(50)], [page(95, pod("a-0", 80))]], [[GONE]])
    async with running(rig):
        await after(8)
        assert rig.names == {"a-0"}, "the old list was not taken"
        assert rig.sample("watch_restarts_total", cause="went_back") == 1
    assert rig.api.watches[-1].version == "95"
    assert any("metadata.resourceVersion 50 < 90" in line for line in lines)


@virtual
async def test_fp05_a_restored_server_is_believed_in_the_end(lines: list[str]) -> None:
    rig = make([[page(90, pod("a-0", 80))], *[[page(50, pod("a-0", 7))]] * 4], [[GONE]])
    async with running(rig):
        await after(30)
        assert rig.version("a-0") == "7"
        assert rig.api.watches[1].version == "50"
        assert 4 < rig.api.lists[-1].at < 15
    assert sum("Accepting an older list" in line for line in lines) == 1


@virtual
async def test_fp05_lagging_now_and_then_is_not_a_restore() -> None:
    lists = [page(90), page(50), page(50), page(95), page(60), page(60), page(99)]
    rig = make([[one] for one in lists], [[GONE], [GONE]])
    async with running(rig):
        await after(30)
    assert [call.version for call in rig.api.watches] == ["90", "95", "99"]


@virtual
async def test_a_bookmark_counts_as_seen_when_a_list_goes_back() -> None:
    rig = make([[page(10)], [page(20)], [page(41)]], [[Wait(2), bookmark(40), GONE]])
    async with running(rig):
        await after(10)
    assert rig.api.watches[1].version == "41"
