"""How prepare-downscale is called: dry runs, the same again, other registrations, other sets."""

import asyncio
import copy
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.forgeries import change_path, change_port, change_service, name_a_target
from tests.system.guarded import LAST_DOWNSCALE, MIN_TIME, PREPARE, guard, prepared_zone
from tests.system.review_requests import fetch_review, send_request
from tests.world.api import STATEFULSETS
from tests.world.clients import EVERY_ROUTE, Route
from tests.world.observed import Request
from tests.world.webpods import BROKEN, Respond
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


async def test_si16_the_same_requested_again_gets_the_same_answer(world: World) -> None:
    """SI-16, D-24, FP-23: one after another, at once, and while the first is prepared."""
    pods = await world.serve_pods()
    pods.behave("", Respond(after=timedelta(seconds=0.5)))
    names = {"whole": "", "scale": "scale"}
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name)) for name in names]
    guarded = await guard(world, *zones, pods=pods)
    for name, subresource in names.items():
        review = await fetch_review(guarded, name, 1, subresource=subresource)
        replies = list(await asyncio.gather(*(send_request(guarded, review) for _ in range(5))))
        replies += [await send_request(guarded, review) for _ in range(5)]

        # Each carries the time of its own answer, which is the earliest that it can be written.
        assert len({replace(reply, patch=()) for reply in replies}) == 1, replies
        assert replies[0].is_allowed
        assert replies[0].message == (
            f"downscale of statefulsets/{name} in {world.namespace} from 3 to 1 replicas is allowed"
            " -- all pods successfully prepared for shutdown."
        )
        assert len(replies[0].patch) == (0 if subresource else 1)
        found = await world.get(STATEFULSETS, name)
        assert LAST_DOWNSCALE not in found["metadata"]["annotations"], "nothing has happened"
        # The API server's own write follows, for which no pod is called any more.
        answer = await guarded.workload(name).scale(1, Route.SCALE_MERGE)
        assert answer.status == 200
        await guarded.wait_recorded(name)
        calls = [(call.pod, call.method) for call in pods.calls if call.pod.startswith(name)]
        assert sorted(calls) == [(f"{name}-1", "POST"), (f"{name}-2", "POST")]


async def test_si16_a_refusal_is_repeated_too(world: World) -> None:
    """SI-16, SI-12: sent at once, all learn of the one failure; no call is doubled."""
    pods = await world.serve_pods()
    pods.behave("a-2", Respond(status=500, after=timedelta(seconds=0.5)), method="POST")
    guarded = await guard(world, prepared_zone(pods, ZoneSpec(name="a")), pods=pods)
    review = await fetch_review(guarded, "a", 2)

    replies = await asyncio.gather(*(send_request(guarded, review) for _ in range(5)))

    assert len(set(replies)) == 1
    assert not replies[0].is_allowed
    assert replies[0].message.endswith("POST a-2: HTTP status 500")
    assert [call.method for call in pods.calls] == ["POST", "DELETE"]


async def test_si13_reviews_that_the_store_does_not_confirm(world: World) -> None:
    """SI-13, SI-10, SEC-09, T-07: counts, names, UIDs, labels and places that the store denies.

    No pod is called on their word.
    """
    pods = await world.serve_pods()
    guarded = await guard(
        world, prepared_zone(pods, ZoneSpec(name="a")), ZoneSpec(name="b", group=None), pods=pods
    )
    true = await fetch_review(guarded, "a", 1)
    request = true["request"]
    other_uid = request["oldObject"]["metadata"] | {"uid": "11111111-2222-3333-4444-555555555555"}
    forged = {
        "count": request["oldObject"] | {"spec": request["oldObject"]["spec"] | {"replicas": 9}},
        "uid": request["oldObject"] | {"metadata": other_uid},
    }

    for what, old in forged.items():
        reply = await send_request(guarded, true | {"request": request | {"oldObject": old}})
        assert not reply.is_allowed, what
        assert "try again" in reply.message, what
    plain = await fetch_review(guarded, "b", 1)
    for lie in (name_a_target, change_path, change_port, change_service):
        called_pods = copy.deepcopy(plain)
        lie(called_pods["request"], random.Random(1))
        assert (await send_request(guarded, called_pods)).is_allowed, (
            "it has no label, whatever is said"
        )
    elsewhere = request | {"namespace": "kube-system"}
    reply = await send_request(guarded, true | {"request": elsewhere})
    assert not reply.is_allowed

    assert not pods.calls
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
    review = await fetch_review(guarded, "a", 2)

    answer = await guarded.workload("a").scale(2, Route.MERGE)

    assert answer.status == 200, answer
    assert LAST_DOWNSCALE not in answer.body["metadata"]["annotations"]
    await guarded.wait_recorded("a")
    pods.behave("", BROKEN, method="POST")
    refused = await guarded.workload("a").scale(1, Route.SCALE_MERGE)
    start = "one or more pods failed to prepare for shutdown."
    assert refused.message.startswith(guarded.refusal("a", (2, 1), start))
    assert not (await send_request(guarded, review)).is_allowed, "that one has happened already"
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


# What an annotation is set to in a set of that name.
WRONG: Final[Mapping[str, tuple[str, str | None, str]]] = {
    "no-port": ("http-port", None, "-http-port annotation is not set"),
    "no-path": ("http-path", None, "-http-path annotation is not set"),
    "bad-port": ("http-port", "80@127.0.0.1", "-http-port annotation"),
    "bad-path": ("http-path", "../x", "-http-path annotation"),
}


async def test_seed090_what_is_not_said_rightly_refuses(world: World) -> None:
    """SEED-090, PREP-05 to 07, SI-21: and without the label nothing is checked."""
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name)) for name in WRONG]
    guarded = await guard(world, *zones, pods=pods)
    for name, (key, value, end) in WRONG.items():
        await world.annotate(name, **{f"{PREPARE}-{key}": value})
        why = f"the {PREPARE}{end}"
        # The label as it was counts, also where the same request takes it away.
        for route in (Route.MERGE, Route.UNLABEL):
            answer = await guarded.workload(name, label=PREPARE).scale(2, route)
            assert answer.message.startswith(guarded.refusal(name, (3, 2), why)), answer
        await world.label(name, **{PREPARE: None})
        await world.annotate(name, **{PREPARE: "true", MIN_TIME: "soon"})
        answer = await guarded.workload(name).scale(2, Route.SCALE_MERGE)
        assert answer.status == 200
        assert any("set as annotation" in text for text in answer.warnings), "W-49"
    assert not pods.calls
    await guarded.assert_judged()
