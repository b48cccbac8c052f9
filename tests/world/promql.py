"""PromQL as Prometheus evaluates it: its engine, built from source like the control plane.

`python -m tests.world.promql` builds it beforehand. Marked `controlplane` is what needs it.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from tests.world.gobuild import Announce, GoProgram

PROMQL: Final = GoProgram(
    title="Prometheus' engine (half a minute beside the control plane's build)",
    sources=Path(__file__).parent.parent / "promql",
    parts=("promql",),
)
EVALUATION_LIMIT: Final = timedelta(seconds=120)


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


@cache
def locate_promql(announce: Announce = sys.stderr.write) -> Path:
    """Return the program, building it if need be. Raises NoGoError."""
    return PROMQL.find(announce) / PROMQL.parts[0]


def evaluate(scrapes: Iterable[Scrape], queries: Iterable[Query]) -> list[Answer]:
    """Return what each query comes to, on nothing but these scrapes."""
    given = {"scrapes": list(scrapes), "queries": list(queries)}
    done = subprocess.run(
        [locate_promql()],
        input=msgspec.json.encode(given),
        capture_output=True,
        timeout=EVALUATION_LIMIT.total_seconds(),
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Answer])


if __name__ == "__main__":
    sys.stdout.write(f"{locate_promql()}\n")
