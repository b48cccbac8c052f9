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


def test_nobody_need_read_it_to_the_end(dump: Path) -> None:
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


def test_json_is_one_object(dump: Path, capsys: Capture) -> None:
    assert main(["simulate", "-f", str(dump), "-o", "json", "-change", "image zone-c=v2"]) == 0

    assert json.loads(capsys.readouterr().out)["deletes"] == ["zone-c-0", "zone-c-1", "zone-c-2"]


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


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("scale zone-x to 2", 'no StatefulSet "zone-x"; did you mean zone-'),
        ("pod zone-a-7 fails", 'no pod "zone-a-7"; did you mean zone-a-'),
        (
            "new template ingster",
            'no StatefulSet or rollout group "ingster"; did you mean ingester',
        ),
        ("pause everything", 'no StatefulSet "everything"; there are zone-a, zone-b, zone-c'),
    ],
)
def test_a_name_that_is_not_there(change: str, complaint: str, dump: Path, capsys: Capture) -> None:
    assert main(["simulate", "-f", str(dump), "-change", change]) == 1

    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "-f has not been specified"),
        (["-f", "-", "new template"], "unexpected word: new template; a change stands in quotes"),
        (["-f", "-", "-change", "explode"], 'there are "new template [ZONE ...]"'),
        (["-f", "-", "-o", "xml"], '-o must be one of text, json: "xml"'),
    ],
)
def test_a_wrong_command_line(words: list[str], complaint: str, capsys: Capture) -> None:
    assert main(["simulate", *words]) == 2

    shown = capsys.readouterr().err
    assert complaint in shown.splitlines()[0]
    assert "Usage: rollout-operator simulate -f FILE" in shown


def test_help_says_that_nothing_is_sent(capsys: Capture) -> None:
    assert main(["simulate", "-help"]) == 0

    shown = capsys.readouterr().out
    assert "Nothing is sent anywhere." in shown
    assert "pod POD recovers" in shown
    assert max(len(line) for line in shown.splitlines()) <= 100
