"""What a person requests of a Rollout by annotations, each once.

An intent that had its effect is recorded in the status before its annotation is removed. So a crash
between the two applies none twice: what is recorded and still there has had its effect.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.releases.rollout import ReleaseIntents, ReleaseRollout
from rollout_operator.model.releases.status import ConsumedIntent

# By annotation, in the order in which they are removed.
FIELDS: Final[Mapping[str, str]] = {
    names.RETRY: "retry",
    names.FORCE_DEPLOY: "force_deploy",
    names.BYPASS_GATES: "bypass_gates",
    names.UNBLOCK_FAILED: "unblock_failed",
    names.DEPLOY_MESSAGE: "deploy_message",
    names.DEPLOYMENT_MESSAGE: "deployment_message",
    names.DEPLOY_USER: "deploy_user",
}
# Whatever is deployed, these belonged to it.
ATTRIBUTION: Final = (names.DEPLOY_MESSAGE, names.DEPLOYMENT_MESSAGE, names.DEPLOY_USER)


def list_left_over(rollout: ReleaseRollout) -> tuple[ConsumedIntent, ...]:
    """Return intents that had their effect and are not removed yet (RELB-10)."""
    return tuple(
        intent
        for intent in rollout.status.consumed_intents
        if intent.annotation in FIELDS
        and _value(rollout.intents, intent.annotation) == intent.value
    )


def without_left_over(rollout: ReleaseRollout) -> ReleaseIntents:
    """Return the intents that are still to have an effect."""
    return drop_intents(rollout.intents, (intent.annotation for intent in list_left_over(rollout)))


def drop_intents(intents: ReleaseIntents, annotations: Iterable[str]) -> ReleaseIntents:
    """Return the intents without some of them."""
    return msgspec.structs.replace(
        intents, **{FIELDS[annotation]: None for annotation in annotations}
    )


def consume(intents: ReleaseIntents, annotations: Iterable[str]) -> tuple[ConsumedIntent, ...]:
    """Return the record of the annotations that are there."""
    values = ((annotation, _value(intents, annotation)) for annotation in annotations)
    return tuple(
        ConsumedIntent(annotation=annotation, value=value)
        for annotation, value in values
        if value is not None
    )


def is_unblocked(intents: ReleaseIntents) -> bool:
    """Return whether a failed release does not stop the next (REL-80)."""
    return intents.unblock_failed == "true"


def _value(intents: ReleaseIntents, annotation: str) -> str | None:
    value: str | None = getattr(intents, FIELDS[annotation])
    return value
