"""Each promise that is judged has a history that breaks it, and it is said of which none is."""

from tests.judge import (
    test_budgets,
    test_departures,
    test_downscales,
    test_election,
    test_liveness,
    test_policies,
    test_releases,
    test_rollouts,
    test_scaling,
    test_scaling_times,
)
from tests.judge.invariants_policies import CHECKS
from tests.judge.verdict import NOT_JUDGED

MODULES = (
    *(test_budgets, test_departures, test_downscales, test_election, test_liveness, test_policies),
    *(test_releases, test_rollouts, test_scaling, test_scaling_times),
)
OTHERS = ("SCALE-05", "MIRR-04", "DELAY-08", "ROLL-39")
RELEASES = ("REL-01", "REL-50", "RELB-10", "RELB-15", "RELB-35", "RELB-42")


def test_each_promise_is_accounted_for() -> None:
    tables = [one for module in MODULES for one in vars(module).values() if isinstance(one, list)]
    broken = {promise for table in tables for row in table for promise in row.values[1]}
    broken |= {name.partition(" -> ")[2] for name in test_liveness.RESTS}
    wanted = {f"SI-{number:02}" for number in range(1, 25)}
    wanted |= {"SI-26"} | {f"LI-{number:02}" for number in range(1, 16)}
    assert wanted - broken == {*NOT_JUDGED}
    assert {*CHECKS, *OTHERS, *RELEASES} <= broken
