"""JSON of a ZoneAwarePodDisruptionBudget → the status that it shows.

Anybody may have written that: what is no status of ours is taken for an empty one, and replaced.
"""

from typing import Final

import msgspec

from rollout_operator.model.budget import BudgetStatus, ShownStatus
from rollout_operator.model.decode.budget import KIND
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import JsonBytes, Required, Wire
from rollout_operator.model.names import Uid

_NOTHING: Final = msgspec.Raw(b"null")


class _Head(Wire):
    name: Required
    uid: Required


class _Wire(Wire):
    metadata: _Head
    kind: str | None = None
    status: msgspec.Raw = _NOTHING


_DECODER: Final = msgspec.json.Decoder(_Wire)
_STATUS: Final = msgspec.json.Decoder(BudgetStatus | None)


def decode_budget_status(raw: JsonBytes) -> ShownStatus:
    """Return the status of a budget. Raises DecodeError where it has no name."""
    wire = read_as(KIND, raw, _DECODER)
    return ShownStatus(
        name=wire.metadata.name, uid=Uid(wire.metadata.uid), status=_read_status(wire.status)
    )


def _read_status(raw: msgspec.Raw) -> BudgetStatus:
    try:
        return _STATUS.decode(raw) or BudgetStatus()
    except (msgspec.MsgspecError, RecursionError):
        return BudgetStatus()
