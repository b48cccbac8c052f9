"""The numbers of a zone: what counts as ready, updated and outdated."""

import pytest

from rollout_operator.model.group import Deletion, Zone
from rollout_operator.model.outcome import ZoneProgress
from rollout_operator.planning.rollout.plan import plan_group
from tests.builders import group, zone


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        pytest.param(zone("a"), (3, 3, 3, 0), id="rolled out"),
        pytest.param(zone("a", "plL-"), (4, 2, 2, 1), id="an updated pod need not be ready"),
        pytest.param(
            zone("a", "tpl"), (3, 2, 1, 2), id="one that goes is outdated until it is gone"
        ),
        pytest.param(zone("a", "lll", ready=1), (3, 1, 3, 0), id="W-33 status counts as well"),
        pytest.param(zone("a", "---"), (3, 0, 0, 0), id="no pods"),
        pytest.param(zone("a", ""), (0, 0, 0, 0), id="no replicas"),
        pytest.param(zone("a", "ppp", min_ready_seconds=10), (3, 0, 0, 3), id="settling pods once"),
        pytest.param(zone("a", "ppp", update_revision=""), (3, 3, 0, 0), id="nothing to be at"),
    ],
)
def test_pods_are_counted(given: Zone, numbers: tuple[int, int, int, int]) -> None:
    desired, ready, updated, outdated = numbers

    assert plan_group(group(given)).progress == (
        ZoneProgress(
            zone="zone-a", desired=desired, ready=ready, updated=updated, outdated=outdated
        ),
    )


def test_a_delete_that_does_not_show_counts() -> None:
    """W-07: the pod is at the old revision still, and not ready any more."""
    plan = plan_group(group(zone("a", "ppp"), deletions={"zone-a-0": Deletion.ACCEPTED}))

    assert plan.progress is not None
    assert (plan.progress[0].ready, plan.progress[0].outdated) == (2, 3)


def test_a_group_that_is_held_is_counted_too() -> None:
    """A person who must mend something wants to see what there is."""
    plan = plan_group(group(zone("b", "pp"), zone("a", "ll", strategy="RollingUpdate")))

    assert plan.failed
    assert plan.progress is not None
    assert [(one.zone, one.outdated) for one in plan.progress] == [("zone-a", 0), ("zone-b", 2)]


def test_progress_is_no_part_of_the_decision() -> None:
    short, shorter = plan_group(group(zone("a", "ll"))), plan_group(group(zone("a", "ll")))

    assert short == shorter
    assert short.progress is not None
