"""`rollout-operator simulate` as people call it: files, pipes, terminals, and for machines."""

import io
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from rollout_lab.model.history import Commit
from rollout_lab.simulate.command import SimulationProgress
from rollout_lab.simulate.report import SimulationDocument

from rollout_operator.cli.main import main
from rollout_operator.kube.api import PODS
from rollout_operator.model.description import Phase
from tests.code_rules import ROOT
from tests.lab.simulate.schema import render_simulation_schema
from tests.lab.simulate.stage import SimulateStage, to_yaml

Capture = pytest.CaptureFixture[str]
COMMAND = (sys.executable, "-m", "rollout_operator", "simulate")
PATIENCE = 60.0
SCHEMA = ROOT / "docs" / "simulate.schema.json"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.yaml"
    path.write_bytes(to_yaml(SimulateStage().objects))
    return path


def test_a_dump_comes_through_a_pipe(dump: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "-f", "-", "-change", "new template zone-b"],
        input=dump.read_bytes(),
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"3 deletes by the operator" in ended.stdout


def test_it_need_not_be_read_to_the_end(dump: Path) -> None:
    with subprocess.Popen([*COMMAND, "-f", str(dump)], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        ended.stdout.close()

        assert ended.wait(PATIENCE) in (0, 141)


def test_objects_come_from_several_files_and_folders(tmp_path: Path, capsys: Capture) -> None:
    """What is in two of them is refused, as twice in one file."""
    objects = SimulateStage().objects
    folder = tmp_path / "sets"
    folder.mkdir()
    pods = tmp_path / "pods.yaml"
    pods.write_bytes(to_yaml([one for one in objects if one["kind"] == "Pod"]))
    (folder / "a.yaml").write_bytes(to_yaml([one for one in objects if one["kind"] != "Pod"]))
    words = ["simulate", "-f", str(pods), "-f", str(folder)]

    assert main([*words, "-change", "new template zone-b"]) == 0
    assert "3 deletes by the operator" in capsys.readouterr().out
    assert main([*words, "-f", str(pods)]) == 1
    assert (
        "the input holds pod zone-a-0, zone-a-1, zone-a-2 and 6 more twice"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (300, 100), (20, 60)])
def test_lines_are_as_wide_as_the_terminal(
    columns: int, widest: int, dump: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))

    assert main(["simulate", "-f", str(dump), "-change", "bad template"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert widest - 20 < max(map(len, lines)) <= widest


def test_help_and_neither_a_file_nor_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["simulate", "-help"]) == 0
    shown = capsys.readouterr().out
    assert "Nothing is ever written." in shown
    assert "-kubeconfig string" in shown

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert main(["simulate"]) == 1
    assert "there is no kubeconfig" in capsys.readouterr().err


def test_the_schema_stands_in_the_documents_and_describes_what_is_printed(
    dump: Path, capsys: Capture
) -> None:
    """Decoded by the type that the schema is made of, it is the same again."""
    assert SCHEMA.read_bytes() == render_simulation_schema(), (
        "write it anew: python -m tests.pictures simulation"
    )
    changes = ["new template", "bad template", "delete pod zone-b-0 at 1m"]
    words = [word for change in changes[1:] for word in ("-change", change)]

    assert main(["simulate", "-f", str(dump), "-o", "json", *words, "-versus", changes[0]]) == 0

    shown = capsys.readouterr()
    printed = json.loads(shown.out)
    assert shown.err == "", "the log of the operator is part of the story only"
    document = msgspec.convert(printed, SimulationDocument)
    assert json.loads(msgspec.json.encode(document)) == printed
    assert (document.schema_version, document.exit_code) == (1, 5)
    assert document.changes == changes[1:]
    assert document.end.groups[0].phase is Phase.WAITING
    assert [(one.pod, one.by) for one in document.crossings] == [("zone-b-0", "you")]
    assert printed["versus"]["changes"] == changes[:1]


def test_a_long_simulation_says_how_far_it_is_and_how_long_it_will_take() -> None:
    def create(at: float, name: str) -> Commit:
        return Commit(
            at=timedelta(seconds=at), revision=1, actor="controller", resource=PODS,
            namespace="prod", name=name, before=None, after={},
        )  # fmt: skip

    said, now = io.StringIO(), 100.0
    progress = SimulationProgress(said, pods=9, clock=lambda: now)

    progress.take(create(30, "zone-a-0"))
    now = 114.0
    progress.take(create(60, "zone-a-1"))
    assert said.getvalue() == "", "a short one says nothing"
    now = 118.0
    progress.take(create(90, "zone-a-2"))
    now = 119.0
    progress.take(create(91, "zone-b-0"))

    assert said.getvalue() == (
        "1m30s simulated in 18s: 3 of 9 pods created anew, all of them would take 36s more\n"
    )


def test_the_command_says_so_on_standard_error(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("rollout_lab.simulate.command.EVERY_S", 0)

    assert main(["simulate", "-f", str(dump), "-change", "new template zone-b"]) == 0

    shown = capsys.readouterr()
    assert ": 3 of 9 pods created anew, all of them would take" in shown.err
    assert "created anew" not in shown.out
