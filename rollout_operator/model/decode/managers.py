"""Who writes `spec.replicas` of an object, by its `metadata.managedFields`.

Decides only what names are there. Any client writes managedFields as it likes, a mebibyte of them
and nested as deeply as the API server lets pass: what cannot be read names nobody, and names are
shown in part only, on one printable line.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from rollout_operator.model.decode.not_ready import one_line

# More would fill a sentence with names and tell a person nothing that the first do not.
MOST_NAMES: Final = 3
_LONGEST_NAME: Final = 60

_NONE: Final = msgspec.Raw()


class _Spec(msgspec.Struct, rename={"replicas": "f:replicas"}):
    replicas: msgspec.Raw = _NONE


class _Fields(msgspec.Struct, rename={"spec": "f:spec"}):
    spec: _Spec | None = None


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
    names = (one_line(one.manager)[:_LONGEST_NAME] for one in _list_writers(entries))
    return tuple(dict.fromkeys(name for name in names if name and name != but))[-MOST_NAMES:]


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
