"""Evaluate HealthChecks by live reads of their objects, and keep the status of each.

A check that a Rollout selects starts anew with each of its deployments, whatever its class. A check
of a class of this operator is then evaluated again and again. Each pass writes at most one status,
and only news: others may write the status of checks that are not ours. Objects of any kind are read
within the rights of the operator, and not kept; `planning.health_checks` decides what they mean,
also those that cannot be read.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.tasks import gather_all
from rollout_operator.controllers.worker import RECHECK
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import Reader, Resource, list_items
from rollout_operator.kube.kinds import WatchedKind
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.decode.wire import decode_shallow
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    ApiError,
    DecodeError,
    Denied,
    InvalidInput,
    NotElected,
    NotFound,
    Throttled,
    TooManyRequests,
)
from rollout_operator.model.objects import AnyWatched, WatchedObject
from rollout_operator.model.policy import Policy
from rollout_operator.model.units import quote
from rollout_operator.releases.controller import NO_OTHERS
from rollout_operator.releases.model.plan import (
    CheckClass,
    CheckFinding,
    FluxReference,
    HealthCheck,
    HealthCheckStatus,
    HealthStatus,
    ObjectStatus,
    StatusVerdict,
)
from rollout_operator.releases.model.releases import OURS, ReleaseCompat, ReleaseRollout
from rollout_operator.releases.planning import health_checks as planning
from rollout_operator.releases.planning.bake import Labels, list_checks, selects_namespaces
from rollout_operator.releases.planning.flux import ApiObject
from rollout_operator.releases.planning.health_checks import (
    FluxFailure,
    InventoryFinding,
    InventoryObject,
)
from rollout_operator.releases.schedules import ScheduleKinds
from rollout_operator.releases.sources import ObjectController, WideChecks
from rollout_operator.telemetry.logs import log

_Tree = Mapping[str, object]
_FindStall = Callable[[FluxReference], CheckFinding | None]

# Objects of all inventories that are read at a time: lists wait for the same requests.
_AT_A_TIME: Final = 8
_TREE: Final = msgspec.json.Decoder(Mapping[str, object])
_NO_ANSWER: Final = (Throttled, TooManyRequests, NotElected)
_CURRENT: Final = StatusVerdict(ObjectStatus.CURRENT)


class _Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    finding: CheckFinding
    has_unread: bool = False
    """Whether an object could not be read, and may be readable the next time."""
    again: timedelta | None = None
    """When time alone may change it."""
    failures: Mapping[str, FluxFailure] = {}
    """By object, for the next evaluation."""


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    check: HealthCheck
    place: FluxReference
    now: datetime
    unread: int = 0
    """How many evaluations in a row could not read an object."""
    failures: Mapping[str, FluxFailure] = {}
    """Failures of Flux, by object, of the evaluation before."""
    hold: CheckFinding | None = None
    """What a Kustomization has yet to do for a release, unless it fails."""


class CheckReader:
    def __init__(
        self,
        reader: Reader,
        catalog: KindCatalog,
        find_stall: _FindStall = lambda place: None,
        compat: ReleaseCompat = OURS,
    ) -> None:
        """`find_stall` returns why a rollout group needs a person to go on."""
        self._reader, self._catalog = reader, catalog
        self._find_stall, self._compat = find_stall, compat
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def evaluate(self, own: CheckClass, request: CheckRequest) -> _Evaluation:
        """Return the finding of now.

        Raises Throttled, TooManyRequests and NotElected, which do not concern the objects.
        """
        try:
            match own:
                case CheckClass.KUSTOMIZATION:
                    return await self._evaluate_kustomization(request)
                case CheckClass.ROLLOUT_GROUP:
                    return _Evaluation(finding=await self._evaluate_group(request))
                case CheckClass.MULTI_AZ_ROLLOUT:
                    return _Evaluation(finding=await self._evaluate_policy(request))
        except _NO_ANSWER:
            raise
        except Denied as error:
            unknown = CheckFinding(status=HealthStatus.PENDING, text=f"unknown: {error}")
            return _Evaluation(finding=request.hold or unknown, failures=request.failures)
        except (ApiError, DecodeError) as error:
            finding = request.hold or planning.assess_unread(str(error), request.unread + 1)
            return _Evaluation(finding=finding, has_unread=True, failures=request.failures)

    async def _evaluate_kustomization(self, request: CheckRequest) -> _Evaluation:
        place, failures = request.place, dict[str, FluxFailure]()
        (resource,) = kinds.KUSTOMIZATIONS
        tree = await self._fetch(resource, place.namespace, place.name)
        own = self._assess(f"{place.kind} {place.name}", tree, request, failures)
        has_unread = False
        if request.hold is not None:
            finding = planning.assess_held(request.hold, own)
        else:
            findings = await self._read_inventory(tree, request, failures)
            has_unread = any(inventory.problem and inventory.may_pass for inventory in findings)
            finding = planning.assess_kustomization(
                own, findings, request.unread + 1 if has_unread else 0
            )
        again = planning.next_read(failures.values(), request.now, request.check.failure_grace)
        return _Evaluation(finding=finding, has_unread=has_unread, again=again, failures=failures)

    async def _read_inventory(
        self, tree: _Tree, request: CheckRequest, failures: dict[str, FluxFailure]
    ) -> Sequence[InventoryFinding]:
        # An entry that is no object, or no list at all, is a problem: it may hide a failure.
        found = ApiObject(tree).get("status", "inventory", "entries")
        entries = found if isinstance(found, list) else [] if found is None else [found]

        async def read(text: str) -> InventoryFinding:
            async with self._turns:
                return await self._read_entry(text, request, failures)

        ids = [
            ApiObject(entry).get_text("id") if isinstance(entry, dict) else "" for entry in entries
        ]
        return await gather_all(map(read, ids))

    async def _read_entry(
        self, text: str, request: CheckRequest, failures: dict[str, FluxFailure]
    ) -> InventoryFinding:
        """Return the finding on the object of an entry; no verdict if it is gone (REL-109)."""
        try:
            inventory_id = planning.parse_inventory_id(text)
        except InvalidInput as error:
            return InventoryFinding(name="inventory", problem=str(error))
        if not planning.needs_read(inventory_id):
            return InventoryFinding(name=inventory_id.key, verdict=_CURRENT)
        try:
            tree = await self._find(inventory_id)
        except _NO_ANSWER:
            raise
        except Denied as error:
            return planning.assess_forbidden(inventory_id, str(error))
        except (ApiError, DecodeError, InvalidInput) as error:
            return InventoryFinding(name=inventory_id.key, problem=str(error), may_pass=True)
        if tree is None:
            return InventoryFinding(name=inventory_id.key)
        return self._assess(inventory_id.key, tree, request, failures)

    def _assess(
        self,
        name: str,
        tree: _Tree,
        request: CheckRequest,
        failures: dict[str, FluxFailure],
    ) -> InventoryFinding:
        failure = None
        if self._compat.fails_with_flux:
            failure = planning.track_failure(tree, request.failures.get(name), request.now)
        if failure is not None:
            failures[name] = failure
        counts = planning.has_lasted(failure, request.now, request.check.failure_grace)
        return planning.assess_object(name, tree, request.now, failure if counts else None)

    async def _find(self, entry: InventoryObject) -> _Tree | None:
        """Return an object, None where there is none. Raises InvalidInput for an unknown kind."""
        served = await self._catalog.find(entry.group, entry.kind)
        if served is None:
            raise InvalidInput(f"the cluster has no kind {entry.kind} of {quote(entry.group)}")
        try:
            return await self._fetch(served.resource, entry.namespace, entry.name)
        except NotFound:
            self._catalog.doubt(entry.group)
            return None

    async def _evaluate_group(self, request: CheckRequest) -> CheckFinding:
        place = request.place
        sets: dict[str, _Tree] = {}
        for label in (GROUP_LABEL, GROUP_LABEL_LONG):
            for sts in await self._list_sets(place.namespace, f"{label}={place.name}"):
                sets[ApiObject(sts).get_text("metadata", "name")] = sts
        return planning.assess_group(
            [sets[name] for name in sorted(sets)], request.now, self._find_stall(place)
        )

    async def _evaluate_policy(self, request: CheckRequest) -> CheckFinding:
        place = request.place
        body = await self._reader.fetch(kinds.MULTI_AZ_ROLLOUTS, place.namespace, place.name)
        policy = decode_watched_policy(body).policy
        selector = policy.selector.render() if isinstance(policy, Policy) else None
        sets = [] if selector is None else await self._list_sets(place.namespace, selector)
        return planning.assess_policy(decode_shallow(_TREE, body), sets, request.now)

    async def _list_sets(self, namespace: str, selector: str) -> Sequence[_Tree]:
        """Return StatefulSets with their kind, which lists leave out."""
        kind = {"apiVersion": "apps/v1", "kind": kinds.STATEFULSETS.kind}
        items = await list_items(self._reader, kinds.STATEFULSETS, namespace, selector=selector)
        return [{**_decode(kinds.STATEFULSETS.kind, raw), **kind} for raw in items]

    async def _fetch(self, resource: Resource, namespace: str, name: str) -> _Tree:
        namespace = namespace if resource.is_namespaced else ""
        return _decode(resource.kind, await self._reader.fetch(resource, namespace, name))


def _decode(kind: str, raw: bytes | msgspec.Raw) -> _Tree:
    try:
        return decode_shallow(_TREE, raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{kind}: {error}") from error


# A held check is reconciled again when Flux proceeds, and this often in any case.
_HELD: Final = timedelta(seconds=30)
# Evaluations within this time that cannot read an object count as a single failure.
_RECOUNT: Final = timedelta(seconds=4)


class CheckSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The Rollouts that a check may belong to."""

    now: datetime
    rollouts: tuple[ReleaseRollout, ...]
    namespaces: Mapping[str, Labels]
    waits: Mapping[str, str]
    """By namespace and name of a Rollout, what Flux has yet to do for it."""


@dataclass(slots=True, kw_only=True)
class CheckController(ObjectController):
    title = "HealthCheck"
    resync = None

    reader: CheckReader
    observe: Callable[[HealthCheck], CheckSnapshot]
    is_elsewhere: bool = False
    """Whether this process does not look after the namespace of the checks: only those that a
    Rollout selects are touched, and another operator may evaluate them as well."""
    keeps_to_namespace: bool = False
    """Whether the objects have to be in the namespace of the check."""
    _unread: dict[str, tuple[int, datetime]] = field(default_factory=dict, init=False)
    """How many evaluations in a row could not read an object, and when the last one was."""
    _failures: dict[str, Mapping[str, FluxFailure]] = field(default_factory=dict, init=False)
    """By check, the failures of Flux that last; a new process begins anew."""
    _written: dict[str, HealthCheckStatus] = field(default_factory=dict, init=False)
    """By check, the status that this process wrote last, or tried to."""
    held: set[str] = field(default_factory=set, init=False)

    def has_written(self, watched: AnyWatched) -> bool:
        """Return whether the status of a check is the one that this process wrote."""
        written = self._written.get(watched.name)
        check = watched.decoded if isinstance(watched, WatchedObject) else None
        if written is None or not isinstance(check, HealthCheck):
            return False
        return msgspec.structs.replace(check.status, message=written.message) == written

    async def _decide(self, watched: WatchedObject) -> timedelta | None:
        check = watched.decoded
        if not isinstance(check, HealthCheck):
            return None
        # Rollouts are observed first, so that no read is older than they are.
        snapshot = self.observe(check)
        own = planning.find_class(check)
        if self.is_elsewhere and not any(
            list_checks(rollout.head, rollout.spec.checks, (check,), snapshot.namespaces)
            for rollout in snapshot.rollouts
        ):
            return None
        reset = planning.find_reset(check, snapshot.rollouts, snapshot.namespaces, snapshot.now)
        if reset is not None:
            log.info("Resetting HealthCheck", check=check.head.key, why=reset.message)
            self._failures.pop(watched.name, None)
            await self._write(watched, check, reset)
            return None if own is None else RECHECK
        if own is None:
            return None
        hold = planning.find_flux_blocker(
            check, snapshot.rollouts, snapshot.namespaces, snapshot.waits
        )
        if hold is None:
            self.held.discard(watched.name)
        else:
            self.held.add(watched.name)
        if hold is not None and own is not CheckClass.KUSTOMIZATION:
            finding, again = hold, _HELD
        else:  # a failure of Flux is reported while it is waited for, too
            finding, again = await self._evaluate(check, own, snapshot.now, hold)
        if finding is not hold or not self.is_elsewhere:
            # The operator of its namespace does not know the hold: the two would undo each other.
            await self._write(
                watched, check, planning.record_finding(check.status, finding, snapshot.now)
            )
        return again if hold is None else min(again, _HELD)

    async def _evaluate(
        self, check: HealthCheck, own: CheckClass, now: datetime, hold: CheckFinding | None
    ) -> tuple[CheckFinding, timedelta]:
        """Return the finding, and when to reconcile again."""
        name = check.head.name
        try:
            place = planning.parse_check_reference(check, own)
            if self.keeps_to_namespace and place.namespace != check.head.namespace:
                raise InvalidInput(f"{place.kind} {place.namespace}/{place.name}: {NO_OTHERS}")
        except InvalidInput as error:
            return CheckFinding(status=HealthStatus.UNHEALTHY, text=str(error)), check.interval
        unread, moment = self._unread.get(name, (0, None))
        if moment is None or now - moment >= _RECOUNT:
            moment = now
        else:  # a check that is woken again and again counts once a moment
            unread -= 1
        failures = self._failures.get(name, {})
        request = CheckRequest(
            check=check, place=place, now=now, unread=unread, failures=failures, hold=hold
        )
        evaluation = await self.reader.evaluate(own, request)
        self._failures[name] = evaluation.failures
        if evaluation.has_unread:
            self._unread[name] = (unread + 1, moment)
        else:
            self._unread.pop(name, None)
        again = check.interval if evaluation.again is None else evaluation.again
        return evaluation.finding, min(again, check.interval)

    async def _write(
        self, watched: WatchedObject, check: HealthCheck, status: HealthCheckStatus
    ) -> None:
        if status != check.status:
            self._written[watched.name] = status
            await self.statuses.write(watched, status)

    def _forget(self, name: str) -> None:
        self._unread.pop(name, None)
        self._failures.pop(name, None)
        self._written.pop(name, None)
        self.held.discard(name)


class NamespaceChecks(Protocol):
    """The HealthChecks of one namespace, which Rollouts of other namespaces may select."""

    def find_stall(self, group: str) -> CheckFinding | None:
        """Return why a rollout group of this namespace needs a person."""

    def list_selecting(self, check: HealthCheck) -> list[ReleaseRollout]:
        """Return the Rollouts of this namespace that may select a check of another."""

    def describe_wait(self, rollout: ReleaseRollout) -> str:
        """Return what Flux has yet to do for a Rollout of this namespace."""

    def wake(self, rollouts: Sequence[ReleaseRollout]) -> None:
        """Reconcile the checks that these Rollouts, of any namespace, may select."""


class SharedReleases(msgspec.Struct):
    """What all namespaces of a process share."""

    checks: WideChecks
    """HealthChecks of the cluster, and labels of namespaces."""
    namespaces: dict[str, NamespaceChecks] = {}
    wake_others: Callable[[Sequence[ReleaseRollout]], None] = lambda rollouts: None
    """Wakes the HealthChecks of namespaces that this process does not look after."""
    schedules: list[WatchedKind] = []
    cluster_schedules: ScheduleKinds | None = None
    """None if they are ignored."""

    def list_selecting(
        self, check: HealthCheck
    ) -> Iterator[tuple[NamespaceChecks, ReleaseRollout]]:
        """Yield the Rollouts of all namespaces that may select a check of another one."""
        for checks in self.namespaces.values():
            yield from ((checks, rollout) for rollout in checks.list_selecting(check))

    def wake(self, rollouts: Sequence[ReleaseRollout]) -> None:
        for checks in self.namespaces.values():
            checks.wake(rollouts)
        self.wake_others(rollouts)

    def find_stall(self, place: FluxReference) -> CheckFinding | None:
        checks = self.namespaces.get(place.namespace)
        return None if checks is None else checks.find_stall(place.name)

    def observe(
        self, now: datetime, selected: Sequence[tuple[NamespaceChecks, ReleaseRollout]]
    ) -> CheckSnapshot:
        """Return the Rollouts that may select a check.

        Namespace labels are empty where they may not be read. Raises Unreachable.
        """
        is_wide = any(selects_namespaces(rollout) for _, rollout in selected)
        has_labels = is_wide and not self.checks.find_problem()
        return CheckSnapshot(
            now=now,
            rollouts=tuple(rollout for _, rollout in selected),
            namespaces=self.checks.map_labels() if has_labels else {},
            waits={rollout.head.key: checks.describe_wait(rollout) for checks, rollout in selected},
        )
