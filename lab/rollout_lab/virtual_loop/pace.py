"""How long the steps of controllers and kubelets take to come, and the timers that bring them."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

Range = tuple[timedelta, timedelta]


_AT_ONCE: Final[Range] = (timedelta(0), timedelta(0))
_SOON: Final[Range] = (timedelta(milliseconds=1), timedelta(milliseconds=20))
_QUICK: Final[Range] = (timedelta(milliseconds=5), timedelta(milliseconds=50))
_LAGGING: Final[Range] = (timedelta(milliseconds=5), timedelta(milliseconds=200))


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Spans from which each delay is drawn evenly: the least and the most."""

    controller: Range = _QUICK
    """From a change until the StatefulSet controller looks."""
    status: Range = _LAGGING
    """From what it does until its status is written; it does not look again in between."""
    controller_cache: Range = _AT_ONCE
    """How far what it looks at is behind, for each kind by itself."""
    scheduler: Range = _SOON
    """From a pod's creation until it has a node."""
    kubelet: Range = _SOON
    """From a change of a pod until its kubelet has noticed."""


def draw(rng: random.Random, span: Range) -> timedelta:
    """Return a span between the two ends."""
    return timedelta(seconds=rng.uniform(span[0].total_seconds(), span[1].total_seconds()))


class Timers:
    """Steps to come on the running loop; `stop` drops all that have not come yet."""

    def __init__(self) -> None:
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._given = 0
        self._is_stopped = False

    def after(self, span: timedelta, step: Callable[[], None]) -> int:
        """Let a step come after a span and return its number, for `cancel`."""
        self._given += 1
        number = self._given
        if not self._is_stopped:
            loop = asyncio.get_running_loop()
            seconds = max(span.total_seconds(), 0)
            self._handles[number] = loop.call_later(seconds, self._come, number, step)
        return number

    def cancel(self, number: int) -> None:
        """Drop a step, if it has not come yet."""
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.cancel()

    def stop(self) -> None:
        """Drop all steps; none is taken from now on."""
        self._is_stopped = True
        for number in list(self._handles):
            self.cancel(number)

    def _come(self, number: int, step: Callable[[], None]) -> None:
        del self._handles[number]
        step()
