"""The shipped manifests on the real API server: which requests they bring to the operator."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.kustomize import render
from tests.rendered import (
    CERTIFICATES,
    LEAST,
    MANIFESTS,
    MUTATING,
    NETWORK,
    NETWORK_PARAMETERS,
    PRIORITY,
    VALIDATING,
    WEBHOOKS,
    install,
)
from tests.rendered import DEPLOYMENTS as FOR_DEPLOYMENTS
from tests.system.guarded import NO_DOWNSCALE
from tests.system.installing import CONFIGURATIONS, installed, trust
from tests.system.starts import Ended, run_words
from tests.system.waits import wait_true
from tests.world.api import (
    DEPLOYMENTS,
    PATCH_TYPES,
    REPLICASETS,
    STATEFULSETS,
    ApiError,
    Json,
    Resource,
)
from tests.world.clients import EVERY_ROUTE, OF_ANY_COUNT, Route, Workload, workload_body
from tests.world.hooks import BUDGET_HOOKS, Hooks, Registration
from tests.world.manifests import KINDS
from tests.world.operatorproc import TLS_FLAG
from tests.world.pki import make_pki
from tests.world.plane import ADMIN
from tests.world.reviews import Reviewer
from tests.world.world import World

pytestmark = pytest.mark.controlplane

SERVICE: Final = "rollout-operator"
PATHS: Final = ("/admission/no-downscale", "/admission/prepare-downscale")
DOWNSCALE_HOOKS: Final = ("no-downscale", "prepare-downscale")
SOON: Final = timedelta(seconds=30)


def _hooks(world: World) -> Hooks:
    """Return the two shipped configurations, which are called like those of tests."""
    return Hooks(world.api, world.namespace, Registration(port=1))


@pytest.mark.parametrize("overlay", ["with-webhooks", "ha"])
async def test_an_overlay_is_accepted_as_it_is(world: World, overlay: str) -> None:
    """SEED-148, DEP-84: each object of the overlay passes a dry run of the real server."""
    await _assert_accepted(world, render(MANIFESTS / "overlays" / overlay))


async def test_a_hardened_one_is_accepted(world: World, tmp_path: Path) -> None:
    """DEP-84: so are the components that no overlay has."""
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


async def test_seed148_as_shipped_it_refuses_a_downscale(world: World, tmp_path: Path) -> None:
    """SEED-148, SEC-18, D-60, DEP-82: rights, Service, names and flags fit, with nothing added.

    The least rights are enough.
    """
    kept = ZoneSpec(name="kept", group=None, labels={NO_DOWNSCALE: "true"})
    await world.create(ZoneSpec(name="free", group=None), kept)
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
        for kind, resource in CONFIGURATIONS.items():
            for one in objects:
                if one["kind"] == kind:
                    step = {"op": "replace", "value": operator.tls_port}
                    path = "/webhooks/0/clientConfig/service/port"
                    await world.api.patch(
                        resource, "", one["metadata"]["name"], [{**step, "path": path}], kind="json"
                    )
        hooks = _hooks(world)
        await hooks.wait_injected()
        await hooks.wait_called("free")
        for route in (Route.MERGE, Route.SCALE_MERGE):
            answer = await Workload(api=world.api, namespace=world.namespace, name="kept").scale(
                2, route
            )
            assert (answer.status, "has the label" in answer.message) == (400, True), answer
        operator.kill()  # before its rights are gone


async def test_dep86_only_decreases_reach_the_operator(world: World, tmp_path: Path) -> None:
    """DEP-86, SEC-23: checked on the server's own reading of the conditions, by every route."""
    pki = make_pki(tmp_path, more_names=[f"{SERVICE}.{world.namespace}.svc"])
    await world.create(
        ZoneSpec(name="a", labels={"some": "label"}), ZoneSpec(name="probe", replicas=1)
    )
    workload = Workload(api=world.api, namespace=world.namespace, name="a", label="some")
    async with (
        Reviewer(pki) as reviewer,
        installed(world, tmp_path / "x", WEBHOOKS, port=reviewer.port) as objects,
    ):
        await trust(world, objects, pki.ca.read_bytes())
        await _hooks(world).wait_called("probe")
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
                assert requested == list(PATHS) or (route.is_stale and requested == [PATHS[1]]), (
                    route
                )
                wanted = 1 if route is Route.PUT_OMITTED else count
                assert {each.replicas for each in reviewer.seen} == {(3, wanted)}, route


async def test_dep86_ordinals_that_are_left_out_reach_the_operator(
    world: World, tmp_path: Path
) -> None:
    """DEP-86, SI-10, SI-14, FP-29: `spec.ordinals.start` takes pods away without fewer replicas."""
    pki = make_pki(tmp_path, more_names=[f"{SERVICE}.{world.namespace}.svc"])
    await world.create(ZoneSpec(name="a", first_ordinal=2), ZoneSpec(name="probe", replicas=1))
    async with (
        Reviewer(pki) as reviewer,
        installed(world, tmp_path / "x", WEBHOOKS, port=reviewer.port) as objects,
    ):
        await trust(world, objects, pki.ca.read_bytes())
        await _hooks(world).wait_called("probe")
        # From 2, 3 and 4.
        changes = {
            (0, 5): False, (1, 4): False, (1, 5): False, (2, 4): False, (0, 9): False,
            (0, 3): True, (1, 3): True, (3, 3): True, (3, 2): True, (3, 9): True, (0, 4): True,
        }  # fmt: skip
        for (first, replicas), is_requested in changes.items():
            reviewer.seen.clear()
            spec = {"ordinals": {"start": first}, "replicas": replicas}
            path = STATEFULSETS.path(world.namespace, "a")
            answer = await world.api.exchange(
                "PATCH",
                path,
                body={"spec": spec},
                query={"dryRun": "All"},
                content_type=PATCH_TYPES["merge"],
            )
            assert answer.status == 200, answer
            requested = sorted(each.path for each in reviewer.seen)
            assert requested == (list(PATHS) if is_requested else []), (first, replicas)


async def test_dep87_a_dead_operator_blocks_downscales_only(world: World, tmp_path: Path) -> None:
    """DEP-87, SEC-23, SEED-107: its own Deployment comes, scales, changes and goes all the same.

    Sets are created, scaled up, changed and deleted, pods too. Only fewer replicas are refused.
    """
    await world.create(ZoneSpec(name="probe", replicas=1))
    workload = Workload(api=world.api, namespace=world.namespace, name="probe")
    everything = (WEBHOOKS, LEAST, FOR_DEPLOYMENTS)
    async with installed(world, tmp_path, *everything):
        await _wait_dead(workload)
        for route in OF_ANY_COUNT:
            if route is not Route.UNLABEL:
                answer = await workload.scale(2, route, is_dry_run=True)
                assert answer.status == 200, route
                answer = await workload.scale(0, route, is_dry_run=True)
                assert (answer.status, "failed calling webhook" in answer.message) == (500, True)
        await world.set_image(["probe"], "v2")
        await world.delete(STATEFULSETS, "probe")
        await _assert_own_workloads_are_free(world)
        await _assert_names_alone_free_nothing(world)
        other = await _create(world, DEPLOYMENTS, "another")
        assert (await other.scale(1, Route.MERGE)).status == 500, "the others are guarded"
        assert (await other.scale(9, Route.MERGE)).status == 200


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
            assert (answer.status, "failed calling webhook" in answer.message) == (500, True), route
    owner = await _owner_reference(world, SERVICE)
    patch = {"metadata": {"ownerReferences": [owner]}, "spec": {"replicas": 0}}
    with pytest.raises(ApiError, match="failed calling webhook"):
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


async def test_dep85_uninstall_webhooks_removes_exactly_ours(world: World, tmp_path: Path) -> None:
    """DEP-85: the way out of a stuck cluster; a dry run and missing rights remove nothing."""
    await world.create(ZoneSpec(name="probe", replicas=1))
    workload = Workload(api=world.api, namespace=world.namespace, name="probe")
    foreign = await world.register(
        Registration(port=1, hooks=("foreign",), failure_policy="Ignore", labels={})
    )
    admin = world.plane.kubeconfig(tmp_path / "admin.conf", world.plane.tokens[ADMIN])
    poor = world.plane.kubeconfig(tmp_path / "poor.conf", world.token)
    world.may_be_forbidden = True
    async with installed(world, tmp_path / "x", WEBHOOKS):
        await _wait_dead(workload)
        before = await _names(world)
        ours = {f"{hook}-{world.namespace}" for hook in (*DOWNSCALE_HOOKS, *BUDGET_HOOKS)}
        assert ours < before

        dry = await _uninstall(world, admin, "-dry-run")
        assert (dry.code, dry.err) == (0, "")
        assert {line for line in dry.out.splitlines() if "would be deleted" in line} == {
            f"{_kind_of(name)} {name}: would be deleted" for name in ours
        }
        refused = await _uninstall(world, poor)
        assert refused.code == 1
        assert "forbidden" in refused.out
        assert "4 failed" in "\n".join(refused.complaints)
        assert await _names(world) == before

        done = await _uninstall(world, admin)
        assert (done.code, done.err) == (0, "")
        assert done.out.count(": deleted") == 4
        assert await _names(world) == before - ours
        assert foreign.name("foreign") in await _names(world)
        await _wait_status(workload, Route.MERGE, lambda status: status == 200)
        again = await _uninstall(world, admin)
        assert again.out == f"there are no webhook configurations of namespace {world.namespace}\n"


def _kind_of(name: str) -> str:
    return MUTATING if name.startswith("prepare-") else VALIDATING


async def _uninstall(world: World, kubeconfig: Path, *words: str) -> Ended:
    return await asyncio.to_thread(
        run_words,
        "uninstall-webhooks",
        f"-namespace={world.namespace}",
        f"-kubeconfig={kubeconfig}",
        *words,
    )


async def _names(world: World) -> set[str]:
    """Return the names of all configurations that this world has to do with."""
    return {
        one["metadata"]["name"]
        for resource in CONFIGURATIONS.values()
        for one in await world.api.items(resource)
        if world.namespace in one["metadata"]["name"]
    }


async def _wait_dead(workload: Workload) -> None:
    """Wait until the API server calls the configurations, and no answer comes."""
    await _wait_status(workload, Route.SCALE_MERGE, lambda status: status != 200)


async def _wait_status(workload: Workload, route: Route, fits: Callable[[int], bool]) -> None:
    async def is_answered() -> bool:
        return fits((await workload.scale(0, route, is_dry_run=True)).status)

    await wait_true("answered so", is_answered, SOON)


async def _create(world: World, resource: Resource, name: str) -> Workload:
    await world.post(resource, workload_body(resource, name, 2))
    return Workload(api=world.api, namespace=world.namespace, name=name, resource=resource)
