"""A namespace as kuberik's rollout-controller leaves it, and that controller when it comes back.

Times are in whole seconds, annotations that it took are empty, and each Rollout stands at another
point: at rest, in mid-bake, failed, requested by a person, or cut off between effect and record.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from tests.system.releasing import CHECKS, DIGEST, GATES, ROLLOUTS, create, patch_status
from tests.system.test_releases_gates import SCHEDULES
from tests.system.waits import wait_true
from tests.world.api import DEPLOYMENTS, NAMESPACES, PATCH_TYPES, ApiError, Json
from tests.world.budgets import CRDS, wait_served
from tests.world.flux import (
    IMAGE_POLICIES,
    IMAGE_REPOSITORIES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    install_flux,
    render_applied,
    render_fetched,
)
from tests.world.kuberik import SCHEMAS, render_kinds
from tests.world.world import World

SYSTEM: Final = "kuberik-system"
CONTROLLER: Final = "rollout-controller-controller-manager"
GATE: Final = "schedule-gate-x7k2p"
PREFIX: Final = "rollout.kuberik.com"
# Where its definitions are, as in a checkout of its sources.
BASES: Final = Path("rollout-controller/config/crd/bases")
RESOURCES: Final = {
    "Rollout": ROLLOUTS,
    "RolloutGate": GATES,
    "RolloutSchedule": SCHEDULES,
    "HealthCheck": CHECKS,
}
_BAKED: Final = {"bakeStatus": "Succeeded", "bakeStatusMessage": "Bake completed."}
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def ago(seconds: int) -> str:
    """Return a time as that controller writes it."""
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


async def install_kuberik(world: World) -> None:
    """Put its definitions in place of what is there, and its Deployment beside them; add Flux."""
    folder = world.folder / BASES
    folder.mkdir(parents=True)
    for crd in render_kinds():
        (folder / f"{crd['metadata']['name']}.yaml").write_text(yaml.safe_dump(crd))
    await put_kinds(world, render_kinds())
    await install_flux(world.api)
    with suppress(ApiError):  # there already
        await world.api.create(
            NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
        )
    await world.api.patch(DEPLOYMENTS, SYSTEM, CONTROLLER, _render_controller(), kind="apply")


async def put_kinds(world: World, crds: Iterable[Json]) -> None:
    """Write definitions in place of those that are there, as `kubectl apply` leaves them."""
    for crd in crds:
        name = crd["metadata"]["name"]
        applied = {_APPLIED: json.dumps(crd)}
        body = {**crd, "metadata": {**crd["metadata"], "annotations": applied}}
        try:
            found = await world.api.get(CRDS, "", name)
        except ApiError:
            await world.api.create(CRDS, "", body)
        else:
            body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            await world.api.call("PUT", CRDS.path("", name), body=body)
        await wait_served(world.api, crd)


def _render_controller() -> Json:
    labels = {
        "control-plane": "controller-manager",
        "app.kubernetes.io/name": "rollout-controller",
    }
    container = {"name": "manager", "image": "ghcr.io/kuberik/rollout-controller:v0.8.0"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": CONTROLLER, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def entry(number: int, tag: str, age: int, **more: Any) -> Json:
    """Return a deployment of a history, `age` seconds old."""
    return {
        "id": number,
        "version": {"tag": tag},
        "timestamp": ago(age),
        "message": "Automatic deployment",
        "triggeredBy": {"kind": "System", "name": "rollout-controller"},
        **_BAKED,
        **more,
    }


async def leave_rollout(
    world: World,
    name: str,
    history: Sequence[Json],
    available: Sequence[str],
    spec: Mapping[str, Any] | None = None,
    *,
    written: str = "",
    **annotations: str,
) -> None:
    """Create a Rollout with its status, its image policy, and the OCIRepository that it writes.

    `written` is the tag there, where it is not that of the history.
    """
    policy: Json = {"imageRepositoryRef": {"name": "images"}, "policy": {"semver": {"range": "*"}}}
    await create(world, IMAGE_POLICIES, "ImagePolicy", name, policy)
    latest = {"name": "registry.invalid/app", "tag": available[-1]}
    await patch_status(world, IMAGE_POLICIES, name, {"latestRef": latest})
    keys = {f"{PREFIX}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    body = {"releasesImagePolicy": {"name": name}, **(spec or {})}
    labels = {"app": name}
    await create(world, ROLLOUTS, "Rollout", name, body, annotations=keys, labels=labels)
    status = _render_status(history, available)
    await patch_status(world, ROLLOUTS, name, status)
    tag = written or history[0]["version"]["tag"]
    await create(
        world,
        OCI_REPOSITORIES,
        "OCIRepository",
        name,
        {"interval": "1m", "url": f"oci://registry.invalid/{name}", "ref": {"tag": tag}},
        annotations={f"{PREFIX}/rollout": name},
    )
    fetched = render_fetched(f"{tag}@{DIGEST}", 1, ago(60))
    await patch_status(world, OCI_REPOSITORIES, name, fetched)


def _render_status(history: Sequence[Json], available: Sequence[str]) -> Json:
    has_failed = history[0]["bakeStatus"] == "Failed"
    current = available.index(history[0]["version"]["tag"])
    newer = [{"tag": tag} for tag in reversed(available[current + 1 :])]
    ready = ("False", "BakeTimeFailed") if has_failed else ("True", "RolloutSucceeded")
    gates = ("True", "AllGatesPassing") if newer else ("False", "NoAllowedVersions")
    found = {
        "Ready": ready,
        "ReleasesUpdated": ("True", "ReleasesUpdated"),
        "GatesPassing": gates,
        "DeploymentBlocked": ("False", "HealthChecksHealthy"),
        "BakeFailureDisabled": ("False", "Normal"),
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "as kuberik says it",
            "lastTransitionTime": ago(600),
        }
        for kind, (status, reason) in found.items()
    ]
    return {
        "history": [*history],
        "availableReleases": [{"tag": tag} for tag in available],
        "releaseCandidates": newer,
        "gatedReleaseCandidates": newer,
        "conditions": conditions,
        "artifactType": "application/vnd.oci.image.config.v1+json",
    }


async def _leave_kustomization(world: World, name: str, tag: str) -> None:
    """Create a Kustomization, and apply all of its variables as that controller does."""
    key, variables = f"{PREFIX}/substitute.version.from", {"version": tag, "color": "red"}
    build: Json = {"postBuild": {"substitute": variables}}
    spec = {"interval": "1m", "sourceRef": {"kind": "OCIRepository", "name": name}}
    await create(
        world, KUSTOMIZATIONS, "Kustomization", name, {**spec, **build}, annotations={key: name}
    )
    body = {
        "apiVersion": KUSTOMIZATIONS.api_version,
        "kind": "Kustomization",
        "metadata": {"name": name},
        "spec": build,
    }
    await world.api.call(
        "PATCH",
        KUSTOMIZATIONS.path(world.namespace, name),
        body=body,
        query={"fieldManager": "rollout-controller", "force": "true"},
        content_type=PATCH_TYPES["apply"],
    )
    applied = render_applied(f"{tag}@{DIGEST}", 1, ago(60))
    await patch_status(world, KUSTOMIZATIONS, name, applied)


async def leave_schedule(world: World, name: str, rollout: str) -> None:
    """Create a schedule that is not active now, and the gate that it keeps for a Rollout."""
    rule = {"name": "once", "dateRange": {"start": "2001-01-01", "end": "2001-01-02"}}
    spec: Json = {"rolloutSelector": {"matchLabels": {"app": rollout}}, "rules": [rule]}
    await create(world, SCHEDULES, "RolloutSchedule", name, spec)
    made = await world.get(SCHEDULES, name)
    owner = {
        "apiVersion": "kuberik.com/v1alpha1",
        "kind": "RolloutSchedule",
        "name": name,
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {
        "gate.kuberik.com/schedule-name": name,
        "gate.kuberik.com/schedule-namespace": world.namespace,
        "gate.kuberik.com/schedule-kind": "RolloutSchedule",
        "gate.kuberik.com/rollout-name": rollout,
    }
    gate: Json = {"rolloutRef": {"name": rollout}, "passing": True}
    await create(world, GATES, "RolloutGate", GATE, gate, labels=labels, ownerReferences=[owner])
    kept = {"active": False, "managedGates": [GATE], "matchingRollouts": 1}
    await patch_status(world, SCHEDULES, name, kept)


async def leave_namespace(world: World) -> None:
    """Create all that there is of releases, each at another point of its way."""
    images: Json = {"image": "registry.invalid/app"}
    await create(world, IMAGE_REPOSITORIES, "ImageRepository", "images", images)
    old, before = entry(2, "1.4.0", 5000), entry(1, "1.3.0", 9000)
    await leave_rollout(world, "shop", [old, before], ["1.3.0", "1.4.0"], bypass_gates="")
    await _leave_kustomization(world, "shop", "1.4.0")
    await leave_schedule(world, "freeze", "shop")
    checks = {"selector": {"matchLabels": {"app": "till"}}}
    await create(world, CHECKS, "HealthCheck", "till", {}, labels={"app": "till"})
    await patch_status(
        world, CHECKS, "till", {"status": "Healthy", "lastChangeTime": ago(100), "message": "2xx"}
    )
    baking = entry(7, "2.1.0", 120, bakeStatus="InProgress", bakeStartTime=ago(115))
    spec = {"bakeTime": "2m", "healthCheckSelector": checks}
    await leave_rollout(world, "till", [baking], ["2.1.0"], spec)
    failed = entry(
        *(3, "3.0.0", 800),
        bakeStatus="Failed",
        bakeStatusMessage="A HealthCheck failed after the bake started.",
        bakeEndTime=ago(700),
        failedHealthChecks=[{"name": "mail", "namespace": world.namespace, "message": "5xx"}],
    )
    await leave_rollout(world, "mail", [failed], ["3.0.0", "3.1.0"], {"bakeTime": "1m"})
    await leave_rollout(
        *(world, "search", [entry(4, "5.1.0", 900)], ["5.1.0", "5.2.0"]),
        force_deploy="5.2.0",
        deploy_user="amy",
        deploy_message="past the gate",
    )
    for name in ("search", "desk"):
        closed = {"rolloutRef": {"name": name}, "passing": False}
        await create(world, GATES, "RolloutGate", f"approve-{name}", closed)
    first = entry(1, "1.0.0", 900)
    await leave_rollout(world, "cart", [first], ["1.0.0", "1.1.0"], written="1.1.0")
    await leave_rollout(world, "desk", [first], ["1.0.0", "1.1.0"], written="1.1.0")
    await leave_rollout(
        world, "fax", [entry(1, "0.9.0", 900)], ["0.9.0"], force_deploy="0.9.0", deploy_user="amy"
    )


async def write_as_kuberik(world: World) -> None:
    """Read all objects, keep what that controller knows of them, and write it back.

    As its typed client does: unknown fields go, and times are cut to seconds. Raises ApiError
    where the API server takes one for invalid.
    """
    for kind, resource in RESOURCES.items():
        listed = await _call(world, "GET", resource.path(world.namespace))
        for found in listed["items"]:
            name = found["metadata"]["name"]
            body = {**found, "status": _cut(found.get("status"), SCHEMAS[kind], "status")}
            if body["status"]:
                body = await _call(
                    world, "PUT", resource.path(world.namespace, name, "status"), body
                )
            body["spec"] = _cut(found["spec"], SCHEMAS[kind], "spec")
            await _call(world, "PUT", resource.path(world.namespace, name), body)


async def _call(world: World, method: str, path: str, body: Json | None = None) -> Json:
    """Send a request, again where the API server still takes a new definition up, as clients do."""
    answer: Json = {}

    async def is_answered() -> bool:
        nonlocal answer
        try:
            answer = await world.api.call(method, path, body=body)
        except ApiError as error:
            if error.status != 429:
                raise
            return False
        return True

    await wait_true(path, is_answered)
    return answer


def _cut(value: Any, schema: Json, field: str = "") -> Any:
    """Return a value as a client reads and writes it that knows only the fields of a schema."""
    if field:
        schema = schema["properties"][field]
    if isinstance(value, dict) and "properties" in schema:
        return {
            key: _cut(each, schema["properties"][key])
            for key, each in value.items()
            if key in schema["properties"]
        }
    if isinstance(value, list):
        return [_cut(each, schema["items"]) for each in value]
    if schema.get("format") == "date-time":
        return f"{datetime.fromisoformat(value):%Y-%m-%dT%H:%M:%SZ}"
    return value
