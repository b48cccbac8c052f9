"""JSON of a RolloutGate → `ReleaseGate`. A gate that cannot be read does not pass."""

from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.decode.releases.head import ReadHead, read_body, read_head
from rollout_operator.model.decode.wire import JsonBytes, Wire
from rollout_operator.model.errors import DecodeError
from rollout_operator.model.releases.rollout import GateOrigin, OwnerReference, ReleaseGate

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


class _Owned(Wire):
    owner_references: tuple[OwnerReference, ...] | None = None


class _WithOwners(Wire):
    metadata: _Owned


_NAME: Final = msgspec.json.Decoder(_WithName)
_SPEC: Final = msgspec.json.Decoder(_WithSpec)
_OWNERS: Final = msgspec.json.Decoder(_WithOwners)
_LABELS: Final = (
    *(names.SCHEDULE_NAME, names.SCHEDULE_NAMESPACE, names.SCHEDULE_KIND),
    *(names.GATED_ROLLOUT, names.MANAGED_BY),
)


def decode_gate(raw: JsonBytes) -> ReleaseGate:
    """Return a gate. Raises DecodeError where it does not even say which Rollout it holds."""
    read = read_head(KIND, raw)
    head, origin = read.head, _read_origin(read, raw)
    rollout = read_body(KIND, raw, _NAME).spec.rollout_ref.name
    try:
        spec = read_body(KIND, raw, _SPEC).spec
    except DecodeError as error:
        return ReleaseGate(
            head=head, rollout=rollout, is_passing=False, problem=str(error), origin=origin
        )
    allowed = spec.allowed_versions
    return ReleaseGate(
        head=head,
        rollout=rollout,
        is_passing=spec.passing is not False,
        allowed_versions=None if allowed is None else tuple(allowed),
        origin=origin,
    )


def _read_origin(read: ReadHead, raw: JsonBytes) -> GateOrigin:
    return GateOrigin(
        labels={key: read.labels[key] for key in _LABELS if key in read.labels},
        pretty_name=read.annotation(names.PRETTY_NAME),
        description=read.annotation(names.GATE_DESCRIPTION),
        owners=read_body(KIND, raw, _OWNERS).metadata.owner_references or (),
    )
