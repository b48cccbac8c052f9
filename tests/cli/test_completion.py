"""`completion`: the words that a shell offers."""

import shutil
import subprocess

import pytest

from rollout_operator.cli.completion import map_flags, render_bash, render_fish, render_zsh
from rollout_operator.cli.main import COMMANDS


def test_all_flags_of_a_command_are_known() -> None:
    flags = map_flags()

    assert {"for", "timeout", "group", "context", "namespace"} <= {*flags["wait"]}
    assert {"kubernetes.namespace", "help-all"} <= {*flags["run"]}
    assert "zpdb.pod-ready-annotation-patch-timeout" not in flags["run"]
    assert set(flags) == {command.name for command in COMMANDS} - {"help"}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rollout-operator sta", "status"),
        ("rollout-operator wait -ti", "-timeout"),
        ("kubectl-rollout_operator explain -cont", "-context"),
        ("rollout-operator wait -f", "-for"),
        ("rollout-operator wait --ti", "--timeout"),
        ("rollout-operator run -help", "-help-all"),
        ("rollout-operator -help", "-help-all"),
        ("rollout-operator --help", "--help-all"),
        ("rollout-operator -log.level info -server.po", "-server.port"),
        ("rollout-operator admin ''", "apply-crds uninstall-webhooks"),
        ("kubectl-rollout_operator admin u", "uninstall-webhooks"),
        ("rollout-operator admin uninstall-webhooks -dry", "-dry-run"),
        ("rollout-operator admin apply-crds u", ""),
        ("rollout-operator completion f", "fish"),
        ("rollout-operator completion ''", "bash zsh fish"),
        ("rollout-operator help adm", "admin"),
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

    assert done.stdout.split() == offered.split()


def test_zsh_and_fish_know_the_same_words() -> None:
    flags = {"status": ("watch", "output"), "run": ("mode",)}

    assert "bashcompinit" in render_zsh(flags)
    assert 'status) words="-watch -output" ;;' in render_zsh(flags)
    fish = render_fish(flags)
    assert '"__fish_seen_subcommand_from status" -o watch' in fish
    assert "-a status -d" in fish
    assert '"__fish_use_subcommand; or __fish_seen_subcommand_from run" -o mode' in fish
    assert '-a "apply-crds uninstall-webhooks"' in fish
