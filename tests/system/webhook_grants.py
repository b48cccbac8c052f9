"""The operator's rights for webhooks: what the shipped component grants, and taking some away."""

from dataclasses import dataclass
from typing import Final

import yaml

from tests.rendered import MANIFESTS
from tests.system.grants import REVIEWS
from tests.system.hooked import wait_true
from tests.world.api import CLUSTER_ROLES, ROLES, Json, Resource
from tests.world.manifests import ACCOUNT, SECRET, apply_manifests
from tests.world.scene import World

HOOKS_GROUP: Final = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    verb: str
    name: str = ""
    """Of the only object that it is for; empty means all."""

    @property
    def told(self) -> str:
        """Return how a log line, in which quotes are escaped, asks for it."""
        role = "ClusterRole" if self.group == HOOKS_GROUP else "Role"
        what = f'\\"{self.resource}\\" in API group \\"{self.group}\\"'
        return f"grant verb {self.verb} on {what} in its {role}"


def shipped_rights() -> set[Right]:
    """Return what the component `webhooks` grants besides the Role of the base."""
    folder = MANIFESTS / "components" / "webhooks"
    roles = [yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in ROLE_FILES]
    return {right for role in roles for right in rights_of(role)}


ROLE_FILES: Final = ("role", "clusterrole")


def rights_of(role: Json) -> set[Right]:
    """Return what a Role or ClusterRole grants."""
    return {
        Right(group=group, resource=resource, verb=verb, name=name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


async def grant_tracker(world: World) -> None:
    """Grant what the component `zone-tracker` does."""
    folder = MANIFESTS / "components" / "zone-tracker"
    role, binding = (
        yaml.safe_load((folder / name).read_text()) for name in ("role.yaml", "rolebinding.yaml")
    )
    binding["subjects"][0]["namespace"] = world.namespace
    await apply_manifests(world.api, world.namespace, [role, binding])


async def drop(world: World, right: Right) -> Json:
    """Take a right away, wait until the API server knows, and return the role as it was."""
    world.may_be_forbidden = True
    resource, namespace, name = _role_of(world, right)
    before = await world.api.get(resource, namespace, name)
    role = {**before, "rules": [_without(rule, right) for rule in before["rules"]]}
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    await world.api.replace(resource, namespace, name, role)
    await wait_true(f"without {right}", lambda: _lacks(world, right))
    return before


async def restore(world: World, right: Right, before: Json) -> None:
    """Put the role back and wait until the API server knows."""
    resource, namespace, name = _role_of(world, right)
    role = await world.api.get(resource, namespace, name)
    await world.api.replace(resource, namespace, name, {**role, "rules": before["rules"]})

    async def is_back() -> bool:
        return not await _lacks(world, right)

    await wait_true(f"with {right}", is_back)


def _role_of(world: World, right: Right) -> tuple[Resource, str, str]:
    if right.group == HOOKS_GROUP:
        return CLUSTER_ROLES, "", f"{ACCOUNT}-{world.namespace}-webhooks"
    if right.resource == "pods":
        return ROLES, world.namespace, ACCOUNT
    part = "zone-tracker" if right.resource == "configmaps" else "webhooks"
    return ROLES, world.namespace, f"{ACCOUNT}-{part}"


def _without(rule: Json, right: Right) -> Json:
    if right.resource not in rule["resources"]:
        return rule
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb != right.verb]}


async def _lacks(world: World, right: Right) -> bool:
    is_here = right.group != HOOKS_GROUP
    attributes = {
        "namespace": world.namespace if is_here else "",
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "name": SECRET if right.resource == "secrets" and right.verb != "create" else right.name,
    }
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": world.user, "resourceAttributes": attributes},
    }
    answer = await world.api.create(REVIEWS, "", body)
    return not answer["status"]["allowed"]
