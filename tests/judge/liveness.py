"""What must come to pass once all faults are over: LI-01, LI-02, LI-05, LI-07, LI-10, LI-11.

Judged on the state at the end of a history, on when it was reached, and on the quiet after it. At
rest, each wanted pod of each group is ready at the update revision, which is the current one; each
zone has the count that it should; and no client of an eviction is refused for longer than others
have to go before it. What people have to mend first (a paused zone, a revision that never becomes
ready) is no fault of the operator: then a run says that it is undetermined, or that nothing was to
be expected.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.model.fields import child, name_of, number, text
from rollout_lab.model.history import Called, Commit, PodCalled

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, SECRETS, JsonObject
from rollout_operator.releases.model.plan import CheckClass
from tests.judge.book import NO_TIME, Book, World, Write, once, see
from tests.judge.budgets import EVICTION_PATH, read_rule
from tests.judge.deletes import IN_FLIGHT, LATE_AFTER
from tests.judge.departures import FASTEST, get_held_until, has_wrong_clock
from tests.judge.downscales import (
    NEVER,
    PERSIST_LIMIT,
    TOO_MANY,
    Recorded,
    list_reviews,
    read_recorded,
)
from tests.judge.objects import Pod, Set, list_miscounted, read_desired, read_set
from tests.judge.policies import get_longest_pause
from tests.judge.promises import Violation
from tests.judge.requests import WRITES, WRITTEN_WITHIN, list_contests
from tests.judge.reviews import list_lasting

LEAST_POD_TIME: Final = timedelta(seconds=2)  # pods that start at once still need a reconcile


class Rest(msgspec.Struct):
    world: World
    reached_at: timedelta | None = None
    """Since when nothing of groups has changed and nothing is missing; None where it is."""
    missing: list[str] = []
    blocked: list[str] = []  # what people have to mend before a group can come to rest
    has_broken_outdated: bool = False  # whether a pod that waits to be replaced is not ready
    last_change: timedelta = NO_TIME  # when people last changed what is wanted
    pod_time: timedelta = LEAST_POD_TIME  # the longest that any pod took to go, and to be ready
    end_time: timedelta = NO_TIME  # the longest that any pod took to go
    stays_since: dict[str, timedelta] = {}
    """Of the pods that exist and stay, by UID: since when their sets have wanted them."""


def read_rest(book: Book) -> Rest:
    world = World()
    rest = Rest(world)
    last = NO_TIME
    for write in book.writes:
        world.take(write)
        if write.before != write.now:  # else nothing changed that rest is read from
            last = write.at
        if _wish(write.before) != _wish(write.now):
            rest.last_change = write.at
    to_ready, rest.end_time = _measure(book)
    rest.pod_time = max(to_ready + rest.end_time, LEAST_POD_TIME)
    for group in sorted({one.group for one in world.sets.values() if one.group is not None}):
        _read_group(book, rest, group)
    rest.stays_since = dict(_map_staying_since(world))
    rest.reached_at = None if rest.missing else last
    return rest


def count_batches(book: Book, at: timedelta) -> int:
    """Return how many times a zone still had to wait for pods at a time."""
    world, count = see(book, at), 0
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


def _wish(zone: Pod | Set | None) -> Set | None:
    """Return what people say of a set, without what controllers do."""
    if not isinstance(zone, Set):
        return None
    return replace(zone, observed=0, update_revision="", current_revision="", ready_replicas=0)


def _map_staying_since(world: World) -> Iterator[tuple[str, timedelta]]:
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


def _measure(book: Book) -> tuple[timedelta, timedelta]:
    """Return the longest that any pod took to be ready, and to go."""
    created: dict[str, timedelta] = {}
    ending: dict[str, timedelta] = {}
    to_ready = to_end = NO_TIME
    for write in book.writes:
        match write.before, write.now:
            case None, Pod(uid=uid):
                created[uid] = write.at
            case Pod(uid=uid), None if uid in ending:
                to_end = max(to_end, write.at - ending[uid])
            case Pod(), Pod(uid=uid, is_terminating=True):
                ending.setdefault(uid, write.at)
            case Pod(), Pod(uid=uid, is_ready=True) if uid in created:
                to_ready = max(to_ready, write.at - created.pop(uid))
    return to_ready, to_end


# A downscale may still persist for 36 s, a failed attempt is repeated after 30 s, and after two
# minutes where it held its group; a zone tracker is read every 30 s.
STILL_LIMIT: Final = timedelta(minutes=4)


class _Standstill(msgspec.Struct):
    sets: dict[str, JsonObject] = {}
    moved_at: timedelta = NO_TIME


def list_still(book: Book, well_at: timedelta, slack: timedelta) -> Iterator[Violation]:
    """Yield zones that stood still for too long; `slack` is added for events that were lost."""
    recorded, standstill = read_recorded(book), _Standstill(moved_at=well_at)
    if any(read_desired(one.commit.after).template for one in book.writes):
        return  # mirrors have pods to call
    if list_contests(book):  # the last one of it may have been shortly before that was over
        slack += WRITTEN_WITHIN
    for write in book.writes:
        yield from _judge_still(standstill, recorded, write.at, STILL_LIMIT + slack)
        _take_standstill(standstill, write.commit)
    yield from _judge_still(standstill, recorded, book.ended_at, STILL_LIMIT + slack)


def _judge_still(
    standstill: _Standstill, recorded: Recorded, until: timedelta, limit: timedelta
) -> Iterator[Violation]:
    if until - standstill.moved_at <= limit or not all(map(_is_settled, standstill.sets.values())):
        return
    waits = max((read_set(one).min_time for one in standstill.sets.values()), default=NO_TIME)
    for name in _list_behind(standstill.sets):
        free_at = _free_at(name, recorded, standstill.moved_at, (until, waits))
        if until - free_at > limit:
            text = f"{name} stood still for {(until - free_at).total_seconds():.0f} s though"
            text += " no time in the store lets it wait"
            yield Violation("LI-01", free_at + limit, text)
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


def _take_standstill(standstill: _Standstill, commit: Commit) -> None:
    """Take a write; that of a record alone moves nothing."""
    before = standstill.sets.get(commit.name)
    if commit.resource.plural == "statefulsets":
        standstill.sets.pop(commit.name, None)
        if commit.after is not None:
            standstill.sets[name_of(commit.after)] = commit.after
        if before and commit.after and _name_moving(before) == _name_moving(commit.after):
            return
    standstill.moved_at = max(standstill.moved_at, commit.at)


def _name_moving(found: JsonObject) -> tuple[object, object, object]:
    """Return what of a set moves anything: all but its times, and what repeats them."""
    return found.get("spec"), found.get("status"), read_desired(found)


class Replicas(msgspec.Struct):
    sets: dict[str, JsonObject] = {}  # by name
    templates: dict[str, JsonObject] = {}
    requested_at: timedelta = NO_TIME  # when people last changed what is wanted
    moved_at: timedelta = NO_TIME  # when replicas were last written, or reported

    @property
    def bound(self) -> timedelta:
        """Return how long counts may take from zone to zone, when nothing else is in the way."""
        sets = [read_set(one) for one in self.sets.values()]
        waits = max((one.min_time for one in sets), default=NO_TIME)
        delays = [read_desired(one).delay for one in self.sets.values()]
        return len(sets) * (waits + LIMIT) + sum(delays, NO_TIME)


@once
def read_counts(book: Book) -> Replicas:
    counts = Replicas()
    sets = [one.commit for one in book.writes if isinstance(one.now or one.before, Set)]
    for held, commits in ((counts.sets, sets), (counts.templates, book.templates)):
        for commit in commits:
            before = held.pop(commit.name, None)
            if commit.after is not None:
                held[commit.name] = commit.after
            is_wish = _wish_count(before) != _wish_count(commit.after)
            if is_wish or held is counts.templates:
                counts.moved_at = max(counts.moved_at, commit.at)
            if is_wish and not book.is_operator(commit.actor):
                counts.requested_at = max(counts.requested_at, commit.at)
    return counts


def list_called_late(
    book: Book, begin: timedelta, stays_since: Mapping[str, timedelta]
) -> Iterator[Violation]:
    """Yield pods that were called, and un-prepared too late; `begin`: when all was well.

    `stays_since` has the pods that exist and stay, by UID. LI-05.
    """
    counts = read_counts(book)
    begin = max(begin, counts.requested_at, counts.moved_at)
    called: dict[str, timedelta] = {}
    for call in sorted(book.delay_calls, key=lambda one: one.at):
        if call.uid not in stays_since:
            continue
        # A pod that does not listen cannot be called: the next attempt has its time from then on.
        is_deaf = not call.acted and call.uid in called
        if is_deaf or (call.acted and call.method == "POST"):
            called[call.uid] = call.at
        if not call.acted or call.method == "POST":
            continue
        due = max(called.pop(call.uid, call.at), begin, stays_since[call.uid]) + LIMIT
        if call.at > due:
            late = (call.at - due).total_seconds()
            text = f"{call.pod} was told {late:.0f} s too late that it stays"
            yield Violation("LI-05", call.at, text)


def judge_counts(book: Book, begin: timedelta, slack: timedelta) -> Iterator[Violation | str]:
    """Yield what did not come to pass, and as text what is not known yet.

    `begin` is when all was well, `slack` what pods and lost events may take beside.
    """
    counts = read_counts(book)
    if not any(read_desired(one).is_ours for one in counts.sets.values()):
        return
    begin, bound = max(begin, counts.requested_at), counts.bound + slack
    if list_contests(book):
        bound += WRITTEN_WITHIN
    missing = "; ".join(list_miscounted([*counts.sets.values()], [*counts.templates.values()]))
    if missing and book.ended_at - begin < bound:
        left = (bound - (book.ended_at - begin)).total_seconds()
        yield f"the run ended {left:.0f} s before counts had to be right: {missing}"
    elif missing:
        yield Violation("LI-01", book.ended_at, missing)
    elif counts.moved_at - begin > bound:
        took = (counts.moved_at - begin).total_seconds()
        text = f"counts were right only {took:.0f} s after all was well, bound"
        text += f" {bound.total_seconds():.0f} s"
        yield Violation("LI-01", counts.moved_at, text)


def _wish_count(found: JsonObject | None) -> object:
    """Return what any actor says of the replicas, without what controllers keep for themselves."""
    if found is None:
        return None
    return child(found, "spec").get("replicas"), read_desired(found)


# Between a pod's end and the moment in which a client requests the next eviction.
REQUEST_EVERY: Final = timedelta(seconds=20)
SLACK: Final = timedelta(seconds=60)


def list_starved(book: Book, well_at: timedelta, pod_time: timedelta) -> Iterator[Violation]:
    """Yield pods that were requested in vain for longer than all pods together need (LI-01).

    `well_at` is when the last fault was over, `pod_time` what a pod takes to go and be ready.
    """
    rules = [read_rule(one.after) for one in book.budgets if one.after is not None]
    delay = max([rule.delay for rule in rules if rule is not None], default=NO_TIME)
    patience = len(see(book).wanted) * (3 * pod_time + delay + REQUEST_EVERY) + SLACK
    since: dict[tuple[str, str], timedelta] = {}
    well_at = max([well_at, *(one.at for one in book.budgets)])
    for called in list_evictions(book):
        key = (called.actor, called.request.name)
        if called.status != TOO_MANY:
            since.pop(key, None)
            continue
        begun = max(since.setdefault(key, called.begun), well_at)
        if called.at > begun + patience:
            text = f"{called.request.name} is refused to {called.actor} since"
            text += f" {begun.total_seconds():.0f} s: {called.message}"
            yield Violation("LI-01", called.at, text)
            since[key] = called.at


def list_evictions(book: Book) -> list[Called]:
    """Return the evictions that people requested in earnest, in order."""
    return [
        one
        for one in book.calls.values()
        if one.request.subresource == "eviction" and one.request.resource == PODS
        if not one.request.is_dry_run
    ]


AWAITED: Final = timedelta(seconds=9)  # twice the pause of a client, less than what an answer takes
# Twice the longest pause of a client: it may wait still, although it was answered otherwise.
REMEMBERED: Final = timedelta(seconds=60)
# What was decided before an eviction was refused may be carried out after it.
UNDERWAY: Final = timedelta(seconds=6)
# A turn of no use ends after five minutes: what has waited for nearly as long proves nothing.
TURN: Final = timedelta(minutes=4)
REFUSED: Final = 300
# Such a call may have been answered; one that did not get through was not.
TIMED_OUT: Final = "context deadline exceeded"
# What the messages of refusals for want of room say, and of those for what came to nothing.
ROOM: Final = ("max unavailable ", "the next place under budget ")
NO_ROOM: Final = "max unavailable = 0"


class _Queue(msgspec.Struct):
    """The evictions that wait, by actor and pod: since when, and when it was requested last."""

    granted: Collection[int]
    """Numbers of the evictions that the operator allowed, as far as it knows."""
    waits: dict[tuple[str, str], tuple[timedelta, timedelta]] = {}
    requested: dict[str, timedelta] = {}  # when a pod was requested last, whatever was answered
    in_vain: set[str] = set()  # pods that something else has refused to evict: they have no turn
    row: int = 0  # how many places the rollout has taken since one of them had to wait

    def record(self, called: Called) -> None:
        key = (called.actor, called.request.name)
        self.requested[called.request.name] = called.at
        if called.status >= REFUSED and called.number in self.granted:
            self.in_vain.add(called.request.name)
        if called.status != TOO_MANY:
            self.waits.pop(key, None)
            self.row = 0
        elif any(one in called.message for one in ROOM) and NO_ROOM not in called.message:
            since, last = self.waits.get(key, (called.at, called.at))
            self.waits[key] = (since if called.at - last <= AWAITED else called.at, called.at)
        else:
            self.in_vain.add(called.request.name)

    def serves(self, pod: str, at: timedelta) -> bool:
        """Return whether a client may wait for the end of a pod, and forget that."""
        for key in [key for key in self.waits if key[1] == pod]:
            del self.waits[key]
        self.in_vain.discard(pod)  # the next one of that name is another pod
        requested = self.requested.pop(pod, None)
        return requested is not None and at - requested <= REMEMBERED

    def name_oldest(self, at: timedelta) -> str:
        waits = [
            (since, pod)
            for (_, pod), (since, last) in self.waits.items()
            if pod not in self.in_vain and at - last <= AWAITED and UNDERWAY <= at - since <= TURN
        ]
        return min(waits, default=(NO_TIME, ""))[1]


def list_passed_over(book: Book, calm_at: timedelta) -> Iterator[Violation]:
    """Yield deletes of a rollout in whose place an eviction had to go first (LI-01).

    Only of one process, under one budget that counts by zone, from `calm_at` and the last change of
    a budget on.
    """
    rules = [None if one.after is None else read_rule(one.after) for one in book.budgets]
    actors = {one.actor for one in book.own_calls}
    if not rules or rules[-1] is None or rules[-1].pattern or len(actors) != 1:
        return
    begin = max(calm_at, book.budgets[-1].at)
    # What a process of the operator allowed, or may have allowed.
    twice = [one for one in book.faults if one.kind == "hook_repeated"]
    repeated = [one.at for one in twice if EVICTION_PATH in one.text]
    granted = frozenset(
        one.call
        for one in list_reviews(book, EVICTION_PATH)
        if one.allowed
        or (one.status < 0 and (book.is_operator(one.actor) or TIMED_OUT in one.message))
        or any(one.begun <= at <= one.at for at in repeated)
    )
    queue, limits = _Queue(granted), dict[str, int]()
    writes = (one for one in book.writes if isinstance(one.now, Set) or one.commit.actor in actors)
    events: list[Write | Called] = [*writes, *list_evictions(book)]
    events.sort(key=lambda one: one.at)
    for event in events:
        if isinstance(event, Called):
            queue.record(event)
        elif isinstance(event.now, Set):
            limits[event.now.uid] = event.now.limit
        elif event.at > begin and (pod := event.ended_pod) is not None:
            limit = limits.get(pod.owner, 1)
            most = max(min(rules[-1].maximum or limit, limit), 1)
            oldest = queue.name_oldest(event.at)
            if queue.serves(pod.name, event.at) or not oldest:
                queue.row = 0
            elif pod.is_ready:  # one that is down takes no place
                queue.row += 1
            if queue.row > most:
                text = f"{pod.name} is replaced, {queue.row} in a row, while the eviction of"
                text += f" {oldest} waits: it has every second of {most} places"
                yield Violation("LI-01", event.at, text)
                queue.row = 0


# LI-01: on top of three times what pods need.
LI_01_SLACK: Final = timedelta(seconds=60)
RESYNC: Final = timedelta(minutes=5)  # LI-02: what a lost event may delay everything by
# LI-05: for the last downscale to become impossible, and for the call.
LIMIT: Final = PERSIST_LIMIT + timedelta(seconds=60)
SETTLING: Final = LIMIT  # what follows a rollout: notes are removed, downscales recorded
# A stream that a partition has cut is found dead so long after the network is back: at its own end,
# after the grace and the wait that follow it.
DEAD_STREAM: Final = timedelta(seconds=60)
READS_PER_MINUTE: Final = 6  # LI-11
FAILOVER: Final = timedelta(seconds=20)
LATE_CALLS: Final = timedelta(seconds=100)
KINDS_OF_RELEASES: Final = 9  # they are listed anew now and then, as the others are
READS_OF_A_CHECK: Final = 24  # two lists, at the shortest interval that one may have
EVENT_FAULTS: Final = frozenset(
    {
        *("drop_event", "spoil_event", "delay_event", "drop_bookmark", "duplicate_event"),
        *("freeze", "cut_stream", "gone_event", "stale_list"),
    }
)


def judge_liveness(book: Book) -> Iterator[Violation | str]:
    """Yield what did not come to pass, and as text what is not known yet.

    Nothing where the faults were never over.
    """
    promises = book.promises
    if promises.healed_at is None:
        return
    if not book.runs.is_any_up():
        yield "no process of the operator was up at the end"
        return
    rest = read_rest(book)
    well_at = max(promises.healed_at, book.runs.last_ready or NO_TIME)
    changed = [one for one in (*book.budgets, *book.policies) if not book.is_operator(one.actor)]
    asked = [one.at for one in list_evictions(book)]
    begin = max([well_at, rest.last_change, *asked, *(one.at for one in changed)])
    held_until = get_held_until(book)
    yield from _judge_rest(book, rest, begin, held_until)
    for calls in (book.pod_calls, book.delay_calls):
        yield from _list_left_prepared(book, rest, begin, calls)
    yield from list_back_prepared(book, rest.stays_since, begin)
    yield from list_called_late(book, well_at, rest.stays_since)
    # Where nothing ever went wrong, all has been well from the start.
    calm_at = well_at if book.faults else NO_TIME
    if book.faults:  # nobody acts before the Lease of one that has died is taken over (LI-08)
        who = ("spec", "holderIdentity")
        taken = [
            one.at
            for one in book.leases
            if text(one.before or {}, *who) != text(one.after or {}, *who)
        ]
        calm_at = max([calm_at, *(at for at in taken if at <= well_at + FAILOVER)])
    # A process may still wait for the answer to a call that a partition took; what it had recorded
    # before that call it takes back after it.
    cut = [one.at for one in book.faults if one.kind == "partition" and one.at <= well_at]
    wait = LATE_AFTER if cut and well_at - max(cut) <= IN_FLIGHT else NO_TIME
    yield from list_lasting(book, calm_at, _lag(book, well_at) or wait)
    free_at = max(well_at, held_until)
    yield from list_starved(book, free_at, rest.pod_time)
    yield from list_passed_over(book, calm_at)
    if not rest.blocked:
        bound, _ = _bound(book, rest, well_at)
        yield from list_still(book, free_at, _lag(book, well_at))
        yield from judge_counts(book, free_at, bound)


def _judge_rest(
    book: Book, rest: Rest, begin: timedelta, held_until: timedelta
) -> Iterator[Violation | str]:
    """LI-01, LI-02 and LI-10: does it come to rest, in time, and stay there?"""
    yield from rest.blocked
    bound, name = _bound(book, rest, begin)
    free_at = max(begin, held_until)
    if rest.reached_at is None:
        waited = book.ended_at - free_at
        if waited < bound:
            left = f"{(bound - waited).total_seconds():.0f} s before it had to be at rest"
            yield f"the run ended {left}: {rest.missing[0]}"
        else:
            invariant = "LI-10" if rest.has_broken_outdated else name
            text = f"not at rest {waited.total_seconds():.0f} s after all was well: "
            text += "; ".join(rest.missing)
            yield Violation(invariant, book.ended_at, text)
        return
    took = rest.reached_at - free_at
    if took > bound:
        text = f"at rest only {took.total_seconds():.0f} s after all was well, bound"
        text += f" {bound.total_seconds():.0f} s"
        yield Violation(name, rest.reached_at, text)
    # A request, even in vain, gives the operator something to do.
    requested = max((one.at for one in book.reviews if not one.dry_run), default=begin)
    settling = SETTLING
    if name == "LI-02":
        settling += RESYNC
    elif _has_had(book, ("partition",), begin):
        settling += DEAD_STREAM
    yield from _judge_quiet(book, max(rest.reached_at, begin, requested) + settling)


def _bound(book: Book, rest: Rest, begin: timedelta) -> tuple[timedelta, str]:
    """Return how long it may take from `begin` to rest, and which promise says so."""
    pause = get_longest_pause(book)
    bound = (3 * rest.pod_time + pause) * count_batches(book, begin) + LI_01_SLACK
    # The controller of an ordered set ends one after the other that no set wants.
    world = see(book, begin)
    wanted = {name for zone in world.sets.values() for name in zone.pod_names}
    surplus = [one for name, one in world.pods.items() if name not in wanted]
    bound += rest.end_time * sum(one.owner in world.sets for one in surplus)
    lag = _lag(book, begin)
    return (bound + lag, "LI-02") if lag else (bound, "LI-01")


def _lag(book: Book, begin: timedelta) -> timedelta:
    """Return how long something may be unknown because events were lost, zero where none was."""
    return RESYNC if _has_had(book, EVENT_FAULTS, begin) else NO_TIME


def _has_had(book: Book, kinds: Collection[str], begin: timedelta) -> bool:
    """Return whether faults of these kinds were not long ago when all was healed."""
    healed = book.promises.healed_at or begin
    return any(one.kind in kinds and healed - RESYNC <= one.at <= healed for one in book.faults)


def _judge_quiet(book: Book, begin: timedelta) -> Iterator[Violation | str]:
    """Nothing is written any more, and little is read (LI-01, LI-11)."""
    promises, lasted = book.promises, book.ended_at - begin
    if lasted < promises.quiet - SETTLING - RESYNC:
        text = f"the run ended {max(lasted, NO_TIME).total_seconds():.0f} s after rest,"
        text += f" too soon to tell that it stays quiet for {promises.quiet.total_seconds():.0f} s"
        yield text
    reads: dict[tuple[str, int], int] = {}
    for called in book.own_calls:
        request = called.request
        if called.begun < begin:
            continue
        # Certificates are renewed in their own time.
        is_other = request.resource == SECRETS or not request.resource.is_namespaced
        # By a clock that runs fast a view is too old now and then, which a policy's status says.
        is_other |= request.resource == MULTI_AZ_ROLLOUTS and has_wrong_clock(book)
        # A record stays until no call to a pod can take effect any more.
        late = any(one.begun <= called.begun <= one.at + LATE_CALLS for one in book.pod_calls)
        is_other |= late and request.resource == PODS
        if request.verb in WRITES and not is_other:
            target = f"{request.resource.plural}/{request.name}"
            text = f"{request.verb} {target} by {called.actor}, though all is at rest"
            yield Violation("LI-01", called.begun, text)
        elif request.verb in ("get", "list"):
            minute = (called.actor, int((called.begun - begin).total_seconds()) // 60)
            reads[minute] = reads.get(minute, 0) + 1
    most = count_allowed_reads(book)
    for (actor, passed), count in sorted(reads.items()):
        if count > most:
            text = f"{count} reads by {actor} in a minute in which nothing happened"
            at = begin + timedelta(minutes=passed)
            yield Violation("LI-11", at, text)


def count_allowed_reads(book: Book) -> int:
    """Return how many reads a minute may have: HealthChecks are evaluated in their own time."""
    if not book.releases:
        return READS_PER_MINUTE
    checks = {
        one.name
        for one in book.releases
        if text(one.after or {}, "spec", "class") in list(CheckClass)
    }
    return READS_PER_MINUTE + KINDS_OF_RELEASES + READS_OF_A_CHECK * len(checks)


def _list_left_prepared(
    book: Book, rest: Rest, begin: timedelta, calls: Iterable[PodCalled]
) -> Iterator[Violation | str]:
    """Yield pods that were prepared, stay, and were not un-prepared in time (LI-05)."""
    for call in _list_prepared(calls, attrgetter("uid")):
        stays_since = rest.stays_since.get(call.uid)
        if stays_since is None:
            continue  # gone, going, or not wanted
        due = max(call.at, begin, stays_since) + LIMIT
        if book.ended_at < due:
            yield f"the run ended before {call.pod} had to be told that it stays"
        else:
            text = f"{call.pod} was prepared at {call.at.total_seconds():.1f} s, stays,"
            yield Violation("LI-05", due, f"{text} and was not told so")


def _list_prepared(
    calls: Iterable[PodCalled], name: Callable[[PodCalled], str]
) -> Iterable[PodCalled]:
    """Return by which calls pods, or disks by name, are prepared at the end, for each path."""
    prepared: dict[tuple[str, str], PodCalled] = {}
    for call in calls:
        place = (name(call), call.path.strip("/"))
        if call.acted and call.method == "POST":
            prepared[place] = call
        elif call.acted and call.method == "DELETE":
            prepared.pop(place, None)
    return prepared.values()


# A downscale that stands for so long, with its pods gone, is not reverted any more: the next
# upscale is one of its own.
STOOD: Final = timedelta(seconds=60)


def list_back_prepared(
    book: Book, stays_since: Mapping[str, timedelta], begin: timedelta
) -> Iterator[Violation]:
    """Yield pods whose forerunner was prepared, and which stay and were not un-prepared.

    Only where the set wanted the pod again when its forerunner had gone, and went on to: where a
    downscale has stood for a minute with its pods gone, it has happened, and a pod that comes back
    later finds what the forerunner left behind in good order. What died with a process is excused.
    """
    gone = _collect_wanted_again(book)
    pods = [one.now for one in book.writes if isinstance(one.now, Pod)]
    names = {one.name: one.uid for one in pods if one.uid in stays_since}
    ends = [one for one in book.writes if isinstance(one.before, Set) and one.now is None]
    for call in _list_prepared(book.pod_calls, attrgetter("pod")):
        name = call.pod
        uid = names.get(name, "")
        if not uid or uid == call.uid or call.uid not in gone:
            continue
        # Once its set was deleted the pod that was called is told, if it stays, and no other.
        zone = name.rpartition("-")[0]
        is_gone = any(one.commit.name == zone and one.at >= call.begun for one in ends)
        if is_gone or book.runs.count_starts(call.begun, book.ended_at):
            continue
        due = max(begin, stays_since[uid]) + LIMIT
        if due <= book.ended_at:
            text = f"{name} came back, finds on its disk that it is to go, and was not told"
            yield Violation("LI-05", due, text)


def _collect_wanted_again(book: Book) -> set[str]:
    """Return the UIDs of pods that were wanted by name when they had gone.

    Left out are those of which nothing was there, nor wanted, for as long as a downscale has to
    stand: one that came and went meanwhile may never have run, and ends no debt.
    """
    sets: dict[str, Set] = {}
    names: set[str] = set()
    left: dict[str, list[Pod]] = {}
    away: dict[str, timedelta] = {}
    stood = STOOD / FASTEST if has_wrong_clock(book) else STOOD
    for write in book.writes:
        match write.before, write.now:
            case _, Set() as zone:
                sets[zone.uid] = zone
            case Set() as zone, None:
                del sets[zone.uid]
            case _, Pod() as pod:
                names.add(pod.name)
            case Pod() as pod, None:
                names.discard(pod.name)
                if _is_wanted(sets, pod):
                    left.setdefault(pod.name, []).append(pod)
        for name, pods in list(left.items()):
            if name not in names and not _is_wanted(sets, pods[-1]):
                away.setdefault(name, write.at)
            elif write.at - away.pop(name, write.at) >= stood:
                del left[name]
    return {pod.uid for pods in left.values() for pod in pods}


def _is_wanted(sets: Mapping[str, Set], pod: Pod) -> bool:
    return pod.owner in sets and pod.name in sets[pod.owner].pod_names
