"""Everything is listed anew now and then, whatever becomes of the streams and lists (LI-02)."""

import pytest

from rollout_operator.model.errors import ApiError, TooManyRequests, Unreachable
from tests.kube.informer_rig import after, make, running
from tests.kube.scripted_watch import Step, Wait, added, bookmark, page, pod, virtual

THROTTLED = TooManyRequests("cannot list pods in namespace prod: too many requests", status=429)
RESET = Unreachable("watch pods in namespace prod: connection reset")
ORDERLY: list[Step] = [Wait(38), bookmark(16), Wait(2)]


@virtual
async def test_what_a_watch_never_brings_is_found_within_five_minutes() -> None:
    """No watch should lose an event; one that did would leave a group waiting for ever."""
    pages = [[page(10, pod("a-0", 5, ready=False))], [page(20, pod("a-0", 15))]]
    rig = make(pages, [ORDERLY] * 10)
    async with running(rig):
        await after(300)
    assert rig.told == [("", "a-0@5"), ("a-0@5", "a-0@15")]
    assert len(rig.api.lists) == 2, "no list after each stream"


@virtual
async def test_streams_that_end_with_an_error_are_no_excuse() -> None:
    """FP-05: something between resets each connection, with events in each stream before that."""
    streams: list[list[Step]] = [
        [Wait(20), added(pod("a-1", 11 + n)), Wait(5), RESET] for n in range(20)
    ]
    rig = make([[page(10, pod("a-0", 5, ready=False))], [page(90, pod("a-0", 15))]], streams)
    async with running(rig):
        await after(300)
        assert ("a-0@5", "a-0@15") in rig.told
    assert len(rig.api.lists) == 2


@pytest.mark.parametrize("error", [THROTTLED, Unreachable("no answer")], ids=["429", "down"])
def test_a_list_that_fails_gives_up_no_watch(error: ApiError) -> None:
    """SI-09, FP-12: large lists are turned away for ten minutes, watches are fine."""

    @virtual
    async def run() -> None:
        streams: list[list[Step]] = [[Wait(38), bookmark(16 + n), Wait(2)] for n in range(14)]
        streams.append([added(pod("a-1", 90)), Wait(40)])
        rig = make([[page(10)], *[[error]] * 20], streams)
        async with running(rig):
            await after(600)
            assert rig.informer.age.total_seconds() <= 40
            assert rig.informer.broken_for is None
            assert rig.names == {"a-1"}
        assert len(rig.api.lists) <= 2 + (600 - 240) / 30

    run()


@virtual
async def test_a_list_without_news_keeps_the_views_that_are_stored() -> None:
    """D-51: a second copy of five thousand pods would be 20 MiB."""
    rig = make([[page(10, pod("a-0", 5))], [page(20, pod("a-0", 5))]], [[Wait(40)]] * 10)
    async with running(rig):
        await after(1)
        before = rig.store.get("prod", "a-0")
        assert before is not None
        await after(300)
        assert rig.store.get("prod", "a-0") is before
    assert len(rig.api.lists) == 2
