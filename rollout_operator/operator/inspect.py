"""Observe a namespace from outside, with rights to read: for commands that people type.

The objects are listed once, without caches, and the operator's own core decides on them, so that it
works where the operator is down. The operator's own description is read through the API server's
proxy, where that is allowed. Nothing is written, and no pod is called. Objects that may not be read
are left out, with a remark.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import both, gather_all
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.policy_zones import Owners, name_of_policy
from rollout_operator.controllers.shadow import choose_grantable
from rollout_operator.guards.arbiter import Accounts, Arbiter, ArbiterContext, BudgetCatalog
from rollout_operator.guards.downscales import Downscales
from rollout_operator.guards.grants import DisruptionRequest, InFlight, OwnDeletes, Recorder
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import (
    LEASES,
    MULTI_AZ_ROLLOUTS,
    NAMESPACES,
    PODS,
    ROLLOUT_HEALTH_CHECKS,
    SERVICES,
    STATEFULSETS,
    ZONE_BUDGETS,
    ApiClient,
    Reader,
    Resource,
    iterate_pages,
)
from rollout_operator.kube.election import decode_lease
from rollout_operator.kube.scales import ScaleReader
from rollout_operator.kube.store import AnyBudget, PodStore, PolicyStore, StatefulSetStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.decode.custom import decode_budget, decode_watched_policy
from rollout_operator.model.decode.installation import decode_service
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.wire import decode_or_salvage
from rollout_operator.model.description import (
    SCHEMA_VERSION,
    BudgetDescription,
    Description,
    HealthCheckDescription,
    PolicyDescription,
    ReleaseDescription,
    ScheduleDescription,
    Waiting,
)
from rollout_operator.model.diagnosis import OPERATOR, STATUS_PORT, CallableService
from rollout_operator.model.lease import LEASE_DURATION, Lease
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    HEALTH_CHECK,
    ApiError,
    DecodeError,
    Denied,
    GroupName,
    InvalidInput,
    NotFound,
    OperatorError,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import (
    AnyWatched,
    Group,
    HealthGate,
    Pod,
    StatefulSet,
    Unreadable,
    list_decoded,
)
from rollout_operator.model.outcome import Action, Code, EqualPods, Plan, Reason, ReplacePods
from rollout_operator.model.policy import PolicyPlan, PolicySnapshot, WatchedPolicy
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.describe_groups import describe_group, select_namespace
from rollout_operator.planning.describe_policies import (
    describe_policy,
    describe_unreadable_policy,
    find_disobedience,
)
from rollout_operator.planning.policies import plan_policy
from rollout_operator.planning.policy_status import find_batch, find_initial, read_resolution
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.scaling import list_references, plan_scaling
from rollout_operator.releases.controller import gather_targets, index_flux
from rollout_operator.releases.model.decode_flux import DECODERS
from rollout_operator.releases.model.plan import ReleaseObjects, gather_releases
from rollout_operator.releases.model.releases import ReleaseRollout
from rollout_operator.releases.planning.bake import selects_namespaces
from rollout_operator.releases.planning.describe import (
    describe_check,
    describe_release,
    describe_schedule,
    describe_unreadable_release,
    order_schedules,
)
from rollout_operator.telemetry.metrics import Metrics, merge_plans

Decoded = TypeVar("Decoded")
Decoder = Callable[[msgspec.Raw], Decoded]
ALL_ROLLOUTS: Final = replace(kinds.ROLLOUTS, is_namespaced=False)
_ROLLOUTS: Final = (kinds.ROLLOUTS,)
_SHOWN: Final = (
    *((kinds.ROLLOUT_GATES,), (kinds.HEALTH_CHECKS,), (kinds.ROLLOUT_SCHEDULES,)),
    *((kinds.CLUSTER_ROLLOUT_SCHEDULES,), kinds.OCI_REPOSITORIES, kinds.KUSTOMIZATIONS),
    kinds.IMAGE_POLICIES,
)
_WIDE: Final = ((replace(kinds.HEALTH_CHECKS, is_namespaced=False),), (NAMESPACES,))
# Few people may read these: what rests on them says so itself.
_QUIET: Final = (kinds.ROLLOUTS, kinds.CLUSTER_ROLLOUT_SCHEDULES, kinds.IMAGE_POLICIES[0])
_DEFAULT_SERVICE: Final = f"{OPERATOR}:{STATUS_PORT}"
# Whoever may make Services could make any number of them look like an operator's.
_MOST_SERVICES: Final = 3
# The operator's own description is worth less than an answer now.
_OWN_LIMIT: Final = timedelta(seconds=3)
# The times of a Lease are of its holder's clock, which may be wrong.
_STOPPED_AFTER: Final = 2
# Of all namespaces in one list.
_ALL_SETS: Final = replace(STATEFULSETS, is_namespaced=False)
_ALL_POLICIES: Final = replace(MULTI_AZ_ROLLOUTS, is_namespaced=False)
_DESCRIPTION: Final = msgspec.json.Decoder(Description)


class Lister(msgspec.Struct, frozen=True):
    client: Reader
    version: str | None
    """None for a consistent read, "0" for the API server's cache."""

    async def list_all(
        self,
        resource: Resource,
        namespace: str,
        decode: Decoder[Decoded],
        selector: str = "",
    ) -> list[Decoded | Unreadable]:
        """Return all objects, those that cannot be decoded among them. Raises ApiError."""
        pages = iterate_pages(
            self.client, resource, namespace, selector=selector, resource_version=self.version
        )
        return [
            decode_or_salvage(resource.kind, decode, raw)
            async for page in pages
            for raw in page.items
        ]


class DrivenSets(msgspec.Struct, frozen=True, kw_only=True):
    """The sets that one policy owns, and the plan for it now."""

    key: str
    group: Group
    plan: PolicyPlan


class ObservedNamespace:
    """The objects of one namespace at one moment."""

    def __init__(
        self, client: ApiClient, namespace: str, clock: Clock, metrics: Metrics, now: datetime
    ) -> None:
        """`now` is the API server's time; the client gets no request here."""
        self.now = now
        self.sets = StatefulSetStore()
        self.pods = PodStore()
        self.budgets = BudgetCatalog(metrics)
        self.unread_budgets = ""
        """Why no budget could be read; empty where all were."""
        self.policies = PolicyStore()
        self.obeys_policies = True
        """False where the operator of the namespace says that it obeys none."""
        self.find_gates: Callable[[Group], Mapping[Uid, HealthGate]] = lambda group: {}
        """Returns what health checks say of the StatefulSets of a group."""
        self._owners = Owners(self.policies, self.sets, clock)
        in_flight = InFlight(self.pods, OwnDeletes(self.pods, clock), clock)
        downscales = Downscales(clock, late_calls=timedelta(0))
        self._observer = Observer(
            namespace=namespace,
            reader=client,
            clock=clock,
            sets=self.sets,
            pods=self.pods,
            watches=(),
            in_flight=in_flight,
            now=lambda: self.now,
            find_downscale=downscales.find_underway,
            find_driver=self._find_driver,
            find_gates=lambda group: self.find_gates(group),
        )
        common = ArbiterContext(
            budgets=self.budgets,
            find_lack=lambda source: None,
            sets=self.sets,
            pods=self.pods,
            reader=self._observer,
            in_flight=in_flight,
            recorder=Recorder(client, clock, ""),
            find_downscale=downscales.find_among,
            age=lambda: timedelta(0),
            now=lambda: self.now,
            clock=clock,
            metrics=metrics,
        )
        self._arbiter = Arbiter(common)
        self._accounts = Accounts(common)

    def take_budget(self, budget: AnyBudget) -> None:
        self.budgets.on_change(None, budget)

    def list_driven(self) -> Sequence[DrivenSets]:
        """Return the policies in service that an operator has reconciled, by name.

        A policy that no operator has reconciled drives nothing yet, and perhaps never will.
        """
        driven: list[DrivenSets] = []
        observer = dataclasses.replace(
            self._observer,
            find_driver=lambda group: None,
            find_gates=lambda group: self.find_gates(name_of_policy(group)),
        )
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
        self, driven: Sequence[DrivenSets]
    ) -> tuple[PolicyDescription, ...] | UnsetType:
        """Return all policies by name; UNSET where there is none."""
        plans = {driving.key: driving.plan for driving in driven}
        described: list[PolicyDescription] = []
        for policy in sorted(self.policies.list_all(), key=lambda policy: policy.name):
            if isinstance(policy, Unreadable):
                described.append(describe_unreadable_policy(policy))
                continue
            plan = plans.get(policy.policy.head.key, PolicyPlan())
            is_off = not self.obeys_policies
            lack = find_disobedience(policy, self.now, is_switched_off=is_off)
            waits = plan.waits if lack is None else (lack,)
            scope = self._owners.find(policy.name)
            described.append(describe_policy(policy, scope, waits, now=self.now, counts=plan.zones))
        return tuple(described) or UNSET

    def observe(self) -> Mapping[GroupName, Group]:
        return {name: self._observer.observe(name) for name in sorted(self.sets.list_groups())}

    def describe_budgets(self) -> tuple[BudgetDescription, ...]:
        return tuple(self._accounts.list_descriptions())

    async def assess_eviction(self, pod: Pod) -> Reason | None:
        """Return the reason by which a budget would refuse to evict a pod, if any."""
        request = DisruptionRequest(pod=pod, engine=DisruptionSource.EVICTION)
        [refusal] = await self._arbiter.assess_all([request])
        return None if refusal is None else refusal.reason

    async def plan(self, group: Group, scaling: ScalingPlan) -> Plan:
        """Return what the operator would plan for a group now, rollout and scaling together."""
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

    def _find_driver(self, group: GroupName) -> str | None:
        """Return the policy that replaces the pods of a group, as its status proves."""
        key = self._owners.find_driver(group)
        if key is None or not self.obeys_policies:
            return None
        policy = self.policies.get(*key.split("/", 1))
        is_served = isinstance(policy, WatchedPolicy) and policy.status.observed_generation > 0
        return key if is_served else None


class ReleaseReader(msgspec.Struct, frozen=True):
    """Lists objects of releases in one namespace; a kind that cannot be read is left out."""

    lister: Lister
    namespace: str
    absent: list[str] = []
    """Kinds that the API server does not know."""
    failures: list[tuple[Resource, ApiError]] = []

    async def list_all(self, *wanted: Sequence[Resource]) -> list[AnyWatched]:
        """Return the objects of all these kinds, each in its first served version."""
        objects: list[AnyWatched] = []
        read = await gather_all(map(self._list, wanted))
        for versions, found in zip(wanted, read, strict=True):
            if isinstance(found, NotFound):
                self.absent.append(versions[0].kind)
            elif isinstance(found, ApiError):
                self.failures.append((versions[0], found))
            else:
                objects += found
        return objects

    async def _list(self, versions: Sequence[Resource]) -> list[AnyWatched] | ApiError:
        absence = NotFound("")
        for resource in versions:
            namespace = self.namespace if resource.is_namespaced else ""
            try:
                return await self.lister.list_all(resource, namespace, DECODERS[resource.kind])
            except NotFound as error:
                absence = error
            except ApiError as error:
                return error
        return absence


async def _read_shown_releases(
    lister: Lister, namespace: str, remarks: list[str]
) -> "ObservedReleases":
    """Return the releases of a namespace, none where they are not installed or may not be read."""
    reader = ReleaseReader(lister, namespace)
    objects = await reader.list_all(_ROLLOUTS)
    if objects:
        objects += await reader.list_all(*_SHOWN)
    if any(map(selects_namespaces, list_decoded(objects, ReleaseRollout))):
        wide = await reader.list_all(*_WIDE)
        objects += [each for each in wide if each.namespace != namespace]
    remarks += _explain_failures(reader.failures)
    return ObservedReleases(gather_releases(objects), namespace)


def _explain_failures(failures: Sequence[tuple[Resource, ApiError]]) -> Iterator[str]:
    for resource, error in failures:
        if not isinstance(error, Denied) or resource not in _QUIET:
            name = "Rollouts" if resource is kinds.ROLLOUTS else resource.plural
            yield f"{name} are left out: {error}"


class ObservedReleases(msgspec.Struct, frozen=True):
    """Describes releases by their statuses: nothing is decided anew."""

    objects: ReleaseObjects
    namespace: str

    def describe_releases(self) -> tuple[ReleaseDescription, ...] | UnsetType:
        list_flux = index_flux(self.objects.flux)
        broken = self.objects.list_unreadable(kinds.ROLLOUTS.kind)
        described = [
            *(
                describe_release(each, self.objects, gather_targets(each, list_flux))
                for each in self.objects.rollouts
            ),
            *map(describe_unreadable_release, broken),
        ]
        return tuple(sorted(described, key=lambda each: each.name)) or UNSET

    def describe_schedules(self) -> tuple[ScheduleDescription, ...] | UnsetType:
        """Return the schedules of the namespace and of the cluster."""
        return tuple(map(describe_schedule, order_schedules(self.objects.schedules))) or UNSET

    def describe_checks(self) -> tuple[HealthCheckDescription, ...] | UnsetType:
        rollouts, labels = self.objects.list_obeyed(), self.objects.namespaces
        own = (each for each in self.objects.checks if each.head.namespace == self.namespace)
        described = (
            describe_check(each, rollouts, labels)
            for each in sorted(own, key=lambda check: check.head.name)
        )
        return tuple(described) or UNSET


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    description: Description
    """Computed from the objects; `operator` is the operator's own description."""
    own: Description | None
    """The description by the acting operator; None where it was not reached."""
    groups: Mapping[GroupName, Group]
    """The snapshots behind the description."""
    plans: Mapping[GroupName, Plan]
    driven: Sequence[DrivenSets]
    observed: ObservedNamespace
    remarks: tuple[str, ...] = ()

    @property
    def best(self) -> Description:
        """Return the operator's own description, completed by the computed one."""
        own, computed = self.own, self.description
        if own is None:
            return computed
        if own.policies is UNSET:
            own = msgspec.structs.replace(own, policies=computed.policies)
        if own.releases is not UNSET:
            return own
        # It knows nothing of what no process, or another process, looks after.
        return msgspec.structs.replace(
            own,
            releases=computed.releases,
            schedules=computed.schedules,
            health_checks=computed.health_checks,
        )

    async def assess_eviction(self, pod: Pod) -> Reason | Waiting | None:
        """Return the reason by which a budget would refuse to evict a pod, if any."""
        names = {state.name for state in self.observed.budgets.list_selecting(pod.labels)}
        left = (
            wait
            for budget in self.description.budgets
            for wait in budget.waits
            if budget.name in names and wait.code is Code.ZONE_LEFT_SHORT
        )
        return await self.observed.assess_eviction(pod) or next(left, None)


def is_settled(group: Group) -> bool:
    """Return whether each StatefulSet's status shows its newest spec."""
    return all(zone.sts.observed_generation >= zone.sts.generation for zone in group.zones)


class Inspector:
    def __init__(
        self, client: ApiClient, namespace: str, clock: Clock, *, service: str | None, lease: str
    ) -> None:
        """`service` is the operator's, `[NAMESPACE/]NAME:PORT`: empty for none, None to search."""
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._is_searched = service is None
        home, _, named = (_DEFAULT_SERVICE if service is None else service).rpartition("/")
        self._services: Sequence[str] = [named] if named else []
        self._advice = ""
        # While an operator is not reached, what it said last still holds groups.
        self._last: Description | None = None
        self._home = home or namespace
        self._lease = lease
        # Shown nowhere; making them takes longer than a snapshot.
        self._metrics = Metrics()
        self._scales = ScaleReader(client, namespace, clock)

    async def inspect(self, *, is_fresh: bool = True) -> Inspection:
        """Return the present state, or the state in the API server's cache.

        Raises ApiError where StatefulSets or pods cannot be listed.
        """
        remarks: list[str] = []
        lister = Lister(self._client, None if is_fresh else "0")
        reading = both(
            self._read(lister, remarks), _read_shown_releases(lister, self._namespace, remarks)
        )
        (seen, releases), own = await both(reading, self._fetch_own(remarks))
        is_own = own is not None and own.operator is not None and own.operator.is_acting
        seen.obeys_policies = own is None or not is_own or own.policies is not UNSET
        groups, driven = seen.observe(), seen.list_driven()
        planned = await gather_all(self._plan(seen, group) for group in groups.values())
        plans = dict(zip(groups, planned, strict=True))
        budgets = seen.describe_budgets()
        self._last = last = own or self._last
        if last is not None:
            plans.update(_hold_plans(plans, last))
            driven = tuple(_hold_driven(driven, last))
            budgets = tuple(_hold_budgets(budgets, last))
        described = (describe_group(group, plans[name], seen.now) for name, group in groups.items())
        return Inspection(
            description=Description(
                namespace=self._namespace,
                now=seen.now,
                operator=None if own is None else own.operator,
                groups=tuple(described),
                budgets=budgets,
                policies=seen.describe_policies(driven),
                releases=releases.describe_releases(),
                schedules=releases.describe_schedules(),
                health_checks=releases.describe_checks(),
            ),
            own=own if is_own else None,
            groups=groups,
            plans=plans,
            driven=driven if seen.obeys_policies else (),
            observed=seen,
            # The operator has read what this person may not read.
            remarks=() if is_own else tuple(remarks),
        )

    async def _read(self, lister: Lister, remarks: list[str]) -> ObservedNamespace:
        namespace = self._namespace
        # Pods last: they are no older than what their sets want.
        sets, policies = await both(
            lister.list_all(STATEFULSETS, namespace, decode_statefulset),
            self._list_policies(lister, remarks),
        )
        pods, budgets = await both(
            lister.list_all(PODS, namespace, decode_pod), self._list_budgets(lister)
        )
        now = self._client.server_time() or self._clock.now()
        seen = ObservedNamespace(self._client, namespace, self._clock, self._metrics, now)
        seen.sets.replace_all(sets)
        seen.pods.replace_all(pods)
        seen.policies.replace_all(policies)
        if any(isinstance(sts, StatefulSet) and sts.annotations.get(HEALTH_CHECK) for sts in sets):
            seen.find_gates = await self._read_gates(lister)
        if isinstance(budgets, str):
            seen.unread_budgets = budgets
            remarks.append(budgets)
            return seen
        for budget in budgets:
            seen.take_budget(budget)
        return seen

    async def _plan(self, seen: ObservedNamespace, group: Group) -> Plan:
        scales = await self._scales.read(list_references(zone.sts for zone in group.zones))
        return await seen.plan(group, plan_scaling(ScalingSnapshot(group=group, scales=scales)))

    async def _list_budgets(self, lister: Lister) -> Sequence[AnyBudget] | str:
        """Return the budgets, or why they could not be read."""
        try:
            return await lister.list_all(ZONE_BUDGETS, self._namespace, decode_budget)
        except NotFound:
            return ()  # the kind is not installed: then there is none
        except ApiError as error:
            return f"budgets are left out: {error}"

    async def _read_gates(self, lister: Lister) -> Callable[[Group], Mapping[Uid, HealthGate]]:
        """Return what judges a group by the health checks of the namespace."""
        from rollout_operator.gates.model import read_watched, watch_health_check
        from rollout_operator.gates.plan import NO_KIND, judge_group, judge_unread

        kind = ROLLOUT_HEALTH_CHECKS
        try:
            found = await lister.list_all(kind, self._namespace, watch_health_check)
        except NotFound:
            return lambda group: judge_group(group, lambda name: None, NO_KIND)
        except ApiError as error:
            why = f"{error}"
            return lambda group: judge_unread(group, why)
        checks = {each.name: read_watched(each) for each in found}
        return lambda group: judge_group(group, checks.get)

    async def _list_policies(
        self, lister: Lister, remarks: list[str]
    ) -> Sequence[WatchedPolicy | Unreadable]:
        try:
            return await lister.list_all(MULTI_AZ_ROLLOUTS, self._namespace, decode_watched_policy)
        except (NotFound, Denied):
            return ()
        except ApiError as error:
            remarks.append(f"MultiAZRollouts are left out: {error}")
            return ()

    async def _fetch_own(self, remarks: list[str]) -> Description | None:
        if not self._services:
            return None
        whys: list[str] = []
        is_absent = False
        for service in self._services:
            try:
                return await self._fetch_from(service)
            except NotFound as error:
                is_absent = True
                whys.append(f"{error}")
            except OperatorError as error:
                is_default = service == _DEFAULT_SERVICE or service in f"{error}"
                whys.append(f"{error}" if is_default else f"{service}: {error}")
        if is_absent and self._is_searched and await self._search():
            return await self._fetch_own(remarks)
        whys += [self._advice] if is_absent and self._advice else []
        remarks.append(f"operator not reached: {'; '.join(dict.fromkeys(whys))}")
        remarks.extend(await self._fetch_holder())
        return None

    async def _fetch_from(self, service: str) -> Description:
        """Return the description of this namespace by the operator behind a Service.

        Raises NotFound where there is none, another OperatorError where the answer is of no use.
        """
        try:
            async with asyncio.timeout(_OWN_LIMIT.total_seconds()):
                body = await self._client.fetch(SERVICES, self._home, service, "proxy/status.json")
            own = select_namespace(_read_description(body), self._namespace)
        except TimeoutError:
            raise Unreachable(f"no answer within {_OWN_LIMIT.total_seconds():g} s") from None
        except Denied as error:
            raise Denied(f"it takes the right to get services/proxy of {service}") from error
        except NotFound as error:
            text = f"there is no Service {service}, or no status.json behind it"
            raise NotFound(text) from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"{error}") from error
        if own is None:
            raise NotFound(f"it does not look after namespace {self._namespace}")
        return own

    async def _search(self) -> bool:
        """Search once for Services of operators; return whether new ones were found."""
        self._is_searched = False
        self._advice = "-service=[NAMESPACE/]NAME:PORT names one of another name or namespace"
        try:
            services = await Lister(self._client, "0").list_all(
                SERVICES, self._namespace, decode_service
            )
        except ApiError:
            return False
        found = [
            f"{service.name}:{service.status_port}"
            for service in sorted(services, key=lambda service: service.name)
            if isinstance(service, CallableService) and service.status_port
        ]
        others = [service for service in found if service not in self._services]
        self._services = others[:_MOST_SERVICES] or self._services
        return bool(others)

    async def _fetch_holder(self) -> Sequence[str]:
        try:
            lease = decode_lease(await self._client.fetch(LEASES, self._home, self._lease))
        except (ApiError, DecodeError):
            return ()  # there need not be a Lease, nor a right to read it
        if not lease.holder:
            return (f"no process holds the Lease {self._lease}",)
        held = f"the Lease {self._lease} is held by {lease.holder}"
        age = _compute_age(lease, self._client.server_time() or self._clock.now())
        if age > _STOPPED_AFTER * max(lease.lasts, LEASE_DURATION):
            held += f" and was renewed last at {lease.renewed}: no operator seems to act"
        return (held,)


def _hold_plans(
    plans: Mapping[GroupName, Plan], own: Description
) -> Iterator[tuple[GroupName, Plan]]:
    """Yield the plans of groups held by zones that are gone, which only the operator knows of.

    A replica that does not act knows of them as well.
    """
    for group in own.groups:
        left = _list_left(group.waits)
        name = GroupName(group.name)
        if left and name in plans:
            plan = plans[name]
            yield name, dataclasses.replace(plan, actions=(), waits=(*left, *plan.waits))


def _hold_driven(driven: Iterable[DrivenSets], own: Description) -> Iterator[DrivenSets]:
    """Yield what policies drive, held by zones that are gone as groups are."""
    policies = () if own.policies is UNSET else own.policies
    held = {policy.title: _list_left(policy.waits) for policy in policies}
    for driving in driven:
        left = held.get(driving.key, ())
        plan = replace(driving.plan, action=None, waits=left) if left else driving.plan
        yield replace(driving, plan=plan)


def _list_left(waits: Iterable[Waiting]) -> tuple[Reason, ...]:
    """Return the reasons that name zones that are gone."""
    return tuple(
        Reason(wait.code, wait.text, wait.severity, wait.zone)
        for wait in waits
        if wait.code is Code.ZONE_LEFT_SHORT
    )


def _hold_budgets(
    budgets: Iterable[BudgetDescription], own: Description
) -> Iterator[BudgetDescription]:
    """Yield budgets, those that are held by zones that are gone as the operator describes them."""
    held = {
        budget.name: budget
        for budget in own.budgets
        if any(wait.code is Code.ZONE_LEFT_SHORT for wait in budget.waits)
    }
    for budget in budgets:
        yield held.get(budget.name, budget)


def _compute_age(lease: Lease, now: datetime) -> timedelta:
    """Return the time since a Lease was renewed, by two clocks; zero where it is unknown."""
    try:
        return now - parse_rfc3339(lease.renewed)
    except InvalidInput:
        return timedelta(0)


def _read_description(body: bytes) -> Description:
    """Decode the operator's answer.

    Raises MsgspecError, UnicodeDecodeError, RecursionError, InvalidInput.
    """
    own = _DESCRIPTION.decode(body)
    if own.schema_version != SCHEMA_VERSION:
        version = f"{own.schema_version} of its description, this command reads {SCHEMA_VERSION}"
        raise InvalidInput(f"it writes version {version}")
    return own


async def check_namespace(client: Reader, namespace: str) -> None:
    """Raise NotFound where there is no such namespace: the API server lists nothing in it.

    Where it may not be read, nobody can tell.
    """
    try:
        await client.fetch(NAMESPACES, "", namespace)
    except NotFound:
        raise NotFound(f"namespace {namespace} does not exist") from None
    except ApiError:
        pass


async def list_namespaces(client: ApiClient, *, is_fresh: bool = True) -> Sequence[str]:
    """Return the namespaces with rollout groups, policies or releases.

    Policies and releases count where they may be listed. Raises ApiError.
    """
    lister = Lister(client, None if is_fresh else "0")
    names: set[str] = set()
    for label in (GROUP_LABEL, GROUP_LABEL_LONG):
        sets = await lister.list_all(_ALL_SETS, "", decode_statefulset, label)
        names.update(sts.namespace for sts in sets)
    with suppress(NotFound, Denied):
        policies = await lister.list_all(_ALL_POLICIES, "", decode_watched_policy)
        names.update(policy.namespace for policy in policies)
    with suppress(NotFound, Denied):
        rollouts = await lister.list_all(ALL_ROLLOUTS, "", DECODERS[ALL_ROLLOUTS.kind])
        names.update(rollout.namespace for rollout in rollouts)
    return sorted(names)
