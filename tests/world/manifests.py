"""The shipped manifests, applied as they are."""

import asyncio
import copy
import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from tests.rendered import install
from tests.world.api import (
    BUDGETS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    MUTATING_HOOKS,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_HOOKS,
    Api,
    ApiError,
    Json,
    Resource,
)

BASE: Final = Path(__file__).parents[2] / "manifests" / "base"
COMPONENTS: Final = BASE.parent / "components"
SHADOW: Final = BASE.parent / "shadow"
# Stands for a namespace in what is rendered once for all of them.
ANY_NAMESPACE: Final = "any-namespace"
ACCOUNT: Final = "rollout-operator"
KINDS: Final[dict[str, Resource]] = {
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "Deployment": DEPLOYMENTS,
    "MutatingWebhookConfiguration": MUTATING_HOOKS,
    "NetworkPolicy": NETWORK_POLICIES,
    "PodDisruptionBudget": BUDGETS,
    "Role": ROLES,
    "RoleBinding": ROLE_BINDINGS,
    "Secret": SECRETS,
    "Service": SERVICES,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "ValidatingWebhookConfiguration": VALIDATING_HOOKS,
}
SECRET: Final = "rollout-operator-self-signed-certificate"
LEASE: Final = "rollout-operator"


@dataclass(frozen=True, slots=True)
class UnknownKindError(Exception):
    """A manifest is of a kind that the test world has no path for."""

    kind: str


def read_manifests(folder: Path = BASE) -> list[Json]:
    """Return the objects of a kustomize base in the order of its `resources`."""
    return copy.deepcopy(_read(folder))


@cache
def _read(folder: Path) -> list[Json]:
    # Each test applies some: a tenth of a second each time it is parsed.
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return [
        document
        for name in listed["resources"]
        for document in yaml.safe_load_all((folder / name).read_text())
        if document is not None
    ]


async def apply_manifests(api: Api, namespace: str, manifests: list[Json]) -> None:
    """Apply objects on the server's side, in a namespace as `kubectl -k --namespace` would."""
    for manifest in manifests:
        resource = KINDS.get(manifest["kind"])
        if resource is None:
            raise UnknownKindError(manifest["kind"])
        await api.patch(resource, namespace, manifest["metadata"]["name"], manifest, kind="apply")


async def grant_shipped_role(api: Api, namespace: str) -> None:
    """Apply ServiceAccount, Role and RoleBinding, and leave out what would run pods."""
    wanted = {"ServiceAccount", "Role", "RoleBinding"}
    await apply_manifests(
        api, namespace, [each for each in read_manifests() if each["kind"] in wanted]
    )


async def remove_cluster_scoped(api: Api, manifests: list[Json]) -> None:
    """Delete those of the objects that belong to no namespace."""
    for manifest in manifests:
        resource = KINDS[manifest["kind"]]
        if not resource.is_namespaced:
            with suppress(ApiError):
                await api.delete(resource, "", manifest["metadata"]["name"])


def render_rights(component: str, namespace: str) -> list[Json]:
    """Return the Roles of a component, and its Secret, as they are shipped."""
    folder = COMPONENTS / component
    if not (folder / "clusterrole.yaml").exists():
        # No name of these depends on the namespace: that needs no kubectl.
        role, binding = (
            yaml.safe_load((folder / f"{name}.yaml").read_text())
            for name in ("role", "rolebinding")
        )
        binding["subjects"][0]["namespace"] = namespace
        return [role, binding]
    rendered: list[Json] = json.loads(_render(component).replace(ANY_NAMESPACE, namespace))
    return [
        one
        for one in rendered
        if one["kind"].endswith(("Role", "RoleBinding", "Secret"))
        and one["metadata"]["name"] != ACCOUNT
    ]


@cache
def _render(component: str) -> str:
    with TemporaryDirectory() as folder:
        return json.dumps(install(Path(folder), component, namespace=ANY_NAMESPACE))


async def grant_component(
    api: Api, namespace: str, component: str, verbs: Collection[str] = ()
) -> list[Json]:
    """Grant what a component does; where verbs are named, its rules of these only.

    Of what is returned the cluster-scoped ones outlive the namespace: see `remove_cluster_scoped`.
    """
    manifests = render_rights(component, namespace)
    if verbs:
        role = manifests[0]
        kept = [rule for rule in role["rules"] if {*rule["verbs"]} <= {*verbs}]
        assert 0 < len(kept) < len(role["rules"])
        role["rules"] = kept
    await apply_manifests(api, namespace, manifests)
    for one in manifests:
        # A controller fills it.
        while "aggregationRule" in one and not one.get("rules"):
            await asyncio.sleep(0.1)
            one = await api.get(CLUSTER_ROLES, "", one["metadata"]["name"])
    return manifests
