"""Classify paths of the API server: which rate-limit bucket they use, how metrics call them.

Names of objects and namespaces never reach a metric: a path is described by its kind and shape.
"""

from typing import Final

# Below `/api/v1/namespaces/<name>` these are subresources of the namespace, not collections in it.
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


def bucket_key(path: str) -> str:
    """Return the API group whose token bucket a request to `path` uses.

    `core` for `/api/...`, the group for `/apis/<group>/...`, else the first segment with its slash.
    """
    first, *rest = _segments(path) or [""]
    if first == "api":
        return "core"
    if first == "apis":
        return rest[0] if rest else "apis"
    return f"/{first}"


def describe_path(path: str) -> str:
    """Return what the metrics call `path`, e.g. `apps/v1/statefulsets object status subresource`.

    A path of a shape that the API does not have is returned as it is.
    """
    segments = _segments(path)
    if segments[:1] == ["api"]:
        segments[0] = "core"
    elif segments[:1] == ["apis"]:
        del segments[0]
    else:
        return path
    if len(segments) < 3:
        return path
    group, version, *target = segments
    match _without_namespace(target):
        case [resource]:
            return f"{group}/{version}/{resource} collection"
        case [resource, _]:
            return f"{group}/{version}/{resource} object"
        case [resource, _, subresource]:
            return f"{group}/{version}/{resource} object {subresource} subresource"
        case _:
            return path


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]


def _without_namespace(target: list[str]) -> list[str]:
    is_namespaced = (
        len(target) > 2 and target[0] == "namespaces" and target[2] not in _NAMESPACE_SUBRESOURCES
    )
    return target[2:] if is_namespaced else target
