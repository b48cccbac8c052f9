"""What fails on the loop of virtual time, and is nobody's, ends the run."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest

from rollout_operator.lab.virtual_loop.loop import VirtualTimeLoop

T = TypeVar("T")


def run(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run `main` on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


def test_an_error_in_a_callback_ends_the_run() -> None:
    """A kubelet that has failed must not leave a world that stands still and looks at rest."""

    async def main() -> None:
        asyncio.get_running_loop().call_later(1, int, "no number")
        await asyncio.sleep(10)

    with pytest.raises(ValueError, match="no number"):
        run(main)


def test_an_error_that_somebody_was_told_of_ends_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "gap", "exception": KeyError("gap")}
        )
        await asyncio.sleep(10)

    with pytest.raises(KeyError, match="gap"):
        run(main)


def test_an_error_in_a_callback_ends_nothing_where_somebody_takes_it() -> None:
    async def main() -> list[object]:
        told: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        loop.call_soon(int, "no number")
        await asyncio.sleep(1)
        return told

    assert [type(error) for error in run(main)] == [ValueError]


def test_an_error_that_a_task_keeps_ends_nothing() -> None:
    """Whoever waits for the task is told; the loop is not."""

    async def fail() -> None:
        raise ValueError("kept")

    async def main() -> str:
        async with asyncio.timeout(10):
            results = await asyncio.gather(fail(), return_exceptions=True)
        return str(results)

    assert run(main) == "[ValueError('kept')]"
