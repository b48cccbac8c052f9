"""Webhooks of sequences: their configurations, their verdicts, and the rounds that they saw.

Each configuration has one hook more, which refuses a probe: a configuration is at work as a whole
some moments after it was written, and the probe shows when.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject, Resource
from tests.contract.sides import Decide, Hook, HookKind, Side, Silence, Verdict

PROBE_LABEL: Final = "contract-probe"
# Names the client and the round: neither is the same twice.
DROPPED_FIELDS: Final = ("uid", "userInfo")


class Rounds:
    """The reviews that hooks got since they were last taken."""

    def __init__(self) -> None:
        self._seen: list[tuple[HookKind, str, JsonObject]] = []

    def recording(self, kind: HookKind, hook: Hook, configuration: str) -> Decide:
        """Return a hook's `decide` that records every review."""
        name = f"{configuration}/{hook.name}"

        async def decide(request: JsonObject) -> Verdict:
            kept = {key: value for key, value in request.items() if key not in DROPPED_FIELDS}
            self._seen.append((kind, name, json.loads(json.dumps(kept))))
            return await hook.decide(request)

        return decide

    def take(self) -> list[JsonObject]:
        """Return them in order; validating hooks are called at once, hence by name."""
        seen, self._seen = self._seen, []
        mutating = [each for each in seen if each[0] == "Mutating"]
        validating = sorted(
            (each for each in seen if each[0] == "Validating"), key=lambda each: each[1]
        )
        return [{"hook": name, "request": request} for _, name, request in (*mutating, *validating)]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What is written for some hooks, and the object whose creation its probe refuses."""

    resource: Resource
    object: JsonObject
    probe: JsonObject


def write_configuration(
    side: Side, kind: HookKind, name: str, hooks: Sequence[Hook]
) -> Configuration:
    selector = {"matchLabels": {PROBE_LABEL: name}}
    probe = Hook(
        name="probe", decide=allow(), operations=("CREATE",), fields={"objectSelector": selector}
    )
    webhooks = [_webhook(side, name, hook) for hook in (*hooks, probe)]
    return Configuration(
        resource=MUTATING_WEBHOOKS if kind == "Mutating" else VALIDATING_WEBHOOKS,
        object={
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": webhooks,
        },
        probe={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "probe", "labels": {PROBE_LABEL: name}},
        },
    )


def _webhook(side: Side, configuration: str, hook: Hook) -> JsonObject:
    url, bundle = side.hook_url(f"/{configuration}/{hook.name}")
    return {
        "name": f"{hook.name}.contract.example.org",
        "clientConfig": {"url": url, "caBundle": bundle},
        "rules": [
            {
                "apiGroups": list(hook.groups),
                "apiVersions": ["v1"],
                "operations": list(hook.operations),
                "resources": list(hook.resources),
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": side.namespace}},
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
        **hook.fields,
    }


def allow(**more: object) -> Decide:
    async def decide(_request: JsonObject) -> Verdict:
        return {"allowed": True, **more}

    return decide


def deny(**status: object) -> Decide:
    """Return a hook that says no, with a `status` of such fields where any is given."""

    async def decide(_request: JsonObject) -> Verdict:
        return {"allowed": False, **({"status": status} if status else {})}

    return decide


def silent() -> Decide:
    async def decide(_request: JsonObject) -> Verdict:
        return Silence()

    return decide


def answering(verdict: Verdict) -> Decide:
    """Return a hook that answers just this."""

    async def decide(_request: JsonObject) -> Verdict:
        return verdict

    return decide


def patching(*steps: JsonObject, **more: object) -> Decide:
    """Return a hook that says yes and changes the object by a JSON patch."""
    patch = base64.b64encode(json.dumps(steps).encode()).decode()
    return allow(patchType="JSONPatch", patch=patch, **more)


def answer_review(body: bytes, verdict: JsonObject) -> bytes:
    review: Any = json.loads(body)
    response = {"uid": review["request"]["uid"], **verdict}
    answered = {key: review[key] for key in ("apiVersion", "kind")} | {"response": response}
    return json.dumps(answered).encode()
