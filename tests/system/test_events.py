"""Events on the real control plane, as `kubectl describe` requests them, under the shipped Role."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.model.outcome import Code
from rollout_operator.planning.wording import camel_case
from tests.system.grants import reported, without
from tests.system.guarded import NO_DOWNSCALE, guard
from tests.system.scaled import follow, wait_counts
from tests.system.waits import read_metric, wait_line, wait_page, wait_true
from tests.world.api import PODS, STATEFULSETS, Json, Resource
from tests.world.clients import Route
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# kubectl requests those of the core group: the same objects.
CORE_EVENTS: Final = Resource("v1", "events")
WRITTEN: Final = "rollout_operator_events_total"
KINDS: Final = {STATEFULSETS: "StatefulSet", PODS: "Pod"}
A, B = (f"ingester-zone-{letter}" for letter in "ab")


async def test_d40_a_rollout_a_count_and_a_refused_downscale(world: World) -> None:
    """D-40, D-75: the codes and sentences of log, page, refusal and metric.

    SEC-17: nothing is forbidden. Who gets which Event: `tests/operator/events.txt`.
    """
    first = ZoneSpec(name=A, group="ingester", replicas=2, labels={NO_DOWNSCALE: "true"})
    second = follow(ZoneSpec(name=B, group="ingester", replicas=2), A)
    guarded = await guard(world, first, second)
    operator = guarded.operator
    uids = await _map_pods(world)

    await world.roll([A, B], "v2")
    for name in (A, B):
        reasons = await _wait_events(world, STATEFULSETS, name, "RolloutFinished")
        assert [one["reason"] for one in reasons] == [
            *("RolloutBegun", "ZoneRolledOut", "RolloutFinished")
        ]
        assert re.search(r"all ready at the update revision; the rollout took \d+", _last(reasons))
    await wait_page(operator, "/status", 200, "all ready at the update revision")
    for pod, uid in uids.items():
        (found,) = await _list_events(world, PODS, pod, uid)
        line = await wait_line(operator, "Terminating pod", f"pod={pod} ")
        assert f"reason={Code.POD_OUTDATED} " in line
        assert f'why="{found["message"]}"' in line
        assert (found["reason"], found["type"]) == (camel_case(Code.POD_OUTDATED), "Normal")
        assert found["reportingComponent"] == "rollout-operator"

    await world.set_replicas(A, 3)
    await wait_counts(world, {A: 3, B: 3})
    found = (await _wait_events(world, STATEFULSETS, B, camel_case(Code.SCALE_UP)))[-1]
    line = await wait_line(operator, "Scaling zone", f"reason={Code.SCALE_UP} ")
    assert f'why="{found["message"]}"' in line

    for _ in range(2):
        answer = await guarded.workload(A).scale(2, Route.MERGE)
        assert answer.status == 400
    reason = camel_case(Code.NO_DOWNSCALE)
    found = (await _wait_events(world, STATEFULSETS, A, reason, count=2))[-1]
    sentence, _, caller = found["message"].partition("; requested by ")
    assert answer.message.endswith(sentence)
    assert caller == "admin"
    assert found["type"] == "Warning"
    assert await read_metric(operator, WRITTEN, outcome="repeated") == 1
    assert await read_metric(operator, WRITTEN, outcome="failed") == 0
    await world.judge.assert_clean()


async def test_sec17_without_the_right_one_line_says_so(world: World) -> None:
    """SEC-17, DEP-48: everything else works, and nothing is requested again and again."""
    names = await world.create(*three_zones(replicas=1))
    async with without(world, ("create", "events")):
        operator = await world.operator()
        await world.roll(names, "v2")
        line = await wait_line(operator, "Events are not written", reported("create", "events"))
        assert "level=warn" in line
        await world.roll(names, "v3")
        await wait_true("denied", partial(_has_denied, operator))
        assert len([one for one in operator.log_lines() if "Events are not written" in one]) == 1
        calls = [
            one for one in await world.judge.calls(with_events=True) if _is_event(one.resource)
        ]
        assert [one.code for one in calls] in ([403], [403] * 2)
    await world.judge.assert_clean()


def _is_event(resource: str) -> bool:
    return resource == "events"


async def _has_denied(operator: OperatorProcess) -> bool:
    return (await read_metric(operator, WRITTEN, outcome="denied") or 0) >= 12


async def _map_pods(world: World) -> Mapping[str, str]:
    pods = await world.api.items(PODS, world.namespace)
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if pod["metadata"]["name"].startswith("ingester")
    }


async def _wait_events(
    world: World, resource: Resource, name: str, reason: str, *, count: int = 1
) -> Sequence[Json]:
    """Wait until an object has an Event for this reason, as often, and return all that it has."""
    found: Sequence[Json] = ()

    async def is_there() -> bool:
        nonlocal found
        found = await _list_events(world, resource, name)
        return any(one["reason"] == reason and _count(one) >= count for one in found)

    await wait_true(lambda: f"{reason} at {name}, but {found}", is_there)
    return found


async def _list_events(
    world: World, resource: Resource, name: str, uid: str = ""
) -> Sequence[Json]:
    """Return the Events of the operator on an object, oldest first, as `kubectl describe` lists."""
    fields = {"involvedObject.kind": KINDS[resource], "involvedObject.name": name}
    if uid:
        fields["involvedObject.uid"] = uid
    selector = ",".join(f"{key}={value}" for key, value in fields.items())
    answer = await world.api.list(CORE_EVENTS, world.namespace, query={"fieldSelector": selector})
    found = [one for one in answer["items"] if one["reportingComponent"] == "rollout-operator"]
    return sorted(found, key=lambda one: str(one["eventTime"]))


def _count(event: Json) -> int:
    return int((event.get("series") or {}).get("count", 1))


def _last(events: Sequence[Json]) -> str:
    return str(events[-1]["message"])
