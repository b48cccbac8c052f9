"""Which parameters a request may carry in its query, verb by verb.

Decides only whether a parameter is modelled: what it means is left to the answer.
"""

from collections.abc import Mapping
from typing import Final

from rollout_lab.model.request import APPLY_PATCH, ApiRequest, not_modelled
from rollout_lab.schemas.refusals import expect, expect_one_of

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
    "patch": _WRITTEN | {"force"},
    "delete": frozenset({"dryRun"}),
}


def check_query(request: ApiRequest) -> None:
    """Raise NotModelled for what the real server might heed, or refuse, and this would not."""
    query = request.query
    if not query:
        return
    if unknown := sorted(query.keys() - _PARAMETERS[request.verb]):
        not_modelled(f"the query parameters {', '.join(unknown)} of a {request.verb}")
    expect_one_of(("", "All"), "dryRun", query.get("dryRun", ""))
    if "force" in query:
        expect(request.content_type == APPLY_PATCH, "force of another patch", query["force"])
    expect_one_of(("", "Ignore", "Warn"), "fieldValidation", query.get("fieldValidation", ""))
