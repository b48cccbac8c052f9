"""Memory that was freed goes back to the system: glibc keeps it, for what may come."""

import ctypes
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NoReturn

from rollout_operator.aio.clock import Clock

# Parameters of mallopt(3), in bytes.
# Above the 256 KiB that uvloop allocates for each read of a TLS connection.
_MMAP_THRESHOLD: Final = (-3, 320 * 1024)
_TRIM_THRESHOLD: Final = (-1, 1024 * 1024)
# Once takes a millisecond or two.
_EVERY: Final = timedelta(seconds=10)


def _find(name: str) -> Callable[..., Any]:
    """Return a function of glibc. Other C libraries keep less, and have none to call."""
    return getattr(ctypes.CDLL(None), name, lambda *_: 0)


def return_buffers() -> None:
    """Have large buffers go back to the system once they are freed.

    By itself glibc keeps more the larger they have ever been: 8 MiB after the lists of 5,000 pods.
    """
    for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        _find("mallopt")(*option)


async def return_rest(clock: Clock) -> NoReturn:
    """Have all other pages that nothing uses go back, from time to time.

    What is allocated between the short-lived buffers of scrapes and reads keeps these from going:
    in an hour of work they would be 10 MiB.
    """
    trim = _find("malloc_trim")
    while True:
        await clock.sleep(_EVERY)
        trim(0)
