"""A process that acts for a policy is killed at each of its calls: nothing is done twice or early.

Every seventh aim of a lone process, and some of one that is elected; all of them: `make prove`.
"""

import pytest
from rollout_lab.model.history import Fault

from tests.simulation.aimed import (
    BATCHES,
    Heir,
    Hit,
    list_aims,
    list_broken,
    list_deletes,
    list_gaps,
    run_aimed,
)
from tests.simulation.scenarios_policies import INTERVAL

pytestmark = pytest.mark.thorough

STEPS = {(False, 1): 29, (False, 2): 61, (True, 1): 53, (True, 2): 131}
# Of SMALL, in which the sample has four pods.
ORDER = ["db-a-1", "db-a-0", "db-b-1", "db-b-0"]


@pytest.mark.parametrize(("is_elected", "limit"), STEPS)
def test_no_kill_shortens_a_pause_or_repeats_a_batch(is_elected: bool, limit: int) -> None:
    """FP-06, FP-14, SI-17, MAZ-40, MAZ-43, MT-30, MT-50: on the server's clock, to the moment."""
    every = list_aims(limit, is_elected=is_elected)
    aims = [*every[:: STEPS[is_elected, limit]], every[-1]]

    broken = [text for aim in aims for text in list_broken(aim)]
    assert not broken, "\n".join(broken[:10])
    assert {aim.hit for aim in every} == {*Hit}
    assert {aim.heir for aim in every} == {heir for heir in Heir if heir.is_other == is_elected}
    targets = {aim.target for aim in every}
    assert sum((one.verb, one.plural) == ("delete", "pods") for one in targets) == limit * BATCHES


def test_a_kill_at_the_end_of_a_batch_strikes() -> None:
    """FP-06: after the last write for a StatefulSet, and lists from before its last batch."""
    aims = [aim for aim in list_aims(is_elected=False) if aim.heir is Heir.SAME_STALE]
    ends = [aim for aim in aims if aim.target.plural == "statefulsets" and aim.target.is_write]
    (aim,) = (aim for aim in ends if aim.hit is Hit.APPLIED)
    outcome = run_aimed(aim)

    (fault,) = outcome.history.list_all(Fault)
    assert fault.text == aim.text
    assert [call.request.name for call in list_deletes(outcome.history)] == ORDER
    assert min(list_gaps(outcome.history)) >= INTERVAL


def test_another_replica_goes_on() -> None:
    """MT-50: with what it saw before the batch was recorded."""
    aims = [aim for aim in list_aims(is_elected=True) if aim.heir is Heir.OTHER_STALE]
    (*_, aim) = (one for one in aims if (one.target.verb, one.hit) == ("delete", Hit.APPLIED))
    outcome = run_aimed(aim)

    assert len({call.actor for call in list_deletes(outcome.history)}) == 2
    assert [call.request.name for call in list_deletes(outcome.history)] == ORDER
