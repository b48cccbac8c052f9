"""The table of commands: a new command is a module of this folder and a row here.

The module is imported when its command is chosen, so that help, version and refusals are quick.
"""

import difflib
from collections.abc import Sequence
from importlib import import_module
from typing import Final, Protocol, cast

import msgspec

from rollout_operator.config.grammar import UsageError

PROGRAM: Final = "rollout-operator"


class CommandModule(Protocol):
    """The functions of the module of a command."""

    def run(self, arguments: Sequence[str]) -> int:
        """Return the exit code. Raises HelpRequested, and OperatorError as one line on stderr."""
        ...

    def render_usage(self) -> str:
        """Return the help text, which goes to stdout."""
        ...


class Command(msgspec.Struct, frozen=True):
    """One row: the word that chooses the command, and its line in the help."""

    name: str
    summary: str

    def load(self) -> CommandModule:
        """Import the module, which has the name of its command."""
        module = import_module(f"{__package__}.{self.name.replace('-', '_')}")
        return cast(CommandModule, module)

    @property
    def help_words(self) -> str:
        """Return the words to type for its help."""
        return f"{PROGRAM} -help" if self.name == OPERATOR else f"{PROGRAM} {self.name} -help"


OPERATOR: Final = "run"
"""The command that takes flags without a command."""
COMMANDS: Final = (
    Command(OPERATOR, "run the operator, as without a command"),
    Command("status", "what each rollout group does, and what it waits for"),
    Command("explain", "whether a pod may go now, and what would have to happen first"),
    Command("wait", "wait until rollout groups are rolled out, in a script"),
    Command("demo", "watch the operator at work on a simulated cluster"),
    Command("simulate", "what the operator would do with objects of your cluster"),
    Command("doctor", "prove an installation, and name what is wrong with what to do"),
    Command("adopt", "print what brings plain StatefulSets of zones under the operator"),
    Command("apply-crds", "create or upgrade the operator's kinds, as its chart does"),
    Command("uninstall-webhooks", "delete the webhook configurations of an operator"),
    Command("completion", "print what lets a shell complete commands and flags"),
    Command("version", "print the version, as -version does"),
    Command("help", "print this, or with the name of a command its help"),
)


class UnknownCommand(UsageError):
    """No command has this name."""

    def __init__(self, name: str) -> None:
        names = [command.name for command in COMMANDS]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"commands are {', '.join(names)}"
        super().__init__(f'unknown command "{name}"; {hint}')


def get_command(name: str) -> Command:
    """Return the command of this name. Raises UnknownCommand."""
    for command in COMMANDS:
        if command.name == name:
            return command
    raise UnknownCommand(name)


def render_commands() -> str:
    """Return the table as help text."""
    width = max(len(command.name) for command in COMMANDS)
    rows = (f"  {command.name:{width}}  {command.summary}\n" for command in COMMANDS)
    return f"Commands, each with a help of its own:\n{''.join(rows)}"
