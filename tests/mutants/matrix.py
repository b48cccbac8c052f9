"""`python -m tests.mutants.matrix`: which tests alone kill which automatic mutants of a folder?

Each mutant of a sample is judged by every test that calls its function, not up to the first that
fails. `--show` prints an earlier result, `--compare` two of them, of which the second may be the
first without some test files. The same seed draws the same mutants of the same package.
"""

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.code_rules import ROOT
from tests.mutants.automatic import STORIES, UNITS, request
from tests.mutants.forked import Order, Profile
from tests.mutants.runner import copied
from tests.mutants.sample import AREAS, Automatic, write_sample

SIZE: Final = 60
SEED: Final = 1
SECONDS: Final = 300.0
# Schedules stay whatever the matrix shows, and call everything.
USUAL: Final = (*UNITS, *STORIES, "tests/web/reviews", "tests/operator")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A mutant, and the tests that fail with it."""

    mutant: Automatic
    killers: list[str]
    is_cut: bool
    """Some tests were not tried."""


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    rows: list[Row]
    seconds: dict[str, float]
    """What each test takes that calls a function with a mutant."""

    def without(self, paths: Collection[str]) -> "Matrix":
        """Return it as it would be without the tests of some files or folders."""

        def stays(test: str) -> bool:
            return not any(
                _name_file(test) == path or test.startswith(f"{path}/") for path in paths
            )

        return Matrix(
            rows=[replace(row, killers=[*filter(stays, row.killers)]) for row in self.rows],
            seconds={test: seconds for test, seconds in self.seconds.items() if stays(test)},
        )


def main(words: Sequence[str]) -> int:
    """Judge a sample, or print earlier results."""
    given = parse(words)
    without = [path.rstrip("/") for path in given.without]
    if given.compare:
        old, new = map(_load, given.compare)
        text = compare(old, new.without(without))
    elif given.show:
        text = render(_load(given.show).without(without))
    else:
        text = render(judge(given).without(without))
    sys.stdout.write(f"{text}\n")
    return 0


def judge(given: argparse.Namespace) -> Matrix:
    """Draw a sample, run all tests on it, and keep the result in a file."""
    areas = given.area or AREAS
    own = (f"tests/{area.removeprefix('lab/rollout_').partition('/')[0]}" for area in areas)
    with copied() as base, TemporaryDirectory(prefix="matrix-") as name:
        for path in ROOT.iterdir():  # manifests and documents, which some tests read
            if not path.name.startswith(".") and not (base / path.name).exists():
                (base / path.name).symlink_to(path)
        tests = given.tests or [*dict.fromkeys(p for p in (*own, *USUAL) if (base / p).exists())]
        mutants = write_sample(base, areas, given.sample, given.seed)
        file = Path(name) / "order.json"
        order = Order(
            mutants=mutants,
            verdicts=str(file.with_suffix(".jsonl")),
            seconds=given.seconds,
            jobs=given.jobs,
            wants_all=True,
        )
        file.write_bytes(msgspec.json.encode(order))
        verdicts = {verdict.name: verdict for verdict in request(base, file, tests)}
        profile = msgspec.json.decode(order.profile.read_bytes(), type=Profile)
    calling = {test for mutant in mutants for test in profile.callers.get(mutant.place, [])}
    matrix = Matrix(
        rows=[
            Row(mutant=m, killers=verdicts[m.name].killers, is_cut=verdicts[m.name].is_cut)
            for m in mutants
        ],
        seconds={test: profile.seconds[test] for test in sorted(calling)},
    )
    given.output.write_bytes(msgspec.json.format(msgspec.json.encode(matrix), indent=1))
    return matrix


def render(matrix: Matrix) -> str:
    """Return what survives, the smallest set, and of files and tests what they (alone) kill."""
    smallest = cover(matrix)
    killers = {test for row in matrix.rows for test in row.killers}
    return "\n".join(
        [
            *(f"survives: {row.mutant.text}" for row in matrix.rows if not row.killers),
            f"{render_rate(matrix)} by {len(killers)} of {len(matrix.seconds)} tests,"
            f" of which these {len(smallest)} kill as many:",
            *(f"{added:5} {test}" for test, added in smallest.items()),
            *_render_alone(matrix, _name_file),
            *_render_alone(matrix, str),
            *_render_table(matrix, "file", _name_file),
            *_render_table(matrix, "test", str),
        ]
    )


def render_rate(matrix: Matrix) -> str:
    """Return how many are killed, and how many could be killed by more tests than is known."""
    killed = sum(bool(row.killers) for row in matrix.rows)
    cut = sum(row.is_cut for row in matrix.rows)
    more = f", {cut} not tried with all tests" if cut else ""
    return f"killed {killed} of {len(matrix.rows)}{more}"


def cover(matrix: Matrix) -> dict[str, int]:
    """Return a smallest set of tests with the same kills, greedily, and what each of them adds."""
    left = [{*row.killers} for row in matrix.rows if row.killers]
    chosen: dict[str, int] = {}
    while left:
        counts = Counter(test for killers in left for test in killers)
        best = min(counts, key=lambda test: (-counts[test], matrix.seconds.get(test, 0.0), test))
        chosen[best] = counts[best]
        left = [killers for killers in left if best not in killers]
    return chosen


def compare(old: Matrix, new: Matrix) -> str:
    """Return which mutants only one of two results has killed, and by what."""
    by_key = [{_key(row.mutant): row for row in matrix.rows} for matrix in (old, new)]
    both = [(row, by_key[1][key]) for key, row in by_key[0].items() if key in by_key[1]]
    only = [
        [row for row, other in pairs if row.killers and not other.killers]
        for pairs in (both, [(second, first) for first, second in both])
    ]
    lines = [
        f"A: {render_rate(old)}; B: {render_rate(new)}; {len(both)} mutants are the same;"
        f" killed by both {sum(bool(a.killers and b.killers) for a, b in both)},"
        f" only by A {len(only[0])}, only by B {len(only[1])}"
    ]
    for name, rows in zip("AB", only, strict=True):
        for row in rows:
            more = f" and {len(row.killers) - 1} more" if row.killers[1:] else ""
            lines.append(f"only {name}: {row.mutant.text}\n  by {row.killers[0]}{more}")
    return "\n".join(lines)


def _render_alone(matrix: Matrix, name: Callable[[str], str]) -> Iterator[str]:
    for row in matrix.rows:
        killers = {name(test) for test in row.killers}
        if len(killers) == 1:
            yield f"only {killers.pop()}: {row.mutant.text}"


def _render_table(matrix: Matrix, head: str, name: Callable[[str], str]) -> Iterator[str]:
    """Yield what tests with a name in common kill, and what nothing else kills."""
    tests = Counter(map(name, matrix.seconds))
    seconds: defaultdict[str, float] = defaultdict(float)
    for test, took in matrix.seconds.items():
        seconds[name(test)] += took
    by_row = [{*map(name, row.killers)} for row in matrix.rows]
    kills = Counter(each for killers in by_row for each in killers)
    alone = Counter(each for killers in by_row if len(killers) == 1 for each in killers)
    yield f"kills alone tests seconds {head}"
    for each in sorted(tests, key=lambda each: (-alone[each], -kills[each], each)):
        yield f"{kills[each]:5} {alone[each]:5} {tests[each]:5} {seconds[each]:7.1f} {each}"


def _name_file(test: str) -> str:
    return test.partition("::")[0]


def _key(mutant: Automatic) -> tuple[str, str, str]:
    """Return what is the same of a mutant after changes of other functions."""
    return mutant.file, mutant.function, mutant.diff


def _load(path: Path) -> Matrix:
    return msgspec.json.decode(path.read_bytes(), type=Matrix)


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.matrix")
    parser.add_argument("--area", action="append", help="folder or module of the package")
    parser.add_argument("--sample", type=int, default=SIZE, help="how many mutants")
    parser.add_argument(
        "--tests", action="append", help="folder or file; usually those that use it"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="another one is another sample")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests for a mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--output", type=Path, default=Path("matrix.json"), help="the result")
    parser.add_argument("--show", type=Path, help="print the result of an earlier run")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"), help="two results")
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        help="leave out these test files, of B if two are compared",
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
