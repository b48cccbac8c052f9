"""Observe a namespace from outside, with rights to read: for commands that people type.

The objects are listed and the operator's own core decides on them, so that it works where the
operator is down. What the operator knows beyond the objects is read from itself, through the API
server's proxy, where that is allowed. Nothing is ever written.
"""

import asyncio
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import both, gather_all
from rollout_operator.kube.api import (
    LEASES,
    MULTI_AZ_ROLLOUTS,
    PODS,
    SERVICES,
    STATEFULSETS,
    ZONE_BUDGETS,
    ApiClient,
)
from rollout_operator.kube.cache.store import AnyBudget
from rollout_operator.kube.scales.references import ScaleReader
from rollout_operator.model.decode.budget import decode_budget
from rollout_operator.model.decode.installation import decode_service
from rollout_operator.model.decode.lease import decode_lease
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.releases.kinds import DECODERS
from rollout_operator.model.decode.status import decode_watched_policy
from rollout_operator.model.description import SCHEMA_VERSION, Description, Waiting
from rollout_operator.model.diagnosis.installation import OPERATOR, STATUS_PORT, CallableService
from rollout_operator.model.errors import (
    ApiError,
    DecodeError,
    Denied,
    InvalidInput,
    NotFound,
    OperatorError,
    Unreachable,
)
from rollout_operator.model.group import Group
from rollout_operator.model.lease import LEASE_DURATION, Lease
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.model.outcome import Code, Plan, Reason
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.operator.diagnosis.listing import Lister
from rollout_operator.operator.diagnosis.observed import DrivenSets, ObjectsFrom, ObservedNamespace
from rollout_operator.operator.diagnosis.releases import ALL_ROLLOUTS, read_shown_releases
from rollout_operator.planning.description.groups import describe_group
from rollout_operator.planning.description.namespaces import select_namespace
from rollout_operator.planning.scaling.plan import list_references, plan_scaling

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
