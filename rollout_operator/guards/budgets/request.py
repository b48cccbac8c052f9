"""Requests to the arbiter, its answers, and its records of grants: data only."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto

from rollout_operator.model.budget import Budget, DisruptionSource, Record
from rollout_operator.model.objects import Pod
from rollout_operator.planning.budgets.rule import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionRequest:
    """One pod that an eviction or a rollout wants to go."""

    pod: Pod
    engine: DisruptionSource
    limit: int = 0
    """`rollout-max-unavailable` of the zone; for the rollout only."""
    lasts: timedelta = timedelta(0)
    """For how long from now the requester may act on the answer: an API server waits so long."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedPod:
    """The answer that the pod may go."""

    pod: Pod
    """Its newest version, which a delete must name."""
    budget: str = ""
    """The budget by which it may go; empty where none covers it."""


Answer = GrantedPod | Refusal


class GrantState(Enum):
    """How far a grant has come."""

    REQUESTED = auto()
    """Being recorded and confirmed: it may come to nothing within moments."""
    GRANTED = auto()
    """An answer said that the pod may go."""
    DOUBTFUL = auto()
    """Given up, but a record of it may have been written: the controller must read the pod."""


@dataclass(slots=True, kw_only=True)
class Grant:
    """One pod that may go, or soon may."""

    pod: Pod
    """The pod as it was decided on; once recorded, as it was seen last."""
    engine: DisruptionSource
    budget: str
    begun: timedelta
    """On the clock's `elapsed`: from before the record was sent."""
    lasts: timedelta = timedelta(0)
    """How long after that the requester may act on the answer."""
    record: str = ""
    """The annotation as sent; empty where none was."""
    state: GrantState = GrantState.REQUESTED
    was_granted: bool = False
    """Whether the answer was that the pod may go: a doubt that follows does not change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A pod whose record stands: it may go if a live read that begins after it shows no reason."""

    request: DisruptionRequest
    budget: Budget
    """The budget that the decision went by."""
    grant: Grant
    record: Record | None
    """None where the role forbids writing a record."""
