"""A webhook and a change that it reviews: every kind of answer."""

from collections.abc import Mapping

from rollout_operator.kube.api import JsonObject
from tests.contract.bodies import config_map
from tests.contract.plays import Play, add_each
from tests.contract.reviews import allow, answering, deny, patching, silent
from tests.contract.sides import CONFIG_MAPS, Decide, Hook, HookKind
from tests.contract.world import World

ANNOTATION: JsonObject = {"op": "add", "path": "/metadata/annotations", "value": {"by": "hook"}}


async def _patched(world: World) -> None:
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.get(CONFIG_MAPS, "a")


def _requested(kind: HookKind, decide: Decide, fields: Mapping[str, object]) -> Play:
    """Return a play of a patch that a hook reviews."""

    async def play(world: World) -> None:
        await world.make(CONFIG_MAPS, config_map("a"))
        await world.register(kind, Hook(name="one", decide=decide, fields=fields))
        await _patched(world)

    return play


def _answered(decide: Decide, **fields: object) -> Play:
    return _requested("Validating", decide, fields)


def _mutated(decide: Decide, **fields: object) -> Play:
    return _requested("Mutating", decide, fields)


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
        ("silent", _answered(silent(), timeoutSeconds=1)),
        ("silent_and_ignored", _answered(silent(), timeoutSeconds=1, failurePolicy="Ignore")),
        ("denied_and_ignored", _answered(deny(message="no"), failurePolicy="Ignore")),
        ("of_other_labels", _answered(deny(), objectSelector={"matchLabels": {"x": "y"}})),
        ("of_other_namespaces", _answered(deny(), namespaceSelector={"matchLabels": {"x": "y"}})),
        ("without_rules", _answered(deny(), rules=[])),
    ),
    "validating_hooks",
)  # fmt: skip

add_each(
    (
        ("changes_the_object", _mutated(patching(ANNOTATION))),
        ("changes_nothing", _mutated(allow())),
        ("empty_patch", _mutated(patching())),
        ("denied", _mutated(deny(message="not now", code=429))),
        ("a_patch_that_undoes_the_change", _mutated(
            patching({"op": "replace", "path": "/data/key", "value": "value"}))),
        ("silent", _mutated(silent(), timeoutSeconds=1)),
        ("silent_and_ignored", _mutated(silent(), timeoutSeconds=1, failurePolicy="Ignore")),
        ("warned_and_changed", _mutated(patching(ANNOTATION, warnings=["changed"]))),
    ),
    "mutating_hooks",
)  # fmt: skip
