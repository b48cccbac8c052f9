"""The operator's Role: what the shipped one holds, and taking a verb of it away in a world."""

import asyncio
from datetime import timedelta
from typing import Final

from tests.world.api import ROLES, Json, Resource
from tests.world.manifests import ACCOUNT, grant_shipped_role, read_manifests
from tests.world.scene import World

REVIEWS: Final = Resource("authorization.k8s.io/v1", "subjectaccessreviews", is_namespaced=False)
EFFECT_LIMIT: Final = timedelta(seconds=30)
POLL: Final = timedelta(milliseconds=20)

Grant = tuple[str, str]
"""A verb and a resource, with its subresource: `("update", "statefulsets/status")`."""


def shipped_grants() -> set[Grant]:
    """Return all that the shipped Role grants."""
    return {
        (verb, resource)
        for manifest in read_manifests()
        if manifest["kind"] == "Role"
        for rule in manifest["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def group_of(resource: str) -> str:
    """Return the API group of a resource in the shipped Role."""
    name = resource.partition("/")[0]
    return {
        "statefulsets": "apps",
        "zoneawarepoddisruptionbudgets": "rollout-operator.grafana.com",
    }.get(name, "")


async def take_away(world: World, verb: str, resource: str) -> None:
    """Take one verb away from the operator and wait until the API server knows."""
    world.may_be_forbidden = True
    role = await world.api.get(ROLES, world.namespace, ACCOUNT)
    rules = [_without(rule, verb, resource) for rule in role["rules"]]
    role["rules"] = [rule for rule in rules if rule["verbs"]]
    await world.api.replace(ROLES, world.namespace, ACCOUNT, role)
    await _wait_effect(world, verb, resource, is_allowed=False)


async def give_back(world: World, verb: str, resource: str) -> None:
    """Apply the shipped Role again and wait until the API server knows."""
    await grant_shipped_role(world.api, world.namespace)
    await _wait_effect(world, verb, resource, is_allowed=True)


async def may(world: World, verb: str, resource: str, group: str = "", namespace: str = "") -> bool:
    """Ask the API server whether the operator may do this; its own namespace is the default."""
    name, _, subresource = resource.partition("/")
    asked = {
        "namespace": namespace or world.namespace,
        "verb": verb,
        "group": group,
        "resource": name,
        "subresource": subresource,
    }
    groups = ["system:authenticated", "system:serviceaccounts"]
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": world.user, "groups": groups, "resourceAttributes": asked},
    }
    answer = await world.api.create(REVIEWS, "", body)
    return bool(answer["status"]["allowed"])


def _without(rule: Json, verb: str, resource: str) -> Json:
    if resource not in rule["resources"]:
        return rule
    assert rule["resources"] == [resource], "each resource has a rule of its own"
    return {**rule, "verbs": [one for one in rule["verbs"] if one != verb]}


async def _wait_effect(world: World, verb: str, resource: str, *, is_allowed: bool) -> None:
    group = group_of(resource)
    async with asyncio.timeout(EFFECT_LIMIT.total_seconds()):
        while await may(world, verb, resource, group) is not is_allowed:  # noqa: ASYNC110
            await asyncio.sleep(POLL.total_seconds())
