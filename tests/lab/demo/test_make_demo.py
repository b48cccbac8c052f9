"""The demo on a real control plane: one smoke run."""

import io
from datetime import timedelta

import pytest

from rollout_operator.lab.demo.screen import Plain
from tests.demo import Settings, present
from tests.world.plane import ControlPlane


@pytest.mark.controlplane
async def test_a_whole_rollout_in_plain_lines(plane: ControlPlane) -> None:
    """SEED-001, LI-01: as `make demo-cluster` shows it in a pipe, with pods that are quick."""
    stream = io.StringIO()
    settings = Settings(replicas=2, ready_after=timedelta(milliseconds=150))

    assert await present(plane, settings, Plain(stream)), stream.getvalue()

    text = stream.getvalue()
    assert "\x1b" not in text
    for zone in "abc":
        assert all(f"  zone-{zone}-{n} " in text for n in range(2))
        assert f"rolled_out: zone-{zone} has 2 of 2 pods ready at revision" in text
    assert "6 of 6 pods ready on v2" in text
    assert text.splitlines()[-2:] == ["deletes 6, refused 0", "judge clean"]
