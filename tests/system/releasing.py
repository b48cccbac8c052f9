"""Objects of release rollouts in a world, in words, and a stand-in for the controllers of Flux."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import yaml

from tests.system.waits import wait_true
from tests.world.api import NAMESPACES, PATCH_TYPES, ROLES, SECRETS, Api, ApiError, Json, Resource
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
KINDS: Final[Mapping[str, Resource]] = {
    "Rollout": ROLLOUTS,
    "RolloutGate": GATES,
    "RolloutSchedule": Resource(GROUP, "rolloutschedules"),
    "ClusterRolloutSchedule": Resource(GROUP, "clusterrolloutschedules", is_namespaced=False),
    "HealthCheck": CHECKS,
    "OCIRepository": OCI_REPOSITORIES,
    "Kustomization": KUSTOMIZATIONS,
    "ImagePolicy": IMAGE_POLICIES,
    "ImageRepository": IMAGE_REPOSITORIES,
    "Role": ROLES,
}
LIMIT: Final = timedelta(seconds=60)
# A window that begins so long after now, or up to a minute sooner.
SOON: Final = timedelta(seconds=90)
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


async def run_flux(world: World, source: str = "app", applied: str = "app") -> None:
    """Have Flux observe, fetch and apply what stands in its objects now."""
    ref = (await world.get(OCI_REPOSITORIES, source))["spec"]["ref"]
    for resource, name, render in (
        (OCI_REPOSITORIES, source, render_fetched),
        (KUSTOMIZATIONS, applied, render_applied),
    ):
        metadata = (await world.get(resource, name))["metadata"]
        requested = (metadata.get("annotations") or {}).get("reconcile.fluxcd.io/requestedAt")
        # Flux cuts the fraction of a second.
        status = render(f"{ref['tag']}@{DIGEST}", metadata["generation"], f"{now()[:19]}Z")
        handled = {"lastHandledReconcileAt": requested} if requested else {}
        await patch_status(world, resource, name, {**status, **handled})


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
    status: Json = (await world.get(ROLLOUTS, name)).get("status") or {}
    return status


def show_history(status: Mapping[str, Any]) -> str:
    """Return `2.0.0 Deploying, 1.0.0 Succeeded`, the newest first."""
    entries = status.get("history") or []
    return ", ".join(f"{one['version']['tag']} {one.get('bakeStatus')}" for one in entries)


def show_condition(status: Mapping[str, Any], kind: str) -> str:
    found = {one["type"]: one for one in status.get("conditions") or []}
    return f"{found[kind]['status']} {found[kind]['reason']}" if kind in found else ""


async def wait_history(world: World, history: str) -> None:
    """Wait until the Rollout has this history."""
    status: Json = {}

    async def holds() -> bool:
        nonlocal status
        status = await read_status(world)
        return show_history(status) == history

    await wait_true(lambda: f"{history}, but {status}", holds, LIMIT)


async def read_tags(world: World) -> tuple[str, str]:
    """Return the tag of the OCIRepository, and what the variable of the Kustomization is."""
    source = await world.get(OCI_REPOSITORIES, "app")
    applied = await world.get(KUSTOMIZATIONS, "app")
    return source["spec"]["ref"]["tag"], applied["spec"]["postBuild"]["substitute"]["version"]


async def wait_tags(world: World, tag: str) -> None:
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
    found = await world.get(ROLLOUTS, name)
    annotations: Mapping[str, str] = found["metadata"].get("annotations") or {}
    return annotations


async def wait_message(world: World, text: str) -> None:
    status: Json = {}

    async def holds() -> bool:
        nonlocal status
        status = await read_status(world)
        return text in status["history"][0].get("bakeStatusMessage", "")

    await wait_true(lambda: f"{text}, but {status}", holds, LIMIT)


class Actor:
    """Who does what a scenario says, in one namespace."""

    def __init__(
        self, api: Api, namespace: str, restart: Callable[[], None] = lambda: None
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._restart_controller = restart
        self._refusals = AsyncExitStack()

    async def do(self, operation: str) -> None:
        """Do one operation, such as `tag 1.1.0`."""
        verb, *words = operation.split(" ", 1)
        await getattr(self, f"_{verb}")(*words)

    async def do_all(self, step: str) -> dict[str, str]:
        """Do the operations of a step, and return which was refused."""
        refused: dict[str, str] = {}
        for operation in step.split("; "):
            try:
                await self.do(operation)
            except ApiError as error:
                refused = {"refused": f"{operation}: {error.reason}"}
        return refused

    async def leave(self) -> None:
        """Remove what would keep a controller busy."""
        await self._allow()
        for kind in ("Rollout", "RolloutSchedule", "HealthCheck"):
            await self._api.delete(KINDS[kind], self._namespace)
        with suppress(ApiError):
            await self._api.delete(KINDS["ClusterRolloutSchedule"], "", self._namespace)
            await self._api.delete(NAMESPACES, "", f"{self._namespace}-far")

    # Objects

    async def _make(self, text: str) -> None:
        kind, name, fields = self._read(text)
        body = fields if {"spec", "metadata", "status"} & {*fields} else {"spec": fields}
        whole = {"apiVersion": KINDS[kind].api_version, "kind": kind, "spec": {}, **body}
        whole["metadata"] = {**(body.get("metadata") or {}), "name": name}
        await self._api.create(KINDS[kind], self._namespace, whole)

    async def _patch(self, text: str) -> None:
        kind, name, fields = self._read(text)
        await self._api.patch(KINDS[kind], self._namespace, name, fields)

    async def _status(self, text: str) -> None:
        kind, name, fields = self._read(text)
        await self._api.patch(
            KINDS[kind], self._namespace, name, {"status": fields}, subresource="status"
        )

    async def _far(self, text: str) -> None:
        """Make an object in a namespace beside this one."""
        far = f"{self._namespace}-far"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": far}}
        with suppress(ApiError):  # it is there already
            await self._api.create(NAMESPACES, "", body)
        await Actor(self._api, far).do(f"make {text}")

    async def _farstatus(self, text: str) -> None:
        await Actor(self._api, f"{self._namespace}-far").do(f"status {text}")

    async def _drop(self, text: str) -> None:
        kind, name, _ = self._read(text)
        await self._api.delete(KINDS[kind], self._namespace, name)

    async def _label(self, text: str) -> None:
        patch = {"metadata": {"labels": yaml.safe_load(text)}}
        await self._api.patch(NAMESPACES, "", self._namespace, patch)

    # What is done most often

    async def _app(self, spec: str = "{}") -> None:
        await self._make(f"Rollout app {{releasesImagePolicy: {{name: app}}, {spec[1:]}")

    async def _set(self, spec: str) -> None:
        await self._patch(f"Rollout app {{spec: {spec}}}")

    async def _tag(self, tag: str) -> None:
        await self._status(f"ImagePolicy app {{latestRef: {{name: app, tag: '{tag}'}}}}")

    async def _gate(self, text: str) -> None:
        name, spec = text.split(" ", 1)
        await self._make(f"RolloutGate {name} {{rolloutRef: {{name: app}}, {spec[1:]}")

    async def _open(self, text: str) -> None:
        name, spec = text.split(" ", 1)
        await self._patch(f"RolloutGate {name} {{spec: {spec}}}")

    async def _check(self, name: str) -> None:
        await self._make(f"HealthCheck {name} {{metadata: {{labels: {{app: app}}}}}}")

    async def _health(self, text: str) -> None:
        name, status = text.split(" ")
        more = ", lastErrorTime: '$now'" if status == "Unhealthy" else ""
        await self._status(
            f"HealthCheck {name} {{status: {status}, lastChangeTime: '$now', message: x{more}}}"
        )

    async def _note(self, text: str) -> None:
        key, value = text.split("=", 1)
        patch = {"metadata": {"annotations": {f"rollout.kuberik.com/{key}": value}}}
        await self._api.patch(ROLLOUTS, self._namespace, "app", patch)

    async def _refuse(self, tag: str) -> None:
        await self._refusals.enter_async_context(refusing(self._api, self._namespace, tag))

    async def _allow(self) -> None:
        await self._refusals.aclose()

    async def _restart(self) -> None:
        self._restart_controller()

    async def _wait(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    def _read(self, text: str) -> tuple[str, str, dict[str, Any]]:
        kind, name, *rest = text.split(" ", 2)
        now = datetime.now(UTC)
        values = {
            "$NS": self._namespace,
            "$select": _FLOW,
            "$now": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "$old": f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
            "$later": f"{now + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
            "$today": f"{now:%A}",
            "$yesterday": f"{now - timedelta(days=1):%A}",
            "$tomorrow": f"{now + timedelta(days=1):%A}",
            "$soon": f"{now + SOON:%H:%M}",
            "$then": f"{now + SOON + timedelta(hours=2):%H:%M}",
        }
        body = rest[0] if rest else "{}"
        for key, value in values.items():
            name, body = name.replace(key, value), body.replace(key, value)
        return kind, name, yaml.safe_load(body) or {}


_FLOW: Final = yaml.safe_dump(SELECTED, default_flow_style=True).strip()
