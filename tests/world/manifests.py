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


async def grant_webhook_roles(api: Api, namespace: str) -> list[Json]:
    """Grant what reviews and certificates need, with the empty Secret; return what was applied.

    The cluster-scoped ones outlive the namespace: see `remove_cluster_scoped`.
    """
    manifests = webhook_rights(namespace)
    await apply_manifests(api, namespace, manifests)
    return manifests


async def remove_cluster_scoped(api: Api, manifests: list[Json]) -> None:
    """Delete those of the objects that belong to no namespace."""
    for manifest in manifests:
        resource = KINDS[manifest["kind"]]
        if not resource.is_namespaced:
            with suppress(ApiError):
                await api.delete(resource, "", manifest["metadata"]["name"])


def has_cluster_roles(component: str) -> bool:
    """Return whether a component grants rights in the cluster, and not in a namespace."""
    return not (COMPONENTS / component / "role.yaml").exists()


async def grant_component(
    api: Api, namespace: str, component: str, verbs: Collection[str] = ()
) -> None:
    """Grant what the Role of a component does; where verbs are named, its rules of these only."""
    folder = COMPONENTS / component
    role, binding = (
        yaml.safe_load((folder / name).read_text()) for name in ("role.yaml", "rolebinding.yaml")
    )
    if verbs:
        kept = [rule for rule in role["rules"] if {*rule["verbs"]} <= {*verbs}]
        assert 0 < len(kept) < len(role["rules"])
        role["rules"] = kept
    binding["subjects"][0]["namespace"] = namespace
    await apply_manifests(api, namespace, [role, binding])


@cache
def _render(component: str) -> str:
    with TemporaryDirectory() as folder:
        return json.dumps(install(Path(folder), component, namespace=ANY_NAMESPACE))


async def grant_in_cluster(api: Api, namespace: str, component: str) -> list[Json]:
    """Grant what a component does by ClusterRoles, and return what was applied.

    These outlive the namespace: see `remove_cluster_scoped`.
    """
    rendered: list[Json] = json.loads(_render(component).replace(ANY_NAMESPACE, namespace))
    manifests = [one for one in rendered if one["kind"].startswith("ClusterRole")]
    await apply_manifests(api, namespace, manifests)
    for one in manifests:
        # A controller fills it.
        while "aggregationRule" in one and not one.get("rules"):
            await asyncio.sleep(0.1)
            one = await api.get(CLUSTER_ROLES, "", one["metadata"]["name"])
    return manifests


def webhook_rights(namespace: str) -> list[Json]:
    """Return the Roles and the Secret of the component `webhooks`, as they are shipped."""
    rendered: list[Json] = json.loads(_render("webhooks").replace(ANY_NAMESPACE, namespace))
    return [
        one
        for one in rendered
        if one["kind"].endswith(("Role", "RoleBinding", "Secret"))
        and one["metadata"]["name"] != ACCOUNT
    ]
