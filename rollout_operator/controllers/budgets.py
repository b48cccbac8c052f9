"""Release grants of disruptions that did not happen, and write the status of budgets.

An eviction that we allowed may be refused by the API server, and a process may die between a record
and its effect. Any process that sees the record on an untouched pod removes it, so that the budget
is free again (LI-07). `planning.budgets` decides which pods may go.

The status of a budget is for `kubectl get` and `kubectl describe`; no decision reads it. So it is
the last of all that this process sends: changes are gathered for a while, a few are written each
second, and none where the role forbids it or the installed kind drops it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import BUDGET_STATUSES
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.worker import Controller, Result
from rollout_operator.guards.arbiter import (
    Accounts,
    Arbiter,
    ArbiterContext,
    BudgetAccount,
    BudgetCatalog,
)
from rollout_operator.guards.departed import BUDGET
from rollout_operator.guards.grants import GrantState, InFlight, Recorder, read_record
from rollout_operator.kube.api import PODS, ZONE_BUDGETS, JsonObject, LiveReader, list_items
from rollout_operator.kube.informer import Collection
from rollout_operator.kube.kinds import FollowedKind
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import AnyBudget, BudgetStore, PodStore
from rollout_operator.model.budget import BudgetStatus, DisruptionSource
from rollout_operator.model.decode.custom import decode_budget, decode_budget_status
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    DecodeError,
    Denied,
    InvalidInput,
    NotElected,
    NotFound,
    Uid,
)
from rollout_operator.model.objects import AnyPod, AnySet, Pod, selects
from rollout_operator.model.outcome import Code
from rollout_operator.planning.describe_budgets import render_budget_status
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import DisruptionMetrics

# An answer leaves within 4 s of its record (`ANSWER_LIMIT`), and an API server with our manifests
# waits no longer than 5 s and acts at once. With the rest the budget is free again within ten
# seconds (LI-07).
UNTOUCHED_FOR: Final = timedelta(seconds=8)
# A webhook configuration allows no more time (30 s), whatever a record has.
LONGEST: Final = timedelta(seconds=34)
# Pods whose grants are reconciled at a time; each mostly waits for the API server.
_WORKERS: Final = 4
# A connection that died unnoticed costs no more than this.
LIVE_READ_LIMIT: Final = timedelta(seconds=3)
# If the pod has changed during the read, and after an error.
REQUEUE_AFTER: Final = timedelta(milliseconds=500)
RETRY: Final = timedelta(seconds=5)
# If the role forbids it: by then a readable record has expired.
RETRY_FORBIDDEN: Final = timedelta(minutes=5)
_DONE: Final = timedelta(0)

PodKey = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class DisruptionController:
    """Reconciles pods with a grant or a record, by namespace and name."""

    pods: PodStore
    in_flight: InFlight
    recorder: Recorder
    client: LiveReader
    clock: Clock
    metrics: DisruptionMetrics
    _seen: dict[PodKey, tuple[Uid, str, timedelta]] = field(default_factory=dict, init=False)
    """Since when which record is known, on the clock's `elapsed`."""

    async def reconcile(self, key: PodKey) -> Result:
        """Release the grant of a pod that did not go in time."""
        cached = self.pods.get(*key)
        if not isinstance(cached, Pod) or cached.is_terminating:
            self.in_flight.forget_seen()
            return self._forget(key)
        if self.in_flight.get(cached.uid) is None and not cached.disruption:
            return self._forget(key)
        left = self._time_left(cached)
        if left <= _DONE:
            try:
                left = await self._remove_record(cached)
            except TimeoutError:
                left = REQUEUE_AFTER
            except ApiError as error:
                log.debug("Grant not released yet", pod=cached.name, err=error)
                left = RETRY
        return Result(again=left) if left > _DONE else self._forget(key)

    async def _remove_record(self, cached: Pod) -> timedelta:
        """Return when to reconcile again, _DONE for never.

        Raises ApiError, and TimeoutError if the API server does not answer in time; our own rate
        limits may take longer.
        """
        await self.client.wait_turn(PODS, cached.namespace)
        try:
            async with asyncio.timeout(LIVE_READ_LIMIT.total_seconds()):
                body = await self.client.fetch(PODS, cached.namespace, cached.name, has_turn=True)
            pod = decode_pod(body)
        except NotFound:
            return _DONE
        except InvalidInput as error:
            log.warn("Pod cannot be read", pod=cached.name, err=error)
            return RETRY
        if pod.uid != cached.uid or pod.is_terminating:
            return _DONE  # the cache will show it
        left = self._time_left(pod)  # it may have been granted again, here or elsewhere
        if left > _DONE:
            return left
        again = _DONE
        if pod.disruption:
            await self.recorder.wait_turn(pod)
            try:
                async with asyncio.timeout(LIVE_READ_LIMIT.total_seconds()):
                    await self.recorder.clear(pod)
            except (Conflict, NotFound):
                return REQUEUE_AFTER
            except Denied as error:  # then it expires, see `RECORD_COUNTS`
                if not error.is_by_role:
                    raise
                log.warn("Record of a disruption cannot be removed", pod=pod.name, err=error)
                again = RETRY_FORBIDDEN
        self._release(pod)
        return again

    def _release(self, pod: Pod) -> None:
        log.info(
            "Releasing a grant: the pod is untouched",
            pod=pod.name,
            reason=Code.GRANT_TAKEN_BACK,
            after=UNTOUCHED_FOR,
        )
        grant = self.in_flight.get(pod.uid)
        if grant is not None and self.in_flight.release_untouched(grant):
            self.metrics.unused.inc()

    def _time_left(self, pod: Pod) -> timedelta:
        """Return how long a grant of a pod may still be used, by this process or another."""
        grant = self.in_flight.get(pod.uid)
        if grant is None:
            return self._time_left_of_record(pod)
        if grant.state is GrantState.REQUESTED:
            return UNTOUCHED_FOR  # the requester settles it, which wakes this key
        own = grant.begun + _choose_span(grant.lasts) - self.clock.elapsed()
        if pod.disruption in ("", grant.record):
            return own
        return max(own, self._time_left_of_record(pod))  # another process granted it again

    def _time_left_of_record(self, pod: Pod) -> timedelta:
        """Return how long the grant in a record may still be used.

        It counts from when the record was first seen: the time in it may be wrong.
        """
        elapsed = self.clock.elapsed()
        key, what = (pod.namespace, pod.name), (pod.uid, pod.disruption)
        recorded = self._seen.get(key)
        if recorded is None or recorded[:2] != what:
            recorded = self._seen[key] = (*what, elapsed)
        try:
            record = read_record(pod)
        except InvalidInput as error:
            log.warn("Record of a disruption cannot be read", pod=pod.name, err=error)
            return recorded[2] + UNTOUCHED_FOR - elapsed
        if record is None:
            return _DONE  # it is of another pod
        return recorded[2] + _choose_span(record.lasts) - elapsed

    def _forget(self, key: PodKey) -> Result:
        self._seen.pop(key, None)
        return Result()


def _choose_span(lasts: timedelta) -> timedelta:
    """Return after what time an untouched pod proves that a grant was not used."""
    return min(max(lasts, UNTOUCHED_FOR), LONGEST)


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
        collection: Collection[AnyBudget] = Collection(
            resource=ZONE_BUDGETS,
            namespace=context.namespace,
            decode=decode_budget,
            store=self._store,
        )
        self.kind = FollowedKind(client, collection, context.make_informer)
        self.kind.on_change(self._on_budget)
        context.departed.add_kind(BUDGET, self._list_names, self._selects)
        self.kind.on_change(context.events.on_budget)
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
            age=lambda: max(context.age, self.kind.age),
            now=partial(context.get_time, granting),
            clock=context.clock,
            metrics=context.metrics,
        )
        self.arbiter = Arbiter(common)
        self.accounts = Accounts(common)
        context.health.part(f"{ZONE_BUDGETS.plural} watch", is_ready=self._describe_unknown)
        self.reconciler = DisruptionController(
            pods=context.pods,
            in_flight=context.in_flight,
            recorder=Recorder(releasing, context.clock, name),
            client=releasing,
            clock=context.clock,
            metrics=context.metrics.disruptions,
        )
        self.controller = Controller(
            "reconcile budgets", self.reconciler.reconcile, workers=_WORKERS, rng=context.rng
        )
        self.controllers = (self.controller,)
        context.in_flight.on_change(lambda pod: self.controller.add((pod.namespace, pod.name)))
        context.pod_informer.on_change(self._on_pod)

    def follow(self, tasks: TaskStack) -> None:
        tasks.start("budget informer", self.kind.run(self._context.clock))

    async def wait_known(self) -> None:
        """Wait until budgets are known, or are denied to a process that may list pods."""
        await self.kind.wait_answered()
        self.kind.doubt_denial()
        await self.kind.wait_answered()

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
        lack = None if self.kind.is_forbidden else self.kind.lack
        return None if lack is None else f"not followed yet: {lack}"

    def _find_lack(self, source: DisruptionSource) -> str | None:
        # A role of an earlier release does not show budgets: rollouts go on as they did under it,
        # evictions come to the operator only where a webhook configuration names them.
        if source is DisruptionSource.ROLLOUT and self.kind.is_forbidden:
            return None
        return self.kind.lack


# Changes of a budget within this time are one write.
SETTLE: Final = timedelta(seconds=2)
# Between two writes, of any budgets.
_WRITE_PAUSE: Final = timedelta(milliseconds=300)
# Between two reconciles, which may take some milliseconds each.
_RECONCILE_PAUSE: Final = timedelta(milliseconds=20)
# Time alone makes a pod available that has to be ready for a while.
STATUS_REQUEUE_AFTER: Final = timedelta(seconds=30)
# All budgets are read this often: a status that a person wrote lasts no longer.
READ_AGAIN: Final = timedelta(minutes=5)
# A person has to change the role, or the definition.
TRY_AGAIN: Final = timedelta(minutes=10)


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a budget as the API server shows it."""

    uid: Uid
    status: BudgetStatus
    requested: BudgetStatus | None = None
    """The status that this process wrote, if another was stored: a kind that lacks a field drops
    it, and writing it again would change nothing."""

    @property
    def newest(self) -> BudgetStatus:
        return self.requested or self.status


class BudgetReports(Feature):
    """Writes the status of each budget, one at a time, in the process that acts.

    No decision rests on it.
    """

    def __init__(self, context: Context, budgets: Budgets) -> None:
        self._context, self._budgets = context, budgets
        self._client = context.open("reporting budgets", Priority.REPORT)
        self._shown: dict[str, _Shown] = {}
        self._failures: dict[str, int] = {}
        self._read_at: timedelta | None = None
        """On the clock's `elapsed`, as `_not_before`."""
        self._not_before = timedelta(0)
        self._is_reported = False
        # The budgets that select a StatefulSet, and the other way round, as they were last seen.
        self._names: dict[Uid, set[str]] = {}
        self._zones: dict[str, tuple[Uid, ...]] = {}
        self.controller = Controller(
            "reconcile budget status", self.reconcile, workers=1, rng=context.rng
        )
        self.controllers = (self.controller,)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)
        context.in_flight.on_change(lambda pod: self._wake_owners([pod.owner_uid]))
        context.downscales.on_change(lambda uid, group: self._wake_owners([uid]))
        budgets.kind.on_change(lambda old, new: self._wake_all())
        self._is_running = False

    def start(self, tasks: TaskStack) -> None:
        self._is_running = True
        self._wake_all()
        super().start(tasks)

    async def finish(self) -> None:
        """Return at once: the next process repeats a write that is cut off."""

    async def reconcile(self, name: str) -> Result:
        left = self._not_before - self._context.clock.elapsed()
        if left > timedelta(0):
            return Result(again=left)
        try:
            again = await self._write(name)
        except NotElected:
            return Result(again=STATUS_REQUEUE_AFTER)  # if it is for this process again
        except NotFound as error:
            again = await self._find_missing(name, error)
        except ApiError as error:
            again = self._record_failure(name, error)
        await self._context.clock.sleep(_RECONCILE_PAUSE)
        return Result(again=again)

    async def _write(self, name: str) -> timedelta | None:
        """Return when to reconcile again, None if there is no budget."""
        if self._read_at is None or self._context.clock.elapsed() - self._read_at >= READ_AGAIN:
            await self._read()
        account = self._find_account(name)
        if account is None:
            self._shown.pop(name, None)
            self._failures.pop(name, None)
            return None
        described = account.described
        if any(wait.code is Code.SNAPSHOT_STALE for wait in described.waits):
            return STATUS_REQUEUE_AFTER  # an unknown state is not written
        uid, generation = account.known.uid, account.known.generation
        shown = self._shown.get(name)
        if shown is None or shown.uid != uid:
            shown = _Shown(uid=uid, status=BudgetStatus())
        before = shown.newest
        status = render_budget_status(
            described, generation, before=before, now=self._context.get_time(self._client)
        )
        if status != before:
            await self._patch(name, uid, status)
        self._failures.pop(name, None)
        return STATUS_REQUEUE_AFTER if described.unavailable or described.waits else READ_AGAIN

    async def _patch(self, name: str, uid: Uid, status: BudgetStatus) -> None:
        fields: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
        patch: JsonObject = {"metadata": {"uid": uid}, "status": fields}
        body = await self._client.patch(
            ZONE_BUDGETS, self._context.namespace, name, patch, subresource="status"
        )
        await self._context.clock.sleep(_WRITE_PAUSE)
        stored = decode_budget_status(body).status
        is_dropped = stored == BudgetStatus()
        self._shown[name] = _Shown(uid=uid, status=stored, requested=None if is_dropped else status)
        if is_dropped:
            self._give_up(
                "the kind as it is installed has no such status: it drops what is written"
            )
        else:
            self._is_reported = False

    async def _read(self) -> None:
        """Read the statuses of all budgets. Raises ApiError."""
        shown: dict[str, _Shown] = {}
        for item in await list_items(self._client, ZONE_BUDGETS, self._context.namespace):
            try:
                status = decode_budget_status(item)
            except DecodeError as error:
                log.debug("Status of a budget cannot be read", err=error)
            else:
                before = self._shown.get(status.name)
                now = _Shown(uid=status.uid, status=status.status)
                is_same = before and (before.uid, before.status) == (now.uid, now.status)
                shown[status.name] = before if before and is_same else now
        self._shown = shown
        self._read_at = self._context.clock.elapsed()

    async def _find_missing(self, name: str, error: NotFound) -> timedelta | None:
        """Find out whether the budget is gone, or its kind has no status."""
        try:
            await self._read()
        except ApiError as other:
            return self._record_failure(name, other)
        account, shown = self._find_account(name), self._shown.get(name)
        if account is None or shown is None or shown.uid != account.known.uid:
            return SETTLE  # or will be once the cache shows it
        self._give_up(error)
        return TRY_AGAIN

    def _record_failure(self, name: str, error: ApiError) -> timedelta:
        self._read_at = None  # it may have been written
        if isinstance(error, Denied):
            self._give_up(error)
            return TRY_AGAIN
        log.debug("Status of a budget not written", zpdb=name, err=error)
        if isinstance(error, Conflict):
            return SETTLE
        self._failures[name] = self._failures.get(name, 0) + 1
        return BUDGET_STATUSES.bound(self._failures[name])

    def _give_up(self, why: ApiError | str) -> None:
        """Write nothing for a while, and log that once."""
        self._not_before = self._context.clock.elapsed() + TRY_AGAIN
        if not self._is_reported:
            log.info("Status of budgets is not written: nothing else depends on it", err=why)
        self._is_reported = True

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
