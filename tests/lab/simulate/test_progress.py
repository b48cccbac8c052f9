"""What a long simulation says of how far it has come."""

import io
from datetime import timedelta
from pathlib import Path

import pytest
from rollout_lab.model.history import Commit
from rollout_lab.simulate.progress import SimulationProgress

from rollout_operator.cli.main import main
from rollout_operator.kube.api import PODS
from tests.lab.simulate.dumps import grow, to_yaml


def _created(at: float, name: str) -> Commit:
    return Commit(
        at=timedelta(seconds=at),
        revision=1,
        actor="controller",
        resource=PODS,
        namespace="prod",
        name=name,
        before=None,
        after={},
    )


def test_a_long_simulation_says_how_far_it_is_and_how_long_it_will_take() -> None:
    said, now = io.StringIO(), 100.0
    progress = SimulationProgress(said, pods=9, clock=lambda: now)

    progress.take(_created(30, "zone-a-0"))
    now = 114.0
    progress.take(_created(60, "zone-a-1"))
    assert said.getvalue() == "", "a short one says nothing"
    now = 118.0
    progress.take(_created(90, "zone-a-2"))
    now = 119.0
    progress.take(_created(91, "zone-b-0"))

    assert said.getvalue() == (
        "1m30s simulated in 18s: 3 of 9 pods created anew, all of them would take 36s more\n"
    )


def test_the_command_says_so_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rollout_lab.simulate.progress.EVERY_S", 0)
    path = tmp_path / "dump.yaml"
    path.write_bytes(to_yaml(grow()))

    assert main(["simulate", "-f", str(path), "-change", "new template zone-b"]) == 0

    shown = capsys.readouterr()
    assert ": 3 of 9 pods created anew, all of them would take" in shown.err
    assert "created anew" not in shown.out
