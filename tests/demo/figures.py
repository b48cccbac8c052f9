"""What a rollout took and whether it kept its promises, from the judge's history.

Pure. All times are seconds on the judge's clock, which stamps each write of the store as it is
told of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rollout_operator.lab.demo.totals import Restart, measure_floor
from tests.judge.objects import Pod, Set
from tests.judge.promises import Violation
from tests.world.observed import Change, Delete
from tests.world.timings import Restart as Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one rollout; all but `limit` are measured."""

    limit: int
    """How many pods of a zone may be unavailable."""
    wall: float
    """From the new template until the last replaced pod counts as ready."""
    floor: float
    """What the restarts alone take, one zone after the other, `limit` at a time."""
    reaction: float | None
    """Median time from the write that allows a delete to the delete; None where none was such."""
    replaced: int
    refused: int
    """Deletes that the API server turned away."""
    zones_short: int
    """The most zones that missed a ready pod at the same time."""
    pods_short: int
    """The most pods that one zone missed at the same time."""
    broken: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the judge has written down."""

    begin: float
    """When the new template was given."""
    changes: Sequence[Change]
    restarts: Sequence[Seen]
    deletes: Sequence[Delete]
    violations: Sequence[Violation]


def measure(record: Record, limit: int) -> Figures:
    """Return the figures of a rollout. Raises ValueError where no pod was replaced."""
    spans = [
        Restart(each.zone, each.deleted, each.counted)
        for each in record.restarts
        if each.counted is not None
    ]
    zones_short, pods_short = _most_short(record.changes, record.begin)
    reactions = _list_reactions(spans, limit)
    return Figures(
        limit=limit,
        wall=max(span.end for span in spans) - record.begin,
        floor=measure_floor(spans, limit),
        reaction=median(reactions) if reactions else None,
        replaced=len(spans),
        refused=sum(not each.is_done for each in record.deletes),
        zones_short=zones_short,
        pods_short=pods_short,
        broken=tuple(record.violations),
    )


def _list_reactions(spans: Sequence[Restart], limit: int) -> list[float]:
    """Return how long after it was allowed each delete came; a template allows the first ones."""
    return [
        span.begin - allowed
        for place, span in enumerate(spans)
        if (allowed := _allowed(spans[:place], span, limit)) is not None
    ]


def _allowed(before: Sequence[Restart], span: Restart, limit: int) -> float | None:
    """Return when the other zones were whole again and the own one had room; None if always."""
    moments = [each.end for each in before if each.zone != span.zone]
    same = sorted(each.end for each in before if each.zone == span.zone)
    moments += same[: max(0, len(same) - limit + 1)]
    return max(moments, default=None)


def _most_short(changes: Iterable[Change], begin: float) -> tuple[int, int]:
    """Return the most zones and the most pods of a zone missing at once, from `begin` on."""
    zones: dict[str, Set] = {}
    available: set[str] = set()
    most_zones = most_pods = 0
    for change in changes:
        match change.now:
            case Set() as found:
                zones[change.name] = found
            case Pod(is_ready=True, is_terminating=False):
                available.add(change.name)
            case _:
                available.discard(change.name)
        missing = [len(set(zone.pod_names) - available) for zone in zones.values()]
        if change.at >= begin:
            most_zones = max(most_zones, sum(count > 0 for count in missing))
            most_pods = max(most_pods, *missing)
    return most_zones, most_pods
