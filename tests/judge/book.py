"""A history as judges read it: slim views of what was written, who requested it, what it led to.

Built once per history; nothing is judged here. Only the namespace that is served is seen. A `World`
is the state that a history has led to, and moves on by one write at a time.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec
from rollout_lab.model.fields import child
from rollout_lab.model.history import Called, Commit, Fault, History, Lived, PodCalled, Reviewed
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.trace.lines import is_of_releases

from rollout_operator.kube.api import (
    CONFIG_MAPS,
    LEASES,
    MULTI_AZ_ROLLOUTS,
    PODS,
    ROLLOUT_HEALTH_CHECKS,
    STATEFULSETS,
    ZONE_BUDGETS,
)
from rollout_operator.model.names import PREPARE_PATH
from tests.judge.objects import Json, Pod, Set, annotations, read_delay_path, read_pod, read_set
from tests.judge.promises import Promises

_T = TypeVar("_T")
CacheAge = Pod | Set
NO_TIME: Final = timedelta(0)
FOREVER: Final = timedelta.max
REPLICAS: Final = "/spec/replicas"
# What is said of a process that lives as long as its world: to a judge it lives on.
WORLD_ENDED: Final = "killed"


class Track(msgspec.Struct, Generic[_T]):
    """Each state that something was in, and since when."""

    begins: list[timedelta] = []
    states: list[_T] = []

    def add(self, at: timedelta, state: _T) -> None:
        self.begins.append(at)
        self.states.append(state)

    def find(self, at: timedelta) -> _T | None:
        """Return the state at a time, None before the first."""
        place = bisect_right(self.begins, at)
        return self.states[place - 1] if place else None

    def window(self, since: timedelta, until: timedelta = FOREVER) -> Sequence[_T]:
        """Return the states from `since` on, the one that was current then included."""
        first = max(bisect_right(self.begins, since) - 1, 0)
        return self.states[first : bisect_right(self.begins, until)]


class ProcessRun(msgspec.Struct):
    actor: str
    begun: timedelta
    ended: timedelta = FOREVER
    ready_at: timedelta | None = None

    def holds(self, at: timedelta) -> bool:
        return self.begun <= at <= self.ended


class ProcessRuns(msgspec.Struct):
    """All lives of all processes. A process whose start was not seen lived from the beginning."""

    by_actor: dict[str, list[ProcessRun]] = {}

    @property
    def all(self) -> list[ProcessRun]:
        return [one for runs in self.by_actor.values() for one in runs]

    def take(self, lived: Lived) -> None:
        """Record a step in a life."""
        runs = self.by_actor.setdefault(lived.actor, [])
        if lived.what == "started":
            runs.append(ProcessRun(lived.actor, lived.at))
            return
        if not runs:
            runs.append(ProcessRun(lived.actor, NO_TIME))
        run = runs[-1]
        if lived.what == "ready":
            run.ready_at = lived.at
        elif lived.what != WORLD_ENDED and run.ended == FOREVER:
            run.ended = lived.at

    def find(self, actor: str, at: timedelta) -> ProcessRun | None:
        """Return the life that a process led at a time, None where it was dead."""
        runs = self.by_actor.get(actor)
        if runs is None:
            return ProcessRun(actor, NO_TIME)
        return next((one for one in reversed(runs) if one.holds(at)), None)

    def find_before(self, run: ProcessRun | None, actor: str, at: timedelta) -> ProcessRun | None:
        """Return the newest life of a process that had ended by then, other than `run`."""
        runs = self.by_actor.get(actor, ())
        ended = [one for one in runs if one is not run and one.ended <= at]
        return ended[-1] if ended else None

    def count_starts(self, begin: timedelta, end: timedelta) -> int:
        return sum(begin <= one.begun <= end for one in self.all)

    def are_the_same(self, begin: timedelta, end: timedelta) -> bool:
        """Return whether no process started or ended in a span of time."""
        return not any(begin <= at <= end for one in self.all for at in (one.begun, one.ended))

    @property
    def last_ready(self) -> timedelta | None:
        """Return since when the youngest process that still lives has been ready."""
        alive = [one.ready_at for one in self.all if one.ended == FOREVER]
        return max((at for at in alive if at is not None), default=None)

    def is_any_up(self) -> bool:
        return not self.by_actor or any(one.ended == FOREVER for one in self.all)


class Write(msgspec.Struct, frozen=True, kw_only=True):
    commit: Commit
    before: CacheAge | None
    now: CacheAge | None

    @property
    def at(self) -> timedelta:
        return self.commit.at

    @property
    def ended_pod(self) -> Pod | None:
        """Return the pod whose end this write began: marked as terminating, or gone at once."""
        if not isinstance(self.before, Pod) or self.before.is_terminating:
            return None
        if isinstance(self.now, Pod) and not self.now.is_terminating:
            return None
        return self.before


class Book(msgspec.Struct):
    promises: Promises
    runs: ProcessRuns
    writes: list[Write] = []
    calls: dict[int, Called] = {}  # by number, of whomever
    own_calls: list[Called] = []  # of the operator, by their answers; none of those of Leases
    reviews: list[Reviewed] = []
    pod_calls: list[PodCalled] = []  # of the operator, in the order in which they ended
    delay_calls: list[PodCalled] = []  # the same at the paths of delayed downscales
    faults: list[Fault] = []
    configurations: list[Commit] = []  # writes of webhook configurations
    templates: list[Commit] = []  # writes of ReplicaTemplates
    maps: list[Commit] = []  # writes of ConfigMaps: of the zone tracker, there is no other
    budgets: list[Commit] = []  # writes of zone-aware disruption budgets
    policies: list[Commit] = []  # writes of MultiAZRollouts
    checks: list[Commit] = []  # writes of health checks between zones
    releases: list[Commit] = []  # writes of the kinds of releases, those of Flux included
    leases: list[Commit] = []  # writes of Leases: of the election, there is no other
    evictions: dict[int, Called] = {}
    """Those that were carried out, by number of the delete that each has led to."""
    ended_at: timedelta = NO_TIME
    known: dict[object, Any] = {}  # what was read of it, by what has read it: see `once`

    def is_operator(self, actor: str) -> bool:
        return actor.startswith(self.promises.operators)

    def acts_for(self, actor: str, other: str) -> bool:
        """Return whether an actor may be another: behind a Service is any process."""
        return actor == other or (self.is_operator(actor) and not self.is_operator(other))

    def list_faults(self, actor: str, begin: timedelta, end: timedelta) -> list[Fault]:
        """Return what went wrong for a process in a span of time, both ends included."""
        return [
            one for one in self.faults if begin <= one.at <= end and self.acts_for(one.actor, actor)
        ]


def once(read: Callable[[Book], _T]) -> Callable[[Book], _T]:
    """Have what several judges need of a history be read once; none of them changes it."""

    def find(book: Book) -> _T:
        if read not in book.known:
            book.known[read] = read(book)
        found: _T = book.known[read]
        return found

    return find


def read_book(history: History, promises: Promises) -> Book:
    book = Book(promises, ProcessRuns())
    seen: dict[tuple[str, str], CacheAge] = {}
    for record in history.records:
        match record:
            case Commit():
                _take_commit(book, record, seen)
            case Called():
                book.calls[record.number] = record
                _take_eviction(book, record)
                if book.is_operator(record.actor) and record.request.resource != LEASES:
                    book.own_calls.append(record)
            case Reviewed():
                book.reviews.append(record)
            case PodCalled() if book.is_operator(record.actor):
                book.pod_calls.append(record)
            case Fault():
                book.faults.append(record)
            case Lived() if book.is_operator(record.actor):
                book.runs.take(record)
            case _:
                pass
    # Calls about delayed downscales are another matter, by all paths that sets ever named.
    sets = [one.commit.after for one in book.writes if isinstance(one.now, Set)]
    prepared = {str(annotations(one).get(PREPARE_PATH, "")).strip("/") for one in sets}
    delayed = {read_delay_path(one) for one in sets} - prepared
    calls = book.pod_calls
    book.pod_calls = [one for one in calls if one.path.strip("/") not in delayed]
    book.delay_calls = [one for one in calls if one.path.strip("/") in delayed]
    book.ended_at = max(history.records[-1].at, promises.ended_at or NO_TIME)
    return book


def _take_eviction(book: Book, called: Called) -> None:
    """Find the delete that an eviction has led to: the API server's last call before its answer."""
    if called.request.subresource != "eviction" or called.status >= 300:
        return
    for inner in reversed(book.calls.values()):
        if inner.at != called.at:
            return
        found = (inner.request.verb, inner.request.name, inner.actor)
        if found == ("delete", called.request.name, called.actor):
            book.evictions[inner.number] = called
            return


def _take_commit(book: Book, commit: Commit, seen: dict[tuple[str, str], CacheAge]) -> None:
    plural = commit.resource.plural
    if plural.endswith("webhookconfigurations"):
        book.configurations.append(commit)
    if is_of_releases(commit.resource):
        book.releases.append(commit)
    anywhere = {LEASES.plural: book.leases, REPLICA_TEMPLATES.plural: book.templates}
    if plural in anywhere:
        anywhere[plural].append(commit)
    if commit.namespace != book.promises.namespace:
        return
    ours = {
        ZONE_BUDGETS.plural: book.budgets,
        MULTI_AZ_ROLLOUTS.plural: book.policies,
        ROLLOUT_HEALTH_CHECKS.plural: book.checks,
        CONFIG_MAPS.plural: book.maps,
    }
    if plural in ours:
        ours[plural].append(commit)
    if plural not in _READ:
        return
    write = read_write(commit, seen.pop((plural, commit.name), None))
    if write.now is not None:
        seen[plural, commit.name] = write.now
    book.writes.append(write)


def read_write(commit: Commit, before: CacheAge | None = None) -> Write:
    """Return what a commit did; `before` is what it changed, as far as that was read already."""
    read, now = _READ.get(commit.resource.plural), None
    if read is not None and before is None and commit.before is not None:
        before = read(commit.before)
    if read is not None and commit.after is not None:
        now = read(commit.after)
    return Write(commit=commit, before=before, now=now)


_READ: Final[Mapping[str, Callable[[Json], CacheAge | None]]] = {
    PODS.plural: read_pod,
    STATEFULSETS.plural: read_set,
}


def list_deletes(history: History) -> list[str]:
    return [
        call.request.name
        for call in history.list_all(Called)
        if call.actor == "operator-1" and call.request.verb == "delete" and call.status < 300
    ]


def in_order(*steps: Write | Commit) -> list[Write | Commit]:
    """Return them by revision: all writes have different ones."""
    return sorted(steps, key=lambda one: (one.commit if isinstance(one, Write) else one).revision)


def requested_replicas(called: Called) -> int | None:
    """Return how many replicas a write requests, None where that is unknown."""
    body = called.request.body
    if isinstance(body, dict):
        value = child(body, "spec").get("replicas")
    else:
        steps = (one for one in body or () if one.get("op") != "test")
        value = next((one.get("value") for one in steps if one.get("path") == REPLICAS), None)
    return value if isinstance(value, int) else None


# What a name had is promised to count as used for an hour (D-67), by a clock that may run twice as
# fast as it should.
REMEMBERED: Final = timedelta(minutes=30)


class Disruption(msgspec.Struct):
    """From the commit of a delete until a new pod of that name is ready, or it is not wanted.

    The delete may be what an eviction has led to.
    """

    pod: Pod
    begun: timedelta
    is_ghost: bool  # whether the process that requested it was dead when it happened
    is_eviction: bool = False
    """Whether another client requested it, and the operator only allowed it."""
    disturbs: bool = True  # whether its zone is shorter without the pod (D-88)


class World(msgspec.Struct):
    sets: dict[str, Set] = {}  # by UID
    past: dict[str, Track[Set]] = {}  # by UID, of sets that are gone as well
    gone_at: dict[str, timedelta] = {}  # by UID: when a set went away
    pods: dict[str, Pod] = {}  # by name
    wanted: set[str] = set()  # names of the pods that the sets want
    short_since: dict[str, timedelta] = {}
    """By pod name: since when a wanted ordinal has been unavailable without a break."""
    up_since: dict[str, timedelta] = {}
    """By pod name: since when a pod of that name has been available without a break."""
    fell_at: dict[str, timedelta] = {}
    """By pod name: since when a pod of that name was unavailable the last time."""
    were_ready: dict[str, timedelta] = {}  # by UID, of pods that have been ready: since when first
    open: list[Disruption] = []
    unused: dict[str, timedelta] = {}
    """When an upscale added it, by name: no pod of that name has been ready since (D-67).

    One that had a ready pod lately is none: it comes back with its data.
    """
    idle: set[str] = set()
    """Ordinals that an upscale added, whatever they hold: no pod of them was ready since."""
    last_ready: dict[str, timedelta] = {}
    """By name: until when at least a pod of that name, of whatever set, was ready."""
    spares_new: bool = True
    """Whether ordinals that an upscale added are not missed until a pod of them was ready."""

    def take(self, write: Write) -> None:
        at = write.at
        match write.now or write.before:
            case Set(uid=uid):
                self._take_set(uid, write)
            case Pod(name=name):
                if isinstance(write.before, Pod) and write.before.is_ready:
                    self.last_ready[name] = at
                if isinstance(write.now, Pod):
                    self.pods[name] = write.now
                    if write.now.is_ready:
                        self.were_ready.setdefault(write.now.uid, at)
                else:
                    self.pods.pop(name, None)
                self._record(name, at)
        if self.open:
            self.open = [each for each in self.open if self.lacks(each.pod)]

    def is_available(self, name: str) -> bool:
        """Return whether a ready pod of that name exists and stays."""
        pod = self.pods.get(name)
        return pod is not None and pod.is_ready and not pod.is_terminating

    def serves(self, pod: Pod) -> bool:
        """Return whether a pod is up, or may come up by itself: its delete disturbs (D-88)."""
        return pod.is_ready or (pod.uid in self.were_ready and not pod.is_crash_looping)

    def lacks(self, ended: Pod) -> bool:
        """Return whether a pod that was ended is wanted, and no other one is ready yet."""
        zone, pod = self.sets.get(ended.owner), self.pods.get(ended.name)
        if zone is None or ended.name not in zone.pod_names:
            return False
        return pod is None or pod.uid == ended.uid or not self.is_available(ended.name)

    def members(self, group: str, since: timedelta) -> list[Set]:
        """Return the sets that are in a group, and have been since then."""
        return [
            one
            for one in self.sets.values()
            if one.group == group and self.past[one.uid].begins[0] <= since
            if all(state.group == group for state in self.past[one.uid].window(since))
        ]

    def window(self, uid: str, since: timedelta) -> Sequence[Set]:
        return self.past.get(uid, Track[Set]()).window(since)

    def find_owner(self, uid: str, since: timedelta) -> Set | None:
        """Return a set, or what it was last if it has gone away since then."""
        if uid in self.gone_at and self.gone_at[uid] >= since:
            return self.past[uid].states[-1] if uid in self.past else None
        return self.sets.get(uid)

    def list_short(self, zone: Set, before: timedelta) -> list[str]:
        """Return the wanted pods of a zone that have been unavailable since then or longer."""
        return [
            name
            for name, since in self.short_since.items()
            if since <= before and name.startswith(zone.name) and name in zone.pod_names
        ]

    def is_begun(self, zones: Iterable[Set]) -> bool:
        """Return whether a pod of these zones is up at the update revision."""
        return any(
            self.is_available(name) and self.pods[name].revision == zone.update_revision
            for zone in zones
            for name in zone.pod_names
        )

    def find_whole(self, zones: Iterable[Set], known: timedelta) -> timedelta:
        """Return since when all pods of these zones are available that had to be known to be."""
        times = [
            self.up_since[name] + zone.min_ready
            for zone in zones
            for name in zone.pod_names
            if self.up_since.get(name, FOREVER) <= known
        ]
        return max(times, default=NO_TIME)

    def _take_set(self, uid: str, write: Write) -> None:
        self.sets.pop(uid, None)
        if isinstance(write.now, Set):
            self.sets[uid] = write.now
            self.past.setdefault(uid, Track()).add(write.at, write.now)
        else:
            self.gone_at[uid] = write.at
        old = write.before.pod_names if isinstance(write.before, Set) else None
        new = write.now.pod_names if isinstance(write.now, Set) else None
        if old == new:
            return
        is_change = old is not None and new is not None
        old, new = old or (), new or ()
        added = set(new).difference(old) if is_change and self.spares_new else set()
        # What had a ready pod lately, whatever set it was of, comes back with its data.
        long_ago = write.at - REMEMBERED
        fresh = added.difference(self.pods)
        self.unused.update(
            (name, write.at) for name in fresh if self.last_ready.get(name, long_ago) <= long_ago
        )
        self.idle.update(fresh)
        for name in set(old).difference(new):
            self.unused.pop(name, None)
            self.idle.discard(name)
        self.wanted.difference_update(old)
        self.wanted.update(new)
        for name in (*old, *new):
            self._record(name, write.at)

    def _record(self, name: str, at: timedelta) -> None:
        if self.is_available(name):
            self.up_since.setdefault(name, at)
            self.unused.pop(name, None)
            self.idle.discard(name)
        elif self.up_since.pop(name, None) is not None or name not in self.fell_at:
            self.fell_at[name] = at
        if name not in self.wanted or name in self.unused or self.is_available(name):
            self.short_since.pop(name, None)
        else:
            self.short_since.setdefault(name, at)


def see(book: Book, at: timedelta = FOREVER) -> World:
    """Return the world as it was at a time."""
    world = World()
    for write in book.writes:
        if write.at > at:
            break
        world.take(write)
    return world
