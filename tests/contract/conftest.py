"""What the real control plane answers to the sequences that were chosen."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.contract.kept import keep_answers, locate_answers, read_answers
from tests.contract.plays import Sequence
from tests.contract.recording import Recordings, record_all
from tests.world.plane import ControlPlane


@pytest.fixture(scope="session")
def recordings(request: pytest.FixtureRequest) -> Recordings:
    """Return the transcripts of the real control plane by the names of sequences.

    What is kept of an earlier run is not played again.
    """
    file = locate_answers()
    known = read_answers(file)
    chosen = dict.fromkeys(_sequences_of(request.session.items))
    missing = [one for one in chosen if str(one) not in known]
    if not missing:
        return known
    played = _play(request.getfixturevalue("plane"), missing)
    keep_answers(file, played, known)
    return {**known, **{str(one): real for one, real in played.items()}}


def _play(
    plane: ControlPlane, sequences: list[Sequence]
) -> Mapping[Sequence, list[str] | Exception]:
    # A loop of our own, not asyncio.run(): that would take the loop of later tests away.
    loop = asyncio.new_event_loop()
    try:
        real = loop.run_until_complete(record_all(plane, sequences))
    finally:
        loop.close()
    return {one: real[str(one)] for one in sequences}


def _sequences_of(items: Iterable[pytest.Item]) -> Iterator[Sequence]:
    for item in items:
        callspec = getattr(item, "callspec", None)
        played = callspec.params.get("sequence") if callspec else None
        if isinstance(played, Sequence):
            yield played
