"""What all resources of `kuberik.com` begin with: metadata, apart from a spec that may be refused.

An object whose metadata cannot be read raises DecodeError. Where only its spec cannot be read, the
object still counts, and its status says so. Label selectors are refused where the API's own
selectors would be.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol, TypeVar, cast

import msgspec

from rollout_operator.model.decode.broken import explain
from rollout_operator.model.decode.installation import WireSelector, convert_selector
from rollout_operator.model.decode.nesting import decode_shallow
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import Generation, JsonBytes, Required, Strings, Wire
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.policy.label_syntax import SelectorRefused, check_selector
from rollout_operator.model.releases.rollout import LabelledNamespace, ReleaseHead

# An annotation may have 256 KiB, and what is kept of it stands in status and events.
LONGEST_TEXT: Final = 4096

_Wired = TypeVar("_Wired")

# Each is compared with every object in question, by a process that acts for other tenants as well.
MOST_TERMS: Final = 64


class _Head(Wire):
    name: Required
    uid: Required
    resource_version: Required
    namespace: str = ""
    generation: Generation = 0
    deletion_timestamp: str | None = None
    labels: Strings = None
    annotations: Strings = None


class _Object(Wire):
    metadata: _Head
    kind: str | None = None


class ReadHead(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of an object."""

    head: ReleaseHead
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def annotation(self, key: str) -> str | None:
        """Return an annotation, cut where it is very long."""
        text = self.annotations.get(key)
        return None if text is None else text[:LONGEST_TEXT]


_DECODER: Final = msgspec.json.Decoder(_Object)


def read_head(kind: str, raw: JsonBytes) -> ReadHead:
    """Return the metadata of an object. Raises DecodeError naming object, field and value."""
    wire = read_as(kind, raw, _DECODER).metadata
    head = ReleaseHead(
        namespace=wire.namespace,
        name=wire.name,
        uid=Uid(wire.uid),
        resource_version=wire.resource_version,
        generation=wire.generation,
        is_terminating=wire.deletion_timestamp is not None,
    )
    return ReadHead(head=head, labels=wire.labels or {}, annotations=wire.annotations or {})


def read_body(kind: str, raw: JsonBytes, decoder: "msgspec.json.Decoder[_Wired]") -> _Wired:
    """Return other fields of an object. Raises DecodeError naming object, field and value."""
    try:
        return decode_shallow(decoder, raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise explain(kind, raw, str(error)) from error


class Headed(Protocol):
    """A decoded object that knows its own identity."""

    @property
    def head(self) -> ReleaseHead: ...


_Headed = TypeVar("_Headed", bound=Headed)


def watch_as(decode: Callable[[JsonBytes], _Headed]) -> Callable[[JsonBytes], WatchedObject]:
    """Return what reads an object to be followed. It raises as `decode`."""

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


def parse_selector(wire: WireSelector, path: str) -> LabelSelector:
    """Return a selector. Raises InvalidInput, which names field and value."""
    selector = convert_selector(wire)
    _check_length(f"{path}.matchLabels", selector.labels)
    _check_length(f"{path}.matchExpressions", selector.terms)
    for place, term in enumerate(selector.terms):
        _check_length(f"{path}.matchExpressions[{place}].values", term.values)
    try:
        check_selector(selector)
    except SelectorRefused as error:
        raise InvalidInput(f"{path}{error.below}: {error}") from error
    return selector


def _check_length(path: str, items: Collection[object]) -> None:
    if len(items) > MOST_TERMS:
        raise InvalidInput(f"{path}: it has {len(items)} items, at most {MOST_TERMS}")


def decode_labelled_namespace(raw: JsonBytes) -> LabelledNamespace:
    """Return a namespace with its labels. Raises DecodeError."""
    read = read_head("Namespace", raw)
    return LabelledNamespace(head=read.head, labels=read.labels)
