"""How prepare-downscale is called: dry runs, other registrations, other sets."""

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import LAST_DOWNSCALE, PREPARE, guard, prepared_zone
from tests.world.clients import EVERY_ROUTE, Route
from tests.world.observed import Request
from tests.world.webpods import BROKEN
from tests.world.world import World

pytestmark = pytest.mark.controlplane

WRITES = ("create", "update", "patch", "delete", "deletecollection")


async def list_writes(world: World) -> list[Request]:
    """Return the operator's writes, without the renewals of its Lease."""
    calls = await world.judge.calls()
    return [call for call in calls if call.verb in WRITES and call.resource != "leases"]


async def test_si15_dry_runs_leave_no_trace(world: World) -> None:
    """SI-15, SEED-094, T-07 row 6, PREP-01: by every route, and before a downscale in earnest.

    Zone b would have to wait an hour for a downscale of zone a, had there been one.
    """
    pods = await world.serve_pods()
    zones = [
        prepared_zone(pods, ZoneSpec(name=name), wait="1h" if name == "b" else "") for name in "ab"
    ]
    guarded = await guard(world, *zones, pods=pods)
    workload = guarded.workload("a", label=PREPARE)
    # The webhooks are called, so that the CA has been written: nothing else is left to write.
    before = await list_writes(world)

    answers = {
        route: await workload.scale(1, route, is_dry_run=True)
        for route in EVERY_ROUTE
        if not route.is_stale
    }

    assert {answer.status for answer in answers.values()} == {200}, answers
    assert not pods.calls
    assert await guarded.list_recorded() == []
    assert await list_writes(world) == before
    assert all(
        LAST_DOWNSCALE not in answer.body["metadata"].get("annotations", {})
        for answer in answers.values()
    )
    assert (await guarded.workload("b").scale(2, Route.MERGE)).status == 200
    await guarded.assert_judged()


async def test_a_validating_registration_is_answered_without_patch(world: World) -> None:
    """SEED-089, SEED-093: who registered it so before upgrades; the controller records then."""
    pods = await world.serve_pods()
    guarded = await guard(
        world,
        prepared_zone(pods, ZoneSpec(name="a")),
        pods=pods,
        registration={"prepare_kind": "Validating"},
    )

    answer = await guarded.workload("a").scale(2, Route.MERGE)

    assert answer.status == 200, answer
    assert LAST_DOWNSCALE not in answer.body["metadata"]["annotations"]
    await guarded.wait_recorded("a")
    pods.behave("", BROKEN, method="POST")
    refused = await guarded.workload("a").scale(1, Route.SCALE_MERGE)
    start = "one or more pods failed to prepare for shutdown."
    assert refused.message.startswith(guarded.refusal("a", (2, 1), start))
    await guarded.assert_judged()


async def test_called_through_a_service(world: World) -> None:
    """DEP-17, SEED-096: as the shipped manifests have it, with the default certificate's name."""
    pods = await world.serve_pods()
    zone = prepared_zone(pods, ZoneSpec(name="a"))
    name = f"rollout-operator.{world.namespace}.svc"
    guarded = await guard(
        world,
        zone,
        pods=pods,
        flags=(f"-server-tls.self-signed-cert.dns-name={name}",),
        registration={"service": "rollout-operator"},
    )

    answer = await guarded.workload("a").scale(1, Route.SCALE_PUT_FRESH)

    assert answer.status == 200, answer
    assert sorted(call.pod for call in pods.calls) == ["a-1", "a-2"]
    await guarded.wait_recorded("a")
    await guarded.assert_judged()


async def test_ordinals_that_start_later_and_no_group(world: World) -> None:
    """D-10, PREP-09, SEED-092: `ordinals.start: 3` counts; without a group nothing waits."""
    pods = await world.serve_pods()
    zones = [
        prepared_zone(pods, ZoneSpec(name="late", group="late", first_ordinal=3)),
        prepared_zone(pods, ZoneSpec(name="lone", group=None), wait="1h"),
        prepared_zone(pods, ZoneSpec(name="other", group=None), wait="1h"),
    ]
    guarded = await guard(world, *zones, pods=pods)
    await world.kubelet.make_unready("other-0")

    names = ("late", "lone", "other")
    answers = {name: await guarded.workload(name).scale(1, Route.SCALE_MERGE) for name in names}

    assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(names, 200)
    # Pods of one set are called at the same time, those of several one after the other.
    called = [call.pod for call in pods.calls]
    pairs = [set(called[start : start + 2]) for start in range(0, len(called), 2)]
    assert pairs == [{"late-4", "late-5"}, {"lone-1", "lone-2"}, {"other-1", "other-2"}]
    await guarded.wait_recorded(*names)
    await world.wait_ready(["late", "lone"])
    await guarded.assert_judged()
