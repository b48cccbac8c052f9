"""Downscales on the real API server with `-use-zone-tracker`, under the component's Role."""

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.grants import take_away, without
from tests.system.guarded import LAST_DOWNSCALE, Guarded, guard, prepared_zone
from tests.system.waits import wait_line, wait_true
from tests.world.api import CONFIG_MAPS, ROLES, STATEFULSETS, Answer, ApiError, Json
from tests.world.clients import Route
from tests.world.faults import NeverAnswer, verbs
from tests.world.manifests import ACCOUNT
from tests.world.webpods import Respond, WebPods
from tests.world.world import World

pytestmark = pytest.mark.controlplane

NAME: Final = "rollout-operator-zone-tracker"
FLAG: Final = "-use-zone-tracker"
OLD: Final = '{"lastDownscaled":"2020-01-01T00:00:00Z"}'
FOREIGN: Final = {"README": "kept", "store-zone-a": OLD}
ENTRY: Final = re.compile(r'\{"lastDownscaled":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"\}')
CALLED_WITHIN: Final = timedelta(seconds=60)
PREPARING: Final = Respond(after=timedelta(seconds=0.7))


async def _guard(
    world: World, *zones: ZoneSpec, pods: WebPods, is_through_proxy: bool = False
) -> Guarded:
    """Create zones, start an operator with the tracker; return once its webhooks are called."""
    await world.grant("zone-tracker")
    return await guard(world, *zones, pods=pods, flags=(FLAG,), is_through_proxy=is_through_proxy)


async def _put(world: World, data: Mapping[str, str]) -> None:
    """Let another client create the ConfigMap."""
    meta = {"name": NAME, "labels": {"owner": "another-team"}, "annotations": {"note": "kept"}}
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}
    await world.post(CONFIG_MAPS, body)


async def _find(world: World) -> Json:
    """Return the ConfigMap, empty where there is none."""
    try:
        return await world.get(CONFIG_MAPS, NAME)
    except ApiError as error:
        if error.status != 404:
            raise
        return {}


async def _data(world: World) -> Json:
    return dict((await _find(world)).get("data") or {})


async def _insist(guarded: Guarded, name: str) -> Answer:
    """Try until the answer is yes."""
    async with asyncio.timeout(30):
        while True:
            answer = await guarded.workload(name).scale(2, Route.MERGE)
            if answer.status == 200:
                return answer
            await asyncio.sleep(0.5)


async def test_zone03_a_fresh_map_lets_zones_wait_and_then_keeps_what_others_write(
    world: World,
) -> None:
    """ZONE-02, 03, 07, 09, W-16, T-07 #2 #3, D-23: no annotation, and foreign things stay."""
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name), wait="3s") for name in "ab"]
    guarded = await _guard(world, *zones, pods=pods)

    answer = await guarded.workload("a").scale(2, Route.SCALE_MERGE)

    assert answer.message.startswith(guarded.refusal("a", (3, 2), "statefulset b was downscaled"))
    assert answer.message.endswith("is labelled to wait 3s between zone downscales")
    assert not pods.calls
    fresh = await _data(world)
    assert set(fresh) == {"a", "b"}
    assert all(ENTRY.fullmatch(text) for text in fresh.values())
    change: Json = {"metadata": {"labels": {"owner": "another-team"}}, "data": FOREIGN}
    await world.patch(CONFIG_MAPS, NAME, change)

    await _insist(guarded, "a")

    found = await _find(world)
    assert {key: found["data"][key] for key in FOREIGN} == FOREIGN
    assert found["metadata"]["labels"] == {"owner": "another-team"}
    assert found["data"]["b"] == fresh["b"]
    assert found["data"]["a"] > fresh["a"]
    stored = await world.get(STATEFULSETS, "a")
    assert LAST_DOWNSCALE not in stored["metadata"].get("annotations", {})
    calls = [call for call in await world.judge.calls() if call.resource == "configmaps"]
    assert {call.verb for call in calls} == {"get", "create", "patch"}, "SEC-17: all of the Role"
    await guarded.assert_judged()


async def test_w15_two_zones_within_50_ms(world: World) -> None:
    """W-15, ZONE-08, SI-11, T-08: exactly one passes, and only its time is recorded."""
    pods = await world.serve_pods()
    pods.behave("", PREPARING)
    zones = [prepared_zone(pods, ZoneSpec(name=name), wait="1h") for name in "ab"]
    guarded = await _guard(world, *zones, pods=pods)
    await _put(world, FOREIGN)

    async def send_request(name: str, delay: float) -> Answer:
        await asyncio.sleep(delay)
        return await guarded.workload(name).scale(2, Route.SCALE_MERGE)

    answers = await asyncio.gather(send_request("a", 0), send_request("b", 0.05))

    codes = {name: answer.status for name, answer in zip("ab", answers, strict=True)}
    (first,) = [name for name in "ab" if codes[name] == 200]
    (second,) = [name for name in "ab" if codes[name] != 200]
    lost = answers["ab".index(second)]
    why = f"statefulset {first} is already in process of updating replicas"
    assert lost.message == guarded.refusal(second, (3, 2), why)
    assert not pods.calls_to(f"{second}-2")
    data = await _data(world)
    assert set(data) == {*FOREIGN, first}
    later = await guarded.workload(second).scale(2, Route.MERGE)
    start = guarded.refusal(second, (3, 2), f"statefulset {first} ")
    assert later.message.startswith(start)
    await guarded.assert_judged()


@pytest.mark.slow
async def test_fp06_kill_9_between_record_and_answer(world: World) -> None:
    """FP-06, FP-35, SI-11, LI-05: the time stands, pods are un-prepared; the own zone may go."""
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name), wait="1h") for name in "ab"]
    guarded = await _guard(world, *zones, pods=pods, is_through_proxy=True)
    await _put(world, FOREIGN)
    rule = world.proxy.add(verbs("patch", "configmaps"), NeverAnswer(), times=1)

    async def is_recorded() -> bool:
        return "a" in await _data(world)

    async with asyncio.TaskGroup() as tasks:
        request = tasks.create_task(guarded.workload("a").scale(2, Route.MERGE))
        await wait_true("recorded", is_recorded)
        guarded.operator.kill()
    assert rule.times == 0
    assert request.result().status == 500, "the API server could not reach the webhook"
    assert await guarded.workload("a").replicas() == 3
    guarded.operator.start()
    await guarded.operator.wait_ready()

    await guarded.wait_called("a-2", limit=CALLED_WITHIN)

    await guarded.wait_unrecorded("a")
    lost = await guarded.workload("b").scale(2, Route.MERGE)
    start = guarded.refusal("b", (3, 2), "statefulset a was downscaled at ")
    assert lost.message.startswith(start), lost
    assert (await guarded.workload("a").scale(2, Route.MERGE)).status == 200
    await guarded.assert_judged()


async def test_sec17_each_verb_is_needed(world: World) -> None:
    """SEC-17, DEP-34, ZONE-05, ZONE-09: refused, naming the rule; then it goes on by itself.

    A patch is missed when the pods have been called: they are told that they stay.
    """
    pods = await world.serve_pods()
    guarded = await _guard(world, prepared_zone(pods, ZoneSpec(name="a", replicas=5)), pods=pods)
    loading = "loading zones failed. "
    setting = "setting downscale timestamp in the zone ConfigMap failed. "
    for replicas, verb, words in (
        (4, "create", loading),
        (3, "get", loading),
        (2, "patch", setting),
    ):
        async with without(world, (verb, "configmaps")):
            answer = await guarded.workload("a").scale(replicas, Route.SCALE_MERGE)
            target = "configmaps" if verb == "create" else f"configmaps/{NAME}"
            why = f"{words}cannot {verb} {target} in namespace"
            start = guarded.refusal("a", (replicas + 1, replicas), why)
            assert answer.message.startswith(start), answer
            right = f'grant verb {verb} on "configmaps" in API group "" in its Role'
            assert right in answer.message
            assert not pods.calls_to(f"a-{replicas}", "DELETE") or verb == "patch"
        answer = await guarded.workload("a").scale(replicas, Route.SCALE_MERGE)
        assert answer.status == 200, answer
        assert ENTRY.fullmatch((await _data(world))["a"])


async def test_rbac05_the_role_of_other_releases_is_enough(world: World) -> None:
    """DEP-34, RBAC-05, W-16: get, update, create; reported once, and nothing of others is lost."""
    pods = await world.serve_pods()
    guarded = await _guard(world, prepared_zone(pods, ZoneSpec(name="a")), pods=pods)
    await _put(world, FOREIGN)
    await take_away(world, "patch", "configmaps")
    role_name = f"{ACCOUNT}-zone-tracker"
    role = await world.get(ROLES, role_name)
    rule: Json = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]}
    await world.api.replace(
        ROLES, world.namespace, role_name, {**role, "rules": [*role["rules"], rule]}
    )
    before = await _find(world)

    await _insist(guarded, "a")

    line = await wait_line(guarded.operator, "Zone tracker is written as a whole")
    assert "level=warn" in line
    found = await _find(world)
    assert {**found["data"], "a": 0} == {**FOREIGN, "a": 0}
    for key in ("labels", "annotations"):
        assert found["metadata"][key] == before["metadata"][key]
    await guarded.assert_judged()
