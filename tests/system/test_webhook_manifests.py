"""The shipped manifests on the real API server: which requests they bring to the operator."""

from pathlib import Path
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.kustomize import render
from tests.rendered import (
    CERTIFICATES,
    LEAST,
    MANIFESTS,
    NETWORK,
    NETWORK_PARAMETERS,
    PRIORITY,
    WEBHOOKS,
    install,
)
from tests.rendered import DEPLOYMENTS as FOR_DEPLOYMENTS
from tests.system.guarded import NO_DOWNSCALE
from tests.system.installing import CONFIGURATIONS, installed, trust
from tests.system.waits import wait_true
from tests.world.api import (
    DEPLOYMENTS,
    PATCH_TYPES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    ApiError,
    Json,
    Resource,
)
from tests.world.budgets import (
    ZONE_BUDGETS,
    DryRun,
    evict,
    grouped_zones,
    install_kinds,
    zone_budget,
)
from tests.world.clients import EVERY_ROUTE, OF_ANY_COUNT, Route, Workload, workload_body
from tests.world.hooks import BUDGET_HOOKS, Hooks, Registration, Reviewer
from tests.world.manifests import KINDS
from tests.world.operatorproc import TLS_FLAG
from tests.world.pki import make_pki
from tests.world.world import World

pytestmark = pytest.mark.controlplane

SERVICE: Final = "rollout-operator"
PATHS: Final = ("/admission/no-downscale", "/admission/prepare-downscale")
HOOKS: Final = ("no-downscale", "prepare-downscale", *BUDGET_HOOKS)
UNANSWERED: Final = "failed calling webhook"
LABELS: Final = {"rollout-group": "ingester"}
OWN_POD: Final = f"{SERVICE}-6b7f9d5c4-x7k2p"
LOOKALIKES: Final = (f"{SERVICE}-x-10000", f"{SERVICE}-x-22222", f"{SERVICE}-payments-x7k2p")


def _hooks(world: World) -> Hooks:
    """Return the shipped configurations, which are called like those of tests."""
    return Hooks(world.api, world.namespace, Registration(port=1, hooks=HOOKS))


async def test_overlays_and_components_are_accepted_as_they_are(
    world: World, tmp_path: Path
) -> None:
    """SEED-148, DEP-84: each object passes a dry run of the real server."""
    for overlay in ("with-webhooks", "ha"):
        await _assert_accepted(world, render(MANIFESTS / "overlays" / overlay))
    components = (WEBHOOKS, LEAST, PRIORITY, NETWORK, CERTIFICATES)
    await _assert_accepted(world, install(tmp_path, *components, more=[NETWORK_PARAMETERS]))


async def _assert_accepted(world: World, objects: list[Json]) -> None:
    for one in objects:
        if one["kind"] == "Namespace":
            continue
        resource = KINDS[one["kind"]]
        if resource.is_namespaced:
            one["metadata"]["namespace"] = world.namespace
        await world.api.call(
            "PATCH",
            resource.path(world.namespace, one["metadata"]["name"]),
            body=one,
            query={
                "fieldManager": "kubectl",
                "force": "true",
                "dryRun": "All",
                "fieldValidation": "Strict",
            },
            content_type=PATCH_TYPES["apply"],
        )


async def test_seed148_as_shipped_they_refuse_downscales_and_evictions(
    world: World, tmp_path: Path
) -> None:
    """SEED-148, SEC-18, D-60, DEP-82: rights, Service, names and flags fit, with nothing added.

    The least rights are enough.
    """
    await install_kinds(world.api)
    kept = ZoneSpec(name="kept", group=None, labels={NO_DOWNSCALE: "true"})
    free = ZoneSpec(name="free", group=None)
    _, _, *names = await world.create(free, kept, *grouped_zones(replicas=1))
    async with installed(world, tmp_path / "probe", WEBHOOKS, LEAST) as objects:
        (deployment,) = (one for one in objects if one["kind"] == "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        words = [
            word.replace("$(POD_NAMESPACE)", world.namespace)
            for word in container["args"]
            if "kubernetes.namespace" not in word
        ]
        assert TLS_FLAG in words
        operator = await world.operator(*words)
        step = {"op": "replace", "path": "/webhooks/0/clientConfig/service/port"}
        for one in objects:
            if one["kind"] in CONFIGURATIONS:
                resource = CONFIGURATIONS[one["kind"]]
                port = [{**step, "value": operator.tls_port}]
                await world.api.patch(resource, "", one["metadata"]["name"], port, kind="json")
        hooks = _hooks(world)
        await hooks.wait_injected()
        await hooks.wait_called("free")
        workload = Workload(api=world.api, namespace=world.namespace, name="kept")
        for route in (Route.MERGE, Route.SCALE_MERGE):
            answer = await workload.scale(2, route)
            assert (answer.status, "has the label" in answer.message) == (400, True), answer

        await world.post(ZONE_BUDGETS, zone_budget("ingester", LABELS, maxUnavailable=0))

        async def is_refused() -> bool:
            answer = await evict(world.api, world.namespace, f"{names[0]}-0", dry_run=DryRun.QUERY)
            return answer.status == 403 and "max unavailable = 0" in answer.message

        await wait_true("refused", is_refused)
        operator.kill()  # before its rights are gone


async def test_dep86_what_reaches_the_operator(world: World, tmp_path: Path) -> None:
    """DEP-86, SEC-23: checked on the server's own reading of the conditions, by every route.

    Decreases, evictions, and budgets whose meaning changes; no other request for a pod or a set.
    """
    await install_kinds(world.api)
    pki = make_pki(tmp_path, more_names=[f"{SERVICE}.{world.namespace}.svc"])
    await world.create(
        ZoneSpec(name="a", labels={"some": "label"}),
        ZoneSpec(name="later", first_ordinal=2),
        ZoneSpec(name="probe", replicas=1),
    )
    async with (
        Reviewer(pki) as reviewer,
        installed(world, tmp_path / "x", WEBHOOKS, port=reviewer.port) as objects,
    ):
        await trust(world, objects, pki.ca.read_bytes())
        await _hooks(world).wait_called("probe")
        await _assert_decreases_are_reviewed(world, reviewer)
        await _assert_ordinals_are_reviewed(world, reviewer)
        await _assert_budgets_are_reviewed(world, reviewer)


async def _assert_decreases_are_reviewed(world: World, reviewer: Reviewer) -> None:
    workload = Workload(api=world.api, namespace=world.namespace, name="a", label="some")
    reviewer.seen.clear()
    for upward in OF_ANY_COUNT:
        for count in (3, 4, 100):
            await workload.scale(count, upward, is_dry_run=True)
    await world.annotate("a", remark="new")
    await world.label("a", remark="new")
    await world.set_image(["a"], "v2")
    assert reviewer.seen == [], "nothing but a decrease is reviewed"
    for route in EVERY_ROUTE:
        for count in (2, 0):
            reviewer.seen.clear()
            await workload.scale(count, route, is_dry_run=True)
            requested = sorted(each.path for each in reviewer.seen)
            # A stale one is turned away before validating webhooks are called.
            is_late = route.is_stale and requested == [PATHS[1]]
            assert requested == list(PATHS) or is_late, route
            wanted = 1 if route is Route.PUT_OMITTED else count
            assert {each.replicas for each in reviewer.seen} == {(3, wanted)}, route


async def _assert_ordinals_are_reviewed(world: World, reviewer: Reviewer) -> None:
    """SI-10, SI-14, FP-29: `spec.ordinals.start` takes pods away without fewer replicas."""
    # From 2, 3 and 4.
    changes = {
        (0, 5): False, (1, 4): False, (1, 5): False, (2, 4): False, (0, 9): False,
        (0, 3): True, (1, 3): True, (3, 3): True, (3, 2): True, (3, 9): True, (0, 4): True,
    }  # fmt: skip
    for (first, replicas), is_requested in changes.items():
        reviewer.seen.clear()
        answer = await world.api.exchange(
            "PATCH",
            STATEFULSETS.path(world.namespace, "later"),
            body={"spec": {"ordinals": {"start": first}, "replicas": replicas}},
            query={"dryRun": "All"},
            content_type=PATCH_TYPES["merge"],
        )
        assert answer.status == 200, answer
        requested = sorted(each.path for each in reviewer.seen)
        assert requested == (list(PATHS) if is_requested else []), (first, replicas)


async def _assert_budgets_are_reviewed(world: World, reviewer: Reviewer) -> None:
    annotated: Json = {"metadata": {"annotations": {"a": "b"}}}
    reviewer.seen.clear()
    await world.post(ZONE_BUDGETS, zone_budget("old", LABELS))
    for patch in ({"spec": {"maxUnavailable": 2}}, annotated):
        await world.patch(ZONE_BUDGETS, "old", patch)
    seen = [(each.path, each.request["operation"]) for each in reviewer.seen]
    path = "/admission/zpdb-validation"
    assert seen == [(path, "CREATE"), (path, "UPDATE"), (path, "UPDATE")]
    reviewer.seen.clear()
    await world.patch(ZONE_BUDGETS, "old", {"metadata": {"labels": {"a": "b"}}})
    await world.delete(ZONE_BUDGETS, "old")
    await world.patch(PODS, "probe-0", annotated)
    assert reviewer.seen == []
    await evict(world.api, world.namespace, "probe-0")
    (eviction,) = reviewer.seen
    assert eviction.path == "/admission/pod-eviction"
    target = (eviction.request["subResource"], eviction.request["name"])
    assert target == ("eviction", "probe-0")


async def test_dep87_what_a_dead_operator_blocks(world: World, tmp_path: Path) -> None:
    """DEP-87, SEC-23, SEED-107, W-47: fewer replicas, evictions, and new meanings of budgets.

    Sets are created, scaled up, changed and deleted, pods too; its own Deployment comes, scales,
    changes and goes, and its own pod can be drained, and no other whose name begins like it.
    """
    await install_kinds(world.api)
    await world.create(ZoneSpec(name="probe", replicas=1))
    workload = Workload(api=world.api, namespace=world.namespace, name="probe")
    budget = zone_budget("old", LABELS)
    budget["metadata"]["finalizers"] = ["test/one"]
    await world.post(ZONE_BUDGETS, budget)
    for name in (OWN_POD, *LOOKALIKES):
        spec = {"containers": [{"name": SERVICE, "image": "v1"}]}
        await world.post(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        )
    other = await _create(world, DEPLOYMENTS, "another")
    async with installed(world, tmp_path, WEBHOOKS, LEAST, FOR_DEPLOYMENTS):
        await _wait_dead(world, workload, other)
        await _assert_budgets_are_held(world)
        for route in OF_ANY_COUNT:
            if route is not Route.UNLABEL:
                answer = await workload.scale(2, route, is_dry_run=True)
                assert answer.status == 200, route
                answer = await workload.scale(0, route, is_dry_run=True)
                assert (answer.status, UNANSWERED in answer.message) == (500, True)
        await world.set_image(["probe"], "v2")
        await world.delete(STATEFULSETS, "probe")
        await _assert_own_workloads_are_free(world)
        await _assert_names_alone_free_nothing(world)
        assert (await other.scale(1, Route.MERGE)).status == 500, "the others are guarded"
        assert (await other.scale(9, Route.MERGE)).status == 200


async def _assert_budgets_are_held(world: World) -> None:
    """Evictions are held; labels and ends of budgets need no operator."""
    with pytest.raises(ApiError, match=UNANSWERED):
        await world.post(ZONE_BUDGETS, zone_budget("new", LABELS))
    for held in ({"spec": {"maxUnavailable": 2}}, {"metadata": {"annotations": {"a": "b"}}}):
        with pytest.raises(ApiError, match=UNANSWERED):
            await world.patch(ZONE_BUDGETS, "old", held)
    await world.patch(ZONE_BUDGETS, "old", {"metadata": {"labels": {"a": "b"}}})
    await world.delete(ZONE_BUDGETS, "old")
    await world.patch(ZONE_BUDGETS, "old", {"metadata": {"finalizers": []}})
    assert await world.api.items(ZONE_BUDGETS, world.namespace) == []
    await world.delete(PODS, "probe-0")
    for name in LOOKALIKES:
        answer = await evict(world.api, world.namespace, name)
        assert (answer.status, UNANSWERED in answer.message) == (500, True), (name, answer)
    gone = await evict(world.api, world.namespace, OWN_POD)
    assert gone.status == 201, gone


async def _assert_own_workloads_are_free(world: World) -> None:
    """Scale the operator to nothing and back, update it and replace it."""
    own = Workload(api=world.api, namespace=world.namespace, name=SERVICE, resource=DEPLOYMENTS)
    for count in (1, 0, 2, 1):
        for route in OF_ANY_COUNT:
            if route is not Route.UNLABEL:
                answer = await own.scale(count, route)
                assert answer.status == 200, (count, route, answer)
    patch = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    await world.patch(DEPLOYMENTS, SERVICE, patch)
    replicaset = await _create_replicaset(world, f"{SERVICE}-6b7f9d5c4", owner=SERVICE)
    assert (await replicaset.scale(0, Route.MERGE)).status == 200, "as its controller does it"
    (manifest,) = (one for one in render(MANIFESTS / "base") if one["kind"] == "Deployment")
    await world.delete(DEPLOYMENTS, SERVICE)
    await world.post(DEPLOYMENTS, manifest)


async def _assert_names_alone_free_nothing(world: World) -> None:
    """SI-14, DEP-87: a ReplicaSet is the operator's by its controller; no request makes it so."""
    another = await _create(world, DEPLOYMENTS, f"{SERVICE}-web")
    named = await _create_replicaset(world, f"{SERVICE}-payments")
    lookalike = await _create_replicaset(world, f"{SERVICE}-6b7f9d5c5")
    of_another = await _create_replicaset(world, f"{SERVICE}-6b7f9d5c6", owner=another.name)
    for guarded in (another, named, lookalike, of_another):
        for route in (Route.MERGE, Route.SCALE_MERGE):
            answer = await guarded.scale(0, route)
            assert (answer.status, UNANSWERED in answer.message) == (500, True), route
    owner = await _owner_reference(world, SERVICE)
    patch = {"metadata": {"ownerReferences": [owner]}, "spec": {"replicas": 0}}
    with pytest.raises(ApiError, match=UNANSWERED):
        await world.patch(REPLICASETS, named.name, patch)


async def _create_replicaset(world: World, name: str, owner: str = "") -> Workload:
    body = workload_body(REPLICASETS, name, 2)
    if owner:
        body["metadata"]["ownerReferences"] = [await _owner_reference(world, owner)]
    await world.post(REPLICASETS, body)
    return Workload(api=world.api, namespace=world.namespace, name=name, resource=REPLICASETS)


async def _owner_reference(world: World, deployment: str) -> Json:
    found = await world.get(DEPLOYMENTS, deployment)
    uid = found["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": uid}
    return {**owner, "controller": True}


async def _wait_dead(world: World, *workloads: Workload) -> None:
    """Wait until the API server calls each configuration, and no answer comes.

    It takes them up one by one. Of the two about downscales the mutating one is called first, and
    alone it is not called for Deployments.
    """
    budget, path = zone_budget("new", LABELS), ZONE_BUDGETS.path(world.namespace)

    async def are_dead() -> bool:
        answers = [await one.scale(0, Route.MERGE, is_dry_run=True) for one in workloads]
        answers.append(await evict(world.api, world.namespace, "probe-0", dry_run=DryRun.QUERY))
        answers.append(await world.api.exchange("POST", path, body=budget, query={"dryRun": "All"}))
        is_mutating_called = "prepare-downscale" in answers[0].message
        return is_mutating_called and all(UNANSWERED in one.message for one in answers)

    await wait_true("dead", are_dead)


async def _create(world: World, resource: Resource, name: str) -> Workload:
    await world.post(resource, workload_body(resource, name, 2))
    return Workload(api=world.api, namespace=world.namespace, name=name, resource=resource)
