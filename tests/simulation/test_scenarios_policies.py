"""Scenarios of policies without faults: whose pods went, in which order, and how far apart."""

from itertools import pairwise

import pytest
from rollout_lab.model.history import Called, Commit

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from tests.judge.book import list_deletes
from tests.simulation.scenarios import SMALL
from tests.simulation.scenarios_book import get_scenario
from tests.simulation.schedule import run
from tests.simulation.test_scenarios import play_calmly

pytestmark = pytest.mark.thorough


def test_p1_zone_after_zone_with_a_pause() -> None:
    """MT-20 at two zones of two pods: the highest ordinal first, and 5 s at least between."""
    outcome = play_calmly(get_scenario("p1", SMALL))

    assert list_deletes(outcome.history) == ["db-a-1", "db-a-0", "db-b-1", "db-b-0"]
    calls = [
        call.at
        for call in outcome.history.list_all(Called)
        if call.actor == "operator-1" and call.request.verb == "delete"
    ]
    assert all((after - before).total_seconds() >= 5 for before, after in pairwise(calls))


def test_p2_the_policy_records_its_group_alone() -> None:
    """MAZ-25: the other group goes by its label, and is in no batch."""
    outcome = play_calmly(get_scenario("p2", SMALL))

    deletes = list_deletes(outcome.history)
    recorded = {
        name for commit in outcome.history.list_all(Commit) for name in collect_named(commit)
    }
    assert recorded == {name for name in deletes if name.startswith("ingester")}
    assert len(deletes) == 8


@pytest.mark.parametrize("seed", [107, 178])
def test_p3_a_batch_is_chosen_from_what_is_live(seed: int) -> None:
    """MAZ-40, step 10: a cache that lags shows a pod as broken, which would wait for no pause."""
    assert not run(get_scenario("p3-elected"), seed).verdict.violations


def collect_named(commit: Commit) -> set[str]:
    """Return the pods of the batch that a policy records."""
    if commit.resource != MULTI_AZ_ROLLOUTS or not commit.after:
        return set()
    status = commit.after.get("status")
    batch = status.get("lastBatch") if isinstance(status, dict) else None
    pods = batch.get("pods") if isinstance(batch, dict) else None
    return {str(pod["name"]) for pod in pods or () if isinstance(pod, dict)}
