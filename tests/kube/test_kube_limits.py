"""Token buckets per API group (RATE-01 to RATE-04, T-12)."""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.kube.limits import Limits
from rollout_operator.model.errors import Throttled
from tests.fakes_clock import FakeClock


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


class Line:
    """Callers of one bucket and the times at which each got its token."""

    def __init__(self, limits: Limits, clock: FakeClock) -> None:
        self.served: list[tuple[str, float]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._limits = limits
        self._clock = clock

    async def join(self, *names: str, group: str = "apps") -> None:
        for name in names:
            self.tasks[name] = asyncio.ensure_future(self._take(name, group))
            await self._clock.settle()

    async def leave(self, name: str) -> None:
        self.tasks[name].cancel()
        await self._clock.settle()

    async def _take(self, name: str, group: str) -> None:
        await self._limits.take(group)
        self.served.append((name, round(self._clock.elapsed().total_seconds(), 6)))


async def test_rate_02_a_burst_passes_then_tokens_flow_at_the_rate_in_order() -> None:
    clock = FakeClock()
    line = Line(Limits(5, 2, clock), clock)
    await line.join("a", "b", "c", "d", "e")
    assert line.served == [("a", 0), ("b", 0)]
    await clock.advance(seconds(1))
    assert line.served[2:] == [("c", 0.2), ("d", 0.4), ("e", 0.6)]


async def test_rate_02_an_idle_bucket_holds_no_more_than_its_burst() -> None:
    clock = FakeClock()
    line = Line(Limits(5, 2, clock), clock)
    await line.join("first")
    await clock.advance(timedelta(hours=1))
    await line.join("a", "b", "c")
    assert [name for name, _ in line.served] == ["first", "a", "b"]
    await clock.advance(seconds(1))


async def test_t_12_exhausted_bucket_fails_at_once_and_leaves_other_groups_alone() -> None:
    clock = FakeClock()
    limits = Limits(1, 1, clock)
    await limits.take("apps")
    with pytest.raises(Throttled) as caught:
        await limits.take("apps", timedelta(milliseconds=50))
    assert clock.elapsed() == timedelta(0), "it waited"
    await limits.take("core", timedelta(milliseconds=50))
    assert str(caught.value) == (
        'client-side rate limiter for Kubernetes API group "apps": the next token is due in'
        " 1.000s, the deadline in 0.050s"
    )


async def test_rate_03_a_refused_caller_takes_no_token() -> None:
    clock = FakeClock()
    limits = Limits(1, 1, clock)
    await limits.take("apps")
    for _ in range(20):
        with pytest.raises(Throttled):
            await limits.take("apps", seconds(0.5))
    await clock.advance(seconds(1))
    await limits.take("apps", timedelta(0))


async def test_rate_03_a_deadline_counts_those_who_wait_before() -> None:
    clock = FakeClock()
    limits = Limits(1, 1, clock)
    line = Line(limits, clock)
    await line.join("a", "b", "c")
    with pytest.raises(Throttled, match=r"due in 3\.000s, the deadline in 2\.500s"):
        await limits.take("apps", seconds(2.5))
    last = asyncio.ensure_future(limits.take("apps", seconds(3)))
    await clock.advance(seconds(3))
    await last
    assert [name for name, _ in line.served] == ["a", "b", "c"]


@pytest.mark.parametrize("leaver", ["b", "c"], ids=["first in line", "second in line"])
async def test_rate_03_who_gives_up_leaves_its_token_to_the_next(leaver: str) -> None:
    clock = FakeClock()
    line = Line(Limits(1, 1, clock), clock)
    await line.join("a", "b", "c", "d")
    await clock.advance(seconds(0.5))
    await line.leave(leaver)
    await clock.advance(seconds(5))
    stayed = {"b", "c"} - {leaver}
    assert line.served == [("a", 0), (stayed.pop(), 1), ("d", 2)]
    assert line.tasks[leaver].cancelled()


async def test_rate_03_a_caller_cancelled_at_its_turn_leaves_its_token() -> None:
    clock = FakeClock()
    line = Line(Limits(1, 1, clock), clock)
    await line.join("a", "b", "c")
    line.tasks["b"].cancel()  # it already sleeps for its token; "c" must not sleep after it
    await clock.advance(seconds(1))
    assert line.served == [("a", 0), ("c", 1)]


@pytest.mark.parametrize(("qps", "burst"), [(0, 10), (5, 0), (-1, -1)])
async def test_t_12_limiter_off_lets_everything_pass(qps: float, burst: int) -> None:
    limits = Limits(qps, burst, FakeClock())
    for _ in range(100):
        await limits.take("apps", timedelta(0))


async def test_t_12_clients_that_give_up_do_not_stall_the_bucket() -> None:
    """30 clients, 200/s, burst 1, each gives up after 100 ms: at least half of the tokens flow."""
    clock = FakeClock()
    limits = Limits(200, 1, clock)
    taken = 0

    async def insist() -> None:
        nonlocal taken
        while clock.elapsed() < seconds(0.5):
            waiting = asyncio.ensure_future(limits.take("apps", timedelta(milliseconds=90)))
            giving_up = asyncio.ensure_future(clock.sleep(timedelta(milliseconds=100)))
            await asyncio.wait({waiting, giving_up}, return_when=asyncio.FIRST_COMPLETED)
            taken += waiting.done() and waiting.exception() is None
            if waiting.done() and waiting.exception() is not None:
                await clock.sleep(timedelta(milliseconds=1))
            for task in (waiting, giving_up):
                task.cancel()
            await asyncio.gather(waiting, giving_up, return_exceptions=True)

    clients = [asyncio.ensure_future(insist()) for _ in range(30)]
    await clock.advance(seconds(0.7))
    await asyncio.gather(*clients)
    assert taken >= 50


async def test_rate_05_limits_of_two_components_are_independent() -> None:
    clock = FakeClock()
    one, other = Limits(1, 1, clock), Limits(1, 1, clock)
    await one.take("apps", timedelta(0))
    await other.take("apps", timedelta(0))
