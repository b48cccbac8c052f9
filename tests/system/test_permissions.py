"""What the operator may do: the verbs of the shipped Roles are those that are used, and no others.

What happens without each of them is told in `permissions.txt`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec, three_zones

from tests.system.budgeted import create_budgets, report_twice
from tests.system.grants import group_of, list_unneeded, may, reported, shipped_grants, without
from tests.system.guarded import guard, prepared_zone
from tests.system.hooked import fetch_secret
from tests.system.waits import wait_line, wait_reason, wait_true
from tests.world.api import Json, Resource
from tests.world.budgets import grouped_zones, zone_budget
from tests.world.clients import Route
from tests.world.manifests import SECRET
from tests.world.proxy import Cut, NeverAnswer, verbs
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# A refused watch or write is tried again after 30 s at the latest, and lists before it watches.
AFTER_REFUSAL: Final = timedelta(seconds=120)
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


async def test_sec17_the_role_is_what_is_used_and_no_more(world: World) -> None:
    """SEC-17, SI-24, SEED-008, SEED-064: a start, a rollout and a lost answer use every verb.

    None of the calls is refused, and none leaves the namespace.
    """
    labels = {"rollout-group": "ingester"}
    await create_budgets(world, [zone_budget("ingester", labels, maxUnavailable=2)])
    names = await world.create(*grouped_zones(max_unavailable=2))
    operator = await world.operator("-kubernetes.client-timeout=3s", is_through_proxy=True)
    for effect, image in ((Cut(), "v2"), (NeverAnswer(), "v3")):
        rule = world.proxy.add(verbs("delete", "pods"), effect, times=1)
        await world.roll(names, image, AFTER_REFUSAL)
        assert rule.times == 0
    await wait_reason(operator, "ingester", "up_to_date")
    await report_twice(world, operator, "ingester")
    await operator.terminate()
    calls = await world.judge.calls(with_events=True)
    used = {(call.verb, call.resource) for call in calls}
    assert used == shipped_grants() - await list_unneeded(world)
    # 409 is the answer to a precondition that no longer holds; a first lease and Events are made.
    others = [call for call in calls if call.resource not in ("leases", "events")]
    assert {call.code for call in others} <= {0, 200, 409}
    assert {call.code for call in calls} <= {0, 200, 201, 404, 409}
    assert {call.namespace for call in calls} == {world.namespace}
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


async def test_sec17_rights_of_webhooks_are_what_is_used_and_no_more(world: World) -> None:
    """SEC-17, SEC-18, SEED-100: the first start, a renewal, a wiped bundle and two downscales."""
    pods = await world.serve_pods()
    zone = prepared_zone(pods, ZoneSpec(name="a", group="a"))
    guarded = await guard(
        world, zone, pods=pods, flags=("-server-tls.self-signed-cert.expiration=5s",)
    )
    first = await fetch_secret(world)
    for route, count in ((Route.SCALE_MERGE, 2), (Route.MERGE, 1)):
        assert (await guarded.workload("a").scale(count, route)).status == 200
        await guarded.wait_recorded("a")
    await _wait_renewed(world, first)
    await guarded.operator.terminate()
    calls = await world.judge.calls()
    used = {(call.verb, call.resource) for call in calls}
    wanted = shipped_grants("components/webhooks")
    assert wanted - used == set(), "granted and never used"
    assert used - wanted - shipped_grants() == set(), "used and not granted"
    assert {call.code for call in calls} <= {0, 200, 201, 404, 409}
    assert {call.name for call in calls if call.resource == "secrets"} <= {SECRET, ""}


async def _wait_renewed(world: World, before: Mapping[str, bytes]) -> None:
    async def is_renewed() -> bool:
        return (await fetch_secret(world))["cert"] != before["cert"]

    await wait_true("renewed", is_renewed, AFTER_REFUSAL)
