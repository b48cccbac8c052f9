"""What the operator may do: the verbs of the shipped Roles are those that are used, and no others.

What happens without each of them is told in `permissions.txt`.
"""

from typing import Final

import pytest
from rollout_lab.zones import three_zones

from tests.system.grants import group_of, list_unneeded, may, reported, shipped_grants, without
from tests.system.waits import wait_line
from tests.world.api import Json, Resource
from tests.world.world import World

pytestmark = pytest.mark.controlplane

BUDGETS: Final = "rollout-operator.grafana.com"
ZPDB: Final = "zoneawarepoddisruptionbudgets"
OF_EVERYONE: Final = {"authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io"}
RULES_REVIEWS: Final = Resource(
    "authorization.k8s.io/v1", "selfsubjectrulesreviews", is_namespaced=False
)


async def test_sec17_rights_to_record_the_revision(world: World) -> None:
    """SEC-17: pods roll, but the revision is not recorded, unless Kubernetes does so."""
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator()
    unneeded = await list_unneeded(world)
    for image, grant in (
        ("v2", ("get", "statefulsets")),
        ("v3", ("update", "statefulsets/status")),
    ):
        async with without(world, grant):
            await world.set_image(names, image)
            if grant not in unneeded:
                await wait_line(operator, "group=ingester ", "backing_off", reported(*grant))
                for found in (await world.wait_rolled(names)).sets.values():
                    status = found["status"]
                    assert status["currentRevision"] != status["updateRevision"], grant
        await world.wait_adopted(names)
    await world.judge.assert_clean()


# A group, a resource and verbs on it: ways to secrets, into pods, to workloads, to more rights.
FORBIDDEN: Final = (
    ("", "secrets", "get list watch create update patch delete"),
    ("", "configmaps", "get list create update patch delete"),
    ("", "pods", "create update deletecollection"),
    ("", "pods/exec", "get create"),
    ("", "pods/log", "get"),
    ("", "pods/eviction", "create"),
    ("", "pods/status", "update patch"),
    ("", "serviceaccounts/token", "create"),
    ("apps", "statefulsets", "create update patch delete"),
    ("apps", "statefulsets/scale", "get update patch"),
    ("apps", "statefulsets/status", "get patch"),
    ("coordination.k8s.io", "leases", "list watch update delete deletecollection"),
    ("events.k8s.io", "events", "get list watch update delete"),
    (BUDGETS, ZPDB, "get create update patch delete"),
    (BUDGETS, f"{ZPDB}/status", "get update"),
    ("apps", "deployments", "get create update patch delete"),
    ("batch", "jobs", "create"),
    ("rbac.authorization.k8s.io", "rolebindings", "create update patch bind"),
    ("rbac.authorization.k8s.io", "roles", "create update escalate"),
)


async def test_sec19_what_a_stolen_token_can_do(world: World) -> None:
    """SEC-19, SI-24, RBAC-10, SEED-008: the server's own list is the Role; it ends here."""
    async with world.plane.api(world.token) as thief:
        requested = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1"}
        body: Json = {**requested, "spec": {"namespace": world.namespace}}
        answer = await thief.create(RULES_REVIEWS, "", body)
    granted = {
        (verb, resource)
        for rule in answer["status"]["resourceRules"]
        # What every holder of a token may: review oneself, and read bundles of CAs since 1.37.
        if not OF_EVERYONE & set(rule["apiGroups"])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == shipped_grants()
    for group, resource, denied in FORBIDDEN:
        for verb in denied.split():
            assert not await may(world, verb, resource, group), (verb, resource)
    for verb, resource in granted:
        group = group_of(resource)
        assert await may(world, verb, resource, group), (verb, resource)
        assert not await may(world, verb, resource, group, "kube-system"), (verb, resource)
