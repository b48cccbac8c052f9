"""Make a failing schedule small: fewer faults, then fewer pods and zones, the same broken promise.

Every step is a run of its own, so their number is bounded. The result need not be the smallest; it
is one from which nothing can be taken away that was tried.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.simulation.runs import Outcome
from tests.simulation.scenarios import SMALL, Size
from tests.simulation.scenarios_book import MAKERS, get_scenario
from tests.simulation.schedule import run

MOST_RUNS: Final = 150


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, as the command line names it."""

    scenario: str
    seed: int
    size: Size | None = None
    """None is the scenario's own."""
    only: frozenset[int] | None = None
    """Numbers of the faults that may happen; None are all."""

    @property
    def command(self) -> str:
        words = ["python -m tests.simulation run", f"--scenario {self.scenario}"]
        words.append(f"--seed {self.seed}")
        if self.size is not None:
            words.append(f"--size {self.size.text}")
        if self.only is not None:
            numbers = ",".join(str(number) for number in sorted(self.only))
            words.append(f"--only {numbers or 'none'}")
        return " ".join(words)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has broken, and the numbers of the faults that struck in it."""

    invariants: frozenset[str]
    numbers: tuple[int, ...]


Try = Callable[[Case], Failure | None]


def run_case(case: Case, *, listens: bool = False) -> Outcome:
    scenario = get_scenario(case.scenario, case.size)
    return run(scenario, case.seed, only=case.only, listens=listens)


def find_failure(case: Case) -> Failure | None:
    """Run a case and return what it has broken, None where nothing."""
    outcome = run_case(case)
    broken = frozenset(each.invariant for each in outcome.verdict.violations)
    if not broken and outcome.verdict.undetermined:
        broken = frozenset({"undetermined"})
    return Failure(invariants=broken, numbers=outcome.numbers) if broken else None


def shrink(case: Case, try_case: Try = find_failure, most_runs: int = MOST_RUNS) -> Case:
    """Return a smaller case that breaks one of the promises that this one breaks, or this one."""
    bounded = _Bounded(try_case, most_runs)
    failure = bounded.fails_as(case, None)
    if failure is None:
        return case
    return _Shrinker(bounded, failure.invariants).shrink(case, failure)


@dataclass
class _Bounded:
    """Runs cases until a number of runs is used up, and then finds no more failures."""

    _try_case: Try
    _left: int

    def fails_as(self, case: Case, invariants: frozenset[str] | None) -> Failure | None:
        """Return the failure of a case, if it is one of these; None requests any."""
        if self._left == 0:
            return None
        self._left -= 1
        failure = self._try_case(case)
        if failure is None or (invariants is not None and not failure.invariants & invariants):
            return None
        return failure


@dataclass
class _Shrinker:
    _runs: _Bounded
    _invariants: frozenset[str]

    def shrink(self, case: Case, failure: Failure) -> Case:
        """Take faults away, then pods and zones, then faults again."""
        case = self._drop_faults(replace(case, only=frozenset(failure.numbers)))
        smaller = self._drop_size(case)
        return case if smaller == case else self._drop_faults(smaller)

    def _drop_faults(self, case: Case) -> Case:
        """Leave out parts of the faults, first halves, then smaller and smaller ones."""
        kept = sorted(case.only or ())
        parts = 1
        while kept and parts <= len(kept):
            shorter = self._leave_out(case, kept, parts)
            if shorter is None:
                parts = min(parts * 2, len(kept)) if parts < len(kept) else parts + 1
            else:
                kept, parts = shorter, max(parts - 1, 1)
        return replace(case, only=frozenset(kept))

    def _leave_out(self, case: Case, kept: list[int], parts: int) -> list[int] | None:
        """Return what is left without one of the parts, where that fails as well."""
        for part in _split(kept, parts):
            rest = [number for number in kept if number not in part]
            failure = self._runs.fails_as(replace(case, only=frozenset(rest)), self._invariants)
            if failure is not None:
                # Some of the rest may not even have struck this time.
                return [number for number in rest if number in failure.numbers]
        return None

    def _drop_size(self, case: Case) -> Case:
        size = case.size or MAKERS[case.scenario][1]
        for smaller in _smaller(size):
            # Other pods meet other faults: with the few that were needed, and with all of them.
            for only in (case.only, None):
                attempt = replace(case, size=smaller, only=only)
                failure = self._runs.fails_as(attempt, self._invariants)
                if failure is not None:
                    return self._drop_size(replace(attempt, only=frozenset(failure.numbers)))
        return case


def _smaller(size: Size) -> Iterator[Size]:
    if size.zones > SMALL.zones:
        yield Size(size.zones - 1, size.pods)
    if size.pods > SMALL.pods:
        yield Size(size.zones, size.pods - 1)


def _split(numbers: Sequence[int], parts: int) -> list[Sequence[int]]:
    length = -(-len(numbers) // parts)
    return [numbers[at : at + length] for at in range(0, len(numbers), length)]
