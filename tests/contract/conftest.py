"""What the real control plane answers to the sequences that were chosen, played once for all."""

import asyncio
from collections.abc import Iterable, Iterator

import pytest

from tests.contract.plays import Sequence
from tests.contract.recording import Recordings, record_all
from tests.world.plane import ControlPlane


@pytest.fixture(scope="session")
def recordings(request: pytest.FixtureRequest, plane: ControlPlane) -> Recordings:
    """Return the transcripts of the real control plane by the names of sequences."""
    chosen = {str(one): one for one in _sequences_of(request.session.items)}
    # A loop of our own, not asyncio.run(): that would take the loop of later tests away.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(record_all(plane, list(chosen.values())))
    finally:
        loop.close()


def _sequences_of(items: Iterable[pytest.Item]) -> Iterator[Sequence]:
    for item in items:
        callspec = getattr(item, "callspec", None)
        played = callspec.params.get("sequence") if callspec else None
        if isinstance(played, Sequence):
            yield played
