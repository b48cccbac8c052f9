"""The list of sequences: each has a name, what it plays, and what it needs of its world."""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto

import msgspec

from tests.contract import sequences
from tests.contract.noise import TEXTS_OF_GO
from tests.contract.world import World

Play = Callable[[World], Awaitable[None]]


class Needs(Enum):
    """What must be at work besides the API server, and who may not."""

    API = auto()
    """No controllers: nothing changes but by the sequence itself. Many are played at once."""
    OBLIVION = auto()
    """As API, and the server forgets its past: when all that need it have said so."""
    CONTROLLERS = auto()
    """StatefulSet controller, garbage collector and kubelet. Many are played at once."""


class Sequence(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence of calls, to be played on both sides."""

    topic: str
    name: str
    play: Play
    needs: Needs

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"

    @property
    def has_texts(self) -> bool:
        """Return whether messages are compared too, and not only codes and reasons."""
        return str(self) not in TEXTS_OF_GO


_ALL: list[Sequence] = []


def sequence(topic: str, *, needs: Needs = Needs.API) -> Callable[[Play], Play]:
    """Add the decorated function to the list, under its own name."""

    def add(play: Play) -> Play:
        name = getattr(play, "__name__", "")
        _ALL.append(Sequence(topic=topic, name=name, play=play, needs=needs))
        return play

    return add


def add_each(table: Iterable[tuple[str, Play]], topic: str, needs: Needs = Needs.API) -> None:
    """Add sequences that differ in little, under names of their own."""
    _ALL.extend(Sequence(topic=topic, name=name, play=play, needs=needs) for name, play in table)


def list_sequences() -> list[Sequence]:
    """Return the sequences of all modules, by topic."""
    for module in pkgutil.iter_modules(sequences.__path__):
        importlib.import_module(f"{sequences.__name__}.{module.name}")
    return sorted(_ALL, key=lambda one: one.topic)
