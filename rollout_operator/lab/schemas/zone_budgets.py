"""Rules of ZoneAwarePodDisruptionBudgets: the schema and the rules in `manifests/crds`.

Worded as the real API server words them. Rules are asked only where the schema found every value of
the right type and nothing missing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child, number, text
from rollout_operator.lab.model.request import not_modelled
from rollout_operator.lab.schemas.invalid import Problems
from rollout_operator.lab.schemas.rules import Rules
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.pattern import compile_pattern

_COUNT: Final = "maxUnavailable"
_SHARE: Final = "maxUnavailablePercentage"
_PATTERN: Final = "podNamePartitionRegex"
_GROUP: Final = "podNameRegexGroup"
_DELAY: Final = "crossZoneEvictionDelay"
_LABELS: Final = ("selector", "matchLabels")

_TYPES: Final[Mapping[str, str]] = {
    _SHARE: "integer",
    _COUNT: "integer",
    _PATTERN: "string",
    _GROUP: "integer",
    _DELAY: "string",
}
_LEAST: Final = {_COUNT: 0, _SHARE: 0, _GROUP: 1}
_MOST: Final = {_SHARE: 100}
_LONGEST_PATTERN: Final = 1024
_HAS_GROUP: Final = re.compile(r"\(([^?]|\?P?<)", re.DOTALL)
_IS_DURATION: Final = re.compile(
    r"[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)"
)
_HAS_NUMBER: Final = re.compile(r"[1-9]")
# Go's words for what the engine that we have says in others.
_GO_WORDS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid escape sequence": "invalid escape sequence",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
}
_UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)


def _prune(obj: JsonObject) -> None:
    """Drop, in place, what the schema does not have, and what is null."""
    if "spec" not in obj:
        return
    given = child(obj, "spec")
    spec = {key: given[key] for key in given if key in _TYPES and given[key] is not None}
    selector = given.get("selector")
    if isinstance(selector, dict):
        labels = selector.get("matchLabels")
        if isinstance(labels, dict):
            labels = {key: value for key, value in labels.items() if value is not None}
        spec["selector"] = {} if labels is None else {"matchLabels": labels}
    elif selector is not None:
        spec["selector"] = selector
    obj["spec"] = spec


def _keep_metadata(old: JsonObject, new: JsonObject) -> None:
    """Leave it as it was: the status of a custom resource is written alone, and this has none."""
    new["metadata"] = dict(child(old, "metadata"))


def _check(obj: JsonObject, problems: Problems) -> None:
    if "spec" not in obj:
        problems.require("spec", "no spec found")
        return
    spec = child(obj, "spec")
    is_whole = [_check_values(spec, problems), _check_selector(spec, problems)]
    if all(is_whole):
        _check_rules(spec, problems)
    else:
        problems.invalid("<nil>", None, _UNCHECKED)


def _check_values(spec: JsonObject, problems: Problems) -> bool:
    """Judge the plain fields one by one; return whether all have the right type."""
    is_typed = True
    for field, wanted in sorted(_TYPES.items()):
        if field not in spec:
            continue
        value = spec[field]
        where = f"spec.{field}"
        if not _check_type(where, value, wanted, problems):
            is_typed = False
        elif isinstance(value, int):
            if value < _LEAST[field]:
                why = f"{where} in body should be greater than or equal to {_LEAST[field]}"
                problems.invalid(where, value, why)
            if value > _MOST.get(field, value):
                why = f"{where} in body should be less than or equal to {_MOST[field]}"
                problems.invalid(where, value, why)
    return is_typed


def _check_selector(spec: JsonObject, problems: Problems) -> bool:
    """Judge the selector; return whether it is there, of the right type throughout."""
    found: JsonObject = spec
    where = "spec"
    for key in _LABELS:
        where = f"{where}.{key}"
        if key not in found:
            problems.require(where)
            return False
        if not _check_type(where, found[key], "object", problems):
            return False
        found = child(found, key)
    typed = [
        _check_type(f"{where}.{key}", value, "string", problems)
        for key, value in sorted(found.items())
    ]
    return all(typed)


def _check_type(where: str, value: object, wanted: str, problems: Problems) -> bool:
    found = _name_type(value)
    if found == wanted:
        return True
    problems.mistype(where, found, f'{where} in body must be of type {wanted}: "{found}"')
    if wanted == "integer" and found == "number":
        why = f"Checked value must be of type integer (default format) in {where}"
        problems.invalid("<nil>", "", why)
    return False


def _name_type(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        not_modelled(f"the number {value!r} in a custom resource")
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _check_rules(spec: JsonObject, problems: Problems) -> None:
    for why in _list_broken(spec):
        problems.break_rule("spec", why)
    delay, pattern = text(spec, _DELAY), text(spec, _PATTERN)
    if delay and not _IS_DURATION.fullmatch(delay):
        problems.invalid(f"spec.{_DELAY}", delay, f"{_DELAY} is not a valid duration")
    if delay.startswith("-") and _HAS_NUMBER.search(delay):
        problems.invalid(f"spec.{_DELAY}", delay, f"{_DELAY} must be >= 0")
    if pattern:
        _check_pattern(pattern, problems)


def _list_broken(spec: JsonObject) -> Iterator[str]:
    """Yield what the rules about several fields say."""
    has_pattern = text(spec, _PATTERN) != ""
    if _COUNT in spec and _SHARE in spec:
        yield f"only one of {_COUNT} or {_SHARE} may be set"
    if has_pattern and number(spec, _SHARE):
        yield "max unavailable percentage can not be used with partition awareness"
    if not has_pattern and _HAS_NUMBER.search(text(spec, _DELAY)):
        yield f"{_DELAY} requires {_PATTERN} to be set"


def _check_pattern(pattern: str, problems: Problems) -> None:
    where = f"spec.{_PATTERN}"
    if len(pattern) <= _LONGEST_PATTERN:
        try:
            compile_pattern(pattern)
        except InvalidInput as error:
            why = f"{_say_in_go(str(error))} evaluating rule: regex is not valid"
            problems.invalid(where, "string", why)
    if not _HAS_GROUP.search(pattern):
        problems.invalid(where, pattern, "regular expression requires at least one subexpression")
    if len(pattern) > _LONGEST_PATTERN:
        problems.invalid(where, pattern, f"regex is longer than {_LONGEST_PATTERN}")


def _say_in_go(reason: str) -> str:
    what, _, where = reason.partition(": ")
    if what not in _GO_WORDS:
        not_modelled(f"a pattern with which something else is wrong: {reason}")
    return f"error parsing regexp: {_GO_WORDS[what]}: `{where}`"


ZONE_BUDGET: Final = Rules(
    parts=frozenset({"spec"}),
    raw=frozenset({"spec"}),
    counted=("spec",),
    defaults={"spec": _prune},
    settle_status=_keep_metadata,
    check=_check,
)
