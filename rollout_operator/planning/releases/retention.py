"""Which releases stay on record: those that may be deployed or gone back to, and not all for ever.

What stays is the newest part of the list, so that the order of announcements is kept.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from rollout_operator.model.releases.release import Release

# Each has some hundred bytes in the status, whose object must stay below 1.5 MiB.
MOST_RELEASES: Final = 1000


def retain_releases(
    available: Sequence[Release], deployed: Collection[str], *, horizon: datetime, least: int
) -> tuple[Release, ...]:
    """Return the releases that stay (REL-84).

    These are all since the oldest that is deployed, all after the newest that was created before
    `horizon`, and at least `least`.
    """
    first = len(available) - min(least, len(available))
    in_use = (place for place, one in enumerate(available) if one.tag in deployed)
    expired = (
        place
        for place, one in enumerate(available)
        if one.created is not None and one.created < horizon
    )
    first = min(first, next(in_use, first), max(expired, default=-1) + 1)
    return tuple(available[first:][-MOST_RELEASES:])
