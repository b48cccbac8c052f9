"""The operator's rights: what is shipped, and taking some of it away in a world."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.rendered import MANIFESTS
from tests.system.waits import wait_true
from tests.world.api import CLUSTER_ROLES, ROLES, Json, Resource
from tests.world.judge import HOOKS
from tests.world.manifests import ACCOUNT, SECRET, apply_manifests
from tests.world.world import World

REVIEWS: Final = Resource("authorization.k8s.io/v1", "subjectaccessreviews", is_namespaced=False)
GROUPS: Final = {
    **dict.fromkeys(("statefulsets", "deployments", "replicasets"), "apps"),
    "pods": "",
    "leases": "coordination.k8s.io",
    "poddisruptionbudgets": "policy",
    "events": "events.k8s.io",
    "zoneawarepoddisruptionbudgets": "rollout-operator.grafana.com",
    "multiazrollouts": "rollout.grafana.com",
    **dict.fromkeys(
        ("rollouts", "rolloutgates", "rolloutschedules", "healthchecks"), "kuberik.com"
    ),
    "imagepolicies": "image.toolkit.fluxcd.io",
    "ocirepositories": "source.toolkit.fluxcd.io",
    "kustomizations": "kustomize.toolkit.fluxcd.io",
    **dict.fromkeys(HOOKS, "admissionregistration.k8s.io"),
}
# Those that are granted for one object only; a create names none.
NAMES: Final = {
    "secrets": SECRET,
    "configmaps": "rollout-operator-zone-tracker",
    "leases": "rollout-operator",
}

READER: Final = "reader"
"""The account of a person who may only read."""

Grant = tuple[str, str]
"""A verb and a resource, with its subresource: `("update", "statefulsets/status")`."""


def shipped_grants(folder: str = "base") -> set[Grant]:
    """Return all that the Roles in a folder of the manifests grant."""
    roles = [yaml.safe_load(path.read_text()) for path in (MANIFESTS / folder).glob("*role.yaml")]
    return {
        (verb, resource)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def list_unneeded(world: World) -> set[Grant]:
    """Return the grants of the base that rollouts do not use on this version of Kubernetes.

    Since 1.37 the StatefulSet controller records the revision itself.
    """
    served = await world.api.call("GET", "/version")
    is_recorded = (int(served["major"]), int(served["minor"])) >= (1, 37)
    return {("get", "statefulsets"), ("update", "statefulsets/status")} if is_recorded else set()


def group_of(resource: str) -> str:
    return GROUPS.get(resource.partition("/")[0], "")


def reported(verb: str, resource: str) -> str:
    """Return how a log line, in which quotes are escaped, names a right."""
    role = "ClusterRole" if resource in HOOKS else "Role"
    what = f'\\"{resource}\\" in API group \\"{group_of(resource)}\\"'
    return f"grant verb {verb} on {what} in its {role}"


@asynccontextmanager
async def without(world: World, *grants: Grant) -> AsyncIterator[None]:
    """Take verbs away from the operator inside of the block; the API server knows both times."""
    before = [(grant, await take_away(world, *grant)) for grant in grants]
    yield
    for (verb, resource), rules in reversed(before):
        where, role = await _fetch_role(world, verb, resource)
        await world.api.replace(*where, {**role, "rules": rules})
        await _wait_effect(world, verb, resource, is_allowed=True)


async def take_away(world: World, verb: str, resource: str) -> list[Json]:
    """Take one verb away from the operator; return the rules as they were."""
    world.may_be_forbidden = True
    where, role = await _fetch_role(world, verb, resource)
    left = [_without(rule, verb, resource) for rule in role["rules"]]
    changed = {**role, "rules": [rule for rule in left if rule["verbs"]]}
    await world.api.replace(*where, changed)
    await _wait_effect(world, verb, resource, is_allowed=False)
    rules: list[Json] = role["rules"]
    return rules


async def may(world: World, verb: str, resource: str, group: str = "", namespace: str = "") -> bool:
    """Return whether the API server lets the operator do this; its own namespace is the default."""
    name, _, subresource = resource.partition("/")
    requested = {
        "namespace": namespace or ("" if resource in HOOKS else world.namespace),
        "verb": verb,
        "group": group,
        "resource": name,
        "subresource": subresource,
        "name": "" if verb == "create" else NAMES.get(name, ""),
    }
    groups = ["system:authenticated", "system:serviceaccounts"]
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": world.user, "groups": groups, "resourceAttributes": requested},
    }
    answer = await world.api.create(REVIEWS, "", body)
    return bool(answer["status"]["allowed"])


async def _fetch_role(
    world: World, verb: str, resource: str
) -> tuple[tuple[Resource, str, str], Json]:
    """Return the Role that grants this, and where it is."""
    if resource in HOOKS:
        where = (CLUSTER_ROLES, "", f"{ACCOUNT}-{world.namespace}-webhooks")
    else:
        part = {"secrets": "-webhooks", "configmaps": "-zone-tracker"}.get(resource, "")
        part = "-webhooks" if (verb, resource) == ("patch", "statefulsets") else part
        where = (ROLES, world.namespace, f"{ACCOUNT}{part}")
    return where, await world.api.get(*where)


def _without(rule: Json, verb: str, resource: str) -> Json:
    if resource not in rule["resources"]:
        return rule
    assert rule["resources"] == [resource], "each resource has a rule of its own"
    return {**rule, "verbs": [one for one in rule["verbs"] if one != verb]}


async def _wait_effect(world: World, verb: str, resource: str, *, is_allowed: bool) -> None:
    async def is_known() -> bool:
        return await may(world, verb, resource, group_of(resource)) is is_allowed

    await wait_true(f"known: {verb} {resource} {is_allowed}", is_known)


async def grant_reads(world: World, grants: Iterable[Grant]) -> Path:
    """Return the kubeconfig of an account that may do this in the namespace, and nothing else."""
    rules = [
        {"apiGroups": [GROUPS[kind]], "resources": [kind], "verbs": [verb]} for verb, kind in grants
    ]
    rbac = "rbac.authorization.k8s.io"
    named = {"metadata": {"name": READER}}
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", **named},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", **named, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            **named,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": READER},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": world.namespace}],
        },
    ]
    await apply_manifests(world.api, world.namespace, objects)
    token = await world.plane.fetch_token(world.api, world.namespace, READER)
    path = world.folder / "reader.conf"
    return world.plane.kubeconfig(path, token, namespace=world.namespace)
