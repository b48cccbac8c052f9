"""Plain StatefulSets of three zones, as they are before anything is adopted."""

from collections.abc import Sequence

from rollout_operator.model.adoption import AdoptableSet, RolloutProgress
from rollout_operator.planning.adoption import AdoptionPlan, plan_adoption

APP = {"app": "ingester"}
DONE = RolloutProgress(
    observed_generation=1,
    replicas=3,
    updated_replicas=3,
    current_revision="one",
    update_revision="one",
)


def plain(name: str, **fields: object) -> AdoptableSet:
    """Return a StatefulSet at rest, of three pods."""
    known: dict[str, object] = {
        "name": name,
        "generation": 1,
        "labels": APP,
        "pod_labels": {**APP, "name": name},
        "replicas": 3,
        "status": DONE,
    }
    return AdoptableSet(**{**known, **fields})  # type: ignore[arg-type]  # by name, in each test


def three(**fields: object) -> tuple[AdoptableSet, ...]:
    """Return three zones that have the same fields."""
    return tuple(plain(f"ingester-zone-{zone}", **fields) for zone in "abc")


def plan(sets: Sequence[AdoptableSet], *names: str, group: str = "") -> AdoptionPlan:
    """Return what is proposed for these, of which the named ones are meant."""
    return plan_adoption("prod", sets, frozenset(names), group)
