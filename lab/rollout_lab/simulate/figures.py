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
from rollout_lab.simulate.people import PERSON
from rollout_lab.simulate.policies import FoundPolicy, find_policy
from rollout_lab.simulate.world import OPERATOR, RESTORER
from rollout_lab.trace.lines import EVICTION
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, STATEFULSETS, JsonObject
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.objects import Pod
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.wording import join_names

_BATCH: Final = ("status", "lastBatch")
NOT_FOUND: Final = 404


class ZonesDown(msgspec.Struct):
    """Zones of one group that missed pods at the same time."""

    zones: tuple[str, ...]
    begin: timedelta
    """When they did for the first time."""
    span: timedelta = timedelta(0)
    """How long in all."""
    is_open: bool = False
    """Whether they still do in the end."""


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that went down, by others than the operator, while no rollout might take one down."""

    at: timedelta
    pod: str
    actor: str
    text: str
    """Which bound, and by how much."""


class EvictionWait(msgspec.Struct, frozen=True, kw_only=True):
    """An eviction, from its first request until it was allowed."""

    pod: str
    at: timedelta
    waited: timedelta
    is_open: bool = False
    """Whether it is still refused in the end."""


class PolicyBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that a policy has replaced together."""

    policy: str
    number: int
    zone: str
    set_name: str
    pods: tuple[str, ...]
    begin: timedelta
    end: timedelta | None = None
    """When it was complete, for the last time, or the next began; None where it is open."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    deletes: tuple[str, ...]
    """The pods that the operator has deleted, in order."""
    most_down: Mapping[str, int]
    """The most pods that a zone missed at the same time, whoever is to blame."""
    down_before: Mapping[str, int]
    overlaps: tuple[ZonesDown, ...]
    refusals: tuple[str, ...]
    """What was said to the requests of people that were turned away."""
    crossings: tuple[Crossing, ...] = ()
    evictions: tuple[EvictionWait, ...] = ()
    batches: tuple[PolicyBatch, ...] = ()
    """Of all policies."""

    def list_batches_of(self, policy: str) -> tuple[PolicyBatch, ...]:
        return tuple(batch for batch in self.batches if batch.policy == policy)


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
        overlaps=tuple(state.overlaps.values()),
        refusals=tuple(state.refusals),
        crossings=tuple(state.crossings),
        evictions=tuple(state.evictions),
        batches=tuple(list_batches(commit for commit in records if commit.at < end)),
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
    crossings: list[Crossing] = []
    evictions: list[EvictionWait] = []
    _requested: dict[str, timedelta] = {}
    """Evictions that were refused so far, and when they were requested first."""
    most_down: dict[str, int] = {}
    down_before: dict[str, int] = {}
    overlaps: dict[tuple[str, ...], ZonesDown] = {}
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
            overlap = self.overlaps.setdefault(zones, ZonesDown(zones, self._at))
            overlap.span += at - self._at
        self._at = at

    def finish(self, at: timedelta) -> None:
        """Take the present state as the last."""
        self.pass_time(at)
        for zones in self._list_overlaps():
            self.overlaps[zones].is_open = True
        for pod, requested in self._requested.items():
            self.evictions.append(
                EvictionWait(pod=pod, at=requested, waited=at - requested, is_open=True)
            )

    def _take_eviction(self, called: Called) -> None:
        pod = called.request.name
        requested = self._requested.setdefault(pod, called.begun)
        if called.status < 300:
            self.evictions.append(EvictionWait(pod=pod, at=requested, waited=called.at - requested))
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

    def _list_crossings(self, commit: Commit) -> Iterator[Crossing]:
        """Yield the bounds that a pod which goes down crosses, unless the operator let it go."""
        zone = self._zone_of.get(commit.name)
        is_granted = commit.before is not None and _decode(commit.before).disruption
        if zone is None or commit.actor == OPERATOR or is_granted:
            return
        cross = partial(Crossing, at=commit.at, pod=commit.name, actor=commit.actor)
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


def list_batches(records: Iterable[Record]) -> list[PolicyBatch]:
    """Return the batches that began in a history, in order; not those that it began with."""
    batches: dict[tuple[str, int], PolicyBatch] = {}
    for record in records:
        if not isinstance(record, Commit) or record.resource != MULTI_AZ_ROLLOUTS:
            continue
        if record.before is None or record.after is None:
            continue
        old, new = (child(obj, *_BATCH) for obj in (record.before, record.after))
        key = (record.name, number(new, "number"))
        if new and number(old, "number") != key[1]:
            before = (record.name, number(old, "number"))
            if before in batches and batches[before].end is None:
                batches[before] = replace(batches[before], end=record.at)
            batches[key] = _begin_batch(record, new)
        elif key in batches:
            had_ended, has_ended = ("completionTime" in obj for obj in (old, new))
            if had_ended != has_ended:
                batches[key] = replace(batches[key], end=record.at if has_ended else None)
    return list(batches.values())


def _begin_batch(record: Commit, batch: JsonObject) -> PolicyBatch:
    return PolicyBatch(
        policy=record.name,
        number=number(batch, "number"),
        zone=text(batch, "zone"),
        set_name=text(batch, "statefulSet"),
        pods=tuple(text(pod, "name") for pod in children(batch, "pods")),
        begin=record.at,
    )


def find_shortest_pause(batches: Sequence[PolicyBatch]) -> timedelta | None:
    """Return the shortest time from the end of a batch to the begin of the next."""
    pauses = [after.begin - before.end for before, after in pairwise(batches) if before.end]
    return min(pauses, default=None)
