"""Prepare-downscale: which downscales pass, and who is called for them (T-07, PREP-01 to 27).

Wherever the mode makes no difference, in both: times in annotations, and in the zone tracker.
"""

import pytest

from rollout_operator.model.names import LAST_DOWNSCALE, Denied, Uid, Unreachable
from rollout_operator.model.objects import Endpoint, Unreadable
from rollout_operator.model.outcome import Code
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import (
    RETELL,
    World,
    outdate,
    part,
    pod,
    pods_of,
    prepared_alone,
    three_zones,
    zone,
)
from tests.web.fake_pods import refuse

PREFIX = "downscale of statefulsets/zone-a in test from 5 to 3 replicas is "
DENIED = f"{PREFIX}not allowed because "
ALLOWED = f"{PREFIX}allowed -- all pods successfully prepared for shutdown."
FAILED = "one or more pods failed to prepare for shutdown."
WAIT = "grafana.com/min-time-between-zones-downscale"
BOTH_MODES = pytest.mark.parametrize("tracker", ["", "zones"], ids=["annotations", "tracker"])


def with_map(world: World) -> World:
    """Return the world with an empty ConfigMap of times, where they stand in one."""
    if world.tracker:
        meta = {"name": world.tracker, "uid": "u", "resourceVersion": "1"}
        world.client.objects["configmaps", world.tracker] = {"metadata": meta, "data": {}}
    return world


def recorded(world: World) -> set[str]:
    """Return the zones whose time stands in the ConfigMap."""
    held = world.client.objects.get(("configmaps", world.tracker))
    return set() if held is None else {*part(held, "data")}


@BOTH_MODES
@pytest.mark.parametrize("to", [5, 8])
@in_virtual_time
async def test_t07_1_what_is_no_decrease_is_allowed(to: int, tracker: str) -> None:
    """T-07 #1, PREP-03, SEED-089: no read, no call."""
    world = three_zones(tracker=tracker)
    verdict = await world.send_request("zone-a", to)
    assert verdict.is_allowed
    assert world.calls.calls == []
    assert world.client.calls == []


@pytest.mark.parametrize("whole", [True, False], ids=["of the set", "of its Scale"])
@in_virtual_time
async def test_t07_2_all_pods_confirm(whole: bool) -> None:
    """T-07 #2, PREP-20, 24, 26, SI-10: highest first, and the set itself is not written (W-14)."""
    world = three_zones()
    verdict = await world.send_request("zone-a", 3, whole=whole)
    assert verdict.is_allowed
    assert verdict.reason.text == ALLOWED
    assert verdict.reason.code is Code.PODS_PREPARED
    assert verdict.warnings == ()
    assert [(call.method, call.pod) for call in world.calls.confirmed] == [
        ("POST", "zone-a-4"),
        ("POST", "zone-a-3"),
    ]
    stamp = "2026-01-02T03:04:07Z"  # answered at 05.1, by a clock that may be a second behind
    assert verdict.annotations == ({LAST_DOWNSCALE: stamp} if whole else {})
    assert world.annotation("zone-a") is None
    assert not [call for call in world.client.calls if call.startswith("patch statefulsets")]


@in_virtual_time
async def test_t07_3_another_zone_went_lately() -> None:
    """T-07 #3, PREP-11 to 16, SEED-091: no pod is called."""
    world = three_zones(c={LAST_DOWNSCALE: "2026-01-02T03:04:05Z", WAIT: "12h"})
    verdict = await world.send_request("zone-a", 3)
    assert (verdict.reason.code, verdict.reason.text) == (
        Code.ZONE_DOWNSCALED_LATELY,
        f"{DENIED}statefulset zone-c was downscaled at 2026-01-02 03:04:05 +0000 UTC and is"
        " labelled to wait 12h0m0s between zone downscales",
    )
    assert world.calls.calls == []


@BOTH_MODES
@in_virtual_time
async def test_t07_4_a_pod_refuses(tracker: str) -> None:
    """T-07 #4, PREP-21, 22, SEED-092: every pod of the range is told that it stays."""
    world = with_map(three_zones(tracker=tracker))
    world.calls.answer = refuse("zone-a-4")
    verdict = await world.send_request("zone-a", 3, whole=True)
    assert verdict.reason.code is Code.POD_NOT_PREPARED
    assert verdict.reason.text == f"{DENIED}{FAILED} POST zone-a-4: HTTP status 500"
    assert verdict.annotations == {}
    assert world.calls.names("DELETE") == ["zone-a-4", "zone-a-3"]
    due = world.memory.downscales.backlog.map_due_cancels(Uid("uid-zone-a"))
    assert {entry.pod for entry in due.values()} == {"zone-a-3", "zone-a-4"}
    assert {entry.due for entry in due.values()} == {world.clock.elapsed() + RETELL}
    assert (world.annotation("zone-a"), recorded(world)) == (None, set())


@in_virtual_time
async def test_t07_5_what_cannot_be_recorded_is_refused() -> None:
    """T-07 #5, PREP-25, D-23: a downscale that a crash would forget does not begin."""
    world = three_zones()
    world.fail(Unreachable("etcd is down"), "patch pods")
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.NOT_RECORDED
    assert verdict.reason.text == f"{DENIED}adding an annotation to the pods failed. etcd is down"
    assert verdict.code == 429
    assert world.calls.names("POST") == []
    assert world.calls.names("DELETE") == ["zone-a-4", "zone-a-3"]


@in_virtual_time
async def test_t07_5_a_role_that_may_not_annotate_pods_does_not_block() -> None:
    """RBAC-10, D-23: the record is lost, the downscale is not."""
    world = three_zones()
    world.fail(Denied("pods is forbidden", status=403), "patch pods")
    assert (await world.send_request("zone-a", 3)).is_allowed
    assert world.recorded() == []


@BOTH_MODES
@in_virtual_time
async def test_t07_6_a_dry_run_leaves_no_trace(tracker: str) -> None:
    """T-07 #6, PREP-01, SI-15, SEED-094: no read, no call, no reservation, same verdicts after."""
    world = three_zones(tracker=tracker)
    for whole in (True, False):
        assert (await world.send_request("zone-a", 3, whole=whole, dry_run=True)).is_allowed
    assert world.client.calls == []
    assert world.calls.calls == []
    assert world.memory.downscales.list_sets() == []
    assert (await with_map(world).send_request("zone-b", 4)).is_allowed


@BOTH_MODES
@in_virtual_time
async def test_t07_7_another_zone_is_not_rolled_out(tracker: str) -> None:
    """T-07 #7, PREP-17, SEED-110: it has one replica, no pod, and nothing updated."""
    sets = [zone("zone-a"), zone("zone-b", 1)]
    world = with_map(World(sets, pods_of("zone-a"), tracker=tracker))
    outdate(world, "zone-b")
    world.sync()
    verdict = await world.send_request("zone-a", 3)
    assert verdict.reason.code is Code.OTHER_ZONE_NOT_READY
    assert verdict.reason.text == (
        f"{DENIED}statefulset zone-b has 1 non-updated replicas and 1 non-ready replicas"
    )
    assert (world.calls.calls, recorded(world)) == ([], set())


@BOTH_MODES
@in_virtual_time
async def test_t07_8_the_own_zone_may_be_unready_and_outdated(tracker: str) -> None:
    """T-07 #8, PREP-19."""
    pods = [pod("zone-a", 0, ready=False), *pods_of("zone-a", first=1)]
    world = with_map(prepared_alone(zone("zone-a"), pods, tracker=tracker))
    outdate(world, "zone-a")
    world.sync()
    assert (await world.send_request("zone-a", 3)).is_allowed


@BOTH_MODES
@in_virtual_time
async def test_t07_9_pods_without_the_name_label_are_seen(tracker: str) -> None:
    """T-07 #9 with D-10: pods belong by owner, so that such a zone does not block for ever."""
    other = zone("zone-b")
    part(other, "spec")["selector"] = {"matchLabels": {"app": "b"}}
    pods = pods_of("zone-b")
    for one in pods:
        part(one, "metadata")["labels"] = {"app": "b", "controller-revision-hash": "old"}
    sets = [zone("zone-a"), other]
    world = with_map(World(sets, [*pods_of("zone-a"), *pods], tracker=tracker))
    assert (await world.send_request("zone-a", 3)).is_allowed


@pytest.mark.parametrize(
    ("refused", "allowed", "posts", "deletes"),
    [
        pytest.param("", True, 64, 0, id="T-07 #10 all succeed: exactly 64 calls"),
        pytest.param("zone-a-0", False, 64, 64, id="T-07 #11 the last fails: all are un-prepared"),
    ],
)
@BOTH_MODES
@in_virtual_time
async def test_t07_64_pods(
    refused: str, allowed: bool, posts: int, deletes: int, tracker: str
) -> None:
    world = with_map(three_zones(64, tracker=tracker))
    world.calls.answer = refuse(refused)
    assert (await world.send_request("zone-a", 0)).is_allowed is allowed
    assert len(world.calls.names("POST")) == posts
    assert len(world.calls.names("DELETE")) == deletes
    assert world.recorded() == ["zone-a-0", "zone-a-21", "zone-a-42", "zone-a-63"]
    assert recorded(world) == ({"zone-a"} if tracker and allowed else set())


@in_virtual_time
async def test_t07_12_each_pod_is_un_prepared_once_within_the_review() -> None:
    """T-07 #12: DELETEs that fail are not repeated at once; the controller does it later."""
    world = three_zones(64)

    async def fail(method: str, endpoint: Endpoint) -> None:
        await refuse(endpoint.pod)(method, endpoint)
        await refuse(endpoint.pod, method="DELETE")(method, endpoint)

    world.calls.answer = fail
    assert not (await world.send_request("zone-a", 0)).is_allowed
    assert len(world.calls.names("DELETE")) == 64
    assert world.memory.downscales.backlog.count() == 64


@BOTH_MODES
@in_virtual_time
async def test_t07_13_pods_that_do_not_exist_need_no_call(tracker: str) -> None:
    """T-07 #13, D-26, SEED-106: right after an upscale; the sender learns of it."""
    world = with_map(prepared_alone(zone("zone-a"), pods_of("zone-a", 3), tracker=tracker))
    verdict = await world.send_request("zone-a", 3)
    assert verdict.is_allowed
    assert verdict.warnings == ("not prepared: 2 pods of the range: no such pod",)
    assert world.calls.calls == []
    assert recorded(world) == ({"zone-a"} if tracker else set())


@in_virtual_time
async def test_t07_urls() -> None:
    """T-07, SEED-116, FQDN: the address of the pod, under the name that spec.serviceName gives."""
    hosts: list[tuple[str, str, int, str]] = []

    async def record(method: str, one: Endpoint) -> None:
        hosts.append((one.host, one.ip, one.port, one.path))

    set_ = zone("zone-a")
    part(set_, "spec")["serviceName"] = "service-name"
    world = prepared_alone(set_)
    world.calls.answer = record
    assert (await world.send_request("zone-a", 3)).is_allowed
    domain = "service-name.test.svc.cluster.local."
    path = "ingester/prepare"
    assert hosts == [
        (f"zone-a-4.{domain}", "127.0.0.104", 8080, path),
        (f"zone-a-3.{domain}", "127.0.0.103", 8080, path),
    ]


@pytest.mark.parametrize("whole", [True, False], ids=["of the set", "of its Scale"])
@in_virtual_time
async def test_si10_pods_of_a_set_whose_event_was_spoiled_are_prepared(whole: bool) -> None:
    """SI-10, FP-07: the cache has neither labels nor selector of it, and no pod goes unprepared."""
    world = three_zones()
    sets = world.sets.list_all()
    labels = {"rollout-group": "ingester"}
    lost = Unreadable(
        kind="StatefulSet", namespace="test", name="zone-a", uid=Uid("uid-zone-a"),
        resource_version="1", labels=labels, error="spoiled",
    )  # fmt: skip
    world.sets.replace_all([lost if one.name == "zone-a" else one for one in sets])
    verdict = await world.send_request("zone-a", 3, whole=whole)
    assert verdict.is_allowed
    assert verdict.warnings == ()
    assert [call.pod for call in world.calls.confirmed] == ["zone-a-4", "zone-a-3"]
