"""Which pods are to be un-prepared, and where, and which may still be un-prepared.

A pod that was prepared, and stays, must be un-prepared at each place where it was called, with as
many calls as it takes; see `controllers.downscales.cancellations`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.model.downscale import Endpoint, Target
from rollout_operator.model.names import Uid
from rollout_operator.planning.wording import NAMES_SHOWN, join_some


class PreparedPod(NamedTuple):
    """A pod that was prepared: its name, and where it was called."""

    pod: str
    target: Target | None
    """None where an earlier version of the operator called it and did not record the place."""


class DueCancel(NamedTuple):
    """A pod that is to be un-prepared, and where: a pod may wait at several places."""

    uid: Uid
    target: Target | None
    """None for the place that the set names by then."""


class BacklogEntry(msgspec.Struct, frozen=True):
    """What is known of a pod that is to be un-prepared."""

    pod: str
    due: timedelta
    """On the clock's `elapsed`."""
    again: timedelta | None = None
    """After how long it is called once more; None for never."""
    failures: int = 0
    """How often it could not be reached, one time after another."""
    gone: timedelta | None = None
    """When its pod was first found gone, and no other wanted; None while there is a pod to call."""
    is_dormant: bool = False
    """Whether its pod is on its way out, and not wanted: there is no pod to call."""
    causes: frozenset[str] = frozenset()
    """Why it could not be reached, each time."""

    @property
    def over(self) -> timedelta | None:
        """Return since when no pod was left to call; None where there is a pod, or may be soon."""
        if self.gone is None or self.is_dormant:
            return self.gone
        return max(self.gone, self.due)


class UnprepareBacklog:
    """All pods that are to be un-prepared, by set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Uid, dict[DueCancel, BacklogEntry]] = {}
        self._versions: dict[Uid, str] = {}

    @property
    def by_set(self) -> Mapping[Uid, object]:
        """Return the sets with pods to un-prepare."""
        return self._due

    def count(self) -> int:
        """Return how many pods are to be un-prepared, without those on their way out."""
        return sum(
            len({cancel.uid for cancel, entry in backlog.items() if not entry.is_dormant})
            for backlog in self._due.values()
        )

    def count_unreached(self) -> int:
        """Return how many of them could not be reached when that was last tried."""
        return sum(
            len({cancel.uid for cancel, entry in backlog.items() if entry.failures})
            for backlog in self._due.values()
        )

    def describe_unreached(self) -> str | None:
        """Say which pods could not be reached and why, the first few; None where there are none."""
        failed = [
            entry for backlog in self._due.values() for entry in backlog.values() if entry.failures
        ]
        causes = {entry.pod: min(entry.causes, default="") for entry in failed}
        if not causes:
            return None
        shown = [f"{pod} ({why})" for pod, why in sorted(causes.items())[:NAMES_SHOWN]]
        return f"to be told that they stay: {join_some(shown, total=len(causes))}"

    def map_due_cancels(self, set_uid: Uid) -> dict[DueCancel, BacklogEntry]:
        """Return the pods of a set that are to be un-prepared, and where."""
        return dict(self._due.get(set_uid, {}))

    def list_targets(self, set_uid: Uid) -> tuple[Target | None, ...]:
        """Return the places where pods of a set are to be un-prepared."""
        return tuple(dict.fromkeys(cancel.target for cancel in self._due.get(set_uid, {})))

    def get_version(self, set_uid: Uid) -> str:
        """Return the version of a set that a cache must show before any pod is called."""
        return self._versions.get(set_uid, "")

    def add(
        self,
        set_uid: Uid,
        version: str,
        called: Mapping[Uid, PreparedPod],
        *,
        after: timedelta = timedelta(0),
        again: timedelta | None = None,
        are_going: bool = False,
    ) -> None:
        """Have pods un-prepared where they were called, not on an older `version` of the set.

        Those that `are_going` are called if they are wanted again before they have gone.
        """
        due = self._clock.elapsed() + after
        backlog = {
            DueCancel(uid, at): BacklogEntry(pod, due, again, is_dormant=are_going)
            for uid, (pod, at) in called.items()
        }
        if backlog:
            self._due.setdefault(set_uid, {}).update(backlog)
            self._versions[set_uid] = version

    def record_un_prepared(self, set_uid: Uid, called: Iterable[DueCancel]) -> None:
        """Record that these pods have been un-prepared; some are called once more."""
        backlog = self._due.get(set_uid, {})
        settled: list[DueCancel] = []
        for due_cancel in called:
            entry = backlog.get(due_cancel)
            if entry is None or entry.again is None:
                settled.append(due_cancel)
            else:
                backlog[due_cancel] = BacklogEntry(entry.pod, self._clock.elapsed() + entry.again)
        self.settle(set_uid, settled)

    def see(self, set_uid: Uid, due_cancel: DueCancel, *, is_wanted: bool) -> None:
        """Record that the pod is there, or another of its name is wanted: it may need a call."""
        backlog = self._due.get(set_uid, {})
        if due_cancel in backlog:
            backlog[due_cancel] = replace(backlog[due_cancel], gone=None, is_dormant=not is_wanted)

    def miss(self, set_uid: Uid, due_cancel: DueCancel) -> None:
        """Record that the pod is gone, and no other of its name is wanted, perhaps for good."""
        backlog = self._due.get(set_uid, {})
        if due_cancel in backlog and backlog[due_cancel].gone is None:
            backlog[due_cancel] = replace(backlog[due_cancel], gone=self._clock.elapsed())

    def postpone(self, set_uid: Uid, due_cancel: DueCancel, by: timedelta, cause: str) -> None:
        """Put off the call of a pod that could not be reached until this time, whatever happens."""
        backlog = self._due.get(set_uid, {})
        if due_cancel in backlog:
            entry, due = backlog[due_cancel], self._clock.elapsed() + by
            backlog[due_cancel] = replace(
                entry, due=due, failures=entry.failures + 1, causes=entry.causes | {cause}
            )

    def take_over(self, set_uid: Uid, called: Mapping[Uid, PreparedPod]) -> None:
        """Forget calls to pods where they are prepared now: the reservation stands for them."""
        self.settle(set_uid, [DueCancel(uid, at) for uid, (_, at) in called.items()])

    def settle(self, set_uid: Uid, due: Iterable[DueCancel]) -> None:
        """Record that these pods have been un-prepared, or are gone."""
        backlog = self._due.get(set_uid, {})
        for due_cancel in due:
            backlog.pop(due_cancel, None)
        if not backlog:
            self.forget(set_uid)

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone, or has no pod to un-prepare."""
        self._due.pop(set_uid, None)
        self._versions.pop(set_uid, None)


class FailedCall(Protocol):
    """The part of `pods.client.PodError` that is needed."""

    @property
    def may_arrive(self) -> bool: ...


class CancelCalls(Protocol):
    """The part of `pods.client.PodClient` that is needed."""

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, FailedCall]: ...


# A pod, and the path at which it was called; None where that is not known.
_Called = tuple[Uid, str | None]


class UnansweredCancels:
    """Calls without an answer, by set: pods that were called just now and have not answered.

    A caller gives up after a while, and a slow pod goes on with the call all the same. The next
    call to it counts only once no earlier call can take effect any more (SI-10); whether that is so
    is decided in `planning.downscales.rule`. A restarted process does not know what the process
    before it sent: pods that carry its record may have been called just before it ended.
    """

    def __init__(self, clock: Clock, lasts: timedelta) -> None:
        """Expect the effect of a call for `lasts` after its caller has given up."""
        self._clock = clock
        self._lasts = lasts
        self._until: dict[Uid, dict[_Called, timedelta]] = {}

    @property
    def by_set(self) -> Mapping[Uid, object]:
        """Return the sets of which a call has no answer yet."""
        self._forget_old()
        return self._until

    async def cancel_all(
        self, calls: CancelCalls, set_uid: Uid, endpoints: Sequence[Endpoint]
    ) -> Mapping[Uid, FailedCall]:
        """Un-prepare pods of a set; return the pods that did not confirm.

        Under the lock of its calls: its next holder knows which pods have not answered.
        """
        unanswered = {endpoint.uid for endpoint in endpoints}
        try:
            failed = await calls.cancel_all(endpoints)
            unanswered = {uid for uid, error in failed.items() if error.may_arrive}
        finally:
            # Also where we are cancelled: then, for all we know, none of them has answered.
            self._record(
                set_uid,
                [
                    (endpoint.uid, endpoint.path)
                    for endpoint in endpoints
                    if endpoint.uid in unanswered
                ],
            )
        return failed

    def suspect(self, set_uid: Uid, pods: Iterable[Uid], target: Target | None) -> None:
        """Expect calls of a process that has ended: it may have sent these pods anything."""
        path = None if target is None else target.path
        self._record(set_uid, [(uid, path) for uid in pods])

    def map_waits(self, set_uid: Uid, endpoints: Iterable[Endpoint]) -> dict[Uid, timedelta]:
        """Return for how long calls to pods may still take effect there, for pods with any."""
        self._forget_old()
        until, now = self._until.get(set_uid, {}), self._clock.elapsed()
        waits: dict[Uid, timedelta] = {}
        for endpoint in endpoints if until else ():
            ends = [
                until[key]
                for key in ((endpoint.uid, endpoint.path), (endpoint.uid, None))
                if key in until
            ]
            if ends:
                waits[endpoint.uid] = max(ends) - now
        return waits

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone."""
        self._until.pop(set_uid, None)

    def _record(self, set_uid: Uid, called: Sequence[_Called]) -> None:
        self._forget_old()
        if called:
            until = self._clock.elapsed() + self._lasts
            self._until.setdefault(set_uid, {}).update(dict.fromkeys(called, until))

    def _forget_old(self) -> None:
        now = self._clock.elapsed()
        for set_uid, until in list(self._until.items()):
            left = {called: end for called, end in until.items() if end > now}
            if left:
                self._until[set_uid] = left
            else:
                del self._until[set_uid]
