"""A forked operator does what the program does: the tests on the control plane rest on it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.world.childproc import Child, start_program
from tests.world.forkserver import fork_operator, read_modules, run_program
from tests.world.operatorproc import END_LIMIT, OPERATOR


@pytest.fixture(scope="module", autouse=True)
def _modules_are_read() -> None:
    read_modules()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("-version",), id="done"),
        pytest.param(("-server.port=far",), id="a bad flag"),
        pytest.param(("-kubernetes.namespace=x", "-server.port=0"), id="no kubeconfig"),
    ],
)
async def test_it_prints_and_ends_like_the_program(tmp_path: Path, words: tuple[str, ...]) -> None:
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    forked, program = tmp_path / "forked.log", tmp_path / "program.log"
    children = (
        Child("forked", fork_operator(words, forked, environ), forked),
        Child("program", start_program([*OPERATOR, *words], program, environ), program),
    )
    codes = [await child.wait(END_LIMIT) for child in children]
    assert codes[0] == codes[1]
    texts = [re.sub(r" ts=\S+", "", path.read_text()) for path in (forked, program)]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize("words", [("help", "status"), ("status", "-x"), ("adopt", "-n="), ("a",)])
def test_a_command_prints_and_ends_like_the_program(words: tuple[str, ...]) -> None:
    env = {**os.environ, "KUBECONFIG": "/none"}
    forked = run_program(*words, env=env, limit_s=60)
    program = subprocess.run(
        [*OPERATOR, *words], env=env, capture_output=True, text=True, check=False
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        program.returncode, program.stdout, program.stderr,
    )  # fmt: skip
    assert forked.stdout + forked.stderr


def test_a_command_that_does_not_end_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_program("simulate", "-help", env={}, limit_s=0)


async def test_its_end_by_a_signal_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = Child("forked", fork_operator(("-server.port=0",), log, {"KUBECONFIG": ""}), log)
    child.send(signal.SIGSTOP)
    assert child.exit_code is None
    assert child.kill() == -signal.SIGKILL
    assert child.exit_code == -signal.SIGKILL
