"""A ZoneAwarePodDisruptionBudget: what decides of it, its status, and the record of a pod under it.

How a budget is read from the API's object, and what is refused, is written in
`model.decode.budget`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Annotated

import msgspec
from msgspec import Meta

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.labels import selects
from rollout_operator.model.names import Uid


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods of a zone, or of a partition, may be gone at a time."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`: of pods and of StatefulSets. Empty selects all of them."""
    max_unavailable: int = 1
    """0 where `percentage` is set."""
    percentage: int | None = None
    """Of the replicas of the zone of the pod that is to go; zone mode only."""
    pattern: str = ""
    """`spec.podNamePartitionRegex` as written; empty in zone mode."""
    pattern_group: int = 1
    """Which capture group of `pattern` holds the partition, from 1."""
    delay: timedelta = timedelta(0)
    """How long a pod of another zone must have been ready; partition mode only."""
    forgives_absent_peers: bool = False
    """Whether a zone scaled below a partition counts as having handed it over."""

    @property
    def by_partition(self) -> bool:
        """Return whether it counts by partition over all other zones, and not by zone."""
        return self.pattern != ""

    @property
    def maximum(self) -> str:
        """Return the maximum as it is written, such as `1` or `20%`."""
        return str(self.max_unavailable) if self.percentage is None else f"{self.percentage}%"


class FlawedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget that cannot be obeyed as it is written. What it selects is still known, if at all.

    It is never taken for no budget.
    """

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    selector: Mapping[str, str] | None = None
    """None where even the selector cannot be read."""
    problem: str


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, as it applies to the pods in question."""

    name: str
    budget: Budget | None
    """The version in force. None where there is none for them: then they may not go."""
    problem: str = ""
    """Why the newest version is not in force, empty where it is."""


class BudgetVersions(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the budget of one name: the version in force, and what the newest lacks."""

    namespace: str
    name: str
    uid: Uid
    generation: int
    """Of the newest version, flawed or not; 0 where it is unknown."""
    budget: Budget | None = None
    """The version in force."""
    problem: str = ""
    """Why the newest version is not in force, empty where it is."""
    flawed_selector: Mapping[str, str] | None = None
    """Of the newest version, where that is flawed and its selector is not."""

    @property
    def selectors(self) -> tuple[Mapping[str, str], ...]:
        """Return what puts a pod under the budget, any of them."""
        own = () if self.budget is None else (self.budget.selector,)
        return own if self.flawed_selector is None else (*own, self.flawed_selector)

    def find_state(self, labels: Mapping[str, str]) -> BudgetState | None:
        """Return the budget as it is for a pod with these labels, None where it is not under it.

        A version that cannot be obeyed and selects more than the version in force adds the pods
        that only it selects, without a budget: which budget counts for them is unknown.
        """
        if self.budget is not None and selects(self.budget.selector, labels):
            return BudgetState(name=self.name, budget=self.budget, problem=self.problem)
        if self.flawed_selector is not None and selects(self.flawed_selector, labels):
            return BudgetState(name=self.name, budget=None, problem=self.problem)
        return None


@unique
class DisruptionSource(StrEnum):
    """What wants a pod to go."""

    EVICTION = "eviction"
    ROLLOUT = "rollout"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """That a pod may go, as it is written on the pod.

    So every process that counts pods sees a grant, also a process that starts after the crash of
    the process that gave it. It is bound to the pod's UID: a copy on another pod says nothing.
    """

    uid: Uid
    """Of the pod."""
    by: str
    """The process that wrote it: no two of one namespace have the same name."""
    at: Annotated[datetime, Meta(tz=True)]
    """In the API server's time."""
    engine: DisruptionSource = DisruptionSource.EVICTION
    lasts: timedelta = timedelta(0)
    """How long after `at` the answer may still be acted upon."""


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`status` of a budget: written for people, never read to decide.

    Empty where nothing was written, or nothing can be read.
    """

    observed_generation: int = 0
    zones: int = 0
    pods: int = 0
    current_unavailable: int = 0
    allowed_disruptions: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class ShownStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status that the API server shows of a budget."""

    name: str
    uid: Uid
    status: BudgetStatus
