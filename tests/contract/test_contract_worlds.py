"""The sandbox answers as a real control plane did: each sequence is compared with its recording.

`python -m tests.contract` does the same outside of pytest and prints all differences.
"""

from datetime import timedelta

import pytest
from rollout_lab.virtual_loop.pace import StepTimes

from tests.contract.plays import Sequence, list_sequences
from tests.contract.recorded import list_outdated, name_problem, read_recording
from tests.contract.simulated import play_simulated

ALL = list_sequences()
RECORDING = read_recording()

# A controller whose caches are behind, each by itself, as those of the real one are.
LAGGING = StepTimes(
    controller=(timedelta(milliseconds=1), timedelta(milliseconds=10)),
    status=(timedelta(0), timedelta(milliseconds=20)),
    controller_cache=(timedelta(0), timedelta(milliseconds=5)),
)


@pytest.mark.parametrize("sequence", ALL, ids=str)
def test_both_worlds_answer_alike(sequence: Sequence) -> None:
    """Whatever chance and the pace of controllers do: nothing in an answer comes from them."""
    for simulated in (play_simulated(sequence), play_simulated(sequence, seed=1, pace=LAGGING)):
        if isinstance(simulated, Exception):
            raise simulated
        if problem := name_problem(str(sequence), simulated, RECORDING, "sandbox"):
            pytest.fail(problem, pytrace=False)


def test_the_recording_is_of_todays_sequences_and_control_plane() -> None:
    assert [*list_outdated(RECORDING, {*map(str, ALL)})] == []
