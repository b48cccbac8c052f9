"""What is written on a pod before it may be disrupted.

The record makes a grant visible to every process that counts pods, also to one that starts after
the crash of the one that gave it. It is bound to the pod's UID: a copy on another pod says nothing.
"""

from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Annotated

import msgspec
from msgspec import Meta

from rollout_operator.model.names import Uid


@unique
class DisruptionSource(StrEnum):
    """Who wants a pod to go."""

    EVICTION = "eviction"
    ROLLOUT = "rollout"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """That a pod may go."""

    uid: Uid
    """Of the pod."""
    by: str
    """The process that wrote it: no two of one namespace have the same name."""
    at: Annotated[datetime, Meta(tz=True)]
    """In the API server's time."""
    engine: DisruptionSource = DisruptionSource.EVICTION
    lasts: timedelta = timedelta(0)
    """How long after `at` the answer may still be acted upon."""
