"""JSON of an object of our kinds → the status that it shows, or what it has recorded.

Decides what of a status is believed: any client that may write it may have. That of a budget is for
people; what is no status of ours is taken for an empty status, and replaced. That of a
MultiAZRollout is read to decide, and each field by itself: a field that is none of ours is as if it
were lost, with a reason, and the others count. Times may lie in the future; what that means is
decided in `planning.policies.batches`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import UnsetType
from msgspec.structs import fields

from rollout_operator.model.budget import BudgetStatus, ShownStatus
from rollout_operator.model.decode.budget import KIND as BUDGET_KIND
from rollout_operator.model.decode.excerpt import LONGEST_VALUE, Fields
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.policy import KIND as POLICY_KIND
from rollout_operator.model.decode.policy import decode_policy
from rollout_operator.model.decode.wire import JsonBytes, Required, Wire
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import Uid
from rollout_operator.model.policy.plan import MOST_BATCHES
from rollout_operator.model.policy.status import PolicyStatus, RecordedBatch
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.model.units import parse_rfc3339

_NOTHING: Final = msgspec.Raw(b"null")

# Of a policy over a thousand StatefulSets all zones take 200 KiB, and a batch of a thousand pods
# 100 KiB. An object of more than 1.5 MiB is stored nowhere.
_LONGEST_LIST: Final = 1 << 20
_LISTS: Final = frozenset({"zones", "lastBatch", "conditions", "unknownZones"})

_NAMES: Final = {field.encode_name: field.name for field in fields(PolicyStatus)}
_READ: Final = Fields(
    {
        "status": Fields(
            {name: _LONGEST_LIST if name in _LISTS else LONGEST_VALUE for name in _NAMES}
        )
    }
)


class _Head(Wire):
    name: Required
    uid: Required
    resource_version: str = ""


class _Shown(Wire):
    metadata: _Head
    kind: str | None = None
    status: msgspec.Raw = _NOTHING


class _Excerpt(Wire):
    status: dict[str, msgspec.Raw] | None = None


_SHOWN: Final = msgspec.json.Decoder(_Shown)
_BUDGET_STATUS: Final = msgspec.json.Decoder(BudgetStatus | None)
_EXCERPT: Final = msgspec.json.Decoder(_Excerpt)
_POLICY_STATUS: Final = msgspec.json.Decoder(PolicyStatus)


def decode_budget_status(raw: JsonBytes) -> ShownStatus:
    """Return the status of a budget. Raises DecodeError where it has no name."""
    wire = read_as(BUDGET_KIND, raw, _SHOWN)
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
        resource_version=read_as(POLICY_KIND, raw, _SHOWN).metadata.resource_version,
        policy=policy,
        status=status,
        problems=problems,
    )


def _read_status(raw: JsonBytes) -> tuple[PolicyStatus, tuple[str, ...]]:
    try:
        parts = _EXCERPT.decode(_READ.excerpt(raw, 2 * _LONGEST_LIST)).status or {}
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
    """Yield what must be a time: the API server would refuse a status that has it still."""
    times = [status.start_time, status.completion_time, status.next_batch_time]
    if isinstance(status.last_batch, RecordedBatch):
        times += [status.last_batch.start_time, status.last_batch.completion_time]
    times += [condition.last_transition_time for condition in status.conditions]
    return (time for time in times if not isinstance(time, UnsetType))
