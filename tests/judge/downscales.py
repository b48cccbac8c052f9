"""What is promised of downscales that persist, and of calls to pods: SI-02, SI-10 to SI-14, SI-21.

Only what webhooks in force should have guarded is judged: a set counts as guarded while a webhook
configuration with failure policy Fail sends its writes to the operator. What repeated reviews and
dry runs may leave behind is judged in `reviews`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
from rollout_lab.model.fields import child, children, text
from rollout_lab.model.history import Called, PodCalled, Reviewed
from rollout_lab.world import EPOCH

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.model.names import LAST_DOWNSCALE, NO_DOWNSCALE
from rollout_operator.model.names import PREPARE_PATH as PREPARE_PATH_KEY
from tests.judge.book import FOREVER, NO_TIME, Book, Track, World, Write, once, requested_replicas
from tests.judge.deletes import DELAYING, IN_FLIGHT, get_sent
from tests.judge.objects import (
    Pod,
    Set,
    annotations,
    is_brake_on,
    labels,
    read_delay_path,
    read_desired,
)
from tests.judge.promises import Violation

NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_PATH: Final = "/admission/prepare-downscale"


class Downscale(msgspec.Struct, frozen=True, kw_only=True):
    write: Write
    before: Set
    now: Set
    called: Called | None  # the request; None where the API server did it by itself
    members: tuple[Set, ...]  # of the group, at that moment
    wait: timedelta  # the least that the zones have required together since the request was made
    removed: tuple[Pod, ...]  # those which existed and had been ready before the hook read
    is_spare: bool  # whether it takes only what an upscale added and was never up
    reviews: tuple[Reviewed, ...]  # of its request, by prepare-downscale
    short: Mapping[str, timedelta]
    """Wanted pods of other zones of the group that were unavailable, and since when."""
    guards: frozenset[str]  # paths of the webhooks in force: PREPARE_PATH, NO_DOWNSCALE_PATH

    @property
    def at(self) -> timedelta:
        return self.write.at

    @property
    def begun(self) -> timedelta:
        return self.at if self.called is None else self.called.begun

    @property
    def must_prepare(self) -> bool:
        return self.before.must_prepare and PREPARE_PATH in self.guards

    @property
    def is_forbidden(self) -> bool:
        label = labels(self.write.commit.before).get(NO_DOWNSCALE)
        is_on = is_brake_on(label if isinstance(label, str) else None)
        return is_on and NO_DOWNSCALE_PATH in self.guards

    @property
    def text(self) -> str:
        return f"downscale of {self.before.name} from {self.before.replicas} to {self.now.replicas}"


_Hooks = Mapping[str, Sequence[JsonObject]]
"""By name of the configuration."""


def _read_guards(book: Book) -> Track[_Hooks]:
    guards: Track[_Hooks] = Track()
    hooks: _Hooks = {}
    for commit in book.configurations:
        hooks = {**hooks, commit.name: children(commit.after or {}, "webhooks")}
        guards.add(commit.at, hooks)
    return guards


@once
def list_downscales(book: Book) -> list[Downscale]:
    guards, world, found = _read_guards(book), World(), []
    for write in book.writes:
        match write.before, write.now:
            case Set() as before, Set() as now if now.replicas < before.replicas:
                found.append(_read(book, guards, world, (write, before, now)))
        world.take(write)
    return found


def list_reviews(book: Book, path: str) -> list[Reviewed]:
    return [one for one in book.reviews if urlsplit(one.path).path == path]


def _read(
    book: Book, guards: Track[_Hooks], world: World, change: tuple[Write, Set, Set]
) -> Downscale:
    write, before, now = change
    called = book.calls.get(write.commit.call)
    begun, number = (write.at, -1) if called is None else (called.begun, called.number)
    members = tuple(world.members(before.group, write.at)) if before.group is not None else ()
    gone = [name for name in before.pod_names if name not in now.pod_names]
    pods = [world.pods[name] for name in gone if name in world.pods]
    subresource = "" if called is None else called.request.subresource
    known = write.at if book.promises.is_observed else begun - book.promises.known
    is_spare = world.idle >= {*gone}
    read_at = _get_live_read(book, write)
    return Downscale(
        write=write,
        before=before,
        now=now,
        called=called,
        members=members,
        # The longest wait of all zones, of each the shortest that it had of late.
        wait=max(
            min((state.min_time for state in world.window(one.uid, known)), default=one.min_time)
            for one in (before, *members)
        ),
        removed=tuple(
            pod
            for pod in pods
            if pod.owner == before.uid and world.were_ready.get(pod.uid, read_at) < read_at
            # Of one that fell as it started its status, of whole seconds, says that it never was.
            if pod.is_ready or world.fell_at[pod.name] - world.were_ready[pod.uid] >= _START
        ),
        is_spare=is_spare,
        reviews=tuple(one for one in list_reviews(book, PREPARE_PATH) if one.call == number),
        short={
            name: world.short_since[name]
            for one in members
            # What never was up is not missed.
            if one.uid != before.uid and not is_spare
            for name in world.list_short(one, write.at)
        },
        # What an update of the set, or of its subresource, was sent to.
        guards=frozenset(
            text(hook, "clientConfig", "service", "path")
            for hooks in (guards.find(begun) or {}).values()
            for hook in hooks
            if _covers(hook, subresource)
        ),
    )


def _get_live_read(book: Book, write: Write) -> timedelta:
    """Return when the last read of a group began that allowed a write; its own time without one.

    A pod that becomes ready between read and write was never ready for all that could be known.
    """
    read_at = write.at
    for review in reversed(list_reviews(book, PREPARE_PATH)):
        is_last = read_at == write.at and review.call == write.commit.call
        # The same request while another is being answered shares its read.
        is_shared = (
            read_at != write.at and review.name == write.commit.name and review.at >= read_at
        )
        if review.begun < read_at and (is_last or is_shared):
            read_at = review.begun
    return read_at


def _covers(hook: JsonObject, subresource: str) -> bool:
    """Return whether a hook reviews updates, and its failure forbids."""
    wanted = f"statefulsets/{subresource}" if subresource else "statefulsets"
    resources = {wanted, "*/*", f"*/{subresource}" if subresource else "*"}
    return hook.get("failurePolicy", "Fail") == "Fail" and any(
        resources.intersection(_words(rule, "resources"))
        and {"UPDATE", "*"}.intersection(_words(rule, "operations"))
        for rule in children(hook, "rules")
    )


def _words(rule: JsonObject, key: str) -> Iterator[str]:
    found = rule.get(key)
    return (str(one) for one in (found if isinstance(found, list) else ()))


# For so long after a change of the annotation the former path may still be called.
STALE: Final = timedelta(seconds=120)


class Targets(msgspec.Struct):
    owners: dict[str, Track[str]] = {}
    """By UID of the pod: UIDs of its sets; empty while it had none."""
    names: dict[str, str] = {}  # of pods, by UID
    paths: dict[str, Track[tuple[str, ...]]] = {}
    """By UID of the set: those of preparations and of delayed downscales."""

    def name_fault(self, call: PodCalled) -> str:
        if call.method not in ("POST", "DELETE"):
            return "no such call is ever made"
        if self.names.get(call.uid) != call.pod:
            return f"no pod of the namespace has the uid {call.uid}"
        paths = self.paths.get(self._find_owner(call))
        if paths is None:
            return "no statefulset owns it"
        if call.method == "POST":
            states = paths.window(call.begun - STALE, call.begun)
        else:
            # Where a pod was prepared it is un-prepared, however late (D-24), by whatever set.
            sets = [self.paths.get(one, Track()) for one in self.owners[call.uid].states]
            states = [state for one in sets for state in one.window(timedelta.min, call.begun)]
        known = [path for state in states for path in state]
        path = call.path.strip("/")
        return "" if path in known else f"its set wants {' or '.join(known) or 'none'}"

    def _find_owner(self, call: PodCalled) -> str:
        """Return who owns a pod, or did before it was let go: lately, or when it was prepared."""
        owners = self.owners[call.uid]
        known = owners.window(timedelta.min, call.begun) or owners.states[:1]
        since = owners.begins[len(known) - 1]
        is_long = call.method == "POST" and call.begun - since > STALE
        return known[-1] if known[-1] or len(known) == 1 or is_long else known[-2]


def read_targets(book: Book) -> Targets:
    targets = Targets()
    for write in book.writes:
        match write.now:
            case Pod() as pod:
                owners = targets.owners.setdefault(pod.uid, Track())
                if owners.states[-1:] != [pod.owner]:
                    owners.add(write.at, pod.owner)
                targets.names[pod.uid] = pod.name
            case Set() as zone:
                after = write.commit.after
                path = str(annotations(after).get(PREPARE_PATH_KEY, "")).strip("/")
                paths = tuple(one for one in (path, read_delay_path(after)) if one)
                targets.paths.setdefault(zone.uid, Track()).add(write.at, paths)
    return targets


FORGED: Final = "hook_forged"


def describe_review(body: bytes) -> str:
    review = cast(JsonObject, msgspec.json.decode(body))
    request = child(review, "request")
    about = child(request, "object")
    name = text(request, "name") or text(about, "metadata", "name")
    is_dry = bool(request.get("dryRun")) or bool(child(about, "deleteOptions").get("dryRun"))
    return _word(text(request, "namespace"), name, is_dry=is_dry)


def list_earnest(book: Book, path: str, name: str) -> Iterator[timedelta]:
    """Yield when forged reviews on a path were about an object, and not for a dry run."""
    requested = _word(book.promises.namespace, name, is_dry=False)
    for fault in book.faults:
        place, _, what = fault.text.partition(": ")
        is_there = place.removeprefix("at ").partition("?")[0] == path
        if fault.kind == FORGED and is_there and what == requested:
            yield fault.at


def _word(namespace: str, name: str, *, is_dry: bool) -> str:
    return f"{'a dry run' if is_dry else 'in earnest'} about {namespace}/{name}"


NEVER: Final = timedelta.min
_START: Final = timedelta(seconds=3)
UNREADABLE: Final = timedelta.max


class Entry(msgspec.Struct, frozen=True):
    at: timedelta
    time: timedelta
    """When it was scaled down last, on the clock of the world; NEVER where nothing says so."""
    is_of_person: bool


class Recorded(msgspec.Struct):
    """All entries by name of the zone, in order; each is another than that before it."""

    entries: dict[str, list[Entry]] = {}

    def map_replicas_at(self, at: timedelta) -> dict[str, timedelta]:
        found = {name: [one for one in all_ if one.at <= at] for name, all_ in self.entries.items()}
        return {name: entries[-1].time for name, entries in found.items() if entries}

    def was_released(self, name: str, since: timedelta, until: timedelta, wait: timedelta) -> bool:
        """Return whether a person made a downscale of a zone no reason to wait any more."""
        return any(
            one.is_of_person and since < one.at < until and until - wait >= one.time
            for one in self.entries.get(name, ())
        )

    def find_forbidden(
        self, name: str, known: timedelta, at: timedelta, wait: timedelta
    ) -> Entry | None:
        """Return what a person wrote, in time to be known, that lets others wait still."""
        entries = [one for one in self.entries.get(name, ()) if one.at <= at]
        if not entries or not entries[-1].is_of_person or entries[-1].at > known:
            return None
        last = entries[-1]
        return last if last.time != UNREADABLE and at - last.time < wait else None

    def add(self, name: str, entry: Entry) -> None:
        entries = self.entries.setdefault(name, [])
        if (entries[-1].time if entries else NEVER) != entry.time:
            entries.append(entry)


@once
def read_recorded(book: Book) -> Recorded:
    recorded = Recorded()
    if book.maps:
        for commit in book.maps:
            data = child(commit.after or {}, "data")
            for name in {*recorded.entries, *data}:
                is_of_person = not book.is_operator(commit.actor)
                recorded.add(name, Entry(commit.at, _read_entry(data, name), is_of_person))
        return recorded
    for write in book.writes:
        before, now = write.before, write.now
        if isinstance(now or before, Set):
            text = annotations(write.commit.after).get(LAST_DOWNSCALE)
            time = NEVER if text is None else read_moment(str(text))
            # An answer of a review is part of the write that it lets through.
            is_answer = (
                isinstance(before, Set) and isinstance(now, Set) and before.replicas != now.replicas
            )
            is_of_person = not book.is_operator(write.commit.actor) and not is_answer
            recorded.add(write.commit.name, Entry(write.at, time, is_of_person))
    return recorded


def read_moment(text: str) -> timedelta:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return UNREADABLE
    return (found if found.tzinfo else found.replace(tzinfo=UTC)) - EPOCH


def _read_entry(data: JsonObject, name: str) -> timedelta:
    if name not in data:
        return NEVER
    try:
        found = json.loads(str(data[name]))
    except ValueError:
        return UNREADABLE
    text = found.get("lastDownscaled") if isinstance(found, dict) else None
    return read_moment(text) if isinstance(text, str) else UNREADABLE


# A review is answered within this, and the same requests share its read.
REVIEW_LASTS: Final = timedelta(seconds=15)
# So long after its last review an API server may still write what was allowed.
PERSIST_LIMIT: Final = timedelta(seconds=36)
# From outside a write is seen some moments after its commit.
SEEN_LATE: Final = timedelta(milliseconds=500)
TOO_MANY: Final = 429
# Of faults: what the operator lacks itself, room or time, is no answer of the API server (D-20).
OVERLOAD: Final = frozenset({"throttled", "slow", "too_many"})
# Times have whole seconds, and the API server's is known to about one.
CLOCK_ERROR: Final = timedelta(seconds=2)


def list_broken(book: Book) -> Iterator[Violation]:
    if not (book.configurations or book.pod_calls or book.delay_calls):
        return
    downscales = list_downscales(book)
    yield from list_too_early(book, downscales)
    recorded = read_recorded(book)
    for each in downscales:
        yield from _judge_forbidden(book, each)
        if each.must_prepare:
            yield from _judge_written(book, each, recorded)
            yield from _judge_requested(book, each)
            yield from _judge_prepared(book, each)
            yield from _judge_neighbours(book, each)
    targets = read_targets(book)
    for call in (*book.pod_calls, *book.delay_calls):
        if why := targets.name_fault(call):
            text = f"{call.method} {call.path} of {call.pod} by {call.actor}: {why}"
            yield Violation("SI-21", call.begun, text)
    for call in book.pod_calls:
        if call.method == "DELETE":
            yield from _judge_cancel(book, call, downscales)


def list_observed(book: Book) -> Iterator[Violation]:
    """Yield what downscales break that were watched from outside: SI-10 and SI-11."""
    downscales = [one for one in list_downscales(book) if one.must_prepare]
    for each in downscales:
        yield from _judge_prepared(book, each)
    for earlier, later in combinations(downscales, 2):
        yield from _judge_pair(earlier, later, SEEN_LATE)


def list_too_early(book: Book, downscales: list[Downscale]) -> Iterator[Violation]:
    """Yield pairs of different zones of a group closer than its zones request (SI-11).

    Times are kept of zones that are guarded; a zone that follows keeps to them without a guard.
    What a person makes of a time is the truth from then on (D-66), in both directions.
    """
    recorded = read_recorded(book)
    for earlier, later in combinations(downscales, 2):
        if not earlier.must_prepare or not (later.must_prepare or _follows(book, later)):
            continue
        span = (earlier.at, later.at, later.wait)
        if not recorded.was_released(earlier.before.name, *span):
            yield from _judge_pair(earlier, later)


def _judge_pair(
    earlier: Downscale, later: Downscale, slack: timedelta = NO_TIME
) -> Iterator[Violation]:
    members = {one.uid for one in later.members} - {later.before.uid}
    gap = later.at - earlier.at
    if earlier.before.uid in members and gap < later.wait - slack:
        text = (
            f"{later.text} {gap.total_seconds():.1f} s after the {earlier.text},"
            f" group {later.before.group} waits {later.wait.total_seconds():g} s"
        )
        yield Violation("SI-11", later.at, text)


def _judge_written(book: Book, downscale: Downscale, recorded: Recorded) -> Iterator[Violation]:
    """SI-11, D-66: a time that a person wrote lets the other zones wait."""
    known = get_first_requested(book, downscale) - PERSIST_LIMIT - book.promises.known
    for one in downscale.members:
        if one.uid == downscale.before.uid:
            continue
        span = (known, downscale.at, downscale.wait - CLOCK_ERROR)
        if recorded.find_forbidden(one.name, *span) is not None:
            text = f"{downscale.text} too soon after the time that a person wrote for {one.name}"
            yield Violation("SI-11", downscale.at, text)


def _follows(book: Book, downscale: Downscale) -> bool:
    """Return whether the operator wrote it for a zone that follows, in time and unforced."""
    called = downscale.called
    if called is None or not book.is_operator(called.actor):
        return False
    states = [
        read_desired(write.commit.after)
        for write in book.writes
        if isinstance(write.now, Set) and write.now.uid == downscale.now.uid
        if write.at < downscale.at
    ]
    is_forced = any(one.forced is not None for one in states)
    is_late = get_sent(book, called) < called.begun
    return states[-1].leading is not None and not is_forced and not is_late


def _judge_forbidden(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-14. What the API server does not give is allowed (D-20): only a Scale is read for."""
    if not downscale.is_forbidden or _could_not_read(book, downscale):
        return
    text = f"{downscale.text}, which is labelled as not to lose any"
    yield Violation("SI-14", downscale.at, text)


def _could_not_read(book: Book, downscale: Downscale) -> bool:
    called = downscale.called
    if called is None or called.request.subresource != "scale":
        return False
    reviews = [one for one in list_reviews(book, NO_DOWNSCALE_PATH) if one.call == called.number]
    for review in reviews:
        answers = _list_answers(book, review, review.begun)
        faults = book.list_faults(review.actor, review.begun, review.at)
        has_failed = any(one.status >= 400 and one.status != TOO_MANY for one in answers)
        if has_failed or any(one.kind not in OVERLOAD for one in faults):
            return True
    return False


def _list_answers(book: Book, review: Reviewed, since: timedelta) -> list[Called]:
    """Return the answers about sets that a process got until its review was answered."""
    return [
        one
        for one in book.own_calls
        if book.acts_for(one.actor, review.actor)
        and one.request.resource.plural == STATEFULSETS.plural
        and since <= one.at <= review.at
    ]


def _judge_requested(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-13: it was reviewed, allowed, and on a read that succeeded."""
    reviews = downscale.reviews
    if not reviews or not reviews[-1].allowed:
        text = f"{downscale.text} was written and {'refused' if reviews else 'not reviewed'}"
        yield Violation("SI-13", downscale.at, text)
        return
    last = reviews[-1]
    answers = _list_answers(book, last, last.begun - REVIEW_LASTS)
    if not any(one.status < 400 for one in answers):
        text = f"{downscale.text} was allowed by {last.actor}, which could not read the group"
        yield Violation("SI-13", downscale.at, text)


def _judge_prepared(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-10: each pod that was removed had confirmed, and was not un-prepared after it."""
    is_observed = book.promises.is_observed
    since = get_first_requested(book, downscale)
    if is_observed and downscale.called is None:
        since = timedelta.min  # its request is not known
    # A write is taken only of the version that was reviewed: no other path has ever counted (D-24).
    path = str(annotations(downscale.write.commit.before).get(PREPARE_PATH_KEY, "")).strip("/")
    for pod in downscale.removed:
        horizon = get_horizon(book, downscale.write, pod)
        calls = [
            one
            for one in book.pod_calls
            if one.uid == pod.uid and one.begun < horizon and one.path.strip("/") == path
        ]
        lack = _name_lack(calls, since, downscale.at, is_observed=is_observed)
        if lack:
            yield Violation("SI-10", downscale.at, f"{downscale.text}: {pod.name} {lack}")


def _judge_neighbours(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-02, PREP-19: no other zone was short when it was first requested, and still is."""
    known = get_first_requested(book, downscale) - book.promises.known
    short = [name for name, since in downscale.short.items() if since <= known]
    if short:
        text = f"{downscale.text} while other zones are short: {', '.join(short)}"
        yield Violation("SI-02", downscale.at, text)


def _name_lack(
    calls: list[PodCalled], since: timedelta, until: timedelta, *, is_observed: bool
) -> str:
    good = [
        one
        for one in calls
        if one.method == "POST" and one.acted and 200 <= one.status < 300
        if since <= one.begun and one.at <= until
    ]
    if not good:
        requested = [f"{one.method} -> {one.status}" for one in calls]
        return f"has not confirmed between request and write: {requested or 'it was not called'}"
    undone = [one for one in calls if one.method == "DELETE" and one.acted]
    # One that was under way when the POST came may have had the last word, seen from outside.
    last = good[-1].begun if is_observed else good[-1].at
    return "was told after it that it stays" if any(one.at > last for one in undone) else ""


def get_first_requested(book: Book, downscale: Downscale) -> timedelta:
    """Return when the same was first requested: what is repeated is not prepared again (D-24)."""
    begun = downscale.begun
    for called in reversed(list(book.calls.values())):
        request = called.request
        is_same = (
            request.name == downscale.before.name
            and request.resource.plural == STATEFULSETS.plural
            and not request.is_dry_run
            and requested_replicas(called) == downscale.now.replicas
        )
        if is_same and begun - PERSIST_LIMIT <= called.at and called.begun <= begun:
            begun = called.begun
    return _count_forged(book, begun)


def get_first_granted(book: Book, downscale: Downscale) -> timedelta:
    """Return when the review began that decided: what is repeated is not decided again (D-24).

    It may be one that was given up, and whose read another one shared.
    """
    begun = downscale.at
    for review in reversed(list_reviews(book, PREPARE_PATH)):
        called = book.calls.get(review.call)
        replicas = downscale.now.replicas if called is None else requested_replicas(called)
        is_same = (review.name, replicas) == (downscale.before.name, downscale.now.replicas)
        lasts = PERSIST_LIMIT if review.allowed else NO_TIME
        if (is_same or review in downscale.reviews) and begun <= review.at + lasts:
            begun = min(begun, review.begun)
    return _count_forged(book, begun)


def _count_forged(book: Book, begun: timedelta) -> timedelta:
    # A forgery that is true counts like any other, and so is what follows it.
    forged = (one.at for one in book.faults if one.kind == FORGED)
    return min((begun, *(at for at in forged if begun - PERSIST_LIMIT <= at <= begun)))


def get_horizon(book: Book, downscale: Write, pod: Pod) -> timedelta:
    """Return when a pod's preparation need not last any more: it goes, or is wanted again."""
    set_uid = "" if downscale.now is None else downscale.now.uid
    for write in book.writes[book.writes.index(downscale) + 1 :]:
        match write.before, write.now:
            case Pod(uid=pod.uid), None | Pod(is_terminating=True):
                return write.at
            case _, Set(uid=uid, pod_names=names) if uid == set_uid and pod.name in names:
                return write.at
    return FOREVER


def _judge_cancel(book: Book, call: PodCalled, downscales: list[Downscale]) -> Iterator[Violation]:
    """SI-12: no pod is un-prepared while it may go."""
    late = book.list_faults(call.actor, call.begun - IN_FLIGHT, call.begun)
    if any(one.kind in DELAYING and call.pod in one.text for one in late):
        return
    for each in downscales:
        pod = next((one for one in each.removed if one.uid == call.uid), None)
        if pod is None or not each.must_prepare:
            continue
        if each.at <= call.begun < get_horizon(book, each.write, pod):
            text = f"{call.pod} was told that it stays, after the {each.text}"
            yield Violation("SI-12", call.begun, text)
    for review in list_reviews(book, PREPARE_PATH):
        if review.allowed and not review.dry_run and review.at < call.begun:
            writes = [one for one in book.writes if one.commit.name == review.name]
            states = [one.now for one in writes if one.at <= call.begun]
            zone, called = states[-1] if states else None, book.calls.get(review.call)
            if called is None or not isinstance(zone, Set):
                continue
            requested = requested_replicas(called)
            if requested is None or requested >= zone.replicas:
                continue
            again = [one for one in book.reviews if one.call == review.call and one is not review]
            is_over = any(not one.allowed and review.at <= one.begun <= call.begun for one in again)
            is_covered = call.pod in zone.pod_names[max(requested, 0) :]
            if call.begun < called.at and is_covered and not is_over:
                text = f"{call.pod} was told that it stays, while {zone.name} may go to {requested}"
                yield Violation("SI-12", call.begun, text)
