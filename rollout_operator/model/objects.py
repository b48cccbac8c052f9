"""Slim API objects with the fields that decide, and the frozen snapshot of one rollout group.

Two objects that differ only in `resource_version` decide alike: see `kube.store.decides`. Of an
object with too many labels the cache keeps those with a meaning here, and `LEFT_OUT` (D-68).
Downscales underway and what is remembered of them are here as well.
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

# `start` and `replicas` are 32-bit numbers.
_ORDINAL_DIGITS: Final = 10
MOST_LABELS: Final = 128
# Labels with a meaning here.
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
# Marks a cached object that leaves labels out; no label has an empty key.
LEFT_OUT: Final = ""
# A hostile annotation must not have pods called a thousand times.
MOST_EARLIER: Final = 8


Decoded = TypeVar("Decoded")


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True):
    """One zone of a group."""

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
    """`spec.selector.matchLabels`: immutable, and on every pod of the set."""
    strategy: str = "RollingUpdate"
    replicas: int = 1
    first_ordinal: int = 0
    service_name: str = ""
    """`spec.serviceName` as written, unchecked."""
    is_ordered: bool = True
    """Whether an absent pod is created only once all below it are ready."""
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
        return find_group(self.labels)

    def ordinal_of(self, pod: str) -> int | None:
        """Return the ordinal in the name of one of its pods, None for other names."""
        prefix = f"{self.name}-"
        return parse_ordinal(pod[len(prefix) :]) if pod.startswith(prefix) else None

    def find_ordinal(self, pod: str, ordinals: range) -> int | None:
        """Return the ordinal of a pod if it is in the range."""
        ordinal = self.ordinal_of(pod)
        return ordinal if ordinal is not None and ordinal in ordinals else None

    @property
    def ordinals(self) -> range:
        """Return the ordinals that `spec` wants."""
        return range(self.first_ordinal, self.first_ordinal + self.replicas)


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    namespace: str
    name: str
    uid: Uid
    resource_version: str
    owner_uid: Uid | None = None
    """Of the controlling owner, whatever its kind."""
    created: datetime | None = None
    revision: Revision | None = None
    phase: str = ""
    is_terminating: bool = False
    is_disrupted: bool = False
    """Condition DisruptionTarget: evicted, preempted, or its node goes."""
    is_ready: bool = False
    """Running, not terminating, condition Ready, every container ready and running."""
    ready_since: datetime | None = None
    """Last transition of Ready, if `is_ready`."""
    unready_since: datetime | None = None
    """The same if it is not, or its creation before it has the condition; for display only."""
    was_ready: bool = False
    """Not ready now, and its status shows that it was before."""
    never_ready: bool = False
    """Not ready now, and its status proves that it never was."""
    is_crash_looping: bool = False
    """Whether a container waits to be restarted because it crashed too often."""
    ip: str = ""
    labels: Mapping[str, str] = {}
    downscale_record: str = ""
    """The annotation `names.DOWNSCALE_RECORD`, undecoded."""
    ports: tuple[int, ...] = ()
    """Of its containers; read only if it carries a record."""
    disruption: str = ""
    """The annotation `names.DISRUPTION_RECORD`, undecoded."""
    why_not_ready: str = ""
    """In a few words, such as `CrashLoopBackOff`; empty if it is ready."""
    is_starting: bool = False
    """Whether every pod passes through that state: in others it may stay."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: Uid
    resource_version: str
    labels: Mapping[str, str] = {}
    """Only those in `keys`."""
    keys: frozenset[str] = frozenset()
    """The requested labels."""
    namespace: str = ""
    """Always empty."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ca_bundle: str = ""
    """Base64 of PEM, as written."""
    failure_policy: str = "Fail"
    path: str = ""
    """Of the Service or the URL."""
    host: str = ""
    """The name that the server must prove, in lower case; empty if unknown."""


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
    """Always empty."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An object that could not be decoded: it exists, but what it says is unknown."""

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
        return find_group(self.labels)


class WatchedObject(msgspec.Struct, frozen=True, kw_only=True):
    """Any watched object. Two with the same `decoded` say the same."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    decoded: object


class WatchedHead(msgspec.Struct, frozen=True, kw_only=True):
    """Which watched object it is, whatever its spec says."""

    name: str
    uid: Uid
    resource_version: str
    namespace: str = ""
    """Empty for an object of the cluster."""
    generation: int = 0
    is_terminating: bool = False

    @property
    def key(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


AnyWatched: TypeAlias = WatchedObject | Unreadable
AnySet: TypeAlias = StatefulSet | Unreadable
AnyPod: TypeAlias = Pod | Unreadable


class SelectorTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One of `matchExpressions`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """An unknown operator fits."""
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
        """Return it as in a list call."""
        match self.operator:
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return self.key


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True):
    """An empty selector selects everything."""

    labels: Mapping[str, str] = {}
    terms: tuple[SelectorTerm, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels are selected; all of them must be known."""
        return self.labels.items() <= labels.items() and all(
            term.holds(labels) for term in self.terms
        )

    def may_take(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels are, or may be, selected."""
        if LEFT_OUT not in labels:
            return self.takes(labels)
        kept = LabelSelector(
            labels={key: self.labels[key] for key in self.labels if key in NAMED_LABELS},
            terms=tuple(term for term in self.terms if term.key in NAMED_LABELS),
        )
        return kept.takes(labels)

    def render(self) -> str:
        """Return it as in a list call."""
        parts = [f"{key}={value}" for key, value in sorted(self.labels.items())]
        return ",".join([*parts, *(term.render() for term in self.terms)])

    def is_certain(self, labels: Mapping[str, str]) -> bool:
        """Return whether `may_take` knows all labels that it reads."""
        keys = {*self.labels, *(term.key for term in self.terms)}
        return LEFT_OUT not in labels or keys <= NAMED_LABELS


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where one pod is called: its own address, under the name given by its set. All parts are
    checked.
    """

    pod: str
    uid: Uid
    ip: str
    """From the pod's status."""
    host: str
    """For the `Host` header and certificates; never resolved."""
    port: int
    path: str
    """Without a leading slash."""
    scheme: str = "http"
    """`http` or `https`, with a certificate for `host`."""
    query: str = ""
    """Without the question mark."""
    shows_port: bool = True
    """Whether the `Host` header names the port."""

    @property
    def authority(self) -> str:
        """Return the `Host` header."""
        return f"{self.host}:{self.port}" if self.shows_port else self.host


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the pods of a set are called, checked."""

    port: int
    path: str
    """Without a leading slash."""
    service: str
    scheme: str = "http"


class Decrease(msgspec.Struct, frozen=True, kw_only=True):
    """A requested change that removes pods: fewer replicas, or other ordinals."""

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
        return self.first_from != self.first_to

    @property
    def text(self) -> str:
        """Return how its messages begin in all releases."""
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
    """Two reviews with the same key are the same downscale (D-24)."""

    set_uid: Uid
    replicas_from: int
    replicas_to: int
    target: Target | None = None
    """None in records of earlier releases."""

    def may_be(self, other: "Key") -> bool:
        """Return whether another downscale is the same, as far as known."""
        counts = (self.set_uid, self.replicas_from, self.replicas_to)
        return counts == (other.set_uid, other.replicas_from, other.replicas_to) and (
            self.target is None or self.target == other.target
        )


class DownscaleRecord(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A downscale, as recorded on pods for a restarted process."""

    replicas_from: int
    replicas_to: int
    at: datetime
    """When it began, on the API server's clock."""
    by: str = ""
    """The process that wrote it and remembers its outcome, if recorded."""
    set_uid: Uid = Uid("")
    """The StatefulSet that it remembers it for; empty in records of earlier releases."""
    target: Target | None = None
    """None in records of earlier releases."""
    earlier: tuple[Target, ...] = ()
    """Where else pods may wait for a cancellation, from earlier downscales."""

    @classmethod
    def of(
        cls, key: Key, at: datetime, *, earlier: Iterable[Target | None] = ()
    ) -> "DownscaleRecord":
        """Return the record of a downscale that begins now."""
        return cls(
            replicas_from=key.replicas_from,
            replicas_to=key.replicas_to,
            at=at,
            set_uid=key.set_uid,
            target=key.target,
            earlier=tuple(
                target for target in earlier if target is not None and target != key.target
            )[-MOST_EARLIER:],
        )


class Underway(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that may still persist: it holds everything else in its group (D-25)."""

    zone: str
    replicas_from: int
    replicas_to: int
    is_marked: bool = False
    """Whether only an annotation on the StatefulSet announces it."""
    unreadable: str = ""
    """The quoted annotation, if it cannot be read: it counts as taking all pods."""
    left: timedelta | None = None
    """When it can no longer persist, if known: its annotation may not be removable."""
    is_unrecorded: bool = False
    """Whether it has happened, and its time is still to be recorded."""

    @property
    def way_out(self) -> str:
        """Return what a person can do if the operator cannot remove the annotation."""
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
        if self.is_unrecorded:
            return f"{self.zone} was scaled down {counts}, the time of which is not recorded yet"
        return f"{self.zone} is being scaled down {counts}"


@unique
class Deletion(StrEnum):
    """What is known of a pod that may be on its way out though it looks untouched."""

    ACCEPTED = "accepted"
    """The API server said yes; the cache does not show it yet."""
    UNKNOWN = "unknown"
    """No answer came: it may be committed now, later or never."""
    GRANTED = "granted"
    """A client may disrupt it and has not visibly done so yet, e.g. an eviction was allowed."""


class Newcomers(msgspec.Struct, frozen=True, kw_only=True):
    """What this process has seen, without a gap, of the ordinals that an upscale added."""

    used: int
    """Above this many ordinals no pod was ready since they were added."""
    generation: int
    """Of the last spec seen."""
    pods: frozenset[Uid] = frozenset()
    """Pods of these ordinals."""
    settles_in: timedelta = timedelta(0)
    """How long they must still stay unchanged before they count as never used."""


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet with the pods that it controls, by owner UID."""

    sts: StatefulSet
    pods: tuple[Pod, ...] = ()
    unreadable_pods: tuple[Unreadable, ...] = ()
    newcomers: Newcomers | None = None
    counts_for: timedelta | None = None
    """How much longer a zone counts that left while short; None for a member."""

    @property
    def own_pods(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.owner_uid == self.sts.uid]

    @property
    def own_unreadable(self) -> list[Unreadable]:
        """Return undecodable pods that are the set's, or may be."""
        owners = (self.sts.uid, None)
        return [pod for pod in self.unreadable_pods if pod.owner_uid in owners]

    def list_pods(self, ordinals: range) -> list[tuple[int, Pod]]:
        """Return the own pods in a range of any length, by ordinal and UID.

        A cache that missed an event may hold two pods of one name.
        """
        if not ordinals:
            return []  # so it is for newcomers of nearly all zones, and ordinals take time to read
        pods = _with_ordinals(self.sts, self.own_pods, ordinals)
        return sorted(pods, key=lambda place: (place[0], place[1].uid))

    def by_ordinal(self, ordinals: range) -> dict[int, Pod | Unreadable]:
        """Return the holder of each ordinal; of two pods of one name the worse."""
        held: dict[int, Pod | Unreadable] = {}
        own: tuple[Pod | Unreadable, ...] = (*self.own_pods, *self.own_unreadable)
        for ordinal, pod in _with_ordinals(self.sts, own, ordinals):
            other = held.get(ordinal)
            held[ordinal] = pod if other is None else min(pod, other, key=_order_by_proof)
        return held


_Held = TypeVar("_Held", Pod, Pod | Unreadable)


class OtherRollout(msgspec.Struct, frozen=True, kw_only=True):
    """Another operator deletes outdated ready pods of the group (D-73)."""

    pods: tuple[str, ...]
    """The last two."""
    left: timedelta
    """How long the group is left alone, unless another pod goes."""


@unique
class GateState(StrEnum):
    BEGUN = "begun"
    """The gate has let the zone begin: it is not asked again."""
    WARNED = "warned"
    """A check fails, and its policy lets the rollout go on."""
    IGNORED = "ignored"
    """What the annotation names cannot be obeyed, and holds nothing."""
    WAITS = "waits"
    """It has not passed yet, and may do so by itself."""
    FAILING = "failing"
    """A check does not pass, and may do so again before its limit."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It is not known yet, or not recorded."""
    BROKEN = "broken"
    """What the annotation names cannot be obeyed, and holds the zone as it says."""

    @property
    def holds(self) -> bool:
        return self not in (GateState.BEGUN, GateState.WARNED, GateState.IGNORED)


class HealthGate(msgspec.Struct, frozen=True, kw_only=True):
    """What a health check says of a StatefulSet; there is none where it has passed."""

    state: GateState
    text: str = ""
    stable_text: str = ""
    """The text without times and counts."""
    room: int = 0
    """How many more healthy pods may go before it holds."""
    query: str = ""
    """What the check asks that holds it: PromQL, or a URL."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `plan_group`.

    `deletions` are pods on their way out that `zones` may not show yet. `snapshot_age` is the age
    of the oldest proof that the caches behind `zones` are live.
    """

    name: GroupName
    zones: tuple[Zone, ...]
    departed: tuple[Zone, ...] = ()
    """Zones that left while short: they hold the others, and are never acted upon."""
    now: datetime
    unreadable: tuple[Unreadable, ...] = ()
    deletions: Mapping[Uid, Deletion]
    snapshot_age: timedelta = timedelta(0)
    downscale: Underway | None = None
    """Of one of the zones."""
    other_rollout: OtherRollout | None = None
    gates: Mapping[Uid, HealthGate] = {}
    """What health checks say, by StatefulSet."""
    driver: str | None = None
    """The MultiAZRollout, by namespace and name, that replaces the pods; empty if unknown yet."""

    @property
    def counted(self) -> tuple[Zone, ...]:
        """Return all zones whose pods count, departed ones included."""
        return (*self.zones, *self.departed)

    @property
    def owners(self) -> frozenset[Uid]:
        """Return the UIDs of all members, readable or not."""
        return frozenset(
            [zone.sts.uid for zone in self.zones] + [broken.uid for broken in self.unreadable]
        )


def list_decoded(
    objects: Iterable[AnyWatched | None], *kinds: type[Decoded]
) -> tuple[Decoded, ...]:
    """Return what the readable objects of these kinds say."""
    decoded = (watched.decoded for watched in objects if isinstance(watched, WatchedObject))
    return tuple(each for each in decoded if isinstance(each, kinds))


def parse_ordinal(digits: str) -> int | None:
    """Return an ordinal as a controller writes it; None for `01`."""
    if not digits.isdecimal() or not digits.isascii() or len(digits) > _ORDINAL_DIGITS:
        return None
    return None if digits[0] == "0" and digits != "0" else int(digits)


def find_group(labels: Mapping[str, str]) -> GroupName | None:
    name = labels.get(GROUP_LABEL, labels.get(GROUP_LABEL_LONG))
    return None if name is None else GroupName(name)


def list_failure_policies(
    configurations: Iterable[WebhookConfiguration | Unreadable], namespace: str
) -> Iterator[tuple[str, str, str]]:
    """Yield type, name and failure policy of each hook labelled for our namespace."""
    for config in configurations:
        if isinstance(config, Unreadable) or config.labels.get(NAMESPACE_LABEL) != namespace:
            continue
        for hook in config.webhooks:
            yield config.kind.removesuffix("Configuration"), hook.name, hook.failure_policy


def bound_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels that the cache keeps: all, or the known ones and `LEFT_OUT`."""
    if len(labels) <= MOST_LABELS:
        return labels
    named = {key: labels[key] for key in sorted(NAMED_LABELS) if key in labels}
    return {**named, LEFT_OUT: ""}


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether an object with these labels is selected; an empty selector selects all.

    With labels left out it is selected unless a kept label contradicts: nothing escapes a budget by
    having too many. Where being selected allows something, call `is_certain` as well.
    """
    if LEFT_OUT not in labels:
        return selector.items() <= labels.items()
    return all(labels.get(key) == value for key, value in selector.items() if key in NAMED_LABELS)


def is_certain(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether `selects` knows all labels that a selector reads."""
    return LEFT_OUT not in labels or NAMED_LABELS.issuperset(selector)


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
