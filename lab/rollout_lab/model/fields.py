"""Read parts of objects that are not decoded: what is absent is empty, and never an error.

For controllers and kubelets, which read what an API server has already checked.
"""

from datetime import UTC, datetime
from typing import Final

from rollout_operator.kube.api import JsonObject

_SECONDS: Final = "%Y-%m-%dT%H:%M:%SZ"


def child(obj: JsonObject, *path: str) -> JsonObject:
    """Return the object at a path, an empty object where there is none."""
    found = _get(obj, path)
    return found if isinstance(found, dict) else {}


def text(obj: JsonObject, *path: str) -> str:
    """Return the text at a path, empty where there is none."""
    found = _get(obj, path)
    return found if isinstance(found, str) else ""


def number(obj: JsonObject, *path: str, default: int = 0) -> int:
    """Return the whole number at a path, `default` where there is none."""
    found = _get(obj, path)
    return found if isinstance(found, int) else default


def children(obj: JsonObject, *path: str) -> list[JsonObject]:
    """Return the objects of the list at a path, an empty list where there is none."""
    found = _get(obj, path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def metadata_of(obj: JsonObject) -> JsonObject:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(obj: JsonObject) -> str:
    return _text_of(metadata_of(obj), "name")


def namespace_of(obj: JsonObject) -> str:
    return _text_of(metadata_of(obj), "namespace")


def uid_of(obj: JsonObject) -> str:
    return _text_of(metadata_of(obj), "uid")


def is_terminating(obj: JsonObject) -> bool:
    """Return whether it has been told to go."""
    return _text_of(metadata_of(obj), "deletionTimestamp") != ""


def controller_of(obj: JsonObject) -> JsonObject:
    """Return the owner reference of its controller, an empty object where it has none."""
    for reference in children(obj, "metadata", "ownerReferences"):
        if reference.get("controller") is True:
            return reference
    return {}


def condition_of(obj: JsonObject, kind: str) -> JsonObject:
    """Return the condition of a type in its status, an empty object where it has none."""
    for condition in children(obj, "status", "conditions"):
        if condition.get("type") == kind:
            return condition
    return {}


def timestamp(moment: datetime) -> str:
    """Return a time as objects carry it: whole seconds, in UTC."""
    return moment.astimezone(UTC).strftime(_SECONDS)


def moment_of(stamp: str) -> datetime:
    """Return the time that `timestamp` wrote. Raises ValueError for anything else."""
    return datetime.strptime(stamp, _SECONDS).replace(tzinfo=UTC)


def _text_of(obj: JsonObject, key: str) -> str:
    found = obj.get(key)
    return found if isinstance(found, str) else ""


def _get(obj: JsonObject, path: tuple[str, ...]) -> object:
    found: object = obj
    for key in path:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found
