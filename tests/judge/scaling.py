"""What is promised of the counts that the operator writes: by SCALE-05, MIRR-04, DELAY-06 to 08.

And that nothing else takes pods of the group away meanwhile (D-25). Only what the operator wrote
itself is judged; what people write is judged in `downscales`, and so is all that webhooks guard, by
any client.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from rollout_lab.model.fields import child, children, number
from rollout_lab.model.history import Called, PodCalled

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.judge.book import Book, Disruption, Track, World, Write
from tests.judge.deletes import Delete, get_sent, is_live, map_deletes
from tests.judge.downscales import CLOCK_ERROR, get_horizon
from tests.judge.objects import DesiredReplicas, Pod, Set, read_desired
from tests.judge.promises import Violation

# So long may a cache be behind without proof: upscales and readings of references
# rest on one. The longest of the faults of events, and some.
_V = TypeVar("_V")
OLDEST_SNAPSHOT: Final = timedelta(minutes=6)


class Scaling(msgspec.Struct, frozen=True):
    write: Write
    before: Set
    now: Set
    called: Called
    desired: DesiredReplicas  # what the set said when it was written
    sent_at: timedelta
    read_at: timedelta | None
    """When the newest live read of sets and pods began before it was sent, None without one."""

    @property
    def at(self) -> timedelta:
        return self.write.at

    @property
    def is_downscale(self) -> bool:
        return self.now.replicas < self.before.replicas

    @property
    def text(self) -> str:
        return f"{self.before.name} was set from {self.before.replicas} to {self.now.replicas}"

    @property
    def decided(self) -> tuple[timedelta, timedelta]:
        begin = self.sent_at if self.read_at is None else self.read_at
        return begin, self.sent_at

    def known(self, span: timedelta) -> timedelta:
        """Return when a fact must have begun to be one that the operator had to know."""
        return min(self.sent_at - span, self.sent_at if self.read_at is None else self.read_at)


def collect_replicas(book: Book, name: str, span: tuple[timedelta, timedelta]) -> set[int]:
    sets = [(one.at, one.now) for one in book.writes if isinstance(one.now, Set)]
    return _collect(((at, one.replicas) for at, one in sets if one.name == name), span)


def collect_forced(book: Book, uid: str, span: tuple[timedelta, timedelta]) -> set[int | None]:
    writes = (one for one in book.writes if isinstance(one.now, Set) and one.now.uid == uid)
    return _collect(((one.at, read_desired(one.commit.after).forced) for one in writes), span)


def collect_template_replicas(book: Book, name: str, span: tuple[timedelta, timedelta]) -> set[int]:
    known = [(one.at, one.after) for one in book.templates if one.name == name]
    counts = ((at, number(one, "spec", "replicas", default=1)) for at, one in known if one)
    return _collect(counts, span)


def list_scalings(book: Book) -> list[Scaling]:
    found: list[Scaling] = []
    for write in book.writes:
        called = book.calls.get(write.commit.call)
        match write.before, write.now:
            case Set() as before, Set() as now if called and before.replicas != now.replicas:
                if book.is_operator(write.commit.actor):
                    sent_at = get_sent(book, called)
                    desired = read_desired(write.commit.before)
                    read_at = _find_live_read(book, called, sent_at)
                    found.append(Scaling(write, before, now, called, desired, sent_at, read_at))
    return found


def _find_live_read(book: Book, called: Called, sent_at: timedelta) -> timedelta | None:
    """Return when the newest live read began whose lists of both kinds had been answered."""
    newest: dict[str, timedelta] = {}
    for one in book.own_calls:
        request = one.request
        is_live_list = request.verb == "list" and one.status < 400 and is_live(one)
        if is_live_list and one.actor == called.actor and one.at <= sent_at:
            newest[request.resource.plural] = one.begun
    times = [newest.get(one.plural) for one in (STATEFULSETS, PODS)]
    return None if None in times else min(one for one in times if one is not None)


def _collect(states: Iterable[tuple[timedelta, _V]], span: tuple[timedelta, timedelta]) -> set[_V]:
    track: Track[_V] = Track()
    for at, state in states:
        track.add(at, state)
    begin, end = span
    return {*track.window(begin, end)}


# A downscale rests on a read that is not older, but for calls that are slow.
LIVE_READ_LASTS: Final = timedelta(seconds=60)


def list_broken(book: Book) -> Iterator[Violation]:
    scalings = list_scalings(book)
    if not scalings:
        return
    words = _Words(book)
    for scaling in scalings:
        yield from _judge_source(book, scaling)
        if scaling.is_downscale:
            read_at = scaling.read_at
            if read_at is None or scaling.sent_at - read_at > LIVE_READ_LASTS:
                span = f"{LIVE_READ_LASTS.total_seconds():.0f} s"
                yield Violation(
                    "SI-09", scaling.at, f"{scaling.text} on no live read of its last {span}"
                )
            yield from _judge_words(book, scaling, words)
    yield from _judge_alone(book, scalings)


def _judge_source(book: Book, scaling: Scaling) -> Iterator[Violation]:
    """SCALE-05, SCALE-11, MIRR-04: the count is one that was wanted, and not long ago."""
    desired, count = scaling.desired, scaling.now.replicas
    since = scaling.known(OLDEST_SNAPSHOT)
    if desired.leading is not None:
        if scaling.is_downscale:
            since = scaling.known(book.promises.known)
        wanted = collect_replicas(book, desired.leading, (since, scaling.at))
        rule, source = "SCALE-05", desired.leading
    else:
        wanted = collect_template_replicas(book, desired.template, (since, scaling.at))
        if desired.delay and scaling.is_downscale:
            # On the way, as far as pods allow.
            wanted = {
                one for one in range(scaling.before.replicas) if one >= min(wanted, default=0)
            }
        rule, source = "MIRR-04", desired.template
    forced = collect_forced(book, scaling.before.uid, (scaling.known(OLDEST_SNAPSHOT), scaling.at))
    if count not in wanted | forced:
        text = f"{scaling.text}; {source or 'no source'} wanted {sorted(wanted)}"
        yield Violation(rule, scaling.at, text)


def _judge_words(book: Book, scaling: Scaling, words: "_Words") -> Iterator[Violation]:
    """DELAY-08: each pod that goes had been prepared for long enough, by its own word.

    What a person forces, also a step on the way to it, is kept up by none that did not run when the
    operator read.
    """
    delay = scaling.desired.delay
    if not delay or not scaling.desired.template:
        return
    excused = words.collect_unused(scaling)
    forced = collect_forced(book, scaling.before.uid, scaling.decided)
    if any(one is not None and one <= scaling.now.replicas for one in forced):
        excused |= words.collect_idle(scaling)
    for pod in words.list_removed(scaling):
        if pod.name in excused:
            continue
        if lack := words.name_lack(pod, scaling, delay):
            yield Violation("DELAY-08", scaling.at, f"{scaling.text}: {pod.name} {lack}")
        horizon = get_horizon(book, scaling.write, pod)
        for call in words.calls.get(pod.uid, ()):
            if call.method != "DELETE" or not call.acted:
                continue
            if scaling.at < call.begun < horizon:
                text = f"{pod.name} was told that it stays, after {scaling.text}"
                yield Violation("SI-12", call.begun, text)
            elif call.begun <= scaling.at < call.at < horizon:
                text = f"{scaling.text}: {pod.name} acts after it on a call that it stays"
                yield Violation("DELAY-08", call.at, text)


class _Words:
    """What pods were sent about delayed downscales, and which have forgotten it since."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._known = book.promises.known
        self.calls: dict[str, list[PodCalled]] = {}
        for call in sorted(book.delay_calls, key=lambda one: one.at):
            self.calls.setdefault(call.uid, []).append(call)
        self._stops: dict[str, list[timedelta]] = {}
        self._pods: list[tuple[timedelta, str, Pod | None]] = []
        for write in book.writes:
            if isinstance(write.now or write.before, Pod):
                now = write.now if isinstance(write.now, Pod) else None
                self._pods.append((write.at, write.commit.name, now))
                statuses = children(write.commit.after or {}, "status", "containerStatuses")
                runs = bool(statuses) and all("running" in child(one, "state") for one in statuses)
                if now is not None and not runs:  # a restart makes it forget everything
                    self._stops.setdefault(now.uid, []).append(write.at)

    def list_removed(self, scaling: Scaling) -> list[Pod]:
        names = scaling.before.pod_names[scaling.now.replicas :]
        found: dict[str, Pod] = {}
        for at, name, pod in self._pods:
            if at > scaling.at:
                break
            if pod is not None and name in names:
                found[name] = pod
            else:
                found.pop(name, None)
        return [pod for pod in found.values() if pod.owner == scaling.before.uid]

    def collect_unused(self, scaling: Scaling) -> set[str]:
        """Return the names of which no pod was ever ready when the operator read live.

        One that becomes ready between that read and the commit is lost to any operator: a write can
        test the set alone, whose status counts the pod as ready a while after the kubelet does.
        """
        world, (begin, _) = World(), scaling.decided
        for write in self._book.writes:
            if write is scaling.write or write.at > begin:
                break
            world.take(write)
        return {*world.idle}

    def collect_idle(self, scaling: Scaling) -> set[str]:
        """Return the names of which no pod ran all the time since the operator last read.

        One on its way out runs no more: what it confirmed ends with it.
        """
        begin, end = scaling.decided
        ran: dict[str, bool] = {}
        always = {*scaling.before.pod_names}
        for at, name, pod in self._pods:
            if at > begin:
                always -= {one for one in always if not ran.get(one)}
            if at > end:
                break
            ran[name] = pod is not None and pod.is_running and not pod.is_terminating
        return {*scaling.before.pod_names} - {one for one in always if ran.get(one)}

    def name_lack(self, pod: Pod, scaling: Scaling, delay: timedelta) -> str:
        known = scaling.known(self._known)
        since, said = self._get_since(pod, known, scaling.sent_at)
        if since is None:
            return "was not prepared, or has forgotten it"
        if said is None:
            return "has given no word"
        waited = scaling.sent_at - since + CLOCK_ERROR
        if waited < delay:
            return f"was prepared for {waited.total_seconds():.1f} s, {delay} were wanted"
        return ""

    def _get_since(
        self, pod: Pod, known: timedelta, until: timedelta
    ) -> tuple[timedelta | None, timedelta | None]:
        stops = [at for at in self._stops.get(pod.uid, ()) if at <= known]
        since = said = None
        for call in self.calls.get(pod.uid, ()):
            if call.at > until:
                break
            if since is not None and any(since < at <= call.at for at in stops):
                since = said = None
            if call.acted:
                since = None if call.method == "DELETE" else since or call.at
            if call.method == "POST" and call.acted and 200 <= call.status < 300:
                said = call.at
            said = None if since is None else said
        if since is not None and any(since < at for at in stops):
            return None, None
        return since, said


def _judge_alone(book: Book, scalings: list[Scaling]) -> Iterator[Violation]:
    """D-25: no unguarded downscale while another zone has pods down for a rollout of its own."""
    unguarded = (one for one in scalings if one.is_downscale and not one.before.must_prepare)
    judged = {id(one.write): one for one in unguarded}
    if not judged:
        return
    world, deletes = World(), map_deletes(book)
    for write in book.writes:
        scaling = judged.get(id(write))
        removed = scaling.before.pod_names[scaling.now.replicas :] if scaling else ()
        if scaling is not None and not _collect_idle(book, world, scaling) >= {*removed}:
            yield from _list_neighbours(book, world, scaling)
            yield from _list_between(world, deletes, scaling)
        world.take(write)
        pod = write.ended_pod
        requested = None if pod is None else deletes.get(write.commit.call)
        if pod is not None and requested is not None and not requested.is_late:
            world.open.append(Disruption(pod, write.at, is_ghost=False))


def _collect_idle(book: Book, world: World, scaling: Scaling) -> set[str]:
    """Return the ordinals that take nothing away: what an upscale added and was never ready.

    Where a person forces the count, also those of which no pod that exists was ever ready.
    """
    forced = collect_forced(book, scaling.before.uid, scaling.decided)
    if not any(one is not None and one <= scaling.now.replicas for one in forced):
        return world.idle
    pods = {name: world.pods.get(name) for name in scaling.before.pod_names}
    never = {name for name, pod in pods.items() if pod is None or pod.uid not in world.were_ready}
    return world.idle | never


def _list_others(world: World, scaling: Scaling, since: timedelta) -> list[Set]:
    group = scaling.before.group
    members = [] if group is None else world.members(group, since)
    return [one for one in members if one.uid != scaling.before.uid]


def _list_neighbours(book: Book, world: World, scaling: Scaling) -> Iterator[Violation]:
    known = scaling.known(book.promises.known)
    rolled = {one.pod.name for one in world.open if one.begun < known}
    for zone in _list_others(world, scaling, known):
        short = [
            name
            for name in world.list_short(zone, known)
            if name in rolled or _is_outdated(world, zone, known)
        ]
        if short:
            text = f"{scaling.text} while {zone.name} is being rolled out: {', '.join(short)} down"
            yield Violation("SI-02", scaling.at, text)


def _is_outdated(world: World, zone: Set, known: timedelta) -> bool:
    """Return whether any pod of a zone has had to be replaced all the time since then."""
    pods = [world.pods.get(name) for name in zone.pod_names]
    states = world.window(zone.uid, known)
    return any(
        pod is not None and all(pod.revision != one.update_revision for one in states)
        for pod in pods
    )


def _list_between(
    world: World, deletes: dict[int, Delete], scaling: Scaling
) -> Iterator[Violation]:
    """Yield deletes in other zones between the read of a downscale and its write."""
    if scaling.read_at is None or scaling.sent_at < scaling.called.begun:
        return
    names = {one.name for one in _list_others(world, scaling, scaling.at)}
    for delete in deletes.values():
        called = delete.called
        is_between = scaling.read_at < called.begun < scaling.at and not delete.is_late
        zone = called.request.name.rpartition("-")[0]
        if is_between and called.status < 300 and zone in names:
            text = f"delete of {called.request.name} just before {scaling.text}"
            yield Violation("SI-02", called.at, text)
