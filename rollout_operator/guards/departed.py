"""Zones that left their group, budget or policy while they were short: they still count (D-82).

A person deletes a StatefulSet without its pods to give it larger volumes, a tool takes a label off,
a selector changes: the pods that were down a moment ago are still down. Such a zone counts for the
others until a StatefulSet of its name is there and whole, at most for `COUNTS_FOR`. A zone that was
whole when it left counts no more, whatever becomes of its pods.

Fed by the watches in every replica, so that a failover forgets nothing. Kept in memory only: after
a restart it is known from pods without a StatefulSet that are not ready.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.store import PodStore, StatefulSetStore, is_older, name_set
from rollout_operator.model.names import REVISION_LABEL, GroupName, Uid
from rollout_operator.model.objects import (
    AnySet,
    Deletion,
    Newcomers,
    Pod,
    StatefulSet,
    Unreadable,
    Zone,
    parse_ordinal,
    selects,
)
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT, Readiness, measure_readiness
from rollout_operator.telemetry.logs import log

# To make volumes larger takes minutes; a zone that is removed for good holds the others no longer.
COUNTS_FOR: Final = timedelta(minutes=10)
# Any client that may label a StatefulSet adds records, each with its labels and annotations. Beyond
# this many, or this much, the oldest record of the StatefulSet that takes most is forgotten: one
# that is labelled again and again displaces no other.
MOST_DEPARTED: Final = 1024
MOST_BYTES: Final = 16 << 20
# Of a record, and of each entry of its mappings, beside the text; as measured.
_RECORD_BYTES: Final = 1024
_ENTRY_BYTES: Final = 200
# So many of a StatefulSet's records are matched with all policies at each change of a pod.
_MOST_MATCHED: Final = 16
# What comes so soon after a zone has left may be where it went.
LATEST: Final = timedelta(minutes=1)

_Scope: TypeAlias = tuple[str, str]
"""What a zone belongs to: a group, a budget or a policy, by kind and name."""
OwnedPods: TypeAlias = Mapping[Uid | None, Sequence[Pod | Unreadable]]
"""Pods by the UID of their owner; None for those without one."""
Selects: TypeAlias = Callable[[Mapping[str, str]], bool]
"""Whether a budget or policy selects a StatefulSet of these labels."""

GROUP: Final = "group"
BUDGET: Final = "budget"
POLICY: Final = "policy"
# Of pods found without a StatefulSet: they belong to what their labels make them members of.
_BY_LABELS: Final[_Scope] = ("", "")


class _Kind(NamedTuple):
    list_names: Callable[[], Iterable[str]]
    selects: Callable[[str, AnySet], bool]


class _Departed(NamedTuple):
    sts: StatefulSet
    """As it was when it belonged to the scope."""
    version: str
    """Of the change by which it left."""
    at: timedelta
    size: int


class _JustLeft(NamedTuple):
    """A zone that was whole when it left, for all that was known then."""

    sts: StatefulSet
    scopes: Sequence[_Scope]
    version: str
    """Of the change by which it left: what is older was the case before."""
    at: timedelta
    size: int


class _Read(NamedTuple):
    owned: OwnedPods
    orphans: Mapping[str, Sequence[Pod | Unreadable]]
    """Those without an owner, by the StatefulSet that they are named after."""


class DepartedZones:
    def __init__(
        self,
        sets: StatefulSetStore,
        pods: PodStore,
        clock: Clock,
        *,
        map_going: Callable[[Collection[Uid], Iterable[Pod], datetime], Mapping[Uid, Deletion]],
        now: Callable[[], datetime],
        age: Callable[[], timedelta],
        seen: Callable[[], str],
        listed_from: Callable[[], str | None],
        find_newcomers: Callable[[Uid], Newcomers | None],
    ) -> None:
        """`now` is the API server's time, `age` that of the cache of pods.

        `seen` returns the newest version that the watch of pods, or a list, has told of.
        `listed_from` returns the version that was known before a list, None while changes of pods
        come from the watch.
        """
        self._sets, self._pods, self._clock = sets, pods, clock
        self._map_going, self._find_newcomers = map_going, find_newcomers
        self._now, self._age, self._seen, self._listed_from = now, age, seen, listed_from
        self._kinds: dict[str, _Kind] = {}
        self._callbacks: list[tuple[str, Callable[[str], None]]] = []
        self._records: dict[str, dict[_Scope, _Departed]] = {}
        """By name of the StatefulSet, the oldest first."""
        self._just_left: dict[str, Sequence[_JustLeft]] = {}
        """By name of the StatefulSet, both the names and what each has left the oldest first."""
        self._readable: dict[Uid, StatefulSet] = {}
        """Of StatefulSets that cannot be read: what they were before."""
        self._whole_at_end: dict[Uid, str] = {}
        """Of StatefulSets being deleted that were whole when that began: the version by which."""

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def add_kind(
        self,
        kind: str,
        list_names: Callable[[], Iterable[str]],
        selects: Callable[[str, AnySet], bool],
    ) -> None:
        """Add budgets or policies: their names, and whether one of them selects a StatefulSet."""
        self._kinds[kind] = _Kind(list_names, selects)

    def begin(self) -> None:
        """Find zones that left before this process began, by pods without a StatefulSet.

        Sets, pods and budgets must be known.
        """
        orphans: dict[str, list[Pod]] = {}
        for pod in self._pods.list_all():
            if isinstance(pod, Pod) and pod.revision and self._is_orphaned(pod):
                orphans.setdefault(name_set(pod), []).append(pod)
        for name, pods in orphans.items():
            sts = _without_status(_imagine(name, pods))
            if self._find_present(sts) is not None or self._measure(sts).is_whole:
                continue
            if self._find_scopes(sts):
                log.warn("Pods without a StatefulSet are not ready, and still count", zone=name)
            self._add(sts, [_BY_LABELS], "", self._clock.elapsed())
        self._forget_surplus()

    def on_change(self, kind: str, callback: Callable[[str], None]) -> None:
        """Call back with the name of a group, budget or policy when a zone that left it changes."""
        self._callbacks.append((kind, callback))

    def list_zones(self, scope: _Scope, live: OwnedPods | None = None) -> tuple[Zone, ...]:
        """Return the zones that left a scope and still count, with cached or live pods.

        All pods appear as owned by their zone.
        """
        zones: list[Zone] = []
        read = None if live is None else _index_read(live)
        for name, departed in list(self._records.items()):
            if self._get_record(departed, scope) is not None:
                self._forget_old(name, departed)
                zone = self._find_zone(departed, scope, read)
                zones += [] if zone is None else [zone]
        return (*zones, *self._list_unproven(scope, read))

    def _list_unproven(self, scope: _Scope, live: _Read | None) -> Iterator[Zone]:
        """Yield zones that were whole for all that was known, while the watch is behind.

        Their cached pods hold nothing; those of a live read may. Of budgets for a live read only:
        their status says how many zones they have.
        """
        if scope[0] == BUDGET and live is None:
            return
        seen, now = self._seen(), self._clock.elapsed()
        for left in chain.from_iterable(self._just_left.values()):
            is_proven = scope not in left.scopes or not is_older(seen, left.version)
            if not is_proven and now - left.at < COUNTS_FOR:
                record = _Departed(left.sts, left.version, left.at, left.size)
                zone = self._find_zone({scope: record}, scope, live)
                yield from () if zone is None else (zone,)

    def on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        """Take over a StatefulSet that came, changed or went, before its newcomers are lost."""
        begins_to_go = _is_terminating(new) and not _is_terminating(old)
        if old is None and new is not None and self._is_known(new.name):
            self._leave_behind(set(), self._find_scopes(new), new)
        if old is not None and (new is None or begins_to_go or new.labels != old.labels):
            before, after = self._find_scopes(old), set[_Scope]()
            if new is not None:
                after = self._find_scopes(new)
                self._leave_behind(before, after, new)
            if self.on_left(before - after, old, new):
                log.warn("Zone left while it was short, and still counts", zone=old.name)
        if old is not None and (new is None or isinstance(new, StatefulSet)):
            self._readable.pop(old.uid, None)
        elif isinstance(old, StatefulSet):
            self._readable[old.uid] = old
        if old is not None and new is None:
            self._whole_at_end.pop(old.uid, None)
        elif begins_to_go and isinstance(old, StatefulSet) and new and self._is_whole(old):
            self._whole_at_end[old.uid] = new.resource_version
        version = new or old
        if version is not None:
            self._look_at(version.name)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        version = new or old
        if version is None:
            return
        name = name_set(version)
        if name in self._just_left:
            self._take_late(name, old, new)
            # A live read may have shown it short while the watch was behind.
            for left in self._just_left.get(name, ()):
                self._notify_scopes(left.scopes)
        if version.owner_uid is not None and version.owner_uid in self._whole_at_end:
            sts = self._sets.get_by_uid(version.owner_uid)
            ended = self._whole_at_end[version.owner_uid]
            if isinstance(sts, StatefulSet) and self._was_down_before(ended, sts, old, new):
                del self._whole_at_end[version.owner_uid]
        self._look_at(name)

    def on_selector(
        self, scope: _Scope, before: Selects | None, after: Selects | None, version: str
    ) -> None:
        """Take over a budget or policy that came, went or selects others than before.

        `version` is that of the change.
        """
        left, joined = list[AnySet](), list[AnySet]()
        for sts in self._sets.list_all():
            was, stays = (of is not None and of(sts.labels) for of in (before, after))
            if was and not stays:
                left.append(sts)
            elif stays and not was:
                joined.append(sts)
        for sts in left:
            self._leave([scope], sts, sts, version)
        kinds = _list_alike(scope[0])
        to = {*chain.from_iterable(self._list_in(kinds, sts) for sts in left)}
        self._carry_over({scope}, to, version)
        others = chain.from_iterable(
            (*self._list_left_last(sts.name, kinds), *self._list_in(kinds, sts)) for sts in joined
        )
        self._carry_over({*others} - {scope}, {scope}, version)
        self._forget_surplus()

    def _leave_behind(self, before: set[_Scope], after: set[_Scope], mover: AnySet) -> None:
        """Count in what a zone joins the short zones of what it was in, or has left lately.

        When a group is renamed, or replaced by a policy, its zones move one after the other: the
        short one perhaps last. Their labels may be taken off first, or they are deleted and created
        anew.
        """
        for kinds in {_list_alike(kind) for kind, _ in after - before}:
            to = {scope for scope in after - before if scope[0] in kinds}
            was = {scope for scope in before if scope[0] in kinds}
            left = was - after or self._list_left_last(mover.name, kinds)
            self._carry_over(was.union(left) - to, to, mover.resource_version, mover.name)

    def _carry_over(
        self, before: set[_Scope], to: set[_Scope], version: str, mover: str = ""
    ) -> None:
        """Count the short zones of some groups, budgets or policies in others that are alike.

        `version` is that of the change by which others went there.
        """
        if not before or not to:
            return
        for departed in list(self._records.values()):
            found = [self._get_record(departed, scope) for scope in before]
            records = [record for record in found if record is not None]
            if records:
                record = max(records, key=lambda record: record.at)
                older = [
                    scope for scope in to if scope not in departed or departed[scope].at < record.at
                ]
                self._add(record.sts, older, record.version, record.at)
        for name, lefts in self._just_left.items():
            self._just_left[name] = [_extend(left, before, to) for left in lefts]
        for sts in chain.from_iterable(map(self._list_sets, before)):
            if sts.name != mover:
                others = [scope for scope in to if not self._is_in(scope, sts)]
                self._leave(others, sts, sts, version)
        self._forget_surplus()

    def _list_sets(self, scope: _Scope) -> Iterable[AnySet]:
        kind, name = scope
        if kind == GROUP:
            return self._sets.list_group(GroupName(name))
        return [sts for sts in self._sets.list_all() if self._is_in(scope, sts)]

    def _is_known(self, name: str) -> bool:
        return name in self._just_left or name in self._records

    def _list_left_last(self, name: str, kinds: Collection[str]) -> list[_Scope]:
        """Return what a StatefulSet of this name was in until lately."""
        now, records = self._clock.elapsed(), self._records.get(name, {})
        just = [left for left in self._just_left.get(name, ()) if now - left.at < LATEST]
        left: Iterable[_Scope] = ()
        if just:
            left = chain.from_iterable(each.scopes for each in just)
        elif records:
            at = max(record.at for record in records.values())
            if now - at < COUNTS_FOR:
                left = [scope for scope, record in records.items() if record.at == at]
        return [scope for scope in left if scope[0] in kinds]

    def on_left(self, scopes: Iterable[_Scope], old: AnySet, new: AnySet | None) -> bool:
        """Record that a StatefulSet has left these scopes, if it is short; return whether it is."""
        is_short = self._leave(scopes, old, new)
        self._forget_surplus()
        return is_short

    def _leave(
        self, scopes: Iterable[_Scope], old: AnySet, new: AnySet | None, version: str = ""
    ) -> bool:
        scopes = tuple(scopes)
        if not scopes:
            return False
        sts, now = self._read(old, new), self._clock.elapsed()
        if not version:
            version = self._sets.find_deletion(old.uid) if new is None else new.resource_version
        # Pods that are deleted with their StatefulSet were up before.
        ended = self._whole_at_end.get(old.uid) if new is None else None
        is_whole = ended is not None or self._is_whole(sts)
        if is_whole:
            version = version if ended is None else ended
            left = _JustLeft(sts, scopes, version, now, _measure_size(sts))
            # A StatefulSet may leave its budget, and then its group: all of it may be unproven.
            others = [_without(each, scopes) for each in self._just_left.pop(sts.name, ())]
            others = [each for each in others if each.scopes][1 - _MOST_MATCHED :]
            self._just_left[sts.name] = (*others, left)
            taken = {name: sum(each.size for each in of) for name, of in self._just_left.items()}
            excess = sum(taken.values()) - MOST_BYTES
            for name, lefts in list(self._just_left.items()):
                if excess > 0 or now - lefts[-1].at >= COUNTS_FOR:
                    del self._just_left[name]
                    excess -= taken[name]
        else:
            self._add(sts, scopes, version, now)
        return not is_whole

    def _add(self, sts: StatefulSet, scopes: Iterable[_Scope], version: str, at: timedelta) -> None:
        departed, size = self._records.pop(sts.name, {}), _measure_size(sts)
        record = _Departed(_without_status(sts), version, at, size)
        departed.update((scope, record) for scope in scopes)
        self._records[sts.name] = departed
        self._notify(departed)

    def _forget_surplus(self) -> None:
        sizes = [record.size for departed in self._records.values() for record in departed.values()]
        surplus, excess = len(sizes) - MOST_DEPARTED, sum(sizes) - MOST_BYTES
        if surplus <= 0 and excess <= 0:
            return
        # With what each takes with the newer records of its StatefulSet; the sort is stable, the
        # oldest first.
        records = list[tuple[int, str, _Scope]]()
        for name, departed in self._records.items():
            taken = 0
            for scope, record in reversed(departed.items()):
                taken += record.size
                records.append((taken, name, scope))
        for _, name, scope in sorted(records, key=lambda record: -record[0]):
            if surplus <= 0 and excess <= 0:
                break
            surplus -= 1
            excess -= self._records[name].pop(scope).size
            if not self._records[name]:
                del self._records[name]

    def _take_late(
        self, name: str, old: Pod | Unreadable | None, new: Pod | Unreadable | None
    ) -> None:
        """Take over a change of a pod from before its zone left, which was short then."""
        now, lefts = self._clock.elapsed(), self._just_left[name]
        was_down = [
            left
            for left in lefts
            if now - left.at < COUNTS_FOR
            and self._was_down_before(left.version, left.sts, old, new)
        ]
        if not was_down:
            return
        # In its place: the oldest are forgotten first.
        self._just_left[name] = [left for left in lefts if left not in was_down]
        if not self._just_left[name]:
            del self._just_left[name]
        for left in was_down:
            self._add(left.sts, left.scopes, left.version, left.at)
        self._forget_surplus()

    def _was_down_before(
        self,
        version: str,
        sts: StatefulSet,
        old: Pod | Unreadable | None,
        new: Pod | Unreadable | None,
    ) -> bool:
        """Return whether news of a pod shows that it was, or may have been, down at a version."""
        pod = new or old
        if pod is None or sts.find_ordinal(pod.name, sts.ordinals) is None:
            return False
        if isinstance(new, Pod) and new.is_ready:
            return False
        since = self._listed_from()
        if since is not None:
            # What was missed may have been before, unless the watch or the pod was seen later.
            seen = [since] if old is None else [since, old.resource_version]
            return not any(is_older(version, each) for each in seen)
        at = self._pods.find_deletion(pod.uid) if new is None else new.resource_version
        return is_older(at, version)

    def _find_scopes(self, sts: AnySet) -> set[_Scope]:
        return {*self._list_in((GROUP, *self._kinds), sts)}

    def _list_in(self, kinds: Iterable[str], sts: AnySet) -> Iterator[_Scope]:
        return ((kind, name) for kind in kinds for name in self._list_names(kind, sts))

    def _list_names(self, kind: str, sts: AnySet) -> Iterator[str]:
        """Yield the names of the group, or of the budgets or policies, that a set belongs to."""
        if kind == GROUP:
            yield from () if sts.group is None else (sts.group,)
        elif kind in self._kinds:
            list_names, selects_set = self._kinds[kind]
            yield from (name for name in list_names() if selects_set(name, sts))

    def _is_in(self, scope: _Scope, sts: AnySet) -> bool:
        kind, name = scope
        if kind == GROUP:
            return sts.group == name
        return kind in self._kinds and self._kinds[kind].selects(name, sts)

    def _read(self, old: AnySet, new: AnySet | None) -> StatefulSet:
        """Return a StatefulSet as it was before it left, as far as that is known."""
        if isinstance(old, StatefulSet):
            return old
        if isinstance(new, StatefulSet):
            return replace(new, labels=old.labels)
        if (readable := self._readable.get(old.uid)) is not None:
            # What its status said may be true no more.
            return replace(readable, labels=old.labels, ready_replicas=0)
        # Its pods may have been released before it went.
        pods = (*self._pods.list_by_owner(old.uid), *self._pods.list_orphans(old.name))
        return _imagine(old.name, pods or [old], old.labels)

    def _find_zone(
        self, departed: Mapping[_Scope, _Departed], scope: _Scope, live: _Read | None
    ) -> Zone | None:
        """Return a zone as it is now, None if it did not leave this scope or is back."""
        record = self._get_record(departed, scope)
        if record is None:
            return None
        sts, present = record.sts, self._find_present(record.sts)
        if present is not None:
            if self._is_in(scope, present):
                return None
            sts = replace(present, labels=record.sts.labels)
        left = record.at + COUNTS_FOR - self._clock.elapsed()
        return replace(self._make_zone(sts, live), counts_for=left)

    def _get_record(self, departed: Mapping[_Scope, _Departed], scope: _Scope) -> _Departed | None:
        """Return the record of what left a scope, or would belong there if it had stayed.

        A budget or policy may be there under another name by now.
        """
        if scope in departed:
            return departed[scope]
        alike = (record for record in departed.values() if self._is_in(scope, record.sts))
        return max(alike, key=lambda record: record.at, default=None)

    def _is_orphaned(self, pod: Pod) -> bool:
        """Return whether no StatefulSet controls a pod that is named like those of one."""
        owner = None if pod.owner_uid is None else self._sets.get_by_uid(pod.owner_uid)
        return owner is None and parse_ordinal(pod.name.rpartition("-")[2]) is not None

    def _make_zone(self, sts: StatefulSet, live: _Read | None = None) -> Zone:
        pods: list[Pod | Unreadable] = []
        if live is not None:
            pods += (*live.owned.get(sts.uid, ()), *live.orphans.get(sts.name, ()))
        else:
            pods += self._pods.list_by_owner(sts.uid)
            pods += self._pods.list_orphans(sts.name)
        own = [pod for pod in pods if pod.owner_uid == sts.uid]
        own += [replace(pod, owner_uid=sts.uid) for pod in pods if _fits(sts, pod)]
        return compose_zone(sts, own)

    def _measure(self, sts: StatefulSet, *, has_newcomers: bool = True) -> Readiness:
        zone, now = self._make_zone(sts), self._now()
        if has_newcomers:
            zone = replace(zone, newcomers=self._find_newcomers(sts.uid))
        going = self._map_going({sts.uid}, zone.pods, now)
        return measure_readiness(zone, going, now)

    def _is_whole(self, sts: StatefulSet) -> bool:
        return self._measure(sts).is_whole and self._age() <= SNAPSHOT_LIMIT

    def _find_present(self, sts: StatefulSet) -> StatefulSet | None:
        present = self._sets.get(sts.namespace, sts.name)
        return present if isinstance(present, StatefulSet) else None

    def _is_whole_again(self, departed: Mapping[_Scope, _Departed]) -> bool:
        present = self._find_present(next(iter(departed.values())).sts)
        if present is None or not self._measure(present, has_newcomers=False).is_whole:
            return False
        # Else its pods are those of before it left: what is short then is still to come.
        seen = self._seen()
        return not any(is_older(seen, record.version) for record in departed.values())

    def _look_at(self, name: str) -> None:
        departed = self._records.get(name)
        if departed is None:
            return
        if self._is_whole_again(departed):
            log.info("Zone that left while it was short is whole", zone=name)
            del self._records[name]
        self._notify(departed)

    def _forget_old(self, name: str, departed: dict[_Scope, _Departed]) -> None:
        # Time alone may have made it whole: a pod becomes available.
        for scope, record in list(departed.items()):
            if self._clock.elapsed() - record.at >= COUNTS_FOR:
                log.info("Zone that left while it was short counts no more", zone=name)
                del departed[scope]
        if departed and self._is_whole_again(departed):
            departed.clear()
        if not departed:
            del self._records[name]

    def _notify(self, departed: Mapping[_Scope, _Departed]) -> None:
        newest = list(departed.values())[-_MOST_MATCHED:]
        scopes = {
            (kind, name)
            for record in newest
            for kind, _ in self._callbacks
            for name in self._list_names(kind, record.sts)
        }
        self._notify_scopes({*departed, *scopes})

    def _notify_scopes(self, scopes: Iterable[_Scope]) -> None:
        for kind, callback in self._callbacks:
            for name in {name for of, name in scopes if of == kind}:
                callback(name)


def _extend(left: _JustLeft, before: set[_Scope], to: set[_Scope]) -> _JustLeft:
    """Return a zone that left one of some scopes as if it had left others as well."""
    if before.isdisjoint(left.scopes):
        return left
    most = max(_MOST_MATCHED, len(left.scopes))
    return left._replace(scopes=tuple(dict.fromkeys((*left.scopes, *to)))[:most])


def _without(left: _JustLeft, scopes: Collection[_Scope]) -> _JustLeft:
    return left._replace(scopes=tuple(scope for scope in left.scopes if scope not in scopes))


def compose_zone(
    sts: StatefulSet, pods: Sequence[Pod | Unreadable], newcomers: Newcomers | None = None
) -> Zone:
    """Return a zone of these pods, which all belong to it."""
    return Zone(
        sts=sts,
        pods=tuple(pod for pod in pods if isinstance(pod, Pod)),
        unreadable_pods=tuple(pod for pod in pods if isinstance(pod, Unreadable)),
        newcomers=newcomers,
    )


def _index_read(live: OwnedPods) -> _Read:
    orphans: dict[str, list[Pod | Unreadable]] = {}
    for pod in live.get(None, ()):
        orphans.setdefault(name_set(pod), []).append(pod)
    return _Read(live, orphans)


def _list_alike(kind: str) -> tuple[str, ...]:
    """Return the kinds that take over from one another: a group may be replaced by a policy."""
    return (BUDGET,) if kind == BUDGET else (GROUP, POLICY)


def _is_terminating(sts: AnySet | None) -> bool:
    return isinstance(sts, StatefulSet) and sts.is_terminating


def _imagine(
    name: str, pods: Sequence[Pod | Unreadable], labels: Mapping[str, str] | None = None
) -> StatefulSet:
    """Return the StatefulSet that these pods suggest; `labels` are its own."""
    ordinals = [parse_ordinal(pod.name.removeprefix(f"{name}-")) for pod in pods]
    known = [ordinal for ordinal in ordinals if ordinal is not None]
    shared = dict(set[tuple[str, str]].intersection(*({*pod.labels.items()} for pod in pods)))
    owners = [pod.owner_uid for pod in pods if pod.owner_uid is not None]
    first = min(known, default=0)
    return StatefulSet(
        namespace=pods[0].namespace,
        name=name,
        uid=next(iter(owners), Uid(f"of the pods of {name}")),
        resource_version="",
        labels=shared if labels is None else labels,
        selector={key: value for key, value in shared.items() if key != REVISION_LABEL},
        first_ordinal=first,
        replicas=max(known, default=first) + 1 - first,
    )


def _measure_size(sts: StatefulSet) -> int:
    """Return about how many bytes of memory a StatefulSet takes."""
    mappings = (sts.labels, sts.annotations, sts.selector)
    return _RECORD_BYTES + sum(
        _ENTRY_BYTES + len(key) + len(value)
        for mapping in mappings
        for key, value in mapping.items()
    )


def _without_status(sts: StatefulSet) -> StatefulSet:
    """Return a StatefulSet that is gone, whose status counts no pods any more."""
    return replace(
        sts,
        is_terminating=False,
        observed_generation=sts.generation,
        status_replicas=sts.replicas,
        ready_replicas=sts.replicas,
        available_replicas=sts.replicas,
    )


def _fits(sts: StatefulSet, pod: Pod | Unreadable) -> bool:
    is_free = pod.owner_uid is None and sts.ordinal_of(pod.name) is not None
    return is_free and (isinstance(pod, Unreadable) or selects(sts.selector, pod.labels))
