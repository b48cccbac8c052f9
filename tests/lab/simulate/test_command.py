"""`rollout-operator simulate` as people call it: files, pipes, exit codes, and what is kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rollout_operator.cli.main import main
from tests.lab.simulate.dumps import Json, grow, to_yaml

Capture = pytest.CaptureFixture[str]
COMMAND = (sys.executable, "-m", "rollout_operator", "simulate")
PATIENCE = 60.0
KEPT = "hunter2"
SECRET: Json = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": KEPT, "namespace": "prod", "annotations": {"a": KEPT}},
    "data": {"password": KEPT},
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.yaml"
    path.write_bytes(to_yaml([*grow(), SECRET]))
    return path


def _run(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *words], input=given, capture_output=True, check=False, timeout=PATIENCE
    )


def test_a_dump_comes_through_a_pipe() -> None:
    ended = _run("-f", "-", "-change", "new template zone-b", given=to_yaml(grow()))

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"3 deletes by the operator" in ended.stdout


def test_objects_come_from_several_files_and_folders(tmp_path: Path, capsys: Capture) -> None:
    """What is in two of them is refused, as twice in one file."""
    objects = grow()
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


def test_objects_do_not_command_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    objects = grow()
    objects.append({**SECRET, "kind": "Sec\x1b[2Jret"})
    path = tmp_path / "dump.yaml"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    assert main(["simulate", "-f", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "Sec\\x1b[2Jret" in printed


def test_an_exit_code_is_given_on_request(dump: Path, capsys: Capture) -> None:
    words = ["simulate", "-f", str(dump), "-change", "delete pod zone-a-0 at 1s"]
    crossing = [*words, "-change", "delete pod zone-b-0"]

    assert [main(words), main([*words, "-exit-code"])] == [0, 0]
    assert [main(crossing), main([*crossing, "-exit-code"])] == [0, 5]
    assert "goes down beside pods of zone-a" in capsys.readouterr().out


@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (300, 100), (20, 60)])
def test_lines_are_as_wide_as_the_terminal(
    columns: int, widest: int, dump: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))

    assert main(["simulate", "-f", str(dump), "-change", "bad template"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert widest - 20 < max(map(len, lines)) <= widest


def test_it_need_not_be_read_to_the_end(dump: Path) -> None:
    with subprocess.Popen([*COMMAND, "-f", str(dump)], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        ended.stdout.close()

        assert ended.wait(PATIENCE) in (0, 141)


def test_the_log_of_the_operator_is_part_of_the_story_only(dump: Path, capfd: Capture) -> None:
    assert main(["simulate", "-f", str(dump), "-change", "new template"]) == 0

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_secret_is_never_printed(output: str, dump: Path, capsys: Capture) -> None:
    assert main(["simulate", "-f", str(dump), "-o", output, "-change", "new template"]) == 0

    shown = capsys.readouterr()
    assert KEPT not in shown.out + shown.err


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(f"a: [{KEPT}\nb: }}", "not YAML (line 2, column 2)", id="no YAML"),
        pytest.param(f"password {KEPT}", "something that is no Kubernetes object", id="text"),
        pytest.param(f"\x00{KEPT}", "not YAML", id="binary"),
        pytest.param(f"- {KEPT}\n", "something that is no Kubernetes object", id="a list of words"),
        pytest.param(json.dumps(SECRET), "no StatefulSet of apps/v1 among 1 Secret", id="a Secret"),
        pytest.param("", "there is no StatefulSet of apps/v1: pass what", id="nothing"),
    ],
)
def test_input_that_cannot_be_used(
    content: str, complaint: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "input"
    path.write_text(content)

    assert main(["simulate", "-f", str(path)]) == 1

    shown = capsys.readouterr()
    assert shown.out == ""
    assert complaint in shown.err
    assert shown.err.count("\n") == 1, "one line, without a traceback"
    assert KEPT not in shown.err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "nowhere.yaml"

    assert main(["simulate", "-f", str(path)]) == 1

    assert capsys.readouterr().err == f"rollout-operator: -f {path}: No such file or directory\n"


def test_a_name_that_is_not_there(dump: Path, capsys: Capture) -> None:
    assert main(["simulate", "-f", str(dump), "-change", "scale zone-x to 2"]) == 1

    assert 'no StatefulSet "zone-x"; did you mean "zone-a", ' in capsys.readouterr().err


def test_a_wrong_command_line_and_help(capsys: Capture) -> None:
    assert main(["simulate", "-f", "-", "-context", "c"]) == 2
    assert "-f reads no cluster: leave out -context" in capsys.readouterr().err

    assert main(["simulate", "-help"]) == 0
    shown = capsys.readouterr().out
    assert "Nothing is ever written." in shown
    assert "-kubeconfig string" in shown


def test_without_a_file_and_a_cluster_nothing_can_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    assert main(["simulate"]) == 1
    assert "there is no kubeconfig" in capsys.readouterr().err
