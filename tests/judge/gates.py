"""What is promised of health checks between zones: SI-28, by the objects as they were written.

At each delete of a pod that was up the status must say that the gate of its zone has passed, unless
it is the first zone, goes back, or somebody let it through. When that is written, the status must
show that all checks passed on pods that had been updated for as long as their range.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from rollout_lab.model.fields import child
from rollout_lab.model.history import Commit
from rollout_lab.world import EPOCH

from rollout_operator.kube.api import PODS
from tests.judge.book import Book, Track, World, in_order
from tests.judge.deletes import Delete, get_sent, list_unanswered, map_deletes
from tests.judge.objects import Json, Pod, Set, read_time
from tests.judge.promises import Violation
from tests.judge.releases import list_missed

_RANGE: Final = "5m"
_Tracks = dict[str, Track[Json | None]]


def list_broken(book: Book) -> Iterator[Violation]:
    if not book.checks:
        return
    deletes, world = map_deletes(book), World()
    born: dict[str, timedelta] = {}
    tracks: _Tracks = {}
    for commit in book.checks:
        tracks.setdefault(commit.name, Track()).add(commit.at, commit.after)
    for step in in_order(*book.checks, *book.writes):
        since = step.at - book.promises.known
        if isinstance(step, Commit):
            # Late on its way, it says what was right when it was sent: a zone without updated pods
            # waits for checks all the same.
            called = book.calls.get(step.call)
            sent_at = step.at if called is None else get_sent(book, called)
            # A mark lets no pod go by itself: that rests on a live read.
            missed = list_missed(book, step, PODS)
            known = _Known(world, born, min([sent_at, *missed]) - book.promises.known)
            yield from _judge_marks(step, known, book.promises.time_error)
            continue
        pod, delete = step.ended_pod, deletes.get(step.commit.call)
        if pod and delete and not _is_repeated(delete, deletes, book, world):
            # One without an answer goes on.
            begun = [one.sent_at - book.promises.known for one in list_unanswered(deletes, delete)]
            known = _Known(world, born, min([delete.cut(since), *begun]))
            yield from _judge_delete(pod, delete, known, tracks)
        world.take(step)
        if isinstance(step.now, Pod):
            born.setdefault(step.now.uid, step.at)


class _Known(NamedTuple):
    """The world at a moment, and what of it any process had to know by then."""

    world: World
    born: Mapping[str, timedelta]
    """By UID: when a pod was created."""
    at: timedelta

    def list_updated(self, zone: Set, record: Json) -> list[str]:
        """Return the updated pods of a zone, without those that came since then."""
        updated = _list_updated(zone, record, self.world)
        return [pod.name for pod in updated if self.born[pod.uid] <= self.at]

    def has_followed(self, name: str, zone: Set, record: Json) -> bool:
        """Return whether a pod came after the first updated pod of a zone."""
        born = [self.born[pod.uid] for pod in _list_updated(zone, record, self.world)]
        return bool(born) and min(born) < self.born[self.world.pods[name].uid]

    def has_fallen(self, name: str) -> bool:
        """Return whether a pod broke since then."""
        return self.world.fell_at.get(name, timedelta(0)) > self.at


def _is_repeated(delete: Delete, deletes: Mapping[int, Delete], book: Book, world: World) -> bool:
    """Return whether it was requested first while the pod was down, which waits for no check.

    Of a request that never arrived only its fault is left.
    """
    name, (uid, _) = delete.called.request.name, delete.precondition
    fell, up_since = world.fell_at.get(name), world.up_since.get(name, timedelta(0))
    times = [one.sent_at for one in deletes.values() if one.precondition[0] == uid]
    if fell is not None:
        what = f": delete pods/{name}: "
        times += [one.at for one in book.faults if one.at >= fell and what in one.text]
    return any(at < up_since for at in times)


def _judge_delete(pod: Pod, delete: Delete, known: _Known, tracks: _Tracks) -> Iterator[Violation]:
    owner = known.world.sets.get(pod.owner)
    if owner is None or not owner.check or not known.world.serves(pod):
        return
    zones = known.world.window(owner.uid, known.at)
    if any(zone.check != owner.check or zone.bypass for zone in zones):
        return  # judged where nothing but time changes what is requested
    revisions = {zone.update_revision for zone in zones}
    if len(revisions) > 1:
        return
    track = tracks.get(owner.check, Track[Json | None]())
    states = track.window(known.at, delete.called.at)
    if states and not any(_lets(state, owner, known) for state in states):
        at = delete.called.at
        yield Violation("SI-28", at, f"delete of {pod.name}: {owner.check} did not let it begin")


def _lets(check: Json | None, owner: Set, known: _Known) -> bool:
    """Return whether a status lets a zone go on."""
    if check is None:
        return True
    found = _find_records(check, owner)
    own = found.get(owner.name)
    if own is None:
        return False
    if "passedAt" in own or own.get("stableRevision") == owner.update_revision:
        return True
    others = _list_recorded(found, owner, known.world)
    return not any(known.list_updated(zone, found[zone.name]) for zone in others)


def _find_records(check: Json, owner: Set) -> dict[str, Json]:
    """Return what a status has of the StatefulSets of a group, for their newest revisions."""
    return {one["name"]: one for one in _find_group(check, owner).get("statefulSets", ())}


def _find_group(check: Json, owner: Set) -> Json:
    """Return what a status has of the group of a StatefulSet, be that of a label or a policy."""
    groups: Any = child(check, "status").get("groups", ())
    mine = (
        one
        for one in groups
        if any(each["name"] == owner.name for each in one.get("statefulSets", ()))
    )
    return next(mine, {})


def _list_recorded(found: dict[str, Json], owner: Set, world: World) -> list[Set]:
    """Return the other zones that are recorded at the revision they want."""
    return [
        zone
        for zone in world.sets.values()
        if zone.group == owner.group and zone.uid != owner.uid
        if found.get(zone.name, {}).get("updateRevision") == zone.update_revision
        if found[zone.name].get("stableRevision") != zone.update_revision
    ]


def _list_updated(zone: Set, record: Json, world: World) -> list[Pod]:
    """Return the pods that were created at the update revision since that is recorded."""
    pods = [world.pods[name] for name in zone.pod_names if name in world.pods]
    updated = (pod for pod in pods if pod.revision == zone.update_revision)
    return [pod for pod in updated if pod.created >= record["seenAt"]]


def _judge_marks(commit: Commit, known: _Known, error: timedelta) -> Iterator[Violation]:
    """Judge that a zone is let begin by checks that passed on samples of updated pods alone.

    One pass lets one zone begin: no other one that comes first is still under way.
    """
    if commit.before is None or commit.after is None:
        return
    world = known.world
    for zone in [one for one in world.sets.values() if one.check == commit.name]:
        before = _find_records(commit.before, zone).get(zone.name, {})
        found = _find_records(commit.after, zone)
        own = found.get(zone.name, {})
        if "passedAt" in before or "passedAt" not in own or zone.bypass:
            continue
        others = _list_recorded(found, zone, world)
        updated = [
            name
            for other in others
            for name in known.list_updated(other, found[other.name])
            # What came later in another zone does not take from the first that it was begun.
            if not known.has_fallen(name) and not known.has_followed(name, zone, own)
        ]
        for other in others:
            is_before = zone.group is None or other.name < zone.name
            if is_before and _is_under_way(other, found[other.name], known):
                text = (
                    f"{zone.name} was let begin by {commit.name} while {other.name} was under way"
                )
                yield Violation("SI-28", commit.at, text)
        if not updated:
            continue
        since = max(world.up_since.get(name, timedelta.max) for name in updated)
        for check, why in _list_failed(commit.after, zone, since, error):
            text = f"{zone.name} was let begin by {commit.name}: {check} {why}"
            yield Violation("SI-28", commit.at, text)


def _is_under_way(zone: Set, record: Json, known: _Known) -> bool:
    """Return whether a zone was let begin, and has pods that still have to be replaced."""
    states = known.world.window(zone.uid, known.at)
    if "passedAt" not in record or any(one.is_paused for one in states):
        return False
    revisions = {one.update_revision for one in states}
    pods = [known.world.pods[name] for name in zone.pod_names if known.world.is_available(name)]
    return len(revisions) == 1 and any(pod.revision not in revisions for pod in pods)


def _list_failed(
    found: Json, zone: Set, since: timedelta, error: timedelta
) -> Iterator[tuple[str, str]]:
    results = {one["name"]: one for one in _find_group(found, zone).get("checks", ())}
    checks: Any = child(found, "spec")["checks"]
    for check in checks:
        state = results.get(check["name"])
        if state is None or state.get("result") != "pass":
            yield check["name"], "has not passed"
            continue
        span = read_time(check.get("currentRange", _RANGE))
        begin = datetime.fromisoformat(state["evaluatedAt"]) - EPOCH - span
        if begin + error < since:
            yield check["name"], f"reaches back to {begin.total_seconds():.1f} s"
