"""Hand-made histories of counts that the operator writes, in a group of zones a, b and c."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    FORCE_REPLICAS,
    LEADING_ZONE,
    MIRROR_KIND,
    MIRROR_NAME,
)
from tests.judge.promises import Promises
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import OPERATOR, Chronicle

Story = Callable[[Chronicle], object]
TEMPLATE: Final = "ingesters"
PATH: Final = "/delayed"
FOLLOWS: Final[Mapping[str, Mapping[str, str]]] = {
    "zone-b": {LEADING_ZONE: "zone-a"},
    "zone-c": {LEADING_ZONE: "zone-b"},
}
MIRRORS: Final = {MIRROR_NAME: TEMPLATE, MIRROR_KIND: REPLICA_TEMPLATES.kind}
DELAYED: Final = {
    **MIRRORS,
    DOWNSCALE_DELAY: "30s",
    DOWNSCALE_DELAY_URL: f"http://pod:8080{PATH}",
}


def judge(
    story: Story, notes: Mapping[str, Mapping[str, str]] = FOLLOWS, promises: Promises | None = None
) -> list[str]:
    """Return the ids of what a story breaks, with `notes` as annotations by zone."""
    told = Chronicle()
    told.zones(update_revision="old")
    template(told, 0, 3)
    for name, annotations in notes.items():
        told.zone(0, name, annotations=annotations)
    story(told)
    verdict = find_violations(told.history, promises or Promises())
    return [one.invariant for one in verdict.violations]


def template(told: Chronicle, at: float, replicas: int, status: int | None = None) -> None:
    """Have the ReplicaTemplate want so many replicas, and tell of `status`, by default as many."""
    after: JsonObject = {
        "metadata": {"name": TEMPLATE},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas if status is None else status},
    }
    told.write(at, REPLICA_TEMPLATES, TEMPLATE, after)


def write(told: Chronicle, at: float, name: str, replicas: int, **parts: Any) -> None:
    """Have the operator write a count, on a live look a second before if nothing else is said."""
    if parts.pop("looked", True):
        told.look(at - 1)
    call = told.number + 1
    told.zone(at, name, replicas=replicas, actor=OPERATOR, call=call)
    body = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
    told.call(at, "patch", STATEFULSETS, name, body=body, **parts)


def ask(told: Chronicle, at: float, name: str, **parts: Any) -> None:
    """Have the operator ask a pod since when it is prepared; `method` may be DELETE."""
    told.prepare(at, name, **{"path": PATH, **parts})


def force(told: Chronicle, at: float, name: str, replicas: int | None) -> None:
    """Have a person force a count, or nothing any more."""
    told.zone(at, name, annotations={FORCE_REPLICAS: None if replicas is None else f"{replicas}"})
