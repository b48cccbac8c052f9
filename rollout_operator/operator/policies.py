"""MultiAZRollouts: their cache, what wakes a policy, and the controller.

Imported only where they are switched on. Where the kind is not installed, or the Role does not show
it, there are no policies. Until that is known no group is replaced by its label, because a policy
may own it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from rollout_operator.aio.queue import AT_ONCE
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.executor import Executor
from rollout_operator.controllers.observe import Observer, choose_most_live_reads
from rollout_operator.controllers.policies import (
    RESYNC,
    PolicyController,
    PolicyReports,
    PolicyStatuses,
    Switches,
)
from rollout_operator.controllers.policy_zones import Owners, Placements, PolicyRule
from rollout_operator.controllers.rollout import Steps
from rollout_operator.controllers.worker import Attempts, Controller
from rollout_operator.guards.arbiter import Arbiter
from rollout_operator.guards.departed import POLICY
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, ApiClient
from rollout_operator.kube.informer import Collection
from rollout_operator.kube.kinds import OptionalInformer
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import PolicyStore
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.description import PolicyDescription
from rollout_operator.model.names import Denied, GroupName, Uid
from rollout_operator.model.objects import AnyPod, AnySet, LabelSelector, StatefulSet, Unreadable
from rollout_operator.model.policy import Policy, PolicyScope, WatchedPolicy
from rollout_operator.planning.conditions import REASONS
from rollout_operator.planning.describe_policies import describe_policy, describe_unreadable_policy
from rollout_operator.telemetry.extra import PolicyMetrics

# Policies that are reconciled at a time; each mostly waits for the API server.
_WORKERS: Final = 16


class Policies(Feature):
    def __init__(self, context: Context, arbiter: Arbiter) -> None:
        self._context = context
        client = context.open("following policies", Priority.LIST)
        self.store = PolicyStore()
        self.informer = context.share_informer(
            client,
            Collection(
                resource=MULTI_AZ_ROLLOUTS,
                namespace=context.namespace,
                decode=decode_watched_policy,
                store=self.store,
            ),
            lambda cluster: cluster.policies,
        )
        self._follow = OptionalInformer(self.informer, client, MULTI_AZ_ROLLOUTS, context.namespace)
        self.owners = Owners(self.store, context.sets, context.clock)
        self._nodes = context.process.nodes
        self._observing = observing = context.open("observing policies", Priority.READ)
        self._placements = Placements(observing, context.namespace, context.pods, self._nodes)
        self._reconciler = self._build_reconciler(arbiter)
        self.controller = Controller(
            "reconcile policy", self._reconciler.reconcile, workers=_WORKERS, rng=context.rng
        )
        self.controllers = (self.controller,)
        self._connect()

    def on_change(self, callback: Callable[[timedelta], None]) -> None:
        """Call back when another policy, or none, may drive a group, with the time until then."""
        self.owners.on_change(callback)

    def find_driver(self, group: GroupName) -> str | None:
        """Return the policy that drives a group; empty where that is not known yet."""
        if self._follow.lack is None:
            return self.owners.find_driver(group)
        # The base Role grants list alone, so that an informer may be refused at its first watch.
        error = self.informer.last_error
        return None if self._follow.is_forbidden or isinstance(error, Denied) else ""

    def describe(self) -> Iterator[PolicyDescription]:
        for policy in sorted(self.store.list_all(), key=lambda each: each.name):
            if isinstance(policy, Unreadable):
                yield describe_unreadable_policy(policy)
            else:
                newest, waits = self._reconciler.get(policy.name)
                scope = self.owners.find(policy.name)
                yield describe_policy(newest or policy, scope, waits, now=self._context.clock.now())

    def follow(self, tasks: TaskStack) -> None:
        tasks.start("policy informer", self._follow.run(self._context.clock))

    def start(self, tasks: TaskStack) -> None:
        self._wake_all()
        super().start(tasks)

    def _connect(self) -> None:
        context = self._context
        context.find_driver = self.find_driver
        # Owners first: keys that the same change wakes read them.
        context.set_informer.on_change(self.owners.on_set)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)
        self.informer.on_change(self._record_left)
        self.informer.on_change(self.owners.on_policy)
        self.informer.on_change(self._on_policy)
        self.owners.on_change(self._wake_all)
        self._nodes.on_change(self._wake_all)
        context.downscales.on_change(lambda uid, group: self._wake_owner(uid))
        context.in_flight.on_change(lambda pod: self._wake_owner(pod.owner_uid))
        context.on_stale(self._wake_all)
        context.departed.add_kind(POLICY, self._list_names, self._selects)
        context.departed.on_change(POLICY, self.controller.add)

    def _list_names(self) -> Iterator[str]:
        return (policy.name for policy in self.store.list_all())

    def _selects(self, name: str, sts: AnySet) -> bool:
        """Return whether a policy selects a StatefulSet that is not being deleted."""
        if isinstance(sts, StatefulSet) and sts.is_terminating:
            return False
        selector = _get_selector(self.store.get(self._context.namespace, name))
        return selector is not None and selector.may_take(sts.labels)

    def _record_left(
        self, old: WatchedPolicy | Unreadable | None, new: WatchedPolicy | Unreadable | None
    ) -> None:
        """Record StatefulSets no longer selected: an open batch may have pods down (MAZ-46)."""
        version = new or old
        before, after = _get_selector(old), _get_selector(new)
        if version is not None and before != after:
            was, stays = (None if of is None else of.may_take for of in (before, after))
            at = self.store.find_deletion(version.uid) if new is None else new.resource_version
            self._context.departed.on_selector((POLICY, version.name), was, stays, at)

    def _record_left_before(self, scope: PolicyScope, name: str) -> None:
        """Record a StatefulSet of an open batch that left before this process knew of it."""
        sts = self._context.sets.get(self._context.namespace, name)
        if sts is not None and all(own.name != name for own in scope.sets):
            self._context.departed.on_left([(POLICY, scope.policy.head.name)], sts, sts)

    def _build_reconciler(self, arbiter: Arbiter) -> PolicyController:
        context, observing = self._context, self._observing
        recording = context.open("recording policies", Priority.ANSWER)
        attempts = Attempts(
            context.clock, longest=context.settings.reconcile_interval, rng=context.rng
        )
        metrics = PolicyMetrics(context.metrics.registry, context.namespace, REASONS)
        reports = PolicyReports(context.events.report, metrics, context.clock)
        rule = PolicyRule(context.namespace, self._make_observer(observing), self.owners)
        return PolicyController(
            owners=self.owners,
            statuses=PolicyStatuses(recording, context.namespace, self.store, context.clock),
            placements=self._placements,
            rule=rule,
            steps=self._make_steps(arbiter, rule, attempts, reports),
            switches=Switches(recording, attempts),
            attempts=attempts,
            reports=reports,
            record_left=self._record_left_before,
            now=partial(context.get_time, recording),
        )

    def _make_steps(
        self, arbiter: Arbiter, rule: PolicyRule, attempts: Attempts, reports: PolicyReports
    ) -> Steps:
        context = self._context
        executor = Executor(
            context.open("acting for policies", Priority.READ),
            rule,
            context.deletes,
            clock=context.clock,
            metrics=context.metrics,
            arbiter=arbiter,
            locks=context.locks,
            recording=context.open("recording revisions of policies", Priority.RECORD),
            most_live_reads=choose_most_live_reads(context.settings.client_qps),
            is_stopping=lambda: context.is_stopping,
            on_step=reports.on_step,
        )
        return Steps(
            executor=executor,
            deletes=context.deletes,
            attempts=attempts,
            refresh=context.refresh,
            resync=RESYNC,
        )

    def _make_observer(self, client: ApiClient) -> Observer:
        """Return an observer of StatefulSets, whatever groups they form."""
        observer, departed = self._context.make_observer(client), self._context.departed
        downscales = self._context.downscales
        return replace(
            observer,
            watches=(*observer.watches, self._follow),
            # Of any label group that the policy drives (MAZ-35).
            find_downscale=lambda group, sets: downscales.find_among(sets),
            find_driver=lambda group: None,
            find_departed=lambda name, live: departed.list_zones((POLICY, name), live),
        )

    def _on_policy(
        self, old: WatchedPolicy | Unreadable | None, new: WatchedPolicy | Unreadable | None
    ) -> None:
        for version in (old, new):
            if version is not None:
                self.controller.add(version.name)

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        for version in (old, new):
            if version is not None:
                self._wake_owner(version.uid)
        if old is not None and new is None:
            self._placements.forget_set(old.name)

    def _on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        for version in (old, new):
            if version is not None:
                self._wake_owner(version.owner_uid)

    def _wake_owner(self, owner: Uid | None) -> None:
        name = None if owner is None else self.owners.find_name(owner)
        if name is not None:
            self.controller.add(name)

    def _wake_all(self, after: timedelta = AT_ONCE) -> None:
        for policy in self.store.list_all():
            self.controller.add_after(policy.name, after)


def _get_selector(policy: WatchedPolicy | Unreadable | None) -> LabelSelector | None:
    spec = policy.policy if isinstance(policy, WatchedPolicy) else None
    return spec.selector if isinstance(spec, Policy) else None
