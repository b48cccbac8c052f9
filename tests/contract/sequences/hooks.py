"""One webhook and one change that it is asked about: every kind of answer."""

import base64
import json
from collections.abc import Mapping

from rollout_operator.kube.api import JsonObject
from tests.contract.bodies import config_map
from tests.contract.plays import Play, add_each
from tests.contract.reviews import allow, answering, deny, patching, silent
from tests.contract.sides import CONFIG_MAPS, Decide, Garbage, Hook, HookKind
from tests.contract.world import World

NOTE: JsonObject = {"op": "add", "path": "/metadata/annotations", "value": {"by": "hook"}}


async def _patched(world: World) -> None:
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.get(CONFIG_MAPS, "a")


def _asked(kind: HookKind, decide: Decide, fields: Mapping[str, object]) -> Play:
    """Return a play of one patch that one hook is asked about."""

    async def play(world: World) -> None:
        await world.make(CONFIG_MAPS, config_map("a"))
        await world.register(kind, Hook(name="one", decide=decide, fields=fields))
        await _patched(world)

    return play


def _answered(decide: Decide, **fields: object) -> Play:
    return _asked("Validating", decide, fields)


def _mutated(decide: Decide, **fields: object) -> Play:
    return _asked("Mutating", decide, fields)


def _raw(patch: bytes, kind: str = "JSONPatch") -> Decide:
    text = base64.b64encode(patch).decode()
    return allow(patchType=kind, patch=text)


REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}

add_each(
    (
        ("allowed", _answered(allow())),
        ("warned", _answered(allow(warnings=["mind the gap", "second"]))),
        ("denied", _answered(deny())),
        ("denied_with_a_message", _answered(deny(message="not now"))),
        ("denied_with_403", _answered(deny(message="not now", code=403))),
        ("denied_with_409", _answered(deny(message="not now", code=409, reason="Conflict"))),
        ("denied_with_429", _answered(deny(message="not now", code=429))),
        ("denied_with_429_and_reason", _answered(
            deny(message="not now", code=429, reason="TooManyRequests"))),
        ("denied_with_500", _answered(deny(message="not now", code=500))),
        ("denied_with_200", _answered(deny(message="not now", code=200))),
        ("denied_with_a_reason", _answered(deny(reason="NotFound"))),
        ("denied_with_warnings", _answered(
            answering({"allowed": False, "warnings": ["mind"], "status": {"message": "no"}}))),
        ("denied_with_retry_after", _answered(
            deny(message="later", code=429, details={"retryAfterSeconds": 7}))),
        ("another_uid", _answered(allow(uid="nobody-asked"))),
        ("a_patch_of_a_validating_hook", _answered(patching(NOTE))),
        ("no_response", _answered(answering(Garbage(json.dumps(REVIEW).encode())))),
        ("no_json", _answered(answering(Garbage(b"nonsense")))),
        ("no_review", _answered(answering(Garbage(b'{"kind":"Other","apiVersion":"v1"}')))),
        ("silent", _answered(silent(), timeoutSeconds=1)),
        ("silent_and_ignored", _answered(silent(), timeoutSeconds=1, failurePolicy="Ignore")),
        ("garbage_and_ignored", _answered(
            answering(Garbage(b"nonsense")), failurePolicy="Ignore")),
        ("denied_and_ignored", _answered(deny(message="no"), failurePolicy="Ignore")),
        ("another_uid_and_ignored", _answered(
            allow(uid="nobody-asked"), failurePolicy="Ignore")),
        ("of_other_labels", _answered(deny(), objectSelector={"matchLabels": {"x": "y"}})),
        ("of_other_namespaces", _answered(deny(), namespaceSelector={"matchLabels": {"x": "y"}})),
        ("without_rules", _answered(deny(), rules=[])),
    ),
    "validating_hooks",
)  # fmt: skip

add_each(
    (
        ("changes_the_object", _mutated(patching(NOTE))),
        ("changes_nothing", _mutated(allow())),
        ("empty_patch", _mutated(patching())),
        ("denied", _mutated(deny(message="not now", code=429))),
        ("a_failing_test", _mutated(patching({"op": "test", "path": "/data/key", "value": "?"}))),
        ("a_path_that_is_not_there", _mutated(patching({"op": "remove", "path": "/data/absent"}))),
        ("a_patch_that_is_none", _mutated(_raw(b"nonsense"))),
        ("another_type_of_patch", _mutated(_raw(b"{}", "MergePatch"))),
        ("a_patch_without_type", _mutated(allow(patch=base64.b64encode(b"[]").decode()))),
        ("a_patch_to_something_invalid", _mutated(
            patching({"op": "add", "path": "/metadata/labels", "value": {"x": "no label!"}}))),
        ("a_patch_to_a_wrong_type", _mutated(
            patching({"op": "replace", "path": "/data", "value": "text"}))),
        ("a_patch_that_undoes_the_change", _mutated(
            patching({"op": "replace", "path": "/data/key", "value": "value"}))),
        ("silent", _mutated(silent(), timeoutSeconds=1)),
        ("silent_and_ignored", _mutated(silent(), timeoutSeconds=1, failurePolicy="Ignore")),
        ("a_bad_patch_ignored", _mutated(_raw(b"nonsense"), failurePolicy="Ignore")),
        ("warned_and_changed", _mutated(patching(NOTE, warnings=["changed"]))),
        ("another_uid", _mutated(allow(uid="nobody-asked"))),
    ),
    "mutating_hooks",
)  # fmt: skip
