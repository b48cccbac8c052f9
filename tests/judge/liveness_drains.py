"""Whether drains come to an end once all is well: facts of evictions for `liveness`.

A client that requests a pod again and again is refused only as long as others have to go before it.
"""

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.history import Called

from rollout_operator.kube.api import PODS
from tests.judge.book import Book, Write
from tests.judge.budgets import EVICTION_PATH, Rule, read_rule
from tests.judge.downscales import list_reviews
from tests.judge.objects import Set
from tests.judge.promises import Violation
from tests.judge.state import World

TOO_MANY: Final = 429
# Between a pod's end and the moment in which a client requests the next eviction.
REQUEST_EVERY: Final = timedelta(seconds=20)
SLACK: Final = timedelta(seconds=60)


def get_last_requested(book: Book) -> timedelta:
    """Return when a client last requested an eviction, or changed a budget or a policy."""
    requested = [one.at for one in list_evictions(book)]
    changed = [one.at for one in (*book.budgets, *book.policies) if not book.is_operator(one.actor)]
    return max([*requested, *changed], default=timedelta(0))


def list_starved(book: Book, well_at: timedelta, pod_time: timedelta) -> Iterator[Violation]:
    """Yield pods that were requested in vain for longer than all pods together need (LI-01).

    `well_at` is when the last fault was over, `pod_time` what a pod takes to go and be ready.
    """
    patience = _get_patience(book, pod_time)
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
            yield Violation(invariant="LI-01", at=called.at, text=text)
            since[key] = called.at


def _get_patience(book: Book, pod_time: timedelta) -> timedelta:
    world = World()
    for write in book.writes:
        world.take(write)
    rules = [read_rule(one.after) for one in book.budgets if one.after is not None]
    delay = max([rule.delay for rule in rules if rule is not None], default=timedelta(0))
    return len(world.wanted) * (3 * pod_time + delay + REQUEST_EVERY) + SLACK


def list_evictions(book: Book) -> list[Called]:
    """Return the evictions that people requested in earnest, in order."""
    return [
        one
        for one in book.calls.values()
        if one.request.subresource == "eviction" and one.request.resource == PODS
        if not one.request.is_dry_run
    ]


# Twice the pause of a client, less than what an answer takes.
AWAITED: Final = timedelta(seconds=9)
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
NO_ROOM: Final = ("max unavailable = 0",)


class _Queue(msgspec.Struct):
    """The evictions that wait, by actor and pod: since when, and when it was requested last."""

    granted: Collection[int]
    """Numbers of the evictions that the operator allowed, as far as it knows."""
    waits: dict[tuple[str, str], tuple[timedelta, timedelta]] = {}
    requested: dict[str, timedelta] = {}
    """When a pod was requested last, whatever was answered."""
    in_vain: set[str] = set()
    """Pods whose eviction was refused by something else, before or after the operator allowed it:
    they have no turn."""
    row: int = 0
    """How many places the rollout has taken since one of them had to wait."""

    def record(self, called: Called) -> None:
        """Take the answer to an eviction."""
        key = (called.actor, called.request.name)
        self.requested[called.request.name] = called.at
        if called.status >= REFUSED and called.number in self.granted:
            self.in_vain.add(called.request.name)
        if called.status != TOO_MANY:
            self.waits.pop(key, None)
            self.row = 0
        elif _lacks_room(called.message):
            since, last = self.waits.get(key, (called.at, called.at))
            since = since if called.at - last <= AWAITED else called.at
            self.waits[key] = (since, called.at)
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
        """Return the pod that has waited for longest at a time, empty where none does."""
        waits = [
            (since, pod)
            for (_, pod), (since, last) in self.waits.items()
            if pod not in self.in_vain and at - last <= AWAITED and UNDERWAY <= at - since <= TURN
        ]
        return min(waits, default=(timedelta(0), ""))[1]


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
    queue, limits = _Queue(frozenset(_list_granted(book))), dict[str, int]()
    events: list[Write | Called] = [*_list_steps(book, actors), *list_evictions(book)]
    events.sort(key=lambda one: one.at)
    for event in events:
        if isinstance(event, Called):
            queue.record(event)
        elif isinstance(event.now, Set):
            limits[event.now.uid] = event.now.limit
        elif event.at > begin and (pod := event.ended_pod) is not None:
            most = _count_turn(rules[-1], limits.get(pod.owner, 1))
            oldest = queue.name_oldest(event.at)
            if queue.serves(pod.name, event.at) or not oldest:
                queue.row = 0
            elif pod.is_ready:  # one that is down takes no place
                queue.row += 1
            if queue.row > most:
                text = f"{pod.name} is replaced, {queue.row} in a row, while the eviction of"
                text += f" {oldest} waits: it has every second of {most} places"
                yield Violation(invariant="LI-01", at=event.at, text=text)
                queue.row = 0


def _count_turn(rule: Rule, limit: int) -> int:
    return max(min(rule.maximum or limit, limit), 1)


def _list_granted(book: Book) -> Iterator[int]:
    """Yield the evictions that a process of the operator allowed, or may have allowed."""
    for review in list_reviews(book, EVICTION_PATH):
        has_begun = book.is_operator(review.actor) or TIMED_OUT in review.message
        is_lost = review.status < 0 and has_begun
        if review.allowed or is_lost:
            yield review.call


def _list_steps(book: Book, actors: Collection[str]) -> Iterator[Write]:
    """Yield the writes of zones, and what the operator itself has deleted."""
    for write in book.writes:
        if isinstance(write.now, Set) or write.commit.actor in actors:
            yield write


def _lacks_room(message: str) -> bool:
    return any(one in message for one in ROOM) and not any(one in message for one in NO_ROOM)
