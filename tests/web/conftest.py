"""What tests of the servers share: the lines that are logged."""

from collections.abc import Iterator

import pytest

from rollout_operator.telemetry import logs


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Return the list into which all lines of the log go."""
    written: list[str] = []
    logs.configure(write=lambda line: written.append(line.decode()))
    yield written
    logs.configure()
