"""Label selectors as objects carry them: `matchLabels` and `matchExpressions`.

Decides which labels a selector matches and how it is written as text. Selectors
in queries are `lab.apiserver.selection`'s part.
"""

from collections.abc import Mapping
from typing import Final

from rollout_lab.model.fields import child, children, text
from rollout_lab.schemas.refusals import BadField
from rollout_operator.kube.api import JsonObject

_FORMS: Final = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


def strings(obj: JsonObject, *path: str) -> dict[str, str]:
    """Return the map of texts at a path, an empty map where there is none."""
    return {key: label for key, label in child(obj, *path).items() if isinstance(label, str)}


def labels_of(obj: JsonObject) -> dict[str, str]:
    """Return `metadata.labels`."""
    return strings(obj, "metadata", "labels")


def is_empty(selector: JsonObject) -> bool:
    """Return whether it wants nothing, and so matches everything."""
    return not (selector.get("matchLabels") or selector.get("matchExpressions"))


def matches(selector: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches labels; an empty selector matches all."""
    for key, value in child(selector, "matchLabels").items():
        if isinstance(value, str) and labels.get(key) != value:
            return False
    return all(_holds(expression, labels) for expression in children(selector, "matchExpressions"))


def render(selector: JsonObject) -> str:
    """Return it as `status.selector` of a Scale carries it: sorted by key."""
    parts = [(key, f"{key}={value}") for key, value in strings(selector, "matchLabels").items()]
    for expression in children(selector, "matchExpressions"):
        key, values = text(expression, "key"), ",".join(sorted(_values(expression)))
        parts.append((key, _FORMS[text(expression, "operator")].format(key=key, values=values)))
    return ",".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def _holds(requirement: JsonObject, labels: Mapping[str, str]) -> bool:
    key, operator = text(requirement, "key"), text(requirement, "operator")
    if operator in ("In", "NotIn"):
        return (labels.get(key) in _values(requirement)) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (key in labels) is (operator == "Exists")
    raise BadField("matchExpressions.operator", operator)


def _values(requirement: JsonObject) -> list[str]:
    values = requirement.get("values")
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
