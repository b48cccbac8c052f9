"""The moving picture of `rollout-operator demo`, as it records itself."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rollout_lab.demo.command import run

WORDS: Final = ("-story", "bad-revision", "-size", "88x27")


async def draw_demo() -> bytes:
    """Return the picture; the same each time."""
    # The demo has a loop of its own, with a time of its own.
    return await asyncio.to_thread(_record)


def _record() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "demo.svg")
        run([*WORDS, "-record", str(path)])
        return path.read_bytes()
