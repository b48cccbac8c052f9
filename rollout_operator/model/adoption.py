"""What `rollout-operator adopt` reads of StatefulSets. `planning.adoption` decides."""

from collections.abc import Mapping

import msgspec

from rollout_operator.model.budget import PlacedSet


class RolloutProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class AdoptableSet(PlacedSet, frozen=True, kw_only=True):
    """A StatefulSet, from a cluster or from a file in Git."""

    namespace: str = ""
    """Empty where a file names none."""
    generation: int = 0
    annotations: Mapping[str, str] = {}
    replicas: int = 1
    strategy: str = "RollingUpdate"
    rolling_update: Mapping[str, object] | None = None
    """`spec.updateStrategy.rollingUpdate` as written."""
    status: RolloutProgress | None = None
    """None for a file."""
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`."""
    image: str = ""
    """Of the first container."""
    controller: str = ""
    """Kind and name of its controlling owner."""
    writers: tuple[str, ...] = ()
    """The field managers of the selector, which whoever creates the set writes."""

    @property
    def partition(self) -> int:
        """Return the ordinal below which pods keep their revision under RollingUpdate."""
        value = (self.rolling_update or {}).get("partition")
        return value if isinstance(value, int) else 0

    @property
    def is_settled(self) -> bool:
        """Return whether no pod is outdated."""
        status = self.status
        return (
            status is not None
            and status.observed_generation >= self.generation
            and status.current_revision == status.update_revision
            and status.updated_replicas >= status.replicas
        )
