"""What could not be decoded is read again by itself, and never goes back (LI-02, LI-09)."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from rollout_operator.kube.api import Page
from rollout_operator.model.errors import Unreachable
from tests.kube.informer_rig import Rig, after, captured_log, make, running
from tests.kube.scripted_watch import (
    NAMESPACE,
    SILENCE,
    Listing,
    Step,
    Wait,
    as_raw,
    broken_pod,
    deleted,
    modified,
    page,
    pod,
    pod_tree,
    virtual,
)

DOWN = Unreachable("list pods in namespace prod: connection refused")
ONE = "metadata.name=a-0"
SPOILED = modified(broken_pod("a-0", 11, uid="uid-a-0"))


def follow(lists: Sequence[Listing], *steps: Step) -> Rig:
    """Return an informer whose first stream has these steps and then says nothing."""
    return make([[page(10, pod("a-0", 5))], *lists], [[*steps, *SILENCE]])


def reads(rig: Rig) -> list[float]:
    """Return when the one pod was read."""
    calls = zip(rig.api.calls, rig.api.field_selectors, strict=True)
    return [call.at for call, selector in calls if selector == ONE]


def gaps(rig: Rig) -> list[float]:
    """Return the times from the event to the first read, and from read to read."""
    times = [1.0, *reads(rig)]
    return [after - before for before, after in pairwise(times)]


def stored(rig: Rig) -> str:
    view = rig.store.get(NAMESPACE, "a-0")
    return "" if view is None else f"{type(view).__name__}@{view.resource_version}"


@pytest.mark.parametrize(
    ("found", "expected", "told"),
    [
        pytest.param(page(11, pod("a-0", 11)), "Pod@11", ["a-0@11"], id="LI-02 the same version"),
        pytest.param(page(15, pod("a-0", 14)), "Pod@14", ["a-0@14"], id="LI-02 a newer version"),
        pytest.param(page(15, pod("a-0", 14, uid="n")), "Pod@14", ["", "a-0@14"], id="SI-07 new"),
        pytest.param(page(15), "", [""], id="LI-02 gone"),
        pytest.param(page(9, pod("a-0", 5)), "Unreadable@11", [], id="SI-09 an older state"),
        pytest.param(page(9), "Unreadable@11", [], id="SI-09 an older absence"),
    ],
)
def test_li02_a_spoiled_event_is_mended_after_five_seconds(
    found: Page, expected: str, told: list[str]
) -> None:
    @virtual
    async def main() -> None:
        rig = follow([[found]], Wait(1), SPOILED)
        with captured_log() as lines:
            async with running(rig):
                await after(5.9)
                assert stored(rig) == "Unreadable@11"
                assert rig.sample("unreadable_objects") == 1
                before = len(rig.told)
                await after(6.1)
                assert stored(rig) == expected
                assert rig.sample("unreadable_objects") == expected.startswith("Unreadable")
        assert reads(rig) == [pytest.approx(6, abs=0.1)]
        assert [new for _, new in rig.told[before:]] == told
        assert sum("Read again" in line for line in lines) == bool(told)

    main()


@virtual
async def test_li11_what_stays_unreadable_is_read_less_and_less_often() -> None:
    still = [page(12, broken_pod("a-0", 11, uid="uid-a-0"))]
    rig = follow([still] * 30, Wait(1), SPOILED)
    async with running(rig):
        await after(2000)
    expected = [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert gaps(rig)[:9] == [pytest.approx(gap, abs=1) for gap in expected]


@virtual
async def test_li02_a_read_that_fails_says_nothing_of_the_object() -> None:
    """Tried again after the same time: the fault is the API server's."""
    rig = follow([[DOWN], [DOWN], [DOWN], [page(20, pod("a-0", 14))]], Wait(1), SPOILED)
    async with running(rig):
        await after(40)
        assert stored(rig) == "Pod@14"
    assert gaps(rig) == [pytest.approx(5, abs=0.1)] * 4


@virtual
async def test_li02_an_event_that_is_whole_ends_it() -> None:
    rig = follow([], Wait(1), SPOILED, Wait(2), modified(pod("a-0", 12)))
    async with running(rig):
        await after(30)
        assert stored(rig) == "Pod@12"
    assert reads(rig) == []


@virtual
async def test_li02_an_unreadable_item_of_the_list_is_read_again() -> None:
    rig = make([[page(10, broken_pod("a-0", 5))], [page(12, pod("a-0", 5))]])
    async with running(rig):
        await after(6)
        assert stored(rig) == "Pod@5"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(modified(pod("a-0", 13)), "Pod@13", id="SI-09 a newer event"),
        pytest.param(deleted(pod("a-0", 13)), "", id="SI-07 the deletion"),
    ],
)
def test_li02_an_event_that_comes_while_it_is_read_wins(event: Step, expected: str) -> None:
    @virtual
    async def main() -> None:
        rig = follow([[page(12, pod("a-0", 12))]], Wait(1), SPOILED, Wait(6), event)
        rig.api.pauses = {ONE: 3}
        async with running(rig):
            await after(20)
            assert stored(rig) == expected
        assert len(reads(rig)) == 1

    main()


@pytest.mark.parametrize(
    ("refreshed_at", "pages"),
    [
        pytest.param(5, [page(30, pod("a-0", 14))], id="SI-09 due in mid-list"),
        pytest.param(
            7, [page(12, pod("a-0", 12)), page(30, pod("a-0", 14))], id="SI-09 answered in mid-list"
        ),
    ],
)
def test_si09_a_read_never_comes_into_a_list_of_all(refreshed_at: int, pages: list[Page]) -> None:
    """What the list shows then replaces everything, and could put back an older state."""

    @virtual
    async def main() -> None:
        rig = follow([[one] for one in pages], Wait(1), SPOILED)
        rig.api.pauses = {ONE: 3}
        async with running(rig):
            await after(refreshed_at)
            rig.api.pauses[""] = 4
            rig.informer.refresh("test")
            await after(12)
            assert stored(rig) == "Pod@14"
        assert [new for _, new in rig.told][-2:] == ["a-0@11", "a-0@14"]
        assert len(reads(rig)) == len(pages) - 1

    main()


@virtual
async def test_li02_what_has_lost_its_name_is_found_by_a_list_of_all() -> None:
    nameless = modified(as_raw({**pod_tree("a-0", 11), "metadata": {"name": 7, "uid": "u"}}))
    rig = make(
        [[page(10, pod("a-0", 5))], [page(20, pod("a-0", 11))]],
        [[Wait(1), nameless, Wait(30)]],
    )
    async with running(rig):
        await after(40)
        assert rig.names == {"a-0"}
        assert stored(rig) == "Pod@11"
        assert rig.sample("unreadable_objects") == 0


@virtual
async def test_a_bug_where_a_change_is_told_ends_run_with_it() -> None:
    rig = follow([[page(15, pod("a-0", 14))]], Wait(1), SPOILED)

    def fail(old: object, new: object) -> None:
        if asyncio.get_running_loop().time() > 5:
            raise ZeroDivisionError

    rig.informer.on_change(fail)
    with pytest.raises(ZeroDivisionError):
        await rig.informer.run()
