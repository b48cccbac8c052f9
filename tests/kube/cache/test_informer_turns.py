"""A watch goes on until the rate limits let the list be sent that replaces it (SI-09, LI-02)."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from rollout_operator.model.errors import Gone, Throttled, Unreachable
from tests.kube.informer_rig import after, make, running
from tests.kube.scripted_watch import SILENCE, Step, Wait, added, bookmark, page, pod, virtual

FULL = Throttled("the next token is due in 90s")


@virtual
async def test_si09_a_refresh_keeps_the_stream_until_its_list_can_be_sent() -> None:
    """SI-09: the token is 30 s away; what the stream brings meanwhile is taken."""
    stream: Sequence[Step] = [Wait(20), added(pod("a-0", 11)), Wait(9), bookmark(12), *SILENCE]
    rig = make([[page(10)], [page(20, pod("a-0", 15))]], [stream])
    rig.api.turns.append(30)
    async with running(rig):
        await after(5)
        assert rig.informer.refresh("own delete not seen")
        await after(21)
        assert rig.names == {"a-0"}, "the stream goes on"
        await after(34)
        assert rig.informer.age < timedelta(seconds=6)
        assert len(rig.api.lists) == 1
        await after(36)
        assert rig.version("a-0") == "15"
    assert [call.verb for call in rig.api.calls] == ["list", "watch", "list", "watch"]
    assert rig.api.lists[1].at == 35
    assert rig.api.taken == [False, True], "no second token"


@virtual
async def test_si09_the_list_of_every_four_minutes_keeps_the_stream_as_long() -> None:
    """SI-09, LI-02: a stream that ends meanwhile is resumed."""
    rig = make([[page(10)], [page(90, pod("a-0", 80))]], [[Wait(40)]] * 10)
    rig.api.turns.append(50)
    async with running(rig):
        for second in range(1, 300):
            await after(second)
            assert rig.informer.age <= timedelta(seconds=45), second
        assert rig.names == {"a-0"}
    assert [call.at for call in rig.api.lists] == [0, 290]
    assert rig.api.taken == [False, True]


@virtual
async def test_li02_a_stream_that_fails_meanwhile_is_resumed_and_the_list_follows() -> None:
    streams: Sequence[Sequence[Step]] = [
        [Wait(10), Unreachable("connection reset")],
        [Wait(5), added(pod("a-0", 11)), *SILENCE],
    ]
    rig = make([[page(10)], [page(20, pod("a-0", 15))]], streams)
    rig.api.turns.append(30)
    async with running(rig):
        await after(5)
        rig.informer.refresh("own delete not seen")
        await after(16)
        assert rig.version("a-0") == "11"
        await after(36)
        assert rig.version("a-0") == "15"
    assert len(rig.api.lists) == 2


@virtual
async def test_a_list_that_has_to_be_made_meanwhile_takes_no_second_token() -> None:
    """LI-04, LI-11: the stream is gone, and the list that was asked for is the one it needs."""
    rig = make([[page(10)], [page(20)]], [[Wait(10), Gone("too old", status=410)]])
    rig.api.turns.append(30)
    async with running(rig):
        await after(5)
        rig.informer.refresh("own delete not seen")
        await after(100)
    assert [call.at for call in rig.api.lists] == [0, 35]
    assert rig.api.taken == [False, True]


@pytest.mark.parametrize("error", [FULL, None], ids=["no token", "list fails"])
def test_li02_a_refresh_that_comes_to_nothing_is_made_up_for(error: Throttled | None) -> None:
    """LI-02: the watch goes on, and the list is tried again ten seconds after."""

    @virtual
    async def run() -> None:
        failing = [[Unreachable("no answer")]] if error is None else []
        rig = make([[page(10)], *failing, [page(20, pod("a-0", 15))]], [[Wait(10)]] * 9)
        if error is not None:
            rig.api.turns.append(error)
        async with running(rig):
            await after(5)
            rig.informer.refresh("own delete not seen")
            await after(31)
            assert rig.names == {"a-0"}
            assert rig.informer.broken_for is None

    run()


@virtual
async def test_si09_a_list_older_than_what_the_stream_brought_is_not_taken() -> None:
    """SI-09, FP-05: nothing goes backwards."""
    stream: Sequence[Step] = [Wait(6), added(pod("a-0", 30)), *SILENCE]
    lists = [[page(10)], [page(20)], [page(31, pod("a-0", 30))]]
    rig = make(lists, [stream, [Wait(10)], SILENCE])
    rig.api.turns.append(10)
    async with running(rig):
        await after(5)
        rig.informer.refresh("own delete not seen")
        await after(40)
    assert len(rig.api.lists) == 3
    assert rig.told == [("", "a-0@30")]
