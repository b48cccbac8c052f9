"""JSON objects of the API server → slim views; what cannot be read → `Unreadable`.

Decides when a pod is ready (D-11) and, where it is not, which few words say why. Reads only the
fields that views hold; everything else is skipped without being built. Which objects matter is left
to the caches, what follows from them to the planner.
"""

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from rollout_operator.model.errors import DecodeError
from rollout_operator.model.names import (
    REVISION_LABEL,
    STATEFULSET_ANNOTATIONS,
    STATEFULSET_LABELS,
    Revision,
    Uid,
)
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable

JsonBytes = bytes | msgspec.Raw

# Long enough for every reason that Kubernetes knows, short enough for one line of a page.
TROUBLE_LIMIT: Final = 80
# Of an offending value so much is shown that a person recognises it.
VALUE_LIMIT: Final = 80

_Required = Annotated[str, Meta(min_length=1)]
_Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Generation = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Strings = dict[str, str] | None
_Instant = Annotated[datetime, Meta(tz=True)]


class _Wire(Struct, rename="camel", gc=False):
    """A part of an object on the wire. Lives for microseconds and holds no cycles: no GC."""


class _Owner(_Wire):
    uid: str = ""
    name: str = ""
    controller: bool | None = None


class _Head(_Wire):
    name: _Required
    namespace: _Required
    uid: _Required
    resource_version: _Required
    deletion_timestamp: str | None = None


class _PodLabels(Struct, gc=False):
    revision: str | None = msgspec.field(default=None, name=REVISION_LABEL)


class _PodHead(_Head):
    labels: _PodLabels | None = None
    owner_references: list[_Owner] | None = None


class _Running(_Wire):
    pass


class _Halted(_Wire):
    reason: str | None = None
    exit_code: int = 0


class _State(_Wire):
    running: _Running | None = None
    waiting: _Halted | None = None
    terminated: _Halted | None = None


class _Container(_Wire):
    name: str = ""
    ready: bool = False
    state: _State | None = None


class _Condition(_Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class _PodStatus(_Wire):
    phase: str = ""
    reason: str | None = None
    conditions: list[_Condition] | None = None
    init_container_statuses: list[_Container] | None = None
    container_statuses: list[_Container] | None = None


class _Pod(_Wire):
    metadata: _PodHead
    status: _PodStatus | None = None
    kind: str | None = None


class _SetHead(_Head):
    generation: _Generation = 0
    labels: _Strings = None
    annotations: _Strings = None


class _Selector(_Wire):
    match_labels: _Strings = None


class _Strategy(_Wire):
    type: str = ""


class _Ordinals(_Wire):
    start: _Int32 = 0


class _TemplateHead(_Wire):
    labels: _Strings = None


class _Template(_Wire):
    metadata: _TemplateHead | None = None


class _SetSpec(_Wire):
    # The API server fills in 1; a body under admission may still leave it out or null.
    replicas: _Int32 | None = None
    selector: _Selector | None = None
    template: _Template | None = None
    update_strategy: _Strategy | None = None
    ordinals: _Ordinals | None = None
    min_ready_seconds: _Int32 = 0


class _SetStatus(_Wire):
    observed_generation: _Generation = 0
    replicas: _Int32 = 0
    ready_replicas: _Int32 = 0
    available_replicas: _Int32 = 0
    current_revision: str = ""
    update_revision: str = ""


class _StatefulSet(_Wire):
    metadata: _SetHead
    spec: _SetSpec
    status: _SetStatus | None = None
    kind: str | None = None


class _BookmarkHead(_Wire):
    resource_version: _Required


class _Bookmark(_Wire):
    metadata: _BookmarkHead


_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
_POD: Final = msgspec.json.Decoder(_Pod)
_STATEFULSET: Final = msgspec.json.Decoder(_StatefulSet)
_Wired = TypeVar("_Wired", _Pod, _StatefulSet)


def decode_pod(raw: JsonBytes) -> Pod:
    """Return the view of a pod. Raises DecodeError naming pod, field and value."""
    wire = _read("Pod", raw, _POD)
    head, status = wire.metadata, wire.status or _PodStatus()
    owner = _controller(head.owner_references)
    terminating = head.deletion_timestamp is not None
    trouble = _trouble(status, terminating=terminating)
    revision = head.labels.revision if head.labels is not None else None
    # What repeats from pod to pod is kept once: that is half of what 5,000 pods would cost.
    return Pod(
        namespace=sys.intern(head.namespace),
        name=head.name,
        uid=Uid(head.uid),
        resource_version=head.resource_version,
        owner_uid=Uid(sys.intern(owner.uid)) if owner else None,
        owner_name=sys.intern(owner.name) if owner else "",
        revision=Revision(sys.intern(revision)) if revision is not None else None,
        phase=sys.intern(status.phase),
        is_terminating=terminating,
        is_ready=not trouble,
        ready_since=None if trouble else _ready_since(wire),
        trouble=sys.intern(trouble),
    )


def decode_statefulset(raw: JsonBytes) -> StatefulSet:
    """Return the view of a StatefulSet. Raises DecodeError naming set, field and value."""
    wire = _read("StatefulSet", raw, _STATEFULSET)
    head, spec, status = wire.metadata, wire.spec, wire.status or _SetStatus()
    template = spec.template.metadata if spec.template is not None else None
    strategy = spec.update_strategy.type if spec.update_strategy is not None else ""
    return StatefulSet(
        namespace=sys.intern(head.namespace),
        name=head.name,
        uid=Uid(sys.intern(head.uid)),
        resource_version=head.resource_version,
        generation=head.generation,
        is_terminating=head.deletion_timestamp is not None,
        labels=_only(STATEFULSET_LABELS, head.labels),
        annotations=_only(STATEFULSET_ANNOTATIONS, head.annotations),
        selector=(spec.selector.match_labels if spec.selector is not None else None) or {},
        template_labels=(template.labels if template is not None else None) or {},
        strategy=sys.intern(strategy or "RollingUpdate"),
        replicas=1 if spec.replicas is None else spec.replicas,
        first_ordinal=spec.ordinals.start if spec.ordinals is not None else 0,
        min_ready_seconds=spec.min_ready_seconds,
        observed_generation=status.observed_generation,
        status_replicas=status.replicas,
        ready_replicas=status.ready_replicas,
        available_replicas=status.available_replicas,
        current_revision=Revision(sys.intern(status.current_revision)),
        update_revision=Revision(sys.intern(status.update_revision)),
    )


def decode_version(kind: str, raw: JsonBytes) -> str:
    """Return the resourceVersion of an object that holds nothing else, such as a bookmark.

    Raises DecodeError.
    """
    try:
        return _BOOKMARK.decode(raw).metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _decode_error(kind, raw, str(error)) from error


def salvage(kind: str, raw: JsonBytes, error: DecodeError) -> Unreadable:
    """Return what `raw` still says about its identity; text that cannot be read is empty.

    Never raises, whatever `raw` is.
    """
    metadata = _fields(_fields(_loads(raw)).get("metadata"))
    labels = _fields(metadata.get("labels"))
    return Unreadable(
        kind=kind,
        namespace=_text(metadata.get("namespace")),
        name=_text(metadata.get("name")),
        uid=Uid(_text(metadata.get("uid"))),
        resource_version=_text(metadata.get("resourceVersion")),
        owner_uid=_salvaged_owner(metadata.get("ownerReferences")),
        labels={
            key: _text(labels[key])
            for key in sorted(STATEFULSET_LABELS)
            if isinstance(labels.get(key), str)
        },
        error=str(error),
    )


def _read(kind: str, raw: JsonBytes, decoder: "msgspec.json.Decoder[_Wired]") -> _Wired:
    try:
        wire = decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _decode_error(kind, raw, str(error)) from error
    # Items of a list carry no kind; a single object does, and a wrong one is a caller's mistake
    # that the missing fields would explain badly.
    if wire.kind is not None and wire.kind != kind:
        raise _decode_error(kind, raw, f"Expected `{kind}` - at `$.kind`")
    return wire


def _trouble(status: _PodStatus, *, terminating: bool) -> str:
    """Say in a few words why a pod is not ready; empty means that it is (D-11)."""
    if terminating:
        return "terminating"
    containers = status.container_statuses or ()
    if status.phase == "Running" and containers and all(map(_is_up, containers)):
        return _condition_trouble(status)
    found = _scheduling_trouble(status) or _init_trouble(status) or _halt(containers)
    if found:
        return _plain(found)
    if status.phase != "Running":
        why = f": {status.reason}" if status.reason else ""
        return _plain(f"phase {status.phase}{why}" if status.phase else "no phase")
    if not containers:
        return "no container statuses"
    down = next(container for container in containers if not _is_up(container))
    return _plain(f"container {down.name} {'not ready' if _runs(down) else 'not running'}")


def _condition_trouble(status: _PodStatus) -> str:
    ready = [condition for condition in status.conditions or () if condition.type == "Ready"]
    if not ready:
        return "no readiness condition"
    for condition in ready:
        if condition.status != "True":
            why = f" ({condition.reason})" if condition.reason else ""
            return _plain(f"readiness condition {condition.status.lower() or 'unset'}{why}")
    return ""


def _scheduling_trouble(status: _PodStatus) -> str:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason or "not scheduled"
    return ""


def _init_trouble(status: _PodStatus) -> str:
    for container in status.init_container_statuses or ():
        if container.ready or container.state is None:
            continue
        waiting, ended = container.state.waiting, container.state.terminated
        # `PodInitializing` only says that an init container before this one has not ended.
        if waiting is not None and waiting.reason and waiting.reason != "PodInitializing":
            return f"init: {waiting.reason}"
        if ended is not None and ended.exit_code != 0:
            return f"init terminated: {ended.reason or ended.exit_code}"
    return ""


def _halt(containers: "list[_Container] | tuple[()]") -> str:
    for container in containers:
        if container.state is not None and container.state.waiting is not None:
            return container.state.waiting.reason or "waiting"
    for container in containers:
        if container.state is not None and container.state.terminated is not None:
            ended = container.state.terminated
            return f"terminated: {ended.reason or ended.exit_code}"
    return ""


def _runs(container: _Container) -> bool:
    return container.state is not None and container.state.running is not None


def _is_up(container: _Container) -> bool:
    return container.ready and _runs(container)


def _ready_since(wire: _Pod) -> datetime | None:
    conditions = (wire.status.conditions if wire.status is not None else None) or ()
    texts = [one.last_transition_time for one in conditions if one.type == "Ready"]
    if not texts or texts[-1] is None:
        return None
    try:
        return msgspec.convert(texts[-1], _Instant)
    except msgspec.ValidationError as error:
        where = "status.conditions[type=Ready].lastTransitionTime"
        who = f"Pod {_plain(wire.metadata.namespace)}/{_plain(wire.metadata.name)}"
        raise DecodeError(f"{who}: {where}: no instant: {_shown(texts[-1])}") from error


def _controller(owners: list[_Owner] | None) -> _Owner | None:
    return next((owner for owner in owners or () if owner.controller and owner.uid), None)


def _only(keys: frozenset[str], values: Mapping[str, str] | None) -> Mapping[str, str]:
    return {key: values[key] for key in sorted(keys) if key in values} if values else {}


def _plain(text: str) -> str:
    """Make a text fit for one line of a log or page."""
    if len(text) <= TROUBLE_LIMIT and text.isascii() and text.isprintable():
        return text
    return text[:TROUBLE_LIMIT].encode("unicode_escape").decode("ascii")[:TROUBLE_LIMIT]


def _shown(value: object) -> str:
    text = json.dumps(value).replace("\x7f", "\\u007f")
    return text if len(text) <= VALUE_LIMIT else f"{text[:VALUE_LIMIT]}..."


def _decode_error(kind: str, raw: JsonBytes, problem: str) -> DecodeError:
    """Return an error that names object, field and value; slow, but objects rarely break."""
    tree = _loads(raw)
    metadata = _fields(_fields(tree).get("metadata"))
    who = "/".join(_plain(_text(metadata.get(key))) or "?" for key in ("namespace", "name"))
    what, _, where = problem.partition(" - at `$")
    text = what[:1].lower() + what[1:].replace("`", "")
    path = where.rstrip("`").lstrip(".")
    found = _at(tree, path) if path else None
    field = f"{_plain(path)}: " if path else ""
    value = f": {_shown(found)}" if isinstance(found, str | int | float) else ""
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
    try:
        loaded: object = json.loads(bytes(memoryview(raw)).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return loaded


def _fields(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _salvaged_owner(owners: object) -> Uid | None:
    for owner in owners if isinstance(owners, list) else ():
        fields = _fields(owner)
        if fields.get("controller") is True and _text(fields.get("uid")):
            return Uid(_text(fields["uid"]))
    return None
