"""How much of what others write may stand in the status of a Rollout.

An object has 1.5 MiB at most, and candidates repeat what the list of releases has: a status that is
too large is refused as a whole, and then not even a failure is on record. So each part has a bound
that only hostile texts and thousands of objects reach, and the newest stays.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from rollout_operator.model.releases.status import FailedHealthCheck, GateSummary

_Item = TypeVar("_Item")

MOST_OF_RELEASES: Final = 256 * 1024
"""Bytes; candidates may be as many again, before gates and after."""
MOST_OF_HISTORY: Final = 256 * 1024
MOST_OF_GATES: Final = 128 * 1024
MOST_FAILED: Final = 100
"""HealthChecks that an entry names, of which only the first have their message."""
_MOST_QUOTED: Final = 10
_MOST_ALLOWED: Final = 20
# No registry takes longer tags.
_LONGEST_TAG: Final = 128


def keep_first(items: Sequence[_Item], most: int) -> tuple[_Item, ...]:
    """Return the first items that have so many bytes together, and always one."""
    if _measure(items) <= most:
        return tuple(items)
    room, kept = most, list[_Item]()
    for item in items:
        room -= _measure(item)
        if kept and room < 0:
            break
        kept.append(item)
    return tuple(kept)


def keep_last(items: Sequence[_Item], most: int) -> tuple[_Item, ...]:
    """Return the last items."""
    return keep_first(items[::-1], most)[::-1]


def bound_gates(gates: tuple[GateSummary, ...]) -> tuple[GateSummary, ...]:
    """Return the summaries of gates: of too many those that are closed, then the first."""
    if _measure(gates) <= MOST_OF_GATES:
        return gates
    shorter = (_shorten(gate) for gate in gates)
    kept = keep_first(sorted(shorter, key=lambda gate: gate.passing is not False), MOST_OF_GATES)
    return tuple(sorted(kept, key=lambda gate: gate.name))


def bound_failed(failed: Sequence[FailedHealthCheck]) -> tuple[FailedHealthCheck, ...]:
    """Return what an entry says of the HealthChecks for which it failed."""
    quoted = failed[:_MOST_QUOTED]
    named = (
        msgspec.structs.replace(check, message=None) for check in failed[_MOST_QUOTED:MOST_FAILED]
    )
    return (*quoted, *named) if len(failed) > MOST_FAILED else tuple(failed)


def _shorten(gate: GateSummary) -> GateSummary:
    allowed = gate.allowed_versions
    if not allowed:
        return gate
    message = f"{gate.message}; it allows {len(allowed)} versions, of which the first are shown"
    shown = tuple(tag[:_LONGEST_TAG] for tag in allowed[:_MOST_ALLOWED])
    return msgspec.structs.replace(gate, allowed_versions=shown, message=message)


def _measure(part: object) -> int:
    return len(msgspec.json.encode(part))
