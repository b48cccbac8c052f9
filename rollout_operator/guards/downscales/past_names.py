"""What names of StatefulSets had whose objects are gone: volumes and pods may still be there.

Kept for an hour, and for a bounded number of names: which names are in the table is up to everybody
who may create a set. What falls out makes the table incomplete for as long as it would have stayed.
"""

import sys
from collections import OrderedDict
from datetime import timedelta
from typing import Final, NamedTuple

# What was in use before a downscale may hold data for as long: its volumes are still there. After
# that, nobody has relied on it for longer than a person works on a zone.
FORGOTTEN: Final = timedelta(hours=1)
# More names than a person deletes in an hour; of each, a few hundred bytes are kept.
MOST_NAMES: Final = 4096
# An ordinal above all that exist.
UNKNOWN: Final = sys.maxsize


class _Past(NamedTuple):
    end: int
    gone_at: timedelta


class PastNames:
    """Names without a set, and the ordinal from which on each had nothing lately."""

    def __init__(self, now: timedelta) -> None:
        self._names: OrderedDict[tuple[str, str], _Past] = OrderedDict()
        """The oldest first."""
        self._complete_since = now

    def __len__(self) -> int:
        return len(self._names)

    def is_complete(self, now: timedelta) -> bool:
        """Tell whether a name that is not here had nothing lately."""
        return now - self._complete_since >= FORGOTTEN

    def lose_track(self, now: timedelta) -> None:
        """Note that sets and pods of any name may have been there until now."""
        self._complete_since = now

    def add(self, namespace: str, name: str, end: int, now: timedelta) -> None:
        """Keep that a name had something below an ordinal until now."""
        if not name:
            self.lose_track(now)
            return
        end = max(end, self.take(namespace, name, now))
        self._names[namespace, name] = _Past(end, now)
        self._drop(now)

    def take(self, namespace: str, name: str, now: timedelta) -> int:
        """Return the end of what a name had lately, 0 where it had nothing, and let go of it."""
        past = self._names.pop((namespace, name), None)
        return 0 if past is None or now - past.gone_at >= FORGOTTEN else past.end

    def _drop(self, now: timedelta) -> None:
        while self._names:
            oldest = next(iter(self._names.values()))
            if now - oldest.gone_at < FORGOTTEN:
                if len(self._names) <= MOST_NAMES:
                    return
                self._complete_since = max(self._complete_since, oldest.gone_at)
            self._names.popitem(last=False)
