"""What fails on the loop of virtual time, without a waiter, ends the run; else it is reported."""

import asyncio
import gc

import pytest
from rollout_lab.virtual_loop.loop import IS_GONE

from tests.lab.virtual_loop.test_loop import current_loop, run


@pytest.mark.parametrize("is_reported", [False, True], ids=["raised", "reported"])
def test_an_error_in_a_callback_ends_the_run(is_reported: bool) -> None:
    """A kubelet that has failed must not leave a world that stands still and seems at rest."""

    async def main() -> None:
        loop = current_loop()
        if is_reported:
            context = {"message": "gap", "exception": ValueError("no number")}
            loop.call_exception_handler(context)
        else:
            loop.call_later(1, int, "no number")
        await asyncio.sleep(10)

    with pytest.raises(ValueError, match="no number"):
        run(main)


def test_an_error_in_a_callback_ends_nothing_where_a_client_takes_it() -> None:
    async def main() -> list[object]:
        reported: list[object] = []
        loop = current_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        loop.call_soon(int, "no number")
        await asyncio.sleep(1)
        return reported

    assert [type(error) for error in run(main)] == [ValueError]


def test_an_error_that_a_task_keeps_ends_nothing() -> None:
    """The task that waits for it gets the error; the loop does not."""

    async def fail() -> None:
        raise ValueError("kept")

    async def main() -> str:
        async with asyncio.timeout(10):
            results = await asyncio.gather(fail(), return_exceptions=True)
        return str(results)

    assert run(main) == "[ValueError('kept')]"


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
