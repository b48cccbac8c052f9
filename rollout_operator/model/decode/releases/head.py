"""What all resources of `kuberik.com` begin with: metadata, apart from a spec that may be refused.

An object whose metadata cannot be read raises DecodeError. Where only its spec cannot be read, the
object still counts, and its status says so.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from rollout_operator.model.decode.broken import explain
from rollout_operator.model.decode.nesting import decode_shallow
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import Generation, JsonBytes, Required, Strings, Wire
from rollout_operator.model.names import Uid
from rollout_operator.model.releases.rollout import ReleaseHead

# An annotation may have 256 KiB, and what is kept of it stands in status and events.
LONGEST_TEXT: Final = 4096

_Wired = TypeVar("_Wired")


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
