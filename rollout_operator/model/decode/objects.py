"""JSON of pods, StatefulSets and nodes → slim objects; what cannot be read → `Unreadable`.

Decides what an absent field means and how much of a broken object is still shown. The fields that
are read are in `wire`. Also read here: a pod's answer when it is prepared for a delayed downscale
(DELAY-07), and who wrote a field, by `managedFields`. Any client may write either: names and
answers are quoted in part only, on one printable line.
"""

import binascii
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.wire import (
    BookmarkHead,
    JsonBytes,
    Owner,
    PodAnnotations,
    PodStatus,
    Required,
    Selector,
    SetStatus,
    Wire,
    WireBookmark,
    WireHeaded,
    WireNode,
    WirePlaced,
    WirePod,
    WirePorts,
    WireStatefulSet,
    bound_text,
    decode_shallow,
    decoder_of,
    explain,
    explain_not_ready,
    is_crash_looping,
    one_line,
    show_value,
)
from rollout_operator.model.names import (
    PARALLEL,
    REVISION_LABEL,
    STATEFULSET_ANNOTATIONS,
    DecodeError,
    InvalidInput,
    Revision,
    Uid,
)
from rollout_operator.model.objects import (
    MOST_LABELS,
    Node,
    Pod,
    StatefulSet,
    WatchedHead,
    WatchedObject,
    bound_labels,
)
from rollout_operator.model.scaling import PodAnswer
from rollout_operator.model.units import Confidential, format_duration

# Of what the operator writes on pods: a record of a downscale may name the targets of earlier
# downscales.
LONGEST_RECORD: Final = 8 << 10

# An annotation may have 256 KiB, and what is kept of it stands in status and events.
_LONGEST_TEXT: Final = 4096

# A kubelet stamps the start and the first conditions of a pod one after the other.
_SAME_REPORT: Final = timedelta(seconds=2)

_ANNOTATIONS: Final = tuple(sorted(STATEFULSET_ANNOTATIONS))

_Instant = Annotated[datetime, Meta(tz=True)]

_PLACED: Final = msgspec.json.Decoder(WirePlaced)
_BOOKMARK: Final = msgspec.json.Decoder(WireBookmark)
_NODE: Final = msgspec.json.Decoder(WireNode)
_POD: Final = msgspec.json.Decoder(WirePod)
_PORTS: Final = msgspec.json.Decoder(WirePorts)
_STATEFULSET: Final = msgspec.json.Decoder(WireStatefulSet)
LONGEST_BODY: Final = 64 * 1024
"""Bytes; a good answer has about thirty."""

# The clocks of a cluster agree within seconds. What lies further ahead is no time in seconds, and
# would hold a downscale back for ever: 13 digits, for example.
_FURTHEST_AHEAD: Final = timedelta(days=1)

# Of an offending value so much is shown that a person recognises it.
_LONGEST_SHOWN: Final = 40

# A whole number above 0, as JSON has it: no sign, no fraction, no exponent.
_SECONDS: Final = re.compile(rb"[1-9][0-9]*")
# Enough for milliseconds and more; Python refuses to read numbers of thousands of digits.
_MOST_DIGITS: Final = 18

# More would fill a sentence with names and add nothing to the first.
_MOST_NAMES: Final = 3
_LONGEST_NAME: Final = 60

_NONE: Final = msgspec.Raw()
_EMPTY: Final = msgspec.Raw(b"{}")

_SET: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PREFIX: Final = "f:"
# No API server stores a longer name.
_LONGEST_MANAGER: Final = 128


class _Secret(Confidential, msgspec.Struct):
    data: dict[str, str] | None = None


class _Kinded(Protocol):
    kind: str | None


_Wired = TypeVar("_Wired", bound=_Kinded)


class Headed(Protocol):
    """A decoded object that knows its own identity."""

    @property
    def head(self) -> WatchedHead: ...


_Headed = TypeVar("_Headed", bound=Headed)


def decode_pod(raw: JsonBytes) -> Pod:
    """Return a pod. Raises DecodeError naming pod, field and value."""
    wire = read_as("Pod", raw, _POD)
    head, status = wire.metadata, wire.status or PodStatus()
    owner = _controller(head.owner_references)
    terminating = head.deletion_timestamp is not None
    why_not_ready, is_starting = explain_not_ready(status, terminating=terminating)
    labels, annotations = _keep_labels(head.labels), head.annotations or PodAnnotations()
    revision = labels.get(REVISION_LABEL)
    been_ready = _been_ready(status) if why_not_ready else None
    # What repeats from pod to pod is kept once: that is nearly half of what pods would cost.
    return Pod(
        namespace=sys.intern(head.namespace),
        name=sys.intern(head.name),  # the value of one of its labels, too
        uid=Uid(head.uid),
        resource_version=head.resource_version,
        owner_uid=Uid(sys.intern(bound_text(owner.uid))) if owner else None,
        created=head.creation_timestamp,
        revision=Revision(revision) if revision is not None else None,
        phase=sys.intern(bound_text(status.phase)),
        is_terminating=terminating,
        is_disrupted=_is_disrupted(status),
        is_ready=not why_not_ready,
        ready_since=None if why_not_ready else _ready_since(wire, annotations),
        unready_since=_unready_since(wire) if why_not_ready else None,
        was_ready=been_ready is True,
        never_ready=been_ready is False,
        is_crash_looping=bool(why_not_ready) and is_crash_looping(status),
        ip=bound_text(status.pod_ip or ""),
        labels=labels,
        downscale_record=bound_text(annotations.downscale or "", LONGEST_RECORD),
        ports=_decode_ports(raw) if annotations.downscale else (),
        disruption=bound_text(annotations.disruption or "", LONGEST_RECORD),
        why_not_ready=sys.intern(why_not_ready),
        is_starting=is_starting,
    )


def _decode_ports(raw: JsonBytes) -> tuple[int, ...]:
    """Return the container ports of a pod; a sidecar is an init container."""
    spec = read_as("Pod", raw, _PORTS).spec
    if spec is None:
        return ()
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    ports = {port.container_port for container in containers for port in container.ports or ()}
    return tuple(sorted(ports))


def place_decoder(kind: str) -> Callable[[JsonBytes], WatchedObject]:
    """Return the decoder of the metadata of a kind. It raises DecodeError."""

    def decode(raw: JsonBytes) -> WatchedObject:
        head = read_as(kind, raw, _PLACED).metadata
        return WatchedObject(
            namespace=sys.intern(head.namespace),
            name=head.name,
            uid=Uid(head.uid),
            resource_version=head.resource_version,
            decoded=None,
        )

    return decode


class ReadHead(msgspec.Struct, frozen=True, kw_only=True):
    head: WatchedHead
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def annotation(self, key: str) -> str | None:
        """Return an annotation, cut where it is very long."""
        text = self.annotations.get(key)
        return None if text is None else text[:_LONGEST_TEXT]


def read_head(kind: str, raw: JsonBytes) -> ReadHead:
    """Return the metadata of an object. Raises DecodeError naming object, field and value."""
    wire = read_as(kind, raw, decoder_of(WireHeaded)).metadata
    head = WatchedHead(
        namespace=wire.namespace,
        name=wire.name,
        uid=Uid(wire.uid),
        resource_version=wire.resource_version,
        generation=wire.generation,
        is_terminating=wire.deletion_timestamp is not None,
    )
    return ReadHead(head=head, labels=wire.labels or {}, annotations=wire.annotations or {})


def watch_as(decode: Callable[[JsonBytes], _Headed]) -> Callable[[JsonBytes], WatchedObject]:
    """Return a decoder for a watch. It raises what `decode` raises."""

    def decode_watched(raw: JsonBytes) -> WatchedObject:
        decoded = decode(raw)
        head = decoded.head
        # Writes of fields that are not read here would else be news.
        still = msgspec.structs.replace(head, resource_version="")
        return WatchedObject(
            namespace=head.namespace,
            name=head.name,
            uid=head.uid,
            resource_version=head.resource_version,
            decoded=msgspec.structs.replace(cast(msgspec.Struct, decoded), head=still),
        )

    return decode_watched


def decode_statefulset(raw: JsonBytes) -> StatefulSet:
    """Return a StatefulSet. Raises DecodeError naming set, field and value."""
    wire = read_as("StatefulSet", raw, _STATEFULSET)
    head, spec, status = wire.metadata, wire.spec, wire.status or SetStatus()
    strategy = spec.update_strategy.type if spec.update_strategy is not None else ""
    return StatefulSet(
        namespace=sys.intern(head.namespace),
        name=head.name,
        uid=Uid(sys.intern(head.uid)),
        resource_version=head.resource_version,
        generation=head.generation,
        is_terminating=head.deletion_timestamp is not None,
        labels=_keep_labels(head.labels),
        annotations=_keep_annotations(head.annotations),
        selector=_keep_selector(spec.selector),
        strategy=sys.intern(bound_text(strategy or "RollingUpdate")),
        replicas=1 if spec.replicas is None else spec.replicas,
        first_ordinal=spec.ordinals.start if spec.ordinals is not None else 0,
        service_name=bound_text(spec.service_name or ""),
        is_ordered=spec.pod_management_policy != PARALLEL,
        min_ready_seconds=spec.min_ready_seconds,
        observed_generation=status.observed_generation,
        status_replicas=status.replicas,
        updated_replicas=status.updated_replicas,
        ready_replicas=status.ready_replicas,
        available_replicas=status.available_replicas,
        current_revision=Revision(sys.intern(bound_text(status.current_revision))),
        update_revision=Revision(sys.intern(bound_text(status.update_revision))),
    )


def decode_node(raw: JsonBytes, keys: frozenset[str]) -> Node:
    """Return a node with these of its labels. Raises DecodeError naming node, field and value."""
    head = read_as("Node", raw, _NODE).metadata
    labels = head.labels or {}
    return Node(
        name=head.name,
        uid=Uid(head.uid),
        resource_version=head.resource_version,
        labels=_keep_labels({key: labels[key] for key in sorted(keys) if key in labels}),
        keys=keys,
    )


class Bookmark(msgspec.Struct, frozen=True):
    version: str
    ends_state: bool
    """Whether all objects that there were in that version have been sent."""


def decode_bookmark(raw: JsonBytes) -> Bookmark:
    head = _read_bookmark("bookmark", raw)
    annotations = head.annotations
    return Bookmark(
        version=head.resource_version,
        ends_state=annotations is not None and annotations.ends_state == "true",
    )


def decode_version(kind: str, raw: JsonBytes) -> str:
    """Return the resourceVersion of an object, such as a bookmark.

    Raises DecodeError.
    """
    return _read_bookmark(kind, raw).resource_version


def _read_bookmark(kind: str, raw: JsonBytes) -> BookmarkHead:
    try:
        return decode_shallow(_BOOKMARK, raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise explain(kind, raw, str(error)) from error


def read_as(kind: str, raw: JsonBytes, decoder: "msgspec.json.Decoder[_Wired]") -> _Wired:
    """Return an object of `kind` as it is on the wire.

    Raises DecodeError naming object, field and value.
    """
    try:
        wire = decode_shallow(decoder, raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise explain(kind, raw, str(error)) from error
    # Items of a list carry no kind; a single object does, and a wrong kind is a caller's mistake
    # that the missing fields would explain badly.
    if wire.kind is not None and wire.kind != kind:
        raise explain(kind, raw, f"Expected `{kind}` - at `$.kind`")
    return wire


def decode_secret(raw: JsonBytes) -> Mapping[str, bytes]:
    """Return the data of a Secret. Raises InvalidInput that quotes none of it, nor has a cause."""
    try:
        data = decoder_of(_Secret).decode(raw).data or {}
        return {key: b64decode(value) for key, value in data.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error):
        raise InvalidInput("its data cannot be read") from None


def _ready_since(wire: WirePod, annotations: PodAnnotations) -> datetime | None:
    """Return since when a pod is ready: its condition says so, or else an earlier release (W-38).

    Raises DecodeError for a condition whose time cannot be read.
    """
    conditions = (wire.status.conditions if wire.status is not None else None) or ()
    texts = [
        condition.last_transition_time for condition in conditions if condition.type == "Ready"
    ]
    if not texts or texts[-1] is None:
        return _read_instant(annotations.ready_time)
    try:
        return msgspec.convert(texts[-1], _Instant)
    except msgspec.ValidationError as error:
        where = "status.conditions[type=Ready].lastTransitionTime"
        who = f"Pod {one_line(wire.metadata.namespace)}/{one_line(wire.metadata.name)}"
        raise DecodeError(f"{who}: {where}: no instant: {show_value(texts[-1])}") from error


def _unready_since(wire: WirePod) -> datetime | None:
    conditions = (wire.status.conditions if wire.status is not None else None) or ()
    ready = [condition for condition in conditions if condition.type == "Ready"]
    if not ready:
        return wire.metadata.creation_timestamp
    # True is a claim that its containers contradict: since when is not known.
    return None if ready[-1].status == "True" else _read_instant(ready[-1].last_transition_time)


def _read_instant(text: str | None) -> datetime | None:
    try:
        return msgspec.convert(text, _Instant)
    except msgspec.ValidationError:
        return None


def _is_disrupted(status: PodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return True
    return False


def _been_ready(status: PodStatus) -> bool | None:
    """Return whether a pod that is not ready has been: its condition has changed since the start.

    None where the times say nothing.
    """
    changes = [
        condition.last_transition_time
        for condition in status.conditions or ()
        if condition.type == "Ready" and condition.status == "False"
    ]
    try:
        started = msgspec.convert(status.start_time, _Instant)
        changed = msgspec.convert(changes[-1] if changes else None, _Instant)
    except msgspec.ValidationError:
        return None
    if started - changed > _SAME_REPORT:
        return None  # by another clock: it proves nothing
    return changed - started > _SAME_REPORT


def _controller(owners: list[Owner] | None) -> Owner | None:
    for owner in owners or ():
        if owner.controller and owner.uid:
            return owner
    return None


def _keep_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """Intern labels: nearly all repeat from object to object."""
    kept = bound_labels(labels or {})
    return {sys.intern(key): sys.intern(value) for key, value in kept.items()}


def _keep_selector(selector: Selector | None) -> Mapping[str, str]:
    """Return the labels by which pods are looked for: with fewer of them no pod is missed."""
    labels = (selector.match_labels if selector is not None else None) or {}
    return dict(sorted(labels.items())[:MOST_LABELS])


def _keep_annotations(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    kept = only(_ANNOTATIONS, annotations)
    return {key: bound_text(value) for key, value in kept.items()}


def only(keys: tuple[str, ...], values: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the part of `values` that has one of these keys, in their order."""
    return {key: values[key] for key in keys if key in values} if values else {}


class _Head(Wire):
    uid: Required


class _Spec(Wire):
    node_name: str | None = None


class _ScheduledPod(Wire):
    metadata: _Head
    spec: _Spec | None = None
    kind: str | None = None


_SCHEDULED: Final = msgspec.json.Decoder(_ScheduledPod)


def decode_pod_node(raw: JsonBytes) -> tuple[Uid, str]:
    """Return the UID of a pod and its node, empty where it has none yet. Raises DecodeError."""
    wire = read_as("Pod", raw, _SCHEDULED)
    return Uid(wire.metadata.uid), bound_text((wire.spec.node_name if wire.spec else None) or "")


class _Body(msgspec.Struct):
    timestamp: msgspec.Raw = msgspec.Raw()


_BODY: Final = msgspec.json.Decoder(_Body)


def decode_pod_answer(pod: str, status: int, body: bytes, called_at: datetime) -> PodAnswer:
    """Return since when a pod is prepared, or why that is not known.

    `body` may be cut after LONGEST_BODY + 1 bytes. `called_at` also decides which times lie ahead.
    """
    time = _read_time(status, body, called_at)
    if isinstance(time, datetime):
        return PodAnswer(called_at=called_at, since=time)
    return PodAnswer(called_at=called_at, since=None, problem=f"POST {pod}: {time}")


def _read_time(status: int, body: bytes, called_at: datetime) -> datetime | str:
    if not 200 <= status < 300:
        return f"HTTP status {status}"
    if len(body) > LONGEST_BODY:
        return f"the answer is longer than {LONGEST_BODY} bytes"
    try:
        value = bytes(_BODY.decode(body).timestamp)
    except (msgspec.MsgspecError, RecursionError):
        return f"the answer is no JSON object: {_show(body)}" if body else "the answer is empty"
    if not value:
        return f"the answer has no timestamp: {_show(body)}"
    if not _SECONDS.fullmatch(value):
        return f"timestamp is no whole number of seconds above 0: {_show(value)}"
    if len(value) > _MOST_DIGITS or int(value) > (called_at + _FURTHEST_AHEAD).timestamp():
        ahead = format_duration(_FURTHEST_AHEAD)
        return f"timestamp is more than {ahead} ahead, perhaps in milliseconds: {_show(value)}"
    return datetime.fromtimestamp(int(value), UTC)


def _show(data: bytes) -> str:
    text = data[:_LONGEST_SHOWN].decode("utf-8", "replace").encode("unicode_escape").decode()
    is_cut = len(text) > _LONGEST_SHOWN or len(data) > _LONGEST_SHOWN
    return f"{text[:_LONGEST_SHOWN]}..." if is_cut else text


class _ManagedSpec(msgspec.Struct, rename={"replicas": "f:replicas"}):
    replicas: msgspec.Raw = _NONE


class _Fields(msgspec.Struct, rename={"spec": "f:spec"}):
    spec: _ManagedSpec | None = None


class _ManagedFields(msgspec.Struct, rename={"fields": "fieldsV1"}):
    manager: str = ""
    fields: msgspec.Raw = _NONE


class _Meta(msgspec.Struct, rename="camel"):
    managed_fields: list[_ManagedFields] | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


_OBJECT: Final = msgspec.json.Decoder(_Object)
_FIELDS: Final = msgspec.json.Decoder(_Fields | None)


def decode_replica_writers(body: bytes, *, but: str) -> tuple[str, ...]:
    """Return who wrote `spec.replicas` of an object, the newest last, without the manager `but`.

    Never raises, whatever `body` is: then nothing is returned.
    """
    try:
        entries = _OBJECT.decode(body).metadata.managed_fields or []
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    names = (one_line(writer.manager)[:_LONGEST_NAME] for writer in _list_writers(entries))
    return tuple(dict.fromkeys(name for name in names if name and name != but))[-_MOST_NAMES:]


def decode_field_writers(body: JsonBytes, path: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return who wrote each field below a path such as `("spec", "ref")`, the newest last.

    Never raises, whatever `body` is: what cannot be read has no writers.
    """
    try:
        entries = _OBJECT.decode(body).metadata.managed_fields or []
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    writers: dict[str, dict[str, None]] = {}
    for entry in entries:
        for field in _list_fields(entry.fields, path):
            writers.setdefault(field, {})[entry.manager[:_LONGEST_MANAGER]] = None
    return {field: tuple(managers) for field, managers in writers.items()}


def _list_fields(fields: msgspec.Raw, path: Sequence[str]) -> Sequence[str]:
    try:
        for step in path:
            fields = _SET.decode(fields).get(f"{_PREFIX}{step}", _EMPTY)
        return [key[len(_PREFIX) :] for key in _SET.decode(fields) if key.startswith(_PREFIX)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()


def _list_writers(entries: list[_ManagedFields]) -> Iterator[_ManagedFields]:
    for entry in entries:
        if not bytes(entry.fields):
            continue
        try:
            fields = _FIELDS.decode(entry.fields)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if fields is not None and fields.spec is not None and bytes(fields.spec.replicas):
            yield entry
