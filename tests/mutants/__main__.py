"""`python -m tests.mutants [names] [--jobs N]`: deliberate errors, in the simulation.

Exit code 1 where it sees too few of them.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

from tests.mutants.entry import CATALOGUE, Mutant, OutOfDate, read_sources
from tests.mutants.runner import SCHEDULES, Budget, Result, Runner, copied

# In hundredths: so many mutants at least must be found.
WANTED_SHARE: Final = 95


def main(words: Sequence[str]) -> int:
    """Run the mutants that are named, or all; return the exit code."""
    parser = _make_parser()
    given = parser.parse_args(words)
    if unknown := [name for name in given.names if name not in CATALOGUE]:
        parser.error(f"no mutant is called {', '.join(unknown)}: --list has their names")
    mutants = [CATALOGUE[name] for name in given.names] or list(CATALOGUE.values())
    if given.list:
        _print("\n".join(f"{mutant.name}: {mutant.breaks}" for mutant in mutants))
        return 0
    budget = Budget(schedules=given.schedules, has_plans=not given.no_plans)
    begin = time.monotonic()
    try:
        results = run_all(mutants, budget, given.jobs)
    except OutOfDate as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _print(f"{render_total(results)} minutes={(time.monotonic() - begin) / 60:.1f}")
    return 0 if is_enough(results) else 1


def run_all(mutants: Sequence[Mutant], budget: Budget, jobs: int | None = None) -> list[Result]:
    """Judge all mutants, `jobs` at a time, and report each as it ends. Raises OutOfDate."""
    results: list[Result] = []
    with copied() as base, ThreadPoolExecutor(jobs or os.cpu_count()) as threads:
        sources = read_sources(base)
        for mutant in mutants:  # before any of them takes its time
            mutant.change(sources)
        runner = Runner(base, budget)
        for done in as_completed([threads.submit(runner.judge, mutant) for mutant in mutants]):
            results.append(done.result())
            _print(results[-1].render())
    return results


def render_total(results: Sequence[Result]) -> str:
    """Return the line by which runs are compared."""
    found = sum(result.is_found for result in results)
    return (
        f"mutants={len(results)} found={found} survived={len(results) - found}"
        f" share={found * 100 / len(results):.1f}%"
    )


def is_enough(results: Sequence[Result]) -> bool:
    """Return whether enough mutants are found."""
    return sum(result.is_found for result in results) * 100 >= WANTED_SHARE * len(results)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", metavar="name", help="only these; all by default")
    parser.add_argument("--jobs", type=int, help="at a time; as many as cores by default")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help="for each mutant")
    parser.add_argument("--no-plans", action="store_true", help="random schedules only")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    return parser


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
