"""JSON of a RolloutGate → `ReleaseGate`. One that cannot be read does not pass."""

from typing import Final

import msgspec

from rollout_operator.model.decode.releases.head import read_body, read_head
from rollout_operator.model.decode.wire import JsonBytes, Wire
from rollout_operator.model.errors import DecodeError
from rollout_operator.model.releases.gate import ReleaseGate

KIND: Final = "RolloutGate"


class _RolloutRef(Wire):
    name: str = ""


class _Named(Wire):
    rollout_ref: _RolloutRef


class _WithName(Wire):
    spec: _Named


class _Spec(Wire):
    passing: bool | None = None
    allowed_versions: list[str] | None = None


class _WithSpec(Wire):
    spec: _Spec


_NAME: Final = msgspec.json.Decoder(_WithName)
_SPEC: Final = msgspec.json.Decoder(_WithSpec)


def decode_gate(raw: JsonBytes) -> ReleaseGate:
    """Return a gate. Raises DecodeError where it does not even say which Rollout it holds."""
    head = read_head(KIND, raw).head
    rollout = read_body(KIND, raw, _NAME).spec.rollout_ref.name
    try:
        spec = read_body(KIND, raw, _SPEC).spec
    except DecodeError as error:
        return ReleaseGate(head=head, rollout=rollout, is_passing=False, problem=str(error))
    allowed = spec.allowed_versions
    return ReleaseGate(
        head=head,
        rollout=rollout,
        is_passing=spec.passing is not False,
        allowed_versions=None if allowed is None else tuple(allowed),
    )
