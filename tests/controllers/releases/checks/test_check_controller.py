"""HealthChecks in a simulated cluster: what they find, when they start anew, who else writes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from rollout_lab.model.history import Called
from rollout_lab.model.request import STRATEGIC_PATCH, ApiRequest
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import (
    HEALTH_CHECKS,
    IMAGE_POLICIES,
    KUSTOMIZATIONS,
    MULTI_AZ_ROLLOUTS,
    NAMESPACES,
    OCI_REPOSITORIES,
    ROLLOUTS,
    STATEFULSETS,
    JsonObject,
)
from rollout_operator.model.units import format_rfc3339
from tests.controllers.releases.world import ReleaseSandbox
from tests.virtual_time import in_virtual_time

NAMED: Final = {"healthcheck.kuberik.com/kustomization": "app"}
GROUP: Final = {"healthcheck.kuberik.com/rollout-group": "db"}
POLICY: Final = {"healthcheck.kuberik.com/multi-az-rollout": "db"}
SOON: Final = {"healthcheck.kuberik.com/requeue-interval": "5s"}
WEB: Final = {"app": "web"}
(APPLIED,) = KUSTOMIZATIONS


async def show(world: ReleaseSandbox, name: str = "check") -> tuple[str, str]:
    """Return status and message of a check."""
    status = await world.get_status(HEALTH_CHECKS, name)
    return status.get("status", ""), status.get("message", "")


async def create_check(
    world: ReleaseSandbox, of: str = "kustomization", **annotations: str
) -> None:
    named = annotations or NAMED
    await world.create(HEALTH_CHECKS, "check", {"class": of}, annotations=named, labels=WEB)


async def apply_inventory(world: ReleaseSandbox, *ids: str, **more: Any) -> None:
    """Have Flux say that a Kustomization is applied, with these objects."""
    since = format_rfc3339(world.sandbox.api.now())
    ready = {"type": "Ready", "status": "True", "reason": "Ok", "message": "applied"}
    entries = [{"id": one, "v": "v1"} for one in ids]
    status = {
        "observedGeneration": 1,
        "conditions": [{**ready, "lastTransitionTime": since, **more}],
        "inventory": {"entries": entries},
    }
    await world.patch(APPLIED, "app", {"status": status}, part="status")


async def create_zones(world: ReleaseSandbox, letters: str = "ab") -> None:
    """Create zones of a rollout group, and wait until their pods are ready."""
    for letter in letters:
        zone = ZoneSpec(name=f"db-{letter}", group="db", replicas=2, labels={"app": "db"})
        body = statefulset(zone, world.sandbox.namespace)
        await world.sandbox.call(
            ApiRequest(
                verb="create",
                resource=STATEFULSETS,
                namespace=world.sandbox.namespace,
                body=body,
            )
        )
    await world.sleep(60)


async def roll_out(world: ReleaseSandbox, image: str = "v2", letters: str = "ab") -> None:
    pod: JsonObject = {"spec": {"containers": [{"name": "app", "image": image}]}}
    for letter in letters:
        await world.sandbox.call(
            ApiRequest(
                verb="patch",
                resource=STATEFULSETS,
                namespace=world.sandbox.namespace,
                name=f"db-{letter}",
                content_type=STRATEGIC_PATCH,
                body={"spec": {"template": pod}},
            )
        )


@in_virtual_time
async def test_a_kustomization_and_what_it_applied() -> None:
    """RT-130, RT-131, RT-133, RT-135: by the objects as they are, at its interval."""
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        await world.create(APPLIED, "app", {"sourceRef": {"kind": "GitRepository", "name": "x"}})
        await create_check(world, **NAMED, **SOON)
        await world.start()
        await world.sleep(5)
        assert await show(world) == ("Pending", "it has applied nothing yet")
        sets = [f"default_db-{letter}_apps_StatefulSet" for letter in "ab"]
        await apply_inventory(world, *sets, "default_gone_apps_StatefulSet", "default_s__Secret")
        await world.sleep(5)
        assert await show(world) == ("Healthy", "applied")
        await roll_out(world)
        await world.sleep(6)
        assert (await show(world))[0] == "Pending"
        await world.sleep(120)
        assert (await show(world))[0] == "Healthy"
        reads = {
            called.request.resource.plural
            for called in world.sandbox.history.list_all(Called)
            if called.request.verb == "get" and called.actor == "operator-1"
        }
        assert "secrets" not in reads
        writes = world.count_writes(HEALTH_CHECKS)
        await world.sleep(300)
        assert world.count_writes(HEALTH_CHECKS) == writes


@in_virtual_time
async def test_what_is_in_another_namespace_is_refused_where_a_flag_says_so() -> None:
    """RELB-26: at once, and without a read."""
    async with ReleaseSandbox.opened() as world:
        await create_check(world, **{"healthcheck.kuberik.com/kustomization": "x/app"})
        await world.start("-releases.no-cross-namespace-refs")
        await world.sleep(5)
        assert await show(world) == (
            "Unhealthy",
            "Kustomization x/app: other namespaces are left alone by"
            " -releases.no-cross-namespace-refs",
        )


@in_virtual_time
async def test_what_cannot_be_read_is_no_failure_at_once() -> None:
    """RELB-37, RT-129: after three reads it is, and it is over as soon as it can be read."""
    async with ReleaseSandbox.opened() as world:
        await create_check(world)
        await world.start()
        await world.sleep(35)
        assert (await show(world))[0] == "Pending"
        await world.sleep(60)
        status, message = await show(world)
        assert (status, "not found" in message) == ("Unhealthy", True)
        failed = await world.get_status(HEALTH_CHECKS, "check")
        assert failed["lastErrorTime"] == failed["lastChangeTime"]
        await world.create(APPLIED, "app", {"sourceRef": {"kind": "GitRepository", "name": "x"}})
        await world.sleep(5)
        assert (await show(world))[0] == "Pending"


@in_virtual_time
async def test_a_failure_of_flux_counts_once_it_lasts() -> None:
    """RELB-37, REL-113: by the grace of the annotation, and by each change of the Kustomization."""
    async with ReleaseSandbox.opened() as world:
        await world.create(APPLIED, "app", {"sourceRef": {"kind": "GitRepository", "name": "x"}})
        slow = {
            "healthcheck.kuberik.com/requeue-interval": "1h",
            "healthcheck.kuberik.com/failure-grace": "1m",
        }
        await create_check(world, **NAMED, **slow)
        await world.start()
        await apply_inventory(world, status="False", reason="BuildFailed")
        await world.sleep(40)
        assert (await show(world))[0] == "Pending"
        await world.sleep(30)
        assert await show(world) == ("Unhealthy", "BuildFailed: applied")


@in_virtual_time
async def test_an_annotation_that_is_none() -> None:
    """REL-107."""
    async with ReleaseSandbox.opened() as world:
        await create_check(world, **{"healthcheck.kuberik.com/kustomization": "a/b/c/d"})
        await world.start()
        await world.sleep(5)
        status, message = await show(world)
        assert (status, "is no name or namespace/name" in message) == ("Unhealthy", True)


@in_virtual_time
async def test_zones_of_a_group_and_of_a_policy() -> None:
    """RELB-36: a check is healthy again only after the last zone."""
    for of, named in (("rollout-group", GROUP), ("multi-az-rollout", POLICY)):
        async with ReleaseSandbox.opened() as world:
            await create_zones(world)
            spec = {"statefulSetSelector": {"matchLabels": {"app": "db"}}}
            await world.create(MULTI_AZ_ROLLOUTS, "db", {**spec, "rollingUpdate": {}})
            await create_check(world, of, **named, **SOON)
            await world.start("-multi-az-rollouts.enabled")
            await world.sleep(30)
            assert (await show(world))[0] == "Healthy"
            await roll_out(world)
            while (await show(world))[0] == "Healthy":
                await world.sleep(1)
            while (await show(world))[0] == "Pending":
                await world.sleep(1)
            assert (await show(world))[0] == "Healthy"
            for letter in "ab":
                sts = await world.get(STATEFULSETS, f"db-{letter}")
                assert sts["status"]["updatedReplicas"] == sts["status"]["readyReplicas"] == 2


@in_virtual_time
async def test_a_group_that_only_a_person_moves_is_unhealthy() -> None:
    """RELB-36: as long as that holds, and since it began."""
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        await create_check(world, "rollout-group", **GROUP, **SOON)
        await world.start()
        await world.sleep(30)
        rolling: JsonObject = {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}
        await world.patch(STATEFULSETS, "db-a", rolling)
        await roll_out(world, letters="b")
        await world.sleep(6)
        status, message = await show(world)
        assert (status, "RollingUpdate" in message) == ("Unhealthy", True)
        began = (await world.get_status(HEALTH_CHECKS, "check"))["lastErrorTime"]
        await world.sleep(60)
        assert (await world.get_status(HEALTH_CHECKS, "check"))["lastErrorTime"] == began
        back: JsonObject = {"spec": {"updateStrategy": {"type": "OnDelete"}}}
        await world.patch(STATEFULSETS, "db-a", back)
        await world.sleep(6)
        assert (await show(world))[0] == "Pending"
        await world.sleep(120)
        assert (await show(world))[0] == "Healthy"


async def announce(world: ReleaseSandbox, tag: str) -> None:
    """Have the image policy select a tag."""
    status = {"latestRef": {"name": "registry/app", "tag": tag}}
    await world.patch(IMAGE_POLICIES[0], "app", {"status": status}, part="status")


async def create_release(world: ReleaseSandbox, **selector: object) -> None:
    """Create a Rollout that bakes by the check, and what announces its releases."""
    spec = {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}
    await world.create(IMAGE_POLICIES[0], "app", spec)
    await announce(world, "1.0.0")
    rollout = {
        "releasesImagePolicy": {"name": "app"},
        "bakeTime": "10s",
        "healthCheckSelector": {"selector": {"matchLabels": WEB}, **selector},
    }
    await world.create(ROLLOUTS, "app", rollout)


async def show_bake(world: ReleaseSandbox) -> str:
    status = await world.get_status(ROLLOUTS, "app")
    return ", ".join(f"{one['version']['tag']} {one['bakeStatus']}" for one in status["history"])


@in_virtual_time
async def test_a_deployment_resets_what_it_selects_and_others_write_the_rest() -> None:
    """REL-106, RT-120, RT-122, RT-128: a class of others is reset, and never evaluated."""
    async with ReleaseSandbox.opened() as world:
        await create_check(world, "of-others")
        await world.create(HEALTH_CHECKS, "other", {"class": "of-others"})
        healthy = {"status": "Healthy", "lastChangeTime": "2026-01-01T00:00:00Z", "message": "ok"}
        for name in ("check", "other"):
            await world.patch(HEALTH_CHECKS, name, {"status": healthy}, part="status")
        await create_release(world)
        await world.start()
        await world.sleep(30)
        assert await show(world) == ("Pending", "reset for 1.0.0 of default/app")
        assert await show(world, "other") == ("Healthy", "ok")
        assert await show_bake(world) == "1.0.0 Deploying"
        writes = world.count_writes(HEALTH_CHECKS)
        now = format_rfc3339(world.sandbox.api.now() + timedelta(seconds=1))
        again: JsonObject = {"status": {"status": "Healthy", "lastChangeTime": now}}
        await world.patch(HEALTH_CHECKS, "check", again, part="status")
        await world.sleep(60)
        assert await show_bake(world) == "1.0.0 Succeeded"
        assert world.count_writes(HEALTH_CHECKS) == writes == 1


def stamped(world: ReleaseSandbox, status: str, seconds: float = 0) -> JsonObject:
    """Return a status as Go writes it, at so many seconds from now."""
    moment = (world.sandbox.api.now() + timedelta(seconds=seconds)).replace(microsecond=0)
    text = format_rfc3339(moment)
    error = {"lastErrorTime": text} if status == "Unhealthy" else {}
    return {"status": {"status": status, "lastChangeTime": text, **error, "message": "m"}}


@pytest.mark.parametrize(
    ("late", "answer", "bake"),
    [
        pytest.param(None, ("Healthy", 0), "Succeeded", id="healthy within the second"),
        pytest.param(None, ("Unhealthy", 0), "Failed", id="broken within the second"),
        pytest.param(("Healthy", -60), None, "Deploying", id="healthy before, late"),
        pytest.param(("Unhealthy", -60), None, "Deploying", id="broken before, late"),
        pytest.param(("Healthy", -60), ("Healthy", 0), "Succeeded", id="late, then of now"),
        pytest.param(("Unhealthy", -60), ("Unhealthy", 0), "Failed", id="late, then broken"),
    ],
)
@in_virtual_time
async def test_health_counts_whatever_its_clock(
    late: tuple[str, float] | None, answer: tuple[str, float] | None, bake: str
) -> None:
    """REL-73, REL-74, REL-104: of the second of the deployment it does, from before it is reset."""
    async with ReleaseSandbox.opened() as world:
        await create_check(world, "of-others")
        await world.start()
        await world.sleep(1 - world.sandbox.api.now().microsecond / 1e6 + 0.3)
        await create_release(world)
        while (await show(world))[0] != "Pending":
            await world.sleep(0.01)
        assert world.sandbox.api.now().microsecond
        for one in filter(None, (late, answer)):
            await world.patch(HEALTH_CHECKS, "check", stamped(world, *one), part="status")
            if one is late:
                await world.sleep(3)
                assert (await show(world))[0] == "Pending"
        await world.sleep(30)
        assert await show_bake(world) == f"1.0.0 {bake}"


@in_virtual_time
async def test_a_client_with_a_slow_clock_that_answers_at_once_makes_no_storm() -> None:
    """REL-104: each of its answers is reset, once a second."""
    async with ReleaseSandbox.opened() as world:
        await create_check(world, "of-others")
        await create_release(world)
        await world.start()
        for _ in range(1000):
            if (await show(world))[0] != "Healthy":
                old = stamped(world, "Healthy", -3600)
                await world.patch(HEALTH_CHECKS, "check", old, part="status")
            await world.sleep(0.01)
        assert 5 <= world.count_writes(HEALTH_CHECKS) <= 15
        assert await show_bake(world) == "1.0.0 Deploying"


@in_virtual_time
async def test_the_status_of_a_class_of_ours_that_others_write_is_put_right_soon() -> None:
    """REL-113: not at the next interval; what is written of an evaluation wakes none."""
    async with ReleaseSandbox.opened() as world:
        await world.create(APPLIED, "app", {"sourceRef": {"kind": "GitRepository", "name": "x"}})
        await create_check(world)
        await world.start()
        await world.sleep(40)
        for status in ("Healthy", "Unhealthy"):
            await world.patch(HEALTH_CHECKS, "check", stamped(world, status), part="status")
            await world.sleep(2)
            assert await show(world) == ("Pending", "it has applied nothing yet")


@in_virtual_time
async def test_a_rollout_that_selects_namespaces_resets_there_as_well() -> None:
    """RELB-36: by labels of namespaces, which are read once they are requested."""
    async with ReleaseSandbox.opened(namespace="prod") as world:
        await create_check(world, "of-others")
        healthy = {"status": "Healthy", "lastChangeTime": "2026-01-01T00:00:00Z", "message": "ok"}
        await world.patch(HEALTH_CHECKS, "check", {"status": healthy}, part="status")
        await create_release(world, namespaceSelector={})
        await world.start()
        await world.sleep(40)
        assert await show(world) == ("Pending", "reset for 1.0.0 of prod/app")
        assert world.count_writes(HEALTH_CHECKS) == 1


SELECTED: Final = {"namespaceSelector": {"matchLabels": {"team": "infra"}}}


async def create_elsewhere(
    world: ReleaseSandbox, of: str, team: str = "infra", labels: Mapping[str, str] = WEB
) -> None:
    """Create a check of a namespace that nothing else makes the operator look after."""
    await world.create(NAMESPACES, "far", {}, labels={"team": team})
    await world.create(
        *(HEALTH_CHECKS, "check", {"class": of}),
        annotations={**NAMED, **SOON},
        labels=labels,
        namespace="far",
    )
    await world.patch(
        *(HEALTH_CHECKS, "check", stamped(world, "Healthy", -60), "status"), namespace="far"
    )


async def show_elsewhere(world: ReleaseSandbox) -> str:
    status = await world.get_status(HEALTH_CHECKS, "check", "far")
    return f"{status['status']}: {status['message']}"


async def apply_elsewhere(world: ReleaseSandbox) -> None:
    """Have Flux apply a Kustomization there."""
    await world.create(
        *(APPLIED, "app", {"sourceRef": {"kind": "GitRepository", "name": "x"}}), namespace="far"
    )
    ready = {"type": "Ready", "status": "True", "reason": "Ok", "message": "applied"}
    inventory = {"entries": [{"id": "far_s__Secret", "v": "v1"}]}
    status = {"observedGeneration": 1, "conditions": [ready], "inventory": inventory}
    await world.patch(APPLIED, "app", {"status": status}, part="status", namespace="far")


@pytest.mark.parametrize("of", ["of-others", "kustomization"])
@in_virtual_time
async def test_health_of_another_namespace_counts_where_it_is_selected(of: str) -> None:
    """RELB-36, REL-104: it is reset there, evaluated if its class is ours, and waited for."""
    async with ReleaseSandbox.opened() as world:
        await create_elsewhere(world, of)
        await create_release(world, **SELECTED)
        await world.start()
        await world.sleep(8)
        assert (await show_elsewhere(world)).startswith("Pending")
        assert await show_bake(world) == "1.0.0 Deploying"
        if of == "kustomization":
            await apply_elsewhere(world)
        else:
            late = stamped(world, "Healthy", -60)
            await world.patch(HEALTH_CHECKS, "check", late, "status", namespace="far")
            await world.sleep(3)
            assert (await show_elsewhere(world)).startswith("Pending")
            now = stamped(world, "Healthy")
            await world.patch(HEALTH_CHECKS, "check", now, "status", namespace="far")
        await world.sleep(20)
        assert (await show_elsewhere(world)).startswith("Healthy")
        assert await show_bake(world) == "1.0.0 Succeeded"


@pytest.mark.parametrize(
    ("team", "labels"), [("others", WEB), ("infra", {"app": "other"}), ("infra", {})]
)
@in_virtual_time
async def test_what_no_rollout_selects_in_another_namespace_is_left_alone(
    team: str, labels: dict[str, str]
) -> None:
    """RELB-36: whatever its class."""
    async with ReleaseSandbox.opened() as world:
        await create_elsewhere(world, "kustomization", team, labels)
        await create_release(world, **SELECTED)
        await world.start()
        await world.sleep(60)
        assert await show_elsewhere(world) == "Healthy: m"
        assert world.count_writes(HEALTH_CHECKS) == 0


@in_virtual_time
async def test_a_check_of_another_namespace_waits_for_flux_and_is_then_looked_at() -> None:
    """RELB-16: at once, though nothing there is followed; it is not written meanwhile."""
    async with ReleaseSandbox.opened() as world:
        tagged = {"rollout.kuberik.com/rollout": "app"}
        source = {"url": "oci://registry/app", "ref": {"tag": "1.0.0"}}
        await world.create(OCI_REPOSITORIES[0], "app", source, annotations=tagged)
        await create_elsewhere(world, "kustomization")
        await apply_elsewhere(world)
        await create_release(world, **SELECTED)
        await world.start()
        await world.sleep(100)
        assert await show_elsewhere(world) == "Pending: reset for 1.0.0 of default/app"
        fetched = {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True"}],
            "artifact": {"revision": "1.0.0@sha256:0"},
        }
        await world.patch(OCI_REPOSITORIES[0], "app", {"status": fetched}, part="status")
        await world.sleep(2)
        assert await show_elsewhere(world) == "Healthy: applied"


@in_virtual_time
async def test_two_operators_that_evaluate_one_check_do_not_undo_each_other_at_once() -> None:
    """RELB-36: an operator of its namespace may see more of it, or less."""
    async with ReleaseSandbox.opened() as world:
        await create_elsewhere(world, "kustomization")
        await create_release(world, **SELECTED)
        await world.start()
        await world.sleep(20)
        before = world.count_writes(HEALTH_CHECKS)
        for _ in range(100):
            if not (await show_elsewhere(world)).startswith("Healthy"):
                now = stamped(world, "Healthy")
                await world.patch(HEALTH_CHECKS, "check", now, "status", namespace="far")
            await world.sleep(0.1)
        assert world.count_writes(HEALTH_CHECKS) - before <= 2  # its interval is 5 s


@in_virtual_time
async def test_a_release_bakes_only_after_its_zones_are_through() -> None:
    """RELB-36: the bake starts once the last pod runs the new revision."""
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        await create_check(world, "rollout-group", **GROUP, **SOON)
        await create_release(world)
        await world.start()
        await world.sleep(60)
        assert await show_bake(world) == "1.0.0 Succeeded"
        await announce(world, "1.1.0")
        await roll_out(world)
        await world.sleep(10)
        assert await show_bake(world) == "1.1.0 Deploying, 1.0.0 Succeeded"
        while await show_bake(world) == "1.1.0 Deploying, 1.0.0 Succeeded":
            await world.sleep(1)
        for letter in "ab":
            sts = await world.get(STATEFULSETS, f"db-{letter}")
            assert sts["status"]["updatedReplicas"] == sts["status"]["readyReplicas"] == 2
        assert await show_bake(world) == "1.1.0 InProgress, 1.0.0 Succeeded"
        await world.sleep(15)
        assert await show_bake(world) == "1.1.0 Succeeded, 1.0.0 Succeeded"


@in_virtual_time
async def test_a_check_waits_until_flux_has_applied_the_release() -> None:
    """RELB-16: what looks healthy before that is the version before."""
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        tagged = {"rollout.kuberik.com/rollout": "app"}
        source = {"url": "oci://registry/app", "ref": {"tag": "1.0.0"}}
        await world.create(OCI_REPOSITORIES[0], "app", source, annotations=tagged)
        await create_check(world, "rollout-group", **GROUP)
        await create_release(world)
        await world.start()
        await world.sleep(40)
        status, message = await show(world)
        assert (status, message.partition(": ")[0]) == (
            "Pending",
            "waiting for Flux to apply 1.0.0 of default/app",
        )
        fetched = {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True"}],
            "artifact": {"revision": "1.0.0@sha256:0"},
        }
        await world.patch(OCI_REPOSITORIES[0], "app", {"status": fetched}, part="status")
        await world.sleep(5)
        assert (await show(world))[0] == "Healthy"
        await world.sleep(15)
        assert await show_bake(world) == "1.0.0 Succeeded"


@in_virtual_time
async def test_flux_that_fails_with_a_release_fails_its_bake() -> None:
    """RELB-16, RELB-37: it tries again within the grace, and each attempt has a time of its own."""
    async with ReleaseSandbox.opened() as world:
        tagged = {"rollout.kuberik.com/substitute.version.from": "app"}
        source = {"sourceRef": {"kind": "GitRepository", "name": "x"}}
        await world.create(APPLIED, "app", source, annotations=tagged)
        await create_check(world, **NAMED, **SOON)
        await create_release(world)
        await world.start()
        await world.sleep(10)
        for _ in range(3):
            await apply_inventory(world, status="Unknown", reason="Progressing")
            await world.sleep(2)
            await apply_inventory(world, status="False", reason="BuildFailed")
            assert await show_bake(world) == "1.0.0 Deploying"
            await world.sleep(38)
        await world.sleep(10)
        assert await show(world) == ("Unhealthy", "BuildFailed: applied")
        assert await show_bake(world) == "1.0.0 Failed"
