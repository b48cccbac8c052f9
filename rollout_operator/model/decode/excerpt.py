"""A large object on the wire → the same JSON with nothing but the fields that are read.

Decides how much memory what strangers send may take: a value is skipped, copied where it is short,
or replaced by a word about its length; no tree is ever built. All that is copied is bounded as
well, so that the decoders may build a tree of an excerpt. What the fields mean is decided by them:
they read the excerpt as they read a small body.
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
_OPTIONS: Final = Fields(_values("dryRun"))

# Of an Eviction, while its review waits.
EVICTION: Final = Fields({"deleteOptions": _OPTIONS})
BUDGET: Final = Fields({**_HEAD, "metadata": _METADATA, "spec": Fields(_BUDGET)})
# Of all kinds that are reviewed: no two of them give a name different meanings.
OBJECT: Final = Fields(
    {
        **_HEAD,
        "metadata": _METADATA,
        "spec": Fields({**_SCALED, **_BUDGET}),
        "deleteOptions": _OPTIONS,
    }
)
# Of what was there before nothing but the count is judged.
OLD_OBJECT: Final = Fields({**_HEAD, "metadata": _METADATA, "spec": Fields(_SCALED)})
REVIEW: Final = Fields(
    {
        **_HEAD,
        "request": Fields(
            {
                **_values("uid", "subResource", "name", "namespace", "operation", "dryRun"),
                "resource": Fields(_values("resource")),
                "userInfo": Fields(_values("username")),
                "object": OBJECT,
                "oldObject": OLD_OBJECT,
            }
        ),
    }
)
