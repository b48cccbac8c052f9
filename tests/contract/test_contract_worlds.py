"""The sandbox answers as a real control plane does: each sequence is played on both.

`python -m tests.contract` plays them outside of pytest and prints all differences.
"""

from datetime import timedelta

import pytest
from rollout_lab.virtual_loop.pace import StepTimes

from tests.contract.kept import play_plainly
from tests.contract.plays import Sequence, list_sequences
from tests.contract.recording import Recordings
from tests.contract.simulated import play_simulated
from tests.contract.transcript import name_difference

pytestmark = pytest.mark.thorough

ALL = list_sequences()


# In one worker (`tests.groups`): the first of them records the real answers to all.
@pytest.mark.controlplane
@pytest.mark.parametrize("sequence", ALL, ids=str)
def test_both_worlds_answer_alike(sequence: Sequence, recordings: Recordings) -> None:
    real = recordings[str(sequence)]
    if isinstance(real, Exception):
        raise real
    simulated = play_plainly(sequence)
    if isinstance(simulated, Exception):
        raise simulated

    difference = name_difference(real, simulated)

    assert not difference, f"the worlds differ:\n{difference}"


# A controller whose caches are behind, each by itself, as those of the real one are.
LAGGING = StepTimes(
    controller=(timedelta(milliseconds=1), timedelta(milliseconds=10)),
    status=(timedelta(0), timedelta(milliseconds=20)),
    controller_cache=(timedelta(0), timedelta(milliseconds=5)),
)


@pytest.mark.parametrize("sequence", ALL, ids=str)
def test_a_sequence_is_the_same_every_time(sequence: Sequence) -> None:
    """Without a control plane: that it can be played at all, and that nothing in it is chance."""
    first = play_plainly(sequence)
    second = play_simulated(sequence, seed=1, pace=LAGGING)

    assert not isinstance(first, Exception), first
    assert first == second
