"""How long each restart took, read from a history: figures for benchmarks."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tests.judge.objects import Pod, Set
from tests.world.observed import Change, Delete, ended_pod, match_deletes


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """One pod deleted by the operator. Moments are on the judge's clock; None is "not yet"."""

    pod: str
    zone: str
    deleted: float
    """The delete's commit."""
    gone: float | None = None
    recreated: float | None = None
    ready: float | None = None
    """The new pod's readiness is in the store."""
    counted: float | None = None
    """The StatefulSet's status counts the new pod as ready."""


def list_restarts(changes: Sequence[Change], deletes: Sequence[Delete]) -> list[Restart]:
    """Return the operator's restarts in the order of their commits."""
    commits = match_deletes(changes, deletes)
    restarts: list[Restart] = []
    running: dict[str, int] = {}
    sets: dict[str, Set] = {}
    ready: dict[str, set[str]] = {}
    for change in changes:
        pod = ended_pod(change)
        if pod is not None and change.version in commits:
            zone = sets[pod.owner].name if pod.owner in sets else ""
            running[pod.name] = len(restarts)
            restarts.append(Restart(pod=pod.name, zone=zone, deleted=change.at))
        match change.now or change.before:
            case Pod() as found:
                _record_ready(ready, found, change)
                if found.name in running:
                    index = running[found.name]
                    restarts[index] = _next_moment(restarts[index], change)
            case Set() as zone_now:
                sets[zone_now.uid] = zone_now
                if zone_now.ready_replicas >= len(ready.get(zone_now.uid, ())):
                    _count(restarts, running, zone_now.name, change.at)
    return restarts


def _record_ready(ready: dict[str, set[str]], pod: Pod, change: Change) -> None:
    names = ready.setdefault(pod.owner, set())
    if change.now is not None and pod.is_ready and not pod.is_terminating:
        names.add(pod.name)
    else:
        names.discard(pod.name)


def _next_moment(restart: Restart, change: Change) -> Restart:
    match change.now:
        case None if restart.gone is None:
            return replace(restart, gone=change.at)
        case Pod(is_terminating=False) if change.before is None:
            return replace(restart, recreated=change.at)
        case Pod(is_terminating=False, is_ready=True) if restart.recreated and not restart.ready:
            return replace(restart, ready=change.at)
    return restart


def _count(restarts: list[Restart], running: dict[str, int], zone: str, at: float) -> None:
    for name, index in list(running.items()):
        restart = restarts[index]
        if restart.zone == zone and restart.ready is not None:
            restarts[index] = replace(restart, counted=at)
            del running[name]
