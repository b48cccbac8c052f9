"""Pytest plugin: a test fails that leaves tasks behind or stops the event loop for long.

Both hold for every asynchronous test; tests against the real control plane may stop their loop,
since they start processes. `conftest.py` loads this, and so do the tests of the guards themselves.
"""

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final

import pytest
import pytest_asyncio

from tests.steady_loop import SteadyLoop

# The budget of the operator is 250 ms. Here it is about calls that block, such as a read of a
# socket or a join of a thread, not about speed: a busy machine must not fail a test.
LONGEST_STOP: Final = 2.0


@pytest_asyncio.fixture
async def _guard_loop() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        pytest.fail("left over: " + ", ".join(sorted(map(repr, left))), pytrace=False)
    loop = asyncio.get_running_loop()
    if isinstance(loop, SteadyLoop) and loop.longest_stop > LONGEST_STOP:
        pytest.fail(f"the loop stood still for {loop.longest_stop:.1f} s", pytrace=False)


@pytest.fixture(autouse=True)
def _guards(request: pytest.FixtureRequest) -> None:
    """Set up before all other fixtures, hence judged after they have cleaned up."""
    function = getattr(request, "function", None)
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    if inspect.iscoroutinefunction(inner):
        request.getfixturevalue(_guard_loop.__name__)


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
