"""Judge downscales: were the pods prepared that went, and did the zones wait for one another?

Pure but for `judge_downscales`: a history and the pods' own log in, violations out. Only sets that
ask for preparation are judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import combinations
from typing import Final

from tests.judge.objects import Change, Json, Pod, Set
from tests.world.judge import Judge
from tests.world.verdicts import Violation
from tests.world.webpods import PodCall

# A write is seen some moments after its commit, more of them on a busy machine.
SEEN_LATE: Final = timedelta(seconds=1)
NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A successful write of a StatefulSet. Times are those of the history."""

    name: str
    received: float
    answered: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Downscale:
    """One that persisted."""

    place: int
    """In the history."""
    at: float
    before: Set
    now: Set
    wait: timedelta
    """The longest that any zone of the group asks for at that moment."""
    received: float
    """When its request arrived; the beginning of time where no request is known."""
    removed: tuple[Pod, ...]
    """Those which existed and had been ready."""


@dataclass(slots=True)
class _State:
    sets: dict[str, Set] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    were_ready: set[str] = field(default_factory=set)

    def take(self, change: Change) -> None:
        match change.now or change.before:
            case Set(uid=uid):
                self.sets.pop(uid, None)
                if isinstance(change.now, Set):
                    self.sets[uid] = change.now
            case Pod(name=name):
                self.pods.pop(name, None)
                if isinstance(change.now, Pod):
                    self.pods[name] = change.now
                    self.were_ready |= {change.now.uid} if change.now.is_ready else set()

    def removed(self, before: Set, now: Set) -> tuple[Pod, ...]:
        gone = [name for name in before.pod_names if name not in now.pod_names]
        pods = [self.pods[name] for name in gone if name in self.pods]
        return tuple(
            each for each in pods if each.owner == before.uid and each.uid in self.were_ready
        )


async def judge_downscales(judge: Judge, calls: Sequence[PodCall]) -> list[Violation]:
    """Return what SI-10 and SI-11 have against all that happened so far."""
    requests = read_requests(await judge.writes(), judge.wall_offset)
    found = list_downscales(judge.changes, requests)
    return [*find_unprepared(judge.changes, found, calls), *find_too_early(found)]


def read_requests(entries: Sequence[Json], wall_offset: float) -> list[Request]:
    """Return the successful writes of StatefulSets in an audit log, dry runs left out."""
    return [
        Request(
            name=entry["objectRef"]["name"],
            received=_seconds(entry["requestReceivedTimestamp"]) - wall_offset,
            answered=_seconds(entry["stageTimestamp"]) - wall_offset,
        )
        for entry in entries
        if entry["objectRef"]["resource"] == "statefulsets"
        and entry["stage"] == "ResponseComplete"
        and entry.get("responseStatus", {}).get("code") == 200
        and "dryRun=" not in entry["requestURI"]
    ]


def list_downscales(changes: Sequence[Change], requests: Sequence[Request]) -> list[Downscale]:
    """Return the downscales of sets whose pods are to be prepared, in order."""
    state, left, found = _State(), sorted(requests, key=lambda each: each.received), []
    for place, change in enumerate(changes):
        match change.before, change.now:
            case Set() as before, Set() as now if now.replicas < before.replicas:
                # Also for sets without preparation: their requests are nobody else's then.
                request = _pop_request(left, change)
                if before.must_prepare:
                    found.append(
                        Downscale(
                            place=place,
                            at=change.at,
                            before=before,
                            now=now,
                            wait=_wait(state, before),
                            received=request.received if request else -NEVER,
                            removed=state.removed(before, now),
                        )
                    )
        state.take(change)
    return found


def find_unprepared(
    changes: Sequence[Change], downscales: Sequence[Downscale], calls: Sequence[PodCall]
) -> Iterator[Violation]:
    """Yield the removed pods without a preparation that lasted (SI-10)."""
    for each in downscales:
        for pod in each.removed:
            mine = [call for call in calls if call.uid == pod.uid]
            text = _lack(each, mine, _horizon(changes[each.place + 1 :], each, pod))
            if text:
                text = f"downscale of {each.before.name} to {each.now.replicas}: {pod.name} {text}"
                yield Violation(invariant="SI-10", text=text, at=each.at)


def find_too_early(
    downscales: Sequence[Downscale], slack: timedelta = timedelta(milliseconds=500)
) -> Iterator[Violation]:
    """Yield pairs of different zones of a group closer than its zones ask for (SI-11).

    `slack` is for what is seen of the earlier one later than it happened.
    """
    for earlier, later in combinations(downscales, 2):
        is_pair = earlier.before.group == later.before.group is not None
        gap = timedelta(seconds=later.at - earlier.at)
        if is_pair and earlier.before.uid != later.before.uid and gap < later.wait - slack:
            text = (
                f"downscale of {later.before.name} {gap} after that of {earlier.before.name},"
                f" group {later.before.group} waits {later.wait}"
            )
            yield Violation(invariant="SI-11", text=text, at=later.at)


def _wait(state: _State, zone: Set) -> timedelta:
    zones = [each for each in state.sets.values() if each.group == zone.group]
    return max((each.min_time for each in [zone, *zones]), default=timedelta(0))


def _pop_request(left: list[Request], change: Change) -> Request | None:
    """Take the request out that made a change: the first that was under way then, if several."""
    oldest = change.at - SEEN_LATE.total_seconds()
    for request in left:
        was_under_way = request.received <= change.at and request.answered >= oldest
        if request.name == change.name and was_under_way:
            left.remove(request)
            return request
    return None


def _horizon(rest: Sequence[Change], downscale: Downscale, pod: Pod) -> float:
    """Return when a pod's preparation need not last any more: it goes, or is wanted again."""
    for change in rest:
        match change.before, change.now:
            case Pod(uid=pod.uid), None | Pod(is_terminating=True):
                return change.at
            case _, Set(uid=uid, pod_names=names) if uid == downscale.now.uid and pod.name in names:
                return change.at
    return NEVER


def _lack(downscale: Downscale, calls: Sequence[PodCall], horizon: float) -> str:
    """Return what a pod's preparation lacks, in words; nothing if it is good."""
    prepared = [
        call
        for call in calls
        if call.method == "POST"
        and call.is_success
        and call.at >= downscale.received
        and (call.done_at or NEVER) <= downscale.at
    ]
    if not prepared:
        asked = [f"{call.method} -> {call.status}" for call in calls]
        return f"was not prepared between request and commit: {asked or 'it was not called'}"
    last = max(prepared, key=lambda call: call.at)
    undone = [
        call
        for call in calls
        if call.method == "DELETE"
        # One that was under way when the POST came may have had the last word.
        and (call.done_at or NEVER) > last.at
        and call.at < horizon
    ]
    return "was prepared, and un-prepared after it" if undone else ""


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
