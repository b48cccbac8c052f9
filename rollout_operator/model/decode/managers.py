"""Which clients write fields such as `spec.replicas`, by `metadata.managedFields` of an object.

Decides only what names are there. Any client writes managedFields as it likes, a mebibyte of them
and nested as deeply as the API server lets pass: what cannot be read names no manager. Names
are shown in part only, on one printable line.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from rollout_operator.model.decode.not_ready import one_line
from rollout_operator.model.decode.wire import JsonBytes

# More would fill a sentence with names and add nothing to the first.
MOST_NAMES: Final = 3
_LONGEST_NAME: Final = 60

_NONE: Final = msgspec.Raw()
_EMPTY: Final = msgspec.Raw(b"{}")


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
_SET: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PREFIX: Final = "f:"
# No API server stores a longer name.
_LONGEST_MANAGER: Final = 128


def decode_replica_writers(body: bytes, *, but: str) -> tuple[str, ...]:
    """Return who wrote `spec.replicas` of an object, the newest last, without the manager `but`.

    Never raises, whatever `body` is: then nothing is returned.
    """
    try:
        entries = _OBJECT.decode(body).metadata.managed_fields or []
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    names = (one_line(writer.manager)[:_LONGEST_NAME] for writer in _list_writers(entries))
    return tuple(dict.fromkeys(name for name in names if name and name != but))[-MOST_NAMES:]


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
