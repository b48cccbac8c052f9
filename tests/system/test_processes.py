"""The log of a process, in JSON.

How one starts and stops, and several share a namespace: `processes.txt`. Their certificate:
`test_replicas.py`.
"""

import asyncio
import json
import re
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import three_zones

from tests.world.kubelet import Behaviour, by_image
from tests.world.proxy import Cut, watches
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# Each test that starts a process which takes until its end waits at most so long.
END_LIMIT: Final = timedelta(seconds=45)


async def test_dep06_json_lines_and_nothing_else(world: World) -> None:
    """DEP-06, LOG-01, LOG-05: every line, of libraries too, in a life with faults."""
    world.kubelet.choose = by_image({"v2": Behaviour(ready_after=timedelta(milliseconds=50))})
    names = await world.create(*three_zones(replicas=2, max_unavailable="xxx"))
    operator = await world.operator("-log.format=json", "stray", is_through_proxy=True)
    await _send_garbage(operator.port)
    await world.set_image(names, "v2")
    with world.proxy.during(watches(), Cut()):
        pass
    await world.wait_adopted(names)
    assert await operator.terminate(END_LIMIT) == 0
    records = [json.loads(line) for line in operator.log_lines()]
    for record in records:
        assert list(record)[:3] == ["level", "ts", "msg"]
        assert record["level"] in ("debug", "info", "warn", "error")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z", record["ts"])
    messages = [record["msg"] for record in records]
    assert messages[0] == "Starting rollout operator"
    assert messages.count("Terminating pod") == 6
    assert {"Watch interrupted", "Received signal"} <= set(messages)


async def _send_garbage(port: int) -> None:
    """Send what is no HTTP, and read until the server ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03\x01 this is no request\r\n\r\n")
    await writer.drain()
    async with asyncio.timeout(END_LIMIT.total_seconds()):
        assert b"400" in await reader.read()
    writer.close()
    await writer.wait_closed()
