"""StatefulSets that may come under the operator, as they were read, and what a person requests.

What is proposed is decided in `planning.adoption`.
"""

from collections.abc import Mapping

import msgspec

from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.diagnosis.installation import LabelledPod, NativeBudget
from rollout_operator.model.placement import PlacedSet


class RolloutProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What the status of a StatefulSet says of its pods."""

    observed_generation: int = 0
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    current_revision: str = ""
    update_revision: str = ""


class AdoptableSet(PlacedSet, frozen=True, kw_only=True):
    """What adopting reads of a StatefulSet, from a cluster or from a file in Git."""

    namespace: str = ""
    """Empty where a file names none."""
    generation: int = 0
    annotations: Mapping[str, str] = {}
    replicas: int = 1
    strategy: str = "RollingUpdate"
    rolling_update: Mapping[str, object] | None = None
    """`spec.updateStrategy.rollingUpdate` as it is written."""
    status: RolloutProgress | None = None
    """None for a file that was never in a cluster."""
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`."""
    image: str = ""
    """Of the first container."""
    controller: str = ""
    """Kind and name of the object that controls it, by its owner references."""
    writers: tuple[str, ...] = ()
    """The field managers that wrote its whole spec: who writes the selector has created it."""

    @property
    def partition(self) -> int:
        """Return below which ordinal the pods keep their revision under RollingUpdate."""
        value = (self.rolling_update or {}).get("partition")
        return value if isinstance(value, int) else 0


class AdoptableNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one namespace."""

    namespace: str
    """Empty: the files name none."""
    sets: tuple[AdoptableSet, ...]
    pods: tuple[LabelledPod, ...] = ()
    native_budgets: tuple[NativeBudget, ...] = ()
    zone_budgets: tuple[Budget | FlawedBudget, ...] = ()
    unread: tuple[str, ...] = ()
    """What could not be read, a sentence each."""


class AdoptionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person requests."""

    names: frozenset[str] = frozenset()
    """The StatefulSets; empty: all."""
    is_narrowed: bool = False
    """Whether names or labels choose the StatefulSets: then each of them is meant."""
    group: str = ""
    """The name of their group; empty: found by the names."""
