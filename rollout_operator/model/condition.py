"""One condition in the `status` of an object of ours, as it is written and as it is described."""

from datetime import datetime
from typing import Annotated

import msgspec

Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time without a zone is refused where a description is read: it compares with no other."""


class StatusCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition, as Kubernetes has them."""

    type: str
    status: str
    """`True` or `False`."""
    reason: str = ""
    """One of our codes in CamelCase, such as `DisruptionBudgetUsed`."""
    message: str = ""
    last_transition_time: str = ""
    """When `status` changed last, as RFC 3339."""
    observed_generation: int = 0


class ConditionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of a status, for people."""

    type: str
    is_true: bool
    reason: str
    message: str
    since: Time | None = None
