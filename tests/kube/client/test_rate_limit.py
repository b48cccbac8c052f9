"""One token bucket per API group for the whole process (RATE-01 to RATE-04, T-12, D-65)."""

import asyncio
import gc
from datetime import timedelta

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, discovery_call, object_call
from rollout_operator.kube.rate_limit import (
    DISCOVERY,
    Priority,
    RateLimiter,
    choose_priority,
    name_bucket,
)
from rollout_operator.model.names import Throttled
from tests.virtual_time import elapsed, in_virtual_time

APPS = "apps"


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


async def settle() -> None:
    """Let every task that can run do so; no time passes."""
    for _ in range(10):
        await asyncio.sleep(0)


class Line:
    """Callers of one bucket and the times at which each got its token."""

    def __init__(self, limits: RateLimiter) -> None:
        self.served: list[tuple[str, float]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._limits = limits

    async def join(self, *names: str, priority: Priority = Priority.READ) -> None:
        for name in names:
            self.tasks[name] = asyncio.ensure_future(self._take(name, priority))
            await settle()

    async def leave(self, name: str) -> None:
        self.tasks[name].cancel()
        await settle()

    async def end(self) -> list[str]:
        """Wait for all; return their names in the order in which they were served."""
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return [name for name, _ in self.served]

    async def _take(self, name: str, priority: Priority) -> None:
        await self._limits.take(APPS, priority)
        self.served.append((name, round(elapsed().total_seconds(), 4)))


@in_virtual_time
async def test_rate_02_a_burst_passes_then_tokens_flow_at_the_rate_in_order() -> None:
    line = Line(RateLimiter(5, 2))
    await line.join("a", "b", "c", "d", "e")
    assert line.served == [("a", 0), ("b", 0)]
    await line.end()
    assert line.served[2:] == [("c", 0.2), ("d", 0.4), ("e", 0.6)]


@in_virtual_time
async def test_the_line_is_reported_while_there_is_one() -> None:
    """D-40, RATE-02: how many requests wait for tokens of which group, and how long the first."""
    limits = RateLimiter(0.5, 1)
    line = Line(limits)
    assert limits.describe_line() is None
    await line.join("a", "b", "c")
    await asyncio.sleep(1)
    assert limits.describe_line() == (
        "requests that wait for -kubernetes.client-qps=0.5: 2 of apps; the longest for 1 s"
    )
    await line.end()
    assert limits.describe_line() is None


@in_virtual_time
async def test_rate_02_an_idle_bucket_holds_no_more_than_its_burst() -> None:
    line = Line(RateLimiter(5, 2))
    await line.join("first")
    await asyncio.sleep(3600)
    await line.join("a", "b", "c")
    assert [name for name, _ in line.served] == ["first", "a", "b"]
    await line.end()


@in_virtual_time
async def test_t_12_exhausted_bucket_fails_at_once_and_leaves_other_groups_alone() -> None:
    limits = RateLimiter(1, 1)
    await limits.take(APPS)
    with pytest.raises(Throttled) as caught:
        await limits.take(APPS, within=seconds(0.05))
    assert elapsed() == timedelta(0), "it waited"
    await limits.take("core", within=seconds(0.05))
    assert str(caught.value) == (
        'client-side rate limiter for Kubernetes API group "apps": the next token is due in'
        " 1.000s, the deadline in 0.050s"
    )


@in_virtual_time
async def test_rate_03_a_refused_caller_takes_no_token() -> None:
    limits = RateLimiter(1, 1)
    await limits.take(APPS)
    for _ in range(20):
        with pytest.raises(Throttled):
            await limits.take(APPS, within=seconds(0.5))
    await asyncio.sleep(1)
    await limits.take(APPS, within=timedelta(0))


@in_virtual_time
async def test_rate_03_a_deadline_counts_those_that_wait_before() -> None:
    limits = RateLimiter(1, 1)
    line = Line(limits)
    await line.join("a", "b", "c")
    with pytest.raises(Throttled, match=r"due in 3\.000s, the deadline in 2\.500s"):
        await limits.take(APPS, within=seconds(2.5))
    await limits.take(APPS, within=seconds(3))
    assert await line.end() == ["a", "b", "c"]


@in_virtual_time
async def test_d_65_a_deadline_counts_only_those_as_urgent() -> None:
    limits = RateLimiter(1, 1)
    line = Line(limits)
    await line.join("first", "list", "other list", priority=Priority.LIST)
    await line.join("delete", priority=Priority.DELETE)
    with pytest.raises(Throttled, match=r"due in 2\.000s, the deadline in 1\.500s"):
        await limits.take(APPS, Priority.DELETE, seconds(1.5))
    await limits.take(APPS, Priority.DELETE, seconds(2))
    assert elapsed() == seconds(2)
    assert await line.end() == ["first", "delete", "list", "other list"]


@pytest.mark.parametrize("leaver", ["b", "c"], ids=["first in line", "second in line"])
@in_virtual_time
async def test_rate_03_a_call_given_up_leaves_its_token_to_the_next(leaver: str) -> None:
    line = Line(RateLimiter(1, 1))
    await line.join("a", "b", "c", "d")
    await asyncio.sleep(0.5)
    await line.leave(leaver)
    await line.end()
    stayed = {"b", "c"} - {leaver}
    assert line.served == [("a", 0), (stayed.pop(), 1), ("d", 2)]
    assert line.tasks[leaver].cancelled()


@in_virtual_time
async def test_rate_03_a_caller_cancelled_at_its_turn_leaves_its_token() -> None:
    line = Line(RateLimiter(1, 1))
    await line.join("a", "b", "c")
    # Runs before "b" does, which by then has been given the token.
    asyncio.get_running_loop().call_later(1, line.tasks["b"].cancel)
    await line.end()
    assert line.served == [("a", 0), ("c", 1)]


@pytest.mark.parametrize(("qps", "burst"), [(0, 10), (5, 0), (-1, -1)])
async def test_t_12_limiter_off_lets_everything_pass(qps: float, burst: int) -> None:
    limits = RateLimiter(qps, burst)
    for _ in range(100):
        await limits.take(APPS, within=timedelta(0))


@in_virtual_time
async def test_t_12_clients_that_give_up_do_not_stall_the_bucket() -> None:
    """30 clients, 200/s, burst 1, each gives up after 100 ms: at least half of the tokens flow."""
    limits = RateLimiter(200, 1)
    taken = 0

    async def insist() -> None:
        nonlocal taken
        while elapsed() < seconds(0.5):
            try:
                async with asyncio.timeout(0.1):
                    await limits.take(APPS, within=seconds(0.09))
            except Throttled:
                await asyncio.sleep(0.001)
            except TimeoutError:
                pass
            else:
                taken += 1

    await asyncio.gather(*(insist() for _ in range(30)))
    assert taken >= 50


@in_virtual_time
async def test_d_65_the_more_urgent_goes_first() -> None:
    line = Line(RateLimiter(1, 1))
    await line.join("first")
    await line.join("report", priority=Priority.REPORT)
    await line.join("record", priority=Priority.RECORD)
    await line.join("list", priority=Priority.LIST)
    await line.join("read", "later read", priority=Priority.READ)
    await line.join("answer", priority=Priority.ANSWER)
    await line.join("delete", priority=Priority.DELETE)
    assert await line.end() == [
        *("first", "delete", "answer", "read", "later read", "list", "record", "report")
    ]


@in_virtual_time
async def test_d_65_no_flood_of_urgent_calls_starves_a_list() -> None:
    """FP-12: within the minute after which a page of a list gives up, whatever comes meanwhile."""
    limits = RateLimiter(5, 1)

    async def flood() -> None:
        for _ in range(10):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(50):
                    tasks.create_task(limits.take(APPS, Priority.DELETE))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(flood())
        await settle()
        await limits.take(APPS, Priority.LIST, seconds(60))
        assert seconds(26) <= elapsed() <= seconds(55)


@in_virtual_time
async def test_d_65_a_list_waits_little_longer_than_other_reads_where_writes_never_cease() -> None:
    """LI-01: a cache stands still while its list waits, and with it every group."""
    limits = RateLimiter(5, 1)

    async def write_on() -> None:
        while elapsed() < seconds(90):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(20):
                    tasks.create_task(limits.take(APPS, Priority.ANSWER))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_on())
        await settle()
        await limits.take(APPS, Priority.LIST, seconds(60))
        waited = elapsed()
        await limits.take(APPS, Priority.RECORD, seconds(60))
        recorded = elapsed() - waited
    assert waited <= seconds(12)
    assert recorded >= seconds(15), "what nothing waits for comes after writes"


@in_virtual_time
async def test_rate_03_a_caller_that_is_overtaken_until_its_deadline_is_refused_as_such() -> None:
    """SI-09: nothing is sent later than its caller can use it."""
    limits = RateLimiter(1, 1)
    line = Line(limits)
    await line.join("first")
    read = asyncio.ensure_future(limits.take(APPS, Priority.READ, seconds(2)))
    await settle()
    await line.join("a", "b", "c", "d", priority=Priority.DELETE)
    with pytest.raises(Throttled, match=r"more urgent requests came first, for 2\.000s"):
        await read
    assert round(elapsed().total_seconds(), 3) == 2
    await line.end()
    assert line.served[-1] == ("d", 4), "it left no gap"


def test_d_65_deletes_go_before_other_writes_before_reads_of_controllers() -> None:
    get = object_call("get", PODS, "prod", "a-0")
    assert choose_priority(get, Priority.LIST) is Priority.LIST
    assert choose_priority(get, Priority.ANSWER) is Priority.ANSWER
    patch = object_call("patch", PODS, "prod", "a-0")
    assert choose_priority(patch, Priority.LIST) is Priority.ANSWER
    assert choose_priority(patch, Priority.REPORT) is Priority.REPORT
    delete = object_call("delete", PODS, "prod", "a-0")
    assert choose_priority(delete, Priority.LIST) is Priority.DELETE


@in_virtual_time
async def test_d_65_what_releases_a_grant_goes_after_live_reads() -> None:
    """D-65: the read and the patch; a list of a cache that came with them goes later."""
    limits, served = RateLimiter(1, 1), list[str]()

    async def call(verb: str, reads: Priority) -> None:
        await limits.admit(object_call(verb, PODS, "prod", "a-0"), reads, timedelta(minutes=1))
        served.append(f"{verb} {reads.name}")

    async with asyncio.TaskGroup() as tasks:
        for verb, reads in (
            ("get", Priority.READ),  # takes the only token
            ("get", Priority.LIST),
            ("patch", Priority.RELEASE),
            ("get", Priority.RELEASE),
            ("get", Priority.READ),
            ("patch", Priority.LIST),
        ):
            tasks.create_task(call(verb, reads))
    assert served[1:] == [
        *("patch LIST", "get READ", "patch RELEASE", "get RELEASE", "get LIST"),
    ]


@in_virtual_time
async def test_sec_groups_that_tenants_name_share_one_bucket() -> None:
    """A tenant may write annotations with names without end: each had a burst of its own."""
    limits = RateLimiter(1, 2)
    await limits.admit(discovery_call("one.example.com"), Priority.READ, timedelta(0))
    await limits.admit(discovery_call("two.example.com", "v1"), Priority.READ, timedelta(0))
    with pytest.raises(Throttled, match=f'"{DISCOVERY}"') as caught:
        await limits.admit(discovery_call("three.example.com"), Priority.READ, timedelta(0))
    assert caught.value.call == "discover apis/three.example.com"
    assert name_bucket(object_call("get", STATEFULSETS, "prod", "a", "scale")) == "apps"


@in_virtual_time
async def test_full_buckets_do_not_pile_up() -> None:
    """A bucket that is full is as good as a new one; one that is not is kept."""
    limits = RateLimiter(1, 2)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(300):
        await limits.take(f"g{number}.example.com", within=timedelta(0))
        await asyncio.sleep(10)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    await limits.take("kept", within=timedelta(0))
    await limits.take("kept", within=timedelta(0))
    await limits.take("other", within=timedelta(0))
    with pytest.raises(Throttled):
        await limits.take("kept", within=timedelta(0))
