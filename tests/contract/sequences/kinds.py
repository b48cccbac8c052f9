"""What is special about single kinds: Secrets, Leases, Events, pods, webhook configurations."""

from rollout_lab.model.request import STRATEGIC_PATCH

from rollout_operator.kube.api import (
    MUTATING_WEBHOOKS,
    PODS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
)
from tests.contract.bodies import budget, budget_status, pod, secret
from tests.contract.plays import sequence
from tests.contract.sides import BUDGETS, REVISIONS
from tests.contract.world import World


@sequence()
async def a_secret_is_opaque(world: World) -> None:
    await world.create(SECRETS, secret("a", data={"key": "dmFsdWU="}))
    await world.create(SECRETS, secret("b", type="x.org/own"))


@sequence()
async def status_and_annotations_of_a_pod(world: World) -> None:
    await world.make(PODS, pod("a", node="n"))
    conditions = [{"type": "Ready", "status": "True"}]
    patch: JsonObject = {"status": {"phase": "Running", "conditions": conditions}}
    await world.patch(PODS, "a/status", patch, STRATEGIC_PATCH)
    await world.patch(PODS, "a/status", patch, STRATEGIC_PATCH)
    conditions = [{"type": "Initialized", "status": "True"}]
    await world.patch(PODS, "a/status", {"status": {"conditions": conditions}}, STRATEGIC_PATCH)
    await world.patch(PODS, "a", {"status": {"phase": "Failed"}})
    for text in ("1", None):
        await world.patch(PODS, "a", {"metadata": {"annotations": {"x.org/note": text}}})


@sequence()
async def a_budget(world: World) -> None:
    await world.create(BUDGETS, budget("a", maxUnavailable=1))
    await world.patch(BUDGETS, "a", {"spec": {"maxUnavailable": 2}})
    await world.patch(BUDGETS, "a/status", budget_status(1))
    await world.patch(BUDGETS, "a", budget_status(2))


@sequence()
async def a_revision_is_renumbered(world: World) -> None:
    body: JsonObject = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "a"},
        "data": {"spec": {"x": 1}},
        "revision": 1,
    }
    await world.create(REVISIONS, body)
    await world.patch(REVISIONS, "a", {"revision": 2})


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


@sequence()
async def webhook_configurations(world: World) -> None:
    fields: tuple[tuple[str, JsonObject], ...] = (
        ("Validating", {}),
        ("Mutating", {}),
        ("Validating", {"clientConfig": SERVICE}),
        ("Validating", {"clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": "eA=="}}),
        (
            "Mutating",
            {
                "failurePolicy": "Ignore",
                "matchPolicy": "Exact",
                "timeoutSeconds": 3,
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "NoneOnDryRun",
                "objectSelector": {"matchLabels": {"x": "y"}},
            },
        ),
    )
    for kind, webhook in fields:
        resource = MUTATING_WEBHOOKS if kind == "Mutating" else VALIDATING_WEBHOOKS
        await world.create(resource, _guard(world, kind, **webhook))
        with world.quietly():
            await world.delete(resource, world.unique("guard"))


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
