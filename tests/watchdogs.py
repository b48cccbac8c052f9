"""Pytest plugin: a test fails that leaves tasks behind or stops the event loop for long.

Both hold for every asynchronous test; tests against the real control plane may stop their loop,
since they start processes. `conftest.py` loads this, and so do the tests of the guards themselves.
"""

import asyncio
import inspect
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

# The budget of the operator is 250 ms. Here it is about calls that block, such as a read of a
# socket or a join of a thread, not about speed: a busy machine must not fail a test.
LONGEST_STOP: Final = 2.0
BEAT: Final = 0.25


class LoopWatch:
    """Measures from a thread how long the loop goes without running what is given to it.

    It works by `call_soon_threadsafe` and not with timers of the loop, so that loops with a time
    of their own see nothing of it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="loop-watch", daemon=True)
        self._stopping = threading.Event()
        self._loop_thread = threading.get_native_id()
        self.longest = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; a stop of the loop that goes on at this moment is counted as well."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(BEAT):
            begin = time.monotonic() - self._starved()
            answered = threading.Event()
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(answered.set)
                while not answered.wait(BEAT) and not self._stopping.is_set():
                    self._record(begin)
            self._record(begin)

    def _record(self, begin: float) -> None:
        self.longest = max(self.longest, time.monotonic() - self._starved() - begin)

    def _starved(self) -> float:
        """Return the seconds for which the loop wanted a core of the machine and had none."""
        try:
            fields = Path(f"/proc/self/task/{self._loop_thread}/schedstat").read_text().split()
        except OSError:
            return 0.0
        return int(fields[1]) / 1e9


@pytest_asyncio.fixture
async def _no_task_left() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        pytest.fail("left over: " + ", ".join(sorted(map(repr, left))), pytrace=False)


@pytest_asyncio.fixture
async def _no_stopped_loop() -> AsyncIterator[None]:
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    yield
    watch.stop()
    if watch.longest > LONGEST_STOP:
        pytest.fail(f"the loop stood still for {watch.longest:.1f} s", pytrace=False)


@pytest.fixture(autouse=True)
def _guards(request: pytest.FixtureRequest) -> None:
    """Set up before all other fixtures, hence judged after they have cleaned up."""
    function = getattr(request, "function", None)
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    if not inspect.iscoroutinefunction(inner):
        return
    request.getfixturevalue(_no_task_left.__name__)
    if request.node.get_closest_marker("controlplane") is None:
        request.getfixturevalue(_no_stopped_loop.__name__)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run the tests in the random order of SEED"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests on the control plane last: what is quickly judged runs first."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
    items[:] = _quick_first(items)


def _quick_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    return sorted(items, key=lambda item: item.get_closest_marker("controlplane") is not None)
