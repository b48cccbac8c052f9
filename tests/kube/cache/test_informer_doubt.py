"""When a cache has reason to doubt: refreshes, turns to list, unreadable objects (LI-02, LI-11)."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from rollout_operator.kube.api import Page
from rollout_operator.model.names import Gone, Throttled, Unreachable
from rollout_operator.model.objects import Unreadable
from tests.kube.informer_rig import Rig, after, make, played, running
from tests.kube.scripted_watch import (
    NAMESPACE,
    SILENCE,
    Listing,
    Step,
    Wait,
    added,
    as_raw,
    bookmark,
    broken_pod,
    deleted,
    modified,
    page,
    pod,
    pod_tree,
)
from tests.virtual_time import in_virtual_time

GONE = Gone("watch pods in namespace prod: too old resource version", status=410)
DOWN = Unreachable("list pods in namespace prod: connection refused")
RESET = Unreachable("watch pods in namespace prod: connection reset")
FULL = Throttled("the next token is due in 90s")

# Refresh: the watch goes on until the rate limits let the list be sent that replaces it


async def refreshed(
    lists: Sequence[Listing], watches: Sequence[Sequence[Step]], *turns: float | Throttled
) -> Rig:
    """Return an informer that was to refresh after five seconds, 100 s later."""
    rig = make(lists, watches)
    rig.api.turns.extend(turns)
    async with running(rig):
        await after(5)
        assert rig.informer.refresh("own delete not seen")
        await after(105)
    return rig


@in_virtual_time
async def test_refresh_drops_the_stream_and_lists_at_once() -> None:
    rig = make([[page(10)], [page(20, pod("a-0", 15))]], [SILENCE])
    async with running(rig):
        await after(5)
        assert rig.informer.refresh("a delete answered 409")
        await after(5.1)
        assert rig.names == {"a-0"}
        assert rig.age < 1
    assert rig.requested == ["list", "watch 10", "list", "watch 20"]
    assert (rig.restarts("refresh"), rig.restarts("unreachable")) == (1, 0)


@in_virtual_time
async def test_li11_refresh_is_granted_once_in_ten_seconds() -> None:
    rig = make([[page(10)], [page(20)], [page(30)]], [SILENCE] * 3)
    granted = []
    async with running(rig):
        for tenth in range(10, 150):
            await after(tenth / 10)
            granted.append(rig.informer.refresh("again"))
        await after(16)
    assert (sum(granted), rig.lists) == (2, 3)


@in_virtual_time
async def test_refresh_during_a_list_makes_another_list() -> None:
    rig = make([[page(10)], [page(20, pod("a-0", 15))]])
    async with running(rig):
        await asyncio.sleep(0)
        assert rig.lists == 1, "under way"
        assert rig.informer.refresh("this list may have begun too early")
        await after(1)
    assert rig.names == {"a-0"}
    assert rig.requested == ["list", "list", "watch 20"]


@in_virtual_time
async def test_refresh_from_a_callback_is_obeyed() -> None:
    rig = make([[page(10)], [page(20)]], [[Wait(1), added(pod("a-0", 11)), *SILENCE]])
    async with running(rig):
        await after(0.5)

        def object_to(old: object, new: object) -> None:
            rig.informer.refresh("odd")

        rig.informer.on_change(object_to)
        await after(2)
    assert rig.names == set()
    assert rig.lists == 2


@in_virtual_time
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
        assert rig.age < 6
        assert rig.lists == 1
        await after(36)
        assert rig.stored() == "Pod@15"
    assert rig.requested == ["list", "watch 10", "list", "watch 20"]
    assert rig.api.lists[1].at == 35
    assert rig.api.taken == [False, True], "no second token"


@in_virtual_time
async def test_si09_the_list_of_every_four_minutes_keeps_the_stream_as_long() -> None:
    """SI-09, LI-02: a stream that ends meanwhile is resumed."""
    rig = make([[page(10)], [page(90, pod("a-0", 80))]], [[Wait(40)]] * 10)
    rig.api.turns.append(50)
    async with running(rig):
        for second in range(1, 300):
            await after(second)
            assert rig.age <= 45, second
        assert rig.names == {"a-0"}
    assert [call.at for call in rig.api.lists] == [0, 290]
    assert rig.api.taken == [False, True]


@in_virtual_time
async def test_li02_a_stream_that_fails_meanwhile_is_resumed_and_the_list_follows() -> None:
    again: Sequence[Step] = [Wait(5), added(pod("a-0", 11)), *SILENCE]
    lists = [[page(10)], [page(20, pod("a-0", 15, ready=False))]]
    rig = await refreshed(lists, [[Wait(10), RESET], again], 30)
    assert rig.reported == [">a-0@11", "a-0@11>a-0@15"]
    assert rig.lists == 2


@in_virtual_time
async def test_a_list_that_has_to_be_made_meanwhile_takes_no_second_token() -> None:
    """LI-04, LI-11: the stream is gone, and the list that was requested is the one it needs."""
    rig = await refreshed([[page(10)], [page(20)]], [[Wait(10), GONE]], 30)
    assert [call.at for call in rig.api.lists] == [0, 35]
    assert rig.api.taken == [False, True]


@pytest.mark.parametrize("error", [FULL, None], ids=["no token", "list fails"])
@in_virtual_time
async def test_li02_a_refresh_that_comes_to_nothing_is_made_up_for(error: Throttled | None) -> None:
    """LI-02: the watch goes on, and the list is tried again ten seconds after."""
    failing = [[Unreachable("no answer")]] if error is None else []
    rig = make([[page(10)], *failing, [page(20, pod("a-0", 15))]], [[Wait(10)]] * 9)
    rig.api.turns.extend([error] if error is not None else [])
    async with running(rig):
        await after(5)
        rig.informer.refresh("own delete not seen")
        await after(31)
        assert rig.names == {"a-0"}
        assert rig.broken_for() is None


@in_virtual_time
async def test_si09_a_list_older_than_what_the_stream_brought_is_not_taken() -> None:
    """SI-09, FP-05: nothing goes backwards."""
    stream: Sequence[Step] = [Wait(6), added(pod("a-0", 30)), *SILENCE]
    lists = [[page(10)], [page(20)], [page(31, pod("a-0", 30))]]
    rig = await refreshed(lists, [stream, [Wait(10)], SILENCE], 10)
    assert rig.lists == 3
    assert rig.reported == [">a-0@30"]


# Objects that cannot be read


@in_virtual_time
async def test_one_unreadable_object_of_a_list_hides_no_other(lines: list[str]) -> None:
    items = [pod("a-0", 1), broken_pod("a-1", 2), pod("a-2", 3)]
    rig = await played(2, [[page(10, *items)], [page(50, *items)]], [[Wait(1), GONE]])
    assert rig.names == {"a-0", "a-1", "a-2"}
    broken = rig.store.get(NAMESPACE, "a-1")
    assert isinstance(broken, Unreadable)
    assert broken.error == "Pod prod/a-1: status.phase: expected str, got int: 7"
    assert (rig.sample("unreadable_objects"), rig.sample("cached_objects")) == (1, 3)
    reported = [line for line in lines if "Unreadable object" in line]
    assert len(reported) == 1, "once per UID and version, however often it is listed"
    assert "status.phase" in reported[0]
    assert reported[0].startswith("level=error")


@in_virtual_time
async def test_an_object_that_becomes_unreadable_in_a_stream_is_reported_and_heals(
    lines: list[str],
) -> None:
    bad, worse = modified(broken_pod("a-0", 11)), modified(broken_pod("a-0", 12))
    stream = [Wait(1), bad, bad, worse, Wait(1), modified(pod("a-0", 13)), *SILENCE]
    rig = make([[page(10, pod("a-0", 1))]], [stream])
    async with running(rig):
        await after(1.5)
        assert rig.stored() == "Unreadable@12"
        assert rig.sample("unreadable_objects") == 1
        await after(3)
        assert rig.sample("unreadable_objects") == 0
    assert rig.reported[1:] == ["a-0@1>a-0@11", "a-0@12>a-0@13"]
    assert sum("Unreadable object" in line for line in lines) == 2, "one per version"


@in_virtual_time
async def test_an_unreadable_last_state_still_removes_the_object() -> None:
    gone = deleted(broken_pod("a-0", 11))
    rig = await played(1, [[page(10, pod("a-0", 1))]], [[gone, *SILENCE]])
    assert rig.names == set()
    assert rig.reported[1:] == ["a-0@1>"]


# They are read again by themselves, and never go back

ONE = "metadata.name=a-0"
SPOILED = modified(broken_pod("a-0", 11, uid="uid-a-0"))


def follow(lists: Sequence[Listing], *steps: Step) -> Rig:
    """Return an informer whose stream spoils a pod after a second, and then has these steps."""
    return make([[page(10, pod("a-0", 5))], *lists], [[Wait(1), SPOILED, *steps, *SILENCE]])


def reads(rig: Rig) -> list[float]:
    """Return when the one pod was read."""
    calls = zip(rig.api.calls, rig.api.field_selectors, strict=True)
    return [call.at for call, selector in calls if selector == ONE]


def gaps(rig: Rig) -> list[float]:
    """Return the times from the event to the first read, and from read to read."""
    return [after - before for before, after in pairwise([1.0, *reads(rig)])]


@pytest.mark.parametrize(
    ("found", "expected", "reported"),
    [
        pytest.param(page(11, pod("a-0", 11)), "Pod@11", ["a-0@11"], id="LI-02 the same version"),
        pytest.param(page(15, pod("a-0", 14)), "Pod@14", ["a-0@14"], id="LI-02 a newer version"),
        pytest.param(page(15, pod("a-0", 14, uid="n")), "Pod@14", ["", "a-0@14"], id="SI-07 new"),
        pytest.param(page(15), "", [""], id="LI-02 gone"),
        pytest.param(page(9, pod("a-0", 5)), "Unreadable@11", [], id="SI-09 an older state"),
        pytest.param(page(9), "Unreadable@11", [], id="SI-09 an older absence"),
    ],
)
@in_virtual_time
async def test_li02_a_spoiled_event_is_mended_after_five_seconds(
    lines: list[str], found: Page, expected: str, reported: list[str]
) -> None:
    rig = follow([[found]])
    async with running(rig):
        await after(5.9)
        assert rig.stored() == "Unreadable@11"
        assert rig.sample("unreadable_objects") == 1
        before = len(rig.reported)
        await after(6.1)
        assert rig.stored() == expected
        assert rig.sample("unreadable_objects") == expected.startswith("Unreadable")
    assert reads(rig) == [pytest.approx(6, abs=0.1)]
    assert [one.partition(">")[2] for one in rig.reported[before:]] == reported
    assert sum("Read again" in line for line in lines) == bool(reported)


STILL = page(12, broken_pod("a-0", 11, uid="uid-a-0"))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([STILL] * 30, [5, 10, 20, 40, 80, 160, 300, 300, 300], id="LI-11 unreadable"),
        # The fault is the API server's: it says nothing of the object.
        pytest.param([DOWN, DOWN, DOWN, page(20, pod("a-0", 14))], [5, 5, 5, 5], id="LI-02 down"),
    ],
)
@in_virtual_time
async def test_when_an_object_is_read_again(
    answers: Sequence[Page | Unreachable], expected: list[float]
) -> None:
    rig = follow([[one] for one in answers])
    async with running(rig):
        await after(2000 if STILL in answers else 40)
    assert gaps(rig)[:9] == [pytest.approx(gap, abs=1) for gap in expected]
    assert rig.stored() == ("Unreadable@11" if STILL in answers else "Pod@14")


@in_virtual_time
async def test_li02_an_event_that_is_whole_ends_it() -> None:
    rig = follow([], Wait(2), modified(pod("a-0", 12)))
    async with running(rig):
        await after(30)
    assert rig.stored() == "Pod@12"
    assert reads(rig) == []


@in_virtual_time
async def test_li02_an_unreadable_item_of_the_list_is_read_again() -> None:
    rig = await played(6, [[page(10, broken_pod("a-0", 5))], [page(12, pod("a-0", 5))]])
    assert rig.stored() == "Pod@5"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(modified(pod("a-0", 13)), "Pod@13", id="SI-09 a newer event"),
        pytest.param(deleted(pod("a-0", 13)), "", id="SI-07 the deletion"),
    ],
)
@in_virtual_time
async def test_li02_an_event_that_comes_while_it_is_read_wins(event: Step, expected: str) -> None:
    rig = follow([[page(12, pod("a-0", 12))]], Wait(6), event)
    rig.api.pauses = {ONE: 3}
    async with running(rig):
        await after(20)
    assert rig.stored() == expected
    assert len(reads(rig)) == 1


@pytest.mark.parametrize(
    ("refreshed_at", "pages"),
    [
        pytest.param(5, [page(30, pod("a-0", 14))], id="SI-09 due in mid-list"),
        pytest.param(7, [page(12, pod("a-0", 12)), page(30, pod("a-0", 14))], id="SI-09 answered"),
    ],
)
@in_virtual_time
async def test_si09_a_read_never_comes_into_a_list_of_all(
    refreshed_at: int, pages: list[Page]
) -> None:
    """What the list shows then replaces everything, and could put back an older state."""
    rig = follow([[one] for one in pages])
    rig.api.pauses = {ONE: 3}
    async with running(rig):
        await after(refreshed_at)
        rig.api.pauses[""] = 4
        rig.informer.refresh("test")
        await after(12)
        assert rig.stored() == "Pod@14"
    assert rig.reported[-2:] == ["a-0@5>a-0@11", "a-0@11>a-0@14"]
    assert len(reads(rig)) == len(pages) - 1


@in_virtual_time
async def test_li02_what_has_lost_its_name_is_found_by_a_list_of_all() -> None:
    nameless = modified(as_raw({**pod_tree("a-0", 11), "metadata": {"name": 7, "uid": "u"}}))
    pages = [[page(10, pod("a-0", 5))], [page(20, pod("a-0", 11))]]
    rig = await played(40, pages, [[Wait(1), nameless, Wait(30)]])
    assert rig.names == {"a-0"}
    assert rig.stored() == "Pod@11"
    assert rig.sample("unreadable_objects") == 0


@in_virtual_time
async def test_a_bug_where_a_change_is_reported_ends_run_with_it() -> None:
    rig = follow([[page(15, pod("a-0", 14))]])

    def fail(old: object, new: object) -> None:
        if asyncio.get_running_loop().time() > 5:
            raise ZeroDivisionError

    rig.informer.on_change(fail)
    with pytest.raises(ZeroDivisionError):
        await rig.informer.run()
