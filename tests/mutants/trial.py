"""`python -m tests.mutants.trial`: run the simulation on the package that is first on the path.

Runs in a process of its own, which may never come to an end: a mutant may make the operator spin.
Each job is reported before it begins, so that the parent process knows which job ended it.
"""

import argparse
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final

import msgspec

from tests.judge.promises import Verdict
from tests.simulation.campaign import Job, list_plan_jobs, list_schedules
from tests.simulation.faults import name_profile
from tests.simulation.plans import Kind, run_plan
from tests.simulation.runs import run
from tests.simulation.scenarios_book import get_scenario

# A job takes a fifth of a second; one that spins in no time of its own never ends.
JOB_SECONDS: Final = 30.0
MEMORY: Final = 3 * 2**30
# Of a scenario's plans every so many run, all kinds of steps among them.
PLAN_STEP: Final = 5
# One schedule in five has a fault profile of its own, of seven kinds.
SEEDS_WITHOUT: Final = 100


class PodAnswer(StrEnum):
    """What a line of a trial says."""

    BEGIN = "begin"
    FOUND = "found"
    CLEAN = "clean"


class Line(msgspec.Struct, frozen=True):
    """One line that a trial prints."""

    word: PodAnswer
    job: Job | None = None
    text: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulation runs: random schedules of some scenarios, then plans of others."""

    scenarios: Sequence[str] = ()
    schedules: int = 0
    planned: Sequence[str] = ()
    profile: str = ""
    """Only random schedules that have this one run; all where it is empty."""
    wanted: Sequence[str] = ()
    """The invariants that count: others may break by chance, and are not the mutant's."""
    skipped: int = 0
    """How many jobs have run already."""
    only: Job | None = None
    """Nothing but this one, in which everything counts."""

    def list_jobs(self) -> Iterator[Job]:
        """Yield the jobs in their order; plans are only found once they are requested."""
        if self.only is not None:
            yield self.only
            return
        yield from islice(self._list_schedules(), self.schedules)
        for scenario in self.planned:
            for kind in (Kind.EVENT, Kind.CRASH):
                yield from list_plan_jobs(scenario, kind)[::PLAN_STEP]

    def judge(self, job: Job) -> list[str]:
        """Run a job and return what of its verdict counts."""
        scenario = get_scenario(job.scenario)
        if job.plan is not None:
            verdict = run_plan(scenario, job.plan).verdict
        else:
            verdict = run(scenario, job.seed).verdict
        return self.choose(verdict)

    def _list_schedules(self) -> Iterator[Job]:
        jobs = list_schedules(self.schedules * SEEDS_WITHOUT, self.scenarios)
        has_webhooks = {name: get_scenario(name).has_webhooks for name in self.scenarios}
        for job in jobs:
            profile = name_profile(job.seed, has_webhooks=has_webhooks[job.scenario])
            if self.profile in ("", profile):
                yield job

    def choose(self, verdict: Verdict) -> list[str]:
        """Return what of a verdict counts."""
        if self.only is not None:
            return [*map(str, verdict.violations), *verdict.undetermined]
        return [str(one) for one in verdict.violations if one.invariant in self.wanted]


def main(words: Sequence[str]) -> int:
    """Print what becomes of the jobs, up to the first that shows something."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.trial")
    parser.add_argument("question", help="a Question, as JSON")
    question = msgspec.json.decode(parser.parse_args(words).question, type=Question)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number, job in enumerate(question.list_jobs()):
        if number < question.skipped:
            continue
        # Ends the process where a job uses up so much of a core.
        signal.setitimer(signal.ITIMER_PROF, JOB_SECONDS)
        _report(Line(PodAnswer.BEGIN, job))
        found = question.judge(job)
        if found:
            _report(Line(PodAnswer.FOUND, job, "; ".join(found)))
            return 0
    _report(Line(PodAnswer.CLEAN))
    return 0


def _report(line: Line) -> None:
    sys.stdout.write(f"{msgspec.json.encode(line).decode()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
