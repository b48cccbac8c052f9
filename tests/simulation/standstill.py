"""A zone that should follow down and stands still though nothing makes it wait: LI-01, D-66.

Judged once all faults are over: nothing moves in the group, every zone is whole, and no time that
the store holds is recent. What a process remembers beyond that is no reason to wait.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, name_of, number
from rollout_operator.lab.model.history import Commit
from tests.simulation.contests import WRITTEN_WITHIN, list_contests
from tests.simulation.promises import Violation
from tests.simulation.recorded import NEVER, Recorded, read_recorded
from tests.simulation.views import Book
from tests.simulation.wishes import read_wish
from tests.world.history import Set, read_set

# A downscale may still persist for 36 s, a failed attempt is repeated after 30 s, and after two
# minutes where it held its group; a zone tracker is read every 30 s.
LIMIT: Final = timedelta(minutes=4)


@dataclass(slots=True)
class _Scene:
    sets: dict[str, JsonObject] = field(default_factory=dict)
    moved_at: timedelta = timedelta(0)


def find_still(book: Book, well_at: timedelta, slack: timedelta) -> Iterator[Violation]:
    """Yield zones that stood still for too long; `slack` is added for events that were lost."""
    recorded, scene = read_recorded(book), _Scene(moved_at=well_at)
    if any(not _is_followed(write.commit) for write in book.writes if isinstance(write.now, Set)):
        return  # mirrors have pods to ask
    if list_contests(book):  # the last one of it may have been shortly before that was over
        slack += WRITTEN_WITHIN
    commits = sorted((one.commit for one in book.writes), key=lambda one: one.revision)
    for commit in commits:
        yield from _judge(scene, recorded, commit.at, LIMIT + slack)
        _take(scene, commit)
    yield from _judge(scene, recorded, book.ended_at, LIMIT + slack)


def _judge(
    scene: _Scene, recorded: Recorded, until: timedelta, limit: timedelta
) -> Iterator[Violation]:
    if until - scene.moved_at <= limit or not all(map(_is_settled, scene.sets.values())):
        return
    waits = max((read_set(one).min_time for one in scene.sets.values()), default=timedelta(0))
    for name in _list_behind(scene.sets):
        free_at = _free_at(name, recorded, scene.moved_at, (until, waits))
        if until - free_at > limit:
            text = f"{name} stood still for {(until - free_at).total_seconds():.0f} s though"
            text += " no time in the store lets it wait"
            yield Violation(invariant="LI-01", at=free_at + limit, text=text)
            scene.moved_at = until  # said once


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
        times = [time for other, time in recorded.list_at(begin).items() if other != name]
        held_until = max((time + wait for time in times if time != NEVER), default=begin)
        free_at = max(begin, held_until) if free_at == until or held_until > begin else free_at
        free_at = min(free_at, until)
    return free_at


def _list_behind(sets: Mapping[str, JsonObject]) -> list[str]:
    """Return the zones that should have fewer replicas, as the zone has that they follow."""
    found = []
    for name, one in sets.items():
        leading = read_wish(one).leading
        if leading is not None and leading in sets and read_wish(one).forced is None:
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


def _is_followed(commit: Commit) -> bool:
    return commit.after is None or not read_wish(commit.after).template


def _take(scene: _Scene, commit: Commit) -> None:
    """Take a write; that of a record alone moves nothing."""
    before = scene.sets.get(commit.name)
    if commit.resource.plural == "statefulsets":
        scene.sets.pop(commit.name, None)
        if commit.after is not None:
            scene.sets[name_of(commit.after)] = commit.after
        if before is not None and commit.after is not None and _rest(before) == _rest(commit.after):
            return
    scene.moved_at = max(scene.moved_at, commit.at)


def _rest(found: JsonObject) -> tuple[object, object, object]:
    """Return what of a set moves anything: all but its times, and what tells of them."""
    return found.get("spec"), found.get("status"), read_wish(found)
