"""Replicas on their way through the zones: what decides them, and what follows.

A zone follows another zone, or mirrors the count of any object with a `scale` subresource; every
other count belongs to people. A snapshot in, `ScalingPlan` out: see `planning.scaling`.

An admission review as far as it decides: which user changes what, from what, to what.

The zone tracker: a ConfigMap that holds when each zone was scaled down last.

Its format is that of grafana/rollout-operator: by the name of a StatefulSet a JSON object with one
field. Everything else in the ConfigMap belongs to others, and is only carried along.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.names import DecodeError, GroupName, InvalidInput, Uid
from rollout_operator.model.objects import Endpoint, Group, StatefulSet
from rollout_operator.model.outcome import Reason
from rollout_operator.model.units import parse_rfc3339, quote

# Names of service accounts have at most 339 characters.
MAX_USER: Final = 384


@unique
class Version(StrEnum):
    """Versions of AdmissionReview; the answer has the version of the question."""

    V1 = "admission.k8s.io/v1"
    V1BETA1 = "admission.k8s.io/v1beta1"


class Scalable(msgspec.Struct, frozen=True, kw_only=True):
    """An object with a replica count inside of a review: a workload, or the Scale of one."""

    kind: str
    """StatefulSet, Deployment, ReplicaSet or Scale."""
    uid: Uid = Uid("")
    resource_version: str = ""
    """Of the workload, also where it is its Scale."""
    replicas: int | None = None
    """None where it is absent; never None for a Scale."""
    labels: Mapping[str, str] = {}
    """Those that decide; a Scale has none."""
    annotations: Mapping[str, str] = {}
    """Those that decide."""
    has_annotations: bool = False
    """Whether it has a map of annotations, those that decide nothing included."""
    service_name: str = ""
    first_ordinal: int = 0
    """`spec.ordinals.start`; 0 for a Scale, which leaves it as it is."""


class Unusable(msgspec.Struct, frozen=True):
    """An object inside of a review that is absent, broken or of an unknown kind."""

    error: str


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the API server.

    `resource` is the plural of `request.resource`, such as `statefulsets`, and `subresource` such
    as `scale`. `dry_run` is False where the request leaves it out.
    """

    version: Version
    uid: str
    operation: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False
    user: str = ""
    """The user that sent the request, by the API server, on one line of at most `MAX_USER`."""
    old: Scalable | Unusable
    new: Scalable | Unusable
    body: bytes = b""
    """`request.object` as it came where `new` is Unusable: for hooks on other kinds of objects."""
    sent: bytes = b""
    """The question in JSON with all that decides, only where it may be sent to another replica."""


_FIELD = "lastDownscaled"


class TimesSource(StrEnum):
    """Where the times of downscales are kept."""

    ANNOTATIONS = "annotations"
    """Of the StatefulSets themselves."""
    TRACKER = "tracker"
    """In the ConfigMap; annotations mean nothing then, whatever they say."""


class ZoneMap(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the ConfigMap."""

    version: str
    """`metadata.resourceVersion`."""
    data: Mapping[str, str]
    body: bytes
    """The whole object as it was read."""


class TrackerEntry(msgspec.Struct, frozen=True):
    """What was written for a downscale, and what it took the place of."""

    text: str
    before: str | None
    """None where there was no entry."""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Map(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] | None = None


_MAP = msgspec.json.Decoder(_Map)


def decode_zone_map(body: bytes) -> ZoneMap:
    """Return a ConfigMap. Raises DecodeError for what is none."""
    try:
        config_map = _MAP.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"not a ConfigMap: {error}") from error
    return ZoneMap(
        version=config_map.metadata.resource_version, data=config_map.data or {}, body=body
    )


def render_changed(zone_map: ZoneMap, key: str, text: str | None) -> dict[str, object]:
    """Return the whole ConfigMap with one other entry, without it where `text` is None."""
    body = msgspec.json.decode(zone_map.body, type=dict[str, object])
    data: dict[str, object] = {**zone_map.data}
    if text is None:
        data.pop(key, None)
    else:
        data[key] = text
    return {**body, "data": data}


def format_entry(time: str) -> str:
    """Return the entry that holds a time in RFC 3339."""
    return msgspec.json.encode({_FIELD: time}).decode()


def decode_entry(text: str) -> str:
    """Return the time in an entry as it is written, empty where it holds none.

    As Go reads JSON: whatever the case of the field, the last of several, null as nothing. Raises
    InvalidInput.
    """
    try:
        entry = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{quote(text)} is no JSON: {error}") from error
    if entry is None:
        return ""
    if not isinstance(entry, dict):
        raise InvalidInput(f"{quote(text)} is no JSON object")
    time = ""
    for key, value in entry.items():
        if key.casefold() == _FIELD.casefold() and value is not None:
            if not isinstance(value, str):
                raise InvalidInput(f"{quote(text)}: {_FIELD} is no text")
            time = value
    return time


def is_recorded(text: str | None, at: datetime) -> bool:
    """Return whether an entry holds this time or a later time."""
    try:
        return text is not None and parse_rfc3339(decode_entry(text)) >= at
    except InvalidInput:
        return False


class Reference(msgspec.Struct, frozen=True, order=True):
    """An object of the operator's own namespace whose scale zones mirror."""

    group: str
    """API group, empty for the core group; its version does not matter."""
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}{f'.{self.group}' if self.group else ''} {self.name}"


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """What a `scale` subresource shows: both counts are 0 where they are absent."""

    replicas: int
    status_replicas: int


class NoScale(msgspec.Struct, frozen=True, kw_only=True):
    """Why a reference shows no count now; `why` names the object and the value."""

    why: str
    is_lasting: bool
    """Whether a person must change something; else it is read again soon."""


Reading = Scale | NoScale


class PodAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod answered when it was called to prepare for a delayed downscale."""

    called_at: datetime
    """When it was called, in the API server's time."""
    since: datetime | None
    """Since when it is prepared, by its own answer; None where that holds no usable time."""
    problem: str = ""
    """Why `since` is None, with the pod's name."""
    is_lost: bool = False
    """Whether it has not answered: the pod may act on the call later."""
    lasts: timedelta | None = None
    """After how long the pod is called again, where that is sooner than as a matter of routine."""


class PodCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The newest calls to one pod about delayed downscales, and its answers."""

    answer: PodAnswer | None = None
    """Of its last POST, None where there was none since the last DELETE that it confirmed.

    A POST that may have arrived after that DELETE stays until the pod has confirmed another.
    """
    cancelled_at: datetime | None = None
    """When it last confirmed a DELETE; None for not since the last POST."""
    tried_at: datetime | None = None
    """When it was last sent a DELETE that it did not confirm."""
    failures: int = 0
    """How many POSTs in a row have given no time."""
    tries: int = 0
    """How many DELETEs it has not confirmed since it confirmed one, or since the last POST."""
    unanswered_at: datetime | None = None
    """When a DELETE was given up last that got no answer: the pod may act on it later."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A count that we wrote and that the cache may not show yet."""

    replicas: int
    generation: int
    """`metadata.generation` of the answer: a cache that shows it, or more, is up to date."""


class ScalingSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `plan_scaling` reads."""

    group: Group
    """`now` is the API server's time; `downscale` is one of the group that may still persist."""
    times: Mapping[Uid, datetime] = {}
    """Last downscales by UID of the set, beyond what annotations show."""
    source: TimesSource = TimesSource.ANNOTATIONS
    """Whether annotations hold times at all."""
    times_problem: str = ""
    """Why the times of downscales are not known; then no zone may be scaled down."""
    scales: Mapping[Reference, Reading] = {}
    """Of all references that were read; a reference that is not here has not been read yet."""
    pod_calls: Mapping[Uid, PodCalls] = {}
    """By UID of the pod."""
    written: Mapping[Uid, Written] = {}
    """By UID of the set."""
    held: frozenset[Uid] = frozenset()
    """Sets whose downscale failed lately: it is not planned, and others do not wait for it."""
    elsewhere: tuple[StatefulSet, ...] = ()
    """Zones of other groups that mirror the same objects: what is published is of them, too."""
    cluster_domain: str = "cluster.local."
    late_calls: timedelta = timedelta(0)
    """So long after its caller has given up a call may still reach a pod."""


class ScaleZone(msgspec.Struct, frozen=True, kw_only=True):
    """Set `spec.replicas` of a zone."""

    zone: StatefulSet
    replicas: int
    reason: Reason
    keeps_time: bool = False
    """Whether the time of it is to be recorded by its writer: no review does."""
    is_exact: bool = False
    """Whether it holds for this version of the set only, of which the status is a part."""

    @property
    def is_downscale(self) -> bool:
        """Return whether pods go."""
        return self.replicas < self.zone.replicas


class PublishReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """Set `status.replicas` of a reference."""

    reference: Reference
    replicas: int
    reason: Reason


class CallPods(msgspec.Struct, frozen=True, kw_only=True):
    """The calls to the pods of one zone: DELETE to those that stay, POST to others.

    Only calls that are due are here. DELETEs come first; each POST brings a `PodAnswer`.
    """

    zone: StatefulSet
    cancel: tuple[Endpoint, ...] = ()
    post: tuple[Endpoint, ...] = ()


class ScalingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that one snapshot of the replicas of a group leads to.

    At most one of `scale` is a downscale. What each zone waits for is in `waits`, in the order of
    zones; `problems` are what a person must change, or what is odd. `look_again` is the time after
    which a deadline falls due that no event announces.
    """

    group: GroupName
    scale: tuple[ScaleZone, ...] = ()
    publish: tuple[PublishReplicas, ...] = ()
    pod_calls: tuple[CallPods, ...] = ()
    waits: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    failed: frozenset[str] = frozenset()
    """Names of zones whose count cannot be decided as they are: a person must act."""
    requeue_after: timedelta | None = None
    next_downscale: timedelta | None = None
    """Time until a zone of the group may be scaled down again; None where nothing waits for it."""
