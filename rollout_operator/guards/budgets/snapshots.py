"""What the arbiter decides on: budgets, sets and pods as the caches show them, or live pods."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.budgets.pod_records import Recorder
from rollout_operator.guards.budgets.request import DisruptionRequest, Reservation, refuse
from rollout_operator.guards.departed import OwnedPods
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.downscale import Underway
from rollout_operator.model.group import Group, Newcomers, Zone
from rollout_operator.model.labels import selects
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets.rule import (
    BudgetSnapshot,
    Refusal,
    choose_budget,
    refuse_stale_cache,
)
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT
from rollout_operator.telemetry.metrics import Metrics


class PodReader(Protocol):
    """The reader of live pods."""

    async def fetch_pods(self, sets: Sequence[StatefulSet]) -> Sequence[Pod | Unreadable]:
        """Return all pods of these sets as the store has them. Raises ApiError."""
        ...


class ArbiterContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an Arbiter works with."""

    budgets: BudgetCatalog
    find_lack: Callable[[DisruptionSource], str | None]
    """Says why budgets are not known, None where they are known well enough."""
    sets: StatefulSetStore
    pods: PodStore
    reader: PodReader
    in_flight: InFlight
    recorder: Recorder
    find_downscale: Callable[[GroupName, Iterable[StatefulSet]], Underway | None]
    age: Callable[[], timedelta]
    """Age of the oldest proof that the caches are live."""
    now: Callable[[], datetime]
    """The API server's time."""
    clock: Clock
    metrics: Metrics
    find_newcomers: Callable[[Uid], Newcomers | None] = lambda uid: None
    find_departed: Callable[[str, OwnedPods | None], tuple[Zone, ...]] = lambda budget, live: ()
    """Returns the zones that left a budget while they were short, with live pods or by the
    caches."""


def compose_zone(
    sts: StatefulSet, pods: Sequence[Pod | Unreadable], newcomers: Newcomers | None
) -> Zone:
    """Return a zone of these pods, which all belong to it."""
    return Zone(
        sts=sts,
        pods=tuple(pod for pod in pods if isinstance(pod, Pod)),
        unreadable_pods=tuple(pod for pod in pods if isinstance(pod, Unreadable)),
        newcomers=newcomers,
    )


class Snapshots:
    """The maker of snapshots in one process."""

    def __init__(self, context: ArbiterContext) -> None:
        self._context = context

    def choose(self, request: DisruptionRequest) -> Budget | Refusal | None:
        """Return the budget that rules over a pod, None where none does."""
        lack = self._context.find_lack(request.engine)
        if lack is not None:
            return refuse(Code.BUDGETS_NOT_READ, f"the budgets are not known yet: {lack}")
        choice = choose_budget(
            self._context.budgets.list_selecting(request.pod.labels), request.pod
        )
        # A pod that no budget selects as far as we know is let go only where we know enough.
        if choice is None and self._context.age() > SNAPSHOT_LIMIT:
            return refuse_stale_cache()
        return choice

    def observe(self, budget: Budget, request: DisruptionRequest) -> BudgetSnapshot:
        """Return what the caches show; nothing may be awaited until it has been decided on."""
        snapshot, sets = self._outline(budget, request)
        owned: OwnedPods = {sts.uid: self._context.pods.list_by_owner(sts.uid) for sts in sets}
        return self._fill(snapshot, sets, owned, self._context.find_departed(budget.name, None))

    async def observe_live(
        self, reserved: Reservation, group: Group | None
    ) -> tuple[BudgetSnapshot, Pod | None]:
        """Return a snapshot with live pods, and the pod itself where it is still untouched."""
        request = reserved.request
        snapshot, zones = self._outline(reserved.budget, request)
        departed = self._context.find_departed(reserved.budget.name, None)
        sets = (*self._list_sets(snapshot, zones), *(zone.sts for zone in departed))
        live = {} if group is None else {zone.sts.uid: zone for zone in group.counted}
        pods: Sequence[Pod | Unreadable]
        if all(sts.uid in live for sts in sets):
            pods = [pod for zone in live.values() for pod in zone.pods]
            pods = [*pods, *(pod for zone in live.values() for pod in zone.unreadable_pods)]
        else:
            live, pods = {}, await self._context.reader.fetch_pods(sets)
        seen = next((pod for pod in pods if pod.uid == request.pod.uid), None)
        if not isinstance(seen, Pod) or seen.is_terminating:
            seen = None
        # Since the first decision, all but the pods may have changed as well.
        request = replace(request, pod=seen or request.pod)
        choice = self.choose(request)
        budget = choice if isinstance(choice, Budget) else reserved.budget
        snapshot, zones = self._outline(budget, request)
        # Pods of a set that was not read are missing, and count as down.
        owned: dict[Uid | None, list[Pod | Unreadable]] = {sts.uid: [] for sts in zones}
        for pod in pods:
            owned.setdefault(pod.owner_uid, []).append(pod)
        zones = [live[sts.uid].sts if sts.uid in live else sts for sts in zones]
        snapshot = replace(snapshot, downscale=snapshot.downscale or self._find_downscale(zones))
        departed = self._context.find_departed(budget.name, owned)
        snapshot = self._fill(snapshot, zones, owned, departed)
        # Without its own record the pod is like the others, and what refuses it refuses them.
        going = {uid: how for uid, how in snapshot.deletions.items() if uid != request.pod.uid}
        return replace(snapshot, deletions=going), seen

    def _outline(
        self, budget: Budget, request: DisruptionRequest
    ) -> tuple[BudgetSnapshot, Sequence[StatefulSet]]:
        """Return the snapshot of a budget without its pods, and the sets that they belong to."""
        context = self._context
        sets = [sts for sts in context.sets.list_all() if selects(budget.selector, sts.labels)]
        readable = [sts for sts in sets if isinstance(sts, StatefulSet)]
        snapshot = BudgetSnapshot(
            budget=budget,
            pod=request.pod,
            owner=request.pod.owner_uid or Uid(""),
            zones=(),
            now=context.now(),
            deletions={},
            engine=request.engine,
            # ROLL-36
            override=min(request.limit, 1) if budget.by_partition else request.limit,
            downscale=self._find_downscale(readable),
            snapshot_age=context.age(),
            unreadable=tuple(sts for sts in sets if isinstance(sts, Unreadable)),
        )
        return snapshot, readable

    def _find_downscale(self, sets: Sequence[StatefulSet]) -> Underway | None:
        """Return a downscale of any of their groups that may still be written."""
        groups: dict[GroupName, list[StatefulSet]] = {}
        for sts in sets:
            if sts.group is not None:
                groups.setdefault(sts.group, []).append(sts)
        downscales = (self._context.find_downscale(group, of) for group, of in groups.items())
        return next((underway for underway in downscales if underway is not None), None)

    def _fill(
        self,
        snapshot: BudgetSnapshot,
        sets: Sequence[StatefulSet],
        pods: OwnedPods,
        departed: Sequence[Zone],
    ) -> BudgetSnapshot:
        find_newcomers = self._context.find_newcomers
        zones = [compose_zone(sts, pods[sts.uid], find_newcomers(sts.uid)) for sts in sets]
        zones += departed
        listed = (pod for zone in zones for pod in zone.pods)
        owners = {zone.sts.uid for zone in zones}
        going = self._context.in_flight.map_going(owners, listed, snapshot.now)
        return replace(snapshot, zones=tuple(zones), deletions=going)

    def _list_sets(
        self, snapshot: BudgetSnapshot, zones: Sequence[StatefulSet]
    ) -> Sequence[StatefulSet]:
        """Return the sets whose pods are read: the pod's own may be none of the zones."""
        own = self._context.sets.get_by_uid(snapshot.owner)
        if isinstance(own, StatefulSet) and all(sts.uid != snapshot.owner for sts in zones):
            return (*zones, own)
        return tuple(zones)
