"""Pods that keep on disk that they are to go: whoever comes back is told that it stays (LI-05).

A pod of a StatefulSet finds the volumes of the one before it. Where a downscale was taken back
while its pods were on their way out, those that follow them are still prepared.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from rollout_operator.lab.model.history import PodCalled
from tests.simulation.promises import Violation
from tests.simulation.views import Book
from tests.world.history import Pod, Set

# For the last downscale to become impossible, and for the call.
LIMIT: Final = timedelta(seconds=36 + 60)
# A downscale that stands for so long, with its pods gone, is not taken back any more: the next
# upscale is one of its own.
STOOD: Final = timedelta(seconds=60)
CLOCK_RATE: Final = "clock_rate"
# A clock that is made to run wrongly runs twice as fast at worst.
FASTEST: Final = 2


def find_back_prepared(
    book: Book, stays_since: Mapping[str, timedelta], begin: timedelta
) -> Iterator[Violation]:
    """Yield pods whose forerunner was told to go, and which stay and were not told so.

    Only where the set wanted the pod again when its forerunner had gone, and went on to: where a
    downscale has stood for a minute with its pods gone, it has happened, and whoever comes back
    later finds what the forerunner left behind in good order. What died with a process is excused.
    """
    gone = _list_wanted_again(book)
    names = _list_staying(book, stays_since)
    for (name, _), call in _list_prepared(book).items():
        uid = names.get(name, "")
        if not uid or uid == call.uid or call.uid not in gone:
            continue
        if book.lives.count_starts(call.begun, book.ended_at):
            continue
        due = max(begin, stays_since[uid]) + LIMIT
        if due <= book.ended_at:
            text = f"{name} came back, finds on its disk that it is to go, and was not told"
            yield Violation(invariant="LI-05", at=due, text=text)


def _list_prepared(book: Book) -> dict[tuple[str, str], PodCalled]:
    """Return what the disks of pods say at the end: by name and path, the call that did it."""
    prepared: dict[tuple[str, str], PodCalled] = {}
    for call in book.pod_calls:
        place = (call.pod, call.path.strip("/"))
        if call.acted and call.method == "POST":
            prepared[place] = call
        elif call.acted and call.method == "DELETE":
            prepared.pop(place, None)
    return prepared


def _list_wanted_again(book: Book) -> set[str]:
    """Return the UIDs of pods that were wanted by name when they had gone.

    Left out are those of which nothing was there, nor wanted, for as long as a downscale has to
    stand: one that came and went meanwhile may never have run, and ends no debt.
    """
    sets: dict[str, Set] = {}
    names: set[str] = set()
    left: dict[str, list[Pod]] = {}
    away: dict[str, timedelta] = {}
    stood = _find_stood(book)
    for write in book.writes:
        match write.before, write.now:
            case _, Set() as zone:
                sets[zone.uid] = zone
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


def _find_stood(book: Book) -> timedelta:
    """Return how long a downscale must have stood to be over, by the fastest clock there was."""
    is_fast = any(one.kind == CLOCK_RATE for one in book.faults)
    return STOOD / FASTEST if is_fast else STOOD


def _list_staying(book: Book, stays_since: Mapping[str, timedelta]) -> dict[str, str]:
    """Return the UIDs of the pods that stay, by name."""
    pods = (write.now for write in book.writes)
    return {one.name: one.uid for one in pods if isinstance(one, Pod) and one.uid in stays_since}
