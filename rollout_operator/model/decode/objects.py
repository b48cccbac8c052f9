"""JSON objects of the API server → slim views; what cannot be read → `Unreadable`.

Decides what an absent field means and how much of a broken object is still told. Which fields are
read is written in `wire`, when a pod is ready in `not_ready`. Which objects matter is left to the
caches, what follows from them to the planner.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final, Protocol, TypeVar

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.excerpt import LONGEST_VALUE
from rollout_operator.model.decode.nesting import cut_deep, decode_shallow
from rollout_operator.model.decode.not_ready import find_trouble, one_line
from rollout_operator.model.decode.wire import (
    BookmarkHead,
    Owner,
    PodAnnotations,
    PodStatus,
    Selector,
    SetStatus,
    WireBookmark,
    WirePod,
    WirePorts,
    WireStatefulSet,
)
from rollout_operator.model.errors import DecodeError
from rollout_operator.model.labels import LEFT_OUT, MOST_LABELS, bound_labels
from rollout_operator.model.names import (
    PARALLEL,
    REVISION_LABEL,
    STATEFULSET_ANNOTATIONS,
    Revision,
    Uid,
)
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable

JsonBytes = bytes | msgspec.Raw

_VALUE_LIMIT: Final = 80

# Of what the operator writes on pods: a record of a downscale may name the targets of earlier ones.
LONGEST_RECORD: Final = 8 << 10

# A kubelet stamps the start and the first conditions of a pod one after the other.
_SAME_REPORT: Final = timedelta(seconds=2)

_Instant = Annotated[datetime, Meta(tz=True)]

# What is built as a whole takes milliseconds up to this size.
_LARGE: Final = 64 * 1024

_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
_BOOKMARK: Final = msgspec.json.Decoder(WireBookmark)
_POD: Final = msgspec.json.Decoder(WirePod)
_PORTS: Final = msgspec.json.Decoder(WirePorts)
_STATEFULSET: Final = msgspec.json.Decoder(WireStatefulSet)
# Objects of these kinds belong to the cluster: there is no namespace to name.
_CLUSTER_KINDS: Final = frozenset(
    {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
)


class _Kinded(Protocol):
    kind: str | None


_Wired = TypeVar("_Wired", bound=_Kinded)


def decode_pod(raw: JsonBytes) -> Pod:
    """Return the view of a pod. Raises DecodeError naming pod, field and value."""
    wire = read_as("Pod", raw, _POD)
    head, status = wire.metadata, wire.status or PodStatus()
    owner = _controller(head.owner_references)
    terminating = head.deletion_timestamp is not None
    trouble, is_starting = find_trouble(status, terminating=terminating)
    labels, annotations = _keep_labels(head.labels), head.annotations or PodAnnotations()
    revision = labels.get(REVISION_LABEL)
    been_ready = _been_ready(status) if trouble else None
    # What repeats from pod to pod is kept once: that is nearly half of what pods would cost.
    return Pod(
        namespace=sys.intern(head.namespace),
        name=head.name,
        uid=Uid(head.uid),
        resource_version=head.resource_version,
        owner_uid=Uid(sys.intern(_bound(owner.uid))) if owner else None,
        created=head.creation_timestamp,
        revision=Revision(revision) if revision is not None else None,
        phase=sys.intern(_bound(status.phase)),
        is_terminating=terminating,
        is_ready=not trouble,
        ready_since=None if trouble else _ready_since(wire, annotations),
        was_ready=been_ready is True,
        never_ready=been_ready is False,
        ip=_bound(status.pod_ip or ""),
        labels=labels,
        downscale_note=_bound(annotations.note or "", LONGEST_RECORD),
        ports=_decode_ports(raw) if annotations.note else (),
        disruption=_bound(annotations.disruption or "", LONGEST_RECORD),
        trouble=sys.intern(trouble),
        is_starting=is_starting,
    )


def _decode_ports(raw: JsonBytes) -> tuple[int, ...]:
    """Return the container ports of a pod; a sidecar is an init container."""
    spec = read_as("Pod", raw, _PORTS).spec
    if spec is None:
        return ()
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    ports = {port.container_port for one in containers for port in one.ports or ()}
    return tuple(sorted(ports))


def decode_statefulset(raw: JsonBytes) -> StatefulSet:
    """Return the view of a StatefulSet. Raises DecodeError naming set, field and value."""
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
        strategy=sys.intern(_bound(strategy or "RollingUpdate")),
        replicas=1 if spec.replicas is None else spec.replicas,
        first_ordinal=spec.ordinals.start if spec.ordinals is not None else 0,
        service_name=_bound(spec.service_name or ""),
        is_ordered=spec.pod_management_policy != PARALLEL,
        min_ready_seconds=spec.min_ready_seconds,
        observed_generation=status.observed_generation,
        status_replicas=status.replicas,
        updated_replicas=status.updated_replicas,
        ready_replicas=status.ready_replicas,
        available_replicas=status.available_replicas,
        current_revision=Revision(sys.intern(_bound(status.current_revision))),
        update_revision=Revision(sys.intern(_bound(status.update_revision))),
    )


@dataclass(frozen=True, slots=True)
class Bookmark:
    """What a bookmark says of its stream."""

    version: str
    ends_state: bool
    """Whether all objects that there were in that version have been sent."""


def decode_bookmark(raw: JsonBytes) -> Bookmark:
    """Return what a bookmark says. Raises DecodeError."""
    head = _read_bookmark("bookmark", raw)
    annotations = head.annotations
    return Bookmark(
        version=head.resource_version,
        ends_state=annotations is not None and annotations.ends_state == "true",
    )


def decode_version(kind: str, raw: JsonBytes) -> str:
    """Return the resourceVersion of an object that holds nothing else, such as a bookmark.

    Raises DecodeError.
    """
    return _read_bookmark(kind, raw).resource_version


def _read_bookmark(kind: str, raw: JsonBytes) -> BookmarkHead:
    try:
        return decode_shallow(_BOOKMARK, raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _decode_error(kind, raw, str(error)) from error


def salvage(kind: str, raw: JsonBytes, error: DecodeError) -> Unreadable:
    """Return what `raw` still says about its identity; text that cannot be read is empty.

    Never raises, whatever `raw` is.
    """
    metadata = as_fields(as_fields(_loads(raw)).get("metadata"))
    labels = as_fields(metadata.get("labels"))
    return Unreadable(
        kind=kind,
        namespace=_text(metadata.get("namespace")),
        name=_text(metadata.get("name")),
        uid=Uid(_text(metadata.get("uid"))),
        resource_version=_text(metadata.get("resourceVersion")),
        owner_uid=_salvaged_owner(metadata.get("ownerReferences")),
        labels=bound_labels(
            {
                _text(key): _text(value)
                for key, value in sorted(labels.items())
                if isinstance(value, str)
            }
        ),
        error=str(error),
    )


def read_as(kind: str, raw: JsonBytes, decoder: "msgspec.json.Decoder[_Wired]") -> _Wired:
    """Return an object of `kind` as it is on the wire.

    Raises DecodeError naming object, field and value.
    """
    try:
        wire = decode_shallow(decoder, raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _decode_error(kind, raw, str(error)) from error
    # Items of a list carry no kind; a single object does, and a wrong one is a caller's mistake
    # that the missing fields would explain badly.
    if wire.kind is not None and wire.kind != kind:
        raise _decode_error(kind, raw, f"Expected `{kind}` - at `$.kind`")
    return wire


def _ready_since(wire: WirePod, annotations: PodAnnotations) -> datetime | None:
    """Return since when a pod is ready: its condition says so, or else an earlier release (W-38).

    Raises DecodeError for a condition whose time is none.
    """
    conditions = (wire.status.conditions if wire.status is not None else None) or ()
    texts = [one.last_transition_time for one in conditions if one.type == "Ready"]
    if not texts or texts[-1] is None:
        return _read_instant(annotations.ready_time)
    try:
        return msgspec.convert(texts[-1], _Instant)
    except msgspec.ValidationError as error:
        where = "status.conditions[type=Ready].lastTransitionTime"
        who = f"Pod {one_line(wire.metadata.namespace)}/{one_line(wire.metadata.name)}"
        raise DecodeError(f"{who}: {where}: no instant: {show_value(texts[-1])}") from error


def _read_instant(text: str | None) -> datetime | None:
    try:
        return msgspec.convert(text, _Instant)
    except msgspec.ValidationError:
        return None


def _been_ready(status: PodStatus) -> bool | None:
    """Tell whether a pod that is not ready has been: its condition has changed since the start.

    None where the times say nothing.
    """
    changes = [
        one.last_transition_time
        for one in status.conditions or ()
        if one.type == "Ready" and one.status == "False"
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
    return next((owner for owner in owners or () if owner.controller and owner.uid), None)


def _keep_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return labels whose words are kept once: nearly all repeat from object to object."""
    kept = bound_labels(labels or {})
    return {sys.intern(key): sys.intern(value) for key, value in kept.items()}


def _keep_selector(selector: Selector | None) -> Mapping[str, str]:
    """Return the labels by which pods are looked for: with fewer of them no pod is missed."""
    labels = (selector.match_labels if selector is not None else None) or {}
    return dict(sorted(labels.items())[:MOST_LABELS])


def _keep_annotations(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    kept = only(STATEFULSET_ANNOTATIONS, annotations)
    return {key: _bound(value) for key, value in kept.items()}


def _bound(text: str, most: int = LONGEST_VALUE) -> str:
    """Return a text that anybody may write; one that is too long for what it is stays invalid."""
    return text if len(text) <= most else f"{text[:most]}..."


def only(keys: frozenset[str], values: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the part of `values` that has one of these keys."""
    return {key: values[key] for key in sorted(keys) if key in values} if values else {}


def show_value(value: object) -> str:
    """Return a value as JSON, cut where it is long."""
    return cut_value(json.dumps(value))


def cut_value(text: str) -> str:
    """Return as much of an offending value as a person needs to recognise it."""
    return text if len(text) <= _VALUE_LIMIT else f"{text[:_VALUE_LIMIT]}..."


def _decode_error(kind: str, raw: JsonBytes, problem: str) -> DecodeError:
    """Return an error that names object, field and value; slow, but objects rarely break."""
    tree = _loads(raw)
    metadata = as_fields(as_fields(tree).get("metadata"))
    keys = ("name",) if kind in _CLUSTER_KINDS else ("namespace", "name")
    who = "/".join(one_line(_text(metadata.get(key))) or "?" for key in keys)
    what, _, where = problem.partition(" - at `$")
    text = what[:1].lower() + what[1:].replace("`", "")
    path = where.rstrip("`").lstrip(".")
    found = _at(tree, path) if path else None
    field = f"{one_line(path)}: " if path else ""
    value = f": {show_value(found)}" if isinstance(found, str | int | float) else ""
    return DecodeError(f"{kind} {who}: {field}{text}{value}")


def _at(tree: object, path: str) -> object:
    """Return the value at a path such as `spec.replicas`; anything but a scalar where in doubt."""
    for step in path.replace("[", ".[").split("."):
        index = step[1:-1]
        if isinstance(tree, list) and index.isdigit() and int(index) < len(tree):
            tree = tree[int(index)]
        elif isinstance(tree, dict) and step in tree:
            tree = tree[step]
        else:
            return ()
    return tree


def _loads(raw: JsonBytes) -> object:
    """Read JSON as leniently as can be: NaN, lone surrogates and broken UTF-8 pass."""
    body = _shed(bytes(raw))
    try:
        return _read_leniently(body)
    except RecursionError:
        return _read_leniently(cut_deep(body))


def _shed(body: bytes) -> bytes:
    """Return a large object without its large parts, which need not be built to tell its name.

    `managedFields` of 1.2 MB take a third of a second, and nothing else has a turn meanwhile.
    """
    if len(body) <= _LARGE:
        return body
    try:
        parts = _PARTS.decode(body)
        head = _PARTS.decode(parts.pop("metadata", b"{}"))
        metadata: dict[str, object] = {**_drop_large(head)}
        if "labels" in head.keys() - metadata.keys():
            metadata["labels"] = _shed_labels(head["labels"])
        return msgspec.json.encode({**_drop_large(parts), "metadata": metadata})
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body  # no JSON, or none of an object: it is read as far as it goes


def _shed_labels(raw: msgspec.Raw) -> Mapping[str, str]:
    try:
        return bound_labels(_LABELS.decode(raw))
    except msgspec.ValidationError:
        return {LEFT_OUT: ""}


def _drop_large(parts: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {key: part for key, part in parts.items() if memoryview(part).nbytes <= _LARGE}


def _read_leniently(body: bytes) -> object:
    try:
        loaded: object = json.loads(body.decode("utf-8", "replace"))
    except ValueError:
        return None
    return loaded


def as_fields(value: object) -> dict[str, object]:
    """Return the fields of an object, none of anything else."""
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _salvaged_owner(owners: object) -> Uid | None:
    for owner in owners if isinstance(owners, list) else ():
        fields = as_fields(owner)
        if fields.get("controller") is True and _text(fields.get("uid")):
            return Uid(_bound(_text(fields["uid"])))
    return None
