"""The life of the process: how it starts, waits, logs, gets SIGTERM, and stops.

No delete is ever left half done: what a signal finds under way is finished, and nothing is begun.
"""

import asyncio
import json
import re
import signal
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.zones import three_zones

from tests.system.starts import running
from tests.system.waits import wait_line, wait_page, wait_reason, wait_true
from tests.world.childproc import free_ports
from tests.world.faults import Cut, Delay, Freeze, NeverAnswer, Rule, lists, verbs, watches
from tests.world.kubelet import Behaviour, by_image
from tests.world.operatorproc import OperatorProcess
from tests.world.proxy import FaultProxy
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# Each test that starts a process which takes until its end waits at most so long.
END_LIMIT: Final = timedelta(seconds=45)
LOGFMT: Final = re.compile(r"level=(debug|info|warn|error) ts=\S+Z msg=(\S+|\"[^\"]*\")( |$)")


async def test_dep08_metrics_answer_before_ready(world: World) -> None:
    """DEP-08, SEED-062, PROC-01: /ready says what is missing, and 200 only after the caches."""
    await world.create(*three_zones(replicas=1))
    held = world.proxy.add(lists("pods"), Freeze())
    async with OperatorProcess(world.launch(is_through_proxy=True)) as operator:
        text = await wait_page(operator, "/ready", 500, "pods watch: not followed yet")
        assert "workers: not started" in text
        assert "rollout_operator_build_info" in await operator.metrics()
        assert (await operator.fetch("/livez"))[0] == 200
        assert "not ready" in (await operator.fetch("/status"))[1]
        # The other cache is not held up.
        await wait_page(operator, "/ready", 500, "pods watch", lacking="statefulsets watch")
        world.proxy.remove(held)
        await operator.wait_ready()
        assert await operator.fetch("/ready") == (200, "ready\n")


async def test_w22_the_api_server_comes_late(world: World) -> None:
    """W-22, LI-14: no API server listens at the start; when it does, the start goes on."""
    names = await world.create(*three_zones(replicas=1))
    (port,) = free_ports(1)
    launch = world.launch(url=f"https://127.0.0.1:{port}")
    async with OperatorProcess(launch) as operator:
        await wait_page(operator, "/ready", 500, f"127.0.0.1:{port}")
        async with FaultProxy(world.plane, port):
            await operator.wait_ready(timedelta(seconds=60))
            await world.roll(names, "v2")
        # A server that goes away is no reason for a restart.
        await wait_line(operator, "Watch interrupted", f"127.0.0.1:{port}")
        assert (await operator.fetch("/livez"))[0] == 200
        assert operator.is_running


async def test_dep07_a_signal_in_mid_rollout(world: World) -> None:
    """DEP-07, PROC-05: /ready fails, the delete under way is finished, none follows, exit 0."""
    names = await world.create(*three_zones())
    operator = await world.operator(is_through_proxy=True)
    for image, number in (("v2", signal.SIGTERM), ("v3", signal.SIGINT)):
        before = len(await world.judge.deletes())
        slow = world.proxy.add(verbs("delete", "pods"), Delay(timedelta(seconds=3)), times=1)
        await world.set_image(names, image)
        await _wait_hit(slow)
        operator.child.send(number)
        await wait_page(operator, "/ready", 500, "stopping")
        assert (await operator.fetch("/livez"))[0] == 200
        assert await operator.wait_end(END_LIMIT) == 0
        assert [one.code for one in (await world.judge.deletes())[before:]] == [200]
        lines = operator.log_lines()
        assert any("Received signal" in line and f"signal={number.name}" in line for line in lines)
        assert 'msg="Rollout operator has stopped"' in lines[-1]
        assert not any("Leaving unfinished work" in line for line in lines)
        operator.start()
        await world.wait_adopted(names)
    await world.judge.assert_clean()


async def test_dep07_a_signal_while_idle_and_one_before_ready(world: World) -> None:
    """DEP-07, PROC-05: exit 0 and quickly, whatever the operator is waiting for."""
    await world.create(*three_zones(replicas=1))
    idle = await world.operator()
    await wait_reason(idle, "ingester", "up_to_date")
    assert await idle.terminate(END_LIMIT) == 0
    world.proxy.add(lists(), Freeze())
    async with OperatorProcess(world.launch(is_through_proxy=True)) as starting:
        await wait_page(starting, "/ready", 500, "not followed yet")
        assert await starting.terminate(END_LIMIT) == 0
        assert "Traceback" not in "\n".join(starting.log_lines())


async def test_proc05_a_second_signal_ends_at_once(world: World) -> None:
    """PROC-05: who insists does not wait for a call that gets no answer."""
    names = await world.create(*three_zones())
    operator = await world.operator(is_through_proxy=True)
    held = world.proxy.add(verbs("delete", "pods"), NeverAnswer(), times=1)
    await world.set_image(names, "v2")
    await _wait_hit(held)
    operator.child.send(signal.SIGTERM)
    await wait_line(operator, "Received signal")
    assert operator.is_running
    operator.child.send(signal.SIGTERM)
    # The first one alone would wait for 20 s.
    assert await operator.wait_end(timedelta(seconds=10)) == 1


@pytest.mark.slow
async def test_proc05_a_call_without_an_answer_does_not_use_up_the_grace_period(
    world: World,
) -> None:
    """PROC-05, DEP-07: bounded: exit 0 before the kubelet kills at 30 s, and it is said."""
    names = await world.create(*three_zones())
    operator = await world.operator(is_through_proxy=True)
    held = world.proxy.add(verbs("delete", "pods"), NeverAnswer(), times=1)
    await world.set_image(names, "v2")
    await _wait_hit(held)
    assert await operator.terminate(timedelta(seconds=30)) == 0
    await wait_line(operator, "Leaving unfinished work", "level=warn")
    assert len(await world.judge.deletes()) == 1
    operator.start()
    await world.wait_adopted(names)
    await world.judge.assert_clean()


async def test_dep02_words_after_the_flags_are_warned_about_once(world: World) -> None:
    """DEP-02: parsing stops there, as it always did; the rest is named and has no effect."""
    launch = world.launch("-log.level=info", "stray", "-log.level=nonsense")
    async with running(launch) as operator:
        reported = [
            line for line in operator.log_lines() if "level=warn" in line and "stray" in line
        ]
        assert len(reported) == 1
        assert "stray -log.level=nonsense" in reported[0]


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


async def test_dep06_logfmt_is_the_default(world: World) -> None:
    """DEP-06, LOG-01: level, ts and msg first, on every line."""
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator()
    await _send_garbage(operator.port)
    await world.roll(names, "v2")
    assert await operator.terminate(END_LIMIT) == 0
    assert [line for line in operator.log_lines() if not LOGFMT.match(line)] == []


async def test_dep06_level_warn_is_quiet_during_a_rollout(world: World) -> None:
    """DEP-06, FLAG-11: nothing is worth a warning in a rollout that goes well."""
    zones = (*three_zones(max_unavailable=2), *three_zones("one", replicas=1, max_unavailable=2))
    names = await world.create(*zones)
    operator = await world.operator("-log.level=warn")
    await world.roll(names, "v2")
    assert operator.log_lines() == []


async def test_dep12_a_trace_collector_that_is_not_there(world: World) -> None:
    """DEP-12, TRACE-03: an unreachable collector does not stop the start."""
    (port,) = free_ports(1)
    names = (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "JAEGER_ENDPOINT",
        "JAEGER_AGENT_HOST",
    )
    launch = replace(world.launch(), env=dict.fromkeys(names, f"http://127.0.0.1:{port}/v1/traces"))
    async with running(launch) as operator:
        assert await operator.is_ready()
        assert await operator.terminate(END_LIMIT) == 0


async def test_proc07_ready_is_not_lost_while_the_api_server_is_away(world: World) -> None:
    """PROC-07, W-22: a restart of the API server takes no replica's readiness."""
    await world.create(*three_zones(replicas=1))
    operator = await world.operator(is_through_proxy=True)
    with world.proxy.during(lambda request: True, Cut()):
        await wait_line(operator, "Watch interrupted", "kind=Pod")
        await wait_line(operator, "Watch interrupted", "kind=StatefulSet")
        assert (await operator.fetch("/ready"))[0] == 200
        assert (await operator.fetch("/livez"))[0] == 200


async def _wait_hit(rule: Rule) -> None:
    await wait_true(f"met: {rule.effect}", lambda: rule.hits > 0)


async def _send_garbage(port: int) -> None:
    """Send what is no HTTP, and read until the server ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03\x01 this is no request\r\n\r\n")
    await writer.drain()
    async with asyncio.timeout(END_LIMIT.total_seconds()):
        assert b"400" in await reader.read()
    writer.close()
    await writer.wait_closed()
