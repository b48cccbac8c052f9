"""The zone tracker: a ConfigMap that holds when each zone was scaled down last.

Its format is that of grafana/rollout-operator: by the name of a StatefulSet a JSON object with one
field. Everything else in the ConfigMap belongs to others, and is only carried along.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from rollout_operator.model.errors import DecodeError, InvalidInput
from rollout_operator.model.units import parse_rfc3339, quote

_FIELD = "lastDownscaled"


class TimesSource(StrEnum):
    """Where the times of downscales are kept."""

    ANNOTATIONS = "annotations"
    """Of the StatefulSets themselves."""
    TRACKER = "tracker"
    """In the ConfigMap; annotations mean nothing then, whatever they say."""


class ZoneMap(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the ConfigMap."""

    version: str
    """`metadata.resourceVersion`."""
    data: Mapping[str, str]
    body: bytes
    """The whole object as it was read."""


class TrackerEntry(msgspec.Struct, frozen=True):
    """What was written for a downscale, and what it took the place of."""

    text: str
    before: str | None
    """None where there was no entry."""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Map(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] | None = None


_MAP = msgspec.json.Decoder(_Map)


def decode_zone_map(body: bytes) -> ZoneMap:
    """Return a ConfigMap. Raises DecodeError for what is none."""
    try:
        config_map = _MAP.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"not a ConfigMap: {error}") from error
    return ZoneMap(
        version=config_map.metadata.resource_version, data=config_map.data or {}, body=body
    )


def render_changed(zone_map: ZoneMap, key: str, text: str | None) -> dict[str, object]:
    """Return the whole ConfigMap with one other entry, without it where `text` is None."""
    body = msgspec.json.decode(zone_map.body, type=dict[str, object])
    data: dict[str, object] = {**zone_map.data}
    if text is None:
        data.pop(key, None)
    else:
        data[key] = text
    return {**body, "data": data}


def format_entry(time: str) -> str:
    """Return the entry that holds a time in RFC 3339."""
    return msgspec.json.encode({_FIELD: time}).decode()


def decode_entry(text: str) -> str:
    """Return the time in an entry as it is written, empty where it holds none.

    As Go reads JSON: whatever the case of the field, the last of several, null as nothing. Raises
    InvalidInput.
    """
    try:
        entry = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{quote(text)} is no JSON: {error}") from error
    if entry is None:
        return ""
    if not isinstance(entry, dict):
        raise InvalidInput(f"{quote(text)} is no JSON object")
    time = ""
    for key, value in entry.items():
        if key.casefold() == _FIELD.casefold() and value is not None:
            if not isinstance(value, str):
                raise InvalidInput(f"{quote(text)}: {_FIELD} is no text")
            time = value
    return time


def is_recorded(text: str | None, at: datetime) -> bool:
    """Return whether an entry holds this time or a later time."""
    try:
        return text is not None and parse_rfc3339(decode_entry(text)) >= at
    except InvalidInput:
        return False
