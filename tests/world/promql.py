"""PromQL as Prometheus evaluates it: its engine, built from source like the control plane.

`python -m tests.world.promql` builds it beforehand. Marked `controlplane` is what needs it.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.world.gobuild import GoProgram

PROMQL: Final = GoProgram(
    title="Prometheus' engine (half a minute beside the control plane's build)",
    sources=Path(__file__).parent.parent / "promql",
    parts=("promql",),
)


class Scrape(msgspec.Struct, frozen=True, kw_only=True):
    """A page of metrics, with the labels of its target."""

    at: int
    """Unix time."""
    page: str
    labels: Mapping[str, str] = {}


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """An expression with the times at which it is evaluated, all in seconds."""

    expression: str
    start: int
    end: int
    step: int = 30


class Series(msgspec.Struct, frozen=True, kw_only=True):
    labels: Mapping[str, str]
    times: Sequence[int]
    values: Sequence[str]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression returns, or what is wrong with it."""

    series: Sequence[Series] | None
    error: str


def evaluate(scrapes: Iterable[Scrape], queries: Iterable[Query]) -> list[Answer]:
    """Return what each query comes to, on nothing but these scrapes."""
    given = {"scrapes": list(scrapes), "queries": list(queries)}
    return msgspec.json.decode(PROMQL.answer(given), type=list[Answer])


if __name__ == "__main__":
    sys.stdout.write(f"{PROMQL.locate()}\n")
