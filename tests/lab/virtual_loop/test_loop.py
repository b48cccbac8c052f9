"""The loop of virtual time: free time, seeded order, and loud ends.

What fails on it, without a waiter, ends the run; else it is reported.
"""

import asyncio
import functools
import gc
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from rollout_lab.virtual_loop.loop import IS_GONE, Deadlock, Livelock, NotSimulated, VirtualTimeLoop

T = TypeVar("T")
HOUR = 3600.0


def run(main: Callable[[], Coroutine[Any, Any, T]], seed: int | None = None) -> T:
    """Run `main` on a loop of its own, shuffled where there is a seed."""
    rng = random.Random(seed) if seed is not None else None
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(rng)) as runner:
        return runner.run(main())


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop of its own, shuffled where it has a `seed`."""

    @functools.wraps(test)
    def begin(**words: Any) -> None:
        run(lambda: test(**words), words.get("seed"))

    return begin


def current_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


@pytest.mark.parametrize("seed", [None, 7])
@on_loop
async def test_time_jumps_to_the_next_timer(seed: int | None) -> None:
    times = [current_loop().time()]
    for span in (HOUR, 0.5, 0.0):
        await asyncio.sleep(span)
        times.append(current_loop().time())
        assert current_loop().elapsed == timedelta(seconds=times[-1])
    assert times == [0.0, HOUR, HOUR + 0.5, HOUR + 0.5]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@on_loop
async def test_no_time_passes_while_a_client_can_run(seed: int | None) -> None:
    current_loop().call_later(0.001, lambda: None)
    for _ in range(50):
        await asyncio.sleep(0)
    assert current_loop().time() == 0.0


@pytest.mark.parametrize("seed", range(20))
@on_loop
async def test_timers_run_in_the_order_of_their_times(seed: int) -> None:
    done: list[float] = []
    for when in random.Random(seed).sample(range(1, 30), 20):
        current_loop().call_at(when, done.append, when)
    await asyncio.sleep(100)
    assert len(done) == 20
    assert done == sorted(done)


def order_of(names: str, seed: int | None) -> str:
    async def main() -> str:
        order: list[str] = []
        for name in names:
            current_loop().call_soon(order.append, name)
        for name in names.upper():
            current_loop().call_later(1, order.append, name)
        await asyncio.sleep(2)
        return "".join(order)

    return run(main, seed)


def test_in_order_without_a_seed_and_shuffled_with_one() -> None:
    """Section 3.2: the ready queue is permuted; timers of one moment are as well."""
    assert order_of("abcd", None) == "abcdABCD"
    orders = {order_of("abc", seed) for seed in range(200)}

    assert {order[:3] for order in orders} == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert {order[3:] for order in orders} == {"ABC", "ACB", "BAC", "BCA", "CAB", "CBA"}


def test_a_later_one_may_overtake() -> None:
    async def main() -> str:
        order: list[str] = []
        loop = current_loop()
        loop.call_soon(lambda: loop.call_soon(order.append, "later"))
        loop.call_soon(order.append, "sooner")
        await asyncio.sleep(1)
        return order[0]

    assert {run(main, seed) for seed in range(50)} == {"sooner", "later"}


@pytest.mark.parametrize("seed", range(20))
@on_loop
async def test_callbacks_of_one_future_keep_their_order(seed: int) -> None:
    """In any order of all others: the parts of asyncio, such as locks and groups, rest on it."""
    order: list[int] = []
    future: asyncio.Future[None] = current_loop().create_future()
    for number in range(5):
        future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]  # bound
    future.set_result(None)
    await asyncio.sleep(0)
    for number in range(5, 8):
        future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]  # bound
    await asyncio.sleep(1)
    assert order == list(range(8))


@pytest.mark.parametrize("seed", [None, *range(20)])
@on_loop
async def test_a_ready_callback_that_is_cancelled_never_runs(seed: int | None) -> None:
    loop, ran = current_loop(), list[str]()
    for _ in range(20):
        timer = loop.call_later(0.1, ran.append, "timer")
        other = loop.create_future()
        loop.call_soon(ran.append, "soon").cancel()
        loop.call_soon(lambda _: ran.append("chained"), other).cancel()
        loop.call_at(loop.time() + 0.1, timer.cancel)
        loop.call_soon(lambda done: done.set_result(None), other)
        await other
        await asyncio.sleep(0.05)
        timer.cancel()
    assert ran == []


def walk(seed: int) -> list[str]:
    """Run what depends on order as much as it can; return in which one it ran."""

    async def main() -> list[str]:
        story: list[str] = []

        async def work(name: str) -> None:
            try:
                for step in range(4):
                    story.append(f"{name}{step}")
                    await asyncio.sleep(0.01 if step % 2 else 0)
                if name == "task 5":
                    raise ValueError(name)
                await asyncio.sleep(HOUR)
            finally:
                # A group cancels in the order of a set: that of the tasks' hashes.
                story.append(f"{name} ends")

        async def work_all() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(30):
                    tasks.create_task(work(f"task {number}"))

        with pytest.raises(ExceptionGroup):
            await work_all()
        return story

    return run(main, seed)


def test_the_same_seed_gives_the_same_order() -> None:
    """Section 3.2: same seed, same trace; whatever lies where in memory."""
    ballast: list[object] = []
    first = walk(11)
    for number in range(5):
        ballast.append([bytearray(1000 + number) for _ in range(100)])
        assert walk(11) == first
    assert walk(12) != first


def test_tasks_are_named_alike_in_each_run() -> None:
    async def main() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(asyncio.sleep(0)) for _ in range(3)]
            made.append(tasks.create_task(asyncio.sleep(0), name="mine"))
        return [task.get_name() for task in made]

    first = run(main, 1)

    assert run(main, 1) == first
    assert first[-1] == "mine"
    assert len(set(first)) == 4


@pytest.mark.parametrize("seed", [None, 3])
def test_a_deadlock_names_the_tasks_that_wait_for_ever(seed: int | None) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait(), name="informer")
            tasks.create_task(asyncio.Lock().acquire(), name="done")
            tasks.create_task(asyncio.sleep(5))

    with pytest.raises(Deadlock, match=r"everyone waits for ever: ") as caught:
        run(main, seed)

    assert "informer in Event.wait:" in f"{caught.value}"
    assert "in TaskGroup.__aexit__:" in f"{caught.value}"
    assert "done" not in f"{caught.value}"


def test_no_time_passes_any_more() -> None:
    """Two that call each other for ever must not hang a run of thousands."""

    async def main() -> None:
        loop = current_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        await asyncio.Event().wait()

    with pytest.raises(Livelock, match=r"200000 steps at 0 s: task-0 in Event\.wait:"):
        run(main)


@pytest.mark.parametrize("at", range(1, 12))
@on_loop
async def test_something_happens_at_a_step(at: int) -> None:
    """Section 3.2: a crash at any await; each step is one place for it."""
    rounds = 0
    loop = current_loop()
    task = asyncio.current_task()
    assert task is not None
    loop.call_at_step(loop.steps + at, task.cancel)
    try:
        for _ in range(20):
            await asyncio.sleep(0)
            rounds += 1
    except asyncio.CancelledError:
        task.uncancel()
    assert rounds == at - 1


@on_loop
async def test_several_things_at_steps_in_any_order_of_calls() -> None:
    seen: list[int] = []
    loop = current_loop()
    begin = loop.steps
    for step in (7, 3, 5, 3):
        loop.call_at_step(begin + step, lambda: seen.append(loop.steps - begin))
    for _ in range(10):
        await asyncio.sleep(0)
    assert seen == [3, 3, 5, 7]


@pytest.mark.parametrize(
    "name", ["add_reader", "create_server", "sock_connect", "getaddrinfo", "add_signal_handler"]
)
@on_loop
async def test_the_real_world_is_out_of_reach(name: str) -> None:
    with pytest.raises(NotSimulated, match=f"^{name}: there are no sockets"):
        getattr(current_loop(), name)(None, None)


@on_loop
async def test_what_asyncio_makes_of_it_is_as_well() -> None:
    with pytest.raises(NotSimulated):
        await asyncio.to_thread(sum, (1, 2))
    with pytest.raises(NotSimulated):
        await asyncio.open_connection("localhost", 1)
    with pytest.raises(NotSimulated):
        await asyncio.create_subprocess_exec("true")


@on_loop
async def test_other_threads_are_kept_out() -> None:
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(current_loop().call_soon_threadsafe, print).exception()
    assert isinstance(found, NotSimulated)
    assert f"{found}" == "call_soon_threadsafe from another thread: order would be by chance"


@pytest.mark.parametrize("seed", [None, 3])
def test_stop_runs_what_is_ready_and_keeps_the_rest(seed: int | None) -> None:
    loop = VirtualTimeLoop(random.Random(seed) if seed is not None else None)
    done: list[str] = []
    for name in ("a", "b"):
        loop.call_soon(done.append, name)
    loop.call_later(1, done.append, "c")
    loop.stop()
    loop.run_forever()
    assert sorted(done) == ["a", "b"]

    loop.call_later(2, loop.stop)
    loop.run_forever()
    assert done[2:] == ["c"]
    assert loop.time() == 2

    # It ends also what can always go on.
    def again() -> None:
        done.append("d")
        loop.call_soon(again)

    again()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert len(done) < 20
    loop.close()


def test_an_interrupt_ends_all_and_the_loop_can_go_on() -> None:
    loop = VirtualTimeLoop()

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop.call_soon(interrupt)
    loop.call_soon(loop.stop)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()

    loop.run_forever()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(interrupt)


@on_loop
async def test_cancelled_timers_do_not_pile_up() -> None:
    """A call with a limit of a minute leaves a timer behind that no task needs."""
    for _ in range(5000):
        async with asyncio.timeout(HOUR):
            await asyncio.sleep(0.001)
    assert len(current_loop()._timers) < 500


def test_a_cancelled_timer_does_not_move_time() -> None:
    loop = VirtualTimeLoop()
    loop.call_later(10, print).cancel()
    with pytest.raises(Deadlock, match="everyone waits for ever: no task"):
        loop.run_forever()
    assert loop.time() == 0
    loop.close()


@pytest.mark.parametrize("is_reported", [False, True], ids=["raised", "reported"])
def test_an_error_in_a_callback_ends_the_run(is_reported: bool) -> None:
    """A kubelet that has failed must not leave a world that stands still and seems at rest."""

    async def main() -> None:
        if is_reported:
            error = {"message": "gap", "exception": ValueError("no number")}
            current_loop().call_exception_handler(error)
        else:
            current_loop().call_later(1, int, "no number")
        await asyncio.sleep(10)

    with pytest.raises(ValueError, match="no number"):
        run(main)


@on_loop
async def test_an_error_in_a_callback_ends_nothing_where_a_client_takes_it() -> None:
    reported: list[object] = []
    loop = current_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    loop.call_soon(int, "no number")
    await asyncio.sleep(1)
    assert [type(error) for error in reported] == [ValueError]


@on_loop
async def test_an_error_that_a_task_keeps_ends_nothing() -> None:
    """The task that waits for it gets the error; the loop does not."""

    async def fail() -> None:
        raise ValueError("kept")

    async with asyncio.timeout(10):
        [error] = await asyncio.gather(fail(), return_exceptions=True)
    assert repr(error) == "ValueError('kept')"


@pytest.mark.parametrize("is_gone", [True, False])
def test_only_a_task_of_a_client_gone_is_destroyed_in_silence(is_gone: bool) -> None:
    """It waits for what nothing else holds, such as the answer to a call of a dead process."""
    reported: list[str] = []

    async def wait() -> None:
        await current_loop().create_future()

    async def begin() -> None:
        IS_GONE.set(lambda: is_gone)
        asyncio.create_task(wait(), name="left")  # noqa: RUF006  # to be lost

    async def main() -> None:
        loop = current_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["task"].get_name()))
        await asyncio.create_task(begin())
        asyncio.create_task(wait(), name="other")  # noqa: RUF006  # to be lost
        await asyncio.sleep(1)
        gc.collect()

    run(main)
    assert sorted(reported) == (["other"] if is_gone else ["left", "other"])
