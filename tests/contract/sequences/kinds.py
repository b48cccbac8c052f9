"""What is special about single kinds: Secrets, Leases, Events, pods, webhook configurations."""

from rollout_operator.kube.api import (
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    PODS,
    REPLICASETS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
)
from rollout_operator.lab.model.request import STRATEGIC_PATCH
from tests.contract.bodies import budget, budget_status, lease, pod, secret, tree, workload
from tests.contract.plays import Play, add_each, sequence
from tests.contract.sides import BUDGETS, CONFIG_MAPS, LEASES, REVISIONS
from tests.contract.world import World


@sequence()
async def a_secret_is_opaque(world: World) -> None:
    await world.create(SECRETS, secret("a", data={"key": "dmFsdWU="}))
    await world.create(SECRETS, secret("b", type="x.org/own"))


@sequence()
async def texts_of_a_secret_become_data(world: World) -> None:
    body = secret("a", data={"key": "dmFsdWU=", "other": "eA=="}, stringData={"key": "text"})
    await world.create(SECRETS, body)
    await world.patch(SECRETS, "a", {"stringData": {"third": "text"}})


@sequence()
async def data_that_is_no_base64(world: World) -> None:
    await world.create(SECRETS, secret("a", data={"key": "?"}))


@sequence()
async def a_key_that_is_none(world: World) -> None:
    await world.create(SECRETS, secret("a", data={"no/key": "eA=="}))


@sequence()
async def the_type_of_a_secret_stays(world: World) -> None:
    await world.make(SECRETS, secret("a"))
    await world.patch(SECRETS, "a", {"type": "x.org/own"})


@sequence()
async def an_immutable_secret(world: World) -> None:
    await world.make(SECRETS, secret("a", data={"key": "eA=="}, immutable=True))
    await world.patch(SECRETS, "a", {"data": {"key": "eQ=="}})
    await world.patch(SECRETS, "a", {"metadata": {"labels": {"x": "y"}}})
    await world.patch(SECRETS, "a", {"immutable": False})


@sequence()
async def an_immutable_config_map(world: World) -> None:
    body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    await world.make(CONFIG_MAPS, {**body, "immutable": True, "data": {"key": "x"}})
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "y"}})


@sequence()
async def a_lease_changes_hands(world: World) -> None:
    first = tree(await world.create(LEASES, lease("a", "one")))
    first["spec"]["holderIdentity"] = "two"
    await world.update(LEASES, "a", first)
    first["spec"]["holderIdentity"] = "three"
    await world.update(LEASES, "a", first)
    await world.get(LEASES, "a")


@sequence()
async def a_lease_with_times(world: World) -> None:
    body = lease("a", "one")
    times = {
        "acquireTime": "2026-01-02T03:04:05.678901Z",
        "renewTime": "2026-01-02T03:04:05.000000Z",
    }
    body["spec"] = {"holderIdentity": "one", "leaseTransitions": 0, **times}
    made = await world.create(LEASES, body)
    spec = tree(made)["spec"]
    world.note("times", stay=all(spec[key] == value for key, value in times.items()))


@sequence()
async def a_lease_without_duration(world: World) -> None:
    await world.create(LEASES, lease("a", "one", seconds=0))


@sequence()
async def a_pod_keeps_its_spec(world: World) -> None:
    await world.make(PODS, pod("a"))
    for spec in ({"hostname": "other"}, {"containers": [{"name": "app", "image": "v2"}]}):
        await world.patch(PODS, "a", {"spec": spec}, STRATEGIC_PATCH)


@sequence()
async def the_status_of_a_pod(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    conditions = [{"type": "Ready", "status": "True"}]
    patch: JsonObject = {"status": {"phase": "Running", "conditions": conditions}}
    await world.patch(PODS, "a/status", patch, STRATEGIC_PATCH)
    await world.patch(PODS, "a/status", patch, STRATEGIC_PATCH)
    conditions = [{"type": "Initialized", "status": "True"}]
    await world.patch(PODS, "a/status", {"status": {"conditions": conditions}}, STRATEGIC_PATCH)
    await world.patch(PODS, "a", {"status": {"phase": "Failed"}})


@sequence()
async def annotations_of_a_pod(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    await world.patch(PODS, "a", {"metadata": {"annotations": {"x.org/note": "1"}}})
    await world.patch(PODS, "a", {"metadata": {"annotations": {"x.org/note": None}}})


@sequence()
async def a_budget(world: World) -> None:
    await world.create(BUDGETS, budget("a", maxUnavailable=1))
    await world.create(BUDGETS, budget("b", minAvailable="50%"))
    await world.patch(BUDGETS, "a", {"spec": {"maxUnavailable": 2}})
    await world.patch(BUDGETS, "a/status", budget_status(1))
    await world.patch(BUDGETS, "a", budget_status(2))


@sequence()
async def a_budget_with_both_limits(world: World) -> None:
    await world.create(BUDGETS, budget("c", minAvailable=1, maxUnavailable=1))


@sequence()
async def scales_of_other_workloads(world: World) -> None:
    for resource, kind in ((DEPLOYMENTS, "Deployment"), (REPLICASETS, "ReplicaSet")):
        await world.make(resource, workload(kind, "a", 3))
        await world.get(resource, "a/scale")
        await world.patch(resource, "a/scale", {"spec": {"replicas": 2}})
        await world.patch(resource, "a", {"spec": {"replicas": 1}})


@sequence()
async def a_revision_s_data_stays(world: World) -> None:
    body: JsonObject = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "a"},
        "data": {"spec": {"x": 1}},
        "revision": 1,
    }
    await world.create(REVISIONS, body)
    await world.patch(REVISIONS, "a", {"revision": 2})
    await world.patch(REVISIONS, "a", {"data": {"spec": {"x": 2}}})
    await world.patch(REVISIONS, "a", {"revision": -1})


def _configuration(kind: str, **webhook: object) -> Play:
    resource = MUTATING_WEBHOOKS if kind == "Mutating" else VALIDATING_WEBHOOKS

    async def play(world: World) -> None:
        await world.create(resource, _guard(world, kind, **webhook))

    return play


def _guard(world: World, kind: str, **webhook: object) -> JsonObject:
    """Return a configuration of one webhook with such fields, or without those that are None."""
    hook = {
        "name": "guard.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **webhook,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": world.unique("guard")},
        "webhooks": [{key: value for key, value in hook.items() if value is not None}],
    }


RULE: JsonObject = {
    "operations": ["UPDATE"],
    "apiGroups": ["nothing.example.org"],
    "apiVersions": ["v1"],
    "resources": ["nothings"],
}
SERVICE: JsonObject = {"service": {"namespace": "x", "name": "y", "path": "/z"}}

add_each(
    (
        ("validating", _configuration("Validating")),
        ("mutating", _configuration("Mutating")),
        ("by_service", _configuration("Validating", clientConfig=SERVICE)),
        ("given_fields", _configuration("Mutating", failurePolicy="Ignore", matchPolicy="Exact",
            timeoutSeconds=3, reinvocationPolicy="IfNeeded", sideEffects="NoneOnDryRun",
            objectSelector={"matchLabels": {"x": "y"}})),
        ("no_side_effects_said", _configuration("Validating", sideEffects=None)),
        ("unknown_side_effects", _configuration("Validating", sideEffects="Some")),
        ("no_versions", _configuration("Validating", admissionReviewVersions=None)),
        ("too_long_a_timeout", _configuration("Validating", timeoutSeconds=31)),
        ("a_short_name", _configuration("Validating", name="guard")),
        ("a_bundle_that_is_none", _configuration("Validating", clientConfig={
            "url": "https://127.0.0.1:1/x", "caBundle": "eA=="})),
        ("a_plain_url", _configuration("Validating", clientConfig={"url": "http://127.0.0.1/x"})),
        ("no_client", _configuration("Validating", clientConfig={})),
    ),
    "webhook_configurations",
)  # fmt: skip


@sequence()
async def a_configuration_counts_its_generations(world: World) -> None:
    name = world.unique("guard")
    await world.make(VALIDATING_WEBHOOKS, _guard(world, "Validating"))
    await world.patch(VALIDATING_WEBHOOKS, name, {"metadata": {"labels": {"x": "y"}}})
    hooks: JsonObject = {"webhooks": [{"name": "guard.example.org", "timeoutSeconds": 3}]}
    await world.patch(VALIDATING_WEBHOOKS, name, hooks, STRATEGIC_PATCH)
    await world.list(VALIDATING_WEBHOOKS, fieldSelector=f"metadata.name={name}")
    await world.delete(VALIDATING_WEBHOOKS, name)
    await world.get(VALIDATING_WEBHOOKS, name)
