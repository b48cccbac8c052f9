"""`python -m tests.prove`: what takes longer than the gate, and one page about what it found.

Parts are run one after the other, each on all cores; by default all but the last two:

schedules   random schedules of the simulation, judged by the invariants
repeats     schedules that are run twice: the same history, to the last record
plans       the systematic plans of its small scenarios: every step goes wrong once
aimed       kills at every call of the batches of a policy, and what goes on after each
deliberate  the catalogue of deliberate errors, each judged by simulation and unit tests
automatic   automatic mutants of planning, guards and controllers, judged by all suites
contract    scripted calls on the real control plane, and whether it answers as it was recorded
models      short cuts of grants that are not built: safe but for what is held against them
properties  ten times as many examples of each property as it says
tests       tests marked `prove`: more cases of what a test beside them shows in the gate
kills       two and three operators on a real control plane, killed, frozen and ended at random
flux        releases with Flux's own controllers, and whether these do as it was recorded
versions    the manifests, rollouts, webhooks and budgets on older versions of Kubernetes
kuberik     scenarios with kuberik's controller too, and whether they differ as it was recorded
matrix      a sample of automatic mutants against all tests that call them: which kills what alone
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Final

import msgspec

from tests.contract import __main__ as contract
from tests.contract.plays import list_sequences
from tests.flux.campaign import prove_contract
from tests.kills.campaign import list_rounds, run_rounds
from tests.kuberik.campaign import prove_equal
from tests.models.elected import SAFE, list_not_shown
from tests.mutants import automatic, matrix
from tests.mutants.__main__ import run_all as judge_all
from tests.mutants.entry import CATALOGUE
from tests.mutants.runner import Budget
from tests.simulation.aimed import list_aims, list_broken
from tests.simulation.campaign import (
    SMALL_ONES,
    Job,
    Tally,
    list_plan_jobs,
    list_schedules,
    list_unrepeatable,
    run_all,
)
from tests.simulation.plans import Kind
from tests.world.assets import OLDER

ON_OLDER: Final = tuple(
    f"tests/system/test_{name}.py"
    for name in (*("installations", "permissions", "kinds", "rollouts", "processes", "stories"),)
)
SCHEDULES: Final = 100_000
KILLS: Final = 100
REPEATS: Final = 2_000
MOST_SHOWN: Final = 40


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a part ran, and what it did not catch, or caught and should not have."""

    ran: str
    missed: Sequence[str]
    is_failure: bool


def main(words: Sequence[str]) -> int:
    """Run the parts that are named, or all; return 1 where one of them fails."""
    parser = _make_parser()
    given = parser.parse_args(words)
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"no part is called {', '.join(unknown)}: there are {', '.join(PARTS)}")
    page: list[str] = []
    has_failed = False
    for name in given.parts or [one for one in PARTS if one not in BY_HAND]:
        begin = time.monotonic()
        sys.stderr.write(f"{name} ...\n")
        found = PARTS[name](given)
        has_failed |= found.is_failure
        page += _render(name, found, (time.monotonic() - begin) / 60)
    sys.stdout.write("\n".join(page) + "\n")
    return 1 if has_failed else 0


def _render(name: str, found: Found, minutes: float) -> list[str]:
    verdict = "FAILED" if found.is_failure else "passed"
    more = len(found.missed) - MOST_SHOWN
    return [
        f"{name}: {verdict}, {found.ran}, {len(found.missed)} not caught, {minutes:.1f} minutes",
        *(f"  {line}" for text in found.missed[:MOST_SHOWN] for line in text.splitlines()),
        *([f"  and {more} more"] if more > 0 else []),
    ]


def _prove_schedules(given: argparse.Namespace) -> Found:
    return _count(list_schedules(given.schedules), given.jobs)


def _prove_repeats(given: argparse.Namespace) -> Found:
    jobs = list_schedules(given.repeats)
    missed = [f"{job.scenario}, seed {job.seed}" for job in list_unrepeatable(jobs, given.jobs)]
    return Found(ran=f"{len(jobs)} schedules twice", missed=missed, is_failure=bool(missed))


def _prove_plans(given: argparse.Namespace) -> Found:
    plans = (list_plan_jobs(name, kind)[:: given.step] for name in SMALL_ONES for kind in Kind)
    return _count(chain.from_iterable(plans), given.jobs)


def _prove_aimed(given: argparse.Namespace) -> Found:
    plays = product((1, 2), (False, True))
    lists = [list_aims(limit, is_elected=is_elected) for limit, is_elected in plays]
    aims = [*chain.from_iterable(lists)][:: given.step]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        missed = list(chain.from_iterable(pool.imap_unordered(list_broken, aims, 8)))
    return Found(ran=f"{len(aims)} kills", missed=missed, is_failure=bool(missed))


def _count(jobs: Iterable[Job], processes: int) -> Found:
    tally = Tally()
    for summary in run_all(jobs, processes):
        tally.add(summary)
    missed = [summary.text for summary in tally.failed]
    return Found(ran=tally.render(), missed=missed, is_failure=bool(missed))


def _prove_deliberate(given: argparse.Namespace) -> Found:
    mutants = list(CATALOGUE.values())[: given.deliberate]
    results = judge_all(mutants, Budget(), given.jobs)
    missed = [result.render() for result in results if not result.is_found]
    return Found(
        ran=f"{len(results)} errors, {len(results) - len(missed)} seen by the simulation",
        missed=missed,
        is_failure=bool(missed),
    )


def _prove_automatic(given: argparse.Namespace) -> Found:
    words = ["--sample", str(given.automatic), "--jobs", str(given.jobs)]
    judged = automatic.judge(automatic.parse([*words, "--output", str(given.output)]))
    return Found(
        ran=automatic.render_rate(judged),
        missed=[each.mutant.text for each in judged if not each.killer],
        is_failure=False,
    )


def _prove_contract(given: argparse.Namespace) -> Found:
    sequences = list_sequences()
    missed = contract.prove_contract(sequences, is_recording=given.record)
    return Found(ran=f"{len(sequences)} sequences", missed=missed, is_failure=bool(missed))


def _prove_models(_given: argparse.Namespace) -> Found:
    missed = list_not_shown()
    return Found(ran=f"{len(SAFE)} short cuts", missed=missed, is_failure=bool(missed))


def _prove_properties(given: argparse.Namespace) -> Found:
    folder = Path(__file__).parent
    files = [path for path in folder.rglob("test_*.py") if "repeatable(" in path.read_text()]
    return _run_tests(given, "--hypothesis-profile=prove", *map(str, sorted(files)))


def _prove_tests(given: argparse.Namespace) -> Found:
    return _run_tests(given, "--prove")


def _run_tests(
    given: argparse.Namespace, *more: str, env: Mapping[str, str] | None = None
) -> Found:
    words = ("-m", "pytest", f"-n{given.jobs}", "-q", *more)
    ended = subprocess.run(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        text=True,
        check=False,
    )
    *_, last = ended.stdout.splitlines() or [""]
    missed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Found(ran=last, missed=missed, is_failure=ended.returncode != 0)


def _prove_kills(given: argparse.Namespace) -> Found:
    played = run_rounds(list_rounds(given.kills))
    missed = [*played.failed, *played.figures.list_late()]
    ran = "; ".join(played.figures.render())
    return Found(ran=ran, missed=missed, is_failure=bool(missed))


def _prove_flux(given: argparse.Namespace) -> Found:
    missed = prove_contract(is_recording=given.record)
    return Found(ran="one play", missed=missed, is_failure=bool(missed))


def _prove_versions(given: argparse.Namespace) -> Found:
    ran, missed = [], []
    for version, plane in OLDER.items():
        folder = plane.find(sys.stderr.write)
        found = _run_tests(given, *ON_OLDER, env={"KUBEBUILDER_ASSETS": str(folder)})
        ran.append(f"{version}: {found.ran}")
        missed += [f"{version}: {text}" for text in found.missed or [found.ran] * found.is_failure]
    return Found(ran="; ".join(ran), missed=missed, is_failure=bool(missed))


def _prove_kuberik(given: argparse.Namespace) -> Found:
    ran, missed = prove_equal(is_recording=given.record)
    return Found(ran=f"{ran} scenarios", missed=missed, is_failure=bool(missed))


def _prove_matrix(given: argparse.Namespace) -> Found:
    words = ["--jobs", str(given.jobs), "--output", "matrix.json", "--sample", str(given.sample)]
    words += [f"--area={area}" for area in given.area or []]
    crossed = matrix.judge(
        matrix.parse([*words, *(f"--tests={path}" for path in given.tests or [])])
    )
    sys.stdout.write(f"{matrix.render(crossed)}\n")
    missed = [row.mutant.text for row in crossed.rows if not row.killers]
    return Found(ran=matrix.render_rate(crossed), missed=missed, is_failure=False)


PARTS: Final[dict[str, Callable[[argparse.Namespace], Found]]] = {
    "schedules": _prove_schedules,
    "repeats": _prove_repeats,
    "plans": _prove_plans,
    "aimed": _prove_aimed,
    "deliberate": _prove_deliberate,
    "automatic": _prove_automatic,
    "contract": _prove_contract,
    "models": _prove_models,
    "properties": _prove_properties,
    "tests": _prove_tests,
    "kills": _prove_kills,
    "flux": _prove_flux,
    "versions": _prove_versions,
    "kuberik": _prove_kuberik,
    "matrix": _prove_matrix,
}
# The one needs sources that no registry has, the other says nothing of the product.
BY_HAND: Final = {"kuberik", "matrix"}


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.prove")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="part",
        help=f"of {', '.join(PARTS)}; by default all but the last two",
    )
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help="random schedules")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="schedules run twice")
    parser.add_argument("--step", type=int, default=1, help="one in so many plans and aimed kills")
    parser.add_argument("--deliberate", type=int, help="the first so many; all by default")
    parser.add_argument("--automatic", type=int, default=sys.maxsize, help="a sample of so many")
    parser.add_argument(
        "--area", action="append", help="folder or module whose mutants the matrix has"
    )
    parser.add_argument("--sample", type=int, default=matrix.SIZE, help="so many of them")
    parser.add_argument("--tests", action="append", help="folder or file of the matrix's tests")
    parser.add_argument("--kills", type=int, default=KILLS, help="of operators, by SIGKILL")
    parser.add_argument(
        "--record", action="store_true", help="what contract, flux and kuberik find"
    )
    parser.add_argument("--output", type=Path, default=Path("mutants.json"), help="their verdicts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
