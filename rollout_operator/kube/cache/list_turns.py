"""Wait for the token of the next list while the watch goes on.

Lists are less urgent than what rollouts do: under the limits of a busy process a token may be half
a minute away, and a cache without a stream would be as old by then. So the stream is kept until the
list can be sent. When a list is due, and what it replaces, is left to the informer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from rollout_operator.model.errors import ApiError


class ListTurn:
    """The token of one list: asked for while a watch goes on, used once."""

    def __init__(self, wait: Callable[[], Awaitable[None]], on_token: Callable[[], None]) -> None:
        """`wait` may raise ApiError; `on_token` is called as soon as the token is there."""
        self._wait = wait
        self._on_token = on_token
        self._is_asked = False
        self._asked = asyncio.Event()
        self._settled = asyncio.Event()
        self._error: ApiError | None = None

    @property
    def is_settled(self) -> bool:
        """Tell whether the wait that was asked for is over: `take` waits no more."""
        return self._settled.is_set()

    def ask(self) -> None:
        """Begin to wait, unless that goes on already."""
        if not self._is_asked:
            self._is_asked = True
            self._asked.set()

    async def take(self) -> bool:
        """Wait for the token that was asked for; False where none was.

        Raises ApiError where the rate limits gave none.
        """
        if not self._is_asked:
            return False
        await self._settled.wait()
        error, self._error = self._error, None
        self._settled.clear()
        self._is_asked = False
        if error is not None:
            raise error
        return True

    async def run(self) -> NoReturn:
        """Wait for what is asked for until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self._wait()
            except ApiError as error:
                # The watch goes on to its end: without a token there is nothing to drop it for.
                self._error = error
                self._settled.set()
            else:
                self._settled.set()
                self._on_token()
