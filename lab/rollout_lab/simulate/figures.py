"""What a simulation comes to: pods replaced, how many were down, what was refused.

Pure, from the history of the simulated world.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.controllers.members import ordinals_of
from rollout_lab.model.fields import child, children, number, text
from rollout_lab.model.history import Called, Commit, Record
from rollout_lab.simulate.policies import FoundPolicy, find_policy
from rollout_lab.simulate.world import OPERATOR, PERSON, RESTORER
from rollout_lab.trace.lines import EVICTION
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, STATEFULSETS, JsonObject
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.objects import Pod
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.wording import join_names

_BATCH: Final = ("status", "lastBatch")
NOT_FOUND: Final = 404


class SimulatedOverlap(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Zones of one group that missed pods at the same time."""

    zones: Sequence[str]
    at: float
    seconds: float
    is_open: bool


class SimulatedEviction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An eviction that was requested, again and again where it was refused."""

    pod: str
    at: float
    waited: float
    is_open: bool
    """Whether it is still refused in the end."""


class SimulatedCrossing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that others than the operator took down past a bound."""

    pod: str
    at: float
    by: str
    text: str


class SimulatedBatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods that a policy has replaced together."""

    number: int
    zone: str
    stateful_set: str
    pods: Sequence[str]
    at: float
    seconds: float | None = None
    """Until it was complete; absent where it is open in the end."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    deletes: tuple[str, ...]
    """The pods that the operator has deleted, in order."""
    most_down: Mapping[str, int]
    """The most pods that a zone missed at the same time, whoever is to blame."""
    down_before: Mapping[str, int]
    overlaps: tuple[SimulatedOverlap, ...]
    refusals: tuple[str, ...]
    """What was said to the requests of people that were turned away."""
    crossings: tuple[SimulatedCrossing, ...] = ()
    evictions: tuple[SimulatedEviction, ...] = ()
    batches: Mapping[tuple[str, int], SimulatedBatch] = {}
    """By the name of the policy and the number, in order."""

    def list_batches_of(self, policy: str) -> list[SimulatedBatch]:
        return [batch for (name, _), batch in self.batches.items() if name == policy]


def add_up(
    records: Sequence[Record],
    groups: Mapping[str, Iterable[str]],
    end: timedelta,
    policies: Iterable[FoundPolicy] = (),
) -> Figures:
    """Return the figures until `end`.

    `groups` are the StatefulSets that roll out together, each a zone of its own but for those that
    one of `policies` owns.
    """
    state = _FiguresState({zone: group for group, zones in groups.items() for zone in zones})
    for policy in policies:
        state.owners.update(dict.fromkeys(policy.owned, policy))
        homes = {sts.name: zone.name for zone in policy.zones for sts in zone.sets}
        state.domains.update(homes)
    for record in records:
        if record.at < end:
            state.take(record)
    state.finish(end)
    return Figures(
        deletes=tuple(state.deletes),
        most_down=dict(sorted(state.most_down.items())),
        down_before=dict(sorted(state.down_before.items())),
        overlaps=state.list_overlaps(),
        refusals=tuple(state.refusals),
        crossings=tuple(state.crossings),
        evictions=tuple(state.evictions),
        batches=map_batches(commit for commit in records if commit.at < end),
    )


class _FiguresState(msgspec.Struct):
    """The state of the world while its history is read."""

    group_of: dict[str, str]
    owners: dict[str, FoundPolicy] = {}
    """The policy of each StatefulSet that has one."""
    domains: dict[str, str] = {}
    """The zone of a policy that such a StatefulSet is in."""
    deletes: list[str] = []
    refusals: list[str] = []
    crossings: list[SimulatedCrossing] = []
    evictions: list[SimulatedEviction] = []
    _requested: dict[str, timedelta] = {}
    """Evictions that were refused so far, and when they were requested first."""
    most_down: dict[str, int] = {}
    down_before: dict[str, int] = {}
    _together: dict[tuple[str, ...], tuple[timedelta, timedelta]] = {}
    """When zones were down together for the first time, and how long in all."""
    _places: dict[str, range] = {}
    """The ordinals of each zone."""
    _zone_of: dict[str, str] = {}
    _down: dict[str, int] = {}
    """How many places of each zone have no pod that is up."""
    _limits: dict[str, int] = {}
    _up: set[str] = set()
    _at: timedelta = timedelta(0)

    def take(self, record: Record) -> None:
        if isinstance(record, Called) and record.request.subresource == EVICTION:
            self._take_eviction(record)
        match record:
            case Commit():
                self._move(record)
            case Called(actor=actor, status=status) if actor == PERSON and status >= 400:
                self.refusals.append(record.message)
            case Called(actor=actor, status=status) if actor == OPERATOR and status < 300:
                if (record.request.verb, record.request.resource) == ("delete", PODS):
                    self.deletes.append(record.request.name)
            case _:
                pass

    def pass_time(self, at: timedelta) -> None:
        """Let the present state have lasted until `at`."""
        for zones in self._list_overlaps():
            begin, span = self._together.get(zones, (self._at, timedelta(0)))
            self._together[zones] = (begin, span + at - self._at)
        self._at = at

    def finish(self, at: timedelta) -> None:
        """Take the present state as the last."""
        self.pass_time(at)
        for pod, requested in self._requested.items():
            self._end_eviction(pod, requested, at, is_open=True)

    def list_overlaps(self) -> tuple[SimulatedOverlap, ...]:
        """Return which zones were down together; those of the present state are open."""
        still = {*self._list_overlaps()}
        return tuple(
            SimulatedOverlap(
                zones=zones, at=to_seconds(begin), seconds=to_seconds(span), is_open=zones in still
            )
            for zones, (begin, span) in self._together.items()
        )

    def _end_eviction(
        self, pod: str, requested: timedelta, at: timedelta, *, is_open: bool
    ) -> None:
        waited = to_seconds(at - requested)
        eviction = SimulatedEviction(
            pod=pod, at=to_seconds(requested), waited=waited, is_open=is_open
        )
        self.evictions.append(eviction)

    def _take_eviction(self, called: Called) -> None:
        pod = called.request.name
        requested = self._requested.setdefault(pod, called.begun)
        if called.status < 300:
            self._end_eviction(pod, requested, called.at, is_open=False)
        if called.status < 300 or called.status == NOT_FOUND:
            del self._requested[pod]

    def _move(self, commit: Commit) -> None:
        if commit.actor != RESTORER and commit.at > self._at:
            self.pass_time(commit.at)
        if commit.resource == STATEFULSETS:
            self._move_places(commit.name, ordinals_of(commit.after) if commit.after else range(0))
            self._limits[commit.name] = _read_limit(commit.after)
        elif commit.resource == MULTI_AZ_ROLLOUTS:
            self._change_policy(commit)
        elif commit.resource == PODS and _is_up(commit.after):
            self._count_pod(commit.name, 0 if commit.name in self._up else -1)
            self._up.add(commit.name)
        elif commit.resource == PODS and commit.name in self._up:
            self._up.remove(commit.name)
            self._count_pod(commit.name, 1)
            self.crossings.extend(self._list_crossings(commit))
        self._record_down(is_before=commit.actor == RESTORER)

    def _move_places(self, zone: str, places: range) -> None:
        """Let a zone have other places; nearly all writes of a StatefulSet change none."""
        if self._places.get(zone) == places:
            return
        for place in _name_places(zone, self._places.get(zone, range(0))):
            del self._zone_of[place]
        names = _name_places(zone, places)
        self._places[zone] = places
        self._zone_of.update(dict.fromkeys(names, zone))
        self._down[zone] = sum(place not in self._up for place in names)

    def _count_pod(self, pod: str, more: int) -> None:
        if (zone := self._zone_of.get(pod)) is not None:
            self._down[zone] += more

    def _list_crossings(self, commit: Commit) -> Iterator[SimulatedCrossing]:
        """Yield the bounds that a pod which goes down crosses, unless the operator let it go."""
        zone = self._zone_of.get(commit.name)
        is_granted = commit.before is not None and _decode(commit.before).disruption
        if zone is None or commit.actor == OPERATOR or is_granted:
            return
        cross = partial(
            SimulatedCrossing, at=to_seconds(commit.at), pod=commit.name, by=commit.actor
        )
        group, home, limit = (
            self.group_of.get(zone, ""),
            self._name_domain(zone),
            self._get_limit(zone),
        )
        members = [place for place in self._places if self.group_of.get(place, "") == group]
        down = sum(self._down[member] for member in members if self._name_domain(member) == home)
        if down > limit:
            yield cross(text=f"{commit.name} is number {down} down of {home}, of {limit} allowed")
        domains = {self._name_domain(member) for member in members if self._down[member]}
        if short := domains - {home}:
            yield cross(text=f"{commit.name} goes down beside pods of {join_names(sorted(short))}")

    def _record_down(self, *, is_before: bool) -> None:
        for zone, down in self._down.items():
            if is_before:
                self.down_before[zone] = self.most_down[zone] = down
            else:
                self.most_down[zone] = max(self.most_down.get(zone, 0), down)

    def _list_overlaps(self) -> Iterator[tuple[str, ...]]:
        down: dict[str, dict[str, None]] = {}
        for zone in sorted(self._places):
            if self._down[zone]:
                domains = down.setdefault(self.group_of.get(zone, ""), {})
                domains[self._name_domain(zone)] = None
        return (tuple(zones) for zones in down.values() if len(zones) > 1)

    def _name_domain(self, zone: str) -> str:
        """Return what may be down together with a StatefulSet: a zone of its policy, or itself."""
        return self.domains.get(zone, zone)

    def _get_limit(self, zone: str) -> int:
        """Return how many pods may be down beside those of a StatefulSet, in its zone."""
        owner = self.owners.get(zone)
        if owner is None or owner.policy is None:
            return self._limits[zone]
        return owner.policy.max_unavailable.of(len(self._places[zone]))

    def _change_policy(self, commit: Commit) -> None:
        """Let another limit count, where a policy has any that can be read."""
        policy = None if commit.after is None else find_policy(commit.after)
        for zone, owner in self.owners.items():
            if owner.name == commit.name and policy is not None:
                self.owners[zone] = replace(owner, policy=policy)


def _read_limit(sts: JsonObject | None) -> int:
    return 0 if sts is None else choose_limit(decode_statefulset(msgspec.json.encode(sts)))[0]


def _name_places(zone: str, ordinals: range) -> list[str]:
    return [f"{zone}-{ordinal}" for ordinal in ordinals]


def _is_up(pod: JsonObject | None) -> bool:
    """Return whether a pod counts as ready for the operator."""
    return pod is not None and _decode(pod).is_ready


def _decode(pod: JsonObject) -> Pod:
    return decode_pod(msgspec.json.encode(pod))


def map_batches(records: Iterable[Record]) -> dict[tuple[str, int], SimulatedBatch]:
    """Return the batches that began in a history, in order; not those that it began with."""
    batches: dict[tuple[str, int], SimulatedBatch] = {}
    for record in records:
        if not isinstance(record, Commit) or record.resource != MULTI_AZ_ROLLOUTS:
            continue
        if record.before is None or record.after is None:
            continue
        old, new = (child(obj, *_BATCH) for obj in (record.before, record.after))
        before, key = (record.name, number(old, "number")), (record.name, number(new, "number"))
        if new and before != key:
            if before in batches and batches[before].seconds is None:
                batches[before] = _end_batch(batches[before], record.at)
            batches[key] = SimulatedBatch(
                number=key[1],
                zone=text(new, "zone"),
                stateful_set=text(new, "statefulSet"),
                pods=tuple(text(pod, "name") for pod in children(new, "pods")),
                at=to_seconds(record.at),
            )
        elif key in batches:
            had_ended, has_ended = ("completionTime" in obj for obj in (old, new))
            if had_ended != has_ended:
                batches[key] = _end_batch(batches[key], record.at if has_ended else None)
    return batches


def _end_batch(batch: SimulatedBatch, at: timedelta | None) -> SimulatedBatch:
    return replace(batch, seconds=None if at is None else round(to_seconds(at) - batch.at, 3))


def find_shortest_pause(batches: Sequence[SimulatedBatch]) -> timedelta | None:
    """Return the shortest time from the end of a batch to the begin of the next."""
    pauses = [
        after.at - before.at - before.seconds
        for before, after in pairwise(batches)
        if before.seconds is not None
    ]
    return timedelta(seconds=min(pauses)) if pauses else None


def to_seconds(span: timedelta) -> float:
    """Return a time since the start, or a span, as it is printed for machines."""
    return round(span.total_seconds(), 3)
