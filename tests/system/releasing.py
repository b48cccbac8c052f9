"""Objects of release rollouts in a world, and a stand-in for the controllers of Flux."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.system.waits import wait_true
from tests.world.api import PATCH_TYPES, SECRETS, Api, ApiError, Json, Resource
from tests.world.budgets import FOLDER, install_kinds
from tests.world.flux import (
    IMAGE_POLICIES,
    IMAGE_REPOSITORIES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    install_flux,
    render_applied,
    render_fetched,
)
from tests.world.registry import render_pull_secret
from tests.world.world import World

ON: Final = "-releases.enabled"
GROUP: Final = "kuberik.com/v1alpha1"
ROLLOUTS: Final = Resource(GROUP, "rollouts")
GATES: Final = Resource(GROUP, "rolloutgates")
SCHEDULES: Final = Resource(GROUP, "rolloutschedules")
CHECKS: Final = Resource(GROUP, "healthchecks")
LIMIT: Final = timedelta(seconds=60)
SELECTED: Final[Json] = {"selector": {"matchLabels": {"app": "app"}}}
DIGEST: Final = "sha256:" + "0" * 64


async def prepare(world: World, *, image: str = "registry.invalid/app") -> None:
    """Install all kinds, grant what they need, and create what announces releases."""
    await install_kinds(world.api, FOLDER / "releases")
    await install_flux(world.api)
    await world.grant("releases")
    await create(
        world,
        IMAGE_REPOSITORIES,
        "ImageRepository",
        "app",
        {"image": image, "insecure": True, "secretRef": {"name": "pull"}},
    )
    spec = {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}
    await create(world, IMAGE_POLICIES, "ImagePolicy", "app", spec)


async def create(
    world: World, resource: Resource, kind: str, name: str, spec: Json, **metadata: Any
) -> None:
    """Create an object."""
    body: Json = {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }
    await world.api.create(resource, world.namespace, body)


async def create_targets(world: World, **source: Any) -> None:
    """Create an OCIRepository and a Kustomization of it, both annotated for a Rollout.

    More of the `spec` of the OCIRepository by keyword.
    """
    await create(
        world,
        OCI_REPOSITORIES,
        "OCIRepository",
        "app",
        {"interval": "1m", "url": "oci://registry/app", "ref": {"tag": "none"}, **source},
        annotations={"rollout.kuberik.com/rollout": "app"},
    )
    await create(
        world,
        KUSTOMIZATIONS,
        "Kustomization",
        "app",
        {
            "interval": "1m",
            "prune": True,
            "sourceRef": {"kind": "OCIRepository", "name": "app"},
            "postBuild": {"substitute": {"version": "none", "color": "red"}},
        },
        annotations={"rollout.kuberik.com/substitute.version.from": "app"},
    )


async def announce(world: World, tag: str, *, digest: str = "") -> None:
    """Have the image policy select a tag."""
    latest = {"name": "registry/app", "tag": tag, **({"digest": digest} if digest else {})}
    await patch_status(world, IMAGE_POLICIES, "app", {"latestRef": latest})


async def patch_status(world: World, resource: Resource, name: str, status: Json) -> None:
    """Write fields of a status, as a controller does."""
    patch = {"status": status}
    await world.api.patch(resource, world.namespace, name, patch, subresource="status")


async def run_flux(world: World) -> None:
    """Have Flux observe, fetch and apply what stands in its objects now."""
    source = await world.get(OCI_REPOSITORIES, "app")
    revision = f"{source['spec']['ref']['tag']}@{DIGEST}"
    for resource, render in ((OCI_REPOSITORIES, render_fetched), (KUSTOMIZATIONS, render_applied)):
        metadata = (await world.get(resource, "app"))["metadata"]
        requested = (metadata.get("annotations") or {}).get("reconcile.fluxcd.io/requestedAt")
        # Flux cuts the fraction of a second.
        status = render(revision, metadata["generation"], f"{now()[:19]}Z")
        handled = {"lastHandledReconcileAt": requested} if requested else {}
        await patch_status(world, resource, "app", {**status, **handled})


async def set_health(world: World, name: str, status: str, **more: str) -> None:
    """Write what a HealthCheck found."""
    fields = {"status": status, "lastChangeTime": now(), **more}
    await patch_status(world, CHECKS, name, fields)


def now() -> str:
    """Return the time as a controller writes it, in fractions of seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def annotate(world: World, name: str, **annotations: str | None) -> None:
    """Set annotations of `rollout.kuberik.com` on a Rollout."""
    keys = {
        f"rollout.kuberik.com/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    patch = {"metadata": {"annotations": keys}}
    await world.api.patch(ROLLOUTS, world.namespace, name, patch)


async def read_status(world: World, name: str = "app") -> Json:
    """Return the status of a Rollout."""
    status: Json = (await world.get(ROLLOUTS, name)).get("status") or {}
    return status


def show_history(status: Mapping[str, Any]) -> str:
    """Return `2.0.0 Deploying, 1.0.0 Succeeded`, the newest first."""
    entries = status.get("history") or []
    return ", ".join(f"{one['version']['tag']} {one.get('bakeStatus')}" for one in entries)


def show_condition(status: Mapping[str, Any], kind: str) -> str:
    """Return status and reason of a condition."""
    found = {one["type"]: one for one in status.get("conditions") or []}
    return f"{found[kind]['status']} {found[kind]['reason']}" if kind in found else ""


async def wait_history(world: World, history: str, name: str = "app") -> Json:
    """Wait until a Rollout has this history, and return its status."""
    status: Json = {}

    async def holds() -> bool:
        nonlocal status
        status = await read_status(world, name)
        return show_history(status) == history

    await wait_true(lambda: f"{history}, but {status}", holds, LIMIT)
    return status


async def wait_release_condition(world: World, kind: str, text: str, name: str = "app") -> Json:
    """Wait until a condition has this status and reason, and return the whole status."""
    status: Json = {}

    async def holds() -> bool:
        nonlocal status
        status = await read_status(world, name)
        return show_condition(status, kind) == text

    await wait_true(lambda: f"{kind} {text}, but {status}", holds, LIMIT)
    return status


async def read_tags(world: World) -> tuple[str, str]:
    """Return the tag of the OCIRepository, and what the variable of the Kustomization is."""
    source = await world.get(OCI_REPOSITORIES, "app")
    applied = await world.get(KUSTOMIZATIONS, "app")
    return source["spec"]["ref"]["tag"], applied["spec"]["postBuild"]["substitute"]["version"]


async def wait_tags(world: World, tag: str) -> None:
    """Wait until both objects of Flux have a tag."""

    async def holds() -> bool:
        return await read_tags(world) == (tag, tag)

    await wait_true(f"tag {tag}", holds, LIMIT)


async def create_pull_secret(world: World, host: str) -> None:
    """Create the pull secret that the ImageRepository names."""
    body: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": render_pull_secret(host),
    }
    await world.api.create(SECRETS, world.namespace, body)


@asynccontextmanager
async def refusing(api: Api, namespace: str, tag: str) -> AsyncIterator[None]:
    """Have admission refuse a tag for the OCIRepositories of a namespace."""
    group, name = "admissionregistration.k8s.io/v1", f"broken-{namespace}"
    kinds = [
        Resource(group, plural, is_namespaced=False)
        for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    ]
    rule: Json = {"apiGroups": ["source.toolkit.fluxcd.io"], "apiVersions": ["*"]}
    rule |= {"operations": ["UPDATE"], "resources": ["ocirepositories"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    wanted = {"expression": f"object.spec.ref.tag != '{tag}'", "message": f"{tag} is broken"}
    specs: list[Json] = [
        {"matchConstraints": {"resourceRules": [rule]}, "validations": [wanted]},
        {"policyName": name, "validationActions": ["Deny"]},
    ]
    specs[1]["matchResources"] = {"namespaceSelector": here}
    names = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    for resource, kind, spec in zip(kinds, names, specs, strict=True):
        body: Json = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
        await api.create(resource, "", body)

    async def is_refused() -> bool:
        try:
            await api.call(
                "PATCH",
                OCI_REPOSITORIES.path(namespace, "app"),
                body={"spec": {"ref": {"tag": tag}}},
                query={"dryRun": "All"},
                content_type=PATCH_TYPES["merge"],
            )
        except ApiError as error:
            return error.status == 422
        return False

    await wait_true("a policy that refuses", is_refused)
    yield
    for resource in kinds:
        await api.delete(resource, "", name)


async def read_annotations(world: World, name: str = "app") -> Mapping[str, str]:
    """Return the annotations of a Rollout."""
    found = await world.get(ROLLOUTS, name)
    annotations: Mapping[str, str] = found["metadata"].get("annotations") or {}
    return annotations


async def wait_message(world: World, text: str) -> None:
    """Wait until the bake of the current release says this."""
    status: Json = {}

    async def holds() -> bool:
        nonlocal status
        status = await read_status(world)
        return text in status["history"][0].get("bakeStatusMessage", "")

    await wait_true(lambda: f"{text}, but {status}", holds, LIMIT)


async def create_older_policy(world: World, image: str) -> None:
    """Create an image policy of an earlier version of Flux, which selects this image."""
    older = Resource("image.toolkit.fluxcd.io/v1beta2", "imagepolicies")
    await create(world, older, "ImagePolicy", "app", {"imageRepositoryRef": {"name": "app"}})
    await patch_status(world, older, "app", {"latestImage": image})
