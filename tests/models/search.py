"""Walk through all states of a model, breadth first, and answer questions about them.

A model is a start state and a function that lists the steps out of a state. States are hashable
values. The first bad state ends the walk with the shortest way there, one line a step.
"""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

import msgspec

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple):
    """What happens: who does it, what it is, to which object."""

    actor: str
    verb: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.actor}: {self.verb} {self.what}".rstrip()


Steps = Iterable[tuple[Step, S]]


class Model(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    start: S
    steps: Callable[[S], Steps[S]]
    name_fault: Callable[[S], str]  # what is wrong with a state, empty for nothing


class Fault(msgspec.Struct, Generic[S], frozen=True):
    """A bad state that can be reached."""

    text: str
    trace: tuple[Step, ...]
    state: S

    def __str__(self) -> str:
        lines = [f"{number:3} {step}" for number, step in enumerate(self.trace, 1)]
        return "\n".join([*lines, f"    {self.text}", f"    {self.state}"])


class Walk(msgspec.Struct, Generic[S]):
    """What was seen: states in the order of their distance, and the steps between them."""

    states: list[S] = []
    edges: list[list[tuple[Step, int]]] = []
    """By number of the state: the steps out of it, with the number of where they lead."""
    parents: list[int] = []
    fault: Fault[S] | None = None

    def trace(self, number: int) -> tuple[Step, ...]:
        steps: list[Step] = []
        while number:
            parent = self.parents[number]
            steps.append(next(step for step, to in self.edges[parent] if to == number))
            number = parent
        return tuple(reversed(steps))

    @property
    def verbs(self) -> frozenset[str]:
        return frozenset(step.verb for out in self.edges for step, _ in out)


def explore(model: Model[S], *, most: int = 1_000_000) -> Walk[S]:
    """Return all states of a model, or those up to the first bad one.

    Raises OverflowError where there are more than `most`: then nothing has been proven.
    """
    walk: Walk[S] = Walk()
    numbers: dict[S, int] = {}

    def enter(state: S, parent: int) -> int:
        number = numbers.setdefault(state, len(walk.states))
        if number == len(walk.states):
            walk.states.append(state)
            walk.parents.append(parent)
            walk.edges.append([])
        return number

    enter(model.start, 0)
    with _uncollected():
        for number, state in enumerate(walk.states):
            if text := model.name_fault(state):
                walk.fault = Fault(text, walk.trace(number), state)
                return walk
            if len(walk.states) > most:
                raise OverflowError(f"more than {most} states")
            walk.edges[number] += [(step, enter(to, number)) for step, to in model.steps(state)]
    return walk


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from looking at millions of tuples that all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def find_stuck(
    walk: Walk[S], is_goal: Callable[[S], bool], may_count: Callable[[Step], bool] = lambda _: True
) -> Fault[S] | None:
    """Return a state from which no goal can be reached, the nearest one; None where there is none.

    Only steps that `may_count` are taken: without those of a process, it is dead for ever.
    """
    before: list[list[int]] = [[] for _ in walk.states]
    for number, out in enumerate(walk.edges):
        for step, to in out:
            if may_count(step):
                before[to].append(number)
    reached = bytearray(len(walk.states))
    waiting = [number for number, state in enumerate(walk.states) if is_goal(state)]
    for number in waiting:
        reached[number] = 1
    while waiting:
        for number in before[waiting.pop()]:
            if not reached[number]:
                reached[number] = 1
                waiting.append(number)
    stuck = reached.find(0)
    if stuck < 0:
        return None
    return Fault("stuck for ever", walk.trace(stuck), walk.states[stuck])


def list_ends(walk: Walk[S]) -> Iterator[S]:
    return (state for state, out in zip(walk.states, walk.edges, strict=True) if not out)


def replaced(items: tuple[S, ...], place: int, item: S) -> tuple[S, ...]:
    return (*items[:place], item, *items[place + 1 :])
