"""Rules of the custom resources, whose schemas are in `manifests/crds`.

What sets them apart from the kinds that are built in: a schema decides what is kept and judged, and
`status` is absent until a client writes it, alone.
"""

import re
from collections.abc import Mapping
from typing import Final

from rollout_lab.model.fields import child, number, text
from rollout_lab.model.request import not_modelled
from rollout_lab.schemas.refusals import expect
from rollout_lab.schemas.rules import Rules
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import compile_pattern

_LARGEST: Final = 2**31 - 1
_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "spec": {"replicas": int, "labelSelector": str},
    "status": {"replicas": int},
}


def _keep_metadata(old: JsonObject, new: JsonObject) -> None:
    """Leave it as it was: the status of a custom resource is written alone."""
    new["metadata"] = dict(child(old, "metadata"))


def _prune(obj: JsonObject, part: str) -> None:
    """Drop, in place, the fields that the schema does not have."""
    if part not in obj:
        return
    known, given = _FIELDS[part], child(obj, part)
    for key, value in given.items():
        if key in known and type(value) is not known[key]:
            not_modelled(f"a ReplicaTemplate whose {part}.{key} is {value!r}")
    obj[part] = {key: value for key, value in given.items() if key in known}


def _default_spec(obj: JsonObject) -> None:
    _prune(obj, "spec")
    if "spec" in obj:
        obj["spec"] = {"replicas": 1, **child(obj, "spec")}


def _check_template(obj: JsonObject) -> None:
    for part in ("spec", "status"):
        replicas = number(obj, part, "replicas")
        expect(0 <= replicas <= _LARGEST, f"{part}.replicas", replicas)


REPLICA_TEMPLATE: Final = Rules(
    raw=frozenset({"spec", "status"}),
    raises_generation=("spec",),
    defaults={"spec": _default_spec, "status": lambda obj: _prune(obj, "status")},
    on_status_update=_keep_metadata,
    check=_check_template,
)

_COUNT: Final = "maxUnavailable"
_SHARE: Final = "maxUnavailablePercentage"
_PATTERN: Final = "podNamePartitionRegex"
_GROUP: Final = "podNameRegexGroup"
_DELAY: Final = "crossZoneEvictionDelay"
_TYPES: Final = {_COUNT: int, _SHARE: int, _PATTERN: str, _GROUP: int, _DELAY: str}
_NUMBERS: Final = frozenset(
    {"observedGeneration", "zones", "pods", "currentUnavailable", "allowedDisruptions"}
)
_LEAST: Final = {_COUNT: 0, _SHARE: 0, _GROUP: 1}
_LONGEST_PATTERN: Final = 1024
_HAS_GROUP: Final = re.compile(r"\(([^?]|\?P?<)", re.DOTALL)
_IS_DURATION: Final = re.compile(
    r"\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)|-0s"
)
_HAS_NUMBER: Final = re.compile(r"[1-9]")


def _prune_budget(obj: JsonObject) -> None:
    """Drop, in place, what the schema does not have, and what is null."""
    if "spec" not in obj:
        return
    given = child(obj, "spec")
    spec = {key: given[key] for key in given if key in _TYPES and given[key] is not None}
    labels = child(given, "selector", "matchLabels")
    if "matchLabels" in child(given, "selector"):
        labels = {key: value for key, value in labels.items() if value is not None}
        spec["selector"] = {"matchLabels": labels}
    obj["spec"] = spec


def _prune_budget_status(obj: JsonObject) -> None:
    """Drop, in place, what the schema does not have: of a condition nothing is left out."""
    if "status" not in obj:
        return
    given = child(obj, "status")
    for key, value in given.items():
        is_right = (
            type(value) is int if key in _NUMBERS else key != "conditions" or type(value) is list
        )
        if not is_right:
            not_modelled(f"a budget whose status.{key} is {value!r}")
    obj["status"] = {key: given[key] for key in given if key in _NUMBERS or key == "conditions"}


def _check_budget(obj: JsonObject) -> None:
    spec = child(obj, "spec")
    labels = child(spec, "selector").get("matchLabels")
    is_selector = isinstance(labels, dict) and all(
        isinstance(label, str) for label in labels.values()
    )
    expect(is_selector, "spec.selector", obj.get("spec"))
    for key, kind in _TYPES.items():
        value = spec.get(key)
        expect(value is None or type(value) is kind, key, value)
        expect(not isinstance(value, int) or value >= _LEAST[key], key, value)
    pattern, delay = text(spec, _PATTERN), text(spec, _DELAY)
    share = number(spec, _SHARE)
    expect(share <= 100 and not (_COUNT in spec and _SHARE in spec), _SHARE, share)
    expect(not (pattern and share), "a percentage with a partition", share)
    expect(not delay or bool(_IS_DURATION.fullmatch(delay)), _DELAY, delay)
    expect(bool(pattern) or not _HAS_NUMBER.search(delay), f"{_DELAY} without {_PATTERN}", delay)
    if pattern:
        expect(_is_pattern(pattern), _PATTERN, pattern)


def _is_pattern(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except InvalidInput:
        return False
    return len(pattern) <= _LONGEST_PATTERN and _HAS_GROUP.search(pattern) is not None


# What a schema decides of a policy the operator decides again by itself: nothing is judged here.
MULTI_AZ_ROLLOUT: Final = Rules(
    raw=frozenset({"spec", "status"}),
    raises_generation=("spec",),
    defaults={},
    on_status_update=_keep_metadata,
)

ZONE_BUDGET: Final = Rules(
    raw=frozenset({"spec", "status"}),
    raises_generation=("spec",),
    defaults={"spec": _prune_budget, "status": _prune_budget_status},
    on_status_update=_keep_metadata,
    check=_check_budget,
)
