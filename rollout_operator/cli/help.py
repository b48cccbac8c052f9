"""`rollout-operator help`, and `rollout-operator help COMMAND`."""

import sys
from collections.abc import Sequence

from rollout_operator.cli.main import OPERATOR, get_command
from rollout_operator.config.grammar import ParsedArguments, parse_arguments, refuse_leftovers
from rollout_operator.model.names import ExitCode


def run(arguments: Sequence[str]) -> int:
    """Print the help of the program, or of the command that is named; return 0.

    Raises UnknownCommand and UsageError, or HelpRequested.
    """
    name, *more = parse_arguments((), arguments).leftovers or (OPERATOR,)
    command = get_command(name)
    refuse_leftovers(ParsedArguments(tuple(more)))
    sys.stdout.write(render_usage() if command.name == "help" else command.load().render_usage())
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text of the whole program."""
    return get_command(OPERATOR).load().render_usage()
