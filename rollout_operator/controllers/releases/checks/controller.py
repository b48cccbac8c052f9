"""Keep the status of one HealthCheck.

A check that a Rollout selects starts anew with each of its deployments, whatever its class. A check
of a class of this operator is then evaluated, again and again. Each pass has at most one status,
and a pass without news writes nothing: others may write the status of checks that are not ours.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.controllers.releases.checks.reader import CheckReader, CheckRequest
from rollout_operator.controllers.releases.observe import NO_OTHERS
from rollout_operator.controllers.retries import RECHECK, Attempts, Reconciles
from rollout_operator.controllers.worker import Result
from rollout_operator.kube.release_kinds import HEALTH_CHECKS
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.objects import AnyWatched, WatchedObject
from rollout_operator.model.releases.health import (
    CheckClass,
    CheckFinding,
    HealthCheck,
    HealthCheckStatus,
    HealthStatus,
)
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.planning.releases.checks.evaluate import FluxFailure
from rollout_operator.planning.releases.checks.record import (
    find_class,
    find_flux_blocker,
    find_reset,
    parse_check_reference,
    record_finding,
)
from rollout_operator.planning.releases.health import Labels, list_checks
from rollout_operator.telemetry.logs import log

# A check that is held pending is reconciled again when Flux gets on, and this often in any case.
HELD: Final = timedelta(seconds=30)
# Evaluations that fail to read an object count as a single failure within this time.
RECOUNT: Final = timedelta(seconds=4)


class CheckSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The Rollouts to which a check may belong."""

    now: datetime
    rollouts: tuple[ReleaseRollout, ...]
    namespaces: Mapping[str, Labels]
    waits: Mapping[str, str]
    """By namespace and name of a Rollout: the work that Flux has yet to do for it."""


def selects_any(snapshot: CheckSnapshot, check: HealthCheck) -> bool:
    """Return whether a Rollout selects a check."""
    return any(
        list_checks(rollout.head, rollout.spec.checks, (check,), snapshot.namespaces)
        for rollout in snapshot.rollouts
    )


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a CheckController works with."""

    newest: NewestObjects[WatchedObject]
    """HealthChecks, with what this process wrote."""
    statuses: StatusWriter[WatchedObject]
    reader: CheckReader
    observe: Callable[[HealthCheck], CheckSnapshot]
    find_lack: Callable[[], str | None]
    """Says why nothing may be decided yet."""
    attempts: Attempts
    is_elsewhere: bool = False
    """Whether the checks are of a namespace that this process does not look after: only those that
    a Rollout selects are touched, and another operator may evaluate them as well."""
    keeps_to_namespace: bool = False
    """Whether the examined objects have to be in the namespace of the check."""


class CheckController:
    """Reconciles the HealthChecks of one namespace by name."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._reconciles = Reconciles(
            kind="HealthCheck",
            attempts=context.attempts,
            once=self._observe_and_act,
            name_keys=lambda name: {"check": name},
        )
        self._unread: dict[str, tuple[int, datetime]] = {}
        """How many evaluations in a row could not read an object, and when the last of them was."""
        self._failures: dict[str, Mapping[str, FluxFailure]] = {}
        """By check, the failures of Flux that go on. A new process begins anew."""
        self._written: dict[str, HealthCheckStatus] = {}
        """By check, the status that this process wrote last, or tried to."""
        self.held: set[str] = set()
        """The checks that wait for Flux."""

    async def reconcile(self, name: str) -> Result:
        """Reconcile a HealthCheck once, write what is new, and return when to reconcile again."""
        return await self._reconciles.reconcile(name)

    def has_written(self, watched: AnyWatched) -> bool:
        """Return whether the status of a check is what this process wrote, whatever it says."""
        written = self._written.get(watched.name)
        check = watched.decoded if isinstance(watched, WatchedObject) else None
        return (
            written is not None
            and isinstance(check, HealthCheck)
            and msgspec.structs.replace(check.status, message=written.message) == written
        )

    async def _observe_and_act(self, name: str) -> timedelta | None:
        """Return when to reconcile again. Raises ApiError and DecodeError."""
        context = self._context
        watched = await context.newest.settle(HEALTH_CHECKS, name)
        if watched is None:
            self._forget(name)
            return None
        if lack := context.find_lack():
            log.debug("HealthCheck waits", check=name, why=lack)
            return RECHECK
        if not isinstance(watched, WatchedObject) or not isinstance(watched.decoded, HealthCheck):
            return None  # what cannot be read is on record in the log
        return await self._decide(watched, watched.decoded)

    async def _decide(self, watched: WatchedObject, check: HealthCheck) -> timedelta | None:
        # Rollouts are observed before all reads: so no read is older than them.
        snapshot = self._context.observe(check)
        own = find_class(check)
        if self._context.is_elsewhere and not selects_any(snapshot, check):
            return None
        reset = find_reset(check, snapshot.rollouts, snapshot.namespaces, snapshot.now)
        if reset is not None:
            log.info("Resetting HealthCheck", check=check.head.key, why=reset.message)
            self._failures.pop(watched.name, None)
            await self._write(watched, check, reset)
            return None if own is None else RECHECK
        if own is None:
            return None
        hold = find_flux_blocker(check, snapshot.rollouts, snapshot.namespaces, snapshot.waits)
        if hold is None:
            self.held.discard(watched.name)
        else:
            self.held.add(watched.name)
        if hold is not None and own is not CheckClass.KUSTOMIZATION:
            finding, again = hold, HELD
        else:  # whether Flux fails is known while it is waited for, too
            finding, again = await self._evaluate(check, own, snapshot.now, hold)
        if finding is not hold or not self._context.is_elsewhere:
            # The operator of its namespace knows of no hold: the two would undo each other.
            await self._write(watched, check, record_finding(check.status, finding, snapshot.now))
        return again if hold is None else min(again, HELD)

    async def _evaluate(
        self, check: HealthCheck, own: CheckClass, now: datetime, hold: CheckFinding | None
    ) -> tuple[CheckFinding, timedelta]:
        """Return the findings, and when to reconcile again."""
        name = check.head.name
        try:
            place = parse_check_reference(check, own)
            if self._context.keeps_to_namespace and place.namespace != check.head.namespace:
                raise InvalidInput(f"{place.kind} {place.namespace}/{place.name}: {NO_OTHERS}")
        except InvalidInput as error:
            return CheckFinding(status=HealthStatus.UNHEALTHY, text=str(error)), check.interval
        unread, moment = self._unread.get(name, (0, None))
        if moment is None or now - moment >= RECOUNT:
            moment = now
        else:  # a check that is woken again and again makes no failure of one moment
            unread -= 1
        failures = self._failures.get(name, {})
        request = CheckRequest(
            check=check, place=place, now=now, unread=unread, failures=failures, hold=hold
        )
        evaluation = await self._context.reader.evaluate(own, request)
        self._failures[name] = evaluation.failures
        if evaluation.has_unread:
            self._unread[name] = (unread + 1, moment)
        else:
            self._unread.pop(name, None)
        again = (
            check.interval if evaluation.again is None else min(evaluation.again, check.interval)
        )
        return evaluation.finding, again

    async def _write(
        self, watched: WatchedObject, check: HealthCheck, status: HealthCheckStatus
    ) -> None:
        if status != check.status:
            self._written[watched.name] = status
            await self._context.statuses.write(watched, status)

    def _forget(self, name: str) -> None:
        self._unread.pop(name, None)
        self._failures.pop(name, None)
        self._written.pop(name, None)
        self.held.discard(name)
        self._context.newest.forget(name)
