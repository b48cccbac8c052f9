"""`python -m tests.mutants.automatic`: a sample of automatic mutants; how many does who kill?

Each is judged by the unit tests of its area first, then by the tests of what is built on it,
then by random schedules of the simulation: the first suite that sees it has killed it.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from tests.mutants.forked import Order, Verdict
from tests.mutants.runner import copied
from tests.mutants.sample import AREAS, Automatic, write_sample

SIZE: Final = 500
SEED: Final = 1
SCHEDULES: Final = 70
SECONDS: Final = 30.0
UNITS: Final = ("tests/planning", "tests/guards", "tests/controllers", "tests/models")
STORIES: Final = ("tests/web/budgets", "tests/web/downscales")
WIDER: Final = (*STORIES, "tests/web/reviews", "tests/operator", "tests/simulation")
SUITES: Final = ("units", "wider", "schedules")
PYTEST: Final = (
    *("-p", "tests.mutants.forked", "-p", "no:cacheprovider", "-q", "--tb=no"),
    *("-m", "not controlplane and not slow", "--hypothesis-seed=0"),
)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """An automatic mutant, and what each suite said of it."""

    mutant: Automatic
    verdicts: dict[str, Verdict]

    @property
    def killer(self) -> str:
        """Return the suite that kills it; empty where it survives."""
        return next((suite for suite, verdict in self.verdicts.items() if verdict.by), "")


def main(words: Sequence[str]) -> int:
    """Do what the words request."""
    given = parse(words)
    begin = time.monotonic()
    judged = judge(given)
    _print(render_rate(judged))
    _print("\n\n".join(each.mutant.text for each in judged if not each.killer))
    _print(f"minutes={(time.monotonic() - begin) / 60:.1f}")
    return 0


def judge(given: argparse.Namespace) -> list[Judged]:
    """Draw the sample and run the suites on it."""
    units = given.tests or UNITS
    with copied() as base, TemporaryDirectory(prefix="verdicts-") as name:
        mutants = write_sample(base, given.area or AREAS, given.sample, given.seed)
        verdicts: dict[str, dict[str, Verdict]] = {mutant.name: {} for mutant in mutants}
        for suite in given.suite or SUITES:
            left = [m for m in mutants if not any(v.by for v in verdicts[m.name].values())]
            order = Order(
                mutants=left,
                verdicts=str(Path(name) / f"{suite}.jsonl"),
                seconds=given.seconds,
                jobs=given.jobs,
                schedules=given.schedules,
            )
            path = Path(name) / f"{suite}.json"
            path.write_bytes(msgspec.json.encode(order))
            folders = units if suite == "units" else WIDER
            for verdict in request(base, path, [] if suite == "schedules" else folders):
                verdicts[verdict.name][suite] = verdict
            judged = [Judged(mutant=mutant, verdicts=verdicts[mutant.name]) for mutant in mutants]
            given.output.write_bytes(msgspec.json.format(msgspec.json.encode(judged), indent=1))
    return judged


def request(base: Path, order: Path, folders: Sequence[str]) -> list[Verdict]:
    """Have the tests of some folders judge the mutants of an order, or random schedules."""
    words = ["pytest", *PYTEST, "--mutants", str(order), *folders]
    if not folders:
        words = ["tests.mutants.forked", str(order)]
    path = os.pathsep.join((str(base), str(base / "lab")))
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=base, env=environ, check=False, stdout=sys.stderr
    )
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(folders) or 'schedules'}: exit code {done.returncode}")
    lines = order.with_suffix(".jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Verdict) for line in lines]


def render_rate(judged: Sequence[Judged]) -> str:
    """Return how many are killed, and by which suites."""
    by = [f"{sum(each.killer == suite for each in judged)} by {suite}" for suite in SUITES]
    killed = sum(bool(each.killer) for each in judged)
    share = killed * 100 / max(len(judged), 1)
    return f"killed {killed} of {len(judged)} = {share:.1f}%, {', '.join(by)}"


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.automatic")
    parser.add_argument("--area", action="append", help="folder below the package")
    parser.add_argument("--sample", type=int, default=SIZE, help="how many mutants")
    parser.add_argument("--seed", type=int, default=SEED, help="another one is another sample")
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this one")
    parser.add_argument("--tests", action="append", help="folder or file of the unit tests")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests for a mutant")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help="for a mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--output", type=Path, default=Path("mutants.json"))
    return parser.parse_args(words)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
