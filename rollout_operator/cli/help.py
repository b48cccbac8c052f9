"""`rollout-operator help`, and `rollout-operator help COMMAND`."""

import sys
from collections.abc import Sequence

from rollout_operator.cli.commands import OPERATOR, get_command
from rollout_operator.config.grammar import Words, parse_words, refuse_leftovers
from rollout_operator.model.exit_codes import ExitCode


def run(words: Sequence[str]) -> int:
    """Print the help of the program, or of the command that is named; return 0.

    Raises UnknownCommand and UsageError, or HelpRequested.
    """
    name, *more = parse_words((), words).leftovers or (OPERATOR,)
    command = get_command(name)
    refuse_leftovers(Words(tuple(more)))
    sys.stdout.write(render_usage() if command.name == "help" else command.load().render_usage())
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text of the whole program."""
    return get_command(OPERATOR).load().render_usage()
