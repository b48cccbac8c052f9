"""`python -m tests.simulation`: run one schedule and print its story, or a great many.

run --scenario s1 --seed 123 [--size 2x2] [--only 3,17]     one schedule
plan --scenario s1-small --kind crash [--number 17]         systematic plans
campaign --schedules 100000 [--seconds 600] [--jobs 4]      all of it
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain
from typing import Final

from rollout_lab.trace.trace import render_story, render_tail

from tests.simulation.campaign import (
    ROTATION,
    SMALL_ONES,
    Case,
    Job,
    Summary,
    Tally,
    list_plan_jobs,
    list_schedules,
    run_all,
    run_case,
    shrink,
)
from tests.simulation.plans import Kind, run_plan
from tests.simulation.runs import Outcome
from tests.simulation.scenarios import Size
from tests.simulation.scenarios_book import NAMES, get_scenario

PROGRESS_EVERY: Final = 15.0  # seconds
MOST_SHOWN: Final = 3


def main(words: Sequence[str]) -> int:
    """Do what the words request; return 0 where nothing was wrong, else 1."""
    given = _make_parser().parse_args(words)
    match given.command:
        case "run":
            case = Case(scenario=given.scenario, seed=given.seed, size=given.size, only=given.only)
            return _run(case, is_whole=given.story, may_shrink=given.shrink)
        case "plan":
            return _run_plans(given.scenario, given.kind, given.number)
        case _:
            return _run_campaign(given)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one schedule, and what happened in it")
    run.add_argument("--scenario", choices=NAMES, required=True)
    run.add_argument("--seed", type=int, required=True)
    run.add_argument("--size", type=read_size, help="zones x pods, as in 2x2")
    run.add_argument("--only", type=_read_numbers, help="numbers of the faults that happen")
    run.add_argument("--story", action="store_true", help="all of it, not only how it ends")
    run.add_argument("--shrink", action="store_true", help="first make a failing one smaller")
    plan = commands.add_parser("plan", help="every step of a run goes wrong once")
    plan.add_argument("--scenario", choices=NAMES, default=SMALL_ONES[0])
    plan.add_argument("--kind", type=Kind, choices=list(Kind), default=Kind.CRASH)
    plan.add_argument("--number", type=int, help="only this one, as counted by a run of all")
    many = commands.add_parser("campaign", help="as many as wanted, on all cores")
    many.add_argument("--schedules", type=_read_count, default=5000, help="0 for plans only")
    many.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after")
    many.add_argument("--jobs", type=int, help="processes; as many as cores by default")
    many.add_argument("--first-seed", type=int, default=1)
    many.add_argument("--scenario", choices=NAMES, action="append", help="only this one")
    many.add_argument("--no-plans", action="store_true", help="random schedules only")
    return parser


def _run(case: Case, *, is_whole: bool, may_shrink: bool) -> int:
    if may_shrink:
        case = shrink(case)
    outcome = run_case(case, listens=True)
    _print_outcome(outcome, is_whole=is_whole)
    _print(case.command)
    return 0 if outcome.verdict.is_clean else 1


def _run_plans(scenario: str, kind: Kind, number: int | None) -> int:
    jobs = list_plan_jobs(scenario, kind)
    if number is not None:
        if number not in range(len(jobs)):
            has = f"{scenario} has {len(jobs)} plans of kind {kind}, numbered from 0"
            sys.stderr.write(f"--number {number}: {has}\n")
            return 1
        plan = jobs[number].plan
        assert plan is not None, "a plan's job has a plan"
        _print(plan.text)
        outcome = run_plan(get_scenario(scenario), plan, listens=True)
        _print_outcome(outcome, is_whole=True)
        return 0 if outcome.verdict.is_clean else 1
    tally = Tally()
    places = {job: place for place, job in enumerate(jobs)}
    for summary in run_all(jobs):
        tally.add(summary)
        if not summary.is_clean:
            _print(f"number {places[summary.job]}: {summary.text}")
    _print(tally.render())
    return 1 if tally.failed else 0


def _run_campaign(given: argparse.Namespace) -> int:
    schedules = list_schedules(given.schedules, given.scenario or ROTATION, given.first_seed)
    plans: list[list[Job]] = []
    if not given.no_plans:
        plans = [list_plan_jobs(name, kind) for name in SMALL_ONES for kind in Kind]
    tally = _count(run_all(chain(schedules, *plans), given.jobs), given.seconds)
    for summary in tally.failed[:MOST_SHOWN]:
        _print_failed(summary)
    _print(tally.render())
    return 1 if tally.failed else 0


def _count(summaries: Iterator[Summary], seconds: float) -> Tally:
    """Add up until all are there or the time is over; print failures at once, and how far it is."""
    tally, begin = Tally(), time.monotonic()
    reported_at = begin
    for summary in summaries:
        tally.add(summary)
        if not summary.is_clean:
            sys.stderr.write(f"{summary.text}\n")
        now = time.monotonic()
        if now - begin > seconds:
            break
        if now - reported_at > PROGRESS_EVERY:
            reported_at = now
            sys.stderr.write(f"{now - begin:.0f} s: {tally.render()}\n")
    return tally


def _print_failed(summary: Summary) -> None:
    """Print a failure in its smallest form, with its story and the command that repeats it."""
    _print(summary.text)
    if summary.job.plan is None:
        case = shrink(Case(scenario=summary.job.scenario, seed=summary.job.seed))
        _print_outcome(run_case(case, listens=True), is_whole=False)
        _print(case.command)


def _print_outcome(outcome: Outcome, *, is_whole: bool) -> None:
    verdict = outcome.verdict
    first = min((each.at for each in verdict.violations), default=outcome.span)
    lines = render_story(outcome.history) if is_whole else render_tail(outcome.history, first)
    _print("\n".join(lines))
    for violation in verdict.violations:
        _print(violation)
    for text in verdict.undetermined:
        _print(f"undetermined: {text}")
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items()))
    span = timedelta(seconds=round(outcome.span.total_seconds()))
    _print(f"seed {outcome.seed}: {span} in {outcome.steps} steps; faults: {counts or 'none'}")


def _print(text: object) -> None:
    sys.stdout.write(f"{text}\n")


def _read_count(text: str) -> int:
    if not re.fullmatch("[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text} is no number of schedules, such as 100")
    return int(text)


def read_size(text: str) -> Size:
    if not re.fullmatch("[1-9][0-9]*x[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text} is not zones x pods, as in 2x2")
    zones, pods = text.split("x")
    return Size(int(zones), int(pods))


def _read_numbers(text: str) -> frozenset[int]:
    return frozenset() if text == "none" else frozenset(int(each) for each in text.split(","))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
