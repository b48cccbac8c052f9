"""What is freed leaves the process, also from between what stays."""

import subprocess
import sys
from typing import Final

# Of buffers of so many bytes, with small objects between them, in MiB: kept at once, and later.
_FREED: Final = """
import asyncio, os, sys
from rollout_operator.aio.memory import return_buffers, return_rest

class Clock:
    passed = 0
    async def sleep(self, span):
        self.passed += 1
        if self.passed > 1:
            raise SystemExit(print(start - before, resident() - before))

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

return_buffers()
size = int(sys.argv[1])
before = resident()
pieces = [(bytearray(size), bytes(700)) for _ in range(20 * 2**20 // size)]
for buffer, _ in pieces:
    buffer[:] = b"x" * size
kept = [small for _, small in pieces]
del pieces, buffer
start = resident()
asyncio.run(return_rest(Clock()))
"""


def measure(size: int) -> list[int]:
    words = [sys.executable, "-c", _FREED, f"{size}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return [int(word) for word in done.stdout.split()]


def test_d51_large_buffers_go_back_at_once_and_smaller_ones_later_from_between_what_stays() -> None:
    kept, left = measure(40_000)
    assert (max(measure(400_000)) <= 2, kept >= 15, left <= 4) == (True, True, True)
