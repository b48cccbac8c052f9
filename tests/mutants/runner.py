"""Put mutants into copies of the package, and find out which of them the simulation sees.

The checkout is only read, once, at the beginning: what others change meanwhile changes no result. A
run that is not clean shows a mutant only where the same run is clean without it.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.code_rules import ROOT
from tests.mutants.entry import PACKAGES, Mutant
from tests.mutants.trial import Line, PodAnswer, Question
from tests.simulation.campaign import Job

SCHEDULES: Final = 640
SHOWN: Final = 110


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How much the simulation runs on one mutant before it counts as silent."""

    schedules: int = SCHEDULES
    has_plans: bool = True


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the simulation sees a mutant."""

    mutant: Mutant
    simulation: str = ""
    """The run that shows it, and what it shows; empty where the simulation is silent."""

    @property
    def is_found(self) -> bool:
        return bool(self.simulation)

    def render(self) -> str:
        """Return it as a line of the report."""
        if self.simulation:
            return f"{self.mutant.name}: {self.simulation}"
        return f"{self.mutant.name}: SURVIVED"


class Runner(msgspec.Struct):
    """Judges one mutant after the other, from as many threads as there are."""

    base: Path
    """A copy of what is needed of the checkout, without any mutant."""
    budget: Budget = msgspec.field(default_factory=Budget)
    _is_clean: dict[Question, bool] = {}
    """Runs without any mutant."""
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def judge(self, mutant: Mutant) -> Result:
        """Find out whether a mutant shows. Raises OutOfDate."""
        with TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as name:
            copy = Path(name)
            shutil.copytree(self.base, copy, dirs_exist_ok=True)
            mutant.apply(copy)
            return Result(mutant=mutant, simulation=self._request_simulation(mutant, copy))

    def _request_simulation(self, mutant: Mutant, copy: Path) -> str:
        question = Question(
            scenarios=mutant.scenarios,
            schedules=self.budget.schedules,
            planned=mutant.planned if self.budget.has_plans else (),
            profile=mutant.profile,
            wanted=sorted(mutant.wanted),
        )
        while True:
            line, begun = _run_trial(copy, question)
            if line.job is None:
                return ""
            if self.is_clean_without(line.job):
                return f"{_name(line.job)}: {line.text[:SHOWN]}"
            question = replace(question, skipped=question.skipped + begun)

    def is_clean_without(self, job: Job) -> bool:
        """Return whether a job is clean in the package as it is."""
        question = Question(only=job)
        with self._lock:
            if question not in self._is_clean:
                line, _ = _run_trial(self.base, question)
                self._is_clean[question] = line.word is PodAnswer.CLEAN
                if line.word is not PodAnswer.CLEAN:
                    sys.stderr.write(f"not clean without a mutant: {_name(job)}: {line.text}\n")
            return self._is_clean[question]


@contextmanager
def copied() -> Iterator[Path]:
    """Give a folder with the package and its tests, compiled, for as long as the context lasts."""
    with TemporaryDirectory(prefix="mutants-base-") as name:
        base = Path(name)
        for part in (*PACKAGES, "tests"):
            shutil.copytree(ROOT / part, base / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", base)
        # Copies keep the time of their sources, so that only the mutant's file is compiled anew.
        parts = (*PACKAGES, "tests/judge", "tests/simulation", "tests/world")
        _run([sys.executable, "-m", "compileall", "-q", *parts], base)
        yield base


def _run_trial(folder: Path, question: Question) -> tuple[Line, int]:
    """Run a trial to its end; return how it ended, and how many jobs it began."""
    words = [sys.executable, "-m", "tests.mutants.trial", msgspec.json.encode(question).decode()]
    ended = _run(words, folder)
    lines = [msgspec.json.decode(line, type=Line) for line in ended.stdout.splitlines()]
    begun = sum(line.word is PodAnswer.BEGIN for line in lines)
    if not lines:
        return Line(
            PodAnswer.FOUND, Job(scenario="none"), f"no start: {_tail(ended.stderr)}"
        ), begun
    last = lines[-1]
    if last.word is PodAnswer.BEGIN:
        what = _tail(ended.stderr) or "no end: it spins without any time going by"
        last = Line(PodAnswer.FOUND, last.job, f"breaks the run: {what}")
    return last, begun


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where the folder's own packages are the first that are found."""
    path = os.pathsep.join((str(folder), str(folder / "lab")))
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    return subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def _tail(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-2:])[-SHOWN:]


def _name(job: Job) -> str:
    return f"{job.scenario} {f'seed {job.seed}' if job.plan is None else job.plan.text}"
