"""Values of a type that their field cannot hold: the real server cannot even read such an object.

Decides for the fields that all objects share and for those that decide a rollout. Deeper ones pass.
"""

import base64
import binascii
from typing import Final

from rollout_operator.kube.api import JsonObject

_NUMBERS: Final = ("replicas", "minReadySeconds", "revisionHistoryLimit")
# Kinds whose fields are judged by a schema, after they were read.
_BY_SCHEMA: Final = frozenset({"ReplicaTemplate", "ZoneAwarePodDisruptionBudget"})
_OBJECTS: Final = ("spec", "status", "metadata")
_NAMES: Final = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}


def find_misfit(obj: JsonObject) -> str:
    """Return why an object cannot be read, in the words of the decoder; empty where it can."""
    for key in _OBJECTS:
        value = obj.get(key)
        if value is not None and not isinstance(value, dict):
            return _misfit(value, key, "struct")
    metadata, spec = obj.get("metadata"), obj.get("spec")
    if isinstance(metadata, dict):
        for key in ("labels", "annotations"):
            text = _find_in_map(metadata.get(key), f"metadata.{key}")
            if text:
                return text
    if isinstance(spec, dict) and obj.get("kind") not in _BY_SCHEMA:
        for key in _NUMBERS:
            value = spec.get(key)
            if value is not None and type(value) is not int:
                return _misfit(value, f"spec.{key}", "int32")
    if obj.get("kind") in ("Secret", "ConfigMap"):
        return _find_in_data(obj)
    return ""


def _find_in_data(obj: JsonObject) -> str:
    text = _find_in_map(obj.get("data"), "data") or _find_in_map(obj.get("stringData"), "data")
    data = obj.get("data")
    if not text and obj["kind"] == "Secret" and isinstance(data, dict):
        for value in data.values():
            try:
                base64.b64decode(str(value or ""), validate=True)
            except binascii.Error:
                return "illegal base64 data at input byte 0"
    return text


def _find_in_map(value: object, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, dict):
        return _misfit(value, field, "map[string]string")
    for key, one in value.items():
        if one is not None and not isinstance(one, str):
            return _misfit(one, f"{field}.{key}", "string")
    return ""


def _misfit(value: object, field: str, wanted: str) -> str:
    found = _NAMES.get(type(value), "object")
    return f"json: cannot unmarshal {found} into Go struct field .{field} of type {wanted}"
