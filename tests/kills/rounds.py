"""Many rounds on a control plane of their own, some of them side by side: most of it is waiting."""

import asyncio
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Final

import msgspec

from tests.kills.campaign import Figures, Round, play
from tests.world.assets import locate_assets
from tests.world.plane import ControlPlane
from tests.world.world import World

SIDE_BY_SIDE: Final = 2
KILLS: Final = 10
STOPS: Final = 2


class Played(msgspec.Struct):
    """What many rounds came to."""

    figures: Figures = msgspec.field(default_factory=Figures)
    failed: list[str] = []


def list_rounds(kills: int, seed: int = 1) -> Sequence[Round]:
    """Return rounds with so many kills together, of two and of three operators in turn."""
    count = -(-kills // KILLS)
    return [
        Round(seed=seed + number, replicas=2 + number % 2, kills=KILLS, stops=STOPS)
        for number in range(count)
    ]


def run_rounds(rounds: Sequence[Round]) -> Played:
    """Play all of them. Raises NoControlPlaneError."""
    return asyncio.run(_play_all(rounds))


async def _play_all(rounds: Sequence[Round]) -> Played:
    plane = ControlPlane(locate_assets(sys.stderr.write))
    played, waiting = Played(), list(reversed(rounds))
    try:
        await plane.start()
        async with asyncio.TaskGroup() as tasks:
            for number in range(SIDE_BY_SIDE):
                tasks.create_task(_play_on(plane, waiting, played), name=f"lane-{number}")
    finally:
        await plane.stop()
    return played


async def _play_on(plane: ControlPlane, waiting: list[Round], played: Played) -> None:
    while waiting:
        plan = waiting.pop()
        folder = plane.folder / f"round-{plan.seed}"
        folder.mkdir()
        began = time.monotonic()
        text = "clean"
        try:
            async with World(plane, folder) as world:
                played.figures.add(await play(world, plan))
                await world.assert_permitted()
        except* (AssertionError, OSError, RuntimeError) as failures:
            text = "".join(traceback.format_exception(failures))
            played.failed.append(f"{plan.name}: {text}")
        sys.stderr.write(f"{plan.name}: {time.monotonic() - began:.0f} s, {text}\n")
