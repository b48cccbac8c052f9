"""What is up in one zone, what is down and why.

A zone is judged by its pods and by the status of its StatefulSet, and the more pessimistic of both
counts: a cache that lags may show a pod that is gone, a controller that lags may count it. Whether
a single container is ready is settled in `model.decode.objects`; what follows from a short zone, in
`plan` and `pods`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from itertools import chain, islice
from typing import Final

import msgspec

from rollout_operator.model.group import Deletion, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import ZoneProgress
from rollout_operator.planning.rollout.newcomers import count_used, find_settling
from rollout_operator.planning.wording import NAMES_SHOWN, join_some


@unique
class DownCause(StrEnum):
    """Why a pod counts as down. The value says it where the pod has no problem of its own."""

    TERMINATING = "terminating"
    DELETED = "delete accepted"
    UNANSWERED = "delete not answered"
    GRANTED = "allowed to go"
    UNREADY = "not ready"
    SETTLING = "not ready long enough"


_GOING: Final = {
    Deletion.ACCEPTED: DownCause.DELETED,
    Deletion.UNKNOWN: DownCause.UNANSWERED,
    Deletion.GRANTED: DownCause.GRANTED,
}


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in one of the desired ordinals that does not count as up."""

    pod: Pod
    why: DownCause
    gaps_below: int
    """Number of desired ordinals below it without any pod."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """One zone as far as its pods are concerned. All pods are owned and in the desired ordinals."""

    sts: StatefulSet
    used: int
    """How many of the lowest desired ordinals hold something: so many pods must be up."""
    newcomers: tuple[Pod, ...]
    """Pods of the other ordinals: none was ever ready, and nothing waits for them (D-67)."""
    standing: tuple[Pod, ...]
    """Ready pods without a delete, by ordinal; those settling are in `down`, too."""
    down: tuple[Down, ...]
    """Pods that exist and do not count, by ordinal."""
    unreadable: tuple[str, ...]
    """Names of pods that exist and of which nothing more is known: they count as down."""
    missing: int
    """Number of desired ordinals without any pod."""
    first_missing: tuple[str, ...]
    """The names of the first few of them."""
    has_pods: bool
    """Whether any pod at all names this set as its controlling owner."""
    available_in: timedelta | None = None
    """Time until the next settling pod becomes available by time alone."""
    settles_in: timedelta | None = None
    """Time until nothing waits any more for what an upscale has added, unless it changes again."""
    counts_for: timedelta | None = None
    """How long a zone counts that has left; None for a zone that belongs there."""

    @property
    def status_short(self) -> int:
        """Return how many pods the StatefulSet's own status counts as not up."""
        return max(self.used - _counted_up(self.sts), 0)

    @property
    def unavailable(self) -> int:
        """Return how many desired pods are not proven up: the larger number of pods and status."""
        return max(self.seen_down, self.status_short)

    @property
    def seen_down(self) -> int:
        """Return how many desired pods are not up as far as the pods themselves show."""
        return len(self.down) + len(self.unreadable) + self.missing

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is missing."""
        return self.unavailable == 0


def measure_readiness(zone: Zone, deletions: Mapping[Uid, Deletion], now: datetime) -> Readiness:
    """Return what is up and down in a zone.

    Pods of other owners and outside the desired ordinals (being scaled away) do not exist here.
    """
    sts = zone.sts
    patience = timedelta(seconds=sts.min_ready_seconds)
    used = count_used(zone)
    held = zone.by_ordinal(sts.ordinals[:used])
    standing: list[Pod] = []
    down: list[Down] = []
    unreadable: list[str] = []
    for place, ordinal in enumerate(sorted(held)):
        pod = held[ordinal]
        if isinstance(pod, Unreadable):
            unreadable.append(pod.name)
            continue
        why = find_why(pod, patience, deletions, now)
        if why is None or why is DownCause.SETTLING:
            standing.append(pod)
        if why is not None:
            gaps = ordinal - sts.first_ordinal - place
            down.append(Down(pod=pod, why=why, gaps_below=gaps))
    return Readiness(
        sts=sts,
        used=used,
        newcomers=tuple(pod for _, pod in zone.list_pods(sts.ordinals[used:])),
        standing=tuple(standing),
        down=tuple(down),
        unreadable=tuple(unreadable),
        missing=used - len(held),
        first_missing=_first_missing(sts, used, held),
        has_pods=bool(held or zone.own_pods or zone.own_unreadable),
        available_in=_next_available(down, patience, now),
        settles_in=find_settling(zone),
        counts_for=zone.counts_for,
    )


def find_why(
    pod: Pod, patience: timedelta, deletions: Mapping[Uid, Deletion], now: datetime
) -> DownCause | None:
    """Return why a pod does not count as up, None where it does.

    `patience` is how long it must have been ready, `minReadySeconds` of its set.
    """
    if pod.is_terminating:
        return DownCause.TERMINATING
    if pod.uid in deletions:
        return _GOING[deletions[pod.uid]]
    if not pod.is_ready:
        return DownCause.UNREADY
    return _find_settling(pod, patience, now) if patience else None


def is_passing(readiness: Readiness) -> bool:
    """Return whether all that is down is on its way, as every pod is at times."""
    return not readiness.unreadable and all(
        down_pod.why is not DownCause.UNREADY or down_pod.pod.is_starting
        for down_pod in readiness.down
    )


def render_readiness(readiness: Readiness) -> str:
    """Return a text such as `zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff)`."""
    up, word = readiness.used - readiness.unavailable, _render_state(readiness.sts)
    replicas, why = readiness.sts.replicas, render_not_ready(readiness)
    return f"{readiness.sts.name} has {up} of {replicas} pods {word}{why}"


def render_not_ready(readiness: Readiness) -> str:
    """Return what is down and why, in brackets after a blank; empty where nothing is."""
    first = tuple(islice(_list_reasons(readiness), NAMES_SHOWN))
    seen = join_some(first, total=readiness.seen_down + readiness.sts.replicas - readiness.used)
    if readiness.seen_down < readiness.unavailable:
        counted = f"status counts {_counted_up(readiness.sts)} {_render_state(readiness.sts)}"
        seen = f"{counted}; {seen}" if seen else counted
    return f" ({seen})" if seen else ""


def render_why(readiness: Readiness, down: Down) -> str:
    """Return in a few words why a pod counts as down, such as `CrashLoopBackOff`."""
    if down.why is DownCause.SETTLING:
        return f"ready for less than {readiness.sts.min_ready_seconds}s"
    return (down.pod.why_not_ready or down.why) if down.why is DownCause.UNREADY else down.why


def _find_settling(pod: Pod, patience: timedelta, now: datetime) -> DownCause | None:
    since = pod.ready_since
    return None if since is not None and now - since >= patience else DownCause.SETTLING


def _next_available(down: Iterable[Down], patience: timedelta, now: datetime) -> timedelta | None:
    waits = (
        patience - (now - down_pod.pod.ready_since)
        for down_pod in down
        if down_pod.why is DownCause.SETTLING and down_pod.pod.ready_since is not None
    )
    return min(waits, default=None)


def _counted_up(sts: StatefulSet) -> int:
    return sts.available_replicas if sts.min_ready_seconds > 0 else sts.ready_replicas


def _render_state(sts: StatefulSet) -> str:
    return "available" if sts.min_ready_seconds > 0 else "ready"


def _list_reasons(readiness: Readiness) -> Iterator[str]:
    yield from (
        f"{down_pod.pod.name}: {render_why(readiness, down_pod)}" for down_pod in readiness.down
    )
    yield from (f"{name}: unreadable" for name in readiness.unreadable)
    yield from (f"{name}: no pod" for name in readiness.first_missing)
    yield from (
        f"{pod.name}: {pod.why_not_ready or DownCause.UNREADY}" for pod in readiness.newcomers
    )


def _first_missing(
    sts: StatefulSet, used: int, held: Mapping[int, Pod | Unreadable]
) -> tuple[str, ...]:
    gaps = (ordinal for ordinal in sts.ordinals[:used] if ordinal not in held)
    shown = min(used - len(held), NAMES_SHOWN)
    return tuple(f"{sts.name}-{ordinal}" for ordinal in islice(gaps, shown))


def count_pods(readiness: Readiness) -> ZoneProgress:
    """Return the numbers of a zone; pods that cannot be read are neither updated nor outdated."""
    sts = readiness.sts
    # Settling pods are among the standing pods as well.
    down = (down_pod.pod for down_pod in readiness.down if down_pod.why is not DownCause.SETTLING)
    revisions = [pod.revision for pod in chain(readiness.standing, down, readiness.newcomers)]
    # Without an update revision nothing is known to be outdated.
    updated = revisions.count(sts.update_revision) if sts.update_revision else 0
    return ZoneProgress(
        zone=sts.name,
        desired=sts.replicas,
        ready=readiness.used - readiness.unavailable,
        updated=updated,
        outdated=len(revisions) - updated if sts.update_revision else 0,
    )
