"""The controllers of one namespace and what wakes them: rollouts, scaling, budgets, shadow mode.

Scaling and budgets always run: they cost nothing for groups that do not follow another zone, and
one watch of a kind that may not be installed. Scaling starts with rollouts, after reviews are
served, because counts that we write come back as reviews. In shadow mode a controller that only
decides replaces those of rollouts and scaling.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from datetime import timedelta
from functools import partial
from typing import Final, NoReturn

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.budgets import SETTLE, BudgetStatuses, DisruptionController
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.worker import Controller
from rollout_operator.guards.arbiter import (
    Accounts,
    Arbiter,
    ArbiterContext,
    BudgetAccount,
    BudgetCatalog,
)
from rollout_operator.guards.departed import BUDGET
from rollout_operator.guards.grants import Recorder
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, ZONE_BUDGETS, Reader
from rollout_operator.kube.informer import Collection
from rollout_operator.kube.kinds import OptionalInformer
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import AnyBudget, BudgetStore
from rollout_operator.model.budget import (
    DisruptionSource,
    EventAction,
    EventKind,
    EventRecord,
    ObjectEvent,
    Regarding,
)
from rollout_operator.model.decode.custom import decode_budget
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import WirePlaced
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.names import ApiError, DecodeError, Denied, Uid
from rollout_operator.model.objects import AnyPod, AnySet, Pod, selects
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.wording import camel_case, join_names
from rollout_operator.telemetry.logs import log

# Pods whose grants are reconciled at a time; each mostly waits for the API server.
_BUDGET_WORKERS: Final = 4
# A person who waits for a policy looks at it sooner; the requests are few.
EVERY: Final = timedelta(minutes=5)
_IF_DENIED: Final = timedelta(hours=1)
# Of more policies the first say enough.
MOST: Final = 20
NOTE: Final = f"this operator obeys no MultiAZRollouts: {Code.POLICY_NOT_OBEYED.remedy}"
_POLICY: Final = msgspec.json.Decoder(WirePlaced)


class Budgets(Feature):
    """Watched budgets, the arbiter, and the controller that releases grants."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # Evictions wait for grants, and so do deletes: neither waits for the reads of others.
        granting, counting = (
            context.open(name, Priority.ANSWER) for name in ("granting", "counting")
        )
        releasing = context.open("releasing grants", Priority.RELEASE)
        client = context.open("following budgets", Priority.LIST)
        self.catalog = BudgetCatalog(context.metrics)
        self._store = BudgetStore()
        self.informer = context.share_informer(
            client,
            Collection(
                resource=ZONE_BUDGETS,
                namespace=context.namespace,
                decode=decode_budget,
                store=self._store,
            ),
            lambda cluster: cluster.budgets,
        )
        self.informer.on_change(self._on_budget)
        context.departed.add_kind(BUDGET, self._list_names, self._selects)
        self.informer.on_change(context.events.on_budget)
        self._follow = OptionalInformer(self.informer, client, ZONE_BUDGETS, context.namespace)
        self.process = name = context.make_name()
        common = ArbiterContext(
            budgets=self.catalog,
            find_lack=self._find_lack,
            sets=context.sets,
            pods=context.pods,
            reader=context.make_observer(counting),
            in_flight=context.in_flight,
            recorder=Recorder(granting, context.clock, name),
            find_downscale=context.downscales.find_among,
            find_newcomers=context.arrivals.get,
            find_departed=lambda name, live: context.departed.list_zones((BUDGET, name), live),
            age=lambda: max(context.age, self._follow.age),
            now=partial(context.get_time, granting),
            clock=context.clock,
            metrics=context.metrics,
        )
        self.arbiter = Arbiter(common)
        self.accounts = Accounts(common)
        context.health.part(f"{ZONE_BUDGETS.plural} watch", is_ready=self._describe_unknown)
        reconciler = DisruptionController(
            pods=context.pods,
            in_flight=context.in_flight,
            recorder=Recorder(releasing, context.clock, name),
            client=releasing,
            clock=context.clock,
            metrics=context.metrics.disruptions,
        )
        self.controller = Controller(
            "reconcile budgets", reconciler.reconcile, workers=_BUDGET_WORKERS, rng=context.rng
        )
        self.controllers = (self.controller,)
        context.in_flight.on_change(lambda pod: self.controller.add((pod.namespace, pod.name)))
        context.pod_informer.on_change(self._on_pod)

    def follow(self, tasks: TaskStack) -> None:
        tasks.start("budget informer", self._follow.run(self._context.clock))

    async def wait_known(self) -> None:
        await self._follow.wait_answered()

    def start(self, tasks: TaskStack) -> None:
        self.arbiter.begin()
        self._context.events.report_budgets(self._store.list_all())
        super().start(tasks)
        tasks.start("releases of grants", self.arbiter.run())

    def describe(self) -> Iterator[BudgetDescription]:
        """Yield the budgets by name; each takes milliseconds."""
        return self.accounts.list_descriptions()

    def _on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        for pod in (old, new):
            if isinstance(pod, Pod) and (pod.disruption or self._context.in_flight.get(pod.uid)):
                self.controller.add((pod.namespace, pod.name))

    def _on_budget(self, old: AnyBudget | None, new: AnyBudget | None) -> None:
        """Take over a budget; a zone that it no longer selects may be short."""
        version = new or old
        name = "" if version is None else version.name
        before = self._find_selector(name)
        self.catalog.on_change(old, new)
        after = self._find_selector(name)
        if version is not None and before != after:
            was, stays = (None if of is None else partial(selects, of) for of in (before, after))
            at = self._store.find_deletion(version.uid) if new is None else new.resource_version
            self._context.departed.on_selector((BUDGET, name), was, stays, at)

    def _find_selector(self, name: str) -> Mapping[str, str] | None:
        versions = self.catalog.get(name)
        return None if versions is None or versions.budget is None else versions.budget.selector

    def _list_names(self) -> Iterator[str]:
        return (versions.name for versions in self.catalog.list_all())

    def _selects(self, name: str, sts: AnySet) -> bool:
        selector = self._find_selector(name)
        return selector is not None and selects(selector, sts.labels)

    def _describe_unknown(self) -> str | None:
        lack = None if self._follow.is_forbidden else self._follow.lack
        return None if lack is None else f"not followed yet: {lack}"

    def _find_lack(self, source: DisruptionSource) -> str | None:
        # A role of an earlier release does not show budgets: rollouts go on as they did under it,
        # evictions come to the operator only where a webhook configuration names them.
        if source is DisruptionSource.ROLLOUT and self._follow.is_forbidden:
            return None
        return self._follow.lack


class BudgetReports(Feature):
    """Writes the status of each budget, in the process that acts; no decision rests on it."""

    def __init__(self, context: Context, budgets: Budgets) -> None:
        self._budgets = budgets
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
        self.controller = Controller(
            "reconcile budget status", statuses.reconcile, workers=1, rng=context.rng
        )
        self.controllers = (self.controller,)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)
        context.in_flight.on_change(lambda pod: self._wake_owners([pod.owner_uid]))
        context.downscales.on_change(lambda uid, group: self._wake_owners([uid]))
        budgets.informer.on_change(lambda old, new: self._wake_all())
        self._is_running = False

    def start(self, tasks: TaskStack) -> None:
        self._is_running = True
        self._wake_all()
        super().start(tasks)

    async def finish(self) -> None:
        """Return at once: the next process repeats a write that is cut off."""

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

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        sets = [version for version in (old, new) if version is not None]
        self._wake_owners(sts.uid for sts in sets)
        for budget in self._budgets.catalog.list_all():
            # A StatefulSet that it did not select before.
            if any(selects(own, sts.labels) for own in budget.selectors for sts in sets):
                self._wake(budget.name)

    def _on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        self._wake_owners({version.owner_uid for version in (old, new) if version is not None})

    def _wake_owners(self, owners: Iterable[Uid | None]) -> None:
        for owner in owners:
            for name in self._names.get(owner, ()) if owner is not None else ():
                self._wake(name)

    def _wake_all(self) -> None:
        """Reconcile all budgets, since those that overlap with a changed one change as well."""
        for name in {*self._zones, *(budget.name for budget in self._budgets.catalog.list_all())}:
            self._wake(name)

    def _wake(self, name: str) -> None:
        if self._is_running:
            self.controller.add_after(name, SETTLE)


class UnobeyedPolicies(Feature):
    """Warns of MultiAZRollouts while their flag is not set."""

    def __init__(self, context: Context, budgets: Budgets) -> None:
        self._context = context
        self._client = context.open("finding policies", Priority.LIST)

    def start(self, tasks: TaskStack) -> None:
        context = self._context
        looking = report_unobeyed(
            self._client, context.namespace, context.events.report, context.clock
        )
        tasks.start("policies that are not obeyed", looking)


async def report_unobeyed(
    reader: Reader, namespace: str, report: Callable[[EventRecord], None], clock: Clock
) -> NoReturn:
    """Report each policy once, looking for new ones until cancelled."""
    reported: Set[str] = frozenset()
    wait = EVERY
    while True:
        try:
            reported = await _report_new(reader, namespace, report, reported)
            wait = EVERY
        except Denied as error:
            # A Role of grafana/rollout-operator, which works without this right.
            if wait is EVERY:
                log.debug("May not list MultiAZRollouts", err=error)
            wait = _IF_DENIED
        except (ApiError, DecodeError) as error:
            wait = EVERY  # mostly the kind is not installed
            log.debug("Found no MultiAZRollouts", err=error)
        await clock.sleep(wait)


async def _report_new(
    reader: Reader, namespace: str, report: Callable[[EventRecord], None], reported: Set[str]
) -> Set[str]:
    """Report the policies that are new; return the UIDs of all that exist."""
    # Not at version 0, where the API server ignores the limit.
    page = await reader.fetch_page(MULTI_AZ_ROLLOUTS, namespace, limit=MOST)
    found = [read_as(MULTI_AZ_ROLLOUTS.kind, raw, _POLICY).metadata for raw in page.items]
    new = [policy for policy in found if policy.uid not in reported]
    if new:
        names = join_names([policy.name for policy in new])
        log.warn("Obeying no MultiAZRollouts", policies=names, reason=Code.POLICY_NOT_OBEYED)
    for policy in new:
        regarding = Regarding(EventKind.POLICY, policy.namespace, policy.name, Uid(policy.uid))
        event = ObjectEvent(
            reason=camel_case(Code.POLICY_NOT_OBEYED), note=NOTE, severity=Severity.WARN
        )
        report(event.record(regarding, EventAction.WAIT))
    return {policy.uid for policy in found}
