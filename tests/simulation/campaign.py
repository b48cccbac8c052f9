"""Many schedules and plans on all cores, and what they add up to.

Seeds and scenarios are given out in a fixed order, so that the same number of schedules is the same
set of runs on every machine; only how long it takes differs. A run that broke a promise is shrunk
to the faults and the size that it takes.
"""

import gc
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.simulation.plans import Kind, Plan, list_plans, record, run_plan
from tests.simulation.runs import Outcome, run
from tests.simulation.scenarios import SMALL, Size
from tests.simulation.scenarios_book import MAKERS, get_scenario

# Given to a process at a time: so little that the last does not work alone for long.
CHUNK: Final = 8
ROTATION: Final = (
    *("s1", "s2", "s3", "s4", "s5", "s6", "s7", "s7-wide", "s10", "s11", "s12", "s13"),
    *("s14", "s14-watched", "s16", "s17", "s17-elected", "walk", "both"),
    *("s5-contested", "s5-edited", "s5-edited-tracked"),
    *("s5-tracked", "s7-tracked", "s8", "s8-two", "s8-turns", "s8-streamed", "s9", "s9-two"),
    *("s1-small", "s2-small", "s5-small", "s6-small", "s7-small", "both-small"),
    *("s8-small", "s9-small", "s5-slow"),
    *("p1", "p2", "p3", "p3-elected", "p4", "p5", "p5-elected"),
    *("r1", "r2", "r3", "r1-elected"),
    *("s1-left", "s7-left", "s8-left", "s9-left", "both-left", "p1-left"),
    *("s1-left-elected", "s8-left-elected", "both-left-elected", "p1-left-elected"),
    *("s1-elected", "s5-elected", "s7-elected", "s8-elected"),
)
SMALL_ONES: Final = ("s1-small", "s2-small", "s7-small", "s8-small", "r1-small")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run: a random schedule, or a plan."""

    scenario: str
    seed: int = 0
    plan: Plan | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one run once its history is thrown away."""

    job: Job
    violations: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    span: timedelta = timedelta(0)
    is_healed: bool = False
    trace_hash: str = ""
    cpu: timedelta = timedelta(0)
    """How long a core was busy with it."""

    @property
    def is_clean(self) -> bool:
        """Return whether it was judged in full and nothing was wrong."""
        return not self.violations and not self.undetermined

    @property
    def text(self) -> str:
        what = self.job.plan.text if self.job.plan is not None else f"seed {self.job.seed}"
        return "\n".join([f"{self.job.scenario}, {what}", *self.violations, *self.undetermined])


class Tally(msgspec.Struct):
    """The sums of a campaign."""

    schedules: int = 0
    plans: int = 0
    healed: int = 0
    violations: int = 0
    undetermined: int = 0
    span: timedelta = timedelta(0)
    cpu: timedelta = timedelta(0)
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    failed: list[Summary] = []

    def add(self, summary: Summary) -> None:
        if summary.job.plan is None:
            self.schedules += 1
            self.healed += summary.is_healed
        else:
            self.plans += 1
        self.violations += len(summary.violations)
        self.undetermined += len(summary.undetermined)
        self.span += summary.span
        self.cpu += summary.cpu
        self.faults.update(summary.faults)
        if not summary.is_clean:
            self.failed.append(summary)

    def render(self) -> str:
        """Return the line by which campaigns are compared."""
        counts = ",".join(f"{kind}={count}" for kind, count in sorted(self.faults.items()))
        each = self.cpu / timedelta(milliseconds=1) / max(self.schedules + self.plans, 1)
        return (
            f"schedules={self.schedules} plans={self.plans} violations={self.violations}"
            f" undetermined={self.undetermined} healed={self.healed}"
            f" virtual_days={self.span / timedelta(days=1):.1f} cpu_ms_each={each:.0f}"
            f" faults{{{counts}}}"
        )


def run_job(job: Job) -> Summary:
    begin = time.process_time()
    scenario = get_scenario(job.scenario)
    with _naming(job):
        outcome = run(scenario, job.seed) if job.plan is None else run_plan(scenario, job.plan)
    return Summary(
        job=job,
        violations=tuple(str(each) for each in outcome.verdict.violations),
        undetermined=outcome.verdict.undetermined,
        faults=outcome.faults,
        span=outcome.span,
        is_healed=outcome.is_healed,
        trace_hash=outcome.trace_hash,
        cpu=timedelta(seconds=time.process_time() - begin),
    )


def list_schedules(
    count: int, scenarios: Sequence[str] = ROTATION, first_seed: int = 1
) -> list[Job]:
    """Return random schedules, the scenarios in turn, every seed once."""
    return [
        Job(scenario=scenarios[seed % len(scenarios)], seed=seed)
        for seed in range(first_seed, first_seed + count)
    ]


def list_plan_jobs(scenario: str, kind: Kind) -> list[Job]:
    """Return all systematic plans of a kind for a scenario, which is run once to find them."""
    plans = list_plans(record(get_scenario(scenario)), kind)
    return [Job(scenario=scenario, plan=plan) for plan in plans]


def run_all(jobs: Iterable[Job], processes: int | None = None) -> Iterator[Summary]:
    """Run jobs on all cores, or on our share of them, and yield what became of them, as they end.

    The processes are new ones: a fork would take over locks of threads that it does not have.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes or _count_cores(), _begin_process) as pool:
        yield from pool.imap_unordered(run_job, jobs, CHUNK)


def list_unrepeatable(jobs: Sequence[Job], processes: int | None = None) -> list[Job]:
    """Run each job twice, mostly in two processes, and return those with two histories."""
    hashes: dict[Job, list[str]] = {job: [] for job in jobs}
    for summary in run_all([*jobs, *reversed(jobs)], processes):
        hashes[summary.job].append(summary.trace_hash)
    return [job for job, (first, second) in hashes.items() if first != second]


def _count_cores() -> int:
    """Return how many cores are ours: workers of pytest-xdist have one each, or a few."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max((os.cpu_count() or 1) // workers, 1)


@contextmanager
def _naming(job: Job) -> Iterator[None]:
    """Add to an error which run it broke: it may come from another process."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in {job}")
        raise


def _begin_process() -> None:
    """Let only the process in front end on Ctrl-C, and look for garbage seldom.

    A history keeps nearly all that a run makes: looking for garbage as often as by default takes a
    tenth of the time and finds none.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(50_000, 20, 100)


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


def shrink(case: Case) -> Case:
    """Return a smaller case that breaks one of the promises that this one breaks, or this one."""
    shrinker = _Shrinker()
    failure = shrinker.find(case)
    if failure is None:
        return case
    shrinker.invariants = failure.invariants
    return shrinker.shrink(case, failure)


@dataclass
class _Shrinker:
    _left: int = MOST_RUNS
    """How many cases may still be run; after that no more failures are found."""
    invariants: frozenset[str] | None = None
    """Of which one has to be broken; None for any."""

    def find(self, case: Case) -> Failure | None:
        """Run a case; return its failure, if it is one of those that are looked for."""
        if self._left == 0:
            return None
        self._left -= 1
        failure = find_failure(case)
        if failure is None or self.invariants is None:
            return failure
        return failure if failure.invariants & self.invariants else None

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
            failure = self.find(replace(case, only=frozenset(rest)))
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
                failure = self.find(attempt)
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
