"""Admission reviews, and the input and outcome of scaling a group (see `planning.scaling`).

A zone follows another zone, or mirrors an object with a `scale` subresource; all other counts
belong to people. The zone tracker is a ConfigMap with the last downscale of each zone in
grafana/rollout-operator's format: by StatefulSet a JSON object with one field. Its other content is
carried along.
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

# Names of service accounts have at most 339.
MAX_USER: Final = 384
_FIELD = "lastDownscaled"


@unique
class Version(StrEnum):
    """Of AdmissionReview; the answer has that of the question."""

    V1 = "admission.k8s.io/v1"
    V1BETA1 = "admission.k8s.io/v1beta1"


class Scalable(msgspec.Struct, frozen=True, kw_only=True):
    """An object with replicas in a review: a workload or its Scale."""

    kind: str
    """StatefulSet, Deployment, ReplicaSet or Scale."""
    uid: Uid = Uid("")
    resource_version: str = ""
    """Of the workload, also for its Scale."""
    replicas: int | None = None
    """Never None for a Scale."""
    labels: Mapping[str, str] = {}
    """Those that decide; a Scale has none."""
    annotations: Mapping[str, str] = {}
    """Those that decide."""
    has_annotations: bool = False
    """Whether it has any, those that do not decide included."""
    service_name: str = ""
    first_ordinal: int = 0
    """`spec.ordinals.start`; 0 for a Scale."""


class Unusable(msgspec.Struct, frozen=True):
    """An object in a review that is absent, broken or of an unknown kind."""

    error: str


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the API server.

    `resource` is plural, such as `statefulsets`, `subresource` such as `scale`.
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
    """On one line of at most `MAX_USER` characters."""
    old: Scalable | Unusable
    new: Scalable | Unusable
    body: bytes = b""
    """`request.object` as received if `new` is Unusable, for hooks on other kinds."""
    sent: bytes = b""
    """The question in JSON, only if it may be forwarded to another replica."""


class TimesSource(StrEnum):
    """Where the times of downscales are kept."""

    ANNOTATIONS = "annotations"
    """Of the StatefulSets themselves."""
    TRACKER = "tracker"
    """In the ConfigMap; annotations mean nothing then, whatever they say."""


class ZoneMap(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the ConfigMap."""

    version: str
    data: Mapping[str, str]
    body: bytes
    """The whole object as read."""


class TrackerEntry(msgspec.Struct, frozen=True):
    """What was written for a downscale, and what it replaced."""

    text: str
    before: str | None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Map(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] | None = None


_MAP = msgspec.json.Decoder(_Map)


class Reference(msgspec.Struct, frozen=True, order=True):
    """An object in the operator's namespace whose scale zones mirror."""

    group: str
    """API group; the version does not matter."""
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}{f'.{self.group}' if self.group else ''} {self.name}"


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """A `scale` subresource; absent counts are 0."""

    replicas: int
    status_replicas: int


class NoScale(msgspec.Struct, frozen=True, kw_only=True):
    """Why a reference has no count now; `why` names object and value."""

    why: str
    is_lasting: bool
    """Whether a person must change something; otherwise it is read again soon."""


Reading = Scale | NoScale


class PodAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's answer to the call to prepare for a delayed downscale."""

    called_at: datetime
    """On the API server's clock."""
    since: datetime | None
    """Since when it says it is prepared; None without a usable time."""
    problem: str = ""
    """Why `since` is None, with the pod's name."""
    is_lost: bool = False
    """Whether no answer came: the pod may act on the call later."""
    lasts: timedelta | None = None
    """When it is called again, if sooner than usual."""


class PodCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The newest calls to one pod about delayed downscales, and its answers."""

    answer: PodAnswer | None = None
    """To its last POST since the last confirmed DELETE. A POST that may have arrived after that
    DELETE stays until another DELETE is confirmed."""
    cancelled_at: datetime | None = None
    """When it last confirmed a DELETE since the last POST."""
    tried_at: datetime | None = None
    """When it was last sent a DELETE that it did not confirm."""
    failures: int = 0
    """POSTs in a row without a time."""
    tries: int = 0
    """Unconfirmed DELETEs since a confirmed one or the last POST."""
    unanswered_at: datetime | None = None
    """When the last unanswered DELETE was given up: the pod may act on it later."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A count that we wrote and the cache may not show yet."""

    replicas: int
    generation: int
    """Of the answer; a cache with this or more shows it."""


class ScalingSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `plan_scaling`."""

    group: Group
    times: Mapping[Uid, datetime] = {}
    """Last downscales by set, beyond what annotations show."""
    source: TimesSource = TimesSource.ANNOTATIONS
    times_problem: str = ""
    """Why the times are unknown; then no zone is scaled down."""
    scales: Mapping[Reference, Reading] = {}
    """Without references that were not read yet."""
    pod_calls: Mapping[Uid, PodCalls] = {}
    """By pod."""
    written: Mapping[Uid, Written] = {}
    """By set."""
    held: frozenset[Uid] = frozenset()
    """Sets whose downscale failed lately: it is not planned, and others do not wait for it."""
    elsewhere: tuple[StatefulSet, ...] = ()
    """Zones of other groups that mirror the same objects."""
    cluster_domain: str = "cluster.local."
    late_calls: timedelta = timedelta(0)
    """How long after it was given up a call may still reach a pod."""


class ScaleZone(msgspec.Struct, frozen=True, kw_only=True):
    """Set `spec.replicas` of a zone."""

    zone: StatefulSet
    replicas: int
    reason: Reason
    keeps_time: bool = False
    """Whether the writer must record its time, since no review does."""
    is_exact: bool = False
    """Whether it holds only for this version of the set."""

    @property
    def is_downscale(self) -> bool:
        return self.replicas < self.zone.replicas


class PublishReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """Set `status.replicas` of a reference."""

    reference: Reference
    replicas: int
    reason: Reason


class CallPods(msgspec.Struct, frozen=True, kw_only=True):
    """Calls due to the pods of one zone: DELETE to those that stay, POST to the others.

    DELETEs come first; each POST brings a `PodAnswer`.
    """

    zone: StatefulSet
    cancel: tuple[Endpoint, ...] = ()
    post: tuple[Endpoint, ...] = ()


class ScalingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for the replicas of a group.

    At most one of `scale` is a downscale. `waits` are in the order of zones; `problems` are odd, or
    for a person to fix. `requeue_after` is when something changes by time alone.
    """

    group: GroupName
    scale: tuple[ScaleZone, ...] = ()
    publish: tuple[PublishReplicas, ...] = ()
    pod_calls: tuple[CallPods, ...] = ()
    waits: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    failed: frozenset[str] = frozenset()
    """Zones whose count only a person can decide."""
    requeue_after: timedelta | None = None
    next_downscale: timedelta | None = None
    """When a zone may be scaled down again, if one waits for that."""


def decode_zone_map(body: bytes) -> ZoneMap:
    """Raises DecodeError."""
    try:
        config_map = _MAP.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"not a ConfigMap: {error}") from error
    return ZoneMap(
        version=config_map.metadata.resource_version, data=config_map.data or {}, body=body
    )


def render_changed(zone_map: ZoneMap, key: str, text: str | None) -> dict[str, object]:
    """Return the whole ConfigMap with one entry changed, or removed if `text` is None."""
    body = msgspec.json.decode(zone_map.body, type=dict[str, object])
    data: dict[str, object] = {**zone_map.data}
    if text is None:
        data.pop(key, None)
    else:
        data[key] = text
    return {**body, "data": data}


def format_entry(time: str) -> str:
    return msgspec.json.encode({_FIELD: time}).decode()


def decode_entry(text: str) -> str:
    """Return the time in an entry as written, empty if it has none. Raises InvalidInput.

    As Go reads JSON: any case of the field, the last of several, null as absent.
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
    """Return whether an entry holds this time or a later one."""
    try:
        return text is not None and parse_rfc3339(decode_entry(text)) >= at
    except InvalidInput:
        return False
