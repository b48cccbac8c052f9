"""What MultiAZRollouts say in a history: which sets each of them owned, in which zone, and when.

Read as a person reads the objects: nothing is taken from the operator's own decoding or planning.
Zones are known by labels, a node selector or the name, in the order of the specification. What node
affinity and the labels of nodes say of them is not read: such a history is judged by these alone.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from rollout_lab.model.fields import is_terminating
from rollout_lab.model.history import Commit

from tests.judge.book import Book, Track, Write, in_order, once
from tests.judge.objects import Json, Pod, Set, read_limit

ZONE_LABELS: Final = ("zone", "availability-zone")
_SUFFIX: Final = re.compile(r"-(zone-[A-Za-z0-9]+)$")


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str
    created: str
    selector: Json = {}
    limit: str = "1"
    interval: timedelta = timedelta(seconds=30)
    zone_interval: timedelta = timedelta(0)
    is_paused: bool = False
    key: str = "topology.kubernetes.io/zone"
    order: tuple[str, ...] = ()

    def selects(self, zone: Set) -> bool:
        return any(self.selector.values()) and selects(self.selector, zone.labels)

    def name_zone(self, zone: Set) -> str:
        listed = (one for one in self.order if zone.name.endswith(f"-{one}"))
        suffix = _SUFFIX.search(zone.name)
        said = (
            *(zone.labels.get(self.key), zone.pod_labels.get(self.key)),
            zone.node_selector.get(self.key),
            *(found.get(key) for key in ZONE_LABELS for found in (zone.labels, zone.pod_labels)),
            *(next(listed, None), suffix[1] if suffix else None),
        )
        return next((one for one in said if one), zone.name)


class RecordedBatch(msgspec.Struct, frozen=True, kw_only=True):
    at: timedelta
    policy: str
    policy_uid: str
    number: int
    set_name: str
    revision: str
    pods: frozenset[str]  # UIDs
    is_complete: bool


class Owned(msgspec.Struct, frozen=True):
    policy: PolicySpec
    zone: str


_State = Mapping[str, Owned]
"""By UID of a set."""


class PolicyBook(msgspec.Struct):
    """All that policies were, at each moment of a history."""

    owned: Track[_State] = msgspec.field(default_factory=Track)
    batches: list[RecordedBatch] = []  # in order; one for each write of a policy that has one

    def window(self, since: timedelta, at: timedelta) -> Sequence[_State]:
        return self.owned.window(since, at) or [{}]

    def list_owners(self, owner: str, since: timedelta, at: timedelta) -> list[Owned | None]:
        """Return what owned a set in a span of time; None for a moment in which nothing did."""
        return [state.get(owner) for state in self.window(since, at)]

    def find_batch(self, pod: Pod, at: timedelta) -> RecordedBatch | None:
        ended = bisect_right(self.batches, at, key=lambda one: one.at)
        named = (one for one in reversed(self.batches[:ended]) if pod.uid in one.pods)
        return next(named, None)

    def drives(self, pod: Pod, since: timedelta, at: timedelta) -> bool:
        """Return whether a policy alone answers for the delete of a pod, and no label."""
        owners = self.list_owners(pod.owner, since, at)
        return all(owners) or (any(owners) and self.find_batch(pod, at) is not None)


@once
def read_policies(book: Book) -> PolicyBook:
    found = PolicyBook()
    if not book.policies:
        return found
    found.owned.add(timedelta.min, {})
    specs: dict[str, PolicySpec] = {}
    sets: dict[str, Set] = {}
    for step in in_order(*book.policies, *book.writes):
        if isinstance(step, Commit):
            specs.pop(step.name, None)
            if step.after is not None:
                if not is_terminating(step.after):
                    specs[step.name] = read_spec(step.after)
                found.batches += read_batch(step.after, step.at)
        elif not _take_set(sets, step):
            continue
        state = share(specs.values(), sets.values())
        if state != found.owned.states[-1]:
            found.owned.add(step.at, state)
    return found


def _take_set(sets: dict[str, Set], write: Write) -> bool:
    """Move on by one write; return whether it was one of a set."""
    for view in (write.before, write.now):
        if isinstance(view, Set):
            sets.pop(view.uid, None)
    if isinstance(write.now, Set):
        sets[write.now.uid] = write.now
    return isinstance(write.before or write.now, Set)


def share(specs: Iterable[PolicySpec], sets: Iterable[Set]) -> _State:
    """Return which policy owns which sets: the oldest first, and each as a whole or not at all.

    Sets that are being deleted are left out (MAZ-28).
    """
    owned: dict[str, Owned] = {}
    known = [one for one in sets if not one.is_terminating]
    for spec in sorted(specs, key=lambda one: (one.created, one.name)):
        mine = [one for one in known if spec.selects(one)]
        uids, groups = {one.uid for one in mine}, {one.group for one in mine} - {None}
        is_split = any(one.group in groups and one.uid not in uids for one in known)
        if not is_split and not uids & owned.keys():
            owned |= {one.uid: Owned(spec, spec.name_zone(one)) for one in mine}
    return owned


def read_spec(found: Json) -> PolicySpec:
    meta, spec = found["metadata"], found.get("spec", {})
    update = spec.get("rollingUpdate") or {}
    return PolicySpec(
        name=meta["name"],
        uid=meta["uid"],
        created=meta.get("creationTimestamp", ""),
        selector=spec.get("statefulSetSelector") or {},
        limit=str(update.get("maxUnavailable", 1)),
        interval=timedelta(seconds=update.get("intervalSeconds", 30)),
        zone_interval=timedelta(seconds=update.get("zoneIntervalSeconds", 0)),
        is_paused=bool(spec.get("paused")),
        key=update.get("azTopologyKey", "topology.kubernetes.io/zone"),
        order=tuple(spec.get("azOrder") or ()),
    )


def read_batch(found: Json, at: timedelta) -> Iterator[RecordedBatch]:
    batch = (found.get("status") or {}).get("lastBatch")
    if batch:
        yield RecordedBatch(
            at=at,
            policy=found["metadata"]["name"],
            policy_uid=found["metadata"]["uid"],
            number=batch["number"],
            set_name=batch["statefulSet"],
            revision=batch.get("updateRevision", ""),
            pods=frozenset(pod["uid"] for pod in batch["pods"]),
            is_complete="completionTime" in batch,
        )


def count_limit(owners: Iterable[Owned], zone: Set) -> int:
    """Return how many pods of a zone may be missing while a set of it is updated, at most."""
    return max(read_limit(one.policy.limit, zone.replicas) for one in owners)


def get_longest_pause(book: Book) -> timedelta:
    """Return how long a batch may have to wait for time alone, of its policy and its zone."""
    specs = [read_spec(one.after) for one in book.policies if one.after is not None]
    pauses = [timedelta(0), *(one.interval + one.zone_interval for one in specs)]
    return max(pauses) + max(
        (write.now.soak for write in book.writes if isinstance(write.now, Set)),
        default=timedelta(0),
    )


def selects(selector: Mapping[str, Any], labels: Mapping[str, object]) -> bool:
    """Return whether labels are as `matchLabels` and `matchExpressions` want them."""
    wanted, terms = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    are_equal = all(labels.get(key) == value for key, value in wanted.items())
    return are_equal and all(_holds(term, labels) for term in terms)


def _holds(term: Json, labels: Mapping[str, object]) -> bool:
    """Return whether labels are as a term of `matchExpressions` wants them."""
    value, values = labels.get(term["key"]), term.get("values") or ()
    match term["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
