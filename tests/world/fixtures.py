"""Pytest fixtures: one control plane for the suite, started when the first test requests it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import pytest_asyncio
from _pytest.capture import CaptureManager

# Every test reads this file, and few need what it starts: that is read by the first of those.
if TYPE_CHECKING:
    from tests.world.plane import ControlPlane
    from tests.world.world import World


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest) -> Iterator["ControlPlane"]:
    """Yield the running control plane; tests that request it carry the marker `controlplane`."""
    from tests.world.assets import locate_assets
    from tests.world.forkserver import read_modules
    from tests.world.plane import ControlPlane

    capture = cast(
        "CaptureManager | None", request.config.pluginmanager.getplugin("capturemanager")
    )

    def announce(line: str) -> None:
        if capture is None:
            sys.stderr.write(line)
            return
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"\n{line}")

    started = ControlPlane(locate_assets(announce))
    # A loop of our own, not asyncio.run(): that would take the loop of later tests away.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(started.start())
        read_modules()  # here, where no test waits for it
        yield started
    finally:
        loop.run_until_complete(started.stop())
        loop.close()


@pytest_asyncio.fixture
async def world(plane: "ControlPlane", tmp_path: Path) -> AsyncIterator["World"]:
    """Yield a namespace with kubelet, judge and proxy, and clean up after.

    SEC-17: at the end of every test the audit log must hold no forbidden call of an operator.
    """
    from tests.world.world import World

    ready: asyncio.Future[World] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def live() -> None:
        # Enter and leave in one task: the world's task groups belong to the task that opened them.
        async with World(plane, tmp_path) as opened:
            ready.set_result(opened)
            await over.wait()
            await opened.assert_permitted()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(live(), name="world")
        await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            yield ready.result()
        over.set()
