"""Write the status of each disruption budget, for `kubectl get` and `kubectl describe`.

What it says is decided in `planning.description`. No decision reads it and nothing waits for it, so
it is the last of all that this process sends: after a while in which changes come together, a few a
second at most, and not at all where the role forbids it or the kind as installed drops it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.backoff import BUDGET_STATUSES
from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.worker import Result
from rollout_operator.guards.budgets.accounts import BudgetAccount
from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject, Patcher, Reader
from rollout_operator.model.budget import BudgetStatus, ShownStatus
from rollout_operator.model.decode.status import decode_budget_status
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    DecodeError,
    Denied,
    NotElected,
    NotFound,
)
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code
from rollout_operator.planning.description.budget_status import render_budget_status
from rollout_operator.telemetry.logs import log

# Changes of a budget within this time are one write.
SETTLE: Final = timedelta(seconds=2)
# Between two writes, of whatever budgets.
WRITE_PAUSE: Final = timedelta(milliseconds=300)
# Between two reconciles, which may take some milliseconds each.
RECONCILE_PAUSE: Final = timedelta(milliseconds=20)
# Time alone brings a pod up that has to be ready for a while.
REQUEUE_AFTER: Final = timedelta(seconds=30)
# All budgets are read this often: a status written by hand lasts no longer.
READ_AGAIN: Final = timedelta(minutes=5)
# A role, or a definition, is changed by a person.
TRY_AGAIN: Final = timedelta(minutes=10)


class StatusClient(Reader, Patcher, Protocol):
    """What a BudgetStatuses calls."""


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a budget as the API server shows it."""

    uid: Uid
    status: BudgetStatus
    requested: BudgetStatus | None = None
    """The status that this process wrote, where another came of it: a kind that lacks a field drops
    it, and to write it again changes nothing."""

    @property
    def newest(self) -> BudgetStatus:
        return self.requested or self.status


@dataclass(slots=True, kw_only=True)
class BudgetStatuses:
    """Reconciles the status of budgets, by their names; one at a time."""

    client: StatusClient
    namespace: str
    find_account: Callable[[str], BudgetAccount | None]
    now: Callable[[], datetime]
    """The API server's time."""
    clock: Clock
    _shown: dict[str, _Shown] = field(default_factory=dict, init=False)
    _failures: dict[str, int] = field(default_factory=dict, init=False)
    _read_at: timedelta | None = field(default=None, init=False)
    """On the clock's `elapsed`, as `_not_before`."""
    _not_before: timedelta = field(default=timedelta(0), init=False)
    _is_reported: bool = field(default=False, init=False)

    async def reconcile(self, name: str) -> Result:
        """Write the status of a budget where it has anything new."""
        left = self._not_before - self.clock.elapsed()
        if left > timedelta(0):
            return Result(again=left)
        try:
            again = await self._write(name)
        except NotElected:
            return Result()
        except NotFound as error:
            again = await self._find_missing(name, error)
        except ApiError as error:
            again = self._record_failure(name, error)
        await self.clock.sleep(RECONCILE_PAUSE)
        return Result(again=again)

    async def _write(self, name: str) -> timedelta | None:
        """Return when to reconcile again at the latest, None where there is no budget."""
        if self._read_at is None or self.clock.elapsed() - self._read_at >= READ_AGAIN:
            await self._read()
        account = self.find_account(name)
        if account is None:
            self._shown.pop(name, None)
            self._failures.pop(name, None)
            return None
        described = account.described
        if any(wait.code is Code.SNAPSHOT_STALE for wait in described.waits):
            return REQUEUE_AFTER  # what is not known is not written
        uid, generation = account.known.uid, account.known.generation
        shown = self._shown.get(name)
        if shown is None or shown.uid != uid:
            shown = _Shown(uid=uid, status=BudgetStatus())
        before = shown.newest
        status = render_budget_status(described, generation, before=before, now=self.now())
        if status != before:
            await self._patch(name, uid, status)
        self._failures.pop(name, None)
        return REQUEUE_AFTER if described.unavailable or described.waits else READ_AGAIN

    async def _patch(self, name: str, uid: Uid, status: BudgetStatus) -> None:
        fields: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
        patch: JsonObject = {"metadata": {"uid": uid}, "status": fields}
        body = await self.client.patch(
            ZONE_BUDGETS, self.namespace, name, patch, subresource="status"
        )
        await self.clock.sleep(WRITE_PAUSE)
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
        token = ""
        shown: dict[str, ShownStatus] = {}
        while True:
            page = await self.client.fetch_page(ZONE_BUDGETS, self.namespace, token=token)
            for item in page.items:
                try:
                    status = decode_budget_status(item)
                except DecodeError as error:
                    log.debug("Status of a budget cannot be read", err=error)
                    continue
                shown[status.name] = status
            token = page.next_token
            if not token:
                break
        self._shown = {name: self._compare(each) for name, each in shown.items()}
        self._read_at = self.clock.elapsed()

    def _compare(self, shown: ShownStatus) -> _Shown:
        written = self._shown.get(shown.name)
        if written is not None and (written.uid, written.status) == (shown.uid, shown.status):
            return written
        return _Shown(uid=shown.uid, status=shown.status)

    async def _find_missing(self, name: str, error: NotFound) -> timedelta | None:
        """Find out whether the budget is gone, or the kind has no status to write."""
        try:
            await self._read()
        except ApiError as other:
            return self._record_failure(name, other)
        account, shown = self.find_account(name), self._shown.get(name)
        if account is None or shown is None or shown.uid != account.known.uid:
            return SETTLE  # or will be: the cache has yet to show it
        self._give_up(error)
        return TRY_AGAIN

    def _record_failure(self, name: str, error: ApiError) -> timedelta:
        self._read_at = None  # it may have been written, by this process or by another
        if isinstance(error, Denied):
            self._give_up(error)
            return TRY_AGAIN
        log.debug("Status of a budget not written", zpdb=name, err=error)
        if isinstance(error, Conflict):
            return SETTLE
        self._failures[name] = self._failures.get(name, 0) + 1
        return BUDGET_STATUSES.bound(self._failures[name])

    def _give_up(self, why: ApiError | str) -> None:
        """Write nothing for a while; that is logged once."""
        self._not_before = self.clock.elapsed() + TRY_AGAIN
        if not self._is_reported:
            log.info("Status of budgets is not written: nothing else depends on it", err=why)
        self._is_reported = True
