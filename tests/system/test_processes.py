"""The life of processes: how one starts, waits, logs and stops, and how several share a namespace.

No delete is ever left half done: what a signal finds under way is finished, and nothing is begun.
Of several one acts, the other one soon after its end, and reviews that reach one that does not act
are passed on. The certificate that they share: `test_certificate_replicas`.
"""

import asyncio
import json
import re
import signal
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.zones import three_zones

from tests.system.budgeted import create_budgets
from tests.system.grants import without
from tests.system.guarded import Guarded, prepared_zone
from tests.system.hooked import TLS_FLAGS
from tests.system.starts import waiting_at_most
from tests.system.waits import read_metric, wait_line, wait_page, wait_reason, wait_true
from tests.world.api import LEASES, Answer
from tests.world.budgets import evict, grouped_zones, zone_budget
from tests.world.childproc import free_ports
from tests.world.clients import CREATED, Route
from tests.world.hooks import NO_DOWNSCALE, POD_EVICTION, PREPARE_DOWNSCALE, Registration
from tests.world.kubelet import Behaviour, by_image
from tests.world.manifests import LEASE
from tests.world.operatorproc import OperatorProcess
from tests.world.proxy import (
    Cut,
    Delay,
    FaultProxy,
    Freeze,
    NeverAnswer,
    Rule,
    lists,
    verbs,
    watches,
)
from tests.world.sets import set_image, wait_adopted
from tests.world.world import World

pytestmark = pytest.mark.controlplane

TAKE_OVER_LIMIT: Final = timedelta(seconds=20)
LIMIT: Final = timedelta(seconds=60)
HAND_OVER_LIMIT: Final = timedelta(seconds=3)


async def test_li08_another_one_acts_after_a_kill_and_after_an_end(world: World) -> None:
    """LI-08, SI-22, DEP-93, DEP-94: within 20 s of SIGKILL, 3 s of SIGTERM; a rollout goes on."""
    names = await world.create(*three_zones())
    first, second = [await world.operator() for _ in range(2)]
    assert await acts(first)
    assert not await acts(second)
    await set_image(world.api, world.namespace, names, "v2")
    await measure(lambda: has_deleted(world))
    first.kill()
    assert await measure(lambda: acts(second)) < TAKE_OVER_LIMIT
    await wait_adopted(world.api, world.namespace, names)
    first.start()
    await first.wait_ready()
    await second.terminate()
    assert await measure(lambda: acts(first)) < HAND_OVER_LIMIT
    assert "acts: this process" in (await first.fetch("/status"))[1]
    lease = await world.api.get(LEASES, world.namespace, LEASE)
    assert lease["spec"]["leaseTransitions"] == 2
    await world.judge.assert_clean()


async def test_si22_one_that_was_frozen_writes_nothing_and_begins_anew(world: World) -> None:
    """SI-22, FP-18: woken while another one acts, it ends by itself with exit code 1."""
    names = await world.create(*three_zones())
    first, second = [await world.operator() for _ in range(2)]
    first.pause()
    assert await measure(lambda: acts(second)) < TAKE_OVER_LIMIT
    await set_image(world.api, world.namespace, names, "v2")
    first.resume()
    assert await first.wait_end() == 1
    assert "another process acts" in first.child.tail()
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_d70_without_the_right_one_works_alone(world: World) -> None:
    """D-70: as under the role of grafana/rollout-operator's chart: one warning, and it acts.

    Once the right is granted it takes the Lease, without a restart.
    """
    names = await world.create(*three_zones(replicas=1))
    async with without(world, ("get", "leases"), ("create", "leases")):
        operator = await world.operator()
        await wait_line(operator, "No election is possible", "level=warn")
        await world.roll(names, "v2")
    await wait_line(operator, "Elected: this process acts")
    await world.roll(names, "v3")
    assert await acts(operator)
    assert operator.is_running
    assert sum("No election is possible" in line for line in operator.log_lines()) == 1
    await world.judge.assert_clean()


async def test_si22_a_lease_that_may_not_be_renewed_holds_everything(world: World) -> None:
    """SI-22, LI-01: another replica may be elected by now; reported with why; mended by itself."""
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator()
    async with without(world, ("patch", "leases")):
        await wait_line(operator, "Nothing is written until the lease is renewed", "level=warn")
        await set_image(world.api, world.namespace, names, "v2")
        await wait_reason(operator, "ingester", "was renewed")
        assert not [call for call in await world.judge.calls() if call.verb == "delete"]
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def acts(operator: OperatorProcess) -> bool:
    """Return whether an operator says that it acts."""
    name = "rollout_operator_leader_election_master_status"
    return await read_metric(operator, name, name=LEASE) == 1


async def has_deleted(world: World) -> bool:
    """Return whether a pod has been deleted by now."""
    return any(
        call.verb == "delete" and call.resource == "pods" for call in await world.judge.calls()
    )


async def measure(check: Callable[[], Awaitable[bool]]) -> timedelta:
    """Wait until something holds, and return how long that took. Raises TimeoutError."""
    began = time.monotonic()
    async with asyncio.timeout(LIMIT.total_seconds()):
        while not await check():  # noqa: ASYNC110 (a state, no event)
            await asyncio.sleep(0.02)
    return timedelta(seconds=time.monotonic() - began)


HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, POD_EVICTION)
GROUP: Final = "ingester"
TRY_AGAIN: Final = 429


async def count_forwarded(operator: OperatorProcess, outcome: str) -> int:
    """Return how many reviews it was to pass on, by what became of them."""
    name = "rollout_operator_forwarded_reviews_total"
    hooks = ("admission_pod_eviction", "admission_prepare_downscale")
    counts = [await read_metric(operator, name, hook=hook, outcome=outcome) for hook in hooks]
    return int(sum(count or 0 for count in counts))


async def test_dep92_the_replica_that_leads_decides_whichever_gets_the_review(world: World) -> None:
    """DEP-92, D-71: evictions and downscales get its verdicts, in its words, by way of another.

    LI-08: where it dies there is 429 until another one leads, which then decides rightly.
    """
    pods = await world.serve_pods()
    await create_budgets(world, [zone_budget(GROUP, {"rollout-group": GROUP})])
    await world.grant_webhooks()
    zones = [prepared_zone(pods, zone, wait="1h") for zone in grouped_zones(GROUP)]
    a, b, c = await world.create(*zones)
    leader, follower = [await world.operator(*TLS_FLAGS) for _ in range(2)]
    hooks = await world.register(Registration(port=follower.tls_port, hooks=HOOKS))
    await hooks.wait_injected()
    await hooks.wait_called(a)
    assert await acts(leader)
    assert not await acts(follower)
    guarded = Guarded(world=world, pods=pods, operator=leader, hooks=hooks)

    async def evict_from(zone: str) -> Answer:
        return await evict(world.api, world.namespace, f"{zone}-0")

    assert (await evict_from(a)).status in CREATED
    refused = await evict_from(b)
    assert (refused.status, a in refused.message) == (TRY_AGAIN, True)
    await world.wait_ready([a, b, c])
    scaled = await guarded.workload(c).scale(2, Route.MERGE)
    assert scaled.status == 200, scaled
    assert [call.pod for call in pods.calls] == [f"{c}-2"]
    await guarded.wait_recorded(c)
    refused = await guarded.workload(b).scale(2, Route.SCALE_MERGE)
    assert refused.status >= 400, refused
    assert "downscale of statefulsets" in refused.message
    assert await count_forwarded(follower, "answered") >= 4
    for outcome in ("unreachable", "late", "unusable", "too_many"):
        assert await count_forwarded(follower, outcome) == 0
    decided = "rollout_operator_reviews_total"
    assert await read_metric(follower, decided, reason="pods_prepared") is None
    assert await read_metric(follower, decided, reason="not_elected") is None

    leader.kill()
    began = time.monotonic()
    answers: list[Answer] = []
    while not answers or answers[-1].status == TRY_AGAIN:
        answers.append(await evict_from(a))
        assert time.monotonic() - began < TAKE_OVER_LIMIT.total_seconds()
    assert answers[-1].status in CREATED, answers[-1]
    assert any("could not be reached; try again" in answer.message for answer in answers[:-1])
    assert await acts(follower)
    assert (await evict_from(b)).status == TRY_AGAIN
    await guarded.assert_judged()


# Each test that starts a process which takes until its end waits at most so long.
END_LIMIT: Final = timedelta(seconds=45)
# Enough for several attempts at a list.
SHORT: Final = timedelta(seconds=8)


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
    """W-22, LI-14: no API server listens at the start; when it does, the start goes on.

    PROC-07: one that goes away later takes no replica's readiness, and is no reason for a restart.
    """
    names = await world.create(*three_zones(replicas=1))
    (port,) = free_ports(1)
    launch = world.launch(url=f"https://127.0.0.1:{port}")
    async with OperatorProcess(launch) as operator:
        await wait_page(operator, "/ready", 500, f"127.0.0.1:{port}")
        async with FaultProxy(world.plane, port):
            await operator.wait_ready(timedelta(seconds=60))
            await world.roll(names, "v2")
        for kind in ("Pod", "StatefulSet"):
            await wait_line(operator, "Watch interrupted", f"127.0.0.1:{port}", f"kind={kind}")
        assert (await operator.fetch("/ready"))[0] == 200
        assert (await operator.fetch("/livez"))[0] == 200
        assert operator.is_running


async def test_a_wrong_token(world: World) -> None:
    """PROC-02, W-22: /ready says 401 meanwhile; then exit code 1 with the same words."""
    launch = world.launch()
    world.plane.kubeconfig(launch.kubeconfig, "not-a-token")
    async with OperatorProcess(replace(launch, command=waiting_at_most(SHORT))) as operator:
        await wait_page(operator, "/ready", 500, "401 Unauthorized")
        assert await operator.wait_end(timedelta(seconds=60)) == 1
        last = operator.log_lines()[-1]
        assert "list statefulsets" in last
        assert "401 Unauthorized" in last
        assert "not-a-token" not in "\n".join(operator.log_lines())


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
