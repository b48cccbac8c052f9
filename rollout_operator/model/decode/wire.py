"""Shapes of API objects on the wire, and how much of what strangers send is read.

Decides which fields may be absent or null and which numbers fit; all others are skipped without
being built. Defaults with a meaning are left to `objects`. A large object is cut to an excerpt with
the fields that are read, each of bounded size, so that no tree of the whole is ever built.

JSON that nests too deeply is cut without recursion: decoders recurse 1,000 levels on Python 3.11,
and the API server stores `managedFields` of up to 9,995. Those go, and whatever else lies deeper
than any field that is read. That is slow, and done only for what a decoder has refused.

Of an object that cannot be decoded, `salvage` reads its identity, and `explain` says what is wrong.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from rollout_operator.model.names import (
    ABSENT_PEERS,
    DISRUPTION_RECORD,
    DOWNSCALE_RECORD,
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    READY_TIME,
    DecodeError,
    Uid,
)
from rollout_operator.model.objects import (
    LEFT_OUT,
    LabelSelector,
    SelectorTerm,
    Unreadable,
    bound_labels,
)

JsonBytes = bytes | msgspec.Raw

Required = Annotated[str, Meta(min_length=1)]
Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Generation = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Strings = dict[str, str] | None
Buffer = bytes | memoryview | msgspec.Raw

# What is not larger than this is read as it came: its tree fits into a few MiB.
SMALL: Final = 64 << 10
# No name, label, port, path, number or list that can be obeyed is longer.
LONGEST_VALUE: Final = 4 << 10
# The labels that a budget selects by are the only map that is read whole.
LONGEST_LABELS: Final = SMALL
# Of a review. An object that the API server has accepted has less: its longest labels, and of both
# its objects the annotations that are read.
LARGEST: Final = 128 << 10
# Of a budget, of which a tree is built: the longest labels, and more than its other fields need.
LARGEST_BUDGET: Final = LONGEST_LABELS + 2 * LONGEST_VALUE

# What decides of an object with replicas.
LABELS: Final = (GROUP_LABEL, GROUP_LABEL_LONG, NO_DOWNSCALE, PREPARE_DOWNSCALE)
ANNOTATIONS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, PREPARE_PATH, PREPARE_PORT)

_ABSENT: Final = msgspec.Raw()
_IS_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{")
_IS_TEXT: Final = re.compile(rb"[ \t\r\n]*\"")

MANAGED_FIELDS: Final = "managedFields"
DEEPEST: Final = 100
"""Levels that are kept; no field that is read lies deeper than twelve, in a list or not."""
STEP: Final = 2000
"""Brackets and strings between two pauses: about half a millisecond."""

# Possessive, so that a long string with many escapes takes neither time nor memory to go back. A
# string that does not end takes the rest: it is no JSON, and the decoder says so.
_TOKEN: Final = re.compile(rb'[{\[]|[}\]]|"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_COLON: Final = re.compile(rb"[ \t\r\n]*:")
_KEY: Final = f'"{MANAGED_FIELDS}"'.encode()
_OPEN: Final = frozenset(b"{[")
_QUOTE: Final = ord('"')

_Shape = TypeVar("_Shape")
# By shape, made when they are first needed.
_DECODERS: Final[dict[type, Any]] = {}

# Long enough for every reason that Kubernetes knows, short enough for one line of a page.
REASON_LIMIT: Final = 80

# What a container waits for in every pod; for anything else it may wait for ever.
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing", "waiting"})

_VALUE_LIMIT: Final = 80
# What is built as a whole takes milliseconds up to this size.
_LARGE: Final = 64 * 1024
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LABELS: Final = msgspec.json.Decoder(dict[str, str])

Decoded = TypeVar("Decoded")


class Wire(Struct, rename="camel", gc=False):
    """A part of an object on the wire. Lives for microseconds and holds no cycles: no GC."""


class Owner(Wire):
    uid: str = ""
    controller: bool | None = None


class ObjectHead(Wire):
    name: Required
    namespace: Required
    uid: Required
    resource_version: Required
    deletion_timestamp: str | None = None


class _Term(Wire):
    key: str
    operator: str
    values: list[str] | None = None


class WireSelector(Wire):
    match_labels: Strings = None
    match_expressions: list[_Term] | None = None


def convert_selector(wire: WireSelector | None) -> LabelSelector:
    """Return a selector; an absent selector selects everything, as webhooks have it."""
    if wire is None:
        return LabelSelector()
    return LabelSelector(
        labels=wire.match_labels or {},
        terms=tuple(
            SelectorTerm(key=term.key, operator=term.operator, values=tuple(term.values or ()))
            for term in wire.match_expressions or ()
        ),
    )


def decoder_of(shape: type[_Shape]) -> "msgspec.json.Decoder[_Shape]":
    if shape not in _DECODERS:
        _DECODERS[shape] = msgspec.json.Decoder(shape)
    decoder: msgspec.json.Decoder[_Shape] = _DECODERS[shape]
    return decoder


class WireHead(ObjectHead, kw_only=True):
    namespace: str = ""
    generation: Generation = 0
    labels: Strings = None
    annotations: Strings = None


class WireHeaded(Wire):
    metadata: WireHead
    kind: str | None = None


class WirePlaced(Wire):
    metadata: ObjectHead
    kind: str | None = None


class PodAnnotations(Struct, gc=False):
    downscale: str | None = msgspec.field(default=None, name=DOWNSCALE_RECORD)
    disruption: str | None = msgspec.field(default=None, name=DISRUPTION_RECORD)
    ready_time: str | None = msgspec.field(default=None, name=READY_TIME)


class _PodHead(ObjectHead):
    creation_timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    labels: Strings = None
    annotations: PodAnnotations | None = None
    owner_references: list[Owner] | None = None


class _NodeHead(Wire):
    name: Required
    uid: Required
    resource_version: Required
    labels: Strings = None


class WireNode(Wire):
    metadata: _NodeHead
    kind: str | None = None


class Running(Wire):
    pass


class _Halted(Wire):
    reason: str | None = None
    exit_code: int = 0


class _ContainerState(Wire):
    running: Running | None = None
    waiting: _Halted | None = None
    terminated: _Halted | None = None


class _Container(Wire):
    name: str = ""
    ready: bool = False
    state: _ContainerState | None = None


class _Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class PodStatus(Wire):
    phase: str = ""
    reason: str | None = None
    start_time: str | None = None
    # Renamed by rule it would be `podIp`.
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[_Condition] | None = None
    init_container_statuses: list[_Container] | None = None
    container_statuses: list[_Container] | None = None


class WirePod(Wire):
    metadata: _PodHead
    status: PodStatus | None = None
    kind: str | None = None


class _Port(Wire):
    container_port: Int32 = 0


class _Ported(Wire):
    ports: list[_Port] | None = None


class _PortedSpec(Wire):
    containers: list[_Ported] | None = None
    init_containers: list[_Ported] | None = None


class WirePorts(Wire):
    """What is read of the few pods that carry a record, and of no others."""

    spec: _PortedSpec | None = None
    kind: str | None = None


class _SetHead(ObjectHead):
    generation: Generation = 0
    labels: Strings = None
    annotations: Strings = None


class Selector(Wire):
    match_labels: Strings = None


class _Strategy(Wire):
    type: str = ""


class Ordinals(Wire):
    start: Int32 = 0


class _SetSpec(Wire):
    # The API server fills in 1; a body under admission may still leave it out or null.
    replicas: Int32 | None = None
    selector: Selector | None = None
    update_strategy: _Strategy | None = None
    ordinals: Ordinals | None = None
    service_name: str | None = None
    pod_management_policy: str | None = None
    min_ready_seconds: Int32 = 0


class SetStatus(Wire):
    observed_generation: Generation = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    current_revision: str = ""
    update_revision: str = ""


class WireStatefulSet(Wire):
    metadata: _SetHead
    spec: _SetSpec
    status: SetStatus | None = None
    kind: str | None = None


class _BookmarkAnnotations(Struct, gc=False):
    ends_state: str | None = msgspec.field(default=None, name="k8s.io/initial-events-end")


class BookmarkHead(Wire):
    resource_version: Required
    annotations: _BookmarkAnnotations | None = None


class WireBookmark(Wire):
    metadata: BookmarkHead


class Fields:
    """The fields of a JSON object that are read; of a value, how many bytes at most are kept."""

    __slots__ = ("_decoder", "_inner")

    def __init__(self, inner: "Mapping[str, Fields | int]") -> None:
        self._inner = tuple((msgspec.json.encode(name), part) for name, part in inner.items())
        slots = [
            (f"field_{number}", msgspec.Raw, msgspec.field(default=_ABSENT, name=name))
            for number, name in enumerate(inner)
        ]
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Fields", slots, gc=False))

    def excerpt(self, raw: Buffer, most: int = LARGEST) -> bytes:
        """Return the fields alone, in `most` bytes; what is no object is a value.

        Of a field that comes more than once the last value counts. Raises what msgspec raises, and
        its DecodeError where the fields have more than `most` bytes.
        """
        picked = self._pick(raw)
        if len(picked) > most:
            size = len(picked)
            raise msgspec.DecodeError(f"the fields that are read have {size} bytes, at most {most}")
        return picked

    def _pick(self, raw: Buffer) -> bytes:
        if _IS_OBJECT.match(raw) is None:
            return _copy(raw, LONGEST_VALUE)
        values: tuple[msgspec.Raw, ...] = msgspec.structs.astuple(self._decoder.decode(raw))
        pairs = (
            b"%b:%b" % (name, _copy(value, part) if isinstance(part, int) else part._pick(value))
            for (name, part), value in zip(self._inner, values, strict=True)
            if len(memoryview(value))
        )
        return b"{%b}" % b",".join(pairs)


def _copy(raw: Buffer, most: int) -> bytes:
    """Return a value, or a word in place of a long one: a text for a text, else a list.

    The decoders refuse that list by its type, but as `dryRun` of an Eviction: the API server lets
    no list pass there but of `All`, so that a long one means what a short one means.
    """
    size = len(memoryview(raw))
    if size <= most:
        return bytes(raw)
    word = b'"(%d bytes, more than %d are not read)"' % (size, most)
    return word if _IS_TEXT.match(raw) is not None else b"[%b]" % word


def _values(*names: str) -> dict[str, Fields | int]:
    return dict.fromkeys(names, LONGEST_VALUE)


_HEAD: Final[Mapping[str, Fields | int]] = _values("apiVersion", "kind")
# What a count is decided by.
_SCALED: Final[Mapping[str, Fields | int]] = {
    **_values("replicas", "serviceName"),
    "ordinals": Fields(_values("start")),
}
_METADATA: Final = Fields(
    {
        **_values("name", "namespace", "uid", "resourceVersion", "generation"),
        **_values("deletionTimestamp"),
        "labels": Fields(_values(*LABELS)),
        "annotations": Fields(_values(*ANNOTATIONS, ABSENT_PEERS)),
    }
)
_BUDGET: Final[Mapping[str, Fields | int]] = {
    **_values("maxUnavailable", "maxUnavailablePercentage", "crossZoneEvictionDelay"),
    **_values("podNamePartitionRegex", "podNameRegexGroup"),
    "selector": Fields({"matchLabels": LONGEST_LABELS}),
}
_HEALTH_CHECK: Final[Mapping[str, Fields | int]] = {
    **_values("prometheusURL", "onMisconfigured", "firstZonePods", "secretRef"),
    # As much as is read of its whole spec.
    "checks": SMALL,
}
_OPTIONS: Final = Fields({**_values("dryRun"), "preconditions": Fields(_values("uid"))})

# Of an Eviction, while its review waits.
EVICTION: Final = Fields({"deleteOptions": _OPTIONS})
BUDGET: Final = Fields({**_HEAD, "metadata": _METADATA, "spec": Fields(_BUDGET)})
# Of all kinds that are reviewed: no two of them give a name different meanings.
OBJECT: Final = Fields(
    {
        **_HEAD,
        "metadata": _METADATA,
        "spec": Fields({**_SCALED, **_BUDGET, **_HEALTH_CHECK}),
        "deleteOptions": _OPTIONS,
    }
)
# Of what was there before nothing but the count is judged.
_OLD_OBJECT: Final = Fields({**_HEAD, "metadata": _METADATA, "spec": Fields(_SCALED)})
REVIEW: Final = Fields(
    {
        **_HEAD,
        "request": Fields(
            {
                **_values("uid", "subResource", "name", "namespace", "operation", "dryRun"),
                "resource": Fields(_values("resource")),
                "userInfo": Fields(_values("username")),
                "object": OBJECT,
                "oldObject": _OLD_OBJECT,
            }
        ),
    }
)


def decode_shallow(decoder: "msgspec.json.Decoder[_Shape]", raw: bytes | msgspec.Raw) -> _Shape:
    """Decode JSON; where it nests too deeply, what `cut_deep` leaves of it.

    Raises what the decoder raises, a RecursionError never.
    """
    try:
        return decoder.decode(raw)
    except RecursionError:
        return decoder.decode(cut_deep(raw))


def cut_deep(raw: bytes | msgspec.Raw) -> bytes:
    """Return JSON with null for every container below `managedFields` or `DEEPEST` levels.

    Text that is no JSON stays none, or is cut where a decoder would not have come to its fault.
    """
    steps = cut_in_steps(raw)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            cut: bytes = end.value
            return cut


def cut_in_steps(raw: bytes | msgspec.Raw) -> Generator[None, None, bytes]:
    """Do what `cut_deep` does with a pause after every `STEP` tokens, for an event loop."""
    body = bytes(raw)
    kept: list[bytes] = []
    begin, depth, is_unread = 0, 0, False
    # Where the container that is left out began, and how deep it lies.
    out_from, out_depth = -1, 0
    for number, token in enumerate(_TOKEN.finditer(body), start=1):
        if number % STEP == 0:
            yield
        at = token.start()
        first = body[at]
        if first == _QUOTE:
            is_unread = out_from < 0 and token[0] == _KEY and bool(_COLON.match(body, token.end()))
        elif first in _OPEN:
            depth += 1
            if out_from < 0 and (is_unread or depth > DEEPEST):
                out_from, out_depth = at, depth
            is_unread = False
        else:
            if depth == out_depth and out_from >= 0:
                kept += (body[begin:out_from], b"null")
                begin, out_from = token.end(), -1
            depth -= 1
            is_unread = False
    # A container that never ends was cut off somewhere: no JSON, and none that is deep.
    kept.append(body[begin:] if out_from < 0 else body[begin:out_from])
    return b"".join(kept)


def explain_not_ready(status: PodStatus, *, terminating: bool) -> tuple[str, bool]:
    """Return why a pod is not ready, on one short line, and whether every pod is so at first.

    Empty where it is ready.
    """
    if terminating:
        return "terminating", False
    containers = status.container_statuses or ()
    if status.phase == "Running" and containers and all(map(_is_up, containers)):
        why_not_ready = _explain_condition(status)
        return why_not_ready, bool(why_not_ready)
    lasting = _explain_scheduling(status) or _explain_init(status)
    halt = "" if lasting else _halt(containers)
    if lasting or halt:
        return one_line(lasting or halt), halt in _STARTING
    if status.phase != "Running":
        why = f": {status.reason}" if status.reason else ""
        why_not_ready = one_line(f"phase {status.phase}{why}" if status.phase else "no phase")
        return why_not_ready, status.phase in ("Pending", "")
    if not containers:
        return "no container statuses", True
    down = next(container for container in containers if not _is_up(container))
    what = "not ready" if _runs(down) else "not running"
    return one_line(f"container {down.name} {what}"), True


def is_crash_looping(status: PodStatus) -> bool:
    """Return whether a kubelet puts off to start a container that keeps crashing."""
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    halts = (container.state.waiting for container in containers if container.state is not None)
    return any(halt is not None and halt.reason == "CrashLoopBackOff" for halt in halts)


def one_line(text: str) -> str:
    if len(text) <= REASON_LIMIT and text.isascii() and text.isprintable():
        return text
    return text[:REASON_LIMIT].encode("unicode_escape").decode("ascii")[:REASON_LIMIT]


def clip(text: str, most: int) -> str:
    """Return `text` within `most` characters, with escapes for what is not printable."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:most])
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _explain_condition(status: PodStatus) -> str:
    ready = [condition for condition in status.conditions or () if condition.type == "Ready"]
    if not ready:
        return "no readiness condition"
    for condition in ready:
        if condition.status != "True":
            why = f" ({condition.reason})" if condition.reason else ""
            return one_line(f"readiness condition {condition.status.lower() or 'unset'}{why}")
    return ""


def _explain_scheduling(status: PodStatus) -> str:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason or "not scheduled"
    return ""


def _explain_init(status: PodStatus) -> str:
    for container in status.init_container_statuses or ():
        if container.ready or container.state is None:
            continue
        waiting, ended = container.state.waiting, container.state.terminated
        # `PodInitializing` only says that an init container before this has not ended.
        if waiting is not None and waiting.reason and waiting.reason != "PodInitializing":
            return f"init: {waiting.reason}"
        if ended is not None and ended.exit_code != 0:
            return f"init terminated: {ended.reason or ended.exit_code}"
    return ""


def _halt(containers: Sequence[_Container]) -> str:
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


def decode_or_salvage(
    kind: str, decode: Callable[[msgspec.Raw], Decoded], raw: msgspec.Raw
) -> Decoded | Unreadable:
    """Return the decoded object, `Unreadable` where it cannot be decoded."""
    try:
        return decode(raw)
    except DecodeError as error:
        return salvage(kind, raw, error)


def salvage(kind: str, raw: JsonBytes, error: DecodeError) -> Unreadable:
    """Return the identity that can still be read; what cannot be read is empty.

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


def bound_text(text: str, most: int = LONGEST_VALUE) -> str:
    """Return a text that a client may write; what is too long for its field stays invalid."""
    return text if len(text) <= most else f"{text[:most]}..."


def show_value(value: object) -> str:
    """Return a value as JSON, cut where it is long."""
    return cut_value(json.dumps(value))


def cut_value(text: str) -> str:
    """Return as much of an offending value as a person needs to recognise it."""
    return text if len(text) <= _VALUE_LIMIT else f"{text[:_VALUE_LIMIT]}..."


def split_problem(problem: object) -> tuple[str, str]:
    """Return what a message of msgspec says is wrong, and where, such as `.spec.rules[...]`."""
    what, _, where = f"{problem}".partition(" - at `$")
    # Some begin with a name.
    what = what if what.startswith("JSON") else what[:1].lower() + what[1:]
    return what, where.rstrip("`")


def explain(kind: str, raw: JsonBytes, problem: str) -> DecodeError:
    """Return an error that names object, field and value; slow, but objects rarely break."""
    tree = _loads(raw)
    metadata = as_fields(as_fields(tree).get("metadata"))
    namespace, name = (one_line(_text(metadata.get(key))) for key in ("namespace", "name"))
    # Objects of the cluster have no namespace, nor have manifests that any may take.
    place = f"{namespace}/{name or '?'}" if namespace else name or "?"
    text, path = split_problem(problem)
    text, path = text.replace("`", ""), path.lstrip(".")
    read = _at(tree, path) if path else None
    if text.startswith("expected str, got"):
        path = _name_key(tree, path)
    field = f"{one_line(path)}: " if path else ""
    value = f": {show_value(read)}" if isinstance(read, str | int | float) else ""
    return DecodeError(f"{kind} {place}: {field}{text}{value}")


def _name_key(tree: object, path: str) -> str:
    """Return a path to a map of texts with the key that breaks it, for which msgspec has `...`."""
    above = path.removesuffix("[...]")
    texts = as_fields(_at(tree, above)) if above != path else {}
    wrong = next((key for key, value in texts.items() if not isinstance(value, str)), None)
    return path if wrong is None else f"{above}[{wrong}]"


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
    """Return a large object without its large parts, which its name does not need.

    `managedFields` of 1.2 MB block the event loop for a third of a second.
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
            return Uid(bound_text(_text(fields["uid"])))
    return None
