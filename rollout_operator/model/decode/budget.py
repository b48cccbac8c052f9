"""JSON of a ZoneAwarePodDisruptionBudget → `Budget`, or why it cannot be obeyed.

Decides what is refused, in which order and in which words, the same for watched budgets and for
budgets under review. What becomes of a flawed budget is left to `guards.budgets.catalog`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.decode.broken import as_fields, cut_value
from rollout_operator.model.decode.excerpt import BUDGET, LARGEST_BUDGET, SMALL
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import Generation, JsonBytes, ObjectHead, Wire
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import ABSENT_PEERS, Uid
from rollout_operator.model.pattern import compile_pattern
from rollout_operator.model.units import format_duration, parse_duration, quote

KIND: Final = "ZoneAwarePodDisruptionBudget"

_COUNT: Final = "maxUnavailable"
_PERCENTAGE: Final = "maxUnavailablePercentage"
_PATTERN: Final = "podNamePartitionRegex"
_GROUP: Final = "podNameRegexGroup"
_DELAY: Final = "crossZoneEvictionDelay"

_DEFAULT_COUNT: Final = 1
_INT64: Final = range(-(2**63), 2**63)

_Fields = dict[str, object]


class _Head(ObjectHead):
    generation: Generation = 0


class _Wire(Wire):
    metadata: _Head
    kind: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Wire)


def decode_budget(raw: JsonBytes) -> Budget | FlawedBudget:
    """Return the decoded budget, also where it is flawed.

    Raises DecodeError naming budget, field and value where not even its metadata can be read.
    """
    head = read_as(KIND, raw, _DECODER).metadata
    try:
        return parse_budget(raw)
    except InvalidInput as error:
        return FlawedBudget(
            namespace=head.namespace,
            name=head.name,
            uid=Uid(head.uid),
            resource_version=head.resource_version,
            generation=head.generation,
            selector=_salvage_selector(raw),
            problem=str(error),
        )


def parse_budget(raw: JsonBytes) -> Budget:
    """Return the decoded budget, whatever its metadata lacks: under review it is not whole yet.

    Raises InvalidInput with the first thing that is wrong with it.
    """
    tree = _read(raw)
    if "spec" not in tree:
        raise InvalidInput("no spec found in unstructured object")
    spec = _as_map(tree["spec"], ".spec")
    if tree.get("kind") != KIND:
        raise InvalidInput(f"unexpected object kind - expecting {KIND}")
    count, percentage = _read_maximum(spec)
    pattern, group = _read_pattern(spec)
    selector = _read_selector(spec)
    delay = _read_delay(spec, has_pattern=bool(pattern))
    if percentage and pattern:
        raise InvalidInput(
            "invalid value: max unavailable percentage can not be used with partition awareness"
        )
    head = as_fields(tree.get("metadata"))
    return Budget(
        namespace=_text(head.get("namespace")),
        name=_text(head.get("name")),
        uid=Uid(_text(head.get("uid"))),
        resource_version=_text(head.get("resourceVersion")),
        generation=_integer(head.get("generation")) or 0,
        selector=selector,
        max_unavailable=count,
        percentage=percentage,
        pattern=pattern,
        pattern_group=group,
        delay=delay,
        forgives_absent_peers=as_fields(head.get("annotations")).get(ABSENT_PEERS) == "gone",
    )


def _read_maximum(spec: _Fields) -> tuple[int, int | None]:
    """Return how many pods may be gone, or 0 and which share of them."""
    if _COUNT in spec and _PERCENTAGE in spec:
        raise InvalidInput(f"invalid value: only one of {_COUNT} or {_PERCENTAGE} may be set")
    if _PERCENTAGE in spec:
        share = _read_integer(spec, _PERCENTAGE)
        if not 0 <= share <= 100:
            raise InvalidInput(
                f"invalid value: max unavailable percentage must be 0 <= val <= 100, got {share}"
            )
        return 0, share
    count = _read_integer(spec, _COUNT) if _COUNT in spec else _DEFAULT_COUNT
    if count < 0:
        raise InvalidInput(f"invalid value: max unavailable must be 0 <= val, got {count}")
    return count, None


def _read_integer(spec: _Fields, field: str) -> int:
    value = _integer(spec[field])
    if value is None:
        raise InvalidInput(f"failed to extract value from config field {field}")
    return value


def _read_pattern(spec: _Fields) -> tuple[str, int]:
    """Return the pattern and the group that holds the partition; ZPDB-16, ZPDB-23, ZPDB-24."""
    text = spec.get(_PATTERN, "")
    if not isinstance(text, str):
        raise _bad_pattern(f"failed to extract regex value from config field {_PATTERN}")
    if not text:
        return "", 1
    group = _integer(spec.get(_GROUP, 1))
    if group is None:
        raise _bad_pattern(f"failed to extract group value from config field {_GROUP}")
    try:
        groups = compile_pattern(text).groups
    except InvalidInput as error:
        raise _bad_pattern(str(error)) from error
    if groups == 0:
        raise _bad_pattern("regular expression requires at least one subexpression")
    if groups > 1 and _GROUP not in spec:
        raise _bad_pattern(
            f"regular expression has multiple subexpressions and requires {_GROUP} to be set"
        )
    if not 1 <= group <= groups:
        raise _bad_pattern("regular expression subexpression index out of range")
    return text, group


def _bad_pattern(reason: str) -> InvalidInput:
    return InvalidInput(f"invalid value: regex is not valid, got {reason}")


def _read_selector(spec: _Fields) -> Mapping[str, str]:
    if "selector" not in spec:
        raise InvalidInput("invalid value: selector is not found")
    try:
        selector = _as_map(spec["selector"], ".selector")
        if "matchLabels" not in selector:
            raise InvalidInput("invalid value: selector is not found")
        return _as_labels(selector["matchLabels"], ".selector.matchLabels")
    except _WrongType as error:
        raise InvalidInput(f"invalid value: selector is not valid, got {error}") from error


def _read_delay(spec: _Fields, *, has_pattern: bool) -> timedelta:
    text = spec.get(_DELAY, "")
    if not isinstance(text, str):
        raise InvalidInput(f"failed to extract value from config field {_DELAY}")
    try:
        delay = parse_duration(text) if text else timedelta(0)
    except InvalidInput as error:
        raise InvalidInput(
            f"invalid value: {_DELAY} is not a valid duration, got {error}"
        ) from error
    if delay < timedelta(0):
        raise InvalidInput(f"invalid value: {_DELAY} must be >= 0, got {format_duration(delay)}")
    if delay and not has_pattern:
        raise InvalidInput(f"invalid value: {_DELAY} requires {_PATTERN} to be set")
    return delay


class _WrongType(InvalidInput):
    """A value is not of the type that its field has."""


def _as_map(value: object, path: str) -> _Fields:
    if not isinstance(value, dict):
        raise _WrongType(
            f"{path} accessor error: {_shown(value)} is of the type {_type(value)},"
            " expected map[string]interface{}"
        )
    return value


def _as_labels(value: object, path: str) -> Mapping[str, str]:
    labels: dict[str, str] = {}
    for key, item in _as_map(value, path).items():
        if not isinstance(item, str):
            raise _WrongType(
                f"{path} accessor error: contains non-string value in the map under key"
                f" {quote(key)}: {_shown(item)} is of the type {_type(item)}, expected string"
            )
        labels[key] = item
    return labels


def _salvage_selector(raw: JsonBytes) -> Mapping[str, str] | None:
    try:
        return _read_selector(_as_map(_read(raw).get("spec"), ".spec"))
    except InvalidInput:
        return None


def _read(raw: JsonBytes) -> _Fields:
    """Return the fields of an object, of a large object those that are read.

    Raises InvalidInput where it is no object.
    """
    try:
        is_small = len(memoryview(raw)) <= SMALL
        body = bytes(raw if is_small else BUDGET.excerpt(raw, LARGEST_BUDGET)).strip()
        if body in (b"", b"null"):
            raise InvalidInput("unexpected end of JSON input")
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(str(error)) from error
    return _as_map(tree, "object")


def _integer(value: object) -> int | None:
    """Return what Go reads as an integer: `1`, but neither `1.0` nor `true` nor 2 to the 63."""
    return value if type(value) is int and value in _INT64 else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: object) -> str:
    return cut_value(msgspec.json.encode(value).decode())


_TYPES: Final = {
    type(None): "<nil>",
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def _type(value: object) -> str:
    return _TYPES.get(type(value), "unknown")
