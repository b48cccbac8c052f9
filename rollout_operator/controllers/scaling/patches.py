"""The patches that write replicas: what they change, and what must still hold for it."""

from collections.abc import Sequence

from rollout_operator.controllers.scaling.intents import render_steps
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    NotFound,
    Refused,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.model.names import PREPARE_DOWNSCALE
from rollout_operator.model.scaling import ScaleZone
from rollout_operator.planning.downscales.request import is_labelled


def render_patch(
    action: ScaleZone, mark: str | None, record: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return the steps that write replicas, and those that record their time.

    Another count that was written since, or another set of that name, is not overwritten. A version
    would fail with each change of the status, of which a zone that moves has many.
    """
    zone = action.zone
    return [
        {"op": "test", "path": "/metadata/uid", "value": zone.uid},
        *_render_spec(action),
        *([] if mark is None else render_steps(mark)),
        {"op": "test", "path": "/spec/replicas", "value": zone.replicas},
        {"op": "replace", "path": "/spec/replicas", "value": action.replicas},
        *record,
    ]


def name_outcome(error: ApiError) -> str:
    """Return the outcome of a patch, as metrics name it."""
    match error:
        case Conflict() | NotFound():
            return "conflict"
        case Refused() | TooManyRequests():
            return "refused"
        case UnknownOutcome():
            return "unknown"
    return "failed"


def _render_spec(action: ScaleZone) -> list[JsonObject]:
    """Return the tests that keep a downscale from a spec that it was not decided for.

    A downscale that comes late would find the same count again after an upscale, and take pods that
    were not called. Where a review reads each attempt they are called, and nothing is tested: a
    template that changes while pods prepare would fail it. Where pods go because they were not up,
    a status that counts one more as ready since fails it, too.
    """
    zone = action.zone
    if not action.is_downscale or is_labelled(zone.labels, PREPARE_DOWNSCALE):
        return []
    if action.is_exact:
        version = zone.resource_version
        return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    return [{"op": "test", "path": "/metadata/generation", "value": zone.generation}]
