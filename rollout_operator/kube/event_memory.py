"""What was reported of late: how many Events an object may still have, and which of them go on.

Bounded: what was used longest ago is forgotten first. An object that is forgotten may have
as many Events as a new object; an Event that is forgotten is written anew.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from datetime import timedelta
from enum import Enum, auto
from typing import Final, Generic, TypeVar

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.model.event import EventAction, EventRecord
from rollout_operator.model.names import Uid

# At most so many Events of an object at once, and one a minute after that, of each rank: a rollout
# reports each batch, and that must not crowd out that it has stopped, or is complete.
BURST: Final = 10
REFILL: Final = timedelta(minutes=1)
# Routine has more: a story of batches that breaks off in the middle is misread. Each has two, and
# takes a minute or so.
ROUTINE_BURST: Final = 40
ROUTINE_REFILL: Final = timedelta(seconds=15)
# A client that reaches the webhooks may have refusals of any pod reported, one after the other: all
# together they have this much, so that they neither fill the store nor crowd out other Events.
REFUSALS_BURST: Final = 100
REFUSALS_REFILL: Final = timedelta(seconds=2)
REFUSALS: Final = frozenset({EventAction.REFUSE_EVICTION, EventAction.REFUSE_DOWNSCALE})
# For how long an object has no second Event of an action: a drain repeats its requests every five
# seconds.
SPACINGS: Final[Mapping[EventAction, timedelta]] = {
    EventAction.REFUSE_EVICTION: timedelta(minutes=5)
}
MOST_OBJECTS: Final = 4096
# As client-go has it: the same Event within this time is the same series.
SERIES_LASTS: Final = timedelta(minutes=6)
# A note may have a kilobyte.
MOST_SERIES: Final = 1024


class EventRank(Enum):
    """The rank of an Event: each rank has room of its own for an object."""

    ROUTINE = auto()
    NORMAL = auto()
    WARNING = auto()


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """A mapping of what was used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return an entry, and count it as used now."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Take an entry in, and forget the entry that was used longest ago."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget an entry, if it is there."""
        self._entries.pop(key, None)


class _Allowance(msgspec.Struct):
    """How many Events there may still be: `most` at once, and one more each `refill`."""

    most: int
    refill: timedelta
    tokens: float
    filled_at: timedelta
    last: dict[EventAction, timedelta] = {}

    def has_room(self, now: timedelta) -> bool:
        gained = (now - self.filled_at) / self.refill
        self.tokens = min(self.tokens + gained, self.most)
        self.filled_at = now
        return self.tokens >= 1


class EventLimits:
    """How many Events each object may have, and refusals of reviews all together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: _Recent[tuple[Uid, EventRank], _Allowance] = _Recent(MOST_OBJECTS)
        self._refusals = self._make(REFUSALS_BURST, REFUSALS_REFILL)

    def __len__(self) -> int:
        return len(self._objects)

    def admit(self, uid: Uid, action: EventAction, rank: EventRank = EventRank.NORMAL) -> bool:
        """Return whether there is room for an Event of an object, and take it."""
        now, key = self._clock.elapsed(), (uid, rank)
        own = self._objects.get(key)
        if own is None:
            is_routine = rank is EventRank.ROUTINE
            own = self._make(*((ROUTINE_BURST, ROUTINE_REFILL) if is_routine else (BURST, REFILL)))
            self._objects.put(key, own)
        last, spacing = own.last.get(action), SPACINGS.get(action)
        if last is not None and spacing is not None and now - last < spacing:
            return False
        allowances = [own, self._refusals] if action in REFUSALS else [own]
        if not all(allowance.has_room(now) for allowance in allowances):
            return False
        for allowance in allowances:
            allowance.tokens -= 1
        own.last[action] = now
        return True

    def _make(self, most: int, refill: timedelta) -> _Allowance:
        return _Allowance(most, refill, tokens=most, filled_at=self._clock.elapsed())


class EventSeries(msgspec.Struct, frozen=True, kw_only=True):
    """An Event that was written, and how often it has happened."""

    name: str
    count: int
    last_at: timedelta
    """On the clock's `elapsed`."""


class SeriesMemory:
    """The Events that go on where the same happens again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: _Recent[EventRecord, EventSeries] = _Recent(MOST_SERIES)

    def __len__(self) -> int:
        return len(self._series)

    def find(self, event: EventRecord) -> EventSeries | None:
        """Return the series that goes on with this event, None where it begins a series."""
        series = self._series.get(event)
        if series is None or self._clock.elapsed() - series.last_at > SERIES_LASTS:
            return None
        return series

    def record(self, event: EventRecord, name: str, count: int) -> None:
        """Remember that it was written under this name as having happened so often."""
        series = EventSeries(name=name, count=count, last_at=self._clock.elapsed())
        self._series.put(event, series)

    def drop(self, event: EventRecord) -> None:
        """Forget an Event that the API server does not have any more."""
        self._series.drop(event)
