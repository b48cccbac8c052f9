"""Which changes wake which group, and workers: one per key, many keys, a bug in one stays there
(W-05, W-44, FP-28, D-18, LI-09).
"""

import asyncio
from collections import defaultdict
from datetime import timedelta

import pytest

from rollout_operator.aio.queue import Backoff, WorkQueue
from rollout_operator.controllers.worker import Result, Waker, Workers
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet
from tests.builders import pod, sts

BACKOFF = Backoff(first=timedelta(milliseconds=1), most=timedelta(milliseconds=4))
INGESTER, NONE = sts("a"), sts("a", labels={})
COMPACTOR = sts("a", labels={GROUP_LABEL: "compactor"})
LONG = sts("a", labels={GROUP_LABEL_LONG: "ingester"})
OWNED, RELEASED = pod("a", 0), pod("a", 0, owner_uid=None)


def make_waker() -> tuple[Waker, list[GroupName]]:
    """Return what maps changes to groups, where `INGESTER` is cached, and what it wakes."""
    keys: list[GroupName] = []
    sets = StatefulSetStore()
    sets.replace_all([INGESTER])
    return Waker(sets, keys.append), keys


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        pytest.param(None, INGESTER, ["ingester"], id="a set comes"),
        pytest.param(INGESTER, None, ["ingester"], id="W-05: a set goes"),
        pytest.param(INGESTER, INGESTER, ["ingester"], id="a set changes"),
        pytest.param(INGESTER, COMPACTOR, ["compactor", "ingester"], id="FP-28: label moves"),
        pytest.param(INGESTER, NONE, ["ingester"], id="FP-28: label is removed"),
        pytest.param(None, LONG, ["ingester"], id="SEED-011: the long spelling counts"),
        pytest.param(None, NONE, [], id="SEED-054: a set of no group wakes nothing"),
        pytest.param(None, sts("a", labels={GROUP_LABEL: ""}), [""], id="an empty value is one"),
    ],
)
def test_sets_wake_their_groups(
    old: StatefulSet | None, new: StatefulSet | None, groups: list[str]
) -> None:
    waker, keys = make_waker()
    waker.on_set(old, new)
    assert sorted(keys) == groups


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        pytest.param(None, OWNED, ["ingester"], id="W-05: a pod comes"),
        pytest.param(OWNED, None, ["ingester"], id="W-05: a pod goes"),
        pytest.param(OWNED, OWNED, ["ingester"], id="a pod changes: one wake-up"),
        pytest.param(OWNED, RELEASED, ["ingester"], id="FP-32: a pod is released"),
        pytest.param(None, pod("a", 0, owner_uid=Uid("x")), [], id="W-44: another owner"),
        pytest.param(None, RELEASED, [], id="W-44: a pod without an owner"),
    ],
)
def test_pods_wake_the_group_of_their_owner(
    old: Pod | None, new: Pod | None, groups: list[str]
) -> None:
    waker, keys = make_waker()
    waker.on_pod(old, new)
    assert keys == groups


class Bench:
    """Workers whose reconciles are written down, and can be held or made to fail per key."""

    def __init__(self, count: int = 1) -> None:
        self.queue: WorkQueue[str] = WorkQueue()
        self.workers = Workers(
            self.queue, self.reconcile, count=count, backoff=BACKOFF, rng=lambda: 1.0
        )
        self.reconciled: list[str] = []
        self.seen: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.busy: set[str] = set()
        self.held: dict[str, asyncio.Event] = {}
        self.bugs: dict[str, list[BaseException]] = {}
        self.results: dict[str, Result] = {}
        self.until: dict[str, int] = {}

    async def reconcile(self, key: str) -> Result:
        assert key not in self.busy, "never two workers on one key"
        self.busy.add(key)
        self.reconciled.append(key)
        self.seen[key].set()
        try:
            if key in self.held:
                await self.held[key].wait()
            if self.bugs.get(key):
                raise self.bugs[key].pop()
            return self.results.get(key, Result())
        finally:
            self.busy.discard(key)
            if self.reconciled.count(key) >= self.until.get(key, 10**9):
                self.queue.close()

    async def run(self, *keys: str) -> list[str]:
        """Work on these keys until the queue is closed; return what was reconciled."""
        for key in keys:
            self.queue.add(key)
        async with asyncio.timeout(10):
            await self.workers.run()
        return self.reconciled


async def test_a_key_added_during_its_reconcile_is_reconciled_again() -> None:
    """LI-12."""
    made = Bench(count=4)
    made.held["a"] = asyncio.Event()
    made.until["a"] = 2
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run("a"))
        await made.seen["a"].wait()
        made.queue.add("a")
        made.held["a"].set()
    assert made.reconciled == ["a", "a"]


async def test_a_slow_key_does_not_delay_another() -> None:
    """W-06, LI-09."""
    made = Bench(count=2)
    made.held["slow"] = asyncio.Event()
    made.until["quick"] = 1
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run("slow", "quick"))
        await made.seen["quick"].wait()
        made.held["slow"].set()
    assert made.reconciled == ["slow", "quick"]


async def test_there_are_as_many_workers_as_have_something_to_do() -> None:
    """And one for the next key, up to the bound: hundreds of idle ones would cost memory."""
    made, keys = Bench(count=3), ["a", "b", "c", "d"]
    made.held = {key: asyncio.Event() for key in keys}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run())
        counts = [await _count_workers()]
        for key in keys:
            made.queue.add(key)
            counts.append(await _count_workers())
        assert counts == [1, 2, 3, 3, 3]
        assert made.reconciled == keys[:3]
        for key in keys:
            made.held[key].set()
        assert await _count_workers() == 1
        assert made.reconciled == keys
        made.queue.close()


async def test_no_more_keys_are_out_than_workers_where_some_never_wait() -> None:
    made = Bench(count=2)
    made.held = {key: asyncio.Event() for key in "bcd"}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run("a", "b", "c", "d"))
        await _count_workers()
        assert made.busy == {"b", "c"}
        for event in made.held.values():
            event.set()
        await made.seen["d"].wait()
        made.queue.close()


async def _count_workers() -> int:
    """Return how many workers there are once nothing is left to be done at once."""
    for _ in range(10):
        await asyncio.sleep(0)
    return sum(task.get_name() == "worker" for task in asyncio.all_tasks())


async def test_a_bug_backs_off_and_does_not_end_the_worker(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is logged with its traceback."""
    made = Bench()
    made.bugs["bad"] = [RuntimeError("bug")] * 3
    made.until["bad"] = 4
    assert await made.run("bad", "good") == ["bad", "good", "bad", "bad", "bad"]
    line = next(line for line in capfd.readouterr().err.splitlines() if "by a bug" in line)
    assert "in reconcile" in line


async def test_a_cancellation_from_a_library_does_not_end_the_worker() -> None:
    """LI-14: one that leaks out of a library would end workers one by one, silently."""
    made = Bench()
    made.bugs["a"] = [asyncio.CancelledError(), asyncio.CancelledError()]
    made.until["a"] = 3
    assert await made.run("a") == ["a", "a", "a"]


async def test_a_result_requests_another_reconcile() -> None:
    made = Bench()
    made.results["a"] = Result(again=timedelta(milliseconds=1))
    made.until["a"] = 3
    assert await made.run("a") == ["a", "a", "a"]


async def test_closing_the_queue_ends_the_workers_after_their_key() -> None:
    """PROC-05: the current key is finished, nothing new is begun."""
    made = Bench()
    made.held["a"] = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run("a", "b"))
        await made.seen["a"].wait()
        assert made.workers.busy == 1
        made.queue.close()
        made.held["a"].set()
    assert made.reconciled == ["a"]
    assert made.workers.busy == 0
