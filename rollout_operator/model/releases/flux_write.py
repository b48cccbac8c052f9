"""Writes to objects of Flux: what is sent, as which field manager, and why."""

from collections.abc import Mapping
from enum import StrEnum, unique

import msgspec

from rollout_operator.model.releases.rollout import ReleaseHead


@unique
class FluxWriteCode(StrEnum):
    """Why an object of Flux is written."""

    VALUE_SET = "value_set"
    """There was no value."""
    VALUE_MOVED = "value_moved"
    """The Rollout wrote the value that was there, or a writer that left no name."""
    VALUE_TAKEN = "value_taken"
    """Another writer wrote the value that was there."""
    CHOICE_CLEARED = "choice_cleared"
    """The tag would not count beside it (RELB-14)."""
    VALUE_KEPT = "value_kept"
    """Before the Rollout lets go of a value that only it holds: the API server would remove it."""
    VALUE_RELEASED = "value_released"
    """No annotation gives it to the Rollout any more."""


@unique
class PatchMethod(StrEnum):
    """How an object is written."""

    APPLY = "application/apply-patch+yaml"
    """Server-side apply: of the fields that the manager holds, what is left out is let go."""
    MERGE = "application/merge-patch+json"


class FluxWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write to one object."""

    kind: str
    head: ReleaseHead
    manager: str
    method: PatchMethod
    body: Mapping[str, object]
    """Names the UID, so that it reaches no object of the same name, and creates none."""
    is_forced: bool
    """Whether fields are taken from other managers."""
    code: FluxWriteCode
    text: str
    """Names object, fields, values and the writers whose values go."""


class FluxWrites(msgspec.Struct, frozen=True, kw_only=True):
    """What one Rollout has to write, in this order; nothing where all is as it should be."""

    writes: tuple[FluxWrite, ...] = ()
    problems: tuple[str, ...] = ()
    """Annotations of the same objects that cannot be obeyed."""
