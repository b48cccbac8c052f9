"""Scenarios of releases, calmly and under faults: what was deployed, and in whose name."""

import pytest
from rollout_lab.model.fields import child, children, text
from rollout_lab.model.history import Commit, History

from rollout_operator.kube.api import OCI_REPOSITORIES, ROLLOUTS
from tests.simulation.scenarios import SMALL, Size
from tests.simulation.scenarios_book import get_scenario
from tests.simulation.schedule import run
from tests.simulation.test_scenarios import play_calmly

pytestmark = pytest.mark.thorough

ONE_EACH = Size(SMALL.zones, 1)


def list_tags(history: History) -> list[str]:
    """Return the tags that Flux was given, in order."""
    tags = [
        text(one.after or {}, "spec", "ref", "tag")
        for one in history.list_all(Commit)
        if one.resource == OCI_REPOSITORIES[0]
    ]
    return [tag for tag, before in zip(tags, ["", *tags], strict=False) if tag not in ("", before)]


def list_credits(history: History) -> list[str]:
    """Return in whose name each entry of the last history is, the oldest first."""
    commits = [one for one in history.list_all(Commit) if one.resource == ROLLOUTS and one.after]
    entries = children(commits[-1].after or {}, "status", "history")
    return [text(child(entry, "triggeredBy"), "name") for entry in reversed(entries)]


def test_r1_each_release_once_the_second_by_name() -> None:
    """REL-01, REL-45, REL-50: past the closed gate only what is requested goes."""
    outcome = play_calmly(get_scenario("r1", ONE_EACH))

    assert list_tags(outcome.history) == ["1.0.0", "1.1.0", "1.2.0"]
    assert list_credits(outcome.history) == ["rollout-controller", "amy", "rollout-controller"]


@pytest.mark.parametrize("seed", [5, 9, 17, 61])
def test_r2_people_change_their_minds_under_faults(seed: int) -> None:
    """REL-01, REL-46, RELB-10, RELB-15: no wish has its effect twice, and none is lost."""
    outcome = run(get_scenario("r2"), seed)

    assert outcome.verdict.is_clean, outcome.verdict


@pytest.mark.parametrize("seed", [6, 10, 12, 13])
def test_r3_schedules_count_without_their_gates(seed: int) -> None:
    """RELB-42: made, changed, or selecting another label, as versions are announced."""
    outcome = run(get_scenario("r3"), seed)

    assert outcome.verdict.is_clean, outcome.verdict


def test_r3_a_version_waits_until_the_schedule_opens() -> None:
    """RELB-42: also without faults, and the last one comes by itself."""
    outcome = play_calmly(get_scenario("r3"))

    assert list_tags(outcome.history)[-1] == "2.0.0"
