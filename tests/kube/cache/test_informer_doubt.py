"""When a cache has reason to doubt: unreadable objects, and refreshes on request (LI-11)."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from rollout_operator.model.errors import Gone
from rollout_operator.model.objects import Unreadable
from tests.kube.informer_rig import after, captured_log, make, running
from tests.kube.scripted_watch import (
    NAMESPACE,
    SILENCE,
    Wait,
    added,
    broken_pod,
    deleted,
    modified,
    page,
    pod,
    virtual,
)

GONE = Gone("watch pods in namespace prod: too old resource version", status=410)


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Return the lines of the log, as they come."""
    with captured_log() as caught:
        yield caught


# Objects that cannot be read


@virtual
async def test_one_unreadable_object_of_a_list_hides_no_other(lines: list[str]) -> None:
    items = [pod("a-0", 1), broken_pod("a-1", 2), pod("a-2", 3)]
    rig = make([[page(10, *items)], [page(50, *items)]], [[Wait(1), GONE]])
    async with running(rig):
        await after(2)
        assert rig.names == {"a-0", "a-1", "a-2"}
        broken = rig.store.get(NAMESPACE, "a-1")
        assert isinstance(broken, Unreadable)
        assert broken.error == "Pod prod/a-1: status.phase: expected str, got int: 7"
        assert rig.sample("unreadable_objects") == 1
        assert rig.sample("cached_objects") == 3
    told = [line for line in lines if "Unreadable object" in line]
    assert len(told) == 1, "once per UID and version, however often it is listed"
    assert "status.phase" in told[0]
    assert told[0].startswith("level=error")


@virtual
async def test_an_object_that_becomes_unreadable_in_a_stream_is_told_and_heals(
    lines: list[str],
) -> None:
    bad = broken_pod("a-0", 11)
    worse, good = modified(broken_pod("a-0", 12)), modified(pod("a-0", 13))
    stream = [Wait(1), modified(bad), modified(bad), worse, Wait(1), good, *SILENCE]
    rig = make([[page(10, pod("a-0", 1))]], [stream])
    async with running(rig):
        await after(1.5)
        assert isinstance(rig.store.get(NAMESPACE, "a-0"), Unreadable)
        assert rig.sample("unreadable_objects") == 1
        await after(3)
        assert rig.sample("unreadable_objects") == 0
    assert rig.told[1:] == [("a-0@1", "a-0@11"), ("a-0@12", "a-0@13")]
    assert sum("Unreadable object" in line for line in lines) == 2, "one per version"


@virtual
async def test_an_unreadable_last_state_still_removes_the_object() -> None:
    rig = make([[page(10, pod("a-0", 1))]], [[deleted(broken_pod("a-0", 11)), *SILENCE]])
    async with running(rig):
        await after(1)
        assert rig.names == set()
        assert rig.told[1:] == [("a-0@1", "")]


# Refresh


@virtual
async def test_refresh_drops_the_stream_and_lists_at_once() -> None:
    rig = make([[page(10)], [page(20, pod("a-0", 15))]], [SILENCE])
    async with running(rig):
        await after(5)
        assert rig.informer.refresh("a delete answered 409")
        await after(5.1)
        assert rig.names == {"a-0"}
        assert rig.informer.age < timedelta(seconds=1)
    assert [call.verb for call in rig.api.calls] == ["list", "watch", "list", "watch"]
    assert rig.sample("watch_restarts_total", cause="refresh") == 1
    assert rig.sample("watch_restarts_total", cause="unreachable") == 0


@virtual
async def test_li11_refresh_is_granted_once_in_ten_seconds() -> None:
    rig = make([[page(10)], [page(20)], [page(30)]], [SILENCE] * 3)
    granted = []
    async with running(rig):
        for tenth in range(10, 150):
            await after(tenth / 10)
            granted.append(rig.informer.refresh("again"))
        await after(16)
    assert sum(granted) == 2
    assert len(rig.api.lists) == 3


@virtual
async def test_refresh_during_a_list_makes_another_list() -> None:
    rig = make([[page(10)], [page(20, pod("a-0", 15))]])
    async with running(rig):
        await asyncio.sleep(0)
        assert len(rig.api.lists) == 1, "under way"
        assert rig.informer.refresh("this list may have begun too early")
        await after(1)
        assert rig.names == {"a-0"}
    assert [call.verb for call in rig.api.calls] == ["list", "list", "watch"]


@virtual
async def test_refresh_from_a_callback_is_obeyed() -> None:
    rig = make([[page(10)], [page(20)]], [[Wait(1), added(pod("a-0", 11)), *SILENCE]])
    async with running(rig):
        await after(0.5)

        def object_to(old: object, new: object) -> None:
            rig.informer.refresh("odd")

        rig.informer.on_change(object_to)
        await after(2)
        assert rig.names == set()
    assert len(rig.api.lists) == 2
