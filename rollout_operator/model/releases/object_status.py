"""What an object of any kind says of itself, in the words of kstatus."""

from enum import StrEnum, unique

import msgspec


@unique
class ObjectStatus(StrEnum):
    """Whether an object is what its spec wants."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"


class StatusVerdict(msgspec.Struct, frozen=True):
    """What it is at, and why."""

    status: ObjectStatus
    text: str = ""
