"""The inside of a measurement, as a process of its own: `python -m benchmarks.child WHAT TASK`.

The task comes as JSON and decides about the event loop; what was measured goes to standard output
as one line of JSON. Started by `processes.measure_in_child`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
import uvloop

from benchmarks import events, evicting, held, hostile, load, memory, plans, silence, sync
from benchmarks.tasks import Loop, Task
from rollout_operator.telemetry import logs

MEASUREMENTS: Final[Mapping[str, Callable[[Task], Awaitable[Mapping[str, float]]]]] = {
    "cache": memory.measure_cache,
    "events": events.measure_events,
    "handshakes": load.measure_handshakes,
    "held": held.measure_held,
    "hostile": hostile.measure_hostile,
    "pace": load.measure_pace,
    "plans": plans.measure_plans,
    "saturation": load.measure_saturation,
    "storm": evicting.measure_storm,
    "silence": silence.measure_silence,
    "sync": sync.measure_sync,
}


def main(what: str, task: Task) -> int:
    """Measure one thing; return the exit code."""
    # Lines that nobody reads must not be part of the figures, errors must be seen.
    logs.configure(format="logfmt", level="error")
    factory = uvloop.new_event_loop if task.loop is Loop.UVLOOP else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        measured = runner.run(_measure(what, task))
    sys.stdout.write(f"{msgspec.json.encode(measured).decode()}\n")
    return 0


async def _measure(what: str, task: Task) -> Mapping[str, float]:
    return await MEASUREMENTS[what](task)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Task)))
