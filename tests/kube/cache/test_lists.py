"""Lists that are streamed, and pages where the API server does not offer that (D-54, D-51)."""

import json
from collections.abc import Sequence
from typing import Final

import pytest

from rollout_operator.kube.api import WatchEvent
from rollout_operator.kube.informer import FAILURES, SILENCE
from rollout_operator.model.names import Gone, TooManyRequests, Unreachable
from tests.kube.client_bench import POD_LIST, Bench
from tests.kube.fake_api import stream
from tests.kube.informer_rig import Rig, after, make, running
from tests.kube.scripted_watch import SILENCE as FOR_EVER
from tests.kube.scripted_watch import (
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
)
from tests.virtual_time import in_virtual_time

CUT: Final = Unreachable("watch pods in namespace prod: connection reset")
TOO_OLD: Final = Gone("watch pods in namespace prod: too old", status=410)
# The first page is not all; what follows it is read only where nothing is streamed.
FIRST: Final = page(9, pod("a-0", 5), next_token="more")
PAGED: Final = [FIRST, page(9, pod("a-2", 6))]


def end(version: int, **annotations: str) -> WatchEvent:
    marks = {"k8s.io/initial-events-end": "true", **annotations}
    tree = {"kind": "Pod", "metadata": {"resourceVersion": str(version), "annotations": marks}}
    return WatchEvent(type="BOOKMARK", object=as_raw(tree))


def streamed(*states: Sequence[Step], watch: Sequence[Step] = FOR_EVER) -> Rig:
    """Return an informer on a server that has more than a page, and streams these states."""
    rig = make([[FIRST]] * len(states), [watch])
    rig.api.states.extend(states)
    return rig


@in_virtual_time
async def test_d54_all_objects_come_from_one_stream() -> None:
    state: list[Step] = [added(pod("a-0", 5)), bookmark(6), added(pod("a-1", 7)), end(9)]
    rig = streamed(state)
    async with running(rig):
        await after(1)
    assert rig.has_synced()
    assert rig.names == {"a-0", "a-1"}
    assert rig.reported == [">a-0@5", ">a-1@7"]
    assert rig.requested == ["list", "watch 9"], "what happens since is followed from there"


@in_virtual_time
async def test_d54_what_was_written_meanwhile_counts() -> None:
    state: list[Step] = [added(pod("a-0", 5)), added(pod("a-1", 7)), modified(pod("a-0", 8))]
    rig = streamed([*state, deleted(pod("a-1", 9)), end(9)])
    async with running(rig):
        await after(1)
        assert rig.names == {"a-0"}
        assert rig.stored() == "Pod@8"


@in_virtual_time
async def test_fp08_a_later_stream_replaces_everything_at_once() -> None:
    """A deletion that no watch has brought is found; until the end nothing shows."""
    first: list[Step] = [added(pod("a-0", 5)), added(pod("a-1", 7)), end(9)]
    second: list[Step] = [added(pod("a-2", 20)), Wait(5), added(pod("a-1", 7)), end(21)]
    rig = streamed(first, second, watch=[Wait(1), TOO_OLD])
    async with running(rig):
        await after(5)
        assert rig.names == {"a-0", "a-1"}
        await after(8)
        assert rig.names == {"a-1", "a-2"}
        assert rig.reported[2:] == ["a-0@5>", ">a-2@20"]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param([added(pod("a-1", 7)), CUT], id="FP-13 cut"),
        pytest.param([added(pod("a-1", 7))], id="D-54 it ends before all were sent"),
        pytest.param([added(pod("a-1", 7)), *FOR_EVER], id="D-54 no word that this was all"),
        pytest.param([bookmark(9), *FOR_EVER], id="D-54 bookmarks that do not say it"),
        pytest.param([end(9, **{"k8s.io/initial-events-end": "false"})], id="D-54 said no"),
        pytest.param([TooManyRequests("watch pods")], id="FP-12 too many requests"),
        pytest.param(
            [WatchEvent(type="BOOKMARK", object=as_raw({"metadata": {}}))], id="FP-13 no version"
        ),
    ],
)
@in_virtual_time
async def test_d54_where_a_stream_fails_pages_are_read_at_once(state: Sequence[Step]) -> None:
    rig = make([PAGED])
    rig.api.states.append(state)
    async with running(rig):
        await after(SILENCE.total_seconds() + 1)
    assert rig.has_synced()
    assert rig.names == {"a-0", "a-2"}, "nothing of what the stream has sent"


@pytest.mark.parametrize(
    ("states", "lists", "streamed"),
    [
        pytest.param([], 2, 1, id="refused"),
        pytest.param([[CUT]] * 5, 5, FAILURES, id="fails again and again"),
    ],
)
@in_virtual_time
async def test_d54_a_stream_that_does_not_work_is_given_up(
    states: Sequence[Sequence[Step]], lists: int, streamed: int
) -> None:
    rig = make([PAGED] * lists, [[Wait(1), TOO_OLD]] * (lists - 1))
    rig.api.states.extend(states)
    async with running(rig):
        await after(60)
    assert (rig.lists, rig.api.streamed) == (lists, streamed)


@in_virtual_time
async def test_d54_what_fits_into_a_page_is_not_streamed() -> None:
    """The role may let us watch and not list: that shows at once, and live reads need it."""
    rig = make([[page(9, pod("a-0", 5))]])
    rig.api.states.append([added(pod("a-1", 7)), end(9)])
    async with running(rig):
        await after(1)
        assert rig.names == {"a-0"}
    assert rig.api.streamed == 0


@in_virtual_time
async def test_fp05_an_older_stream_is_no_list() -> None:
    """LI-04: a server that lags shows an older state than was seen; then all is listed again."""
    later = page(30, next_token="more")
    rig = make([[FIRST], [later], [later]], [[Wait(1), bookmark(20), Wait(1), TOO_OLD]])
    late: list[Step] = [added(pod("a-2", 9)), end(15)]
    rig.api.states.extend([[added(pod("a-1", 7)), end(9)], late, [added(pod("a-1", 7)), end(40)]])
    async with running(rig):
        await after(1.5)
        assert rig.names == {"a-1"}
        await after(30)
        assert rig.names == {"a-1"}, "a-2 was never shown"
        assert ">a-2@9" not in rig.reported


@in_virtual_time
async def test_li09_an_unreadable_object_of_a_stream_hides_no_other() -> None:
    rig = streamed([added(broken_pod("a-0", 5)), added(pod("a-1", 7)), end(9)])
    async with running(rig):
        await after(1)
        assert rig.names == {"a-0", "a-1"}
        assert rig.sample("unreadable_objects") == 1


async def test_d54_what_is_requested_of_the_api_server(bench: Bench) -> None:
    """As client-go's reflector reads: state first, at least as new as any there is."""
    line = {"type": "BOOKMARK", "object": json.loads(bytes(end(9).object))}
    bench.server.on("GET", POD_LIST, stream([json.dumps(line).encode() + b"\n"]))
    async with bench.watch(60, version="", has_state=True) as events:
        assert [event.type async for event in events] == ["BOOKMARK"]
    assert bench.server.requests[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "60",
    }
