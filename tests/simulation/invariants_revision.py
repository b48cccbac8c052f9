"""What is promised of the revision that is recorded as current: ROLL-39.

Checked at the commit of each status write of the operator that sets it, on the state just before.
Which revision a set is to have, its own version says, which the write must name: there is no
allowance for it. Of pods, nothing counts that happened after the look it rests on, or just before.
"""

from collections.abc import Iterator
from datetime import timedelta

from rollout_operator.kube.api import JsonObject
from tests.simulation.deletes import find_sent
from tests.simulation.promises import Violation
from tests.simulation.state import World
from tests.simulation.views import Book, Write
from tests.world.history import Pod, Set


def find_broken(book: Book) -> Iterator[Violation]:
    """Yield the records of a revision that not all wanted pods were ready at."""
    world = World()
    created: dict[str, timedelta] = {}
    for write in book.writes:
        if isinstance(write.now, Pod) and write.before is None:
            created[write.now.uid] = write.at
        if isinstance(write.now, Set) and _records(book, write):
            yield from _judge(book, world, write, created)
        world.take(write)


def _records(book: Book, write: Write) -> bool:
    is_own = write.before is not None and book.is_operator(write.commit.actor)
    return is_own and current_revision(write.commit.before) != current_revision(write.commit.after)


def _judge(
    book: Book, world: World, write: Write, created: dict[str, timedelta]
) -> Iterator[Violation]:
    zone = write.now
    assert isinstance(zone, Set), "only sets have a current revision"
    called = book.calls.get(write.commit.call)
    known = (write.at if called is None else find_sent(book, called)) - book.promises.known
    recorded = current_revision(write.commit.after)
    lacks = [] if recorded == zone.update_revision else [f"{zone.update_revision} is to be"]
    for name in zone.pod_names:
        pod = world.pods.get(name)
        short_since = world.short_since.get(name, world.unused.get(name, write.at))
        if short_since <= known:
            if not _was_hidden(book, write, name, short_since):
                lacks.append(f"{name} is not ready")
        elif pod is not None and pod.revision != recorded and created.get(pod.uid, known) <= known:
            lacks.append(f"{name} is at {pod.revision}")
    if lacks:
        text = f"{recorded} is recorded as current in {zone.name}: {', '.join(lacks)}"
        yield Violation(invariant="ROLL-39", at=write.at, text=text)


def _was_hidden(book: Book, write: Write, pod: str, since: timedelta) -> bool:
    """Tell whether an event of the pod never came, and the set's own status said that all is well.

    Then nothing showed that it was down but a list of the pods, which is due every four minutes.
    """
    status = (write.commit.before or {}).get("status")
    wanted = write.now.replicas if isinstance(write.now, Set) else 0
    is_told = not isinstance(status, dict) or status.get("readyReplicas", 0) < wanted
    faults = book.list_faults(write.commit.actor, since, write.at)
    is_dropped = any(one.kind == "drop_event" and one.text.endswith(f" {pod}") for one in faults)
    return is_dropped and not is_told


def current_revision(found: JsonObject | None) -> str:
    """Return the current revision that a set names, empty for none."""
    status = (found or {}).get("status")
    return str(status.get("currentRevision", "")) if isinstance(status, dict) else ""
