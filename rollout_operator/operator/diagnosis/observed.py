"""Decisions on objects that were listed once: the operator's own code, without caches.

Nothing is written: the arbiter says what it would grant, and no pod is called.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.policies.rule import Owners
from rollout_operator.controllers.shadow.controller import choose_grantable
from rollout_operator.guards.budgets.accounts import Accounts
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.budgets.own_deletes import OwnDeletes
from rollout_operator.guards.budgets.pod_records import Recorder
from rollout_operator.guards.budgets.request import DisruptionRequest
from rollout_operator.guards.budgets.snapshots import ArbiterContext
from rollout_operator.guards.downscales.reservations import Downscales
from rollout_operator.kube.api import ApiClient
from rollout_operator.kube.cache.store import AnyBudget, PodStore, PolicyStore, StatefulSetStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.description import BudgetDescription, PolicyDescription
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.model.outcome import Action, EqualPods, Plan, Reason, ReplacePods
from rollout_operator.model.policy.plan import PolicyPlan, PolicySnapshot
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.model.scaling import ScalingPlan
from rollout_operator.planning.description.policies import (
    describe_policy,
    describe_unreadable_policy,
    find_disobedience,
)
from rollout_operator.planning.policies.plan import plan_policy
from rollout_operator.planning.policies.status import find_batch, find_initial, read_resolution
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import merge_plans


class ObjectsFrom(msgspec.Struct, frozen=True):
    """The source of the objects of all snapshots."""

    client: ApiClient
    namespace: str
    clock: Clock
    metrics: Metrics = msgspec.field(default_factory=Metrics)
    """Not shown anywhere; making them takes longer than a snapshot."""


class DrivenSets(msgspec.Struct, frozen=True, kw_only=True):
    """The sets that one policy owns, and the plan for it now."""

    key: str
    """Its namespace and name."""
    group: Group
    plan: PolicyPlan


class ObservedNamespace:
    """The objects of one namespace at one moment."""

    def __init__(self, source: ObjectsFrom, now: datetime) -> None:
        """`now` is the API server's time; the client gets no request here."""
        self._source = source
        self.now = now
        clock = source.clock
        self.sets = StatefulSetStore()
        self.pods = PodStore()
        self._in_flight = InFlight(self.pods, OwnDeletes(self.pods, clock), clock)
        self._downscales = Downscales(clock, late_calls=timedelta(0))
        self.budgets = BudgetCatalog(source.metrics)
        self.policies = PolicyStore()
        self._owners = Owners(self.policies, self.sets, clock)
        self._observer = self._make_observer()
        common = self._make_context()
        self._arbiter = Arbiter(common)
        self._accounts = Accounts(common)

    def take_budget(self, budget: AnyBudget) -> None:
        """Take over a budget."""
        self.budgets.on_change(None, budget)

    def list_driven(self) -> Sequence[DrivenSets]:
        """Return the policies in service that an operator has reconciled, by name.

        A policy that no operator has reconciled drives nothing yet, and perhaps never will.
        """
        driven: list[DrivenSets] = []
        observer = dataclasses.replace(self._observer, find_driver=lambda group: None)
        for scope in self._owners.list_scopes():
            head = scope.policy.head
            policy = self.policies.get(head.namespace, head.name)
            if isinstance(policy, WatchedPolicy) and policy.status.observed_generation:
                group = observer.observe_members(GroupName(head.name), scope.sets)
                snapshot = PolicySnapshot(
                    policy=scope.policy,
                    resolution=read_resolution(policy.status),
                    group=group,
                    batch=find_batch(policy.status),
                    initial=find_initial(policy.status, group),
                )
                driven.append(DrivenSets(key=head.key, group=group, plan=plan_policy(snapshot)))
        return sorted(driven, key=lambda driving: driving.key)

    def describe_policies(
        self, driven: Sequence[DrivenSets], *, is_switched_off: bool = False
    ) -> tuple[PolicyDescription, ...] | UnsetType:
        """Return all policies by name; UNSET where there is none.

        `is_switched_off`: the operator of the namespace says that it obeys none.
        """
        plans = {driving.key: driving.plan for driving in driven}
        described: list[PolicyDescription] = []
        for policy in sorted(self.policies.list_all(), key=lambda policy: policy.name):
            if isinstance(policy, Unreadable):
                described.append(describe_unreadable_policy(policy))
                continue
            plan = plans.get(policy.policy.head.key, PolicyPlan())
            lack = find_disobedience(policy, self.now, is_switched_off=is_switched_off)
            waits = plan.waits if lack is None else (lack,)
            scope = self._owners.find(policy.name)
            described.append(describe_policy(policy, scope, waits, now=self.now, counts=plan.zones))
        return tuple(described) or UNSET

    def observe(self) -> Mapping[GroupName, Group]:
        """Return all groups by name."""
        return {name: self._observer.observe(name) for name in sorted(self.sets.list_groups())}

    def describe_budgets(self) -> tuple[BudgetDescription, ...]:
        """Return all budgets, by name."""
        return tuple(self._accounts.list_descriptions())

    async def assess_eviction(self, pod: Pod) -> Reason | None:
        """Return why an eviction of a pod would be refused by a budget, None where it would not."""
        request = DisruptionRequest(pod=pod, engine=DisruptionSource.EVICTION)
        [refusal] = await self._arbiter.assess_all([request])
        return None if refusal is None else refusal.reason

    async def plan(self, group: Group, scaling: ScalingPlan) -> Plan:
        """Return the plan of the operator for a group now, of rollout and of scaling."""
        failing = tuple(problem for problem in scaling.problems if problem.zone in scaling.failed)
        odd = tuple(problem for problem in scaling.problems if problem not in failing)
        # Due and not done: the operator does it at once, or is not there.
        due = tuple(action.reason for action in scaling.scale)
        shown = Plan(group=group.name, waits=(*due, *scaling.waits, *failing), problems=odd)
        return merge_plans([await self._plan_rollout(group), shown])

    async def _plan_rollout(self, group: Group) -> Plan:
        plan = plan_group(group)
        actions: list[Action] = []
        held: list[Reason] = []
        for action in plan.actions:
            if not isinstance(action, ReplacePods):
                actions.append(action)
                continue
            grantable = await choose_grantable(self._arbiter, action)
            held.extend(grantable.held)
            if grantable.going:
                going = EqualPods(pods=tuple(grantable.going), room=len(grantable.going))
                actions.append(replace(action, shares=(going,)))
        return dataclasses.replace(plan, actions=tuple(actions), waits=(*held, *plan.waits))

    def _make_observer(self) -> Observer:
        return Observer(
            namespace=self._source.namespace,
            reader=self._source.client,
            clock=self._source.clock,
            sets=self.sets,
            pods=self.pods,
            watches=(),
            in_flight=self._in_flight,
            now=lambda: self.now,
            find_downscale=self._downscales.find_underway,
            find_driver=self._find_driver,
        )

    def _find_driver(self, group: GroupName) -> str | None:
        """Return the policy that replaces the pods of a group, as its status proves."""
        key = self._owners.find_driver(group)
        if key is None:
            return None
        policy = self.policies.get(*key.split("/", 1))
        is_served = isinstance(policy, WatchedPolicy) and policy.status.observed_generation > 0
        return key if is_served else None

    def _make_context(self) -> ArbiterContext:
        return ArbiterContext(
            budgets=self.budgets,
            find_lack=lambda source: None,
            sets=self.sets,
            pods=self.pods,
            reader=self._observer,
            in_flight=self._in_flight,
            recorder=Recorder(self._source.client, self._source.clock, ""),
            find_downscale=self._downscales.find_underway,
            age=lambda: timedelta(0),
            now=lambda: self.now,
            clock=self._source.clock,
            metrics=self._source.metrics,
        )
