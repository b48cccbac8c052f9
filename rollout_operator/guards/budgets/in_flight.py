"""Pods that are on their way out although they still look untouched.

Three ways to know of one: our own delete that the cache does not show yet, a grant of this process,
and a record on the pod, which any process may have written. All engines count all of them as down.
Who may go is decided in `planning.budgets.rule`, how a grant comes about in `arbiter`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.unused import FindPod, UnusedGrants
from rollout_operator.model.budget import DisruptionSource, Record
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.group import Deletion
from rollout_operator.model.names import DISRUPTION_RECORD, Uid
from rollout_operator.model.objects import Pod

# A record is taken back long before; where nobody is left who may, it ends by itself (LI-07).
RECORD_COUNTS: Final = timedelta(minutes=2)

_RECORD: Final = msgspec.json.Decoder(Record)


class CountedDeletes(Protocol):
    """The part of our memory of deletes that counts pods."""

    def list_of(self, owners: Collection[Uid]) -> Mapping[Uid, Deletion]:
        """Return the pods of these owners whose delete the cache does not show yet."""
        ...


class GrantState(Enum):
    """How far a grant has come."""

    ASKED = auto()
    """Being recorded and confirmed: it may come to nothing within moments."""
    GIVEN = auto()
    """Somebody was told that the pod may go."""
    DOUBTFUL = auto()
    """Given up, but a record of it may have been written: somebody must look."""


@dataclass(slots=True, kw_only=True)
class Grant:
    """One pod that may go, or soon may."""

    pod: Pod
    """As it was decided on; once recorded, as it was seen last."""
    engine: DisruptionSource
    budget: str
    begun: timedelta
    """On the clock's `elapsed`: from before the record was sent."""
    lasts: timedelta = timedelta(0)
    """How long after that whoever asked may act on the answer."""
    record: str = ""
    """The annotation as sent; empty where nothing was."""
    stage: GrantState = GrantState.ASKED
    was_given: bool = False
    """Whether the answer was that the pod may go: a doubt that follows does not change it."""


class InFlight:
    """All grants of this process, and what records and deletes say beside them."""

    def __init__(self, find_pod: FindPod, deletes: CountedDeletes, clock: Clock) -> None:
        self._find_pod = find_pod
        self._deletes = deletes
        self._clock = clock
        self._grants: dict[Uid, Grant] = {}
        self._callbacks: list[Callable[[Pod], None]] = []
        self.unused = UnusedGrants(find_pod, clock)

    def __len__(self) -> int:
        return len(self._grants)

    def on_change(self, callback: Callable[[Pod], None]) -> None:
        """Call back with the pod whenever a grant has been settled, one way or the other."""
        self._callbacks.append(callback)

    def reserve(
        self, pod: Pod, engine: DisruptionSource, budget: str, lasts: timedelta = timedelta(0)
    ) -> Grant:
        """Count a pod as going from now on. It must not count so already."""
        grant = Grant(
            pod=pod, engine=engine, budget=budget, begun=self._clock.elapsed(), lasts=lasts
        )
        self._grants[pod.uid] = grant
        return grant

    def give(self, grant: Grant, seen: Pod) -> None:
        """The pod may go; `seen` is its newest view."""
        grant.pod, grant.stage, grant.was_given = seen, GrantState.GIVEN, True
        self._tell(grant)

    def doubt(self, grant: Grant) -> None:
        """Nobody was told that the pod may go, but a record may say so."""
        grant.stage = GrantState.DOUBTFUL
        self._tell(grant)

    def give_up(self, grant: Grant) -> None:
        """Nobody goes on with a grant, if it is not settled yet.

        What was written, if anything was sent, is found out by somebody else.
        """
        if self._grants.get(grant.pod.uid) is not grant or grant.stage is not GrantState.ASKED:
            return
        if grant.record:
            self.doubt(grant)
        else:
            self.release(grant)

    def take_back(self, grant: Grant) -> bool:
        """The pod is visibly untouched; tell whether an eviction of it was allowed for nothing.

        One that was given up before its answer left could not have been used.
        """
        self.release(grant)
        is_unused = grant.was_given and grant.engine is DisruptionSource.EVICTION
        if is_unused:
            self.unused.note(grant.pod)
        return is_unused

    def release(self, grant: Grant) -> None:
        """Nobody may use this grant any more; one that is not known is fine."""
        if self._grants.get(grant.pod.uid) is grant:
            del self._grants[grant.pod.uid]
            self._tell(grant)

    def get(self, uid: Uid) -> Grant | None:
        """Return the grant of a pod."""
        return self._grants.get(uid)

    def list_asked(self, budget: str) -> tuple[Uid, ...]:
        """Return the pods under a budget whose grant may still come to nothing."""
        return tuple(
            uid
            for uid, grant in self._grants.items()
            if grant.stage is GrantState.ASKED and grant.budget == budget
        )

    def list_going(
        self, owners: Collection[Uid], pods: Iterable[Pod], now: datetime
    ) -> Mapping[Uid, Deletion]:
        """Return all pods of these owners that go although they may look untouched.

        `pods` are the views that a decision counts; `now` is the API server's time.
        """
        self.forget_seen()
        going = {pod.uid: Deletion.GRANTED for pod in pods if is_recorded(pod, now)}
        going.update(dict.fromkeys(self._granted_of(owners), Deletion.GRANTED))
        going.update(self._deletes.list_of(owners))
        return going

    def _granted_of(self, owners: Collection[Uid]) -> Iterator[Uid]:
        return (uid for uid, one in self._grants.items() if one.pod.owner_uid in owners)

    def forget_seen(self) -> None:
        """Forget the grants of pods that the cache shows on their way out, or gone."""
        for grant in list(self._grants.values()):
            # One that is being asked for is settled by whoever asks.
            if grant.stage is not GrantState.ASKED and self._is_seen(grant.pod):
                self.release(grant)

    def _is_seen(self, pod: Pod) -> bool:
        cached = self._find_pod(pod.namespace, pod.name)
        if cached is None or cached.uid != pod.uid:
            return True
        return isinstance(cached, Pod) and cached.is_terminating

    def _tell(self, grant: Grant) -> None:
        for callback in self._callbacks:
            callback(grant.pod)


def read_record(pod: Pod) -> Record | None:
    """Return the record of a pod, None where it has none of its own.

    Raises InvalidInput naming pod and value.
    """
    if not pod.disruption:
        return None
    try:
        record = _RECORD.decode(pod.disruption)
    except (msgspec.MsgspecError, RecursionError) as error:
        text = f"Pod {pod.name}: annotation {DISRUPTION_RECORD}: {error}"
        raise InvalidInput(text) from error
    return record if record.uid == pod.uid else None


def is_recorded(pod: Pod, now: datetime) -> bool:
    """Tell whether the record of a pod makes it count as going: so does one nobody can read."""
    if not pod.disruption:
        return False
    try:
        record = read_record(pod)
    except InvalidInput:
        return True
    return record is not None and now - record.at < RECORD_COUNTS
