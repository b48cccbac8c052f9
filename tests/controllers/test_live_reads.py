"""Live reads of groups: shared by those that wait together, as old as their request (D-65).

And those of a set alone.
"""

import asyncio
import copy
from collections.abc import Callable
from datetime import timedelta

import pytest

from rollout_operator.controllers.observe import MOST_LIVE_READS, choose_most_live_reads
from rollout_operator.model.names import (
    ApiError,
    DecodeError,
    GroupName,
    NotFound,
    Throttled,
    Unreachable,
)
from rollout_operator.model.objects import Group, Unreadable
from tests.controllers.bench import GROUP, Bench, bench
from tests.controllers.fake_client import Json, pod_json, set_json
from tests.web.downscale_world import part

SECOND = timedelta(seconds=1)


def _set(group: str, zone: str, *, pods: int, key: str = "name") -> Json:
    name = f"{group}-{zone}"
    match = {"rollout-group": group, key: name}
    return set_json(name, replicas=pods, labels={"rollout-group": group}, selector=match)


def _pod(one: Json, ordinal: int) -> Json:
    selector = part(part(one, "spec"), "selector")["matchLabels"]
    pod = pod_json(str(part(one, "metadata")["name"]), ordinal)
    assert isinstance(selector, dict)
    part(part(pod, "metadata"), "labels").update(selector)
    return pod


def fleet(*groups: str, pods: int = 2, odd: str = "") -> Bench:
    """Return groups of two zones; the selectors of `odd` have another key."""
    sets = [
        _set(group, zone, pods=pods, key="zone" if group == odd else "name")
        for group in groups
        for zone in "ab"
    ]
    return bench(sets, [_pod(one, number) for one in sets for number in range(pods)])


class Turns:
    """Turns to read pods that a test gives one by one."""

    def __init__(self, made: Bench) -> None:
        self.turns = asyncio.Semaphore(0)
        made.client.turn = self._wait

    async def _wait(self, plural: str) -> None:
        if plural == "pods":
            await self.turns.acquire()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def read(made: Bench, group: str) -> Group:
    return await made.observer.observe_live(made.observer.observe(GroupName(group)))


def show(group: Group) -> dict[str, list[str]]:
    return {zone.sts.name: [pod.name for pod in zone.pods] for zone in group.zones}


async def test_d_65_one_read_serves_all_groups_that_wait_for_their_turn() -> None:
    made = fleet("g1", "g2", "g3")
    gate = Turns(made)
    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(read(made, name)) for name in ("g1", "g2", "g3")]
        await settle()
        assert made.client.calls == []
        gate.turns.release()
    assert made.client.calls == [
        "list statefulsets rollout-group in (g1,g2,g3)",
        "list pods name in (g1-a,g1-b,g2-a,g2-b,g3-a,g3-b),rollout-group in (g1,g2,g3)",
    ]
    assert [show(one.result()) for one in reads] == [
        {f"{name}-a": [f"{name}-a-0", f"{name}-a-1"], f"{name}-b": [f"{name}-b-0", f"{name}-b-1"]}
        for name in ("g1", "g2", "g3")
    ]


async def test_si_09_a_request_once_a_read_is_sent_gets_another() -> None:
    """What it shows may be older than the lock that was taken before it was requested."""
    made = fleet("g1", "g2")
    gate, sent, answer = Turns(made), asyncio.Event(), asyncio.Event()

    async def hang(call: str) -> None:
        if call.startswith("list pods"):
            sent.set()
            await answer.wait()

    made.client.pause = hang
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read(made, "g1"))
        gate.turns.release()
        await sent.wait()
        second = tasks.create_task(read(made, "g2"))
        gate.turns.release()
        await settle()
        assert len(made.client.calls) == 4, "a read that hangs keeps no other waiting"
        answer.set()
    assert list(show(second.result())) == ["g2-a", "g2-b"]


@pytest.mark.parametrize(
    ("made", "reads"),
    [
        pytest.param(lambda: fleet("g1", "g2", pods=200), 2, id="more than a page together"),
        pytest.param(lambda: fleet("g1", "g2", odd="g2"), 2, id="selectors of other keys"),
        pytest.param(lambda: fleet("g1", "g2", pods=125), 1, id="just a page"),
    ],
)
async def test_d_54_a_shared_read_is_one_page_and_one_list(
    made: Callable[[], Bench], reads: int
) -> None:
    """Two reads of a page each cost two tokens, a read of two pages as well: neither gains."""
    here = made()
    gate = Turns(here)
    async with asyncio.TaskGroup() as tasks:
        for name in ("g1", "g2"):
            tasks.create_task(read(here, name))
        await settle()
        for _ in range(reads):
            gate.turns.release()
    assert sum(call.startswith("list pods") for call in here.client.calls) == reads


async def test_si_09_the_age_of_a_read_counts_from_when_it_is_sent() -> None:
    """Not from when it began to wait for its turn; until its answer was taken up."""
    made = fleet("g1")

    async def wait(plural: str) -> None:
        made.clock.jump(30 * SECOND)

    def be_slow(call: str) -> None:
        made.clock.jump(2 * SECOND)

    made.client.turn, made.client.before = wait, be_slow
    assert (await read(made, "g1")).snapshot_age == 4 * SECOND


@pytest.mark.parametrize("is_sent", [False, True], ids=["before its turn", "once it is sent"])
async def test_a_live_read_that_is_cut_off_ends_no_other(is_sent: bool) -> None:
    """A review that ends, or a process that stops, takes no other live read with it."""
    made = fleet("g1", "g2", "g3")
    gate, never = Turns(made), asyncio.Event()

    async def hang(call: str) -> None:
        if "g1" in call:
            await never.wait()

    made.client.pause = hang
    first = asyncio.ensure_future(read(made, "g1"))
    others = [asyncio.ensure_future(read(made, name)) for name in ("g2", "g3")]
    await settle()
    if is_sent:
        gate.turns.release()
        await settle()
    first.cancel()
    gate.turns.release()
    found = await asyncio.gather(*others)
    assert [list(show(one)) for one in found] == [["g2-a", "g2-b"], ["g3-a", "g3-b"]]


@pytest.mark.parametrize(
    ("error", "reads"),
    [
        pytest.param(Throttled("the next token is due in 90 s"), 0, id="no turn: the next in line"),
        pytest.param(Unreachable("no answer"), 1, id="a read fails for all that share it"),
    ],
)
async def test_a_live_read_that_fails(error: ApiError, reads: int) -> None:
    made = fleet("g1", "g2")

    async def fail(call: str) -> None:
        raise error

    if reads:
        made.client.pause = fail
    else:
        made.client.turn = fail
    live_reads = [read(made, name) for name in ("g1", "g2")]
    errors = await asyncio.gather(*live_reads, return_exceptions=True)
    assert [type(one) for one in errors] == [type(error)] * 2
    assert sum(call.startswith("list pods") for call in made.client.calls) == reads


@pytest.mark.parametrize(
    ("qps", "most"), [(5, 15), (0.1, 1), (1, 3), (100, MOST_LIVE_READS), (0, MOST_LIVE_READS)]
)
def test_si_09_as_many_groups_at_a_time_as_tokens_come_while_a_read_counts(
    qps: float, most: int
) -> None:
    assert choose_most_live_reads(qps) == most


# A set alone

EXPRESSIONS: Json = {"matchExpressions": [{"key": "name", "operator": "In", "values": ["a"]}]}


def _selected(name: str, selector: Json) -> Json:
    one = set_json(name)
    part(one, "spec")["selector"] = selector
    return one


def _pods(*zones: str) -> list[Json]:
    return [pod_json(zone, ordinal) for zone in zones for ordinal in range(3)]


async def test_a_set_alone() -> None:
    """PREP-09: one read, one list by its selector; pods of others are left out by owner."""
    stranger = pod_json("a", 9, owner="uid-x")
    made = bench([set_json("a"), set_json("b")], [*_pods("a", "b"), stranger])
    group = await made.observer.observe_alone("a")
    assert made.client.calls == ["get statefulsets/a", "list pods name=a,rollout-group=ingester"]
    (zone,) = group.zones
    assert zone.sts.name == "a"
    assert [pod.name for pod in zone.pods] == ["a-0", "a-1", "a-2"]
    assert group.name == GROUP


async def test_a_set_alone_without_labels_in_its_selector() -> None:
    """SI-10: its pods are found, or a downscale would pass without a call to them."""
    made = bench([_selected("a", EXPRESSIONS)], _pods("a", "b"))
    (zone,) = (await made.observer.observe_alone("a")).zones
    assert [pod.name for pod in zone.pods] == ["a-0", "a-1", "a-2"]


async def test_a_set_alone_with_a_pod_that_cannot_be_read() -> None:
    """SI-13: it is known to be there."""
    broken = pod_json("a", 1)
    part(broken, "status")["phase"] = 5
    made = bench([set_json("a")], [])
    for one in [pod_json("a", 0), broken]:
        made.client.put("pods", one)
    (zone,) = (await made.observer.observe_alone("a")).zones
    assert [pod.name for pod in zone.pods] == ["a-0"]
    assert [pod.name for pod in zone.unreadable_pods] == ["a-1"]
    assert isinstance(zone.unreadable_pods[0], Unreadable)


async def test_a_set_alone_that_cannot_be_read() -> None:
    made = bench([set_json("a")], [])
    with pytest.raises(NotFound):
        await made.observer.observe_alone("b")
    broken = copy.deepcopy(set_json("a"))
    part(broken, "spec")["replicas"] = "x"
    made.client.put("statefulsets", broken)
    with pytest.raises(DecodeError):
        await made.observer.observe_alone("a")


async def test_a_pod_that_several_selectors_match_counts_once() -> None:
    """D-12: counted twice it would hide one that is missing."""
    sets = [_selected("a", {"matchLabels": {"name": "a"}}), _selected("b", EXPRESSIONS)]
    made = bench(sets, _pods("a", "b"))
    live = await made.observer.observe_live(made.observer.observe(GROUP))
    assert {zone.sts.name: [pod.name for pod in zone.pods] for zone in live.zones} == {
        "a": ["a-0", "a-1", "a-2"],
        "b": ["b-0", "b-1", "b-2"],
    }


async def test_si10_pods_of_a_set_that_only_the_cache_cannot_decode_are_read_too() -> None:
    """SI-10, FP-07: its event was spoiled on the way, and with it the selector."""
    made = fleet("one")
    spoiled = [one for one in made.sets.list_all() if one.name == "one-b"]
    lost = Unreadable(
        kind="StatefulSet", namespace="test", name="one-b", uid=spoiled[0].uid,
        resource_version="1", labels={"rollout-group": "one"}, error="spoiled",
    )  # fmt: skip
    made.sets.replace_all([lost if one in spoiled else one for one in made.sets.list_all()])
    assert show(await read(made, "one")) == {
        "one-a": ["one-a-0", "one-a-1"],
        "one-b": ["one-b-0", "one-b-1"],
    }
