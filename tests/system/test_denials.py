"""Who was refused: the name that the API server knows them by, in the log and in a metric."""

import asyncio
import json

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.system.guarded import NO_DOWNSCALE, guard
from tests.system.waits import read_metric
from tests.world.api import ROLE_BINDINGS, ROLES, STATEFULSETS, Answer
from tests.world.clients import Route, Workload
from tests.world.world import World

pytestmark = pytest.mark.controlplane

NAME = "rollout_operator_webhook_denials_total"
TENANT = "tenant"


async def let_scale(world: World) -> str:
    """Create a ServiceAccount that may scale StatefulSets, and return a token for it."""
    token = await world.plane.create_account(world.api, world.namespace, TENANT)
    rules = [
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "verbs": ["get", "patch"]},
    ]
    api_version = "rbac.authorization.k8s.io/v1"
    head = {"apiVersion": api_version, "metadata": {"name": TENANT}}
    await world.post(ROLES, {**head, "kind": "Role", "rules": rules})
    binding = {
        **head,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT},
        "subjects": [{"kind": "ServiceAccount", "name": TENANT, "namespace": world.namespace}],
    }
    await world.post(ROLE_BINDINGS, binding)
    return token


async def scale_when_permitted(workload: Workload, replicas: int) -> Answer:
    """Request a count, again while the API server does not know the Role yet."""
    async with asyncio.timeout(30):
        while True:
            answer = await workload.scale(replicas, Route.SCALE_MERGE)
            if "forbidden: User" not in json.dumps(answer.body):
                return answer
            await asyncio.sleep(0.05)


async def test_a_refusal_names_the_service_account_of_the_request(world: World) -> None:
    """The log line and the metric hold its full name; what was not refused is not counted."""
    guarded = await guard(world, ZoneSpec(name="kept", labels={NO_DOWNSCALE: "true"}))
    tenant = f"system:serviceaccount:{world.namespace}:{TENANT}"
    hook = "admission_no_downscale"
    async with world.plane.api(await let_scale(world)) as api:
        workload = Workload(api=api, namespace=world.namespace, name="kept")
        answer = await scale_when_permitted(workload, 1)
        upscale = await scale_when_permitted(workload, 4)

    assert (answer.status, upscale.status) == (400, 200), (answer, upscale)
    reported = [line for line in guarded.operator.log_lines() if "Refusing change" in line]
    assert f" name=kept replicas_from=3 replicas_to=1 dry_run=false user={tenant} " in reported[-1]
    assert await read_metric(guarded.operator, NAME, hook=hook, user=tenant) == 1
    assert await read_metric(guarded.operator, NAME, hook=hook, user="other") == 0
    found = await world.get(STATEFULSETS, "kept")
    assert found["spec"]["replicas"] == 4
