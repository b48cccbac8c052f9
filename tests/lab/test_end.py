"""How a demo ends: exit codes, signals, and a reader that goes away."""

import asyncio
import os
import signal

import pytest
from rollout_lab.end import cancel_once, end_by_signal, is_only

from rollout_operator.model.names import ExitCode


@pytest.mark.parametrize(("result", "code"), [(True, 0), (False, 1)])
async def test_a_show_that_ends_by_itself_decides(result: bool, code: int) -> None:
    async def show() -> bool:
        return result

    assert await end_by_signal(show()) == code


async def test_an_error_of_the_show_is_reported() -> None:
    async def show() -> bool:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await end_by_signal(show())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_waits_for_the_clean_up(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned: list[bool] = []

    async def show() -> bool:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)
        return True

    assert await end_by_signal(show()) == ExitCode.INTERRUPTED
    assert cleaned == [True]
    assert capsys.readouterr().err == "stopped, nothing is left running\n"


def test_a_reader_that_is_gone_is_known_in_whatever_it_is_wrapped() -> None:
    gone = BrokenPipeError()

    assert is_only(ExceptionGroup("a", [gone, ExceptionGroup("b", [gone])]), BrokenPipeError)
    assert not is_only(ExceptionGroup("a", [gone, OSError()]), BrokenPipeError)


async def test_a_second_signal_does_not_cut_the_clean_up_short() -> None:
    cleaned: list[bool] = []

    async def show() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancel()
            await asyncio.sleep(0)
            cleaned.append(True)

    outcome = asyncio.gather(show())
    cancel = cancel_once(outcome)
    asyncio.get_running_loop().call_soon(cancel)
    with pytest.raises(asyncio.CancelledError):
        await outcome

    assert cleaned == [True]
