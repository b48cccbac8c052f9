"""Observe a namespace from outside, with rights to read: for commands that people type.

The objects are listed and the operator's own core decides on them, so that it works where the
operator is down. What the operator knows beyond the objects is read from itself, through the API
server's proxy, where that is allowed. Nothing is ever written.

List all objects of a kind once, for commands that people type.

`doctor` reads most kinds of a namespace: there a part that may not be read is recorded, and is no
failure.

Decisions on objects that were listed once: the operator's own code, without caches.

Nothing is written: the arbiter says what it would grant, and no pod is called.

The releases of a namespace from one list: described as the operator describes them.

Statuses say what was decided, so that nothing is decided anew. An object that may not be read is
left out, with a remark where a Rollout rests on it: most people need no right to any of these
kinds.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import both, gather_all
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.policy_zones import Owners
from rollout_operator.controllers.releases import ListFlux, gather_flux, index_flux
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
    SERVICES,
    STATEFULSETS,
    ZONE_BUDGETS,
    ApiClient,
    DryRunner,
    PodProxy,
    Reader,
    Resource,
    Writer,
)
from rollout_operator.kube.election import decode_lease
from rollout_operator.kube.scales import ScaleReader
from rollout_operator.kube.store import AnyBudget, PodStore, PolicyStore, StatefulSetStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.decode.custom import decode_budget, decode_watched_policy
from rollout_operator.model.decode.flux import DECODERS
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
from rollout_operator.model.diagnosis import OPERATOR, STATUS_PORT, CallableService, Source
from rollout_operator.model.lease import LEASE_DURATION, Lease
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    ApiError,
    DecodeError,
    Denied,
    GroupName,
    InvalidInput,
    NotFound,
    OperatorError,
    Unreachable,
)
from rollout_operator.model.objects import AnyWatched, Group, Pod, Unreadable, list_decoded
from rollout_operator.model.outcome import Action, Code, EqualPods, Plan, Reason, ReplacePods
from rollout_operator.model.policy import PolicyPlan, PolicySnapshot, WatchedPolicy
from rollout_operator.model.release_plan import FluxTarget, ReleaseObjects, gather_releases
from rollout_operator.model.releases import RefusedRelease, ReleaseRollout
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.bake import selects_namespaces
from rollout_operator.planning.describe_groups import describe_group, select_namespace
from rollout_operator.planning.describe_policies import (
    describe_policy,
    describe_unreadable_policy,
    find_disobedience,
)
from rollout_operator.planning.describe_releases import (
    describe_check,
    describe_release,
    describe_schedule,
    describe_unreadable_release,
    order_schedules,
)
from rollout_operator.planning.flux import list_targets
from rollout_operator.planning.policies import plan_policy
from rollout_operator.planning.policy_status import find_batch, find_initial, read_resolution
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.scaling import list_references, plan_scaling
from rollout_operator.telemetry.metrics import Metrics, merge_plans

Decoded = TypeVar("Decoded")
Decoder = Callable[[msgspec.Raw], Decoded]


class Lister(msgspec.Struct, frozen=True):
    """Lists objects by one client."""

    client: Reader
    version: str | None
    """None for what is stored, "0" for what the API server has cached."""

    async def list_all(
        self,
        resource: Resource,
        namespace: str,
        decode: Decoder[Decoded],
        selector: str = "",
    ) -> list[Decoded | Unreadable]:
        """Return all objects, those that cannot be decoded among them. Raises ApiError."""
        objects: list[Decoded | Unreadable] = []
        token = ""
        while True:
            page = await self.client.fetch_page(
                resource,
                namespace,
                selector=selector,
                token=token,
                resource_version=self.version,
            )
            objects.extend(decode_or_salvage(resource.kind, decode, raw) for raw in page.items)
            token = page.next_token
            if not token:
                return objects


class ExaminingClient(Reader, Writer, DryRunner, PodProxy, Protocol):
    """The requests to the API server."""

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows; None before its first answer."""
        ...


@dataclass(slots=True)
class Reading:
    """The reads of one snapshot, and what could not be read."""

    client: ExaminingClient
    namespace: str
    unread: dict[Source, str] = field(default_factory=dict)
    unknown: set[Resource] = field(default_factory=set)
    """Kinds that the API server does not know."""

    @contextmanager
    def recording(self, source: Source) -> Iterator[None]:
        """Record an error inside the block as a part that could not be read."""
        try:
            yield
        except OperatorError as error:
            self.record(source, error)

    def record(self, source: Source, error: OperatorError) -> None:
        """Record why a part could not be read; where it is not allowed, the call says all."""
        denied = isinstance(error, Denied) and error.call
        self.unread[source] = f"may not {denied}" if denied else f"{error}"

    async def list_all(
        self, source: Source, resource: Resource, decode: Decoder[Decoded]
    ) -> tuple[Decoded, ...]:
        """Return all objects of a kind; empty where the cluster does not know the kind."""
        objects: list[Decoded] = []
        namespace = self.namespace if resource.is_namespaced else ""
        with self.recording(source):
            token = ""
            while True:
                try:
                    page = await self.client.fetch_page(resource, namespace, token=token)
                except NotFound:
                    self.unknown.add(resource)
                    break
                objects += [decode(raw) for raw in page.items]
                token = page.next_token
                if not token:
                    break
        return tuple(objects)


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


class ReleaseReader(msgspec.Struct, frozen=True):
    """Lists objects of releases in one namespace. What is absent, or fails, holds no other."""

    lister: Lister
    namespace: str
    absent: list[str] = []
    """Kinds that the API server does not know."""
    failures: list[tuple[Resource, ApiError]] = []

    async def list_all(self, *wanted: Sequence[Resource]) -> list[AnyWatched]:
        """Return the objects of all these kinds, each in the first version that is served."""
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


async def read_shown_releases(
    lister: Lister, namespace: str, remarks: list[str]
) -> "ObservedReleases":
    """Return what is shown; nothing where there is no Rollout, or none may be read.

    `remarks` takes what could not be read.
    """
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
    """Describes the listed objects of one namespace."""

    objects: ReleaseObjects
    namespace: str

    def describe_releases(self) -> tuple[ReleaseDescription, ...] | UnsetType:
        """Return all Rollouts by name; UNSET where there is none."""
        list_flux = index_flux(self.objects.flux)
        broken = self.objects.list_unreadable(kinds.ROLLOUTS.kind)
        described = [
            *(
                describe_release(each, self.objects, _list_targets(each, list_flux))
                for each in self.objects.rollouts
            ),
            *map(describe_unreadable_release, broken),
        ]
        return tuple(sorted(described, key=lambda each: each.name)) or UNSET

    def describe_schedules(self) -> tuple[ScheduleDescription, ...] | UnsetType:
        """Return the schedules of the namespace, and those of the cluster; UNSET for none."""
        return tuple(map(describe_schedule, order_schedules(self.objects.schedules))) or UNSET

    def describe_checks(self) -> tuple[HealthCheckDescription, ...] | UnsetType:
        """Return the HealthChecks of the namespace by name; UNSET where there is none."""
        rollouts, labels = self.objects.list_obeyed(), self.objects.namespaces
        own = (each for each in self.objects.checks if each.head.namespace == self.namespace)
        described = (
            describe_check(each, rollouts, labels)
            for each in sorted(own, key=lambda check: check.head.name)
        )
        return tuple(described) or UNSET


def _list_targets(
    rollout: ReleaseRollout | RefusedRelease, list_flux: ListFlux
) -> tuple[FluxTarget, ...]:
    current, name = rollout.status.current, rollout.head.name
    tag = None if current is None else current.version.tag
    return list_targets(name, tag, gather_flux(name, list_flux))


DEFAULT_SERVICE: Final = f"{OPERATOR}:{STATUS_PORT}"
# Whoever may make Services could make any number of them look like an operator's.
MOST_SERVICES: Final = 3
# The operator's own description is worth less than an answer now.
OWN_LIMIT: Final = timedelta(seconds=3)
# The times of a Lease are of its holder's clock, which may be wrong.
STOPPED_AFTER: Final = 2
# Of all namespaces in one list.
_ALL_SETS: Final = replace(STATEFULSETS, is_namespaced=False)
_ALL_POLICIES: Final = replace(MULTI_AZ_ROLLOUTS, is_namespaced=False)
_DESCRIPTION: Final = msgspec.json.Decoder(Description)


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one inspection of a namespace."""

    description: Description
    """Computed from the objects; `operator` is the operator's own description."""
    own: Description | None
    """The description by the operator that acts; None where it was not reached."""
    groups: Mapping[GroupName, Group]
    """The snapshots behind the description."""
    plans: Mapping[GroupName, Plan]
    """The plans that the operator would make of them now."""
    driven: Sequence[DrivenSets]
    """The sets that policies own, by their names."""
    observed: ObservedNamespace
    """All listed objects."""
    remarks: tuple[str, ...] = ()
    """What could not be read, and why."""

    @property
    def best(self) -> Description:
        """Return the operator's own description, which knows more, or else the computed one."""
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
        """Return why an eviction of a pod would be refused by a budget, None where it would not."""
        names = {state.name for state in self.observed.budgets.list_selecting(pod.labels)}
        budgets = () if self.own is None else self.own.budgets
        # Only the operator knows of zones that are gone.
        left = (
            wait
            for budget in budgets
            for wait in budget.waits
            if budget.name in names and wait.code is Code.ZONE_LEFT_SHORT
        )
        return await self.observed.assess_eviction(pod) or next(left, None)


def is_settled(group: Group) -> bool:
    """Return whether the status of each of its StatefulSets shows the newest spec."""
    return all(zone.sts.observed_generation >= zone.sts.generation for zone in group.zones)


class Inspector:
    """Observes one namespace by one client, again and again."""

    def __init__(
        self, client: ApiClient, namespace: str, clock: Clock, *, service: str | None, lease: str
    ) -> None:
        """`service` is the operator's, as `NAME:PORT`, empty for none; `lease` its Lease.

        Where the operator is in another namespace, the service names it: `NAMESPACE/NAME:PORT`.
        None: it is searched for.
        """
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._is_searched = service is None
        home, _, named = (DEFAULT_SERVICE if service is None else service).rpartition("/")
        self._services: Sequence[str] = [named] if named else []
        """To be tried, in this order."""
        self._advice = ""
        """What helps where none of them is the operator's."""
        self._home = home or namespace
        self._lease = lease
        self._source = ObjectsFrom(client, namespace, clock)
        self._scales = ScaleReader(client, namespace, clock)

    async def inspect(self, *, is_fresh: bool = True) -> Inspection:
        """Return the present state; where not `is_fresh`, as the API server has it cached.

        Raises ApiError where sets or pods cannot be listed.
        """
        remarks: list[str] = []
        lister = Lister(self._client, None if is_fresh else "0")
        reading = both(
            self._read(lister, remarks), read_shown_releases(lister, self._namespace, remarks)
        )
        (seen, releases), own = await both(reading, self._fetch_own(remarks))
        groups, driven = seen.observe(), seen.list_driven()
        planned = await gather_all(self._plan(seen, group) for group in groups.values())
        is_own = own is not None and own.operator is not None and own.operator.is_acting
        plans = dict(zip(groups, planned, strict=True))
        if own is not None and is_own:
            plans.update(_hold_plans(plans, own))
        described = (describe_group(group, plans[name], seen.now) for name, group in groups.items())
        obeys_none = own is not None and is_own and own.policies is UNSET
        return Inspection(
            description=Description(
                namespace=self._namespace,
                now=seen.now,
                operator=None if own is None else own.operator,
                groups=tuple(described),
                budgets=seen.describe_budgets(),
                policies=seen.describe_policies(driven, is_switched_off=obeys_none),
                releases=releases.describe_releases(),
                schedules=releases.describe_schedules(),
                health_checks=releases.describe_checks(),
            ),
            own=own if is_own else None,
            groups=groups,
            plans=plans,
            driven=driven,
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
            lister.list_all(PODS, namespace, decode_pod), self._list_budgets(lister, remarks)
        )
        now = self._client.server_time() or self._clock.now()
        seen = ObservedNamespace(self._source, now)
        seen.sets.replace_all(sets)
        seen.pods.replace_all(pods)
        seen.policies.replace_all(policies)
        for budget in budgets:
            seen.take_budget(budget)
        return seen

    async def _plan(self, seen: ObservedNamespace, group: Group) -> Plan:
        scales = await self._scales.read(list_references(zone.sts for zone in group.zones))
        return await seen.plan(group, plan_scaling(ScalingSnapshot(group=group, scales=scales)))

    async def _list_budgets(self, lister: Lister, remarks: list[str]) -> Sequence[AnyBudget]:
        try:
            return await lister.list_all(ZONE_BUDGETS, self._namespace, decode_budget)
        except NotFound:
            return ()  # the kind is not installed: then there is none
        except ApiError as error:
            remarks.append(f"budgets are left out: {error}")
            return ()

    async def _list_policies(
        self, lister: Lister, remarks: list[str]
    ) -> Sequence[WatchedPolicy | Unreadable]:
        """Return the MultiAZRollouts; most people need no right to list them."""
        try:
            return await lister.list_all(MULTI_AZ_ROLLOUTS, self._namespace, decode_watched_policy)
        except (NotFound, Denied):
            return ()
        except ApiError as error:
            remarks.append(f"MultiAZRollouts are left out: {error}")
            return ()

    async def _fetch_own(self, remarks: list[str]) -> Description | None:
        """Return the operator's own description."""
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
                is_default = service == DEFAULT_SERVICE or service in f"{error}"
                whys.append(f"{error}" if is_default else f"{service}: {error}")
        if is_absent and self._is_searched and await self._search():
            return await self._fetch_own(remarks)
        whys += [self._advice] if is_absent and self._advice else []
        remarks.append(f"operator not reached: {'; '.join(dict.fromkeys(whys))}")
        remarks.extend(await self._fetch_holder())
        return None

    async def _fetch_from(self, service: str) -> Description:
        """Return what the operator behind a Service says of the namespace.

        Raises NotFound where it is none of this namespace, another OperatorError where it does not
        say anything that can be used.
        """
        try:
            async with asyncio.timeout(OWN_LIMIT.total_seconds()):
                body = await self._client.fetch(SERVICES, self._home, service, "proxy/status.json")
            own = select_namespace(_read_description(body), self._namespace)
        except TimeoutError:
            raise Unreachable(f"no answer within {OWN_LIMIT.total_seconds():g} s") from None
        except Denied as error:
            raise Denied(f"it takes the right to get services/proxy of {service}") from error
        except NotFound as error:
            text = f"there is no Service {service}, or no status.json behind it"
            raise NotFound(text) from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(f"{error}") from error
        if own is None:
            raise NotFound(f"it does not look after namespace {self._namespace}")
        return own

    async def _search(self) -> bool:
        """Search once for Services of operators; return whether there are others to try."""
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
        self._services = others[:MOST_SERVICES] or self._services
        return bool(others)

    async def _fetch_holder(self) -> Sequence[str]:
        """Return a remark that names the process that holds the Lease."""
        try:
            lease = decode_lease(await self._client.fetch(LEASES, self._home, self._lease))
        except (ApiError, DecodeError):
            return ()  # there need not be a Lease, nor a right to read it
        if not lease.holder:
            return (f"no process holds the Lease {self._lease}",)
        held = f"the Lease {self._lease} is held by {lease.holder}"
        age = _compute_age(lease, self._client.server_time() or self._clock.now())
        if age > STOPPED_AFTER * max(lease.lasts, LEASE_DURATION):
            held += f" and was renewed last at {lease.renewed}: no operator seems to act"
        return (held,)


def _hold_plans(
    plans: Mapping[GroupName, Plan], own: Description
) -> Iterator[tuple[GroupName, Plan]]:
    """Yield the plans that zones hold which are gone: only the operator knows of them."""
    for group in own.groups:
        left = tuple(
            Reason(wait.code, wait.text, wait.severity, wait.zone)
            for wait in group.waits
            if wait.code is Code.ZONE_LEFT_SHORT
        )
        name = GroupName(group.name)
        if left and name in plans:
            plan = plans[name]
            yield name, dataclasses.replace(plan, actions=(), waits=(*left, *plan.waits))


def _compute_age(lease: Lease, now: datetime) -> timedelta:
    """Return how long ago a Lease was renewed, by two clocks; zero where that is not known."""
    try:
        return now - parse_rfc3339(lease.renewed)
    except InvalidInput:
        return timedelta(0)


def _read_description(body: bytes) -> Description:
    """Decode the operator's answer. Raises MsgspecError, RecursionError, InvalidInput."""
    own = _DESCRIPTION.decode(body)
    if own.schema_version != SCHEMA_VERSION:
        version = f"{own.schema_version} of its description, this command reads {SCHEMA_VERSION}"
        raise InvalidInput(f"it writes version {version}")
    return own


async def list_namespaces(client: ApiClient, *, is_fresh: bool = True) -> Sequence[str]:
    """Return the namespaces with rollout groups, and those with policies or releases.

    The last two only where they may be read. Raises ApiError.
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
