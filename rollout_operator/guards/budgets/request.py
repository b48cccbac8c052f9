"""What the gate is asked, what it answers, and what it works with. Words only: see `arbiter`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.in_flight import Grant, InFlight
from rollout_operator.guards.budgets.pod_records import Recorder
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.model.budget import Budget, DisruptionSource, Record
from rollout_operator.model.downscale import Underway
from rollout_operator.model.group import Newcomers
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.planning.budgets.rule import Covering, Refusal
from rollout_operator.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionRequest:
    """One pod that somebody wants to go."""

    pod: Pod
    engine: DisruptionSource
    limit: int = 0
    """`rollout-max-unavailable` of the zone; for the rollout only."""
    lasts: timedelta = timedelta(0)
    """For how long from now who asks may act on the answer: an API server waits for it so long."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The pod may go."""

    pod: Pod
    """Its newest view: a delete must name this version."""
    budget: str = ""
    """By which budget; empty where none covers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A pod whose record stands: it may go if a live read that begins after it shows no reason."""

    ask: DisruptionRequest
    budget: Budget
    """As it was decided by."""
    grant: Grant
    record: Record | None
    """None where the role forbids to write one."""


Answer = Permit | Refusal


class WatchedBudgets(Protocol):
    """The watched budgets."""

    def find(self, labels: Mapping[str, str]) -> Sequence[Covering]:
        """Return all budgets that select these labels."""
        ...


class PodReader(Protocol):
    """Where pods are looked at live."""

    async def fetch_pods(self, sets: Sequence[StatefulSet]) -> Sequence[Pod | Unreadable]:
        """Return all pods of these sets as the store has them. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbiterContext:
    """What a Gate works with."""

    budgets: WatchedBudgets
    find_lack: Callable[[DisruptionSource], str | None]
    """Says why budgets are not known, None where they are known well enough for who asks."""
    sets: StatefulSetStore
    pods: PodStore
    reader: PodReader
    pending: InFlight
    recorder: Recorder
    find_downscale: Callable[[GroupName], Underway | None]
    age: Callable[[], timedelta]
    """Age of the oldest proof that the caches are live."""
    now: Callable[[], datetime]
    """The API server's time."""
    clock: Clock
    metrics: Metrics
    find_newcomers: Callable[[Uid], Newcomers | None] = lambda uid: None
