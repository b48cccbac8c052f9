"""Which parameters a request may carry in its query, verb by verb.

Decides only whether one is modelled: what it means is left to whoever answers the request.
"""

from collections.abc import Mapping
from typing import Final

from rollout_operator.kube.api import Resource
from rollout_operator.lab.model.request import ApiRequest, not_modelled
from rollout_operator.lab.schemas.invalid import Problems

_LISTED: Final = frozenset(
    {
        *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"),
        *("resourceVersionMatch", "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents"),
    }
)
_WRITTEN: Final = frozenset({"dryRun", "fieldManager", "fieldValidation"})
_PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "get": frozenset({"resourceVersion"}),
    "list": _LISTED,
    "watch": _LISTED | {"watch"},
    "create": _WRITTEN,
    "update": _WRITTEN,
    "patch": _WRITTEN,
    "delete": frozenset({"dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents"}),
}
_OPTIONS: Final = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
}
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")


def check_query(request: ApiRequest) -> None:
    """Raise NotModelled for what the real server might heed and this one would not; Refusal (422)
    for options that no server knows."""
    query = request.query
    if not query:
        return
    known = _PARAMETERS[request.verb]
    if not query.keys() <= known:
        unknown = ", ".join(sorted(query.keys() - known))
        not_modelled(f"the query parameters {unknown} of a {request.verb}")
    _check_options(request)


def _check_options(request: ApiRequest) -> None:
    """Raise Refusal (422) for words that no server knows, NotModelled for those that ours lacks."""
    query, kind = request.query, _OPTIONS.get(request.verb, "")
    problems = Problems()
    if (dry_run := query.get("dryRun", "")) not in ("", "All"):
        problems.unsupported("dryRun", [dry_run], ("All",))
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        problems.unsupported("fieldValidation", validation, _VALIDATIONS)
    problems.raise_if_any(Resource("meta.k8s.io", "v1", "", kind), "")
    if validation == "Strict":
        not_modelled("fieldValidation=Strict: it would need all fields of each kind")
