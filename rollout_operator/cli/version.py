"""`rollout-operator version`, `-version` and `--version`: one line for people and scripts."""

import sys
from collections.abc import Sequence
from typing import Final

from rollout_operator import __version__
from rollout_operator.cli.main import PROGRAM
from rollout_operator.config.grammar import parse_arguments, refuse_leftovers
from rollout_operator.model.names import ExitCode

_USAGE: Final = f"Usage: {PROGRAM} version\n\nPrints the version.\n"


def run(arguments: Sequence[str]) -> int:
    """Print the version; return 0. Raises HelpRequested and UsageError."""
    refuse_leftovers(parse_arguments((), arguments))
    sys.stdout.write(f"{PROGRAM} {__version__}\n")
    return ExitCode.DONE


def render_usage() -> str:
    """Return the help text."""
    return _USAGE
