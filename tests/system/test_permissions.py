"""What the operator may do: every verb of the shipped Role is needed, and no other is asked for.

Each verb is taken away in turn. The group then waits and says which verb on which resource is
missing, and goes on by itself when it is given back: nobody has to restart anything (LI-01).
"""

from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import three_zones
from tests.system.budgeted import create_budgets
from tests.system.grants import give_back, group_of, may, shipped_grants, take_away
from tests.system.looks import read_metric, wait_page, wait_reason
from tests.system.starts import running, wait_for, wait_line
from tests.world.api import STATEFULSETS, Json, Resource
from tests.world.budgets import grouped_zones, zone_budget
from tests.world.faults import Cut, NeverAnswer, verbs, watches
from tests.world.operatorproc import OperatorProcess
from tests.world.scene import World
from tests.world.sets import set_image, wait_adopted, wait_rolled

pytestmark = pytest.mark.controlplane

# A refused watch is tried again after 30 s at the latest, and lists before it watches.
AFTER_REFUSAL: Final = timedelta(seconds=120)
LABELS: Final = {"rollout-group": "ingester"}
BUDGETS: Final = "rollout-operator.grafana.com"
RULES_REVIEWS: Final = Resource(
    "authorization.k8s.io/v1", "selfsubjectrulesreviews", is_namespaced=False
)


def _told(verb: str, resource: str) -> str:
    group = group_of(resource)
    # As logfmt writes a quoted text.
    return f'grant verb {verb} on \\"{resource}\\" in API group \\"{group}\\" in its Role'


async def test_sec17_delete_pods(world: World) -> None:
    """SEC-17, LI-01: without it nothing is rolled; the page, the log and a metric say why."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await take_away(world, "delete", "pods")
    await set_image(world.api, world.namespace, names, "v2")
    told = ("group=ingester ", "reason=backing_off", _told("delete", "pods"))
    assert "level=warn" in await wait_line(operator, *told)
    waiting = "rollout_operator_group_waiting"
    assert await read_metric(operator, waiting, reason="backing_off") == 1
    page = (await operator.fetch("/status"))[1]
    assert 'grant verb delete on "pods"' in page
    assert (await operator.fetch("/ready"))[0] == 200, "it works, and a restart mends nothing"
    assert {one.code for one in await world.judge.deletes()} == {403}
    await give_back(world, "delete", "pods")
    await wait_adopted(world.api, world.namespace, names)
    # The audit log shows no body of a request that the role refused, hence no preconditions.
    assert all(
        one.asked_uid and one.asked_version for one in await world.judge.deletes() if one.is_done
    )
    assert [one for one in await world.judge.violations() if one.at] == []


async def test_sec17_get_pods(world: World) -> None:
    """SEC-17, SI-18: without it nobody learns what became of a delete without an answer."""
    names = await world.create(*three_zones())
    operator = await world.operator("-kubernetes.client-timeout=3s", is_through_proxy=True)
    await take_away(world, "get", "pods")
    world.proxy.add(verbs("delete", "pods"), Cut(), times=1)
    await set_image(world.api, world.namespace, names, "v2")
    await wait_line(operator, "group=ingester ", _told("get", "pods"))
    assert await world.judge.deletes() == [], "nothing is sent before it is known"
    await give_back(world, "get", "pods")
    await wait_adopted(world.api, world.namespace, names, AFTER_REFUSAL)
    await world.judge.assert_clean()


async def test_sec17_get_statefulsets(world: World) -> None:
    """SEC-17: without it pods roll, but the revision is not recorded."""
    await _rolls_without_recording(world, "get", "statefulsets")


async def test_sec17_update_status_of_statefulsets(world: World) -> None:
    """SEC-17: without it pods roll, but the revision is not recorded."""
    await _rolls_without_recording(world, "update", "statefulsets/status")


@pytest.mark.parametrize("resource", ["pods", "statefulsets"])
async def test_sec17_list(world: World, resource: str) -> None:
    """SEC-17, SI-09: without it there is no live look, and so no delete."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await take_away(world, "list", resource)
    await set_image(world.api, world.namespace, names, "v2")
    await wait_line(operator, "group=ingester ", _told("list", resource))
    assert await world.judge.deletes() == []
    await give_back(world, "list", resource)
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


@pytest.mark.parametrize("resource", ["pods", "statefulsets"])
async def test_sec17_watch(world: World, resource: str) -> None:
    """SEC-17, LI-14: without it a watch that ends is not opened again, which is an error."""
    names = await world.create(*three_zones())
    operator = await world.operator(is_through_proxy=True)
    await take_away(world, "watch", resource)
    with world.proxy.during(watches(resource), Cut()):
        pass
    line = await wait_line(operator, "Watch interrupted", _told("watch", resource))
    assert "level=error" in line
    denied = "rollout_operator_watch_restarts_total"
    assert (await read_metric(operator, denied, cause="denied", kind=_kind(resource)) or 0) >= 1
    await set_image(world.api, world.namespace, names, "v2")
    await give_back(world, "watch", resource)
    await wait_adopted(world.api, world.namespace, names, AFTER_REFUSAL)
    await world.judge.assert_clean()


async def test_sec17_the_role_is_what_is_used_and_no_more(world: World) -> None:
    """SEC-17, SI-24, SEED-008, SEED-064: a start, a rollout and a lost answer use every verb.

    None of the calls is refused, and none leaves the namespace.
    """
    await create_budgets(world, [zone_budget("ingester", LABELS, maxUnavailable=2)])
    names = await world.create(*grouped_zones(max_unavailable=2))
    launch = world.launch("-kubernetes.client-timeout=3s", url=world.proxy.url)
    async with running(launch) as operator:
        for effect, image in ((Cut(), "v2"), (NeverAnswer(), "v3")):
            rule = world.proxy.add(verbs("delete", "pods"), effect, times=1)
            await set_image(world.api, world.namespace, names, image)
            await wait_adopted(world.api, world.namespace, names, AFTER_REFUSAL)
            assert rule.times == 0
        await wait_reason(operator, "ingester", "up_to_date")
        await operator.terminate()
    calls = await world.judge.calls()
    assert {(call.verb, call.resource) for call in calls} == shipped_grants()
    # 409 is the answer to a precondition that no longer holds.
    assert {call.code for call in calls} <= {0, 200, 409}
    assert {call.namespace for call in calls} == {world.namespace}
    await world.judge.assert_clean()


async def test_sec19_what_a_stolen_token_can_do(world: World) -> None:
    """SEC-19: the API server's own list of rights is the shipped Role; nothing cluster-wide."""
    async with world.plane.api(world.token) as thief:
        asked = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1"}
        body: Json = {**asked, "spec": {"namespace": world.namespace}}
        answer = await thief.create(RULES_REVIEWS, "", body)
    granted = {
        (verb, resource)
        for rule in answer["status"]["resourceRules"]
        # What everyone may who has a token: ask about oneself.
        if not {"authorization.k8s.io", "authentication.k8s.io"} & set(rule["apiGroups"])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == shipped_grants()


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
    (BUDGETS, "zoneawarepoddisruptionbudgets", "get create update patch delete"),
    (BUDGETS, "zoneawarepoddisruptionbudgets/status", "update patch"),
    ("apps", "deployments", "get create update patch delete"),
    ("batch", "jobs", "create"),
    ("rbac.authorization.k8s.io", "rolebindings", "create update patch bind"),
    ("rbac.authorization.k8s.io", "roles", "create update escalate"),
)


async def test_sec19_what_it_cannot_do(world: World) -> None:
    """SEC-19, RBAC-10: asked of the API server verb by verb."""
    allowed = [
        (verb, resource)
        for group, resource, denied in FORBIDDEN
        for verb in denied.split()
        if await may(world, verb, resource, group)
    ]
    assert allowed == []


async def test_si24_not_even_its_own_verbs_in_another_namespace(world: World) -> None:
    """SI-24, SEC-19, SEED-008: the Role ends at the namespace."""
    for verb, resource in shipped_grants():
        group = group_of(resource)
        assert await may(world, verb, resource, group), (verb, resource)
        assert not await may(world, verb, resource, group, "kube-system"), (verb, resource)


async def test_deploy_a_namespace_without_the_role_binding_is_named(world: World) -> None:
    """SI-24, W-22: pointed at another namespace it says which, and touches nothing there."""
    world.may_be_forbidden = True
    other = f"{world.namespace}-other"
    await world.plane.create_namespace(world.api, other)
    launch = world.launch(f"-kubernetes.namespace={other}")
    async with OperatorProcess(launch) as operator:
        text = await wait_page(operator, "/ready", 500, "is forbidden")
        assert f"in namespace {other}" in text
    await wait_for(lambda: not operator.is_running, lambda: "it runs on")
    assert {call.code for call in await world.judge.calls()} == {403}


async def _rolls_without_recording(world: World, verb: str, resource: str) -> None:
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator()
    await take_away(world, verb, resource)
    await set_image(world.api, world.namespace, names, "v2")
    await wait_line(operator, "group=ingester ", "reason=backing_off", _told(verb, resource))
    await wait_rolled(world.api, world.namespace, names)
    for name in names:
        status = (await world.api.get(STATEFULSETS, world.namespace, name))["status"]
        assert status["currentRevision"] != status["updateRevision"]
    await give_back(world, verb, resource)
    await wait_adopted(world.api, world.namespace, names)
    assert len(await world.judge.deletes()) == len(names)
    await world.judge.assert_clean()


def _kind(resource: str) -> str:
    return {"pods": "Pod", "statefulsets": "StatefulSet"}[resource]
