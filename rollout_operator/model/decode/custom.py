"""JSON of a ZoneAwarePodDisruptionBudget or a MultiAZRollout → what it says, or why it is refused.

Decides what an absent field means and what is refused, as the schema does: an old cluster, or a
changed schema, lets anything through. Absent and null are the same. Watched budgets and budgets
under review are refused in the same words.

Any client may have written a status. One that is not ours counts as empty. That of a MultiAZRollout
is read to decide: each field that cannot be ours counts as lost, with a reason.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, UnsetType
from msgspec.structs import fields

from rollout_operator.model.budget import Budget, BudgetStatus, FlawedBudget, ShownStatus
from rollout_operator.model.decode.installation import Shape
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import (
    BUDGET,
    LARGEST_BUDGET,
    LONGEST_LABELS,
    LONGEST_VALUE,
    SMALL,
    Fields,
    Generation,
    JsonBytes,
    ObjectHead,
    Wire,
    WireSelector,
    as_fields,
    convert_selector,
    cut_value,
    show_value,
    split_problem,
)
from rollout_operator.model.names import ABSENT_PEERS, LONGEST_NAME, InvalidInput, Uid
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.policy import (
    MOST_BATCHES,
    PodOrder,
    Policy,
    PolicyHead,
    PolicyRefusal,
    PolicyRefusalCode,
    PolicyStatus,
    RecordedBatch,
    RefusedPolicy,
    SelectorRefused,
    WatchedPolicy,
    check_label_key,
    check_selector,
)
from rollout_operator.model.units import (
    IntOrPercent,
    compile_pattern,
    format_duration,
    parse_duration,
    parse_max_unavailable,
    parse_rfc3339,
    quote,
)

_BUDGET_KIND: Final = "ZoneAwarePodDisruptionBudget"

_COUNT: Final = "maxUnavailable"
_PERCENTAGE: Final = "maxUnavailablePercentage"
_PATTERN: Final = "podNamePartitionRegex"
_GROUP: Final = "podNameRegexGroup"
_DELAY: Final = "crossZoneEvictionDelay"

_DEFAULT_COUNT: Final = 1
_INT64: Final = range(-(2**63), 2**63)

_BudgetFields = dict[str, object]
_TYPES: Final = {
    type(None): "<nil>",
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}

_POLICY_KIND: Final = "MultiAZRollout"

_MOST_ZONES: Final = 64
_MOST_SECONDS: Final = 86400
_MAXIMUM: Final = re.compile("0*([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)")
_LEAST_DEADLINE: Final = 30
_INT32: Final = 2**31 - 1

# A long list is not cut: what stands for it could be taken for the name of a zone. All fields
# together are bounded as well.
_UNCUT: Final = 2**31

_SELECTOR: Final = "statefulSetSelector"
_ROLLING: Final = "rollingUpdate"

_Value = TypeVar("_Value")
_PolicyFields = Mapping[str, object]
_NOTHING: Final[_PolicyFields] = {}

_NO_STATUS: Final = msgspec.Raw(b"null")

# Of a policy over a thousand StatefulSets all zones take 200 KiB, and a batch of a thousand pods
# 100 KiB. An object of more than 1.5 MiB is stored nowhere.
_LONGEST_LIST: Final = 1 << 20
_LISTS: Final = frozenset({"zones", "lastBatch", "conditions", "unknownZones"})

_NAMES: Final = {field.encode_name: field.name for field in fields(PolicyStatus)}
_STATUS_READ: Final = Fields(
    {
        "status": Fields(
            {name: _LONGEST_LIST if name in _LISTS else LONGEST_VALUE for name in _NAMES}
        )
    }
)

_BUDGET_STATUS: Final = msgspec.json.Decoder(BudgetStatus | None)

_POLICY_STATUS: Final = msgspec.json.Decoder(PolicyStatus)


class _Head(ObjectHead):
    generation: Generation = 0
    creation_timestamp: Annotated[datetime, Meta(tz=True)] | None = None


class _Object(Wire):
    metadata: _Head
    kind: str | None = None
    status: msgspec.Raw = _NO_STATUS


_OBJECT: Final = msgspec.json.Decoder(_Object)


def decode_budget(raw: JsonBytes) -> Budget | FlawedBudget:
    """Return the decoded budget, also where it is flawed.

    Raises DecodeError naming budget, field and value where not even its metadata can be read.
    """
    head = read_as(_BUDGET_KIND, raw, _OBJECT).metadata
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
    if tree.get("kind") != _BUDGET_KIND:
        raise InvalidInput(f"unexpected object kind - expecting {_BUDGET_KIND}")
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


def _read_maximum(spec: _BudgetFields) -> tuple[int, int | None]:
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


def _read_integer(spec: _BudgetFields, field: str) -> int:
    value = _integer(spec[field])
    if value is None:
        raise InvalidInput(f"failed to extract value from config field {field}")
    return value


def _read_pattern(spec: _BudgetFields) -> tuple[str, int]:
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


def _read_selector(spec: _BudgetFields) -> Mapping[str, str]:
    if "selector" not in spec:
        raise InvalidInput("invalid value: selector is not found")
    try:
        selector = _as_map(spec["selector"], ".selector")
        if "matchLabels" not in selector:
            raise InvalidInput("invalid value: selector is not found")
        return _as_labels(selector["matchLabels"], ".selector.matchLabels")
    except _WrongType as error:
        raise InvalidInput(f"invalid value: selector is not valid, got {error}") from error


def _read_delay(spec: _BudgetFields, *, has_pattern: bool) -> timedelta:
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
    pass


def _as_map(value: object, path: str) -> _BudgetFields:
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


def _read(raw: JsonBytes) -> _BudgetFields:
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


def _type(value: object) -> str:
    return _TYPES.get(type(value), "unknown")


class _Refused(InvalidInput):
    """A value is refused for another reason than its form, or at a place inside of its field."""

    def __init__(
        self,
        message: str,
        *,
        below: str = "",
        code: PolicyRefusalCode = PolicyRefusalCode.INVALID_SPEC,
    ) -> None:
        super().__init__(message)
        self.below = below
        self.code = code


class _Reader:
    """Reads fields of one policy, and collects what is wrong with them."""

    def __init__(self, head: PolicyHead) -> None:
        self._head = head
        self.refusals: list[PolicyRefusal] = []

    def read(
        self, tree: _PolicyFields, path: str, parse: Callable[[object], _Value], default: _Value
    ) -> _Value:
        """Return the value of the field at the end of `path`, the default where it is refused."""
        value = tree.get(path.rpartition(".")[2])
        if value is None:
            return default
        try:
            return parse(value)
        except _Refused as error:
            self.refuse(f"{path}{error.below}", str(error), error.code)
        except InvalidInput as error:
            self.refuse(path, str(error))
        return default

    def refuse(
        self,
        field: str,
        problem: str,
        code: PolicyRefusalCode = PolicyRefusalCode.INVALID_SPEC,
    ) -> None:
        text = f"{_POLICY_KIND} {self._head.key}: {field}: {problem}"
        self.refusals.append(PolicyRefusal(code=code, field=field, text=text))


def decode_policy(raw: JsonBytes) -> Policy | RefusedPolicy:
    """Return a policy, or why it cannot be obeyed.

    Raises DecodeError naming policy, field and value where not even its metadata can be read.
    """
    wire = read_as(_POLICY_KIND, raw, _OBJECT).metadata
    head = PolicyHead(
        namespace=wire.namespace,
        name=wire.name,
        uid=Uid(wire.uid),
        generation=wire.generation,
        created=wire.creation_timestamp,
        is_terminating=wire.deletion_timestamp is not None,
    )
    reader = _Reader(head)
    try:
        tree = as_fields(msgspec.json.decode(_POLICY_READ.excerpt(raw)))
        spec = _as_policy_map({} if tree.get("spec") is None else tree["spec"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidInput) as error:
        reader.refuse("spec", str(error))
        return RefusedPolicy(head=head, refusals=tuple(reader.refusals))
    policy = _read_policy(reader, head, spec)
    return RefusedPolicy(head=head, refusals=tuple(reader.refusals)) if reader.refusals else policy


def _read_policy(reader: _Reader, head: PolicyHead, spec: _PolicyFields) -> Policy:
    selector = reader.read(spec, f"spec.{_SELECTOR}", _parse_selector, LabelSelector())
    if spec.get(_SELECTOR) is None:
        reader.refuse(f"spec.{_SELECTOR}", "it is required")
    update = reader.read(spec, f"spec.{_ROLLING}", _as_policy_map, _NOTHING)
    policy = Policy(head=head, selector=selector)
    values: dict[str, object] = {}
    for tree, path, table in (
        (update, f"spec.{_ROLLING}", UPDATE_FIELDS),
        (spec, "spec", SPEC_FIELDS),
    ):
        for name, (attribute, parse) in table.items():
            default: object = getattr(policy, attribute)
            values[attribute] = reader.read(tree, f"{path}.{name}", parse, default)
    reader.read(spec, "spec.namespace", _own_namespace(head.namespace), "")
    return msgspec.structs.replace(policy, **values)


def _own_namespace(own: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        # What a Go client writes for a field that is not set means that it is not set.
        if _as_text(value) not in (own, ""):
            raise _Refused(
                f"{show_value(value)} is not the namespace of the policy, {quote(own)}",
                code=PolicyRefusalCode.NAMESPACE_MISMATCH,
            )
        return own

    return parse


def _parse_selector(value: object) -> LabelSelector:
    try:
        selector = convert_selector(msgspec.convert(_as_policy_map(value), WireSelector))
    except msgspec.ValidationError as error:
        what, where = split_problem(error)
        raise _Refused(what.replace("`", ""), below=where.replace("[...]", "")) from error
    if not selector.labels and not selector.terms:
        raise _Refused(
            "an empty selector takes every StatefulSet of the namespace",
            code=PolicyRefusalCode.EMPTY_SELECTOR,
        )
    try:
        check_selector(selector)
    except SelectorRefused as error:
        raise _Refused(str(error), below=error.below) from error
    return selector


def _parse_maximum(value: object) -> IntOrPercent:
    """Return the value, which may be quoted; the schema of the API has the same pattern."""
    text = str(value) if isinstance(value, str | int) else ""
    if not _MAXIMUM.fullmatch(text):
        kinds = "an integer from 1 to 999999999 nor a share from 1% to 100%"
        raise InvalidInput(f"{show_value(value)} is neither {kinds}")
    return parse_max_unavailable(text)


def _seconds(least: int, most: int) -> Callable[[object], timedelta]:
    def parse(value: object) -> timedelta:
        if type(value) is not int or not least <= value <= most:
            raise InvalidInput(f"{show_value(value)} is no integer from {least} to {most}")
        return timedelta(seconds=value)

    return parse


def _parse_pod_order(value: object) -> PodOrder:
    try:
        return PodOrder(_as_text(value))
    except ValueError as error:
        orders = " nor ".join(PodOrder)
        raise InvalidInput(f"{show_value(value)} is neither {orders}") from error


def _parse_key(value: object) -> str:
    return check_label_key(_as_text(value))


def _parse_zone_order(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InvalidInput(f"{show_value(value)} is no list")
    if len(value) > _MOST_ZONES:
        raise InvalidInput(f"it has {len(value)} zones, at most {_MOST_ZONES}")
    for place, zone in enumerate(value):
        if not isinstance(zone, str) or not zone:
            raise _Refused(f"{show_value(zone)} is no name of a zone", below=f"[{place}]")
        if len(zone) > LONGEST_NAME:
            problem = f"{show_value(zone)} has {len(zone)} characters, at most {LONGEST_NAME}"
            raise _Refused(problem, below=f"[{place}]")
        if zone in value[:place]:
            raise _Refused(f"{show_value(zone)} is in the list before", below=f"[{place}]")
    return tuple(value)


def _parse_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{show_value(value)} is neither true nor false")
    return value


def _as_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{show_value(value)} is no text")
    return value


def _as_policy_map(value: object) -> _PolicyFields:
    if not isinstance(value, dict):
        raise InvalidInput(f"{show_value(value)} is no object")
    return value


_FieldTable = Mapping[str, tuple[str, Callable[[object], object]]]
# Fields by name, each with its attribute of `Policy` and how it is read.
UPDATE_FIELDS: Final[_FieldTable] = {
    "maxUnavailable": ("max_unavailable", _parse_maximum),
    "intervalSeconds": ("interval", _seconds(0, _MOST_SECONDS)),
    "zoneIntervalSeconds": ("zone_interval", _seconds(0, _MOST_SECONDS)),
    "podOrder": ("pod_order", _parse_pod_order),
    "azTopologyKey": ("topology_key", _parse_key),
}
SPEC_FIELDS: Final[_FieldTable] = {
    "azOrder": ("zone_order", _parse_zone_order),
    "paused": ("is_paused", _parse_bool),
    "manageUpdateStrategy": ("may_switch_strategy", _parse_bool),
    "progressDeadlineSeconds": ("progress_deadline", _seconds(_LEAST_DEADLINE, _INT32)),
}
_POLICY_READ: Final = Fields(
    {
        "spec": Fields(
            {
                **dict.fromkeys(("namespace", _ROLLING, *SPEC_FIELDS), LONGEST_VALUE),
                _SELECTOR: LONGEST_LABELS,
                "azOrder": _UNCUT,
            }
        )
    }
)

DEFINED: Final[Mapping[str, Mapping[str, Shape]]] = {
    _BUDGET_KIND: {
        "spec": {
            "selector": {"matchLabels": None},
            **dict.fromkeys((_COUNT, _PERCENTAGE, _PATTERN, _GROUP, _DELAY)),
        },
        "status": BudgetStatus,
    },
    _POLICY_KIND: {
        "spec": {
            _SELECTOR: WireSelector,
            _ROLLING: dict.fromkeys(UPDATE_FIELDS),
            **dict.fromkeys(("namespace", *SPEC_FIELDS)),
        },
        "status": PolicyStatus,
    },
}
"""The fields of a kind that are read or written, for a comparison with its definition."""


class _Excerpt(Wire):
    status: dict[str, msgspec.Raw] | None = None


_EXCERPT: Final = msgspec.json.Decoder(_Excerpt)


def decode_budget_status(raw: JsonBytes) -> ShownStatus:
    """Return the status of a budget. Raises DecodeError where it has no name."""
    wire = read_as(_BUDGET_KIND, raw, _OBJECT)
    try:
        status = _BUDGET_STATUS.decode(wire.status) or BudgetStatus()
    except (msgspec.MsgspecError, RecursionError):
        status = BudgetStatus()
    return ShownStatus(name=wire.metadata.name, uid=Uid(wire.metadata.uid), status=status)


def decode_watched_policy(raw: JsonBytes) -> WatchedPolicy:
    """Return a policy that can be obeyed, or why it cannot, and its status as far as it is ours.

    Raises DecodeError naming policy, field and value where not even its metadata can be read.
    """
    policy = decode_policy(raw)
    status, problems = _read_status(raw)
    return WatchedPolicy(
        resource_version=read_as(_POLICY_KIND, raw, _OBJECT).metadata.resource_version,
        policy=policy,
        status=status,
        problems=problems,
    )


def _read_status(raw: JsonBytes) -> tuple[PolicyStatus, tuple[str, ...]]:
    try:
        parts = _EXCERPT.decode(_STATUS_READ.excerpt(raw, 2 * _LONGEST_LIST)).status or {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return PolicyStatus(), (f"status: {error}",)
    values: dict[str, object] = {}
    problems: list[str] = []
    for name, part in parts.items():
        try:
            values |= _read_field(name, part)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidInput) as error:
            problems.append(f"status.{name}: {str(error).replace('`', '')}")
    return PolicyStatus(**values), tuple(problems)  # type: ignore[arg-type] # read by its own type


def _read_field(name: str, part: msgspec.Raw) -> Mapping[str, object]:
    """Return a field under its name in Python; nothing for null. Raises InvalidInput."""
    if bytes(part) == b"null":
        return {}
    status = _POLICY_STATUS.decode(b'{"%b":%b}' % (name.encode(), bytes(part)))
    for time in _list_times(status):
        parse_rfc3339(time)
    batch = status.last_batch
    if isinstance(batch, RecordedBatch) and not 1 <= batch.number <= MOST_BATCHES:
        raise InvalidInput(f"number: {batch.number} is no number of a batch")
    return {_NAMES[name]: getattr(status, _NAMES[name])}


def _list_times(status: PolicyStatus) -> Iterator[str]:
    """Yield the texts that must be times: the API server refuses a status with another."""
    times = [status.start_time, status.completion_time, status.next_batch_time]
    if isinstance(status.last_batch, RecordedBatch):
        times += [status.last_batch.start_time, status.last_batch.completion_time]
    times += [condition.last_transition_time for condition in status.conditions]
    return (time for time in times if not isinstance(time, UnsetType))
