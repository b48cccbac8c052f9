"""What happened in a rollout and how long it took, from the API server's audit log alone.

Pure: entries in, figures out. All times are those at which the API server received a request, on
its own clock; so the time that the server itself takes to commit and to tell of a write counts
against the operator, never for it.

A delete is allowed from the moment at which every other zone is whole and its own zone has fewer
pods down than the limit, where a pod is down until both its own status and the StatefulSet's say
that it is back: the more pessimistic of both views counts, as it does for the operator.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, assert_never

import msgspec

Json = dict[str, Any]


class Changed(msgspec.Struct, frozen=True):
    """Somebody gave a zone a new template."""

    at: float


class Deleted(msgspec.Struct, frozen=True):
    """The operator deleted a pod."""

    at: float
    pod: str


class Ready(msgspec.Struct, frozen=True):
    """A pod's status says that it is ready."""

    at: float
    answered: float
    pod: str


class Counted(msgspec.Struct, frozen=True):
    """A StatefulSet's status counts its ready pods."""

    at: float
    answered: float
    zone: str
    missing: int


class Requested(msgspec.Struct, frozen=True):
    """The operator asked something else of the API server."""

    at: float
    answered: float


Moment = Changed | Deleted | Ready | Counted | Requested


class Restart(msgspec.Struct, frozen=True):
    """One replaced pod, from its delete until it counts as back."""

    zone: str
    begin: float
    end: float

    @property
    def span(self) -> float:
        """Return how long it took, in seconds."""
        return self.end - self.begin


class Reaction(msgspec.Struct, frozen=True):
    """Seconds from the write that allowed a delete until the delete."""

    whole: float
    """Since the API server received that write."""
    server: float
    """Of these, how long the server was at that write and at the operator's requests."""


class Rollout(msgspec.Struct):
    """All that was seen, in seconds."""

    limit: int
    begin: float = 0.0
    restarts: list[Restart] = []
    reactions: list[Reaction] = []
    zones_short: int = 0
    """The most zones with pods down at any time."""
    pods_down: int = 0
    """The most pods down in a zone at any time."""

    @property
    def wall(self) -> float:
        """Return the time from the new template until the last pod counts as back."""
        return max(each.end for each in self.restarts) - self.begin

    @property
    def floor(self) -> float:
        """Return what the restarts alone take, one zone after the other, `limit` at a time."""
        zones: dict[str, list[float]] = {}
        for each in sorted(self.restarts, key=lambda one: one.begin):
            zones.setdefault(each.zone, []).append(each.span)
        return sum(_pack(spans, self.limit) for spans in zones.values())


class _Zone(msgspec.Struct):
    down: set[str] = set()
    missing: int = 0
    allowed: Changed | Ready | Counted | None = None
    """What allowed the next delete; the template where nothing else had to happen."""
    coming: dict[str, float] = {}
    """Pods that were deleted and do not count as back yet, by the time of their delete."""

    @property
    def unavailable(self) -> int:
        return max(len(self.down), self.missing)


class Replay:
    """The state of a group, as moments lead to it."""

    def __init__(self, zones: Iterable[str], limit: int) -> None:
        self.rollout = Rollout(limit=limit)
        self._zones = {name: _Zone(allowed=Changed(0.0)) for name in zones}
        self._requested: list[Requested] = []

    def take(self, moment: Moment) -> None:
        """Go on by one moment; they come in the order of their times."""
        match moment:
            case Changed(at=at):
                self.rollout.begin = self.rollout.begin or at
            case Deleted():
                self._delete(moment)
            case Ready(pod=pod):
                self._zones[_zone_of(pod)].down.discard(pod)
                self._settle(moment, _zone_of(pod))
            case Counted(zone=name, missing=missing):
                self._zones[name].missing = missing
                self._settle(moment, name)
            case Requested():
                self._requested.append(moment)
            case _:
                assert_never(moment)

    def _delete(self, moment: Deleted) -> None:
        zone = self._zones[_zone_of(moment.pod)]
        if isinstance(zone.allowed, Ready | Counted):
            begin = zone.allowed.at
            spans = [(each.at, each.answered) for each in (zone.allowed, *self._requested)]
            busy = _cover(spans, begin, moment.at)
            self.rollout.reactions.append(Reaction(whole=moment.at - begin, server=busy))
        zone.down.add(moment.pod)
        zone.coming[moment.pod] = moment.at
        short = [each for each in self._zones.values() if each.down]
        self.rollout.zones_short = max(self.rollout.zones_short, len(short))
        self.rollout.pods_down = max(self.rollout.pods_down, len(zone.down))
        self._judge(None)

    def _settle(self, moment: Ready | Counted, name: str) -> None:
        zone = self._zones[name]
        if zone.missing <= len(zone.down):  # the set's status has caught up with its pods
            for pod in [pod for pod in zone.coming if pod not in zone.down]:
                begin = zone.coming.pop(pod)
                self.rollout.restarts.append(Restart(name, begin, moment.at))
        self._judge(moment)

    def _judge(self, moment: Ready | Counted | None) -> None:
        """Record since which moment each zone may have a pod deleted."""
        for name, zone in self._zones.items():
            others = [each for other, each in self._zones.items() if other != name]
            is_allowed = zone.unavailable < self.rollout.limit and not any(
                each.unavailable for each in others
            )
            zone.allowed = (zone.allowed or moment) if is_allowed else None


def read_rollout(
    entries: Iterable[Json], operator: str, zones: Iterable[str], limit: int
) -> Rollout:
    """Return what the audit log tells of one rollout of a group that was whole before.

    `entries` hold the requests of one namespace, their bodies too where a status is written.
    Without a single replaced pod the figures raise ValueError.
    """
    replay = Replay(zones, limit)
    for moment in sorted(_moments(entries, operator), key=lambda each: each.at):
        replay.take(moment)
    return replay.rollout


def count_requests(entries: Iterable[Json], operator: str) -> Counter[str]:
    """Return the operator's requests by what they are, such as `delete pods`.

    A watch is told of twice, at its begin and at its end: its begin counts.
    """
    return Counter(
        f"{entry['verb']} {_resource(entry)}"
        for entry in entries
        if entry["user"].get("username") == operator
        and (entry["verb"] == "watch") == (entry["stage"] == "ResponseStarted")
    )


def _moments(entries: Iterable[Json], operator: str) -> Iterable[Moment]:
    for entry in entries:
        if entry.get("responseStatus", {}).get("code", 0) >= 300:
            continue
        at, answered = _time(entry["requestReceivedTimestamp"]), _time(entry["stageTimestamp"])
        user, name = entry["user"].get("username"), entry["objectRef"].get("name", "")
        body = entry.get("requestObject") or {}
        match entry["verb"], _resource(entry):
            case "patch", "statefulsets":
                yield Changed(at)
            case "delete", "pods" if user == operator:
                yield Deleted(at, name)
            case "patch", "pods/status" if _is_ready(body.get("status", {})):
                yield Ready(at, answered, name)
            case "update", "statefulsets/status" if user != operator and body:
                ready = body.get("status", {}).get("readyReplicas", 0)
                yield Counted(at, answered, name, max(body["spec"]["replicas"] - ready, 0))
            case _, "events":
                continue  # no delete waits for one
            case verb, _ if user == operator and verb != "watch":
                yield Requested(at, answered)


def _resource(entry: Json) -> str:
    target = entry.get("objectRef", {})
    parts = (target.get("resource", ""), target.get("subresource", ""))
    return "/".join(part for part in parts if part)


def _is_ready(status: Json) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in status.get("conditions", ())
    )


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _zone_of(pod: str) -> str:
    return pod.rpartition("-")[0]


def _cover(spans: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return how much of the time from `begin` to `end` the spans cover together."""
    covered, until = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, until), min(last, end)
        if last > first:
            covered, until = covered + last - first, last
    return covered


def _pack(spans: Sequence[float], slots: int) -> float:
    """Return how long works of these spans take, begun in this order, so many at a time."""
    ends = [0.0] * slots
    for span in spans:
        heapq.heapreplace(ends, ends[0] + span)
    return max(ends)
