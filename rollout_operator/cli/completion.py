"""`rollout-operator completion`: scripts by which a shell completes commands and flags.

The flags are read from the help texts, those of the lab's commands as well.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from rollout_operator.cli.main import ADMIN_TASKS, COMMANDS, OPERATOR, PROGRAM, NotInstalled
from rollout_operator.config.grammar import HELP_ALL, UsageError, parse_mixed
from rollout_operator.model.names import ExitCode
from rollout_operator.model.units import quote

_FLAG: Final = re.compile(r"^  -([a-zA-Z][-.\w]*)", re.MULTILINE)

# The second word of commands that take a certain one.
_SECOND_WORDS: Final = {"admin": ADMIN_TASKS, "completion": ("bash", "zsh", "fish")}

_USAGE: Final = f"""\
Usage: {PROGRAM} completion bash|zsh|fish

Prints the script by which a shell completes commands and flags. To load it:

  bash   source <({PROGRAM} completion bash)
  zsh    source <({PROGRAM} completion zsh)
  fish   {PROGRAM} completion fish | source
"""
_BASH: Final = """\
_rollout_operator() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words
  case ${{COMP_WORDS[1]}} in
{cases}
    *) words="{commands}" ;;
  esac
  case $COMP_CWORD:${{COMP_WORDS[1]}} in
    1:-*) ;;
    1:*) words="{commands}" ;;
{seconds}
  esac
  case $current in --*) words="-${{words// -/ --}}" ;; esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _rollout_operator {program} kubectl-rollout_operator
"""
# zsh runs completions of bash, and both then know the same words.
_ZSH: Final = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def run(arguments: Sequence[str]) -> int:
    """Print the script for a shell; return 0. Raises HelpRequested and UsageError."""
    shells = {"bash": render_bash, "zsh": render_zsh, "fish": render_fish}
    named = parse_mixed((), arguments).leftovers
    if len(named) != 1 or named[0] not in shells:
        given = f", not {quote(' '.join(named))}" if named else ""
        raise UsageError(f"name one shell: {', '.join(shells)}{given}")
    sys.stdout.write(shells[named[0]](map_flags()))
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return _USAGE


def map_flags() -> Mapping[str, Sequence[str]]:
    """Return the flags of each installed command, without the dash."""
    flags = {}
    for command in COMMANDS:
        if command.name != "help":
            with suppress(NotInstalled):
                usage = command.load().render_usage()
                more = (HELP_ALL,) if command.name == OPERATOR else ()
                flags[command.name] = tuple(dict.fromkeys((*_FLAG.findall(usage), *more)))
    return flags


def render_bash(flags: Mapping[str, Sequence[str]]) -> str:
    cases = [
        # Flags without a command are the operator's.
        f'    {name}{"|-*" if name == OPERATOR else ""}) words="{" ".join(_dash(flags[name]))}" ;;'
        for name in flags
    ]
    seconds = [
        f'    2:{name}) words="{" ".join(_SECOND_WORDS[name])}" ;;' for name in _SECOND_WORDS
    ]
    commands = " ".join(command.name for command in COMMANDS)
    return _BASH.format(
        cases="\n".join(cases), seconds="\n".join(seconds), commands=commands, program=PROGRAM
    )


def render_zsh(flags: Mapping[str, Sequence[str]]) -> str:
    return _ZSH + render_bash(flags)


def render_fish(flags: Mapping[str, Sequence[str]]) -> str:
    lines = [
        f"complete -c {PROGRAM} -f -n __fish_use_subcommand -a {command.name}"
        f' -d "{command.summary}"'
        for command in COMMANDS
    ]
    lines += [
        f'complete -c {PROGRAM} -f -n "__fish_seen_subcommand_from {name};'
        f' and not __fish_seen_subcommand_from {" ".join(words)}" -a "{" ".join(words)}"'
        for name, words in _SECOND_WORDS.items()
    ]
    lines += [
        f'complete -c {PROGRAM} -n "{"__fish_use_subcommand; or " if name == OPERATOR else ""}'
        f'__fish_seen_subcommand_from {name}" -o {flag}'
        for name, kind in flags.items()
        for flag in kind
    ]
    return "".join(f"{line}\n" for line in lines)


def _dash(flags: Sequence[str]) -> list[str]:
    return [f"-{flag}" for flag in flags]
