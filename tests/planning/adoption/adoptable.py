"""Plain StatefulSets of three zones, as they are before anything is adopted."""

from collections.abc import Sequence

from rollout_operator.model.adoption import (
    AdoptableNamespace,
    AdoptableSet,
    AdoptionChoice,
    AdoptionPlan,
    RolloutProgress,
)
from rollout_operator.model.diagnosis import NativeBudget
from rollout_operator.model.objects import LabelSelector
from rollout_operator.planning.adoption import plan_adoption

APP = {"app": "ingester"}
DONE = RolloutProgress(
    observed_generation=1,
    replicas=3,
    ready=3,
    updated=3,
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


def native(name: str = "ingester", **fields: str) -> NativeBudget:
    """Return a PodDisruptionBudget of all pods of the application."""
    known = fields or {"max_unavailable": "1"}
    selector = LabelSelector(labels=APP)
    return NativeBudget(name=name, selector=selector, **known)


def plan(
    sets: Sequence[AdoptableSet],
    *names: str,
    group: str = "",
    budgets: Sequence[NativeBudget] = (),
) -> AdoptionPlan:
    """Return what is proposed for these, of which the named ones are meant."""
    seen = AdoptableNamespace(namespace="prod", sets=tuple(sets), native_budgets=tuple(budgets))
    choice = AdoptionChoice(names=frozenset(names), is_narrowed=bool(names), group=group)
    return plan_adoption(seen, choice)
