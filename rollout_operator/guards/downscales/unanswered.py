"""Which pods may still hear that they stay: calls that were sent, and got no answer.

A caller gives up after a while, and a pod that is slow goes on with the call all the same. What it
is told next counts only once no call of before can take effect any more (SI-10); whether that is so
is decided in `planning.downscales.rule`. A restarted process does not know what the one before it
sent: pods that carry its note may have been called just before it ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.model.downscale import Endpoint, Target
from rollout_operator.model.names import Uid


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
    """Calls by set, of the pods that were called within a moment: never more than those."""

    def __init__(self, clock: Clock, lasts: timedelta) -> None:
        """Reckon with a call for so long after its caller has given up."""
        self._clock = clock
        self._lasts = lasts
        self._until: dict[Uid, dict[_Called, timedelta]] = {}

    @property
    def by_set(self) -> Mapping[Uid, object]:
        """Return the sets of which any pod may still hear that it stays."""
        self._forget_old()
        return self._until

    async def cancel_all(
        self, calls: CancelCalls, set_uid: Uid, endpoints: Sequence[Endpoint]
    ) -> Mapping[Uid, FailedCall]:
        """Tell pods of a set that they stay; return which did not confirm.

        Under the lock of its calls: who holds it next knows who has not answered.
        """
        unanswered = {one.uid for one in endpoints}
        try:
            failed = await calls.cancel_all(endpoints)
            unanswered = {uid for uid, error in failed.items() if error.may_arrive}
        finally:
            # Also where we are cancelled: then none of them has answered, for all we know.
            self._note(set_uid, [(one.uid, one.path) for one in endpoints if one.uid in unanswered])
        return failed

    def suspect(self, set_uid: Uid, pods: Iterable[Uid], target: Target | None) -> None:
        """Reckon with calls of a process that has ended: it may have told these pods anything."""
        path = None if target is None else target.path
        self._note(set_uid, [(uid, path) for uid in pods])

    def list_waits(self, set_uid: Uid, endpoints: Iterable[Endpoint]) -> dict[Uid, timedelta]:
        """Return for how long pods may still hear there that they stay; nothing of the others."""
        self._forget_old()
        until, now = self._until.get(set_uid, {}), self._clock.elapsed()
        found: dict[Uid, timedelta] = {}
        for one in endpoints if until else ():
            ends = [until[key] for key in ((one.uid, one.path), (one.uid, None)) if key in until]
            if ends:
                found[one.uid] = max(ends) - now
        return found

    def forget(self, set_uid: Uid) -> None:
        """The set is gone."""
        self._until.pop(set_uid, None)

    def _note(self, set_uid: Uid, called: Sequence[_Called]) -> None:
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
