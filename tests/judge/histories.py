"""Tables of histories that are built by hand, and what each of them breaks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec

import pytest

from tests.judge.builder import HistoryBuilder
from tests.judge.promises import Promises
from tests.judge.verdict import judge_book

_P = ParamSpec("_P")
Events = Callable[[HistoryBuilder], object]
"""What happens in one history."""


def as_events(events: Callable[Concatenate[HistoryBuilder, _P], object]) -> Callable[_P, Events]:
    """Have a function of a history, and of more, be called with what is more, for its events."""
    return lambda *args, **how: lambda t: events(t, *args, **how)


def cases(rows: Mapping[str, Events]) -> list[object]:
    """Return what happens and what it breaks; an id such as `two zones -> SI-01` says both."""
    return [
        pytest.param(events, name.partition(" -> ")[2].split(), id=name)
        for name, events in rows.items()
    ]


def list_broken(history: HistoryBuilder, promises: Promises | None = None) -> Sequence[str]:
    """Return the ids of what a history breaks, in order."""
    verdict = judge_book(history.history, promises or Promises())
    said = [f"{one}" for one in (*verdict.violations, *verdict.unpromised)]
    assert "None" not in " ".join(said), "all is said of what is found: when, of what, and why"
    return [violation.invariant for violation in verdict.violations]
