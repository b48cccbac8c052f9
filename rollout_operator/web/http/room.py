"""Memory for the bodies of large reviews: which of them may take more of it, and which must wait.

Decides by what has arrived, never by what was announced. Where the room is used up, bodies wait
with what they have; one of them goes on, so that half of each never keeps all from being whole.
"""

import asyncio
from collections.abc import Callable
from typing import Final

# A body that waits still has its first 64 KiB, and as much again in the buffers of its connection.
MAX_WAITING: Final = 32


class RoomFullError(Exception):
    """There is no room, and too many bodies wait for it already."""


class RoomShare:
    """What one body takes of the room. It gives all back when `leave` was called by each holder."""

    __slots__ = ("_holders", "_room", "announced", "size")

    def __init__(self, room: "Room", announced: int) -> None:
        self._room = room
        self._holders = 1
        self.announced = announced
        self.size = 0

    async def take(self, size: int) -> None:
        """Take so much more, when there is room. Raises RoomFullError."""
        await self._room.take(self, size)

    def hold(self) -> Callable[[object], None]:
        """Keep the share for one holder more; return how that one leaves."""
        self._holders += 1
        return lambda _: self.leave()

    def leave(self) -> None:
        """Give up the share for one holder."""
        self._holders -= 1
        if not self._holders:
            self._room.take_back(self)


class Room:
    """So many bytes at a time, for bodies of at most `largest` each."""

    def __init__(self, most: int, *, largest: int) -> None:
        # Any body can become whole in what is left beyond that.
        self._common = most - largest
        self._used = 0
        self._favourite: RoomShare | None = None
        self._waiting: dict[RoomShare, tuple[int, asyncio.Future[None]]] = {}

    @property
    def used(self) -> int:
        """Return how many bytes are taken."""
        return self._used

    @property
    def is_crowded(self) -> bool:
        """Tell whether bodies wait."""
        return bool(self._waiting)

    def enter(self, announced: int) -> RoomShare:
        """Return the share of a body that takes nothing yet."""
        return RoomShare(self, announced)

    async def take(self, share: RoomShare, size: int) -> None:
        """Give a share so much more. Raises RoomFullError."""
        if self._give(share, size):
            return
        if len(self._waiting) >= MAX_WAITING:
            raise RoomFullError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[share] = (size, turn)
        try:
            await turn
        finally:
            self._waiting.pop(share, None)

    def take_back(self, share: RoomShare) -> None:
        """End a share, and let those go on that can."""
        self._used -= share.size
        share.size = 0
        if self._favourite is share:
            self._favourite = None
        # The one that lacks least is through soonest, and then there is more room.
        for waiting in sorted(self._waiting, key=lambda one: one.announced - one.size):
            size, turn = self._waiting[waiting]
            if not turn.done() and self._give(waiting, size):
                del self._waiting[waiting]
                turn.set_result(None)

    def _give(self, share: RoomShare, size: int) -> bool:
        if self._used + size > self._common:
            self._favourite = self._favourite or share
            if self._favourite is not share:
                return False
        self._used += size
        share.size += size
        return True
