"""JSON of a MultiAZRollout → `Policy`, or all for which it is refused.

Decides what an absent field means and what is refused, as the schema of the kind does: an old
cluster, or a schema that was changed, lets anything through. An absent field and null are the
same, as the API server has it.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.broken import as_fields, show_value, split_problem
from rollout_operator.model.decode.excerpt import LONGEST_LABELS, LONGEST_VALUE, Fields
from rollout_operator.model.decode.installation import WireSelector, convert_selector
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import Generation, JsonBytes, ObjectHead, Wire
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import LONGEST_NAME, Uid
from rollout_operator.model.policy.label_syntax import (
    SelectorRefused,
    check_label_key,
    check_selector,
)
from rollout_operator.model.policy.policy import (
    PodOrder,
    Policy,
    PolicyHead,
    PolicyRefusal,
    PolicyRefusalCode,
    RefusedPolicy,
)
from rollout_operator.model.units import IntOrPercent, parse_max_unavailable, quote

KIND: Final = "MultiAZRollout"

_MOST_ZONES: Final = 64
_MOST_TERMS: Final = 64
_MOST_SECONDS: Final = 86400
_LEAST_DEADLINE: Final = 30
_INT32: Final = 2**31 - 1

# A long list is not cut: what stands for it could be taken for the name of a zone. All fields
# together are bounded as well.
_UNCUT: Final = 2**31

_SELECTOR: Final = "statefulSetSelector"
_READ: Final = Fields(
    {
        "spec": Fields(
            {
                **dict.fromkeys(("namespace", "paused", "manageUpdateStrategy"), LONGEST_VALUE),
                "progressDeadlineSeconds": LONGEST_VALUE,
                _SELECTOR: LONGEST_LABELS,
                "azOrder": _UNCUT,
                "rollingUpdate": LONGEST_VALUE,
            }
        )
    }
)

Value = TypeVar("Value")
_Fields = Mapping[str, object]
_NOTHING: Final[_Fields] = {}


class _Head(ObjectHead):
    generation: Generation = 0
    creation_timestamp: Annotated[datetime, Meta(tz=True)] | None = None


class _Wire(Wire):
    metadata: _Head
    kind: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Wire)


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
        self, tree: _Fields, path: str, parse: Callable[[object], Value], default: Value
    ) -> Value:
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
        """Keep one thing that is wrong."""
        text = f"{KIND} {self._head.key}: {field}: {problem}"
        self.refusals.append(PolicyRefusal(code=code, field=field, text=text))


def decode_policy(raw: JsonBytes) -> Policy | RefusedPolicy:
    """Return a policy, or why it cannot be obeyed.

    Raises DecodeError naming policy, field and value where not even its metadata can be read.
    """
    wire = read_as(KIND, raw, _DECODER).metadata
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
        tree = as_fields(msgspec.json.decode(_READ.excerpt(raw)))
        spec = _as_map({} if tree.get("spec") is None else tree["spec"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidInput) as error:
        reader.refuse("spec", str(error))
        return RefusedPolicy(head=head, refusals=tuple(reader.refusals))
    policy = _read_policy(reader, head, spec)
    return RefusedPolicy(head=head, refusals=tuple(reader.refusals)) if reader.refusals else policy


def _read_policy(reader: _Reader, head: PolicyHead, spec: _Fields) -> Policy:
    selector = reader.read(spec, f"spec.{_SELECTOR}", _parse_selector, LabelSelector())
    if spec.get(_SELECTOR) is None:
        reader.refuse(f"spec.{_SELECTOR}", "it is required")
    rolling = "spec.rollingUpdate"
    update = reader.read(spec, rolling, _as_map, _NOTHING)
    own = Policy(head=head, selector=selector)
    policy = Policy(
        head=head,
        selector=selector,
        max_unavailable=reader.read(
            update, f"{rolling}.maxUnavailable", _parse_maximum, own.max_unavailable
        ),
        interval=reader.read(
            update, f"{rolling}.intervalSeconds", _seconds(0, _MOST_SECONDS), own.interval
        ),
        pod_order=reader.read(update, f"{rolling}.podOrder", _parse_pod_order, own.pod_order),
        topology_key=reader.read(update, f"{rolling}.azTopologyKey", _parse_key, own.topology_key),
        zone_order=reader.read(spec, "spec.azOrder", _parse_zone_order, own.zone_order),
        is_paused=reader.read(spec, "spec.paused", _parse_bool, own.is_paused),
        may_switch_strategy=reader.read(
            spec, "spec.manageUpdateStrategy", _parse_bool, own.may_switch_strategy
        ),
        progress_deadline=reader.read(
            spec,
            "spec.progressDeadlineSeconds",
            _seconds(_LEAST_DEADLINE, _INT32),
            own.progress_deadline,
        ),
    )
    reader.read(spec, "spec.namespace", _own_namespace(head.namespace), "")
    return policy


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
        selector = convert_selector(msgspec.convert(_as_map(value), WireSelector))
    except msgspec.ValidationError as error:
        what, where = split_problem(error)
        raise _Refused(what.replace("`", ""), below=where.replace("[...]", "")) from error
    if not selector.labels and not selector.terms:
        raise _Refused(
            "an empty selector takes every StatefulSet of the namespace",
            code=PolicyRefusalCode.EMPTY_SELECTOR,
        )
    _check_length(".matchLabels", selector.labels)
    _check_length(".matchExpressions", selector.terms)
    for place, term in enumerate(selector.terms):
        _check_length(f".matchExpressions[{place}].values", term.values)
    try:
        check_selector(selector)
    except SelectorRefused as error:
        raise _Refused(str(error), below=error.below) from error
    return selector


def _check_length(path: str, items: Collection[object]) -> None:
    """Refuse more than any real selector has: each is compared with every StatefulSet."""
    if len(items) > _MOST_TERMS:
        raise _Refused(f"it has {len(items)} items, at most {_MOST_TERMS}", below=path)


def _parse_maximum(value: object) -> IntOrPercent:
    """Return the value; a number may come in quotes, without sign and blanks."""
    digits = str(value) if isinstance(value, str | int) else ""
    if not digits.removesuffix("%").isdecimal():
        raise InvalidInput(
            f"{show_value(value)} is neither an integer from 1 nor a share from 1% to 100%"
        )
    return parse_max_unavailable(digits)


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


def _as_map(value: object) -> _Fields:
    if not isinstance(value, dict):
        raise InvalidInput(f"{show_value(value)} is no object")
    return value
