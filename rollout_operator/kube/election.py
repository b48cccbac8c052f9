"""Leader election by a Lease: which of several replicas acts, provably.

Decides when this process reads, takes, renews and releases the Lease; when a Lease may be taken is
decided in `model.lease`. Clients call `check` right before they send a write. It judges by the
clock alone, so that a process that was frozen or cut off writes nothing.

A holder that could not renew in time keeps trying. If the Lease is still its own, no other process
has acted and its memory is right; if another process took it, this process ends and starts afresh.
Without the right to Leases there is no election, and one process works alone. It tries again ever
more rarely: an API server that has just started forbids everything for a moment.
"""

import asyncio
import math
from datetime import timedelta
from enum import Enum, auto
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import ELECTIONS
from rollout_operator.kube.api import LEASES, JsonObject, Patcher, Resource
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import JsonBytes, Required, Strings, Wire, clip
from rollout_operator.model.lease import LONGEST_LEASE, Identity, Lease, Times, read_address
from rollout_operator.model.names import (
    ADDRESS,
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotElected,
    NotFound,
)
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# Ours are shorter: the name of a pod and a few characters. It is shown in logs, pages and refusals.
_MOST_HOLDER: Final = 300


# After another process wrote first.
_AGAIN: Final = timedelta(milliseconds=100)
# For the last write of a process that ends: without it the others wait until it is over.
_RELEASE_LIMIT: Final = timedelta(seconds=2)
# A lapse that goes on is logged as often.
_LOG_EVERY: Final = timedelta(minutes=1)

_ALONE: Final = "this process, alone: no other takes part in an election"
_SHADOW: Final = "another operator, if any: this process is in shadow mode"


class _Head(Wire):
    name: Required
    namespace: Required
    resource_version: Required
    annotations: Strings = None


class _Spec(Wire):
    holder_identity: str | None = None
    lease_duration_seconds: Annotated[int, Meta(ge=0)] | None = None
    lease_transitions: Annotated[int, Meta(ge=0)] | None = None
    renew_time: str | None = None


class _Lease(Wire):
    metadata: _Head
    spec: _Spec | None = None
    kind: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Lease)


def decode_lease(raw: JsonBytes) -> Lease:
    wire = read_as("Lease", raw, _DECODER)
    spec = wire.spec or _Spec()
    seconds = spec.lease_duration_seconds or 0
    if seconds > LONGEST_LEASE.total_seconds():
        seconds = 0  # none of us writes that
    return Lease(
        version=wire.metadata.resource_version,
        holder=clip(spec.holder_identity or "", _MOST_HOLDER),
        lasts=timedelta(seconds=seconds),
        transitions=spec.lease_transitions or 0,
        renewed=spec.renew_time or "",
        address=read_address((wire.metadata.annotations or {}).get(ADDRESS, "")),
    )


class LeaseApi(Patcher, Protocol):
    """The part of the API client that a Lease needs; errors as in `kube.api`."""

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes: ...

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes: ...


class ElectionState(Enum):
    FOLLOWING = auto()
    LEADING = auto()
    """It has taken the Lease; whether it may act now is said by `may_act`."""
    ALONE = auto()
    SHADOW = auto()
    SUPERSEDED = auto()
    """It had taken the Lease, and another process has it now."""
    RELEASED = auto()
    """It ends, and has released the Lease if it had it."""


_TAKING_PART: Final = frozenset(
    {ElectionState.FOLLOWING, ElectionState.LEADING, ElectionState.ALONE}
)


class Election:
    """The election, as one process takes part in it."""

    def __init__(
        self,
        client: LeaseApi,
        *,
        namespace: str,
        name: str,
        me: Identity,
        clock: Clock,
        metrics: Metrics,
        times: Times,
        is_shadow: bool = False,
    ) -> None:
        """Take part by the Lease of that name; with an empty name there is no election.

        In shadow mode this process never acts.
        """
        self._client = client
        self._namespace = namespace
        self._name = name
        self._me = me
        self._times = times
        self._clock = clock
        self._gauge = metrics.leader_status.labels(name)
        # Held by the one call that is underway: `release` waits for its answer.
        self._lock = asyncio.Lock()
        self._elected = asyncio.Event()
        self._superseded = asyncio.Event()
        self._held: Lease | None = None
        """As it was written last by this process."""
        self._until = timedelta(0)
        """Until when this process may act, on the clock's `elapsed`."""
        self._seen: Lease | None = None
        self._seen_at: timedelta | None = None
        """Since when the Lease, or that there is none, is known; None before the first answer."""
        self._unchanged_for = timedelta(0)
        """For how long it was known at the last read."""
        self._free_after = times.lease
        """For how long it has to be unchanged: its holder's flags may be others than ours."""
        self._failures_alone = 0
        """Attempts to take part, while it works alone."""
        self._logged_at: timedelta | None = None
        self._error: Exception | None = None
        self._failing_since: timedelta | None = None
        self._loss = ""
        self._state = ElectionState.FOLLOWING
        self._gauge.set(0)
        if is_shadow:
            self._turn(ElectionState.SHADOW)
        elif not name:
            self._turn(ElectionState.ALONE)

    @property
    def state(self) -> ElectionState:
        return self._state

    @property
    def may_act(self) -> bool:
        """Return whether a write may be sent now."""
        if self._state is ElectionState.LEADING:
            return self._clock.elapsed() < self._until
        return self._state is ElectionState.ALONE

    @property
    def text(self) -> str:
        """Say which process acts, as far as is known."""
        if self._state is ElectionState.ALONE:
            return _ALONE
        if self._state is ElectionState.SHADOW:
            return _SHADOW
        if self._held is not None:
            return "this process" if self.may_act else f"no process: {self._describe_lapse()}"
        if self._error is not None and self._unchanged_for >= self._free_after:
            return f"no process: lease {self._name} cannot be taken: {self._error}"
        return (self._seen.holder if self._seen is not None else "") or "no process"

    @property
    def loss(self) -> str:
        """Say how this process lost the Lease, also after `release`; empty where it did not."""
        return self._loss

    @property
    def leader(self) -> Lease | None:
        """Return the Lease by which another process acts, as far as is known."""
        lease = self._seen
        if lease is None or self._held is not None or self._unchanged_for >= self._times.deadline:
            return None
        return None if lease.holder in {"", self._me.holder} else lease

    def check(self, call: str) -> timedelta | None:
        """Return how soon a write, `call`, must be on its way. Raises NotElected; see `Fence`."""
        if not self.may_act:
            raise NotElected.of(call, f"it is not for this process: {self.text}")
        return None if self._state is ElectionState.ALONE else self._until - self._clock.elapsed()

    async def run(self) -> None:
        while self._name and self._state in _TAKING_PART:
            try:
                async with asyncio.timeout(self._times.deadline.total_seconds()), self._lock:
                    pause = await (self._follow() if self._held is None else self._renew())
                self._error = self._failing_since = None
            except (Denied, NotFound) as error:
                pause = self._record_denial(error)
            except (ApiError, InvalidInput, TimeoutError) as error:
                pause = self._record_error(error)
            self._log_lapse()
            await self._clock.sleep(pause)
        await asyncio.Event().wait()  # there is nothing left to decide

    async def wait_elected(self) -> None:
        """Wait until this process has been elected once, or is alone."""
        await self._elected.wait()

    async def wait_superseded(self) -> None:
        """Wait until another process has taken the Lease that this one had."""
        await self._superseded.wait()

    async def release(self) -> None:
        """Leave the election: another process may take the Lease at once."""
        self._turn(ElectionState.RELEASED)
        try:
            async with asyncio.timeout(_RELEASE_LIMIT.total_seconds()), self._lock:
                if self._held is not None:
                    await self._write(self._held, holder="", duration=timedelta(seconds=1))
                    log.info("Released the lease", lease=self._name)
        except (ApiError, InvalidInput, TimeoutError) as error:
            log.warn("Lease was not released", lease=self._name, err=error)
        # What was known before it was held is long over.
        self._held = self._seen = self._seen_at = None

    async def read_leader(self) -> None:
        """Read which process leads after this process has released the Lease."""
        try:
            async with asyncio.timeout(_RELEASE_LIMIT.total_seconds()), self._lock:
                self._record_seen(await self._read())
        except (ApiError, InvalidInput, TimeoutError) as error:
            self._record_error(error)

    async def _follow(self) -> timedelta:
        """Take the Lease where that may be; return after what time to read it again."""
        lease = await self._read()
        if self._state is ElectionState.ALONE and lease is not None and self._is_of_another(lease):
            self._lose(lease)
            return _AGAIN
        is_first = self._seen_at is None
        unchanged_for = self._record_seen(lease)
        if lease is None:
            # The holder of a Lease that was deleted may still act, until it notices.
            is_free = is_first or unchanged_for >= self._free_after
        else:
            is_free = lease.may_be_taken(self._me, unchanged_for, self._free_after)
        if not is_free:
            return self._times.read_every
        return await self._take(lease)

    async def _take(self, lease: Lease | None) -> timedelta:
        sent = self._clock.elapsed()
        try:
            written = await self._write(lease, is_taken=True)
        except Conflict:
            return _AGAIN
        except NotFound:
            if lease is not None:  # it was deleted just now
                return _AGAIN
            raise
        self._logged_at = None  # of the time before
        self._hold(written, sent)
        self._turn(ElectionState.LEADING)
        before = "" if lease is None else lease.holder
        log.info(
            "Elected: this process acts", lease=self._name, holder=written.holder, before=before
        )
        return self._times.retry

    async def _renew(self) -> timedelta:
        sent = self._clock.elapsed()
        try:
            self._hold(await self._write(self._held), sent)
            return self._times.retry
        except (Conflict, NotFound):
            lease = await self._read()
        if lease is None and not self.may_act:  # another may have had it meanwhile
            self._lose(None)
            return _AGAIN
        if lease is None:  # deleted while we have it: the others wait before they make another
            self._hold(await self._write(None, is_taken=True), sent)
            log.warn("Lease was deleted; this process made it again", lease=self._name)
            return self._times.retry
        if lease.holder == self._me.holder:  # edited, or written by a call that had no answer
            self._held = lease
            return _AGAIN
        self._lose(lease)
        return _AGAIN

    def _lose(self, lease: Lease | None) -> None:
        """End here: another writer has put its own name, or none, into the Lease, or deleted it."""
        if lease is None:
            log.warn("Lease was deleted after it had run out; this process ends", lease=self._name)
            self._loss = f"lease {self._name} was deleted after it had run out"
        elif lease.holder:
            log.warn("Another process leads; this one ends", lease=self._name, holder=lease.holder)
            self._loss = f"another process acts: {lease.holder}"
        else:
            log.warn("Lease names no holder any more; this process ends", lease=self._name)
            self._loss = f"lease {self._name} names no holder any more: another writer removed it"
        self._held, self._seen = None, lease
        self._turn(ElectionState.SUPERSEDED)

    def _hold(self, written: Lease, sent: timedelta) -> None:
        if self._logged_at is not None:
            log.info("Lease renewed: this process acts again", lease=self._name)
        self._held, self._until = written, sent + self._times.deadline
        self._logged_at = None
        self._gauge.set(self.may_act)

    def _record_seen(self, lease: Lease | None) -> timedelta:
        """Record the Lease that was read; return for how long it has been the same."""
        now, before = self._clock.elapsed(), self._seen
        is_same = (lease and lease.term) == (before and before.term)
        if self._seen_at is None or not is_same:
            self._seen_at = now
        if lease is not None and lease.holder and lease.holder != (before and before.holder):
            log.info("Another process leads", lease=self._name, holder=lease.holder)
        if lease is not None and lease.holder:
            self._free_after = max(self._times.lease, lease.lasts)
        self._seen, self._unchanged_for = lease, now - self._seen_at
        return self._unchanged_for

    def _record_denial(self, error: Denied | NotFound) -> timedelta:
        """Work alone where no other process can be elected either: no right, or no such kind."""
        is_led = self._held is not None or self._is_of_another(self._seen)
        is_lasting = isinstance(error, NotFound) or error.is_by_role
        if self._state is not ElectionState.ALONE and not is_led and is_lasting:
            text = "No election is possible: only one process may run"
            log.warn(text, lease=self._name, err=error)
            self._turn(ElectionState.ALONE)
        return self._record_error(error)

    def _is_of_another(self, lease: Lease | None) -> bool:
        """Return whether it names a holder that this process would have to wait for."""
        now = timedelta(0)
        return lease is not None and not lease.may_be_taken(self._me, now, self._free_after)

    def _record_error(self, error: Exception) -> timedelta:
        # A time-out has no text of its own.
        self._error = error if f"{error}" else TimeoutError("the API server does not answer")
        log.debug("Lease was not read or written", lease=self._name, err=error)
        if self._failing_since is None:
            self._failing_since = self._clock.elapsed()
        if self._state is not ElectionState.ALONE:
            return self._times.retry
        self._failures_alone += 1
        return ELECTIONS.bound(self._failures_alone)

    def _log_lapse(self) -> None:
        """Log, once a minute, why this process does not act, though it holds or wants the Lease."""
        now = self._clock.elapsed()
        if self._held is not None and not self.may_act:
            self._gauge.set(0)
            text, why = "Nothing is written until the lease is renewed", self._describe_lapse()
        elif self._is_kept_out(now):
            text, why = "Lease can be neither read nor taken", f"{self._error}"
        else:
            return
        if self._logged_at is None or now - self._logged_at >= _LOG_EVERY:
            self._logged_at = now
            log.warn(text, lease=self._name, why=why)

    def _is_kept_out(self, now: timedelta) -> bool:
        """Return whether this process has failed for some time to follow, and to act if need be."""
        since = self._failing_since if self._state is ElectionState.FOLLOWING else None
        return since is not None and now - since >= self._times.deadline

    def _describe_lapse(self) -> str:
        since = (self._clock.elapsed() - self._until + self._times.deadline).total_seconds()
        cause = f": {self._error}" if self._error is not None else ""
        return f"lease {self._name} was renewed {since:.0f} s ago{cause}"

    def _turn(self, state: ElectionState) -> None:
        """Enter a state, unless this process ends already."""
        if self._state is ElectionState.RELEASED:
            return
        self._state = state
        is_leading = state in {ElectionState.LEADING, ElectionState.ALONE}
        self._gauge.set(is_leading)
        if is_leading:
            self._elected.set()
        if state is ElectionState.SUPERSEDED:
            self._superseded.set()

    async def _read(self) -> Lease | None:
        try:
            return decode_lease(await self._client.fetch(LEASES, self._namespace, self._name))
        except NotFound:
            return None

    async def _write(
        self,
        lease: Lease | None,
        *,
        holder: str | None = None,
        duration: timedelta | None = None,
        is_taken: bool = False,
    ) -> Lease:
        """Write the holder of the Lease, this process unless said otherwise; return it as written.

        Raises Conflict where it has changed since it was read.
        """
        holder = self._me.holder if holder is None else holder
        address = self._me.address if holder else ""
        now = f"{self._clock.now():%Y-%m-%dT%H:%M:%S.%fZ}"
        spec: JsonObject = {
            "holderIdentity": holder,
            "leaseDurationSeconds": math.ceil((duration or self._times.lease).total_seconds()),
            "renewTime": now,
        }
        if is_taken:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = 0 if lease is None else lease.count_transitions(holder)
        if lease is None:
            metadata: JsonObject = {"name": self._name, "namespace": self._namespace}
            if address:
                metadata["annotations"] = {ADDRESS: address}
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": LEASES.kind}
            made = await self._client.create(
                LEASES, self._namespace, {**kind, "metadata": metadata, "spec": spec}
            )
            return decode_lease(made)
        metadata = {"resourceVersion": lease.version}
        if address or lease.address:  # of another holder, or written by another client
            metadata["annotations"] = {ADDRESS: address or None}
        patch: JsonObject = {"metadata": metadata, "spec": spec}
        return decode_lease(await self._client.patch(LEASES, self._namespace, self._name, patch))
