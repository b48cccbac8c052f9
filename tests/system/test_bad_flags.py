"""Bad flags and files: one clear line and the right exit code, by processes that end at once."""

import socket
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.system.starts import run_command, run_words, waiting_at_most, write_kubeconfig

OURS: Final = "-kubernetes.namespace=somewhere"


def test_words_that_do_not_follow_the_grammar() -> None:
    """DEP-02, DEP-04, DEP-05, PROC-04: exit code 2 and one line, which says where help is."""
    ended = run_words(OURS, "-reconcile.interval=5")
    assert ended.code == 2
    assert ended.err == (
        'rollout-operator: invalid value "5" for flag -reconcile.interval: parse error: time:'
        ' missing unit in duration "5": write 5s or 5m. See rollout-operator -help\n'
    )
    assert ended.out == ""


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        pytest.param("WATCH_NAMESPACE", "a,Bad_Name", '"Bad_Name" is not a name', id="MT-67"),
        pytest.param("LOG_LEVEL", "loud", "KUBERNETES_SERVICE_HOST is not set", id="MT-69"),
    ],
)
def test_variables_that_make_no_configuration(variable: str, value: str, complaint: str) -> None:
    """MAZ-60 to MAZ-63, DEP-04, PROC-03: exit code 1 and one line, without a stack trace.

    Of an unknown level is only warned.
    """
    ended = run_words(OURS, "-server.port=0", env={variable: value})
    assert ended.code == 1
    (line,) = ended.complaints
    assert complaint in line
    assert "Traceback" not in ended.err
    if variable == "LOG_LEVEL":
        assert any("level=warn" in line and "loud" in line for line in ended.err.splitlines())
    else:
        assert variable in line


def test_flags_of_charts_that_change_nothing_are_taken() -> None:
    """DEP-03, DEP-29, W-38: they are given in any case; one of them has no effect, and says so."""
    words = ("-use-zone-tracker=false", "-zpdb.pod-ready-annotation-patch-timeout=5s")
    ended = run_words(OURS, "-server.port=0", *words)
    assert ended.code == 1
    (line,) = ended.complaints
    assert "KUBERNETES_SERVICE_HOST is not set" in line
    assert "flag=zpdb.pod-ready-annotation-patch-timeout" in ended.err


def test_http04_a_port_that_is_taken() -> None:
    """HTTP-04, DEP-08: exit code 1 before anything is sent to the API server."""
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_words(OURS, f"-server.port={port}")
    assert ended.code == 1
    assert ended.complaints == [f"rollout-operator: -server.port: port {port} is in use"]
    assert "Traceback" not in ended.err


def test_an_api_server_that_is_not_there(tmp_path: Path) -> None:
    """PROC-02, W-22: a bounded wait, then exit code 1 and a line that names the server."""
    file = write_kubeconfig(tmp_path / "kubeconfig")
    ended = run_command(
        *waiting_at_most(timedelta(seconds=2)),
        OURS,
        "-server.port=0",
        "-kubernetes.api-url=https://127.0.0.1:1",
        f"-kubernetes.config-file={file}",
    )
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert "not ready within 2 s" in last
    assert "statefulsets" in last
    assert "127.0.0.1:1" in last
    assert "secret-word" not in ended.err
