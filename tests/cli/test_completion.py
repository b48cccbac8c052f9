"""`completion`: the words that a shell offers."""

import shutil
import subprocess

import pytest

from rollout_operator.cli.completion import map_flags, render_bash, render_fish, render_zsh
from rollout_operator.cli.main import COMMANDS, main
from rollout_operator.model.names import ExitCode


def test_all_flags_of_a_command_are_known() -> None:
    flags = map_flags()

    assert {"for", "timeout", "group", "context", "namespace"} <= {*flags["wait"]}
    assert "kubernetes.namespace" in flags["run"]
    assert set(flags) == {command.name for command in COMMANDS} - {"help"}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rollout-operator sta", "status"),
        ("rollout-operator wait -ti", "-timeout"),
        ("kubectl-rollout_operator explain -cont", "-context"),
        ("rollout-operator wait -f", "-for"),
        ("rollout-operator wait --ti", "--timeout"),
    ],
)
def test_bash_completes_commands_and_flags(line: str, offered: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    words = line.split()
    script = (
        f"{render_bash(map_flags())}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        "_rollout_operator; printf '%s ' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [offered]


def test_zsh_and_fish_know_the_same_words() -> None:
    flags = {"status": ("watch", "output")}

    assert "bashcompinit" in render_zsh(flags)
    assert 'status) words="-watch -output" ;;' in render_zsh(flags)
    fish = render_fish(flags)
    assert '"__fish_seen_subcommand_from status" -o watch' in fish
    assert "-a status -d" in fish


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"]])
def test_another_shell_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", *words]) == ExitCode.BAD_COMMAND_LINE
    assert "name one shell: bash, zsh, fish" in capsys.readouterr().err


def test_the_script_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out.startswith("_rollout_operator() {\n")
