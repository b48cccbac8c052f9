"""Whether drains come to an end once all is well: facts of evictions for `liveness`.

Who asks for a pod again and again is refused only as long as others have to go before it.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import PODS
from rollout_operator.lab.model.history import Called
from tests.simulation.promises import Violation
from tests.simulation.rules import read_rule
from tests.simulation.state import World
from tests.simulation.views import Book

TOO_MANY: Final = 429
# Between a pod's end and the moment in which somebody asks for the next one.
ASKS_EVERY: Final = timedelta(seconds=20)
SLACK: Final = timedelta(seconds=60)


def find_last_asked(book: Book) -> timedelta:
    """Return when somebody asked last for an eviction, or changed a budget."""
    asked = [one.at for one in list_evictions(book)]
    return max([*asked, *(one.at for one in book.budgets)], default=timedelta(0))


def find_starved(book: Book, well_at: timedelta, pod_time: timedelta) -> Iterator[Violation]:
    """Yield pods that were asked for in vain for longer than all pods together need (LI-01).

    `well_at` is when the last fault was over, `pod_time` what a pod takes to go and be ready.
    """
    patience = _find_patience(book, pod_time)
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


def _find_patience(book: Book, pod_time: timedelta) -> timedelta:
    world = World()
    for write in book.writes:
        world.take(write)
    rules = [read_rule(one.after) for one in book.budgets if one.after is not None]
    delay = max([rule.delay for rule in rules if rule is not None], default=timedelta(0))
    return len(world.wanted) * (3 * pod_time + delay + ASKS_EVERY) + SLACK


def list_evictions(book: Book) -> list[Called]:
    """Return the evictions that people asked for in earnest, in order."""
    return [
        one
        for one in book.calls.values()
        if one.request.subresource == "eviction" and one.request.resource == PODS
        if not one.request.is_dry_run
    ]
