"""What matters of the Eviction inside of a review, and of the pod that it names, as bytes.

The pod is read live only where the cache cannot know: who owns a pod that no StatefulSet controls.
"""

from typing import Final

import msgspec

from rollout_operator.model.decode.not_ready import one_line
from rollout_operator.model.decode.wire import Owner, Wire

_BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Options(Wire):
    dry_run: list[str] | None = None


class _Eviction(Wire):
    delete_options: _Options | None = None


class _NamedOwner(Owner):
    kind: str = ""
    name: str = ""


class _Metadata(Wire):
    owner_references: list[_NamedOwner] | None = None


class _Object(Wire):
    metadata: _Metadata


_EVICTION: Final = msgspec.json.Decoder(_Eviction)
_OBJECT: Final = msgspec.json.Decoder(_Object)


def is_dry_run(eviction: bytes) -> bool:
    """Tell whether an Eviction changes nothing by its own `deleteOptions`.

    The review does not say so: its `dryRun` is that of the request only.
    """
    try:
        options = _EVICTION.decode(eviction).delete_options
    except _BROKEN:
        return False
    return options is not None and bool(options.dry_run)


def decode_owner(pod: bytes) -> tuple[str, str] | None:
    """Return kind and name of the controlling owner of a pod, None where it has none."""
    try:
        owners = _OBJECT.decode(pod).metadata.owner_references or ()
    except _BROKEN:
        return None
    found = next((one for one in owners if one.controller), None)
    return None if found is None else (one_line(found.kind), one_line(found.name))
