"""All features of one namespace: which start with it, and which stop.

When that happens is decided in `fleet`, for all namespaces of the process.

The description of a namespace by this process, which every page, command and JSON renders.

The numbers are those of the caches. The process that decides reports its decisions; a process that
follows, or has not reconciled a group yet, shows what it would decide on its own caches.

Composition of the status of budgets: which changes concern which budget, and the writer.

Only on a cluster: no decision rests on it, so the lab does without.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.flags import Config
from rollout_operator.controllers.budgets import SETTLE, BudgetStatuses
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.arbiter import BudgetAccount
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.model.budget import EventRecord
from rollout_operator.model.description import Description, GroupDescription, PolicyDescription
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Group, Pod, StatefulSet, Unreadable, selects
from rollout_operator.operator.context import Context, Feature, Process, Telemetry
from rollout_operator.operator.features import Budgets, Rollouts, Scaling, Shadow
from rollout_operator.planning.describe_groups import describe_group, share_pods
from rollout_operator.planning.rollout import plan_group
from rollout_operator.telemetry.spans import trace_keys

if TYPE_CHECKING:
    from rollout_operator.operator.policies import Policies
    from rollout_operator.operator.releases import DescribedReleases, Releases
    from rollout_operator.operator.reviews import Reviews


PolicySource = Callable[[], Iterable[PolicyDescription]]
Described = TypeVar("Described")


class Describer:
    """Describes the namespace of one process, anew at each call."""

    def __init__(
        self,
        context: Context,
        budgets: Budgets,
        policies: PolicySource | None = None,
        releases: "DescribedReleases | None" = None,
    ) -> None:
        """`policies` and `releases` describe themselves, where they are switched on."""
        self._context = context
        self._budgets = budgets
        self._policies = policies
        self._releases = releases
        self._observer = context.make_observer(context.following)

    async def describe(self) -> Description:
        """Return the namespace as it is now.

        Between two groups, and two budgets, other tasks run: a thousand of them take a second.
        """
        groups: list[GroupDescription] = []
        sets = self._context.sets
        most_pods = share_pods(sum(sts.group is not None for sts in sets.list_all()))
        for name in sorted(sets.list_groups()):
            group = self._observer.observe(name)
            if group.zones or group.unreadable:
                groups.append(self._describe_group(group, most_pods))
            await asyncio.sleep(0)
        described = Description(
            namespace=self._context.namespace,
            now=self._context.clock.now(),
            operator=self._context.health.describe(is_acting=self._context.is_leading),
            groups=tuple(groups),
            budgets=await _list_slowly(self._budgets.describe()),
            policies=UNSET if self._policies is None else await _list_slowly(self._policies()),
        )
        releases = self._releases
        if releases is None:
            return described
        return msgspec.structs.replace(
            described,
            releases=await _list_slowly(releases.describe_releases()),
            schedules=await _list_slowly(releases.describe_schedules()),
            health_checks=await _list_slowly(releases.describe_checks()),
        )

    def _describe_group(self, group: Group, most_pods: int) -> GroupDescription:
        state = self._context.group_states.find_newest(group.name)
        if state is None:
            now = self._context.clock.now()
            return describe_group(group, plan_group(group), now, most_pods=most_pods)
        return describe_group(
            group,
            state.plan,
            state.looked,
            state.since,
            is_underway=state.is_underway,
            most_pods=most_pods,
        )


async def _list_slowly(described: Iterable[Described]) -> tuple[Described, ...]:
    """Return the items, with a turn for other tasks after each."""
    descriptions: list[Described] = []
    for part in described:
        descriptions.append(part)
        await asyncio.sleep(0)
    return tuple(descriptions)


ReviewSource = Callable[[Context, Budgets], "Reviews"]
"""Makes the reviews of a namespace."""


class Engine:
    """All features of one namespace but the servers, which it shares."""

    def __init__(self, settings: Config, process: Process, telemetry: Telemetry) -> None:
        """`settings` name the namespace, `telemetry` takes its metrics and states."""
        self._context = context = Context(settings, process, telemetry)
        self._budgets = Budgets(context)
        is_shadow = settings.is_shadow
        self._policies = self._build_policies()
        self._releases = self._build_releases(settings)
        self._rollouts = (Shadow if is_shadow else Rollouts)(context, self._budgets.arbiter)
        self._features: tuple[Feature, ...] = (self._rollouts,)
        if is_shadow:
            self._budgets.close()  # grants are not its own to release
        else:
            scaling = Scaling(context, self._budgets.process)
            self._features = (self._rollouts, self._budgets, scaling)
        if self._policies is not None:
            self._features = (*self._features, self._policies)
            self._policies.on_change(self._rollouts.wake_all)
        if self._releases is not None:
            self._features = (*self._features, self._releases)
        self._budgets.informer.on_change(lambda old, new: self._rollouts.wake_all())
        self._reviews: Reviews | None = None
        self._describer = Describer(
            context,
            self._budgets,
            None if self._policies is None else self._policies.describe,
            None if self._releases is None else self._releases.describer,
        )
        self.health = context.health
        self.known = asyncio.Event()
        """Set once caches are filled."""
        self.ready = asyncio.Event()
        """Set once caches are filled, reviews are served and groups are reconciled."""
        context.health.part(
            "workers", is_ready=lambda: None if self.ready.is_set() else "not started"
        )

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return self._context.namespace

    @property
    def is_leading(self) -> bool:
        """Return whether this process decides."""
        return self._context.is_leading

    @property
    def is_empty(self) -> bool:
        """Return whether no StatefulSet and no pod has been seen in it."""
        return not (len(self._context.sets) or len(self._context.pods))

    @property
    def busy(self) -> int:
        """Return how many groups are worked on now."""
        also = (self._policies, self._releases)
        return self._rollouts.busy + sum(part.busy for part in also if part is not None)

    async def describe(self) -> Description:
        """Return the namespace as this process knows it, for people; at any time."""
        return await self._describer.describe()

    def report(self, event: EventRecord) -> None:
        """Have an Event written about an object that is no namespace's own."""
        self._context.events.report(event)

    def add_reviews(self, build: ReviewSource) -> None:
        """Decide reviews as well, by those that `build` makes."""
        self._reviews = build(self._context, self._budgets)

    def add_feature(self, build: Callable[[Context, Budgets], Feature]) -> None:
        """Have another feature, which `build` makes, work once this process acts."""
        self._features = (*self._features, build(self._context, self._budgets))

    def follow(self, tasks: TaskStack) -> None:
        """Begin to fill the caches."""
        self._context.events.start(tasks)
        tasks.start("statefulset informer", self._context.set_informer.run())
        tasks.start("pod informer", self._context.pod_informer.run())
        self._budgets.follow(tasks)
        for part in (self._policies, self._releases):
            if part is not None:
                part.follow(tasks)

    async def wait_known(self) -> None:
        """Wait until the caches are filled."""
        await self._context.wait_known()
        await self._budgets.wait_known()
        self._context.departed.begin()
        self.known.set()

    def lead(self, tasks: TaskStack) -> None:
        """Act from now on; the caches must be filled."""
        if self._reviews is not None:
            self._reviews.lead(tasks)
        for feature in self._features:
            feature.start(tasks)
        self._context.has_begun = True

    def close(self) -> None:
        """Begin nothing new from now on."""
        for feature in self._features:
            feature.close()

    async def finish(self) -> None:
        """Wait until nothing is worked on."""
        for feature in self._features:
            await feature.finish()

    async def flush(self) -> None:
        """Write the last Events, once the tasks have ended."""
        await self._context.events.flush()

    def _build_policies(self) -> "Policies | None":
        """Return the feature for MultiAZRollouts, where they are switched on."""
        if not self._context.process.drives_policies:
            return None
        # Not before: most operators never need it.
        from rollout_operator.operator.policies import Policies

        return Policies(self._context, self._budgets.arbiter)

    def _build_releases(self, settings: Config) -> "Releases | None":
        """Return the feature for releases, where they are switched on."""
        if not settings.drives_releases:
            return None
        from rollout_operator.operator.releases import Releases

        return Releases(self._context)


class BudgetReports(Feature):
    """Keeps the status of each budget up to date, in the process that acts."""

    def __init__(self, context: Context, budgets: Budgets) -> None:
        self._budgets = budgets
        self._queue: WorkQueue[str] = WorkQueue()
        # The budgets that select a StatefulSet, and the other way round, as they were last seen.
        self._names: dict[Uid, set[str]] = {}
        self._zones: dict[str, tuple[Uid, ...]] = {}
        client = context.open("reporting budgets", Priority.REPORT)
        statuses = BudgetStatuses(
            client=client,
            namespace=context.namespace,
            find_account=self._find_account,
            now=partial(context.get_time, client),
            clock=context.clock,
        )
        reconcile = trace_keys("reconcile budget status", statuses.reconcile)
        self._workers = Workers(self._queue, reconcile, count=1, rng=context.rng)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)
        context.in_flight.on_change(lambda pod: self._wake_owners([pod.owner_uid]))
        context.downscales.on_change(lambda uid, group: self._wake_owners([uid]))
        budgets.informer.on_change(lambda old, new: self._wake_all())
        self._is_running = False

    def start(self, tasks: TaskStack) -> None:
        """Begin to write."""
        self._is_running = True
        self._wake_all()
        tasks.start("budget status", self._workers.run())

    async def finish(self) -> None:
        """Wait for nothing: the next process makes a write that is cut off."""

    def _find_account(self, name: str) -> BudgetAccount | None:
        """Return the account of a budget, and remember whose changes concern it."""
        account = self._budgets.accounts.find(name)
        zones = () if account is None else account.zones
        for uid in self._zones.pop(name, ()):
            self._names[uid].discard(name)
            if not self._names[uid]:
                del self._names[uid]
        if account is not None:
            self._zones[name] = zones
        for uid in zones:
            self._names.setdefault(uid, set()).add(name)
        return account

    def _on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        sets = [version for version in (old, new) if version is not None]
        self._wake_owners(sts.uid for sts in sets)
        for budget in self._budgets.catalog.list_all():
            # A StatefulSet that it did not select before.
            if any(selects(own, sts.labels) for own in budget.selectors for sts in sets):
                self._wake(budget.name)

    def _on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        self._wake_owners({version.owner_uid for version in (old, new) if version is not None})

    def _wake_owners(self, owners: Iterable[Uid | None]) -> None:
        for owner in owners:
            for name in self._names.get(owner, ()) if owner is not None else ():
                self._wake(name)

    def _wake_all(self) -> None:
        """Reconcile all budgets: a budget that changes may overlap with others, or no longer."""
        for name in {*self._zones, *(budget.name for budget in self._budgets.catalog.list_all())}:
            self._wake(name)

    def _wake(self, name: str) -> None:
        if self._is_running:
            self._queue.add_after(name, SETTLE)
