"""The shipped manifests, applied as they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.world.api import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Api,
    Json,
    Resource,
)

BASE: Final = Path(__file__).parents[2] / "manifests" / "base"
ACCOUNT: Final = "rollout-operator"
KINDS: Final[dict[str, Resource]] = {
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "Deployment": DEPLOYMENTS,
    "Role": ROLES,
    "RoleBinding": ROLE_BINDINGS,
    "Service": SERVICES,
    "ServiceAccount": SERVICE_ACCOUNTS,
}


@dataclass(frozen=True, slots=True)
class UnknownKindError(Exception):
    """A manifest is of a kind that the test world has no path for."""

    kind: str


def read_manifests(folder: Path = BASE) -> list[Json]:
    """Return the objects of a kustomize base in the order of its `resources`."""
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
