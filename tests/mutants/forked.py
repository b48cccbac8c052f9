"""Judge automatic mutants in forks of one process, which has imported the tests once.

As a plugin of pytest (`-p tests.mutants.forked`) it runs the collected tests: first all of them in
one fork, to learn which test calls which mutated function and how long it takes, then for each
mutant those that call its function, the quick ones first, up to the first that fails, or all of
them for `tests.mutants.matrix`. As a program it runs random schedules of the simulation instead.
"""

import os
import resource
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import Phase, settings
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

from tests.mutants.sample import Automatic

MEMORY: Final = 4 * 2**30
# A mutant may let a test spin, or wait for ever. Neither counts what other processes use.
SPIN_FACTOR: Final = 10
SPIN_SECONDS: Final = 20
SPIN_SECONDS_OF_A_TEST: Final = 5
IDLE_SECONDS: Final = 60.0
# So often the other tests go on after one that did not end.
LIVES: Final = 4
TICK: Final = 0.05
BEGUN: Final = b"b"
FAILED: Final = b"f"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one mutant in one suite."""

    name: str
    by: str = ""
    """The test or schedule that fails, or why there was no end; empty where it survives."""
    killers: list[str] = []
    """All tests that fail or do not end, if the order wants all."""
    tests: int = 0
    """How many ran at most."""
    is_cut: bool = False
    """More would have run if there had been time."""
    cpu: float = 0.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a suite judges."""

    mutants: list[Automatic]
    verdicts: str
    """The file to which the verdicts go, one JSON line each."""
    seconds: float
    """So much processor time of tests is spent on a mutant at most."""
    jobs: int = 1
    schedules: int = 0
    wants_all: bool = False
    """Tests go on after the first that fails."""

    @property
    def profile(self) -> Path:
        """Return the file to which the profile goes."""
        return Path(self.verdicts).with_suffix(".profile")


class Fork(msgspec.Struct):
    """A fork at work, and the file into which it writes what it finds."""

    pid: int
    path: Path
    idle_since: float = msgspec.field(default_factory=time.monotonic)
    cpu: float = 0.0

    def is_idle(self) -> bool:
        """Return whether it has used no processor for a long time: it waits for ever."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        now = time.monotonic()
        if cpu > self.cpu:
            self.cpu, self.idle_since = cpu, now
        return now - self.idle_since > IDLE_SECONDS


def run_forked(
    works: Sequence[tuple[Callable[[], str], float]],
    folder: Path,
    jobs: int,
    *,
    may_idle: bool = False,
) -> Iterator[tuple[int, str, float]]:
    """Run each work in a fork with so many seconds of processor; yield its number, what it returns
    and its processor time, in the order in which they end."""
    waiting = list(enumerate(works))[::-1]
    running: dict[int, Fork] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            number, (work, seconds) = waiting.pop()
            running[number] = _fork(work, seconds, folder / f"{number}.txt")
        time.sleep(TICK)
        for number, fork in list(running.items()):
            pid, status, used = os.wait4(fork.pid, os.WNOHANG)
            if not pid and not may_idle and fork.is_idle():
                os.kill(fork.pid, 9)
                pid, status, used = os.wait4(fork.pid, 0)
                status = -1
            if pid:
                del running[number]
                yield number, _read(fork.path, status), used.ru_utime + used.ru_stime


def _read(path: Path, status: int) -> str:
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    if status == 0:
        return text
    return f"{'waits for ever' if status == -1 else f'ends with {status}'} in {text or 'nothing'}"


def _fork(work: Callable[[], str], seconds: float, path: Path) -> Fork:
    pid = os.fork()
    if pid:
        return Fork(pid, path)
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        limit = int(seconds * SPIN_FACTOR + SPIN_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        path.write_text(work())
        code = 0
    except BaseException:  # this process ends here, whatever happened
        path.write_text(traceback.format_exc(limit=-2))
    finally:
        os._exit(code)


class Profile(msgspec.Struct):
    """What the tests do without any mutant."""

    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    callers: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Tests by the mutated function that they call."""
    failed: list[str] = msgspec.field(default_factory=list)


class Forking:
    """The plugin: takes the place of the loop over the tests."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        if report.failed and not self._failed:
            self._failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge all mutants."""
        folder = Path(self._order.verdicts).parent
        items = {item.nodeid: item for item in session.items}
        unlimited = float(sum(1 for _ in items) + 3600)
        # Some tests wait for processes of their own.
        profiling = [(lambda: self._profile(items), unlimited)]
        [(_, text, cpu)] = run_forked(profiling, folder, 1, may_idle=True)
        profile = msgspec.json.decode(text, type=Profile)
        self._order.profile.write_text(text)
        sys.stderr.write(
            f"{len(items)} tests in {cpu:.0f} s of processor, mutated functions called:"
            f" {len(profile.callers)}, failing without a mutant: {profile.failed}\n"
        )
        judge = self._judge_by_all if self._order.wants_all else self._judge_by_the_first
        with Path(self._order.verdicts).open("ab") as file:
            for verdict in judge(items, profile):
                file.write(msgspec.json.encode(verdict) + b"\n")
                file.flush()
        return True

    def _profile(self, items: dict[str, pytest.Item]) -> str:
        set_mutant_under_test("stats")
        profile = Profile()
        callers: defaultdict[str, list[str]] = defaultdict(list)
        every = list(items.values())
        for item, following in zip(every, [*every[1:], None], strict=True):
            state()._stats.clear()
            begin = time.process_time()
            self._run(item, following)
            profile.seconds[item.nodeid] = time.process_time() - begin
            for name in state()._stats:
                callers[name].append(item.nodeid)
            if self._failed:
                profile.failed.append(self._failed)
                self._failed = ""
        profile.callers = dict(callers)
        return msgspec.json.encode(profile).decode()

    def _choose(self, mutant: Automatic, profile: Profile) -> tuple[list[str], float, bool]:
        """Return the tests to run, what they cost, and whether there are more."""
        own = f"tests/{mutant.area}/"
        names = sorted(
            {*profile.callers.get(mutant.place, [])} - {*profile.failed},
            key=lambda name: (not name.startswith(own), profile.seconds[name]),
        )
        chosen: list[str] = []
        cost = 0.0
        for name in names:
            if cost + profile.seconds[name] > self._order.seconds:
                return chosen, cost, True
            chosen.append(name)
            cost += profile.seconds[name]
        return chosen, cost, False

    def _judge_by_the_first(
        self, items: Mapping[str, pytest.Item], profile: Profile
    ) -> Iterator[Verdict]:
        mutants = self._order.mutants
        chosen = [self._choose(mutant, profile) for mutant in mutants]
        works = [
            (self._work(mutant, [items[name] for name in names]), cost)
            for mutant, (names, cost, _) in zip(mutants, chosen, strict=True)
        ]
        folder = Path(self._order.verdicts).parent
        for number, by, cpu in run_forked(works, folder, self._order.jobs):
            names, _, is_cut = chosen[number]
            yield Verdict(
                name=mutants[number].name, by=by, tests=len(names), is_cut=is_cut, cpu=cpu
            )

    def _judge_by_all(
        self, items: Mapping[str, pytest.Item], profile: Profile
    ) -> Iterator[Verdict]:
        """Run all tests on each mutant, those after one without an end in another fork."""
        mutants = self._order.mutants
        folder = Path(self._order.verdicts).parent
        places = {name: place for place, name in enumerate(items)}
        chosen = [self._choose(mutant, profile) for mutant in mutants]
        left = [sorted(names, key=places.__getitem__) for names, _, _ in chosen]
        killers: list[list[str]] = [[] for _ in mutants]
        cpu = [0.0 for _ in mutants]
        for _ in range(LIVES):
            numbers = [number for number, names in enumerate(left) if names]
            works = [
                (
                    self._work_through(
                        mutants[number],
                        [(items[name], profile.seconds[name]) for name in left[number]],
                        folder / f"{number}.seen",
                    ),
                    sum(profile.seconds[name] for name in left[number]),
                )
                for number in numbers
            ]
            for index, problem, used in run_forked(works, folder, self._order.jobs):
                number = numbers[index]
                outcomes = _read_outcomes(folder / f"{number}.seen")
                if problem and outcomes:
                    outcomes[-1] = True
                killers[number] += [
                    name for name, fails in zip(left[number], outcomes, strict=False) if fails
                ]
                cpu[number] += used
                left[number] = left[number][len(outcomes) :]
        for number, mutant in enumerate(mutants):
            names, _, is_cut = chosen[number]
            yield Verdict(
                name=mutant.name,
                by=next(iter(killers[number]), ""),
                killers=killers[number],
                tests=len(names) - len(left[number]),
                is_cut=is_cut or bool(left[number]),
                cpu=cpu[number],
            )

    def _work_through(
        self, mutant: Automatic, timed: Sequence[tuple[pytest.Item, float]], outcomes: Path
    ) -> Callable[[], str]:
        def work() -> str:
            set_mutant_under_test(mutant.name)
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            following = [item for item, _ in timed[1:]]
            with outcomes.open("wb", buffering=0) as file:
                for (item, seconds), after in zip(timed, [*following, None], strict=True):
                    limit = time.process_time() + seconds * SPIN_FACTOR + SPIN_SECONDS_OF_A_TEST
                    resource.setrlimit(resource.RLIMIT_CPU, (min(int(limit), hard), hard))
                    self._failed = ""
                    file.write(BEGUN)
                    self._run(item, after)
                    if self._failed:
                        file.write(FAILED)
            return ""

        return work

    def _work(self, mutant: Automatic, items: Sequence[pytest.Item]) -> Callable[[], str]:
        def work() -> str:
            set_mutant_under_test(mutant.name)
            for item, following in zip(items, [*items[1:], None], strict=False):
                self._run(item, following)
                if self._failed:
                    break
            return self._failed

        return work

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _read_outcomes(path: Path) -> list[bool]:
    """Return of each test that was begun whether it failed."""
    written = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    return [text == FAILED for text in written.split(BEGUN)[1:]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", type=Path, help="a JSON file with an Order")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--mutants")
    if path is not None:
        # What fails of a property under one mutant would be tried first under the next, and nobody
        # reads the smallest example that fails.
        settings.register_profile(
            "forked", settings.default, database=None, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("forked")
        config.pluginmanager.register(Forking(msgspec.json.decode(path.read_bytes(), type=Order)))


def main(words: Sequence[str]) -> int:
    """Run random schedules on the mutants of the order in the file that is named."""
    from tests.simulation.campaign import list_schedules, run_job

    order = msgspec.json.decode(Path(words[0]).read_bytes(), type=Order)
    jobs = list_schedules(order.schedules)
    clean = [job for job in jobs if run_job(job).is_clean]
    begin = time.process_time()
    for job in clean[:20]:
        run_job(job)
    cost = (time.process_time() - begin) / 20 * len(clean)

    def work(mutant: Automatic) -> Callable[[], str]:
        def read_answer() -> str:
            set_mutant_under_test(mutant.name)
            for job in clean:
                summary = run_job(job)
                if not summary.is_clean:
                    return summary.text[:200]
            return ""

        return read_answer

    folder = Path(order.verdicts).parent
    works = [(work(mutant), cost) for mutant in order.mutants]
    with Path(order.verdicts).open("ab") as file:
        for number, by, cpu in run_forked(works, folder, order.jobs):
            verdict = Verdict(name=order.mutants[number].name, by=by, tests=len(clean), cpu=cpu)
            file.write(msgspec.json.encode(verdict) + b"\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
