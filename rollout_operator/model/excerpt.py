"""A large object on the wire → the same JSON with nothing but the fields that are read.

Decides how much memory what strangers send may take: a value is skipped, copied where it is short,
or replaced by a word about its length; no tree is ever built. What the fields mean is decided by
the decoders, which read the excerpt as they read a small body.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from rollout_operator.model.names import (
    ABSENT_PEERS,
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)

Buffer = bytes | memoryview | msgspec.Raw

# What is not larger than this is read as it came: its tree fits into a few MiB.
SMALL: Final = 64 << 10
# No name, label, port or path that can be obeyed is longer.
LONGEST_TEXT: Final = 4 << 10
# Of the values that are no texts the labels of a budget's selector are the largest.
LONGEST_VALUE: Final = SMALL

# What decides of an object with replicas.
LABELS: Final = frozenset({GROUP_LABEL, GROUP_LABEL_LONG, NO_DOWNSCALE, PREPARE_DOWNSCALE})
ANNOTATIONS: Final = frozenset({NO_DOWNSCALE, PREPARE_DOWNSCALE, PREPARE_PATH, PREPARE_PORT})

_ABSENT: Final = msgspec.Raw()
_IS_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{")
_IS_TEXT: Final = re.compile(rb"[ \t\r\n]*\"")


class Fields:
    """The fields of a JSON object that are read; those of None are values, whatever their type."""

    __slots__ = ("_decoder", "_inner")

    def __init__(self, inner: "Mapping[str, Fields | None]") -> None:
        self._inner = tuple((msgspec.json.encode(name), part) for name, part in inner.items())
        slots = [
            (f"field_{number}", msgspec.Raw, msgspec.field(default=_ABSENT, name=name))
            for number, name in enumerate(inner)
        ]
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Fields", slots, gc=False))

    def excerpt(self, raw: Buffer) -> bytes:
        """Return the fields alone; what is no object is a value.

        Of a field that comes more than once the last one counts. Raises what msgspec raises.
        """
        if _IS_OBJECT.match(raw) is None:
            return _copy(raw)
        values: tuple[msgspec.Raw, ...] = msgspec.structs.astuple(self._decoder.decode(raw))
        pairs = (
            b"%b:%b" % (name, _copy(value) if part is None else part.excerpt(value))
            for (name, part), value in zip(self._inner, values, strict=True)
            if len(memoryview(value))
        )
        return b"{%b}" % b",".join(pairs)


def _copy(raw: Buffer) -> bytes:
    """Return a value, or a word in place of a long one: a text for a text, else a list.

    No field that is read is a list of such words, so that the decoders refuse it by its type.
    """
    size, is_text = len(memoryview(raw)), _IS_TEXT.match(raw) is not None
    most = LONGEST_TEXT if is_text else LONGEST_VALUE
    if size <= most:
        return bytes(raw)
    word = b'"(%d bytes, more than %d are not read)"' % (size, most)
    return word if is_text else b"[%b]" % word


def _values(*names: str) -> dict[str, Fields | None]:
    return dict.fromkeys(names)


# Of all kinds that are reviewed: no two of them give a name different meanings.
OBJECT: Final = Fields(
    {
        **_values("apiVersion", "kind"),
        "metadata": Fields(
            {
                **_values("name", "namespace", "uid", "resourceVersion", "generation"),
                **_values("deletionTimestamp"),
                "labels": Fields(_values(*sorted(LABELS))),
                "annotations": Fields(_values(*sorted(ANNOTATIONS), ABSENT_PEERS)),
            }
        ),
        "spec": Fields(
            {
                **_values("replicas", "serviceName"),
                "ordinals": Fields(_values("start")),
                **_values("maxUnavailable", "maxUnavailablePercentage", "crossZoneEvictionDelay"),
                **_values("podNamePartitionRegex", "podNameRegexGroup"),
                "selector": Fields(_values("matchLabels")),
            }
        ),
        "deleteOptions": Fields(_values("dryRun")),
    }
)
REVIEW: Final = Fields(
    {
        **_values("apiVersion", "kind"),
        "request": Fields(
            {
                **_values("uid", "subResource", "name", "namespace", "operation", "dryRun"),
                "resource": Fields(_values("resource")),
                "userInfo": Fields(_values("username")),
                "object": OBJECT,
                "oldObject": OBJECT,
            }
        ),
    }
)
