"""Virtual time and chance, as arguments of everything that draws or waits in a run."""

import asyncio
import random
from datetime import timedelta


def now() -> timedelta:
    """Return the time since the world began, on the running loop."""
    return timedelta(seconds=asyncio.get_running_loop().time())


def split(seed: int, what: str) -> random.Random:
    """Return a chance of its own: what one part draws changes nothing for another."""
    return random.Random(f"{seed} {what}")
