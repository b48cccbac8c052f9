"""Random schedules: runs under faults in which no promise is broken.

What one run costs is bounded, and all kinds of faults really strike.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from tests import prove
from tests.simulation.__main__ import main
from tests.simulation.campaign import (
    ROTATION,
    Case,
    Failure,
    Tally,
    list_schedules,
    run_all,
    run_job,
    shrink,
)
from tests.simulation.faults import NORMAL, PROFILES, REVIEW_PROFILES, choose_profile, name_profile
from tests.simulation.runs import run
from tests.simulation.scenarios import Size
from tests.simulation.scenarios_book import get_scenario

# Two of each scenario fit into the time of the gate; more of them: `make simulate N=20000`.
SCHEDULES: Final = 2 * len(ROTATION)
# Fewer of some kind than in one run out of sixteen, and its rate is gone.
LEAST_OF_EACH: Final = 5
KINDS: Final = frozenset(
    {
        *("crash", "crash_at_step", "stop", "partition", "pods_cut", "clock_jump", "clock_rate"),
        *("pod_fails", "compact", "slow", "throttled", "lost", "late", "conflict", "gone"),
        *("controller_lags", "drop_bookmark"),
        *("too_many", "server_error", "delay_event", "drop_event", "freeze"),
        *("duplicate_event", "cut_stream", "gone_event", "stale_list"),
        *("hook_repeated", "hook_timed_out", "hook_unreachable", "hook_refused_later"),
    }
)
# Few scenarios call pods: in a part of the schedules one of these may be missing by chance.
KINDS_OF_CALLS: Final = frozenset({"pod_failure", "pod_slow", "pod_late"})


def test_one_schedule_in_five_has_another_profile_and_all_kinds_come() -> None:
    profiles = Counter(name_profile(seed, has_webhooks=True) for seed in range(2000))

    assert set(profiles) == {"", *REVIEW_PROFILES}
    assert 0.75 < profiles[""] / 2000 < 0.85
    assert max(profiles.values()) == profiles[""]
    assert {name_profile(seed) for seed in range(500)} == {"", *PROFILES}


def test_a_profile_comes_by_the_seed_alone() -> None:
    """So that one command repeats it, and what it brings is far more of one kind."""
    name, scenario = "late writes", get_scenario("s1")
    seeds = [seed for seed in range(200) if name_profile(seed) == name][:3]

    assert choose_profile(name).calls.late == 0.2
    assert choose_profile("") == NORMAL
    assert sum(run(scenario, seed).faults["late"] for seed in seeds) > 3
    assert not sum(run(scenario, seed, profile=NORMAL).faults["late"] for seed in seeds) > 1


@pytest.mark.slow
def test_calls_of_pods_fail_in_all_ways() -> None:
    faults: Counter[str] = Counter()
    for seed in range(12):
        faults.update(run(get_scenario("s6-small"), seed).faults)

    assert {kind for kind in KINDS_OF_CALLS if faults[kind] < LEAST_OF_EACH} == set()


@pytest.mark.slow
def test_two_schedules_of_each_scenario_break_no_promise() -> None:
    """SI-01 to SI-24 and LI-01 to LI-12, as far as they are promised (see `verdict`)."""
    tally = Tally()
    for summary in run_all(list_schedules(SCHEDULES)):
        tally.add(summary)

    print(tally.render())  # noqa: T201 (the line is wanted)
    assert not tally.failed, _report(tally)
    assert tally.schedules == SCHEDULES
    assert tally.healed >= SCHEDULES // 2
    assert tally.undetermined == 0
    rare = {kind: tally.faults[kind] for kind in KINDS if tally.faults[kind] < LEAST_OF_EACH}
    assert rare == {}


def test_scenarios_take_turns_and_every_seed_comes_once() -> None:
    jobs = list_schedules(10 * len(ROTATION), first_seed=50)

    assert [job.seed for job in jobs] == list(range(50, 50 + 10 * len(ROTATION)))
    assert Counter(job.scenario for job in jobs) == dict.fromkeys(ROTATION, 10)


def test_the_tally_adds_up_and_prints_one_line() -> None:
    tally = Tally()
    for job in list_schedules(3, ["s1-small"]):
        tally.add(run_job(job))

    line = tally.render()
    assert line.startswith("schedules=3 plans=0 violations=0 undetermined=0 healed=")
    assert "\n" not in line
    assert "faults{" in line


def _report(tally: Tally) -> str:
    """Return the first failures, and the commands that repeat the smallest form of them."""
    texts = [each.text for each in tally.failed[:5]]
    cases = [Case(scenario=each.job.scenario, seed=each.job.seed) for each in tally.failed[:2]]
    return "\n".join(
        [f"{len(tally.failed)} failed", *texts, *(shrink(one).command for one in cases)]
    )


ALL = tuple(range(1, 41))
CASE = Case(scenario="s1", seed=7)


def failing(*needed: int, zones: int = 2, pods: int = 2) -> Callable[[Case], Failure | None]:
    """Return runs that break SI-01 whenever all these faults strike in so large a world."""

    def try_case(case: Case) -> Failure | None:
        size = case.size or Size(3, 3)
        struck = tuple(number for number in ALL if case.only is None or number in case.only)
        if set(needed) <= set(struck) and size.zones >= zones and size.pods >= pods:
            return Failure(invariants=frozenset({"SI-01"}), numbers=struck)
        return None

    return try_case


@pytest.mark.parametrize("needed", [(), (17,), (1, 40), (3, 4, 5, 21, 33)])
def test_only_the_faults_that_are_needed_stay(needed: tuple[int, ...]) -> None:
    assert shrink(CASE, failing(*needed)).only == frozenset(needed)


def test_pods_and_zones_that_are_not_needed_go() -> None:
    found = shrink(CASE, failing(8, zones=3, pods=2))

    assert (found.size, found.only) == (Size(3, 2), frozenset({8}))
    assert shrink(CASE, failing(8, zones=3, pods=3)).size is None
    assert shrink(CASE, lambda case: None) == CASE, "what does not fail again stays as it is"


@pytest.mark.parametrize(
    ("other", "struck", "kept"),
    [
        pytest.param("LI-01", ALL, frozenset({2}), id="without fault 2 another promise is broken"),
        pytest.param(
            "SI-01", (2,), frozenset({2}), id="with one left out, most do not strike any more"
        ),
    ],
)
def test_what_is_left_is_another_run(
    other: str, struck: tuple[int, ...], kept: frozenset[int]
) -> None:
    def try_case(case: Case) -> Failure | None:
        if case.only is None or 2 in case.only:
            return Failure(invariants=frozenset({"SI-01"}), numbers=struck if case.only else ALL)
        return Failure(invariants=frozenset({other}), numbers=struck) if other != "SI-01" else None

    assert shrink(CASE, try_case).only == kept


def test_the_number_of_runs_is_bounded() -> None:
    runs = []

    def try_case(case: Case) -> Failure | None:
        runs.append(case)
        return failing(1, 13, 27, 40)(case)

    found = shrink(CASE, try_case, most_runs=9)

    assert len(runs) == 9
    assert found.only is not None
    assert found.only >= {1, 13, 27, 40}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (CASE, "--scenario s1 --seed 7"),
        (replace(CASE, only=frozenset({17, 3})), "--scenario s1 --seed 7 --only 3,17"),
        (
            replace(CASE, size=Size(2, 3), only=frozenset()),
            "--scenario s1 --seed 7 --size 2x3 --only none",
        ),
    ],
)
def test_one_command_repeats_it(case: Case, words: str) -> None:
    assert case.command == f"python -m tests.simulation run {words}"


RUN = ("run", "--scenario", "s1", "--seed", "1")


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        (main, [*RUN, "--size", "2"], "--size: 2 is not zones x pods, as in 2x2"),
        (main, [*RUN, "--size", "0x2"], "--size: 0x2 is not zones x pods, as in 2x2"),
        (main, ["campaign", "--schedules", "-3"], "--schedules: -3 is no number of schedules"),
        (prove.main, ["kills", "nope"], "no part is called nope: there are schedules, repeats"),
    ],
)
def test_what_is_wrong_is_named(
    command: Callable[[Sequence[str]], int],
    words: list[str],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        command(words)
    assert why in capsys.readouterr().err


def test_a_plan_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("-1", "999999"):
        assert main(["plan", "--scenario", "s1-small", "--number", number]) == 1
        assert f"--number {number}: s1-small has " in capsys.readouterr().err
