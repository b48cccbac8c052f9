"""Whether a world has come to rest, since when, and what it still lacks: facts for `liveness`.

At rest: each wanted pod of each group is ready at the update revision, which is the current one.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.model.fields import child, name_of, number
from rollout_lab.model.history import Commit

from rollout_operator.kube.api import JsonObject
from tests.judge.book import Book, Write
from tests.judge.desired import read_desired
from tests.judge.invariants_requests import WRITTEN_WITHIN, list_contests
from tests.judge.objects import Pod, Set, read_set
from tests.judge.promises import Violation
from tests.judge.scaling import NEVER, Recorded, read_recorded
from tests.judge.state import World

# Pods that start at once still need a reconcile.
LEAST_POD_TIME: Final = timedelta(seconds=2)


class Rest(msgspec.Struct):
    """The end of a history."""

    world: World
    reached_at: timedelta | None = None
    """Since when nothing of groups has changed and nothing is missing; None where it is."""
    missing: list[str] = []
    blocked: list[str] = []
    """What people have to mend before a group can come to rest."""
    has_broken_outdated: bool = False
    """Whether a pod that waits to be replaced is not ready."""
    last_change: timedelta = timedelta(0)
    """When people last changed what is wanted."""
    pod_time: timedelta = LEAST_POD_TIME
    """The longest that any pod took to go, and to be ready."""
    end_time: timedelta = timedelta(0)
    """The longest that any pod took to go."""
    stays_since: dict[str, timedelta] = {}
    """Of the pods that exist and stay, by UID: since when their sets have wanted them."""


def read_rest(book: Book) -> Rest:
    """Return where a history has ended."""
    world = World()
    rest = Rest(world)
    times = _Times()
    last = timedelta(0)
    for write in book.writes:
        world.take(write)
        times.take(write)
        if write.before != write.now:  # else nothing changed that rest is read from
            last = write.at
        if isinstance(write.before or write.now, Set) and _changes_wish(write):
            rest.last_change = write.at
    rest.pod_time = max(times.longest, LEAST_POD_TIME)
    rest.end_time = times.to_end
    for group in sorted({one.group for one in world.sets.values() if one.group is not None}):
        _read_group(book, rest, group)
    rest.stays_since = dict(_map_staying(world))
    rest.reached_at = None if rest.missing else last
    return rest


def count_batches(book: Book, at: timedelta) -> int:
    """Return how many times a zone still had to wait for pods at a time."""
    world, count = _see(book, at), 0
    for zone in world.sets.values():
        if zone.group is None and not book.policies:
            continue
        pods = [world.pods.get(name) for name in zone.pod_names]
        is_behind = zone.observed < zone.generation
        left = sum(
            is_behind or pod is None or pod.revision != zone.update_revision or not pod.is_ready
            for pod in pods
        )
        count += -(-left // max(zone.limit, 1))
    return count


def count_surplus(book: Book, at: timedelta) -> int:
    """Return how many pods were there that no set wants.

    The controller of an ordered set ends one after the other, and the operator waits for that.
    """
    world = _see(book, at)
    wanted = {name for zone in world.sets.values() for name in zone.pod_names}
    return sum(pod.owner in world.sets and name not in wanted for name, pod in world.pods.items())


def _see(book: Book, at: timedelta) -> World:
    """Return the world as it was."""
    world = World()
    for write in book.writes:
        if write.at > at:
            break
        world.take(write)
    return world


def _read_group(book: Book, rest: Rest, group: str) -> None:
    zones = [one for one in rest.world.sets.values() if one.group == group]
    if any(zone.strategy != "OnDelete" for zone in zones):
        return
    blocked = [text for zone in zones for text in _list_blocked(book, rest, zone)]
    rest.blocked += blocked
    if blocked:
        return
    for zone in zones:
        rest.missing += [f"{zone.name}: {text}" for text in _list_missing(rest, zone)]


def _list_blocked(book: Book, rest: Rest, zone: Set) -> Iterator[str]:
    """Yield what holds a group until people mend it."""
    for name in zone.pod_names:
        pod = rest.world.pods.get(name)
        if pod is None or pod.is_ready or pod.is_terminating:
            continue
        since = rest.world.short_since.get(name, book.ended_at)
        is_lasting = book.ended_at - since > 3 * rest.pod_time
        is_new = pod.revision == zone.update_revision and pod.uid not in rest.world.were_ready
        if is_lasting and is_new:
            yield f"{name} never became ready at the update revision: people have to mend it"
        elif is_lasting and zone.is_paused:
            yield f"{name} is not ready, and {zone.name} is paused: people have to mend it"


def _list_missing(rest: Rest, zone: Set) -> Iterator[str]:
    world = rest.world
    if zone.observed < zone.generation:
        yield "its status lags"
    short = [name for name in zone.pod_names if not world.is_available(name)]
    pods = [pod for name in zone.pod_names if (pod := world.pods.get(name)) is not None]
    if short:
        yield f"not ready: {', '.join(short)}"
    if zone.is_paused or not zone.pod_names:
        return
    outdated = [pod.name for pod in pods if pod.revision != zone.update_revision]
    rest.has_broken_outdated |= any(name in short for name in outdated)
    if outdated:
        yield f"outdated: {', '.join(outdated)}"
    if zone.current_revision != zone.update_revision:
        yield f"current revision {zone.current_revision}, update revision {zone.update_revision}"


def _changes_wish(write: Write) -> bool:
    before = write.before if isinstance(write.before, Set) else None
    now = write.now if isinstance(write.now, Set) else None
    return _wish(before) != _wish(now)


def _wish(zone: Set | None) -> Set | None:
    """Return what people say of a set, without what controllers do."""
    if zone is None:
        return None
    return replace(zone, observed=0, update_revision="", current_revision="", ready_replicas=0)


def _map_staying(world: World) -> Iterator[tuple[str, timedelta]]:
    for pod in world.pods.values():
        past = world.past.get(pod.owner)
        if past is None or pod.owner not in world.sets or pod.is_terminating:
            continue
        since = None
        for begun, state in zip(reversed(past.begins), reversed(past.states), strict=True):
            if pod.name not in state.pod_names:
                break
            since = begun
        if since is not None:
            yield pod.uid, since


class _Times(msgspec.Struct):
    """How long pods took."""

    created: dict[str, timedelta] = {}
    ending: dict[str, timedelta] = {}
    to_ready: timedelta = timedelta(0)
    to_end: timedelta = timedelta(0)

    @property
    def longest(self) -> timedelta:
        return self.to_ready + self.to_end

    def take(self, write: Write) -> None:
        match write.before, write.now:
            case None, Pod(uid=uid):
                self.created[uid] = write.at
            case Pod(uid=uid), None if uid in self.ending:
                self.to_end = max(self.to_end, write.at - self.ending[uid])
            case Pod(), Pod(uid=uid, is_terminating=True):
                self.ending.setdefault(uid, write.at)
            case Pod(), Pod(uid=uid, is_ready=True) if uid in self.created:
                self.to_ready = max(self.to_ready, write.at - self.created.pop(uid))


# A downscale may still persist for 36 s, a failed attempt is repeated after 30 s, and after two
# minutes where it held its group; a zone tracker is read every 30 s.
LIMIT: Final = timedelta(minutes=4)


class _Standstill(msgspec.Struct):
    sets: dict[str, JsonObject] = {}
    moved_at: timedelta = timedelta(0)


def list_still(book: Book, well_at: timedelta, slack: timedelta) -> Iterator[Violation]:
    """Yield zones that stood still for too long; `slack` is added for events that were lost."""
    recorded, standstill = read_recorded(book), _Standstill(moved_at=well_at)
    if any(read_desired(one.commit.after).template for one in book.writes):
        return  # mirrors have pods to call
    if list_contests(book):  # the last one of it may have been shortly before that was over
        slack += WRITTEN_WITHIN
    for write in book.writes:
        yield from _judge(standstill, recorded, write.at, LIMIT + slack)
        _take(standstill, write.commit)
    yield from _judge(standstill, recorded, book.ended_at, LIMIT + slack)


def _judge(
    standstill: _Standstill, recorded: Recorded, until: timedelta, limit: timedelta
) -> Iterator[Violation]:
    if until - standstill.moved_at <= limit or not all(map(_is_settled, standstill.sets.values())):
        return
    waits = max((read_set(one).min_time for one in standstill.sets.values()), default=timedelta(0))
    for name in _list_behind(standstill.sets):
        free_at = _free_at(name, recorded, standstill.moved_at, (until, waits))
        if until - free_at > limit:
            text = f"{name} stood still for {(until - free_at).total_seconds():.0f} s though"
            text += " no time in the store lets it wait"
            yield Violation(invariant="LI-01", at=free_at + limit, text=text)
            standstill.moved_at = until  # said once


def _free_at(
    name: str, recorded: Recorded, since: timedelta, span: tuple[timedelta, timedelta]
) -> timedelta:
    """Return from when on no other zone's time has let a zone wait; the end where one does."""
    until, wait = span
    changes = sorted(
        {since, *(one.at for all_ in recorded.entries.values() for one in all_ if one.at > since)}
    )
    free_at = until
    for begin in changes:
        if begin >= until:
            break
        times = [time for other, time in recorded.map_replicas_at(begin).items() if other != name]
        held_until = max((time + wait for time in times if time != NEVER), default=begin)
        free_at = max(begin, held_until) if free_at == until or held_until > begin else free_at
        free_at = min(free_at, until)
    return free_at


def _list_behind(sets: Mapping[str, JsonObject]) -> list[str]:
    """Return the zones that should have fewer replicas, as the zone has that they follow."""
    found = []
    for name, one in sets.items():
        leading = read_desired(one).leading
        if leading is not None and leading in sets and read_desired(one).forced is None:
            wanted = number(sets[leading], "spec", "replicas", default=1)
            if wanted < number(one, "spec", "replicas", default=1):
                found.append(name)
    return found


def _is_settled(found: JsonObject) -> bool:
    wanted = number(found, "spec", "replicas", default=1)
    status = child(found, "status")
    counts = [status.get(key) or 0 for key in ("replicas", "availableReplicas")]
    is_seen = status.get("observedGeneration") == child(found, "metadata").get("generation")
    is_rolled = status.get("currentRevision") == status.get("updateRevision")
    return counts == [wanted, wanted] and is_seen and is_rolled


def _take(standstill: _Standstill, commit: Commit) -> None:
    """Take a write; that of a record alone moves nothing."""
    before = standstill.sets.get(commit.name)
    if commit.resource.plural == "statefulsets":
        standstill.sets.pop(commit.name, None)
        if commit.after is not None:
            standstill.sets[name_of(commit.after)] = commit.after
        if before is not None and commit.after is not None and _rest(before) == _rest(commit.after):
            return
    standstill.moved_at = max(standstill.moved_at, commit.at)


def _rest(found: JsonObject) -> tuple[object, object, object]:
    """Return what of a set moves anything: all but its times, and what repeats them."""
    return found.get("spec"), found.get("status"), read_desired(found)
