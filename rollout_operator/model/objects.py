"""Slim API objects: the fields that decide, and no more.

They are frozen. Two of them that differ only in `resource_version` decide alike: see
`kube.store.decides`.

The frozen snapshot of one rollout group that one decision works on.

Labels of a cached object, and what a selector finds among them.

An object may carry thousands of labels, and the cache keeps every label of few objects only. Of an
object that has too many it keeps those that have a meaning here, and says so (D-68).

A downscale on its way: what it takes away, which pods it calls, what is remembered of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final, TypeAlias, TypeVar

import msgspec

from rollout_operator.model.names import (
    DOWNSCALE_INTENT,
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    MIN_TIME_BETWEEN_DOWNSCALES,
    NAMESPACE_LABEL,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    REVISION_LABEL,
    GroupName,
    Revision,
    Uid,
)

# `start` and `replicas` are 32-bit numbers: no ordinal is longer.
_ORDINAL_DIGITS: Final = 10

Decoded = TypeVar("Decoded")


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True):
    """One zone of a group, as the API server shows it."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    is_terminating: bool = False
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Only the keys in `names.STATEFULSET_ANNOTATIONS`."""
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`: immutable, carried by every pod of the set."""
    strategy: str = "RollingUpdate"
    replicas: int = 1
    """`spec.replicas`; the API's own default where it is absent."""
    first_ordinal: int = 0
    service_name: str = ""
    """`spec.serviceName`, as it is written: whether it is a name is not checked here."""
    is_ordered: bool = True
    """Whether an absent pod is created only once all pods below it are ready, as by default."""
    min_ready_seconds: int = 0
    observed_generation: int = 0
    status_replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    current_revision: Revision = Revision("")
    update_revision: Revision = Revision("")

    @property
    def group(self) -> GroupName | None:
        """Return the rollout group, None where the set belongs to none."""
        return find_group(self.labels)

    def ordinal_of(self, pod: str) -> int | None:
        """Return the ordinal in the name of one of its pods, None where it is no such name."""
        prefix = f"{self.name}-"
        return parse_ordinal(pod[len(prefix) :]) if pod.startswith(prefix) else None

    def find_ordinal(self, pod: str, ordinals: range) -> int | None:
        """Return the ordinal of a pod where that is in the range, None for any other name.

        However long the range is: to look for None in it would mean to walk it.
        """
        ordinal = self.ordinal_of(pod)
        return ordinal if ordinal is not None and ordinal in ordinals else None

    @property
    def ordinals(self) -> range:
        """Return the ordinals that `spec` wants."""
        return range(self.first_ordinal, self.first_ordinal + self.replicas)


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as far as it decides."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    owner_uid: Uid | None = None
    """UID of the controlling owner reference, whatever its kind."""
    created: datetime | None = None
    """`metadata.creationTimestamp`: the API server sets it, and nothing changes it."""
    revision: Revision | None = None
    phase: str = ""
    is_terminating: bool = False
    is_disrupted: bool = False
    """Condition DisruptionTarget: it is evicted, preempted, or its node goes."""
    is_ready: bool = False
    """Phase Running, not terminating, condition Ready, every container ready and running."""
    ready_since: datetime | None = None
    """Last transition of the Ready condition, where `is_ready`."""
    was_ready: bool = False
    """Whether it is not ready now and its own status shows that it has been before."""
    never_ready: bool = False
    """Whether it is not ready now and its own status proves that it has never been."""
    is_crash_looping: bool = False
    """Whether a container of it waits to be started again, because it crashed too often."""
    ip: str = ""
    """`status.podIP`; empty before it has one."""
    labels: Mapping[str, str] = {}
    downscale_record: str = ""
    """The annotation `names.DOWNSCALE_RECORD`, undecoded."""
    ports: tuple[int, ...] = ()
    """The ports of its containers; read only of a pod that carries a record."""
    disruption: str = ""
    """The annotation `names.DISRUPTION_RECORD`, undecoded."""
    why_not_ready: str = ""
    """Why the pod is not ready, in a few words, e.g. `CrashLoopBackOff`; empty where it is."""
    is_starting: bool = False
    """Whether that is what every pod passes through on its way up: others may stay down."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as far as it says in which zone its pods run."""

    name: str
    uid: Uid
    resource_version: str
    labels: Mapping[str, str] = {}
    """Those that were requested."""
    keys: frozenset[str] = frozenset()
    """Which those are: of any other label nothing is known."""
    namespace: str = ""
    """Always empty: the kind belongs to the cluster."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One hook of a webhook configuration."""

    name: str
    ca_bundle: str = ""
    """Base64 of PEM, as it is written; empty where absent."""
    failure_policy: str = "Fail"
    path: str = ""
    """The path that is called, of the Service or of the URL."""
    host: str = ""
    """The name that the called server must prove, in lower case; empty where it is unknown."""


class WebhookConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """A Validating- or MutatingWebhookConfiguration."""

    kind: str
    name: str
    uid: Uid
    resource_version: str
    labels: Mapping[str, str] = {}
    """Only `names.INJECT_CA_LABEL` and `names.NAMESPACE_LABEL`."""
    webhooks: tuple[Webhook, ...] = ()
    namespace: str = ""
    """Always empty: the kind belongs to the cluster."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a list or watch that could not be decoded: known, but not what it says."""

    kind: str
    namespace: str
    name: str
    uid: Uid
    resource_version: str
    owner_uid: Uid | None = None
    labels: Mapping[str, str] = {}
    error: str
    """Names field and value."""

    @property
    def group(self) -> GroupName | None:
        """Return the rollout group that the labels name, None where they name none."""
        return find_group(self.labels)


class WatchedObject(msgspec.Struct, frozen=True, kw_only=True):
    """Any object that is followed. Two with the same `decoded`, without a version, say the same."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    decoded: object


AnyWatched: TypeAlias = WatchedObject | Unreadable


def list_decoded(
    objects: Iterable[AnyWatched | None], *kinds: type[Decoded]
) -> tuple[Decoded, ...]:
    """Return what the objects say that are there, can be read, and are of these kinds."""
    decoded = (watched.decoded for watched in objects if isinstance(watched, WatchedObject))
    return tuple(each for each in decoded if isinstance(each, kinds))


def parse_ordinal(digits: str) -> int | None:
    """Return the ordinal that a controller writes like this; `01` is none."""
    if not digits.isdecimal() or not digits.isascii() or len(digits) > _ORDINAL_DIGITS:
        return None
    return None if digits[0] == "0" and digits != "0" else int(digits)


def find_group(labels: Mapping[str, str]) -> GroupName | None:
    """Return the rollout group that labels name, None where they name none."""
    name = labels.get(GROUP_LABEL, labels.get(GROUP_LABEL_LONG))
    return None if name is None else GroupName(name)


def list_failure_policies(
    configurations: Iterable[WebhookConfiguration | Unreadable], namespace: str
) -> Iterator[tuple[str, str, str]]:
    """Yield type, name and failure policy of each hook that is labelled for our namespace.

    The type is `ValidatingWebhook` or `MutatingWebhook`. Two configurations may hold hooks of one
    name, which then comes twice.
    """
    for config in configurations:
        if isinstance(config, Unreadable) or config.labels.get(NAMESPACE_LABEL) != namespace:
            continue
        for hook in config.webhooks:
            yield config.kind.removesuffix("Configuration"), hook.name, hook.failure_policy


# Objects of people have a dozen or two.
MOST_LABELS: Final = 128
# The labels that are read by name.
NAMED_LABELS: Final = frozenset(
    {
        GROUP_LABEL,
        GROUP_LABEL_LONG,
        REVISION_LABEL,
        NO_DOWNSCALE,
        PREPARE_DOWNSCALE,
        MIN_TIME_BETWEEN_DOWNSCALES,
    }
)
# Key of a cached object that leaves labels out. No label has it: a key has at least one letter.
LEFT_OUT: Final = ""


def bound_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels that the cache keeps: all, or those with a meaning and `LEFT_OUT`."""
    if len(labels) <= MOST_LABELS:
        return labels
    named = {key: labels[key] for key in sorted(NAMED_LABELS) if key in labels}
    return {**named, LEFT_OUT: ""}


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether an object with these labels is selected; an empty selector selects all.

    An object whose labels are left out may be, unless a label that is kept speaks against it:
    nothing gets past a budget by having too many. Where being selected allows something, call
    `is_certain` as well.
    """
    if LEFT_OUT not in labels:
        return selector.items() <= labels.items()
    return all(labels.get(key) == value for key, value in selector.items() if key in NAMED_LABELS)


def is_certain(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether `selects` knows all labels that a selector reads."""
    return LEFT_OUT not in labels or NAMED_LABELS.issuperset(selector)


class SelectorTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One of the `matchExpressions` of a selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fit; an operator that is not known is taken to fit."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case _:
                return True

    def render(self) -> str:
        """Return it as a list call takes it."""
        match self.operator:
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return self.key


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True):
    """A selector of the API's own kinds; an empty selector selects everything."""

    labels: Mapping[str, str] = {}
    terms: tuple[SelectorTerm, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected; all its labels must be known."""
        return self.labels.items() <= labels.items() and all(
            term.holds(labels) for term in self.terms
        )

    def may_take(self, labels: Mapping[str, str]) -> bool:
        """Return whether such an object is or may be selected, where some labels are left out."""
        if LEFT_OUT not in labels:
            return self.takes(labels)
        kept = LabelSelector(
            labels={key: self.labels[key] for key in self.labels if key in NAMED_LABELS},
            terms=tuple(term for term in self.terms if term.key in NAMED_LABELS),
        )
        return kept.takes(labels)

    def render(self) -> str:
        """Return it as a list call takes it."""
        parts = [f"{key}={value}" for key, value in sorted(self.labels.items())]
        return ",".join([*parts, *(term.render() for term in self.terms)])

    def is_certain(self, labels: Mapping[str, str]) -> bool:
        """Return whether `may_take` knows all labels that it reads."""
        keys = {*self.labels, *(term.key for term in self.terms)}
        return LEFT_OUT not in labels or keys <= NAMED_LABELS


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where one pod is called: its own address, under the name that its set gives it.

    Every part has been checked: nothing of it is taken from a pod or an annotation as it is.
    """

    pod: str
    uid: Uid
    ip: str
    """Of the pod's own status."""
    host: str
    """DNS name, for the `Host` header and certificates only: it is never resolved."""
    port: int
    path: str
    """Without a leading slash."""
    scheme: str = "http"
    """`http` or `https`; the certificate of the latter must name `host`."""
    query: str = ""
    """Without the question mark, empty for none."""
    shows_port: bool = True
    """Whether the `Host` header names the port; where not, it is the default of the scheme."""

    @property
    def authority(self) -> str:
        """Return the value of the `Host` header."""
        return f"{self.host}:{self.port}" if self.shows_port else self.host


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the pods of a set are called: what the endpoints of all of them share, checked."""

    port: int
    path: str
    """Without a leading slash."""
    service: str
    scheme: str = "http"


class Decrease(msgspec.Struct, frozen=True, kw_only=True):
    """What a review requests: fewer replicas of one object, or ordinals that leave some out."""

    resource: str
    """Plural, such as `statefulsets`."""
    namespace: str
    name: str
    replicas_from: int
    replicas_to: int
    first_from: int = 0
    first_to: int = 0
    """The first ordinals, before and after."""

    @property
    def moves_ordinals(self) -> bool:
        """Return whether other ordinals go than the highest."""
        return self.first_from != self.first_to

    @property
    def text(self) -> str:
        """Return the words that begin its messages, the same in all releases."""
        if self.replicas_to >= self.replicas_from:
            return (
                f"change of spec.ordinals.start of {self.resource}/{self.name} in {self.namespace} "
                f"from {self.first_from} to {self.first_to}, which removes pods,"
            )
        return (
            f"downscale of {self.resource}/{self.name} in {self.namespace} "
            f"from {self.replicas_from} to {self.replicas_to} replicas"
        )


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two reviews the same downscale, whatever their UIDs (D-24)."""

    set_uid: Uid
    replicas_from: int
    replicas_to: int
    target: Target | None = None
    """Where pods are called; None in records of earlier releases, which did not record it."""

    def may_be(self, other: "Key") -> bool:
        """Return whether another downscale is the same, as far as is known."""
        counts = (self.set_uid, self.replicas_from, self.replicas_to)
        return counts == (other.set_uid, other.replicas_from, other.replicas_to) and (
            self.target is None or self.target == other.target
        )


# An annotation is no place for more, and hostile annotations must not have pods called a thousand
# times.
MOST_EARLIER: Final = 8


class DownscaleRecord(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The record of a downscale, as pods carry it for a restarted process."""

    replicas_from: int
    replicas_to: int
    at: datetime
    """When it began, in the API server's time."""
    by: str = ""
    """The process that wrote it, which remembers its outcome; empty where it is not recorded."""
    target: Target | None = None
    """Where pods are called; None in records of earlier releases, which did not record it."""
    earlier: tuple[Target, ...] = ()
    """Where else pods may wait for a cancellation, of downscales before this."""

    @classmethod
    def of(
        cls, key: Key, at: datetime, *, earlier: Iterable[Target | None] = ()
    ) -> "DownscaleRecord":
        """Return the record of a downscale that begins now; pods were called at `earlier`, too."""
        return cls(
            replicas_from=key.replicas_from,
            replicas_to=key.replicas_to,
            at=at,
            target=key.target,
            earlier=tuple(
                target for target in earlier if target is not None and target != key.target
            )[-MOST_EARLIER:],
        )


class Underway(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that may still persist: it holds back everything else in its group (D-25)."""

    zone: str
    """Name of the StatefulSet."""
    replicas_from: int
    replicas_to: int
    is_marked: bool = False
    """Whether this process knows it by a mark on the StatefulSet only."""
    unreadable: str = ""
    """What a mark says that cannot be read, quoted: it counts as a downscale that takes all."""
    left: timedelta | None = None
    """After what time it can persist no more, where that is known: its mark may not be removed."""

    @property
    def way_out(self) -> str:
        """Return what a person can do where the operator may not remove a mark; empty for none."""
        if not self.is_marked:
            return ""
        command = f"kubectl annotate statefulset {self.zone} {DOWNSCALE_INTENT}-"
        return f"; if the operator cannot remove its mark: {command}"

    @property
    def text(self) -> str:
        """Return `zone-a is being scaled down from 3 to 2 replicas`."""
        if self.unreadable:
            field = f"StatefulSet {self.zone}: annotation {DOWNSCALE_INTENT}"
            return f"{field}: {self.unreadable} is no mark of a downscale, and counts as one of all"
        counts = f"from {self.replicas_from} to {self.replicas_to} replicas"
        return f"{self.zone} is being scaled down {counts}"


@unique
class Deletion(StrEnum):
    """What we know of a pod that still looks untouched, and is or may be on its way out."""

    ACCEPTED = "accepted"
    """The API server said yes; the cache does not show it yet."""
    UNKNOWN = "unknown"
    """No answer came: it may be committed now, later or never."""
    GRANTED = "granted"
    """A client may disrupt it and has not visibly done so yet, e.g. an eviction was allowed."""


class Newcomers(msgspec.Struct, frozen=True, kw_only=True):
    """What this process has seen, without a gap, of the ordinals that an upscale added."""

    used: int
    """Of the ordinals above so many no pod was ready since they were added."""
    generation: int
    """Of the spec that was seen last."""
    pods: frozenset[Uid] = frozenset()
    """Those of these ordinals that came meanwhile."""
    settles_in: timedelta = timedelta(0)
    """How long nothing may come or go there still, before they count as never used."""


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of the group with the pods that it controls, by owner UID."""

    sts: StatefulSet
    pods: tuple[Pod, ...] = ()
    unreadable_pods: tuple[Unreadable, ...] = ()
    newcomers: Newcomers | None = None
    """None where nothing is known of them."""
    counts_for: timedelta | None = None
    """How long a zone counts that has left, short as it was; None for a zone that belongs there."""

    @property
    def own_pods(self) -> list[Pod]:
        """Return the pods that name the set as their controlling owner."""
        return [pod for pod in self.pods if pod.owner_uid == self.sts.uid]

    @property
    def own_unreadable(self) -> list[Unreadable]:
        """Return the pods that are the set's, or may be, and of which nothing more is known."""
        owners = (self.sts.uid, None)
        return [pod for pod in self.unreadable_pods if pod.owner_uid in owners]

    def list_pods(self, ordinals: range) -> list[tuple[int, Pod]]:
        """Return the own pods in a range, which may be of any length, by ordinal and UID.

        A cache that missed an event may hold two pods of one name: both are here.
        """
        if not ordinals:
            return []  # so it is for newcomers of nearly all zones, and ordinals take time to read
        pods = _with_ordinals(self.sts, self.own_pods, ordinals)
        return sorted(pods, key=lambda place: (place[0], place[1].uid))

    def by_ordinal(self, ordinals: range) -> dict[int, Pod | Unreadable]:
        """Return what holds the ordinals of a range; of two pods of one name the worse."""
        held: dict[int, Pod | Unreadable] = {}
        own: tuple[Pod | Unreadable, ...] = (*self.own_pods, *self.own_unreadable)
        for ordinal, pod in _with_ordinals(self.sts, own, ordinals):
            other = held.get(ordinal)
            held[ordinal] = pod if other is None else min(pod, other, key=_order_by_proof)
        return held


_Held = TypeVar("_Held", Pod, Pod | Unreadable)


def _with_ordinals(
    sts: StatefulSet, pods: Iterable[_Held], ordinals: range
) -> list[tuple[int, _Held]]:
    prefix = f"{sts.name}-"
    cut = len(prefix)
    return [
        (ordinal, pod)
        for pod in pods
        if pod.name.startswith(prefix)
        and (ordinal := parse_ordinal(pod.name[cut:])) is not None
        and ordinal in ordinals
    ]


def _order_by_proof(pod: Pod | Unreadable) -> tuple[int, str]:
    return (0, pod.uid) if isinstance(pod, Unreadable) else (1 + pod.is_ready, pod.uid)


class OtherRollout(msgspec.Struct, frozen=True, kw_only=True):
    """Outdated ready pods of a group go one after the other, and not by this process (D-73)."""

    pods: tuple[str, ...]
    """The last two of them."""
    left: timedelta
    """How long the group is left alone still, unless another pod goes."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `plan_group` reads.

    `zones` are in any order. `deletions` are pods that go although `zones` may not show it yet, by
    UID. `snapshot_age` is the age of the oldest proof that the caches behind `zones` are live.
    """

    name: GroupName
    zones: tuple[Zone, ...]
    departed: tuple[Zone, ...] = ()
    """Zones that left while they were short: they hold the others, and are never acted upon."""
    now: datetime
    unreadable: tuple[Unreadable, ...] = ()
    deletions: Mapping[Uid, Deletion]
    snapshot_age: timedelta = timedelta(0)
    downscale: Underway | None = None
    """Of one of the zones; it may still persist, or be refused by another webhook."""
    other_rollout: OtherRollout | None = None
    """By another operator, which is left to it."""
    driver: str | None = None
    """The MultiAZRollout, by namespace and name, that replaces the pods instead of the label; empty
    where that is not known yet."""

    @property
    def counted(self) -> tuple[Zone, ...]:
        """Return all zones whose pods count, those that left while they were short included."""
        return (*self.zones, *self.departed)

    @property
    def owners(self) -> frozenset[Uid]:
        """Return the UIDs of all members, whether they can be read or not."""
        return frozenset(
            [zone.sts.uid for zone in self.zones] + [broken.uid for broken in self.unreadable]
        )
